// SPDX-License-Identifier: GPL-2.0-only
/*
 * A program that uses UCX or libfabric in a plugin, as Python does: it loads
 * the plugin that is named first, and calls its function run(). Further
 * arguments: "global" or "deepbind" (how it is loaded), or another plugin,
 * which is loaded and run before, and which all of the program sees unless
 * "local" comes first.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static int run(const char *plugin, int flags)
{
	void *handle = dlopen(plugin, flags);
	int (*function)(void) = handle ? dlsym(handle, "run") : NULL;

	if (!function)
		printf("%s\n", dlerror());
	return function ? function() : 2;
}

int main(int argc, char **argv)
{
	int flags = RTLD_NOW, other = RTLD_NOW | RTLD_GLOBAL, i, ret = 0;

	if (argc < 2)
		return 2;
	for (i = 2; i < argc; i++) {
		if (!strcmp(argv[i], "global"))
			flags |= RTLD_GLOBAL;
		else if (!strcmp(argv[i], "deepbind"))
			flags |= RTLD_DEEPBIND;
		else if (!strcmp(argv[i], "local"))
			other = RTLD_NOW;
		else
			ret = run(argv[i], other);
	}
	return ret ? ret : run(argv[1], flags);
}
