// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The neighbour of halo.c, of librdmacm and libibverbs alone: it has a cube of
 * its own, and lists where its halo and its surfaces are. The other side moves
 * the data of both. The formats of the grant and of the list are those of
 * memreg_grant_encode() and memreg_grants_encode().
 *
 *	halo_peer ADDRESS PORT STEPS
 */
#include <endian.h>
#include <err.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#define N 8UL
#define INNER (N - 2)
/* Runs of two layers in each direction */
#define RUNS (2 * INNER * INNER + 4 * INNER)
#define GRANT_MAGIC 0x6d726567

static struct grant {
	uint32_t magic;
	uint16_t version;
	uint16_t access;
	uint64_t iova;
	uint64_t length;
	uint32_t rkey;
	uint32_t reserved;
} grant;

struct run {
	uint64_t iova;
	uint64_t length;
	uint32_t rkey;
	uint16_t access;
	uint16_t reserved;
};

static struct {
	uint64_t cells[N * N * N];
	struct {
		uint32_t magic;
		uint16_t version;
		uint16_t reserved;
		uint32_t count;
		uint32_t reserved2;
		struct run runs[2 * RUNS];	/* the halo, and the surfaces */
	} list;
} shared;

static uint64_t *cells = shared.cells, old[N * N * N];
static struct rdma_cm_id *id;

static void must(int result, const char *what)
{
	if (result)
		err(1, "%s", what);
}

static void completed(int result, const struct ibv_wc *wc, const char *what)
{
	if (result < 0)
		err(1, "%s", what);
	if (wc->status)
		errx(1, "%s: %s", what, ibv_wc_status_str(wc->status));
}

static struct run *add_run(struct run *run, size_t cell, size_t length,
			   uint32_t rkey)
{
	run->iova = htobe64((uintptr_t)&cells[cell]);
	run->length = htobe64(length * sizeof(*cells));
	run->rkey = htobe32(rkey);
	return run + 1;
}

/* List two layers in each direction, in the order in which halo.c has them. */
static struct run *add_layers(struct run *run, size_t low, size_t high,
			      uint32_t rkey)
{
	size_t at[] = { low, high }, i, u, v;

	for (i = 0; i < 2; i++)
		for (v = 1; v <= INNER; v++)
			for (u = 1; u <= INNER; u++)
				run = add_run(run, at[i] + (u + v * N) * N,
					      1, rkey);
	for (i = 0; i < 2; i++)
		for (v = 1; v <= INNER; v++)
			run = add_run(run, 1 + (at[i] + v * N) * N, INNER,
				      rkey);
	for (i = 0; i < 2; i++)
		for (v = 1; v <= INNER; v++)
			run = add_run(run, 1 + (v + at[i] * N) * N, INNER,
				      rkey);
	return run;
}

static void share(uint32_t rkey)
{
	struct run *run = shared.list.runs;

	shared.list.magic = htobe32(GRANT_MAGIC);
	shared.list.version = htobe16(2);
	shared.list.count = htobe32(2 * RUNS);
	/* One face is next to the opposite face of the other cube. */
	run = add_layers(run, 0, N - 1, rkey);
	add_layers(run, N - 2, 1, rkey);
	grant.magic = htobe32(GRANT_MAGIC);
	grant.version = htobe16(1);
	grant.iova = htobe64((uintptr_t)&shared.list);
	grant.length = htobe64(sizeof(shared.list));
	grant.rkey = htobe32(rkey);
}

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

static void accept_at(char *address, char *port)
{
	struct rdma_addrinfo hints = { .ai_flags = RAI_PASSIVE,
				       .ai_port_space = RDMA_PS_TCP }, *info;
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 2, .max_recv_wr = 2,
			 .max_send_sge = 1, .max_recv_sge = 1 },
		.sq_sig_all = 1,
	};
	struct rdma_conn_param param = {
		.private_data = &grant, .private_data_len = sizeof(grant),
		.responder_resources = 2, .initiator_depth = 2,
	};
	struct rdma_cm_id *listener;
	struct ibv_mr *mr;

	must(rdma_getaddrinfo(address, port, &hints, &info), address);
	must(rdma_create_ep(&listener, info, NULL, &attr), "rdma_create_ep");
	must(rdma_listen(listener, 1), "rdma_listen");
	puts("ready");
	must(rdma_get_request(listener, &id), "rdma_get_request");
	mr = ibv_reg_mr(id->pd, &shared, sizeof(shared),
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
			IBV_ACCESS_REMOTE_WRITE);
	if (!mr)
		err(1, "ibv_reg_mr");
	share(mr->rkey);
	must(rdma_post_recvv(id, NULL, NULL, 0), "RECV");
	must(rdma_accept(id, &param), "rdma_accept");
}

int main(int argc, char **argv)
{
	struct rdma_cm_event *event;
	struct ibv_wc wc;

	if (argc != 4)
		errx(2, "usage: halo_peer ADDRESS PORT STEPS");
	setlinebuf(stdout);
	for (size_t i = 0; i < N * N * N; i++)
		cells[i] = 1000 + 3 * i;
	accept_at(argv[1], argv[2]);
	for (int n = atoi(argv[3]); n > 0; n--) {
		must(rdma_post_sendv(id, NULL, NULL, 0, 0), "SEND");
		completed(rdma_get_send_comp(id, &wc), &wc, "SEND");
		completed(rdma_get_recv_comp(id, &wc), &wc, "RECV");
		must(rdma_post_recvv(id, NULL, NULL, 0), "RECV");
		printf("%016" PRIx64 "\n", compute());
	}
	/* Until the other side has seen its last message arrive, and goes. */
	must(rdma_get_cm_event(id->channel, &event), "rdma_get_cm_event");
	return 0;
}
