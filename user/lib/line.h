/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Functions with which explain.c and census.c build the line of memreg_reason()
 */
#ifndef MEMREG_LINE_H
#define MEMREG_LINE_H

#include <stdarg.h>
#include <stdio.h>

#include "internal.h"

/* The rest of a buffer; the text ends with a 0 at @at */
struct out {
	char *at;
	size_t left;
};

static inline void add(struct out *out, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static inline void add(struct out *out, const char *format, ...)
{
	va_list ap;
	int n;

	va_start(ap, format);
	n = vsnprintf(out->at, out->left, format, ap);
	va_end(ap);
	if (n < 0)
		return;
	if ((size_t)n >= out->left)
		n = (int)out->left - 1;
	out->at += n;
	out->left -= (size_t)n;
}

/*
 * census.c: the objects of this process. No call shows which open file of the
 * process belongs to a handle, so a property of an object is known only if it
 * is the same in every file of the process that has an object of this id.
 */
struct census {
	struct ib_memreg_object *objects;
	size_t count;
};

/* Read the list of objects; empty if that fails. The caller frees @objects. */
void memreg__census_take(struct census *c);

/*
 * May any file have an object of this kind? Also true where the list cannot be
 * read.
 */
bool memreg__census_has(const struct census *c, const char *noun, uint64_t id);

/*
 * Append the cause, if the state of the object shows it, and set a hint.
 * Returns false, with nothing appended, if it does not.
 */
bool memreg__census_explain(const struct census *c,
			    const struct memreg__failure *f, struct out *out,
			    const char **hint);

#endif /* MEMREG_LINE_H */
