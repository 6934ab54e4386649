// SPDX-License-Identifier: GPL-2.0-only
/*
 * MRs, windows and guards, through libmemreg. What windows are bound to is
 * registered once; what MRs cost has pinning, guard and unpinning in it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <memreg.h>

#include "../lib/raw.h"
#include "../lib/test.h"
#include "bench.h"

#define BATCH	IB_MEMREG_BATCH_MAX
#define REMOTE	(REMOTE_READ | REMOTE_WRITE)

int fail_memreg(void)
{
	fprintf(stderr, "bench: %s\n", memreg_reason());
	return -1;
}

/* A handle with a domain in it. */
static int open_domain(struct memreg **m, uint32_t *domain)
{
	if (memreg_open(bench_device(), m) ||
	    memreg_domain_create(*m, 0, domain))
		return fail_memreg();
	return 0;
}

/*
 * MRs
 */

/**
 * struct mr_kind - Sort of MR
 * @length: Bytes
 * @access: Access flags
 * @flags: Flags of registering
 */
struct mr_kind {
	size_t length;
	uint32_t access;
	uint32_t flags;
};

static struct {
	struct memreg *m;
	uint32_t domain;
} for_mrs;

static int mr_setup(const struct op *op)
{
	(void)op;
	if (!mr_memory())
		return fail("memory", ENOMEM);
	return for_mrs.m ? 0 : open_domain(&for_mrs.m, &for_mrs.domain);
}

static int mr_run(const struct op *op)
{
	const struct mr_kind *kind = op->data;
	struct memreg_mr mr;

	if (memreg_mr_register(for_mrs.m, for_mrs.domain, mr_memory(),
			       kind->length, kind->access, kind->flags, &mr) ||
	    memreg_mr_deregister(for_mrs.m, mr.id))
		return fail_memreg();
	return 0;
}

/*
 * Windows
 */

#define MRS_MAX	8

/**
 * struct owner - Windows, their domain, and the MRs that they are bound to
 * @huge: The memory is of huge pages
 * @nr_mrs: MRs, of which each window takes one at random
 * @m: Handle, NULL before the first use
 * @domain: Domain
 * @mrs: MRs
 * @ids: Windows
 * @binds: Parameters of the binds
 * @live: Windows that are bound all the time
 * @wanders: The windows are bound to other ranges each time
 * @turn: Number of binds so far
 */
struct owner {
	int huge;
	unsigned int nr_mrs;
	struct memreg *m;
	uint32_t domain;
	struct memreg_mr mrs[MRS_MAX];
	uint32_t ids[BATCH];
	struct ib_memreg_bind binds[BATCH];
	unsigned int live;
	int wanders;
	unsigned int turn;
};

/* An FRWR is for one region as a rule, so each has a domain, and a pool. */
static struct owner on_pages = { .nr_mrs = 1 };
static struct owner on_huge = { .nr_mrs = 1, .huge = 1 };
static struct owner relaxed = { .nr_mrs = 1 };
static struct owner relaxed_on_huge = { .nr_mrs = 1, .huge = 1 };
static struct owner relaxed_on_mrs = { .nr_mrs = MRS_MAX };
static struct owner relaxed_wandering = { .nr_mrs = 1, .wanders = 1 };
static struct owner crowded = { .nr_mrs = 1 };

/**
 * struct grant_kind - Sort of binding and revoking
 * @owner: Owner of the windows
 * @relaxed: Don't wait for packets in flight to revoke
 * @live: Windows that stay bound meanwhile
 */
struct grant_kind {
	struct owner *owner;
	int relaxed;
	const unsigned int *live;
};

static int owner_memory(struct owner *owner)
{
	const size_t length = PIECES * PIECE;
	unsigned int i;
	void *memory;

	for (i = 0; i < owner->nr_mrs; i++) {
		memory = owner->huge ? memory_huge(length) :
				       memory_pages(length);
		if (!memory)
			return fail("memory", ENOMEM);
		if (memreg_mr_register(owner->m, owner->domain, memory, length,
				       LOCAL_WRITE | MW_BIND, 0,
				       &owner->mrs[i]))
			return fail_memreg();
	}
	return 0;
}

static int owner_make(struct owner *owner)
{
	if (open_domain(&owner->m, &owner->domain) || owner_memory(owner))
		return -1;
	if (memreg_window_alloc(owner->m, owner->domain,
				IB_MEMREG_WINDOW_TYPE1, PIECE, owner->ids,
				BATCH))
		return fail_memreg();
	return 0;
}

/*
 * Where a window is bound: to a piece of its own, or, if they wander, to a
 * range that no idle MR of the device lists any more.
 */
static uint64_t owner_offset(const struct owner *owner, unsigned int i,
			     unsigned int count)
{
	const unsigned int shifts = PIECE / PAGE;

	if (!owner->wanders)
		return i % PIECES * PIECE;
	i += owner->turn / shifts * count;
	return i % (PIECES - 1) * PIECE + owner->turn % shifts * PAGE;
}

static void owner_fill(struct owner *owner, const uint32_t *ids,
		       unsigned int count)
{
	unsigned int i;

	memset(owner->binds, 0, count * sizeof(owner->binds[0]));
	for (i = 0; i < count; i++) {
		unsigned int mr = owner->nr_mrs > 1 ?
				  (unsigned int)random() % owner->nr_mrs : 0;

		owner->binds[i].window_id = ids[i];
		owner->binds[i].mr_id = owner->mrs[mr].id;
		owner->binds[i].offset = owner_offset(owner, i, count);
		owner->binds[i].length = PIECE;
		owner->binds[i].access = REMOTE;
	}
	owner->turn++;
}

/* Bind more windows, up to @total, and leave them so. */
static int owner_crowd(struct owner *owner, unsigned int total)
{
	uint32_t ids[BATCH];
	unsigned int count;

	for (; owner->live < total; owner->live += count) {
		count = total - owner->live;
		if (count > BATCH)
			count = BATCH;
		if (memreg_window_alloc(owner->m, owner->domain,
					IB_MEMREG_WINDOW_TYPE1, PIECE, ids,
					count))
			return fail_memreg();
		owner_fill(owner, ids, count);
		if (memreg_window_bind_batch(owner->m, owner->domain,
					     owner->binds, count, NULL))
			return fail_memreg();
	}
	return 0;
}

static int grants_bind(const struct op *op)
{
	struct owner *owner = ((const struct grant_kind *)op->data)->owner;
	int ret;

	owner_fill(owner, owner->ids, op->each);
	if (op->each == 1)
		ret = memreg_window_bind(owner->m, owner->domain,
					 owner->binds);
	else
		ret = memreg_window_bind_batch(owner->m, owner->domain,
					       owner->binds, op->each, NULL);
	return ret ? fail_memreg() : 0;
}

static int grants_revoke(const struct op *op)
{
	const struct grant_kind *kind = op->data;
	const struct owner *owner = kind->owner;
	int ret;

	if (kind->relaxed)
		ret = memreg_window_revoke_relaxed(owner->m, owner->domain,
						   owner->ids, op->each, NULL);
	else if (op->each == 1)
		ret = memreg_window_revoke(owner->m, owner->domain,
					   owner->ids[0]);
	else
		ret = memreg_window_revoke_batch(owner->m, owner->domain,
						 owner->ids, op->each, NULL);
	return ret ? fail_memreg() : 0;
}

static int grants_run(const struct op *op)
{
	return grants_bind(op) || grants_revoke(op) ? -1 : 0;
}

static int grants_setup(const struct op *op)
{
	const struct grant_kind *kind = op->data;
	unsigned int done;

	if (!kind->owner->m && owner_make(kind->owner))
		return -1;
	if (kind->live && owner_crowd(kind->owner, *kind->live))
		return -1;
	for (done = 0; done < warm_up; done += op->each)
		if (grants_run(op))
			return -1;
	return 0;
}

/*
 * Memory that goes away under many guards
 */

static struct {
	char *memory;		/* a page for each MR */
	struct memreg *m;	/* with an MR on each page, or NULL */
	pid_t child;		/* that has it */
	int go;			/* pipe that the child ends by */
} guarded;

/* An MR on each page, with keys. */
static int guards_register(uint32_t flags)
{
	struct memreg_mr mr;
	uint32_t domain;
	unsigned int i;

	if (open_domain(&guarded.m, &domain))
		return -1;
	for (i = 0; i < guards; i++)
		if (memreg_mr_register(guarded.m, domain,
				       guarded.memory + i * PAGE, PAGE,
				       LOCAL_WRITE | REMOTE, flags, &mr))
			return fail_memreg();
	return 0;
}

/* The kind is the MRs' flags, or NULL if there are no MRs. */
static int guards_prepare(const struct op *op)
{
	guarded.memory = memory_pages(guards * PAGE);
	if (!guarded.memory)
		return fail("memory", ENOMEM);
	return op->data ? guards_register(*(const uint32_t *)op->data) : 0;
}

static int munmap_run(const struct op *op)
{
	(void)op;
	if (munmap(guarded.memory, guards * PAGE))
		return fail("munmap", errno);
	return 0;
}

static int guards_finish(const struct op *op)
{
	(void)op;
	memreg_close(guarded.m);
	guarded.m = NULL;
	return 0;
}

/* Prepare, report that, and wait for the start. */
static void child_main(const struct op *op, int ready, int go)
{
	char c = !guards_prepare(op);

	if (write(ready, &c, 1) == 1 && read(go, &c, 1) == 0)
		_exit(0);
	_exit(1);
}

static int exit_prepare(const struct op *op)
{
	int ready[2], go[2];
	char c = 0;

	if (pipe(ready) || pipe(go))
		return fail("pipe", errno);
	guarded.child = fork();
	if (guarded.child < 0)
		return fail("fork", errno);
	if (!guarded.child) {
		close(go[1]);
		child_main(op, ready[1], go[0]);
	}
	close(ready[1]);
	close(go[0]);
	guarded.go = go[1];
	if (read(ready[0], &c, 1) != 1 || !c)
		return fail("child", ECHILD);
	return close(ready[0]);
}

static int exit_run(const struct op *op)
{
	int status;

	(void)op;
	close(guarded.go);
	if (waitpid(guarded.child, &status, 0) != guarded.child || status)
		return fail("child", ECHILD);
	return 0;
}

/*
 * All of them
 */

static const unsigned int a_hundred = 100;
static const uint32_t with_guards, without_guards = IB_MEMREG_MR_UNGUARDED;

#define MR(_name, _length, _access, _flags)				\
	{ .name = "memreg_mr_" _name, .setup = mr_setup, .run = mr_run,	\
	  .each = 1, .data = &(const struct mr_kind){			\
		.length = (_length), .access = (_access),		\
		.flags = (_flags) } }

/* The two halves, each counted alone. */
#define HALVES(_name, _each, ...)					\
	{ .name = "memreg_bind_" _name, .setup = grants_setup,		\
	  .run = grants_bind, .finish = grants_revoke, .each = (_each),	\
	  .data = &(const struct grant_kind){ __VA_ARGS__ } },		\
	{ .name = "memreg_revoke_" _name, .setup = grants_setup,	\
	  .prepare = grants_bind, .run = grants_revoke,			\
	  .each = (_each),						\
	  .data = &(const struct grant_kind){ __VA_ARGS__ } }

#define GRANTS(_name, _each, ...)					\
	{ .name = "memreg_window_" _name, .setup = grants_setup,	\
	  .run = grants_run, .each = (_each),				\
	  .data = &(const struct grant_kind){ __VA_ARGS__ } }

#define GRANTS_ALONE(_name, _each, ...)					\
	{ .name = "memreg_window_" _name, .setup = grants_setup,	\
	  .run = grants_run, .each = (_each), .alone = 1,		\
	  .data = &(const struct grant_kind){ __VA_ARGS__ } }

/* With guards, with MRs alone, and without MRs. */
#define GUARDS(_name, _prepare, _run, _finish)				\
	{ .name = _name "_guarded", .prepare = _prepare, .run = _run,	\
	  .finish = _finish, .each = 1, .alone = 1, .large = 1,		\
	  .data = &with_guards },					\
	{ .name = _name "_unguarded", .prepare = _prepare, .run = _run,	\
	  .finish = _finish, .each = 1, .alone = 1, .large = 1,		\
	  .data = &without_guards },					\
	{ .name = _name "_plain", .prepare = _prepare, .run = _run,	\
	  .finish = _finish, .each = 1, .alone = 1, .large = 1 }

const struct op memreg_ops[] = {
	MR("4k_remote", 4096, LOCAL_WRITE | REMOTE, 0),
	MR("64k_local", PIECE, LOCAL_WRITE, 0),
	MR("64k_remote", PIECE, LOCAL_WRITE | REMOTE, 0),
	MR("1m_remote", 1 << 20, LOCAL_WRITE | REMOTE, 0),
	MR("1m_local", MR_LENGTH_MAX, LOCAL_WRITE, 0),
	MR("64k_local_unguarded", PIECE, LOCAL_WRITE, IB_MEMREG_MR_UNGUARDED),
	MR("64k_remote_unguarded", PIECE, LOCAL_WRITE | REMOTE,
	   IB_MEMREG_MR_UNGUARDED),
	GRANTS("single", 1, .owner = &on_pages),
	GRANTS("batch32", 32, .owner = &on_pages),
	HALVES("single", 1, .owner = &on_pages),
	HALVES("batch32", 32, .owner = &on_pages),
	GRANTS("batch256", 256, .owner = &on_pages),
	GRANTS("batch32_thp", 32, .owner = &on_huge),
	GRANTS("batch32_relaxed", 32, .owner = &relaxed, .relaxed = 1),
	GRANTS("batch256_relaxed", 256, .owner = &relaxed, .relaxed = 1),
	GRANTS("batch32_thp_relaxed", 32, .owner = &relaxed_on_huge,
	       .relaxed = 1),
	GRANTS("batch32_elsewhere_relaxed", 32, .owner = &relaxed_wandering,
	       .relaxed = 1),
	GRANTS("batch32_8mrs_relaxed", 32, .owner = &relaxed_on_mrs,
	       .relaxed = 1),
	GUARDS("munmap", guards_prepare, munmap_run, guards_finish),
	GUARDS("exit", exit_prepare, exit_run, NULL),
	GRANTS_ALONE("live_100", 32, .owner = &crowded, .live = &a_hundred),
	GRANTS_ALONE("live_many", 32, .owner = &crowded,
		     .live = &live_windows),
	{ .name = NULL }
};
