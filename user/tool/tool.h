/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the subcommands of memreg share */
#ifndef MEMREG_TOOL_H
#define MEMREG_TOOL_H

#include <stdbool.h>
#include <stdio.h>

#include "memreg.h"

enum {
	EXIT_GOOD,
	EXIT_FAILED,
	EXIT_USAGE,
};

/* One subcommand each: argv[0] is its name; the result is the exit status */
int cmd_bench(int argc, char **argv);
int cmd_blk(int argc, char **argv);
int cmd_blkd(int argc, char **argv);
int cmd_bw(int argc, char **argv);
int cmd_caps(int argc, char **argv);
int cmd_lat(int argc, char **argv);
int cmd_list(int argc, char **argv);
int cmd_load(int argc, char **argv);
int cmd_peek(int argc, char **argv);
int cmd_ping(int argc, char **argv);
int cmd_poke(int argc, char **argv);
int cmd_serve(int argc, char **argv);
int cmd_stat(int argc, char **argv);
int cmd_unload(int argc, char **argv);

/* Complain as "memreg SUBCOMMAND: ..." and return EXIT_FAILED */
int fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The same, but return EXIT_USAGE */
int bad_usage(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A line of output, with the time of day in front */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The first line of a file, "" if there is none; returns @buf */
char *read_line(const char *path, char *buf, size_t size);

/* The exit status: failure if output could not be written */
int check_output(void);

/* What to call the subcommand in complaints */
void set_subcommand(const char *name);

/*
 * How a subcommand is called. Each option but --help, which it must have as
 * 'h', is given to @set with optarg; a value below 256 is its letter as well.
 */
struct option;
struct syntax {
	const struct option *options;
	int (*set)(void *ctx, int opt);	/* EXIT_GOOD, or the exit status */
	void (*usage)(void);
	int words;			/* other arguments, at most */
};

/* -1 to go on, other arguments being at optind, or the exit status */
int parse_options(int argc, char **argv, const struct syntax *syntax,
		  void *ctx);

/* Finds the suggested name that a wrong word resembles most */
struct suggestion {
	const char *word;
	const char *name;	/* or NULL */
	unsigned int distance;
};

void suggest(struct suggestion *s, const char *name);

/* Open the device, or the only one, do something with it, and close it */
int with_device(const char *device, int (*run)(struct memreg *m, void *ctx),
		void *ctx);

/* "read,write" for enum ib_memreg_access; @buf holds ACCESS_TEXT bytes */
#define ACCESS_TEXT 128
const char *access_text(uint32_t access, char *buf);

/*
 * What somebody else has named, for a terminal: a byte that is not printable
 * ASCII becomes '?'. @s has at most @max bytes, @buf holds @max + 1.
 */
const char *plain_text(const char *s, size_t max, char *buf);

/* "name":"s" to standard output; @s has at most @max bytes, any but 0 */
void print_json_string(const char *name, const char *s, size_t max);

/* ["read","write"] to standard output */
void print_json_access(uint32_t access);

/* As hexdump -C has it, the first byte being called @offset */
void print_hex(const void *data, uint64_t offset, uint64_t len);

/* Nanoseconds, of a clock that never goes back */
int64_t now_ns(void);

/* Names of kernel modules that we deal with */
#define MODULE_NAME "ib_memreg"
#define BLK_MODULE_NAME "ib_memreg_blk"

bool module_is_loaded(const char *name);

/*
 * Load an installed module, unless it is loaded; the exit status, after a
 * complaint
 */
int load_installed(const char *name);

/* Bring up soft-RoCE on a network interface; 0 or a negative errno */
int rxe_link_add(const char *name, const char *netdev);

#endif /* MEMREG_TOOL_H */
