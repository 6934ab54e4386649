// SPDX-License-Identifier: GPL-2.0-only
/* Ends of connections of libibverbs alone */
#include <errno.h>
#include <string.h>

#include "test.h"
#include "qp.h"

#define PORT		1
#define ACCESS		(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | \
			 IBV_ACCESS_REMOTE_WRITE)

struct ibv_context *qp_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL), **at;
	struct ibv_context *context = NULL;

	for (at = list; at && *at && !context; at++)
		if (!strcmp(name, ibv_get_device_name(*at)))
			context = ibv_open_device(*at);
	if (list)
		ibv_free_device_list(list);
	return context;
}

/* The GID of an IPv4 address */
static int find_gid(struct qp_end *end)
{
	static const uint8_t v4[12] = { [10] = 0xff, [11] = 0xff };
	struct ibv_context *context = end->pd->context;

	for (end->gid_index = 0;
	     !ibv_query_gid(context, PORT, end->gid_index, &end->addr.gid);
	     end->gid_index++)
		if (!memcmp(end->addr.gid.raw, v4, sizeof(v4)))
			return 0;
	return -EADDRNOTAVAIL;
}

int qp_open(struct qp_end *end, struct ibv_pd *pd)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = {
			.max_send_wr = 16,
			.max_recv_wr = 1,
			.max_send_sge = 1,
			.max_recv_sge = 1,
		},
	};
	int ret;

	memset(end, 0, sizeof(*end));
	end->pd = pd;
	ret = find_gid(end);
	if (ret)
		return ret;
	end->cq = ibv_create_cq(pd->context, 32, NULL, NULL, 0);
	if (!end->cq)
		return -errno;
	attr.send_cq = end->cq;
	attr.recv_cq = end->cq;
	end->qp = ibv_create_qp(pd, &attr);
	if (!end->qp) {
		ret = -errno;
		qp_close(end);
		return ret;
	}
	end->addr.qpn = end->qp->qp_num;
	return 0;
}

void qp_close(struct qp_end *end)
{
	if (end->qp)
		ibv_destroy_qp(end->qp);
	if (end->cq)
		ibv_destroy_cq(end->cq);
	memset(end, 0, sizeof(*end));
}

static int to_init(struct qp_end *end)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = PORT,
		.qp_access_flags = ACCESS,
	};

	return -ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX |
			      IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

static int to_receive(struct qp_end *end, const struct qp_addr *other)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = other->qpn,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 12,
		.ah_attr = {
			.is_global = 1,
			.port_num = PORT,
			.grh = {
				.dgid = other->gid,
				.sgid_index = end->gid_index,
				.hop_limit = 64,
			},
		},
	};

	return -ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_AV |
			      IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			      IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			      IBV_QP_MIN_RNR_TIMER);
}

/*
 * Ready to send, with retries that end after some seconds if the other end is
 * gone
 */
static int to_send(struct qp_end *end)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.timeout = 17,
		.retry_cnt = 5,
		.rnr_retry = 5,
		.max_rd_atomic = 4,
	};

	return -ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT |
			      IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			      IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

int qp_connect(struct qp_end *end, const struct qp_addr *other)
{
	int ret = to_init(end);

	ret = ret ?: to_receive(end, other);
	return ret ?: to_send(end);
}

int qp_do(struct qp_end *end, enum ibv_wr_opcode opcode, struct ibv_mr *mr,
	  uint32_t length, uint64_t addr, uint32_t rkey)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)mr->addr,
		.length = length,
		.lkey = mr->lkey,
	};
	struct ibv_send_wr *bad, wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = addr, .rkey = rkey },
	};
	int64_t until = now_ms() + LIMIT_MS;
	struct ibv_wc wc;
	int n, ret = ibv_post_send(end->qp, &wr, &bad);

	if (ret)
		return -ret;
	do {
		n = ibv_poll_cq(end->cq, 1, &wc);
		if (n)
			return n < 0 ? -EIO : (int)wc.status;
	} while (now_ms() < until);
	return -ETIMEDOUT;
}
