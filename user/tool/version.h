/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Versions of the tool and of the kernel modules */
#ifndef MEMREG_TOOL_VERSION_H
#define MEMREG_TOOL_VERSION_H

#include "tool.h"

#define VERSION_TEXT	96

struct kmod_module;

/*
 * Compare the module that is loaded with the file of @mod. Returns 1 if they
 * are the same, 0 if not, or a negative errno if there is no such file; each
 * text has a version, and the sum over the sources.
 */
int version_compare(struct kmod_module *mod, char loaded[VERSION_TEXT],
		    char file[VERSION_TEXT]);

/* memreg --version */
void versions_print(void);

#endif /* MEMREG_TOOL_VERSION_H */
