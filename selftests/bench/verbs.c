// SPDX-License-Identifier: GPL-2.0-only
/*
 * What memreg is compared to: MRs and memory windows of libibverbs, on the same
 * device.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <infiniband/verbs.h>

#include "../lib/mem.h"
#include "bench.h"

#define REMOTE	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |	\
		 IBV_ACCESS_REMOTE_WRITE)
#define BATCH	32
#define PORT	1

static struct ibv_context *context;
static struct ibv_pd *pd;

static int open_device(void)
{
	struct ibv_device **list;
	int i;

	if (pd)
		return 0;
	list = ibv_get_device_list(NULL);
	if (!list)
		return fail("ibv_get_device_list", errno);
	for (i = 0; list[i] && !context; i++)
		if (!strcmp(ibv_get_device_name(list[i]), bench_device()))
			context = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	if (!context)
		return fail(bench_device(), ENODEV);
	pd = ibv_alloc_pd(context);
	return pd ? 0 : fail("ibv_alloc_pd", errno);
}

/*
 * MRs
 */

static int mr_setup(const struct op *op)
{
	(void)op;
	if (!mr_memory())
		return fail("memory", ENOMEM);
	return open_device();
}

static int mr_run(const struct op *op)
{
	const size_t *length = op->data;
	struct ibv_mr *mr = ibv_reg_mr(pd, mr_memory(), *length, REMOTE);

	if (!mr)
		return fail("ibv_reg_mr", errno);
	if (ibv_dereg_mr(mr))
		return fail("ibv_dereg_mr", errno);
	return 0;
}

/* MRs of one measurement, which are deregistered after it. */
#define MANY	1024

static struct ibv_mr *many[MANY];

static int many_run(const struct op *op)
{
	unsigned int i;

	for (i = 0; i < op->each; i++) {
		many[i] = ibv_reg_mr(pd, mr_memory(), PIECE, REMOTE);
		if (!many[i])
			return fail("ibv_reg_mr", errno);
	}
	return 0;
}

static int many_finish(const struct op *op)
{
	unsigned int i;

	for (i = 0; i < op->each; i++)
		if (ibv_dereg_mr(many[i]))
			return fail("ibv_dereg_mr", errno);
	return 0;
}

/* Huge pages, which are there only as long as they are needed. */
static void *large;

static int large_prepare(const struct op *op)
{
	(void)op;
	large = memory_huge(LARGE_LENGTH);
	return large ? open_device() : fail("memory", ENOMEM);
}

static int large_run(const struct op *op)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, large, LARGE_LENGTH, REMOTE);

	(void)op;
	if (!mr)
		return fail("ibv_reg_mr", errno);
	if (ibv_dereg_mr(mr))
		return fail("ibv_dereg_mr", errno);
	return 0;
}

static int large_finish(const struct op *op)
{
	(void)op;
	mem_free(large, LARGE_LENGTH);
	return 0;
}

/*
 * Windows of type 2, on a QP that is connected to itself
 */

static struct {
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mw *mws[BATCH];
	uint32_t rkeys[BATCH];
} windows;

/* Index of an IPv4 address, with which RoCEv2 goes. */
static int find_gid(union ibv_gid *gid)
{
	struct ibv_gid_entry entry;
	int i;

	for (i = 0; i < 256; i++)
		if (!ibv_query_gid_ex(context, PORT, i, &entry, 0) &&
		    entry.gid_type == IBV_GID_TYPE_ROCE_V2 &&
		    !entry.gid.global.subnet_prefix &&
		    ntohl(entry.gid.global.interface_id & 0xffffffff) ==
		    0xffff) {
			*gid = entry.gid;
			return i;
		}
	return -1;
}

static int qp_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = PORT,
	};

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX |
			     IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

static int qp_receive(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_256,
		.dest_qp_num = qp->qp_num,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr.is_global = 1,
		.ah_attr.port_num = PORT,
		.ah_attr.grh.hop_limit = 1,
	};
	int index = find_gid(&attr.ah_attr.grh.dgid);

	if (index < 0)
		return ENETDOWN;
	attr.ah_attr.grh.sgid_index = (uint8_t)index;
	return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV |
			     IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			     IBV_QP_MIN_RNR_TIMER);
}

static int qp_send(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 1,
	};

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT |
			     IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

static int qp_make(void)
{
	struct ibv_qp_init_attr attr = {
		.cap.max_send_wr = 2 * BATCH,
		.cap.max_recv_wr = 1,
		.cap.max_send_sge = 1,
		.cap.max_recv_sge = 1,
		.qp_type = IBV_QPT_RC,
	};
	int err;

	windows.cq = ibv_create_cq(context, 2 * BATCH, NULL, NULL, 0);
	if (!windows.cq)
		return fail("ibv_create_cq", errno);
	attr.send_cq = windows.cq;
	attr.recv_cq = windows.cq;
	windows.qp = ibv_create_qp(pd, &attr);
	if (!windows.qp)
		return fail("ibv_create_qp", errno);
	err = qp_init(windows.qp);
	if (!err)
		err = qp_receive(windows.qp);
	if (!err)
		err = qp_send(windows.qp);
	return err ? fail("ibv_modify_qp", err) : 0;
}

static int mw_make(void)
{
	void *memory = memory_pages(PIECES * PIECE);
	unsigned int i;

	if (!memory)
		return fail("memory", ENOMEM);
	windows.mr = ibv_reg_mr(pd, memory, PIECES * PIECE,
				REMOTE | IBV_ACCESS_MW_BIND);
	if (!windows.mr)
		return fail("ibv_reg_mr", errno);
	for (i = 0; i < BATCH; i++) {
		windows.mws[i] = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
		if (!windows.mws[i])
			return fail("ibv_alloc_mw", errno);
		windows.rkeys[i] = windows.mws[i]->rkey;
	}
	return 0;
}

static int mw_setup(const struct op *op)
{
	(void)op;
	if (windows.mr)
		return 0;
	return open_device() || qp_make() || mw_make() ? -1 : 0;
}

/* Post a chain whose last work request is signaled, and wait for it. */
static int mw_post(struct ibv_send_wr *wrs, unsigned int count)
{
	struct ibv_send_wr *bad;
	struct ibv_wc wc;
	unsigned int i;
	int n;

	for (i = 0; i + 1 < count; i++)
		wrs[i].next = &wrs[i + 1];
	wrs[i].send_flags = IBV_SEND_SIGNALED;
	n = ibv_post_send(windows.qp, wrs, &bad);
	if (n)
		return fail("ibv_post_send", n);
	/* On one CPU, polling without a yield keeps soft-RoCE from running. */
	while (!(n = ibv_poll_cq(windows.cq, 1, &wc)))
		sched_yield();
	if (n < 0 || wc.status)
		return fail(n < 0 ? "ibv_poll_cq" :
			    ibv_wc_status_str(wc.status), EIO);
	return 0;
}

static int mw_run(const struct op *op)
{
	struct ibv_send_wr wrs[BATCH];
	unsigned int i;

	memset(wrs, 0, op->each * sizeof(wrs[0]));
	for (i = 0; i < op->each; i++) {
		windows.rkeys[i] = ibv_inc_rkey(windows.rkeys[i]);
		wrs[i].opcode = IBV_WR_BIND_MW;
		wrs[i].bind_mw.mw = windows.mws[i];
		wrs[i].bind_mw.rkey = windows.rkeys[i];
		wrs[i].bind_mw.bind_info.mr = windows.mr;
		wrs[i].bind_mw.bind_info.addr =
			(uintptr_t)windows.mr->addr + i * PIECE;
		wrs[i].bind_mw.bind_info.length = PIECE;
		wrs[i].bind_mw.bind_info.mw_access_flags =
			IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
	}
	if (mw_post(wrs, op->each))
		return -1;
	memset(wrs, 0, op->each * sizeof(wrs[0]));
	for (i = 0; i < op->each; i++) {
		windows.mws[i]->rkey = windows.rkeys[i];
		wrs[i].opcode = IBV_WR_LOCAL_INV;
		wrs[i].invalidate_rkey = windows.rkeys[i];
	}
	return mw_post(wrs, op->each);
}

#define MR(_name, _length)						\
	{ .name = "verbs_mr_" _name, .setup = mr_setup, .run = mr_run,	\
	  .each = 1, .data = &(const size_t){ (_length) } }

#define MW2(_name, _each)						\
	{ .name = "verbs_mw2_" _name, .setup = mw_setup,		\
	  .run = mw_run, .each = (_each) }

const struct op verbs_ops[] = {
	MR("4k", 4096),
	MR("64k", PIECE),
	MR("1m", 1 << 20),
	{ .name = "verbs_reg_1024x64k", .setup = mr_setup, .run = many_run,
	  .finish = many_finish, .each = MANY, .alone = 1, .large = 1 },
	{ .name = "verbs_mr_1g_huge", .prepare = large_prepare,
	  .run = large_run, .finish = large_finish, .each = 1, .alone = 1,
	  .large = 1 },
	MW2("single", 1),
	MW2("batch32", BATCH),
	{ .name = NULL }
};
