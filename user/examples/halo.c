// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The halo of an array of three dimensions: this program and halo_peer.c have a
 * cube each, with the other one on all sides. Each step exchanges the layers at
 * the surfaces, and makes each cell the sum of its neighbours. In both arrays
 * the layers are runs of a cell, or of a row. Here they are compositions; the
 * peer lists its runs as grants, so that nothing is copied at either end.
 */
#include <arpa/inet.h>
#include <err.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <memreg.h>

#define N 8UL			/* cells in each direction, with the halo */
#define INNER (N - 2)
enum { CELL = sizeof(uint64_t), ROW = N * CELL, PLANE = N * ROW };
/* Runs of two layers in each direction */
#define RUNS (2 * INNER * INNER + 4 * INNER)

static uint64_t cells[N * N * N], old[N * N * N];
static struct memreg *m;
static uint32_t domain, endpoint;
static struct memreg_ring ring;
static struct memreg_mr all, faces, halo, bytes;
static char list[MEMREG_GRANTS_SIZE(2 * RUNS)];
static struct memreg_grant runs[2 * RUNS];	/* the peer's halo, and faces */

static void must(int result)
{
	if (result)
		errx(1, "%s", memreg_reason());
}

/* Two layers in each direction, edges left out */
static void compose(size_t low, size_t high, uint32_t access,
		    struct memreg_mr *mr)
{
	struct ib_memreg_piece p[6];
	size_t at[] = { low, high };

	for (int i = 0; i < 2; i++) {
		p[i] = memreg_piece_3d(all.id, at[i] * CELL + ROW + PLANE, CELL,
				       ROW, INNER, PLANE, INNER);
		p[2 + i] = memreg_piece_2d(all.id, CELL + at[i] * ROW + PLANE,
					   INNER * CELL, PLANE, INNER);
		p[4 + i] = memreg_piece_2d(all.id, CELL + ROW + at[i] * PLANE,
					   INNER * CELL, ROW, INNER);
	}
	must(memreg_mr_compose(m, domain, p, 6, access, 0, mr));
}

/* Wait until so many work requests have succeeded. */
static void complete(int n)
{
	const struct ib_memreg_cqe *cqe;

	while (n) {
		cqe = memreg_ring_peek(&ring);
		if (!cqe) {
			must(memreg_ring_wait(&ring, 1, IB_MEMREG_WAIT_FOREVER,
					      NULL));
			continue;
		}
		if (cqe->status)
			errx(1, "%s", memreg_cqe_reason(cqe));
		memreg_ring_seen(&ring, 1);
		n--;
	}
}

static void receive(void)
{
	struct ib_memreg_wr wr;

	memreg_prep_recv(&wr, endpoint, 0, 0, 0, 0);
	must(memreg_submit(m, &wr, 1, NULL));
}

/* The private data grants the list of the peer's runs, which is READ. */
static void read_list(const struct ib_memreg_event *e)
{
	unsigned int count = 2 * RUNS;
	struct memreg_grant at;
	struct ib_memreg_wr wr;

	must(memreg_grant_decode(e->private_data, e->private_data_len, &at));
	if (at.length != sizeof(list))
		errx(1, "the peer has another cube");
	complete(1);	/* its first message */
	memreg_prep_read(&wr, endpoint, bytes.id, 0, sizeof(list), at.iova,
			 at.rkey);
	memreg_wr_signal(&wr, 0);
	must(memreg_submit(m, &wr, 1, NULL));
	complete(1);
	must(memreg_grants_decode(list, sizeof(list), runs, &count));
	if (count != 2 * RUNS)
		errx(1, "the peer has another cube");
}

static void connect_to(const char *address, const char *port)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	struct ib_memreg_queues queues = {
		.send_ring_id = ring.id, .max_send = 256, .max_send_sge = 1,
		.recv_ring_id = ring.id, .max_recv = 2, .max_recv_sge = 1,
	};
	struct ib_memreg_event e;

	at.sin_port = htons(atoi(port));
	at.sin_addr.s_addr = inet_addr(address);
	must(memreg_connect_queues(m, domain, (struct sockaddr *)&at, NULL,
				   10000, NULL, 0, &queues, &endpoint));
	receive();
	must(memreg_get_event(m, &e, -1));
	if (e.type != IB_MEMREG_EVENT_ESTABLISHED)
		errx(1, "%s", memreg_event_reason(&e));
	read_list(&e);
}

/* The peer has reported that it is ready, and learns that this end is. */
static void exchange(void)
{
	struct ib_memreg_wr wrs[2 * RUNS + 1];
	int n, k;

	receive();
	n = memreg_transfer_plan(&faces, 0, runs, RUNS, IB_MEMREG_OP_WRITE,
				 endpoint, wrs, RUNS);
	must(n < 0);
	k = memreg_transfer_plan(&halo, 0, runs + RUNS, RUNS, IB_MEMREG_OP_READ,
				 endpoint, &wrs[n], RUNS);
	must(k < 0);
	n += k;
	memreg_prep_send(&wrs[n], endpoint, 0, 0, 0);
	wrs[n].flags = IB_MEMREG_WR_FENCE | IB_MEMREG_WR_SIGNALED;
	must(memreg_submit(m, wrs, n + 1, NULL));
	complete(3);
}

/* Each cell becomes the sum of its neighbours; returns a sum over all. */
static uint64_t compute(void)
{
	uint64_t sum = 0;

	memcpy(old, cells, sizeof(old));
	for (size_t n = 0; n < INNER * INNER * INNER; n++) {
		size_t i = 1 + n % INNER + N * (1 + n / INNER % INNER) +
			   N * N * (1 + n / INNER / INNER);

		cells[i] = old[i - 1] + old[i + 1] + old[i - N] + old[i + N] +
			   old[i - N * N] + old[i + N * N];
		sum += cells[i] * i;
	}
	return sum;
}

int main(int argc, char **argv)
{
	if (argc != 5)
		errx(2, "usage: halo DEVICE ADDRESS PORT STEPS");
	for (size_t i = 0; i < N * N * N; i++)
		cells[i] = i;
	must(memreg_open(argv[1], &m) ?: memreg_domain_create(m, 0, &domain));
	must(memreg_ring_create(m, 512, 64, -1, 0, &ring));
	must(memreg_mr_register(m, domain, cells, sizeof(cells),
				IB_MEMREG_ACCESS_LOCAL_WRITE, 0, &all));
	must(memreg_mr_register(m, domain, list, sizeof(list),
				IB_MEMREG_ACCESS_LOCAL_WRITE, 0, &bytes));
	/* One face of a cube is next to the opposite face of the other cube. */
	compose(N - 2, 1, 0, &faces);
	compose(0, N - 1, IB_MEMREG_ACCESS_LOCAL_WRITE, &halo);
	connect_to(argv[2], argv[3]);
	for (int n = atoi(argv[4]); n > 0; n--) {
		exchange();
		printf("%016" PRIx64 "\n", compute());
		if (n > 1)
			complete(1);
	}
	memreg_close(m);
}
