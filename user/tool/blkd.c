// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * memreg blkd: run memreg-blkd, which is in the same directory as this program,
 * or else in one of PATH.
 */
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "tool.h"

#define PROGRAM	"memreg-blkd"

int cmd_blkd(int argc, char **argv)
{
	static char name[] = PROGRAM;
	char path[PATH_MAX + sizeof(PROGRAM)];
	char *slash;
	ssize_t len;

	(void)argc;
	argv[0] = name;
	len = readlink("/proc/self/exe", path, PATH_MAX);
	if (len > 0) {
		path[len] = '\0';
		slash = strrchr(path, '/');
		strcpy(slash ? slash + 1 : path, PROGRAM);
		execv(path, argv);
	}
	execvp(PROGRAM, argv);
	return fail("%s: %s", PROGRAM, strerror(errno));
}
