// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Versions of the kernel modules: of those that are loaded, and of files */
#include <libkmod.h>
#include <stdio.h>
#include <string.h>

#include "version.h"

/*
 * @source is a sum over the sources, by which two builds of one version differ
 */
struct version {
	char version[32];
	char source[40];
};

static void get_loaded(const char *name, struct version *v)
{
	char path[128];

	snprintf(path, sizeof(path), "/sys/module/%.40s/version", name);
	read_line(path, v->version, sizeof(v->version));
	snprintf(path, sizeof(path), "/sys/module/%.40s/srcversion", name);
	read_line(path, v->source, sizeof(v->source));
}

/* 0, or a negative errno */
static int get_of_file(struct kmod_module *mod, struct version *v)
{
	struct kmod_list *info = NULL, *item;
	int err = kmod_module_get_info(mod, &info);

	if (err < 0)
		return err;
	*v = (struct version) { .version = "" };
	kmod_list_foreach(item, info) {
		const char *key = kmod_module_info_get_key(item);
		const char *value = kmod_module_info_get_value(item);

		if (!strcmp(key, "version"))
			snprintf(v->version, sizeof(v->version), "%s", value);
		else if (!strcmp(key, "srcversion"))
			snprintf(v->source, sizeof(v->source), "%s", value);
	}
	kmod_module_info_free_list(info);
	return 0;
}

static const char *version_text(const struct version *v, char *buf, size_t size)
{
	snprintf(buf, size, "%s%s%s%s", *v->version ? v->version : "?",
		 *v->source ? " (srcversion " : "", v->source,
		 *v->source ? ")" : "");
	return buf;
}

int version_compare(struct kmod_module *mod, char loaded[VERSION_TEXT],
		    char file[VERSION_TEXT])
{
	struct version l, f;
	int err = get_of_file(mod, &f);

	if (err < 0)
		return err;
	get_loaded(kmod_module_get_name(mod), &l);
	version_text(&l, loaded, VERSION_TEXT);
	version_text(&f, file, VERSION_TEXT);
	return !strcmp(loaded, file);
}

static void print_module(const char *name)
{
	char text[VERSION_TEXT];
	struct version v;

	if (!module_is_loaded(name))
		return;
	get_loaded(name, &v);
	printf("%s %s is loaded\n", name,
	       version_text(&v, text, sizeof(text)));
}

void versions_print(void)
{
	printf("memreg %s\n", memreg_version());
	print_module(MODULE_NAME);
	print_module(BLK_MODULE_NAME);
	if (!module_is_loaded(MODULE_NAME))
		puts(MODULE_NAME " is not loaded");
}
