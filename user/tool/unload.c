// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* memreg unload: remove the kernel modules, or list what uses them */
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

/* The module of block devices is removed with ours if there are none */
static bool print_holder(struct kmod_module *holder)
{
	const char *name = kmod_module_get_name(holder);

	if (strcmp(name, BLK_MODULE_NAME))
		fail("the module %s uses it: unload that first", name);
	else if (kmod_module_get_refcnt(holder) > 0)
		fail("block devices use it: `memreg blk list` shows them, and `memreg blk detach` ends them");
	else
		return false;
	return true;
}

/* Print which modules use it; the number of them */
static unsigned int print_holders(struct kmod_module *mod)
{
	struct kmod_list *holders = kmod_module_get_holders(mod), *item;
	unsigned int count = 0;

	kmod_list_foreach(item, holders) {
		struct kmod_module *holder = kmod_module_get_module(item);

		count += print_holder(holder);
		kmod_module_unref(holder);
	}
	kmod_module_unref_list(holders);
	return count;
}

static int fail_removal(struct kmod_module *mod, int err)
{
	switch (-err) {
	case EPERM:
	case EACCES:
		return fail("%s; this needs root", strerror(-err));
	case ENOSYS:
		return fail("this kernel has no loadable modules");
	case EAGAIN:
	case EBUSY:
		if (print_files() + print_holders(mod) == 0)
			fail("a process has it open without a device: `fuser -v "
			     MEMREG_DEVICE_PATH "` shows which");
		return fail("end what uses it, then try again");
	default:
		return fail("%s; see `dmesg`", strerror(-err));
	}
}

/* A module that is not loaded counts as removed */
static int remove_module(struct kmod_module *mod)
{
	int err = kmod_module_remove_module(mod, KMOD_REMOVE_NOWAIT);

	return err == -ENOENT ? 0 : err;
}

/*
 * Remove the module of block devices if it has none and is the only user of
 * @mod, so that nothing is done if that can't be removed.
 */
static int remove_blk(struct kmod_ctx *ctx, struct kmod_module *mod)
{
	struct kmod_module *blk;
	int err;

	if (!module_is_loaded(BLK_MODULE_NAME))
		return 0;
	if (kmod_module_get_refcnt(mod) > 1)
		return -EBUSY;
	err = kmod_module_new_from_name(ctx, BLK_MODULE_NAME, &blk);
	if (err < 0)
		return err;
	err = remove_module(blk);
	kmod_module_unref(blk);
	return err;
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
		err = remove_blk(ctx, mod);
		if (!err)
			err = remove_module(mod);
		if (err)
			ret = fail_removal(mod, err);
	}
	kmod_module_unref(mod);
	return ret;
}

static void usage(void)
{
	puts("usage: memreg unload\n"
	     "Unload the kernel module ib_memreg, and ib_memreg_blk, which uses it. If they\n"
	     "are in use nothing is done, and their users are listed. It is no error if\n"
	     "they are not loaded.\n\n"
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
