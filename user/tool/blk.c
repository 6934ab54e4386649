// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * memreg blk: block devices of ib_memreg_blk, which memreg blkd serves. The
 * mkdir, write and rmdir in configfs that this file does can be done by hand as
 * well: see Documentation/admin.rst.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>
#include <rdma/ib_memreg_blk.h>

#include "number.h"
#include "tool.h"

#define CONFIGFS	"/sys/kernel/config"
#define DEVICES		CONFIGFS "/memreg_blk"

/* For any of it: a device, which is a directory entry, and an attribute */
#define PATH_ROOM	(sizeof(DEVICES) + NAME_MAX + 64)

#define NAME_LENGTH	64
#define SECONDS_MAX	86400

enum attribute {
	PORT, EXPORT_NAME, QUEUES, DEPTH, IO_TIMEOUT, KEEP_ALIVE, FAIL_AFTER,
	RETRIES, INLINE_MAX, ATTRIBUTES
};

static const char *const attributes[ATTRIBUTES] = {
	[PORT] = "port",
	[EXPORT_NAME] = "export",
	[QUEUES] = "queues",
	[DEPTH] = "depth",
	[IO_TIMEOUT] = "io_timeout",
	[KEEP_ALIVE] = "keep_alive",
	[FAIL_AFTER] = "fail_after",
	[RETRIES] = "retries",
	[INLINE_MAX] = "inline_max",
};

struct blk {
	const char *name;
	const char *address;
	char values[ATTRIBUTES][24];	/* "": the default */
	bool force;
	bool json;
};

/*
 * Attributes
 */

static void path_of(char *path, size_t size, const char *name,
		    const char *attribute)
{
	snprintf(path, size, DEVICES "/%s/%s", name, attribute);
}

static char *get(const char *name, const char *attribute, char *buf,
		 size_t size)
{
	char path[PATH_ROOM];

	path_of(path, sizeof(path), name, attribute);
	return read_line(path, buf, size);
}

/* 0 or a negative errno */
static int set(const char *name, const char *attribute, const char *value)
{
	char path[PATH_ROOM];
	int fd, ret = 0;

	path_of(path, sizeof(path), name, attribute);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (write(fd, value, strlen(value)) < 0)
		ret = -errno;
	close(fd);
	return ret;
}

static int fail_root(const char *what, int err)
{
	return fail("%s: %s%s", what, strerror(err),
		    err == EPERM || err == EACCES ? "; this needs root" : "");
}

static int check_name(const char *name)
{
	if (!*name || strlen(name) >= NAME_LENGTH || strchr(name, '/') ||
	    *name == '.')
		return bad_usage("'%.80s' is no name of a device: 1 to %d characters, no slash, no dot in front",
				 name, NAME_LENGTH - 1);
	return EXIT_GOOD;
}

static bool is_there(const char *name)
{
	char path[PATH_ROOM];

	path_of(path, sizeof(path), name, "");
	return !access(path, F_OK);
}

/* The module, and the file system that it is configured by */
static int prepare(void)
{
	int ret = EXIT_GOOD;

	if (!access(DEVICES, F_OK))
		return EXIT_GOOD;
	if (access(CONFIGFS, F_OK))
		ret = load_installed("configfs");
	if (ret == EXIT_GOOD)
		ret = load_installed(BLK_MODULE_NAME);
	if (ret != EXIT_GOOD || !access(DEVICES, F_OK))
		return ret;
	if (mount("none", CONFIGFS, "configfs", 0, NULL))
		return fail_root("can't mount configfs on " CONFIGFS, errno);
	return access(DEVICES, F_OK) ? fail_root(DEVICES, errno) : EXIT_GOOD;
}

/*
 * attach
 */

static int configure(const struct blk *b)
{
	int i, ret = set(b->name, "address", b->address);

	if (ret == -EINVAL)
		return fail("'%.80s' is no IPv4 or IPv6 address",
			    b->address);
	if (ret)
		return fail_root("address", -ret);
	for (i = 0; i < ATTRIBUTES; i++) {
		ret = *b->values[i] ?
			set(b->name, attributes[i], b->values[i]) : 0;
		if (ret)
			return fail("%s '%s': %s", attributes[i], b->values[i],
				    strerror(-ret));
	}
	return EXIT_GOOD;
}

static int enable(const struct blk *b)
{
	char why[256];
	int ret = set(b->name, "enabled", "1");

	if (!ret)
		return EXIT_GOOD;
	get(b->name, "error", why, sizeof(why));
	return fail("%s can't be attached from %s: %s", b->name, b->address,
		    *why ? why : strerror(-ret));
}

static int attach(struct blk *b)
{
	char path[PATH_ROOM], disk[64];
	int ret = prepare();

	if (ret != EXIT_GOOD)
		return ret;
	path_of(path, sizeof(path), b->name, "");
	if (mkdir(path, 0755))
		return errno == EEXIST ?
			fail("there is a device %s already; `memreg blk list` shows it",
			     b->name) : fail_root(b->name, errno);
	ret = configure(b);
	if (ret == EXIT_GOOD)
		ret = enable(b);
	if (ret != EXIT_GOOD) {
		rmdir(path);
		return ret;
	}
	printf("%s is /dev/%s\n", b->name,
	       get(b->name, "disk", disk, sizeof(disk)));
	return EXIT_GOOD;
}

/*
 * detach
 */

/* Is it mounted, or part of another device? Others may have it open, too. */
static bool in_use(const char *disk)
{
	char path[96];
	int fd;

	snprintf(path, sizeof(path), "/dev/%s", disk);
	fd = open(path, O_RDONLY | O_EXCL | O_CLOEXEC);
	if (fd >= 0)
		close(fd);
	return fd < 0 && errno == EBUSY;
}

static int detach(struct blk *b)
{
	char path[PATH_ROOM], disk[64];

	if (!is_there(b->name))
		return fail("there is no device %s; `memreg blk list` shows those that there are",
			    b->name);
	get(b->name, "disk", disk, sizeof(disk));
	if (!b->force && *disk && in_use(disk))
		return fail("/dev/%s is in use: unmount it first, or use --force",
			    disk);
	path_of(path, sizeof(path), b->name, "");
	return rmdir(path) ? fail_root(b->name, errno) : EXIT_GOOD;
}

/*
 * list
 */

static uint64_t disk_bytes(const char *disk)
{
	char path[128], line[32];

	snprintf(path, sizeof(path), "/sys/block/%.64s/size", disk);
	return strtoull(read_line(path, line, sizeof(line)), NULL, 10) * 512;
}

static void print_row(const char *name)
{
	char address[64], port[16], export[32], state[24], disk[64], bytes[32];
	char why[256];

	get(name, "disk", disk, sizeof(disk));
	printf("%-16s %-10s %-20s %-6s %-16s %-10s %-10s %s\n", name,
	       get(name, "state", state, sizeof(state)),
	       get(name, "address", address, sizeof(address)),
	       get(name, "port", port, sizeof(port)),
	       get(name, "export", export, sizeof(export)),
	       *disk ? disk : "-", *disk ?
	       human_bytes((double)disk_bytes(disk), bytes, sizeof(bytes)) :
	       "-", get(name, "error", why, sizeof(why)));
}

static void print_field(const char *name, const char *attribute)
{
	char value[256];

	get(name, attribute, value, sizeof(value));
	putchar(',');
	print_json_string(attribute, value, sizeof(value));
}

static void print_json(const char *name, bool first)
{
	char line[256];

	printf("%s{", first ? "" : ",\n ");
	print_json_string("name", name, strlen(name));
	print_field(name, "state");
	print_field(name, "address");
	printf(",\"port\":%" PRIu64, (uint64_t)
	       strtoull(get(name, "port", line, sizeof(line)), NULL, 10));
	print_field(name, "export");
	if (*get(name, "disk", line, sizeof(line))) {
		print_field(name, "disk");
		printf(",\"size_bytes\":%" PRIu64, disk_bytes(line));
	}
	if (*get(name, "error", line, sizeof(line)))
		print_field(name, "error");
	putchar('}');
}

static int list(struct blk *b)
{
	DIR *dir = opendir(DEVICES);
	struct dirent *entry;
	bool first = true;

	if (b->json)
		putchar('[');
	else
		printf("%-16s %-10s %-20s %-6s %-16s %-10s %-10s %s\n", "NAME",
		       "STATE", "ADDRESS", "PORT", "EXPORT", "DISK", "SIZE",
		       "ERROR");
	while (dir && (entry = readdir(dir))) {
		if (*entry->d_name == '.' || entry->d_type != DT_DIR)
			continue;
		if (b->json)
			print_json(entry->d_name, first);
		else
			print_row(entry->d_name);
		first = false;
	}
	if (b->json)
		puts("]");
	/* without the module there are no devices, which is no failure */
	if (dir)
		closedir(dir);
	return EXIT_GOOD;
}

/*
 * Options
 */

static void usage(void)
{
	puts("usage: memreg blk attach [OPTIONS] NAME ADDRESS\n"
	     "       memreg blk detach [--force] NAME\n"
	     "       memreg blk list [--json]\n"
	     "Attach what `memreg blkd` serves at ADDRESS as a block device, detach it, or\n"
	     "list those that are attached. What is written to the disk is written there.\n\n"
	     "  -p, --port PORT          of the server (7472)\n"
	     "  -e, --export EXPORT      which of its exports; may be left out if there is one\n"
	     "  -q, --queues N           connections, 1 to 64 (one for each CPU, up to 4)\n"
	     "  -D, --depth N            commands in flight of each, 2 to 256 (64)\n"
	     "  -t, --io-timeout TIME    without an answer, until the connection is given up (30)\n"
	     "  -k, --keep-alive TIME    without an answer, until one is asked for (5)\n"
	     "  -f, --fail-after TIME    without a connection, until I/O fails; never: no end (60)\n"
	     "  -r, --retries N          of a command whose connection was lost (5)\n"
	     "  -I, --inline-max BYTES   data in a message, 0 to 16K (4K)\n"
	     "  -F, --force              detach what is in use: I/O on it fails\n"
	     "  -j, --json               list as a JSON array\n"
	     "  -h, --help");
}

static const struct option options[] = {
	{ "port", required_argument, NULL, 'p' },
	{ "export", required_argument, NULL, 'e' },
	{ "queues", required_argument, NULL, 'q' },
	{ "depth", required_argument, NULL, 'D' },
	{ "io-timeout", required_argument, NULL, 't' },
	{ "keep-alive", required_argument, NULL, 'k' },
	{ "fail-after", required_argument, NULL, 'f' },
	{ "retries", required_argument, NULL, 'r' },
	{ "inline-max", required_argument, NULL, 'I' },
	{ "force", no_argument, NULL, 'F' },
	{ "json", no_argument, NULL, 'j' },
	{ "help", no_argument, NULL, 'h' },
	{ NULL, 0, NULL, 0 },
};

#define SECONDS(_what)	{ _what, UNIT_SECONDS, NS_PER_S, \
			  SECONDS_MAX * NS_PER_S }

static const struct {
	int opt;
	enum attribute attribute;
	struct number number;
	uint64_t unit;		/* of the attribute */
} numbers[] = {
	{ 'p', PORT, { "--port", UNIT_PORT, 1, 65535 }, 1 },
	{ 'q', QUEUES, { "--queues", UNIT_COUNT, 1,
			 IB_MEMREG_BLK_QUEUES_MAX }, 1 },
	{ 'D', DEPTH, { "--depth", UNIT_COUNT, 2, IB_MEMREG_BLK_DEPTH_MAX },
	  1 },
	{ 't', IO_TIMEOUT, SECONDS("--io-timeout"), NS_PER_S },
	{ 'k', KEEP_ALIVE, SECONDS("--keep-alive"), NS_PER_S },
	{ 'f', FAIL_AFTER, { "--fail-after", UNIT_SECONDS, 0,
			     SECONDS_MAX * NS_PER_S }, NS_PER_S },
	{ 'r', RETRIES, { "--retries", UNIT_COUNT, 0, 1000 }, 1 },
	{ 'I', INLINE_MAX, { "--inline-max", UNIT_BYTES, 0,
			     IB_MEMREG_BLK_INLINE_MAX }, 1 },
};

static int set_number(struct blk *b, int opt)
{
	uint64_t value;
	size_t i = 0;
	int ret;

	while (numbers[i].opt != opt)
		i++;
	if (opt == 'f' && !strcmp(optarg, "never")) {
		strcpy(b->values[FAIL_AFTER], "-1");
		return EXIT_GOOD;
	}
	ret = take_number(optarg, &numbers[i].number, &value);
	if (ret != EXIT_GOOD)
		return ret;
	if (value % numbers[i].unit)
		return bad_usage("%s '%.80s': it takes whole seconds",
				 numbers[i].number.what, optarg);
	snprintf(b->values[numbers[i].attribute],
		 sizeof(b->values[numbers[i].attribute]), "%" PRIu64,
		 value / numbers[i].unit);
	return EXIT_GOOD;
}

static int set_option(void *ctx, int opt)
{
	struct blk *b = ctx;

	switch (opt) {
	case 'e':
		if (!*optarg || strlen(optarg) > IB_MEMREG_BLK_EXPORT_MAX)
			return bad_usage("--export '%.80s': it takes 1 to %d characters",
					 optarg, IB_MEMREG_BLK_EXPORT_MAX);
		strcpy(b->values[EXPORT_NAME], optarg);
		return EXIT_GOOD;
	case 'F':
		b->force = true;
		return EXIT_GOOD;
	case 'j':
		b->json = true;
		return EXIT_GOOD;
	default:
		return set_number(b, opt);
	}
}

static const struct action {
	const char *name;
	int words;
	int (*run)(struct blk *b);
} actions[] = {
	{ "attach", 2, attach },
	{ "detach", 1, detach },
	{ "list", 0, list },
};

#define ACTIONS	(sizeof(actions) / sizeof(actions[0]))

static const struct action *find_action(const char *word)
{
	struct suggestion s = { .word = word };
	size_t i;

	for (i = 0; i < ACTIONS; i++) {
		if (!strcmp(actions[i].name, word))
			return &actions[i];
		suggest(&s, actions[i].name);
	}
	bad_usage("'%.80s' is neither attach nor detach nor list%s%s%s", word,
		  s.name ? ": did you mean " : "", s.name ? s.name : "",
		  s.name ? "?" : "");
	return NULL;
}

static int check_words(struct blk *b, const struct action *action,
		       char **words, int count)
{
	if (count < action->words)
		return bad_usage(action->words == 2 ?
				 "attach needs NAME and ADDRESS" :
				 "detach needs NAME");
	if (count > action->words)
		return bad_usage("'%s' is one argument too many",
				 words[action->words]);
	b->name = words[0];
	b->address = count > 1 ? words[1] : NULL;
	return count ? check_name(b->name) : EXIT_GOOD;
}

int cmd_blk(int argc, char **argv)
{
	static const struct syntax syntax = {
		.options = options,
		.set = set_option,
		.usage = usage,
		.words = 3,
	};
	const struct action *action;
	struct blk b = { .name = NULL };
	int ret = parse_options(argc, argv, &syntax, &b);

	if (ret >= 0)
		return ret;
	if (optind == argc)
		return bad_usage("attach, detach or list is missing");
	action = find_action(argv[optind]);
	if (!action)
		return EXIT_USAGE;
	ret = check_words(&b, action, argv + optind + 1, argc - optind - 1);
	return ret == EXIT_GOOD ? action->run(&b) : ret;
}
