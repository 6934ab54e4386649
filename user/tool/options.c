// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Options of subcommands, and which name a word that is none resembles */
#include <getopt.h>
#include <string.h>

#include "tool.h"

#define NAME_MAX_	24

static unsigned int min3(unsigned int a, unsigned int b, unsigned int c)
{
	unsigned int least = a < b ? a : b;

	return least < c ? least : c;
}

/* Letters to insert, remove or exchange that make one word of the other */
static unsigned int distance(const char *a, const char *b)
{
	size_t len = strlen(b), i;
	unsigned int row[NAME_MAX_ + 1], diagonal, above;

	if (len > NAME_MAX_ || strlen(a) > NAME_MAX_)
		return NAME_MAX_;
	for (i = 0; i <= len; i++)
		row[i] = (unsigned int)i;
	for (; *a; a++) {
		diagonal = row[0]++;
		for (i = 1; i <= len; i++) {
			above = row[i];
			row[i] = min3(above + 1, row[i - 1] + 1,
				      diagonal + (*a != b[i - 1]));
			diagonal = above;
		}
	}
	return row[len];
}

void suggest(struct suggestion *s, const char *name)
{
	unsigned int now = distance(s->word, name);
	size_t len = strlen(s->word);

	/* prefer a name with this prefix to one that is spelled similarly */
	if (len > 1 && !strncmp(s->word, name, len))
		now = 0;
	if (now > 2 || now >= strlen(name) || (s->name && now >= s->distance))
		return;
	s->name = name;
	s->distance = now;
}

/* "d:jh", as getopt has it; ':' in front: an argument may be missing */
static void write_letters(const struct option *options, char *letters,
			  size_t size)
{
	size_t len = 0;

	letters[len++] = ':';
	for (; options->name; options++) {
		if (options->val > 255 || len + 3 > size)
			continue;
		letters[len++] = (char)options->val;
		if (options->has_arg)
			letters[len++] = ':';
	}
	letters[len] = '\0';
}

static const char *name_of(const struct option *options, int val)
{
	for (; options->name; options++)
		if (options->val == val)
			return options->name;
	return NULL;
}

/* "--device, --port and --help" */
static const char *names_text(const struct option *options)
{
	static char text[512];
	const struct option *at;

	*text = '\0';
	for (at = options; at->name; at++) {
		if (strlen(text) + strlen(at->name) + 8 > sizeof(text))
			break;
		if (at > options)
			strcat(text, at[1].name ? ", " : " and ");
		strcat(text, "--");
		strcat(text, at->name);
	}
	return text;
}

/* A long option that is none, or is several */
static int fail_long(const struct option *options, const char *word)
{
	const struct option *all = options;
	struct suggestion s = { .word = "" };
	char name[NAME_MAX_ + 1];
	size_t len = strcspn(word + 2, "=");

	if (len <= NAME_MAX_) {
		memcpy(name, word + 2, len);
		name[len] = '\0';
		s.word = name;
	}
	for (; options->name; options++)
		suggest(&s, options->name);
	if (s.name)
		return bad_usage("there is no option --%.*s: did you mean --%s?",
				 (int)len, word + 2, s.name);
	return bad_usage("there is no option --%.*s, but %s", (int)len,
			 word + 2, names_text(all));
}

static int fail_option(const struct option *options, const char *word)
{
	const char *name = optopt ? name_of(options, optopt) : NULL;

	/* one that takes no argument was given one */
	if (name)
		return bad_usage("--%s takes no value", name);
	if (optopt)
		return bad_usage("there is no option -%c, but %s", optopt,
				 names_text(options));
	return fail_long(options, word);
}

int parse_options(int argc, char **argv, const struct syntax *syntax,
		  void *ctx)
{
	const struct option *options = syntax->options;
	char letters[64];
	int opt, ret;

	opterr = 0;
	write_letters(options, letters, sizeof(letters));
	while ((opt = getopt_long(argc, argv, letters, options, NULL)) != -1) {
		if (opt == 'h') {
			syntax->usage();
			return EXIT_GOOD;
		}
		if (opt == '?')
			return fail_option(options, argv[optind - 1]);
		if (opt == ':')
			return bad_usage("--%s needs a value",
					 name_of(options, optopt));
		ret = syntax->set(ctx, opt);
		if (ret != EXIT_GOOD)
			return ret;
	}
	if (argc - optind > syntax->words)
		return bad_usage("'%s' is one argument too many",
				 argv[optind + syntax->words]);
	return -1;
}
