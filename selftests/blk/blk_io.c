// SPDX-License-Identifier: GPL-2.0-only
/*
 * I/O on a disk, and enabling and disabling a device, while faults are
 * injected; used by blk_inject.sh.
 *
 *	blk_io io DISK		read and write at random, by several threads,
 *				until SIGTERM; then see that all blocks have
 *				what they should have
 *	blk_io nth DIRECTORY	enable and disable a device of ib_memreg_blk,
 *				each time with another place that fails
 *
 * A block whose write failed has either its old or its new contents, until it
 * is written or read again.
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fault.h"

#define THREADS	4
#define BLOCK	4096u
#define BLOCKS	64u		/* of each thread */
#define MOST	16u		/* blocks that are moved at once */
#define WORDS	(BLOCK / sizeof(uint64_t))
/* On a debug kernel, one place of failure in so many */
#define PLACES_K	120

struct block {
	uint32_t is;		/* what it has; 0: zeros */
	uint32_t may;		/* what it may have instead */
};

struct worker {
	pthread_t thread;
	unsigned int nr;
	unsigned int seed;
	uint64_t (*data)[WORDS];
	struct block blocks[BLOCKS];
	uint32_t last;		/* generation of what was written last */
	unsigned int reads, writes, errors, wrong;
};

static atomic_bool stop;
static int disk;

/*
 * Contents of a word: all differ, so that no piece can be mistaken for another.
 */
static uint64_t word(const struct worker *w, unsigned int block,
		     uint32_t generation, unsigned int i)
{
	uint64_t x = (uint64_t)generation << 32 | w->nr << 24 | block << 12 | i;

	return generation ? x * UINT64_C(0x9e3779b97f4a7c15) : 0;
}

static bool has(const struct worker *w, unsigned int block,
		const uint64_t *data, uint32_t generation)
{
	unsigned int i;

	for (i = 0; i < WORDS; i++)
		if (data[i] != word(w, block, generation, i))
			return false;
	return true;
}

static off_t offset_of(const struct worker *w, unsigned int block)
{
	return ((off_t)w->nr * BLOCKS + block) * BLOCK;
}

static void check_block(struct worker *w, unsigned int block,
			const uint64_t *data)
{
	struct block *b = &w->blocks[block];

	if (!has(w, block, data, b->is)) {
		if (!has(w, block, data, b->may)) {
			printf("thread %u, block %u: neither %u nor %u\n",
			       w->nr, block, b->is, b->may);
			w->wrong++;
			return;
		}
		b->is = b->may;
	}
	b->may = b->is;
}

static bool moved(struct worker *w, ssize_t n, unsigned int blocks)
{
	if (n == (ssize_t)(blocks * BLOCK))
		return true;
	w->errors++;
	return false;
}

static bool do_read(struct worker *w, unsigned int first, unsigned int n)
{
	unsigned int i;

	w->reads++;
	if (!moved(w, pread(disk, w->data, n * BLOCK, offset_of(w, first)), n))
		return false;
	for (i = 0; i < n; i++)
		check_block(w, first + i, w->data[i]);
	return true;
}

static void do_write(struct worker *w, unsigned int first, unsigned int n)
{
	uint32_t generation = ++w->last;
	ssize_t bytes;
	unsigned int i, k;

	for (i = 0; i < n; i++)
		for (k = 0; k < WORDS; k++)
			w->data[i][k] = word(w, first + i, generation, k);
	w->writes++;
	bytes = pwrite(disk, w->data, n * BLOCK, offset_of(w, first));
	if (moved(w, bytes, n))
		for (i = 0; i < n; i++)
			w->blocks[first + i].is = generation;
	for (i = 0; i < n; i++)
		w->blocks[first + i].may = generation;
}

/* A block with unknown contents is read before it is written again. */
static bool is_sure(const struct worker *w, unsigned int first, unsigned int n)
{
	unsigned int i;

	for (i = 0; i < n; i++)
		if (w->blocks[first + i].is != w->blocks[first + i].may)
			return false;
	return true;
}

static void *work(void *arg)
{
	struct worker *w = arg;

	while (!atomic_load(&stop)) {
		unsigned int n = 1 + (unsigned int)rand_r(&w->seed) % MOST;
		unsigned int first = (unsigned int)rand_r(&w->seed) %
				     (BLOCKS - n + 1);

		if (rand_r(&w->seed) % 3 == 0 || !is_sure(w, first, n))
			do_read(w, first, n);
		else
			do_write(w, first, n);
	}
	return NULL;
}

static void begin(struct worker *w, unsigned int nr)
{
	w->nr = nr;
	w->seed = nr + 1;
	w->data = aligned_alloc(BLOCK, MOST * BLOCK);
	if (!w->data)
		errx(1, "no memory");
	memset(w->data, 0, MOST * BLOCK);
	if (pwrite(disk, w->data, BLOCK, offset_of(w, 0)) != BLOCK)
		err(1, "the first block of thread %u", nr);
	if (pthread_create(&w->thread, NULL, work, w))
		errx(1, "pthread_create");
}

/* Once no more faults are injected, all blocks can be read and are right. */
static unsigned int finish(struct worker *w)
{
	unsigned int block, before = w->errors;

	for (block = 0; block < BLOCKS; block += MOST)
		do_read(w, block, MOST);
	printf("thread %u: %u reads, %u writes, %u failed, %u wrong\n", w->nr,
	       w->reads, w->writes, before, w->wrong);
	free(w->data);
	return w->wrong + (w->errors - before);
}

static int io(const char *path)
{
	static struct worker workers[THREADS];
	unsigned int i, bad = 0;
	sigset_t term;
	int number;

	sigemptyset(&term);
	sigaddset(&term, SIGTERM);
	sigprocmask(SIG_BLOCK, &term, NULL);
	disk = open(path, O_RDWR | O_DIRECT | O_CLOEXEC);
	if (disk < 0)
		err(1, "%s", path);
	for (i = 0; i < THREADS; i++)
		begin(&workers[i], i);
	/* faults are over when it comes */
	sigwait(&term, &number);
	atomic_store(&stop, true);
	for (i = 0; i < THREADS; i++)
		pthread_join(workers[i].thread, NULL);
	if (fsync(disk))
		err(1, "fsync");
	for (i = 0; i < THREADS; i++)
		bad += finish(&workers[i]);
	return !!bad;
}

/*
 * The nth place that fails
 */

#define CONFIGFS	3	/* places before a device is asked */

static int dir;

static ssize_t get(const char *name, char *text, size_t size)
{
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, size - 1);

	if (n < 0)
		err(1, "%s", name);
	text[n] = '\0';
	close(fd);
	return n;
}

static void expect(const char *name, const char *value, unsigned int nth)
{
	char text[256];

	get(name, text, sizeof(text));
	if (strcmp(text, value))
		errx(1, "place %u: %s is %s", nth, name, text);
}

/* Write to @enabled with the nth place failing; true if it was reached. */
static bool set_enabled(const char *value, unsigned int nth, int *error)
{
	int fd = openat(dir, "enabled", O_WRONLY | O_CLOEXEC);
	unsigned int left;
	bool fired;

	if (fd < 0)
		err(1, "enabled");
	if (nth)
		fail_nth_arm(nth);
	*error = write(fd, value, 1) == 1 ? 0 : errno;
	fired = nth && fail_nth_disarm(&left);
	close(fd);
	return fired;
}

/* Disable the device; it must end disabled even if a step fails. */
static void disable(unsigned int nth, unsigned int *fired)
{
	int error;

	*fired += set_enabled("0", nth, &error);
	if (error && error != ENOMEM && error != EFAULT)
		errx(1, "place %u: disabling: %s", nth, strerror(error));
	if (error)
		set_enabled("0", 0, &error);
	if (error)
		errx(1, "place %u: disabling again: %s", nth, strerror(error));
	expect("state", "disabled\n", nth);
	expect("disk", "", nth);
}

/*
 * Enable the device: it either fails with a reason and leaves nothing, or
 * succeeds
 */
static bool enable(unsigned int nth, unsigned int *failed)
{
	char text[256];
	int error;
	bool fired = set_enabled("1", nth, &error);

	if (!error)
		return fired;
	++*failed;
	expect("state", "disabled\n", nth);
	expect("disk", "", nth);
	/* the first ones are configfs's own: it was not even asked */
	if (nth > CONFIGFS && !get("error", text, sizeof(text)))
		errx(1, "place %u: no reason: %s", nth, strerror(error));
	return fired;
}

static int nth(const char *path)
{
	unsigned int n, places = 0, failed = 0;
	unsigned int ends = 0;

	dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		err(1, "%s", path);
	if (!fault_injection())
		errx(1, "no faults can be injected");
	for (n = 1 + sweep_first(PLACES_K); enable(n, &failed);
	     n += sweep_stride(PLACES_K)) {
		places++;
		disable(places, &ends);
	}
	disable(0, &ends);
	printf("%u of %u places, %u failed; %u when it was disabled\n", places,
	       n, failed, ends);
	/* every so many of them may be such that enabling succeeds with */
	return !places || (sweep_stride(PLACES_K) == 1 && !failed);
}

int main(int argc, char **argv)
{
	setlinebuf(stdout);
	if (argc == 3 && !strcmp(argv[1], "io"))
		return io(argv[2]);
	if (argc == 3 && !strcmp(argv[1], "nth"))
		return nth(argv[2]);
	errx(2, "usage: blk_io io DISK | blk_io nth DIRECTORY");
}
