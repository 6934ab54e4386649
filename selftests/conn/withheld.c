// SPDX-License-Identifier: GPL-2.0-only
/*
 * A peer that acknowledges nothing, so that messages are sent again and again,
 * and work requests behind them don't come to an end. It reads what it is sent,
 * though, and may send packets of its own.
 *
 * Whatever its device sends is lost: a qdisc sees to that. Packets of its own
 * are written to the network device, past the qdisc.
 *
 * And a peer that does not confirm that it was accepted, and goes on.
 *
 * time limit: 300
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ends.h"
#include "harness.h"
#include "mem.h"
#include "net.h"
#include "raw.h"
#include "ring.h"
#include "state.h"
#include "stock.h"
#include "test.h"

#define LEN		(8 * PAGE)
#define STOCK_LEN	(1UL << 16)
#define REPEATS		3	/* sent as often; the connection bears 8 */
#define SOON_MS		9000	/* before anybody gives up */

/* From the InfiniBand specification, chapter 9, and its annex on RoCEv2 */
#define ROCE_PORT		4791
#define RC_SEND_ONLY		0x04
#define RC_SEND_ONLY_WITH_INV	0x17
#define BTH_ACK_REQ		0x80000000

struct bth {
	uint8_t opcode;
	uint8_t flags;
	__be16 pkey;
	__be32 qpn;
	__be32 psn;
};

/* Headers of a packet that the test makes; the ICRC follows them */
struct send_inv {
	struct ether_header eth;
	struct iphdr ip;
	struct udphdr udp;
	struct bth bth;
	__be32 rkey;
	uint32_t icrc;
} __attribute__((packed));

FIXTURE(withheld)
{
	struct link link;
	struct link other;	/* another connection of the domain */
	struct stock *stock;
	struct ring ring;
	__u8 *mem;
	__u8 *alias;		/* of it; its MR is of these addresses */
	__u32 mr;
	__u32 window;
	bool withheld;
	int wire;		/* the peer's network device */
	int ifindex;
	__u64 iova;
	__u32 rkey;
};

/*
 * Lose all that the peer's device sends, or do so no longer. The answers to ARP
 * are lost as well: what the owner knows of the peer's address is to stay.
 */
static int withhold(FIXTURE_DATA(withheld) *self, bool on)
{
	self->withheld = on;
	if (shell("ip -n memreg-owner neigh change " PEER_IP4
		  " dev mr_owner nud %s", on ? "permanent" : "reachable"))
		return -EINVAL;
	return shell("ip netns exec memreg-peer tc qdisc %s dev mr_peer root%s",
		     on ? "add" : "del", on ? " netem loss 100%" : "");
}

/*
 * Open a tap: packets to the peer can be read from it, and packets from the
 * peer written to it.
 */
static int tap(FIXTURE_DATA(withheld) *self)
{
	const int one = 1;
	struct sockaddr_ll at = {
		.sll_family = AF_PACKET,
		.sll_protocol = htons(ETHERTYPE_IP),
	};
	int ret = enter_namespace("memreg-peer");

	if (ret)
		return ret;
	self->wire = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
	self->ifindex = if_nametoindex("mr_peer");
	ret = enter_namespace("memreg-owner");
	at.sll_ifindex = self->ifindex;
	if (self->wire < 0 || !self->ifindex ||
	    bind(self->wire, (struct sockaddr *)&at, sizeof(at)) ||
	    setsockopt(self->wire, SOL_PACKET, PACKET_QDISC_BYPASS, &one,
		       sizeof(one)))
		return -errno;
	return ret;
}

FIXTURE_SETUP(withheld)
{
	struct ib_memreg_queues queues;

	ASSERT_EQ(0, link_open(&self->link, STOCK_LEN));
	self->stock = &self->link.stock;
	ASSERT_EQ(0, tap(self));
	self->mem = mmap(NULL, LEN, PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, self->mem);
	self->alias = mremap(self->mem, 0, LEN, MREMAP_MAYMOVE);
	ASSERT_NE(MAP_FAILED, self->alias);
	fill(self->mem, LEN, 1);
	ASSERT_EQ(0, raw_register(self->link.fd, self->link.domain, self->alias,
				  LEN, LOCAL_WRITE | MW_BIND, &self->mr));
	ASSERT_EQ(0, raw_windows_2b(self->link.fd, self->link.domain, LEN,
				    &self->window, 1));
	ASSERT_EQ(0, ring_create(self->link.fd, &self->ring, 64, 64, 0, -1));
	queues = queues_on(self->ring.id, 16, 16, 1, sizeof(__be32));
	ASSERT_EQ(0, link_up(&self->link, &queues, true));
	self->other = self->link;
	ASSERT_EQ(0, stock_open(&self->other.stock, STOCK_LEN));
	ASSERT_EQ(0, link_up(&self->other, &queues, false));
	ASSERT_EQ(0, withhold(self, true));
}

FIXTURE_TEARDOWN(withheld)
{
	if (self->withheld)
		withhold(self, false);
	stock_close(&self->other.stock);
	link_close(&self->link);
	ring_unmap(&self->ring);
	EXPECT_EQ(0, vm_pin(0));
	munmap(self->mem, LEN);
	close(self->wire);
}

static struct ib_memreg_wr bind_wr(const FIXTURE_DATA(withheld) *self)
{
	return WR(BIND, self->link.endpoint, .window_id = self->window,
		  .access = REMOTE_READ | REMOTE_WRITE, .flags = INSERT_RKEY,
		  .sge = { .mr_id = self->mr, .length = LEN });
}

static const __be32 nothing;

static struct ib_memreg_wr send_wr(const FIXTURE_DATA(withheld) *self)
{
	return WR(SEND, self->link.endpoint, INLINE_DATA(&nothing, 4),
		  .flags = INLINE | SIGNALED);
}

static void submit(struct __test_metadata *_metadata,
		   FIXTURE_DATA(withheld) *self, struct ib_memreg_wr *wrs,
		   unsigned int n)
{
	ASSERT_EQ(0, raw_submit(self->link.fd, wrs, n)) {
		TH_LOG("taken %u, reason %u", raw_taken(), raw_reason());
	}
}

static void done(struct __test_metadata *_metadata,
		 FIXTURE_DATA(withheld) *self, __u16 opcode,
		 union entry *entry)
{
	ASSERT_EQ(0, ring_next(&self->ring, entry));
	EXPECT_EQ(IB_MEMREG_WC_SUCCESS, entry->cqe.status);
	EXPECT_EQ(opcode, entry->cqe.opcode);
}

/* Receive the message that announces the window, at the peer. */
static void take_key(struct __test_metadata *_metadata,
		     FIXTURE_DATA(withheld) *self,
		     const struct ib_memreg_wr *bind)
{
	struct ibv_wc wc;

	ASSERT_EQ(0, stock_next(&self->stock->received, &wc));
	ASSERT_EQ(IBV_WC_SUCCESS, wc.status);
	self->rkey = be32toh(*(__be32 *)(self->stock->mem + wc.wr_id));
	self->iova = bind->remote_addr;
	EXPECT_EQ(bind->rkey, self->rkey);
}

static void grant(struct __test_metadata *_metadata,
		  FIXTURE_DATA(withheld) *self)
{
	struct ib_memreg_wr wrs[2] = { bind_wr(self), send_wr(self) };

	ASSERT_EQ(0, stock_recv(self->stock, 0, 4));
	submit(_metadata, self, wrs, 2);
	take_key(_metadata, self, &wrs[0]);
}

/*
 * The wire
 */

/*
 * Read the next message to the peer from the tap, whether or not the peer's
 * device takes it.
 */
static void next_sent(struct __test_metadata *_metadata,
		      FIXTURE_DATA(withheld) *self, struct bth *bth)
{
	struct pollfd pfd = { .fd = self->wire, .events = POLLIN };
	struct send_inv packet;
	struct sockaddr_ll from;
	socklen_t len;
	ssize_t n;

	do {
		ASSERT_EQ(1, poll(&pfd, 1, LIMIT_MS));
		len = sizeof(from);
		n = recvfrom(self->wire, &packet, sizeof(packet), 0,
			     (struct sockaddr *)&from, &len);
		ASSERT_LE(0, n);
		*bth = packet.bth;
	} while (n < (ssize_t)offsetof(struct send_inv, rkey) ||
		 from.sll_pkttype != PACKET_HOST ||
		 packet.ip.protocol != IPPROTO_UDP ||
		 packet.udp.dest != htons(ROCE_PORT) ||
		 be32toh(bth->qpn) != self->stock->qp->qp_num ||
		 bth->opcode != RC_SEND_ONLY);
}

/* The same message is sent again, several times, and no other. */
static void await_repeats(struct __test_metadata *_metadata,
			  FIXTURE_DATA(withheld) *self)
{
	struct bth first, next;
	unsigned int i;

	next_sent(_metadata, self, &first);
	for (i = 0; i < REPEATS; i++) {
		next_sent(_metadata, self, &next);
		ASSERT_EQ(be32toh(first.psn) & ~BTH_ACK_REQ,
			  be32toh(next.psn) & ~BTH_ACK_REQ);
	}
}

static uint16_t ip_sum(struct iphdr ip)
{
	uint16_t words[sizeof(ip) / 2];
	uint32_t sum = 0;
	unsigned int i;

	memcpy(words, &ip, sizeof(words));
	for (i = 0; i < sizeof(words) / 2; i++)
		sum += words[i];
	sum = (sum & 0xffff) + (sum >> 16);
	return ~(sum + (sum >> 16));
}

/* The ICRC of a packet: routers may change some fields, which count as ones. */
static uint32_t icrc_of(struct send_inv packet)
{
	const size_t from = offsetof(struct send_inv, ip) - 8;
	const size_t len = offsetof(struct send_inv, icrc) - from;

	packet.ip.tos = 0xff;
	packet.ip.ttl = 0xff;
	packet.ip.check = 0xffff;
	packet.udp.check = 0xffff;
	packet.bth.qpn |= htobe32(0xff000000);
	memset((uint8_t *)&packet + from, 0xff, 8);
	return htole32(crc32_of((uint8_t *)&packet + from, len));
}

/* An empty SEND_WITH_INV, which the peer's device knows nothing of */
static void send_inv(struct __test_metadata *_metadata,
		     FIXTURE_DATA(withheld) *self)
{
	struct send_inv packet = {
		.eth = {
			.ether_dhost = { 2, 0, 0, 0, 2, 1 },
			.ether_shost = { 2, 0, 0, 0, 2, 2 },
			.ether_type = htons(ETHERTYPE_IP),
		},
		.ip = {
			.version = 4,
			.ihl = sizeof(packet.ip) / 4,
			.tot_len = htons(sizeof(packet) - sizeof(packet.eth)),
			.frag_off = htons(IP_DF),
			.ttl = 64,
			.protocol = IPPROTO_UDP,
			.saddr = inet_addr(PEER_IP4),
			.daddr = inet_addr(OWNER_IP4),
		},
		.udp = {
			.source = htons(0xc000),
			.dest = htons(ROCE_PORT),
			.len = htons(sizeof(packet) - sizeof(packet.eth) -
				     sizeof(packet.ip)),
		},
		.bth = {
			.opcode = RC_SEND_ONLY_WITH_INV,
			.pkey = htobe16(0xffff),
		},
		.rkey = htobe32(self->rkey),
	};
	const struct sockaddr_ll to = {
		.sll_family = AF_PACKET,
		.sll_ifindex = self->ifindex,
	};
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	ASSERT_EQ(0, ibv_query_qp(self->stock->qp, &attr,
				  IBV_QP_SQ_PSN | IBV_QP_DEST_QPN, &init));
	packet.bth.qpn = htobe32(attr.dest_qp_num);
	packet.bth.psn = htobe32(attr.sq_psn | BTH_ACK_REQ);
	packet.ip.check = ip_sum(packet.ip);
	packet.icrc = icrc_of(packet);
	ASSERT_EQ(sizeof(packet), sendto(self->wire, &packet, sizeof(packet), 0,
					 (const struct sockaddr *)&to,
					 sizeof(to)));
}

/* The key is dead for every peer, also after retransmissions. */
static void dead(struct __test_metadata *_metadata,
		 FIXTURE_DATA(withheld) *self)
{
	fill(self->other.stock.mem, 100, 7);
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
		  stock_write(&self->other.stock, 0, 100, self->iova,
			      self->rkey));
	EXPECT_TRUE(filled(self->mem, LEN, 0, 1));
}

/*
 * The peer gives a window back, and the message that announced the window is
 * sent again: the key stays dead.
 */
TEST_F_TIMEOUT(withheld, I3_message_sent_again_revives_no_key, LIMIT_S)
{
	struct ib_memreg_wr recv = WR(RECV, self->link.endpoint,
				      SGE(self->mr, 0, 64));
	union entry entry;

	submit(_metadata, self, &recv, 1);
	grant(_metadata, self);
	send_inv(_metadata, self);
	done(_metadata, self, OP(RECV), &entry);
	EXPECT_TRUE(entry.cqe.flags & IB_MEMREG_CQE_INVALIDATED);
	EXPECT_EQ(self->window, entry.cqe.window_id);
	await_repeats(_metadata, self);
	ASSERT_EQ(0, withhold(self, false));
	done(_metadata, self, OP(SEND), &entry);
	dead(_metadata, self);
}

/* Does a retransmission do a BIND once more? Soft-RoCE alone is known to. */
static bool repeats_binds(const FIXTURE_DATA(withheld) *self)
{
	__u64 strict = 0;

	raw_cap(self->link.fd, IB_MEMREG_CAP_STRICT_INVALIDATE, &strict);
	return !strict;
}

/*
 * Where a BIND behind a message would be done again with it, it waits until the
 * message is acknowledged, and so does the message behind it. Elsewhere neither
 * waits.
 */
static void bind_waits(struct __test_metadata *_metadata,
		       FIXTURE_DATA(withheld) *self, bool one_call)
{
	struct ib_memreg_wr wrs[3] = {
		send_wr(self), bind_wr(self), send_wr(self),
	};
	union entry entry;
	struct ibv_wc wc;

	ASSERT_EQ(0, stock_recv(self->stock, 0, 4));
	ASSERT_EQ(0, stock_recv(self->stock, 64, 4));
	if (one_call) {
		submit(_metadata, self, wrs, 3);
	} else {
		submit(_metadata, self, wrs, 1);
		submit(_metadata, self, wrs + 1, 2);
	}
	ASSERT_EQ(0, stock_next(&self->stock->received, &wc));
	if (repeats_binds(self)) {
		await_repeats(_metadata, self);
		EXPECT_EQ(0, ibv_poll_cq(self->stock->received.cq, 1, &wc));
		ASSERT_EQ(0, withhold(self, false));
		take_key(_metadata, self, &wrs[1]);
	} else {
		take_key(_metadata, self, &wrs[1]);
		ASSERT_EQ(0, withhold(self, false));
	}
	done(_metadata, self, OP(SEND), &entry);
	done(_metadata, self, OP(SEND), &entry);
	fill(self->stock->mem, LEN, 7);
	EXPECT_EQ(IBV_WC_SUCCESS, stock_write(self->stock, 0, LEN, self->iova,
					      self->rkey));
	EXPECT_TRUE(filled(self->mem, LEN, 0, 7));
}

TEST_F_TIMEOUT(withheld, I3_bind_waits_for_acknowledgements, LIMIT_S)
{
	bind_waits(_metadata, self, true);
}

TEST_F_TIMEOUT(withheld, I3_bind_waits_for_what_was_submitted_before, LIMIT_S)
{
	bind_waits(_metadata, self, false);
}

/* The memory goes before the message that announced it is acknowledged. */
TEST_F_TIMEOUT(withheld, I2_unmap_does_not_wait_for_acknowledgements, LIMIT_S)
{
	union entry entry;
	int64_t begun;

	grant(_metadata, self);
	begun = now_ms();
	ASSERT_EQ(0, munmap(self->alias, LEN));
	EXPECT_GT(SOON_MS, now_ms() - begun);
	await_repeats(_metadata, self);
	ASSERT_EQ(0, withhold(self, false));
	done(_metadata, self, OP(SEND), &entry);
	dead(_metadata, self);
	ASSERT_EQ(0, raw_disconnect(self->link.fd, self->link.endpoint));
	EXPECT_EQ(0, raw_destroy(self->link.fd, self->window));
	EXPECT_EQ(0, raw_destroy(self->link.fd, self->mr));
}

/*
 * Ending the connection does not wait for acknowledgements either. It ends
 * window and message.
 */
TEST_F_TIMEOUT(withheld, I3_disconnect_does_not_wait_for_acknowledgements,
	       LIMIT_S)
{
	union entry entry;
	int64_t begun;

	grant(_metadata, self);
	begun = now_ms();
	ASSERT_EQ(0, raw_disconnect(self->link.fd, self->link.endpoint));
	EXPECT_GT(SOON_MS, now_ms() - begun);
	ASSERT_EQ(0, ring_next(&self->ring, &entry));
	EXPECT_EQ(OP(SEND), entry.cqe.opcode);
	EXPECT_EQ(IB_MEMREG_WC_WR_FLUSH_ERR, entry.cqe.status);
	ASSERT_EQ(0, withhold(self, false));
	dead(_metadata, self);
	EXPECT_EQ(0, raw_destroy(self->link.fd, self->window));
	EXPECT_EQ(0, raw_destroy(self->link.fd, self->mr));
}

/*
 * A peer that was accepted
 */

FIXTURE(unconfirmed)
{
	struct link link;
	__u8 *mem;
	__u32 mr;
	struct ib_memreg_bind bind;
};

FIXTURE_SETUP(unconfirmed)
{
	struct link *link = &self->link;

	ASSERT_EQ(0, link_open(link, STOCK_LEN));
	ASSERT_EQ(0, link_memory(link, LEN, LOCAL_WRITE | MW_BIND, &self->mem,
				 &self->mr));
	self->bind = (struct ib_memreg_bind) {
		.mr_id = self->mr, .length = LEN, .access = REMOTE_READ,
	};
	ASSERT_EQ(0, raw_windows(link->fd, link->domain, LEN,
				 &self->bind.window_id, 1));
	ASSERT_EQ(0, stock_connect(&link->stock, OWNER_IP4, link->port));
	ASSERT_EQ(0, raw_await(link->fd, IB_MEMREG_EVENT_CONNECT_REQUEST,
			       &link->endpoint));
	self->bind.endpoint_id = link->endpoint;
	ASSERT_EQ(0, raw_bind(link->fd, link->domain, &self->bind, 1));
	ASSERT_EQ(0, raw_accept(link->fd, link->endpoint, link->domain));
	ASSERT_EQ(0, stock_answered(&link->stock));
}

FIXTURE_TEARDOWN(unconfirmed)
{
	link_close(&self->link);
	munmap(self->mem, LEN);
	EXPECT_EQ(0, vm_pin(0));
}

/* Slower than the limit by as much as a busy machine is */
#define SLACK_MS	15000

TEST_F_TIMEOUT(unconfirmed, I3_connection_ends_in_time, LIMIT_S)
{
	struct link *link = &self->link;
	struct ib_memreg_event event;
	struct pollfd pfd = { .fd = link->fd, .events = POLLIN };
	int64_t begun = now_ms();

	/* The key works without a confirmation. */
	EXPECT_EQ(IBV_WC_SUCCESS, stock_read(&link->stock, 0, LEN,
					     self->bind.out_iova,
					     self->bind.out_rkey));
	ASSERT_EQ(1, poll(&pfd, 1, IB_MEMREG_ACCEPT_MAX_MS + SLACK_MS));
	EXPECT_LE(IB_MEMREG_ACCEPT_MAX_MS / 2, now_ms() - begun);
	ASSERT_EQ(sizeof(event), read(link->fd, &event, sizeof(event)));
	EXPECT_EQ(IB_MEMREG_EVENT_DISCONNECTED, event.type);
	EXPECT_EQ(link->endpoint, event.endpoint_id);
	EXPECT_NE(IBV_WC_SUCCESS, stock_read(&link->stock, 0, LEN,
					     self->bind.out_iova,
					     self->bind.out_rkey));
	EXPECT_EQ(0, raw_destroy(link->fd, self->bind.window_id));
	EXPECT_EQ(0, raw_destroy(link->fd, link->endpoint));
	link->endpoint = 0;
}

/* The owner need not wait for that. */
TEST_F_TIMEOUT(unconfirmed, I3_owner_can_end_the_connection, LIMIT_S)
{
	struct link *link = &self->link;

	EXPECT_EQ(IBV_WC_SUCCESS, stock_read(&link->stock, 0, LEN,
					     self->bind.out_iova,
					     self->bind.out_rkey));
	ASSERT_EQ(0, raw_disconnect(link->fd, link->endpoint));
	EXPECT_EQ(0, raw_await(link->fd, IB_MEMREG_EVENT_DISCONNECTED, NULL));
	EXPECT_NE(IBV_WC_SUCCESS, stock_read(&link->stock, 0, LEN,
					     self->bind.out_iova,
					     self->bind.out_rkey));
}

PEER_HARNESS_MAIN
