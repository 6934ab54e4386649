// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The cost of registering, granting and revoking memory, by libmemreg and by
 * libibverbs, side by side in one run.
 *
 * Each round makes every measurement once, so that a disturbance of the machine
 * affects all of them; the program prints the medians of the rounds, with the
 * range of the middle half. Times on an emulated machine mean little: look at
 * the ratios.
 */
#include <errno.h>
#include <getopt.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <infiniband/verbs.h>
#include <memreg.h>

#define LENGTH		65536	/* bytes of an MR or a window */
#define BATCH		IB_MEMREG_BATCH_MAX
#define ROUNDS_MAX	10000

struct bench {
	const char *device;
	unsigned int rounds;
	unsigned int repeats;	/* of what is single, in a round */
	char *memory;
	struct memreg *m;
	uint32_t domain;
	struct memreg_mr mr;
	uint32_t windows[BATCH];
	struct ibv_context *context;
	struct ibv_pd *pd;
};

/* One measurement: microseconds for one register + deregister, or the like */
struct test {
	const char *name;
	int (*run)(struct bench *b, unsigned int arg);
	unsigned int arg;
	double us[ROUNDS_MAX];
};

static double now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec / 1e3;
}

static int fail_memreg(void)
{
	fprintf(stderr, "cost: %s\n", memreg_reason());
	return -1;
}

static int fail_errno(const char *what)
{
	fprintf(stderr, "cost: %s: %s\n", what, strerror(errno));
	return -1;
}

static int run_memreg_mr(struct bench *b, unsigned int access)
{
	struct memreg_mr mr;

	if (memreg_mr_register(b->m, b->domain, b->memory, LENGTH, access, 0,
			       &mr) ||
	    memreg_mr_deregister(b->m, mr.id))
		return fail_memreg();
	return 0;
}

static int run_verbs_mr(struct bench *b, unsigned int access)
{
	struct ibv_mr *mr = ibv_reg_mr(b->pd, b->memory, LENGTH, (int)access);

	if (!mr)
		return fail_errno("ibv_reg_mr");
	if (ibv_dereg_mr(mr))
		return fail_errno("ibv_dereg_mr");
	return 0;
}

static int run_windows(struct bench *b, unsigned int count)
{
	struct ib_memreg_bind binds[BATCH];
	unsigned int i;

	memset(binds, 0, sizeof(binds));
	for (i = 0; i < count; i++) {
		binds[i].window_id = b->windows[i];
		binds[i].mr_id = b->mr.id;
		binds[i].length = LENGTH;
		binds[i].access = IB_MEMREG_ACCESS_REMOTE_READ |
				  IB_MEMREG_ACCESS_REMOTE_WRITE;
	}
	if (memreg_window_bind_batch(b->m, b->domain, binds, count, NULL) ||
	    memreg_window_revoke_batch(b->m, b->domain, b->windows, count,
				       NULL))
		return fail_memreg();
	return 0;
}

#define LOCAL	IB_MEMREG_ACCESS_LOCAL_WRITE
#define REMOTE	(LOCAL | IB_MEMREG_ACCESS_REMOTE_READ | \
		 IB_MEMREG_ACCESS_REMOTE_WRITE)

static struct test tests[] = {
	{ .name = "ibv_reg_mr + ibv_dereg_mr, remote access",
	  .run = run_verbs_mr, .arg = REMOTE },
	{ .name = "ibv_reg_mr + ibv_dereg_mr, local access",
	  .run = run_verbs_mr, .arg = LOCAL },
	{ .name = "memreg register + deregister, remote access",
	  .run = run_memreg_mr, .arg = REMOTE },
	{ .name = "memreg register + deregister, local access",
	  .run = run_memreg_mr, .arg = LOCAL },
	{ .name = "memreg window bind + revoke, single",
	  .run = run_windows, .arg = 1 },
	{ .name = "memreg window bind + revoke, 32 in a call",
	  .run = run_windows, .arg = 32 },
	{ .name = "memreg window bind + revoke, 256 in a call",
	  .run = run_windows, .arg = 256 },
};

#define TESTS (sizeof(tests) / sizeof(tests[0]))

static int measure(struct bench *b, struct test *t, unsigned int round)
{
	unsigned int each = t->run == run_windows ? t->arg : 1, i;
	unsigned int times = each > 1 ? 1 : b->repeats;
	double begin = now_us();

	for (i = 0; i < times; i++)
		if (t->run(b, t->arg))
			return -1;
	t->us[round] = (now_us() - begin) / times / each;
	return 0;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static int run(struct bench *b)
{
	unsigned int round;
	size_t i;

	for (i = 0; i < TESTS; i++)	/* to warm up; not counted */
		if (measure(b, &tests[i], 0))
			return -1;
	for (round = 0; round < b->rounds; round++)
		for (i = 0; i < TESTS; i++)
			if (measure(b, &tests[i], round))
				return -1;
	for (i = 0; i < TESTS; i++)
		qsort(tests[i].us, b->rounds, sizeof(double), compare);
	return 0;
}

static double at(const struct bench *b, const struct test *t, double part)
{
	return t->us[(unsigned int)(part * (b->rounds - 1) + 0.5)];
}

static void print_table(const struct bench *b)
{
	double base = at(b, &tests[0], 0.5);
	size_t i;

	printf("%d KiB of touched 4 KiB pages, %u rounds; microseconds for one of them\n\n",
	       LENGTH / 1024, b->rounds);
	printf("%-46s %9s   %-19s %s\n", "", "median", "middle half", "ratio");
	for (i = 0; i < TESTS; i++) {
		const struct test *t = &tests[i];

		printf("%-46s %9.1f   %8.1f - %-8.1f %5.2f\n", t->name,
		       at(b, t, 0.5), at(b, t, 0.25), at(b, t, 0.75),
		       at(b, t, 0.5) / base);
	}
	printf("\nratio: to %s\n", tests[0].name);
}

/* The verbs device of the same name as memreg's */
static int open_verbs(struct bench *b)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct memreg_device device;
	int i;

	if (!list)
		return fail_errno("ibv_get_device_list");
	if (memreg_query_device(b->m, &device))
		return fail_memreg();
	for (i = 0; list[i] && !b->context; i++)
		if (!strcmp(ibv_get_device_name(list[i]), device.name))
			b->context = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	if (!b->context)
		return fail_errno(device.name);
	b->pd = ibv_alloc_pd(b->context);
	return b->pd ? 0 : fail_errno("ibv_alloc_pd");
}

/* MAP_PRIVATE memory without huge pages, all touched */
static int get_memory(struct bench *b)
{
	b->memory = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (b->memory == MAP_FAILED)
		return fail_errno("mmap");
	madvise(b->memory, LENGTH, MADV_NOHUGEPAGE);
	memset(b->memory, 1, LENGTH);
	return 0;
}

static int open_memreg(struct bench *b)
{
	if (memreg_open(b->device, &b->m) ||
	    memreg_domain_create(b->m, 0, &b->domain) ||
	    memreg_mr_register(b->m, b->domain, b->memory, LENGTH,
			       LOCAL | IB_MEMREG_ACCESS_MW_BIND, 0, &b->mr) ||
	    memreg_window_alloc(b->m, b->domain, IB_MEMREG_WINDOW_TYPE1,
				LENGTH, b->windows, BATCH))
		return fail_memreg();
	return 0;
}

static void close_all(struct bench *b)
{
	if (b->pd)
		ibv_dealloc_pd(b->pd);
	if (b->context)
		ibv_close_device(b->context);
	memreg_close(b->m);
}

static int number(const char *word, unsigned int *n, unsigned int max)
{
	char *end;
	unsigned long value = strtoul(word, &end, 0);

	if (end == word || *end || !value || value > max)
		return -1;
	*n = (unsigned int)value;
	return 0;
}

static int parse(struct bench *b, int argc, char **argv)
{
	static const struct option options[] = {
		{ "device", required_argument, NULL, 'd' },
		{ "rounds", required_argument, NULL, 'n' },
		{ "repeats", required_argument, NULL, 'r' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	int opt;

	while ((opt = getopt_long(argc, argv, "d:n:r:h", options,
				  NULL)) != -1) {
		if (opt == 'd')
			b->device = optarg;
		else if (opt == 'n' && !number(optarg, &b->rounds, ROUNDS_MAX))
			continue;
		else if (opt == 'r' && !number(optarg, &b->repeats, 1000000))
			continue;
		else
			return -1;
	}
	return optind == argc ? 0 : -1;
}

int main(int argc, char **argv)
{
	struct bench b = { .rounds = 21, .repeats = 16 };
	int ret;

	if (parse(&b, argc, argv)) {
		fputs("usage: cost [-d DEVICE] [-n ROUNDS] [-r REPEATS]\n",
		      stderr);
		return 2;
	}
	ret = get_memory(&b) || open_memreg(&b) || open_verbs(&b) || run(&b);
	if (!ret)
		print_table(&b);
	close_all(&b);
	return ret ? 1 : 0;
}
