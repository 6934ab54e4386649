/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Modules of kernel/tests, which are built beside the test's program.
 */
#ifndef SELFTESTS_MODULE_H
#define SELFTESTS_MODULE_H

#include <stdbool.h>

/*
 * Load it with parameters; it may be there already. It can't be where it was not
 * built, as the kernel lacks something, or where its device is another one.
 */
bool test_module_load(const char *name, const char *parameters);
void test_module_unload(const char *name);

/* The file of a parameter of such a module */
const char *test_module_parameter(const char *module, const char *name);

#endif /* SELFTESTS_MODULE_H */
