// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * port: replacements for calls of libibverbs. Documentation/porting.rst shows
 * each of these functions, which runs on a device without a peer.
 */
#include <err.h>
#include <errno.h>
#include <stdio.h>
#include <memreg.h>

#define LENGTH	65536
#define ROWS	16

static char matrix[LENGTH], other[LENGTH];

static void must(int result)
{
	if (result)
		errx(1, "%s", memreg_reason());
}

/* ibv_reg_mr() and ibv_dereg_mr(): a key for all peers of the domain */
static void port_mr(struct memreg *m, uint32_t domain)
{
	struct memreg_mr mr;

	must(memreg_mr_register(m, domain, matrix, sizeof(matrix),
				IB_MEMREG_ACCESS_LOCAL_WRITE |
				IB_MEMREG_ACCESS_REMOTE_READ, 0, &mr));
	printf("peers read %llu bytes by the key 0x%x\n",
	       (unsigned long long)mr.length, mr.rkey);
	must(memreg_mr_deregister(m, mr.id));
}

/* ibv_bind_mw() of type 1: 8 grants in a call, and their end in another */
static void port_windows(struct memreg *m, uint32_t domain, uint32_t mr)
{
	struct ib_memreg_bind binds[8];
	uint32_t windows[8];
	unsigned int i;

	must(memreg_window_alloc(m, domain, IB_MEMREG_WINDOW_TYPE1, 4096,
				 windows, 8));
	for (i = 0; i < 8; i++)
		binds[i] = (struct ib_memreg_bind) {
			.window_id = windows[i],
			.mr_id = mr,
			.offset = i * 4096,
			.length = 4096,
			.access = IB_MEMREG_ACCESS_REMOTE_READ,
		};
	must(memreg_window_bind_batch(m, domain, binds, 8, NULL));
	/* binds[i].out_iova and out_rkey go to the peers */
	must(memreg_window_revoke_batch(m, domain, windows, 8, NULL));
	/* no packet of theirs reads any more */
	for (i = 0; i < 8; i++)
		must(memreg_window_free(m, windows[i]));
}

/* ibv_rereg_mr(): a failure leaves the MR as it was */
static void port_rereg(struct memreg *m, uint32_t mr)
{
	struct memreg_rereg_attr attr = {
		.what = IB_MEMREG_REREG_TRANSLATION,
		.addr = other,
		.length = sizeof(other),
	};
	struct memreg_mr changed = { .id = mr };

	must(memreg_mr_reregister(m, &attr, &changed, NULL));
	attr.length = 0;
	if (memreg_mr_reregister(m, &attr, &changed, NULL) != -EINVAL)
		errx(1, "no memory is no error");
	must(memreg_mr_query(m, mr, NULL, NULL, NULL));
}

/* mlx5dv_wr_mr_interleaved(): a column of a matrix under one MR */
static void port_column(struct memreg *m, uint32_t domain, uint32_t mr)
{
	struct ib_memreg_piece column = memreg_piece_2d(mr, 256, 64,
							LENGTH / ROWS, ROWS);
	struct memreg_mr all;

	must(memreg_mr_compose(m, domain, &column, 1,
			       IB_MEMREG_ACCESS_LOCAL_WRITE, 0, &all));
	printf("a column of %llu bytes\n", (unsigned long long)all.length);
	must(memreg_mr_deregister(m, all.id));
}

int main(int argc, char **argv)
{
	struct memreg_mr mr;
	uint32_t domain;
	struct memreg *m;

	must(memreg_open(argc > 1 ? argv[1] : NULL, &m));
	must(memreg_domain_create(m, 0, &domain));
	port_mr(m, domain);
	must(memreg_mr_register(m, domain, matrix, sizeof(matrix),
				IB_MEMREG_ACCESS_LOCAL_WRITE |
				IB_MEMREG_ACCESS_MW_BIND, 0, &mr));
	port_windows(m, domain, mr.id);
	port_column(m, domain, mr.id);
	port_rereg(m, mr.id);
	must(memreg_mr_deregister(m, mr.id));
	memreg_close(m);
	return 0;
}
