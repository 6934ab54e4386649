// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "module.h"
#include "net.h"

int test_module_open(const char *name)
{
	struct utsname host;
	char path[256];

	uname(&host);
	snprintf(path, sizeof(path), "build/kernel-%s/%s.ko", host.release,
		 name);
	return open(tree_path(path), O_RDONLY | O_CLOEXEC);
}

bool test_module_load(const char *name, const char *parameters)
{
	int fd = test_module_open(name), ret;

	if (fd < 0)
		return false;
	ret = (int)syscall(SYS_finit_module, fd, parameters, 0);
	close(fd);
	return !ret || errno == EEXIST;
}

void test_module_unload(const char *name)
{
	syscall(SYS_delete_module, name, O_NONBLOCK);
}

const char *test_module_parameter(const char *module, const char *name)
{
	static char path[256];

	snprintf(path, sizeof(path), "/sys/module/%s/parameters/%s", module,
		 name);
	return path;
}
