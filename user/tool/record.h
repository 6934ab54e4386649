/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Records of JSON on standard output, an object a line. A field has the name
 * and the meaning that it has in every other record, and its unit in the name.
 */
#ifndef MEMREG_TOOL_RECORD_H
#define MEMREG_TOOL_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void record_begin(void);

/* Begin one that has the time and the name of an event */
void record_event(const char *event);

void record_number(const char *name, uint64_t value);
void record_bool(const char *name, bool value);

/* A number with three decimals; not negative */
void record_milli(const char *name, int64_t thousandths);

/* @s has at most @max bytes, any but 0 */
void record_string(const char *name, const char *s, size_t max);

/* "access":["read","write"] */
void record_access(uint32_t access);

/* Two digits a byte */
void record_hex(const char *name, const void *data, uint64_t len);

/* The line is complete, and written */
void record_end(void);

#endif /* MEMREG_TOOL_RECORD_H */
