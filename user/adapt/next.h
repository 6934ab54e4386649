/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Functions of other libraries that an adapter stands in front of.
 *
 * An adapter is linked to none of these libraries: a program that does not use
 * them loads nothing of them, and each library that calls one of the functions
 * reaches the one that it would have reached without the adapter.
 */
#ifndef MEMREG_ADAPT_NEXT_H
#define MEMREG_ADAPT_NEXT_H

#include <stdbool.h>

/* Marks each exported function */
#define EXPORT __attribute__((visibility("default")))

/* Callers of a function that are remembered */
#define NEXT_CALLERS	32

/**
 * struct next - A function that the adapter stands in front of
 * @name: Its name
 * @count: Number of @known
 * @known: What was found for calls that return to these addresses
 */
struct next {
	const char *name;
	unsigned int count;
	struct {
		const void *caller;
		void *found;
	} known[NEXT_CALLERS];
};

/*
 * Find the function for a call that returns to @caller: of the version that
 * the calling library refers to; of the libraries that all of the program sees,
 * or else of those that the calling library was linked to, or else of any that
 * is loaded. NULL if there is none.
 */
void *next_of(struct next *next, const void *caller);

/* The same for any name, without remembering it */
void *next_find(const char *name, const void *caller);

/*
 * Find a function in the library that contains an address, or in those that it
 * was linked to
 */
void *next_in(const void *address, const char *name);

/*
 * Find a loaded library that has both functions, the first of them at a given
 * address, and return the second
 */
void *next_beside(const char *name, const void *at, const char *other);

/**
 * enum next_calls - Where the calls of a function go that libraries refer to
 * @NEXT_HERE: All of them come to this library, or there are none
 * @NEXT_OPEN: Some libraries have not called it yet
 * @NEXT_ELSEWHERE: Those of a library don't come to this one
 */
enum next_calls {
	NEXT_HERE,
	NEXT_OPEN,
	NEXT_ELSEWHERE
};

/*
 * Find out by the relocations of all loaded libraries. With NEXT_ELSEWHERE
 * *@path is set to the name of the library.
 */
enum next_calls next_calls_of(const char *name, const char **path);

/* Number of libraries that were ever loaded */
unsigned long next_loads(void);

/* Name of the file that contains an address */
const char *next_path(const void *address);

#endif /* MEMREG_ADAPT_NEXT_H */
