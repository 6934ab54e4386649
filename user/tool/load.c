// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* memreg load: the kernel module and, if asked for, soft-RoCE */
#include <errno.h>
#include <getopt.h>
#include <libkmod.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "tool.h"
#include "version.h"

#define UNSIGNED \
	"this kernel takes modules only if they are signed by a key that it knows, as with Secure Boot: see README.md"

static const struct {
	int err;
	const char *text;
} hints[] = {
	{ EPERM, "this needs root" },
	{ EACCES, "this needs root" },
	{
		ENOENT,
		"a symbol that it needs is missing in this kernel, which `dmesg` names: build it for the running one",
	},
	{
		ENOEXEC,
		"it was built for another kernel: build it for the running one, and see `dmesg`",
	},
	{
		EKEYREJECTED,
		UNSIGNED,
	},
	{ ENOSYS, "this kernel has no loadable modules" },
};

static const char *hint(int err)
{
	size_t i;

	/* what lockdown answers to root */
	if (err == -EPERM && !geteuid())
		return UNSIGNED;
	for (i = 0; i < sizeof(hints) / sizeof(hints[0]); i++)
		if (hints[i].err == -err)
			return hints[i].text;
	return "see `dmesg`";
}

static int fail_module(const char *name, int err)
{
	return fail("%s can't be loaded: %s; %s", name, strerror(-err),
		    hint(err));
}

/* Nothing of that name is installed; two of the modules are ours */
static int fail_missing(const char *name)
{
	bool main = !strcmp(name, MODULE_NAME);
	struct utsname kernel;

	uname(&kernel);
	if (!main && strcmp(name, BLK_MODULE_NAME))
		return fail("%s can't be loaded: the kernel %s has no such module",
			    name, kernel.release);
	return fail("%s is not installed for the kernel %s: `make install` does that, and so does the package memreg-dkms with linux-headers-%s; %s",
		    name, kernel.release, kernel.release,
		    main ? "--module PATH takes it from elsewhere" :
			   "`insmod` takes it from elsewhere");
}

bool module_is_loaded(const char *name)
{
	char path[64];

	snprintf(path, sizeof(path), "/sys/module/%.40s", name);
	return !access(path, F_OK);
}

/* Load a module with its dependencies, as modprobe does */
static int probe(struct kmod_ctx *ctx, const char *name, const char *params)
{
	struct kmod_list *list = NULL, *item;
	int err;

	err = kmod_module_new_from_lookup(ctx, name, &list);
	if (!err && !list)
		return fail_missing(name);
	kmod_list_foreach(item, list) {
		struct kmod_module *mod = kmod_module_get_module(item);

		err = kmod_module_probe_insert_module(mod, 0, params, NULL,
						      NULL, NULL);
		kmod_module_unref(mod);
		if (err == -EEXIST)
			err = 0;
		if (err)
			break;
	}
	kmod_module_unref_list(list);
	return err ? fail_module(name, err) : EXIT_GOOD;
}

int load_installed(const char *name)
{
	struct kmod_ctx *ctx;
	int ret;

	/* it may be built into the kernel, or loaded from elsewhere */
	if (module_is_loaded(name))
		return EXIT_GOOD;
	ctx = kmod_new(NULL, NULL);
	if (!ctx)
		return fail("libkmod can't be set up: %s", strerror(errno));
	/* it reports errors itself otherwise, and in fewer words than we do */
	kmod_set_log_priority(ctx, 0);
	ret = probe(ctx, name, NULL);
	kmod_unref(ctx);
	return ret;
}

/* "ib_core,rdma_cm" of the module's own information */
static int probe_each(struct kmod_ctx *ctx, const char *names)
{
	char *copy = strdup(names), *save, *name;
	int ret = EXIT_GOOD;

	if (!copy)
		return fail("%s", strerror(ENOMEM));
	for (name = strtok_r(copy, ",", &save); name && ret == EXIT_GOOD;
	     name = strtok_r(NULL, ",", &save))
		ret = probe(ctx, name, NULL);
	free(copy);
	return ret;
}

static int probe_dependencies(struct kmod_ctx *ctx, struct kmod_module *mod)
{
	struct kmod_list *info = NULL, *item;
	int ret = EXIT_GOOD;
	int err = kmod_module_get_info(mod, &info);

	if (err < 0)
		return fail_module(kmod_module_get_path(mod), err);
	kmod_list_foreach(item, info) {
		if (strcmp(kmod_module_info_get_key(item), "depends"))
			continue;
		ret = probe_each(ctx, kmod_module_info_get_value(item));
		if (ret != EXIT_GOOD)
			break;
	}
	kmod_module_info_free_list(info);
	return ret;
}

/* A module that is not installed, such as one of a build tree */
static int insert_path(struct kmod_ctx *ctx, const char *path,
		       const char *params)
{
	struct kmod_module *mod;
	int ret, err;

	err = kmod_module_new_from_path(ctx, path, &mod);
	if (err < 0)
		return fail("%s: %s", path, strerror(-err));
	ret = probe_dependencies(ctx, mod);
	if (ret == EXIT_GOOD) {
		err = kmod_module_insert_module(mod, 0, params);
		if (err && err != -EEXIST)
			ret = fail_module(path, err);
	}
	kmod_module_unref(mod);
	return ret;
}

/*
 * A module is loaded: is it the one that was named, or else the one that is
 * installed?
 */
static int check_loaded(struct kmod_ctx *ctx, const char *path,
			bool parameters)
{
	char loaded[VERSION_TEXT], file[VERSION_TEXT];
	struct kmod_module *mod;
	int err;

	if (parameters)
		return fail(MODULE_NAME " is loaded already, and gets parameters when it is loaded; `memreg unload` first");
	err = path ? kmod_module_new_from_path(ctx, path, &mod) :
		     kmod_module_new_from_name(ctx, MODULE_NAME, &mod);
	if (err < 0)
		return fail("%s: %s", path ? path : MODULE_NAME,
			    strerror(-err));
	err = version_compare(mod, loaded, file);
	kmod_module_unref(mod);
	if (err == 1 || (err < 0 && !path))
		return EXIT_GOOD;
	if (err < 0)
		return fail("%s is no module that can be read: %s", path,
			    strerror(-err));
	if (path)
		return fail(MODULE_NAME " %s is loaded already, and %s is %s; `memreg unload` first",
			    loaded, path, file);
	fail(MODULE_NAME " %s is loaded, and %s is installed, which `memreg unload` and `memreg load` bring",
	     loaded, file);
	return EXIT_GOOD;
}

static int load_module(const char *path, const char *params)
{
	struct kmod_ctx *ctx = kmod_new(NULL, NULL);
	int ret;

	if (!ctx)
		return fail("libkmod can't be set up: %s", strerror(errno));
	/* it reports errors itself otherwise, and in fewer words than we do */
	kmod_set_log_priority(ctx, 0);
	if (module_is_loaded(MODULE_NAME))
		ret = check_loaded(ctx, path, *params);
	else if (path)
		ret = insert_path(ctx, path, params);
	else
		ret = probe(ctx, MODULE_NAME, params);
	kmod_unref(ctx);
	if (ret == EXIT_GOOD && access(MEMREG_DEVICE_PATH, F_OK))
		return fail(MODULE_NAME " is loaded, but /dev has not got "
			    MEMREG_DEVICE_PATH
			    ", as in a container: make the node from /sys/class/memreg/memreg/dev");
	return ret;
}

static bool device_exists(const char *name)
{
	char path[64 + NAME_MAX];

	snprintf(path, sizeof(path), "/sys/class/infiniband/%.*s", NAME_MAX,
		 name);
	return !access(path, F_OK);
}

/* The first name rxe0, rxe1... that is free */
static const char *free_name(char *buf, size_t size)
{
	int i = 0;

	do {
		snprintf(buf, size, "rxe%d", i);
	} while (device_exists(buf) && ++i < 1000);
	return buf;
}

static int add_rxe(const char *netdev, const char *name)
{
	char buf[16];
	int ret, err;

	ret = load_installed("rdma_rxe");
	if (ret != EXIT_GOOD)
		return ret;
	if (!name)
		name = free_name(buf, sizeof(buf));
	err = rxe_link_add(name, netdev);
	switch (err) {
	case 0:
		printf("RDMA device %s on %s\n", name, netdev);
		return EXIT_GOOD;
	case -ENODEV:
		return fail("there is no network interface %s; `ip link` shows those that there are",
			    netdev);
	case -EEXIST:
		return fail("%s has soft-RoCE already; `rdma link` shows by which name",
			    netdev);
	case -ENFILE:
		return fail("there is an RDMA device %s already; --name takes another name",
			    name);
	default:
		return fail("soft-RoCE can't be brought up on %s: %s%s", netdev,
			    strerror(-err),
			    err == -EPERM ? "; this needs root" : "");
	}
}

static void usage(void)
{
	puts("usage: memreg load [--module PATH] [--rxe NETDEV [--name NAME]] [PARAMETER=VALUE...]\n"
	     "Load the kernel module ib_memreg with what it depends on. That it is loaded\n"
	     "already is no error, unless another file or parameters are asked for; if the\n"
	     "installed one is another, a line says so. Parameters go to the module, which\n"
	     "has none of its own; the kernel ignores unknown ones, with a line in its log.\n\n"
	     "  -m, --module PATH   load this file instead of the installed module\n"
	     "  -x, --rxe NETDEV    bring up soft-RoCE on this network interface\n"
	     "  -n, --name NAME     name of the soft-RoCE device; rxe0, rxe1... otherwise\n"
	     "  -h, --help");
}

/* Parameters as one string, as libkmod wants them; NULL without memory */
static char *join(char **words, int count)
{
	size_t len = 1;
	char *joined;
	int i;

	for (i = 0; i < count; i++)
		len += strlen(words[i]) + 1;
	joined = calloc(1, len);
	if (!joined)
		return NULL;
	for (i = 0; i < count; i++) {
		strcat(joined, words[i]);
		strcat(joined, " ");
	}
	return joined;
}

struct options {
	const char *path;
	const char *rxe;
	const char *name;
};

static int set_option(void *ctx, int opt)
{
	struct options *o = ctx;

	switch (opt) {
	case 'm':
		o->path = optarg;
		return EXIT_GOOD;
	case 'x':
		o->rxe = optarg;
		return EXIT_GOOD;
	default:
		o->name = optarg;
		return EXIT_GOOD;
	}
}

/* Parameters of a module have a value each */
static int check_parameters(char **words)
{
	for (; *words; words++)
		if (!strchr(*words, '=') || **words == '=')
			return bad_usage("'%.80s' is no parameter of a module, which is PARAMETER=VALUE",
					 *words);
	return EXIT_GOOD;
}

int cmd_load(int argc, char **argv)
{
	static const struct option options[] = {
		{ "module", required_argument, NULL, 'm' },
		{ "rxe", required_argument, NULL, 'x' },
		{ "name", required_argument, NULL, 'n' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	static const struct syntax syntax = {
		.options = options,
		.set = set_option,
		.usage = usage,
		.words = INT_MAX,
	};
	struct options o = { .path = NULL };
	int ret = parse_options(argc, argv, &syntax, &o);
	char *params;

	if (ret >= 0)
		return ret;
	ret = check_parameters(argv + optind);
	if (ret != EXIT_GOOD)
		return ret;
	if (o.name && !o.rxe)
		return bad_usage("--name goes with --rxe");
	params = join(argv + optind, argc - optind);
	if (!params)
		return fail("%s", strerror(ENOMEM));
	ret = load_module(o.path, params);
	free(params);
	return ret == EXIT_GOOD && o.rxe ? add_rxe(o.rxe, o.name) : ret;
}
