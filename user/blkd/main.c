// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* memreg-blkd, which `memreg blkd` runs */
#include "blkd.h"

int main(int argc, char **argv)
{
	int ret;

	set_subcommand("blkd");
	ret = blkd_main(argc, argv);
	return ret == EXIT_GOOD ? check_output() : ret;
}
