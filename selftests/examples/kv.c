// SPDX-License-Identifier: GPL-2.0-only
/*
 * A client of user/examples/kv.c, run by kv.sh, that does not keep to what it
 * was granted: for each key it READs all of the buffer, and prints how many
 * bytes behind the value are not 0. Usage: kv ADDRESS PORT KEY...
 */
#include <endian.h>
#include <err.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#define BUFFER	4096

/* As memreg_grant_encode() writes it */
struct grant {
	uint32_t magic;
	uint16_t version;
	uint16_t access;
	uint64_t iova;
	uint64_t length;
	uint32_t rkey;
	uint32_t reserved;
};

static char buffer[BUFFER];
static struct grant grant;
static struct ibv_mr *mr, *to;

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

static struct rdma_cm_id *connect_to(char *address, char *port)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP }, *info;
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 4, .max_recv_wr = 4,
			 .max_send_sge = 1, .max_recv_sge = 1 },
		.sq_sig_all = 1,
	};
	struct rdma_cm_id *id;

	must(rdma_getaddrinfo(address, port, &hints, &info), address);
	must(rdma_create_ep(&id, info, NULL, &attr), "rdma_create_ep");
	rdma_freeaddrinfo(info);
	mr = rdma_reg_msgs(id, buffer, sizeof(buffer));
	to = rdma_reg_msgs(id, &grant, sizeof(grant));
	if (!mr || !to)
		err(1, "ibv_reg_mr");
	must(rdma_post_recv(id, NULL, &grant, sizeof(grant), to), "RECV");
	must(rdma_connect(id, NULL), "rdma_connect");
	return id;
}

/* Bytes behind the value that are not 0 */
static unsigned int left_behind(struct rdma_cm_id *id, const char *key)
{
	size_t i, length = strnlen(key, BUFFER);
	unsigned int left = 0;
	struct ibv_wc wc;

	memcpy(buffer, key, length);
	must(rdma_post_send(id, NULL, buffer, length, mr, 0), "SEND");
	completed(rdma_get_send_comp(id, &wc), &wc, "SEND");
	completed(rdma_get_recv_comp(id, &wc), &wc, "RECV");
	must(rdma_post_read(id, NULL, buffer, BUFFER, mr, 0,
			    be64toh(grant.iova), be32toh(grant.rkey)), "READ");
	completed(rdma_get_send_comp(id, &wc), &wc, "READ");
	for (i = be64toh(grant.length); i < BUFFER; i++)
		left += !!buffer[i];
	must(rdma_post_recv(id, NULL, &grant, sizeof(grant), to), "RECV");
	return left;
}

int main(int argc, char **argv)
{
	struct rdma_cm_id *id;
	int i;

	if (argc < 4)
		errx(2, "usage: kv ADDRESS PORT KEY...");
	id = connect_to(argv[1], argv[2]);
	for (i = 3; i < argc; i++)
		printf("%u\n", left_behind(id, argv[i]));
	rdma_disconnect(id);
	return 0;
}
