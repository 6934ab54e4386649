// SPDX-License-Identifier: GPL-2.0-only
/* Re-registration and compositions. */
#include <errno.h>
#include <memreg.h>

#include "../lib/raw.h"
#include "../lib/test.h"
#include "bench.h"

#define REMOTE	(REMOTE_READ | REMOTE_WRITE)
#define GROWN	(MR_LENGTH_MAX + PAGE)

/**
 * struct rereg_kind - Sort of change
 * @what: enum ib_memreg_rereg
 * @access: Access flags of the MR by turns
 */
struct rereg_kind {
	uint32_t what;
	uint32_t access[2];
};

static struct {
	struct memreg *m;
	uint32_t domains[2];
	void *memory;
} own;

static int setup(void)
{
	if (own.m)
		return 0;
	own.memory = memory_pages(GROWN);
	if (!own.memory)
		return fail("memory", ENOMEM);
	if (memreg_open(bench_device(), &own.m) ||
	    memreg_domain_create(own.m, 0, &own.domains[0]) ||
	    memreg_domain_create(own.m, 0, &own.domains[1]))
		return fail_memreg();
	return 0;
}

static struct memreg_mr changed;

static int change_prepare(const struct op *op)
{
	const struct rereg_kind *kind = op->data;

	if (setup())
		return -1;
	if (memreg_mr_register(own.m, own.domains[0], own.memory, PIECE,
			       kind->access[0], 0, &changed))
		return fail_memreg();
	return 0;
}

/* There and back again */
static int change_run(const struct op *op)
{
	const struct rereg_kind *kind = op->data;
	struct memreg_rereg_attr attr = { .what = kind->what };
	unsigned int i;

	for (i = 0; i < op->each; i++) {
		attr.access = kind->access[(i + 1) % 2];
		attr.domain = own.domains[(i + 1) % 2];
		if (memreg_mr_reregister(own.m, &attr, &changed, NULL))
			return fail_memreg();
	}
	return 0;
}

static int deregister(const struct op *op)
{
	(void)op;
	return memreg_mr_deregister(own.m, changed.id) ? fail_memreg() : 0;
}

static int grow_prepare(const struct op *op)
{
	(void)op;
	if (setup())
		return -1;
	if (memreg_mr_register(own.m, own.domains[0], own.memory,
			       MR_LENGTH_MAX, LOCAL_WRITE, 0, &changed))
		return fail_memreg();
	return 0;
}

static int grow_run(const struct op *op)
{
	struct memreg_rereg_attr attr = {
		.what = IB_MEMREG_REREG_TRANSLATION,
		.addr = own.memory,
		.length = GROWN,
	};

	(void)op;
	return memreg_mr_reregister(own.m, &attr, &changed, NULL) ?
	       fail_memreg() : 0;
}

/*
 * Grant sixteen pages of sixteen MRs: by one window on a composition of them,
 * or by a window on each
 */

#define SCATTERED	16U

static struct {
	struct memreg *m;
	uint32_t domain;
	struct memreg_mr mrs[SCATTERED];
	struct memreg_mr composed;
	uint32_t ids[SCATTERED];
	struct ib_memreg_bind binds[SCATTERED];
} scattered;

static int scattered_compose(void)
{
	struct ib_memreg_piece pieces[SCATTERED];
	unsigned int i;

	for (i = 0; i < SCATTERED; i++)
		pieces[i] = memreg_piece(scattered.mrs[i].id, 0, PAGE);
	return memreg_mr_compose(scattered.m, scattered.domain, pieces,
				 SCATTERED, LOCAL_WRITE | MW_BIND, 0,
				 &scattered.composed) ? fail_memreg() : 0;
}

static int scattered_open(void)
{
	char *memory = memory_pages(SCATTERED * PIECE);
	unsigned int i;

	if (scattered.m)
		return 0;
	if (!memory)
		return fail("memory", ENOMEM);
	if (memreg_open(bench_device(), &scattered.m) ||
	    memreg_domain_create(scattered.m, 0, &scattered.domain) ||
	    memreg_window_alloc(scattered.m, scattered.domain,
				IB_MEMREG_WINDOW_TYPE1, SCATTERED * PAGE,
				scattered.ids, SCATTERED))
		return fail_memreg();
	for (i = 0; i < SCATTERED; i++)
		if (memreg_mr_register(scattered.m, scattered.domain,
				       memory + i * PIECE, PIECE,
				       LOCAL_WRITE | MW_BIND, 0,
				       &scattered.mrs[i]))
			return fail_memreg();
	return scattered_compose();
}

/* Bind @n windows and revoke them, @batch in a call. */
static int scattered_grant(unsigned int n, unsigned int batch, uint32_t mr,
			   size_t length)
{
	struct ib_memreg_bind *binds = scattered.binds;
	unsigned int i;

	for (i = 0; i < n; i++)
		binds[i] = (struct ib_memreg_bind) {
			.window_id = scattered.ids[i],
			.mr_id = mr ? mr : scattered.mrs[i].id,
			.length = length,
			.access = REMOTE,
		};
	for (i = 0; i < n; i += batch)
		if (memreg_window_bind_batch(scattered.m, scattered.domain,
					     &binds[i], batch, NULL))
			return fail_memreg();
	for (i = 0; i < n; i += batch)
		if (memreg_window_revoke_batch(scattered.m, scattered.domain,
					       &scattered.ids[i], batch, NULL))
			return fail_memreg();
	return 0;
}

static int composed_run(const struct op *op)
{
	(void)op;
	return scattered_grant(1, 1, scattered.composed.id, SCATTERED * PAGE);
}

static int one_by_one_run(const struct op *op)
{
	(void)op;
	return scattered_grant(SCATTERED, 1, 0, PAGE);
}

static int batch_run(const struct op *op)
{
	(void)op;
	return scattered_grant(SCATTERED, SCATTERED, 0, PAGE);
}

static int scattered_setup(const struct op *op)
{
	unsigned int i;

	if (scattered_open())
		return -1;
	for (i = 0; i < warm_up / SCATTERED; i++)
		if (op->run(op))
			return -1;
	return 0;
}

#define CHANGE(_name, _what, ...)					\
	{ .name = "memreg_rereg_" _name, .prepare = change_prepare,	\
	  .run = change_run, .finish = deregister, .each = 2,		\
	  .data = &(const struct rereg_kind){				\
		.what = (_what), .access = { __VA_ARGS__ } } }

const struct op rereg_ops[] = {
	CHANGE("access_64k_local", IB_MEMREG_REREG_ACCESS,
	       LOCAL_WRITE, LOCAL_WRITE | MW_BIND),
	CHANGE("access_64k_remote", IB_MEMREG_REREG_ACCESS,
	       LOCAL_WRITE | REMOTE_READ, LOCAL_WRITE | REMOTE),
	CHANGE("domain_64k_local", IB_MEMREG_REREG_DOMAIN, LOCAL_WRITE, 0),
	CHANGE("domain_64k_remote", IB_MEMREG_REREG_DOMAIN,
	       LOCAL_WRITE | REMOTE, 0),
	{ .name = "memreg_compose_bind_16x4k", .setup = scattered_setup,
	  .run = composed_run, .each = 1 },
	{ .name = "memreg_windows_16x4k_single", .setup = scattered_setup,
	  .run = one_by_one_run, .each = 1 },
	{ .name = "memreg_windows_16x4k_batch", .setup = scattered_setup,
	  .run = batch_run, .each = 1 },
	{ .name = "memreg_rereg_grow", .prepare = grow_prepare,
	  .run = grow_run, .finish = deregister, .each = 1 },
	{ .name = NULL }
};
