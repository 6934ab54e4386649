// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* memreg: find the subcommand and run it */
#include <string.h>

#include "tool.h"
#include "version.h"

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *brief;
} commands[] = {
	{ "bench", cmd_bench, "measure what a pool costs" },
	{ "blk", cmd_blk, "attach and detach block devices of memreg blkd" },
	{ "blkd", cmd_blkd, "serve files and memory as block devices" },
	{ "bw", cmd_bw, "measure how fast data moves to or from a peer" },
	{ "caps", cmd_caps, "what an RDMA device can do" },
	{ "lat", cmd_lat, "measure how long it takes to reach a peer" },
	{ "list", cmd_list, "live objects and whose they are" },
	{ "load", cmd_load, "load the kernel module, bring up soft-RoCE" },
	{ "peek", cmd_peek, "read what a peer grants" },
	{ "ping", cmd_ping, "have data read and written back by a peer" },
	{ "poke", cmd_poke, "write where a peer grants it" },
	{ "serve", cmd_serve, "grant windows on memory to peers" },
	{ "stat", cmd_stat, "what was done on an RDMA device, in numbers" },
	{ "unload", cmd_unload, "unload the kernel module" },
};

#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

static void usage(FILE *out)
{
	size_t i;

	fputs("usage: memreg SUBCOMMAND [OPTIONS]\n"
	      "Cheap, revocable and safe RDMA memory registration.\n\n", out);
	for (i = 0; i < COMMANDS; i++)
		fprintf(out, "  %-8s %s\n", commands[i].name,
			commands[i].brief);
	fputs("\n`memreg SUBCOMMAND --help` shows more, `memreg --version` the versions of the\n"
	      "tool and of the kernel modules that are loaded.\n"
	      "Exit status: 0 good, 1 failed, 2 bad usage.\n", out);
}

static int fail_subcommand(const char *word)
{
	bool option = *word == '-';
	struct suggestion s = { .word = word };
	size_t i;

	for (i = 0; i < COMMANDS && !option; i++)
		suggest(&s, commands[i].name);
	if (option) {
		suggest(&s, "--help");
		suggest(&s, "--version");
	}
	if (s.name)
		return bad_usage("there is no %s '%.80s': did you mean %s?",
				 option ? "option" : "subcommand", word,
				 s.name);
	return bad_usage("there is no %s '%.80s'; `memreg --help` lists what there is",
			 option ? "option" : "subcommand", word);
}

static int run(int argc, char **argv)
{
	size_t i;

	if (argc < 2) {
		usage(stderr);
		return EXIT_USAGE;
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") ||
	    !strcmp(argv[1], "help")) {
		usage(stdout);
		return EXIT_GOOD;
	}
	if (!strcmp(argv[1], "--version")) {
		versions_print();
		return EXIT_GOOD;
	}
	for (i = 0; i < COMMANDS; i++) {
		if (strcmp(argv[1], commands[i].name))
			continue;
		set_subcommand(argv[1]);
		return commands[i].run(argc - 1, argv + 1);
	}
	return fail_subcommand(argv[1]);
}

int main(int argc, char **argv)
{
	int ret = run(argc, argv);

	return ret == EXIT_GOOD ? check_output() : ret;
}
