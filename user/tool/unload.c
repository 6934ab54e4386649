// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* memreg unload: remove the kernel module, or list the processes that use it */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <libkmod.h>
#include <string.h>

#include "tool.h"

/* Print which processes have files of ours open; the number of them */
static unsigned int print_files(void)
{
	struct ib_memreg_object o;
	char comm[sizeof(o.comm) + 1];
	struct memreg_list *list;
	unsigned int files = 0;

	if (memreg_list_open(&list))
		return 0;
	while (memreg_list_next(list, &o, sizeof(o)) > 0) {
		if (o.type != IB_MEMREG_OBJECT_FILE)
			continue;
		files++;
		fail("it is in use by process %" PRId32 " (%s) of user %"
		     PRIu32 " on %s", o.pid,
		     plain_text(o.comm, sizeof(o.comm), comm), o.uid, o.device);
	}
	memreg_list_close(list);
	return files;
}

static unsigned int tell_holders(struct kmod_module *mod)
{
	struct kmod_list *holders = kmod_module_get_holders(mod), *item;
	unsigned int count = 0;

	kmod_list_foreach(item, holders) {
		struct kmod_module *holder = kmod_module_get_module(item);

		count++;
		fail("the module %s uses it: unload that first",
		     kmod_module_get_name(holder));
		kmod_module_unref(holder);
	}
	kmod_module_unref_list(holders);
	return count;
}

static int tell_why(struct kmod_module *mod, int err)
{
	switch (-err) {
	case EPERM:
	case EACCES:
		return fail("%s; this needs root", strerror(-err));
	case ENOSYS:
		return fail("this kernel has no loadable modules");
	case EAGAIN:
	case EBUSY:
		if (print_files() + tell_holders(mod) == 0)
			fail("a process has it open without a device: `fuser -v "
			     MEMREG_DEVICE_PATH "` shows which");
		return fail("end what uses it, then try again");
	default:
		return fail("%s; see `dmesg`", strerror(-err));
	}
}

static int unload(struct kmod_ctx *ctx)
{
	struct kmod_module *mod;
	int err, ret = EXIT_GOOD;

	err = kmod_module_new_from_name(ctx, MODULE_NAME, &mod);
	if (err < 0)
		return fail("%s", strerror(-err));
	if (kmod_module_get_initstate(mod) == KMOD_MODULE_BUILTIN) {
		ret = fail(MODULE_NAME " is built into this kernel");
	} else {
		err = kmod_module_remove_module(mod, KMOD_REMOVE_NOWAIT);
		/* a module that is not loaded counts as unloaded */
		if (err && err != -ENOENT)
			ret = tell_why(mod, err);
	}
	kmod_module_unref(mod);
	return ret;
}

static void usage(void)
{
	puts("usage: memreg unload\n"
	     "Unload the kernel module ib_memreg. If it is in use nothing is done, and\n"
	     "its users are listed. It is no error if it is not loaded.\n\n"
	     "  -h, --help");
}

static int set_option(void *ctx, int opt)
{
	(void)ctx;
	(void)opt;
	return EXIT_GOOD;
}

int cmd_unload(int argc, char **argv)
{
	static const struct option options[] = {
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	static const struct syntax syntax = {
		.options = options,
		.set = set_option,
		.usage = usage,
	};
	int ret = parse_options(argc, argv, &syntax, NULL);
	struct kmod_ctx *ctx;

	if (ret >= 0)
		return ret;
	ctx = kmod_new(NULL, NULL);
	if (!ctx)
		return fail("libkmod can't be set up: %s", strerror(errno));
	kmod_set_log_priority(ctx, 0);
	ret = unload(ctx);
	kmod_unref(ctx);
	return ret;
}
