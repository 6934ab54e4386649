// SPDX-License-Identifier: GPL-2.0-only
/*
 * A plugin that uses libfabric: it prints the file of the libfabric that its
 * call reaches.
 */
#include <dlfcn.h>
#include <rdma/fabric.h>
#include <stdio.h>

int run(void)
{
	struct fi_info *info;
	Dl_info found;
	int ret = fi_getinfo(FI_VERSION(1, 18), NULL, NULL, 0, NULL, &info);

	if (!dladdr(fi_freeinfo, &found))
		return 2;
	printf("%s\n", found.dli_fname);
	if (!ret)
		fi_freeinfo(info);
	return 0;
}
