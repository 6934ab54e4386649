/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Modules of kernel/tests, which are built beside the test's program.
 */
#ifndef SELFTESTS_MODULE_H
#define SELFTESTS_MODULE_H

#include <stdbool.h>

/* Open the file of a module; -1 if it was not built. */
int test_module_open(const char *name);

/*
 * Load a module with parameters, unless it is loaded. Fails if it was not
 * built, because the kernel lacks a feature, or if it does not support the
 * device under test.
 */
bool test_module_load(const char *name, const char *parameters);
void test_module_unload(const char *name);

/* The file of a parameter of such a module */
const char *test_module_parameter(const char *module, const char *name);

#endif /* SELFTESTS_MODULE_H */
