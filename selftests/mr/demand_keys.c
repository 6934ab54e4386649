// SPDX-License-Identifier: GPL-2.0-only
/*
 * Keys of MRs on demand, whose pages the device faults in, on a device whose
 * driver is trusted with them.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "data.h"
#include "harness.h"
#include "mem.h"

#define PAGES		8
#define LEN		(PAGES * PAGE)
#define WORD		8	/* bytes of an access */
#define FOR_PEERS	(FOR_WINDOWS | REMOTE_RW)

FIXTURE(paged)
{
	struct link link;
	struct stock *stock;
	struct ib_memreg_queues queues;
	struct ring ring;
	__u8 *mem;
	__u32 mr;
	__u32 rkey;
	long pinned;
};

static int register_paged(FIXTURE_DATA(paged) *self, __u64 iova, __u32 access,
			  __u32 flags)
{
	RAW(mr_register, cmd, .flags = IB_MEMREG_MR_ON_DEMAND | flags,
	    .domain_id = self->link.domain, .access = access, .iova = iova,
	    .addr = flags & IB_MEMREG_MR_IMPLICIT ? 0 : (uintptr_t)self->mem,
	    .length = flags & IB_MEMREG_MR_IMPLICIT ? 0 : LEN);
	int ret = raw_call(self->link.fd, IB_MEMREG_IOC_MR_REGISTER, &cmd);

	if (ret)
		return ret;
	self->mr = cmd.out_mr_id;
	self->rkey = cmd.out_rkey;
	return 0;
}

FIXTURE_SETUP(paged)
{
	__u64 keys = 0;

	ASSERT_EQ(0, link_open(&self->link, LEN));
	ASSERT_EQ(0, raw_cap(self->link.fd, IB_MEMREG_CAP_ODP_KEYS, &keys));
	if (!keys) {
		link_close(&self->link);
		SKIP(return, "the driver is not trusted with paging");
	}
	self->stock = &self->link.stock;
	self->mem = mmap(NULL, LEN, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, (void *)self->mem);
	self->pinned = vm_pin(0);
	ASSERT_EQ(0, register_paged(self, 0, FOR_PEERS, 0))
		TH_LOG("reason %u", raw_reason());
	EXPECT_NE(0, self->rkey);
	ASSERT_EQ(0, ring_create(self->link.fd, &self->ring, 64, 64, 0, -1));
	self->queues = queues_on(self->ring.id, 8, 8, 1, 0);
	ASSERT_EQ(0, link_up(&self->link, &self->queues, true));
}

FIXTURE_TEARDOWN(paged)
{
	munmap(self->mem, LEN);
	link_close(&self->link);
	ring_unmap(&self->ring);
	EXPECT_EQ(0, vm_pin(0));
}

/* Expect that the peer reads a word of @byte from the start of a page. */
static void peer_reads(struct __test_metadata *_metadata,
		       FIXTURE_DATA(paged) *self, unsigned int page, __u8 byte)
{
	unsigned int i;

	memset(self->stock->mem, 0xa5, WORD);
	ASSERT_EQ(IBV_WC_SUCCESS,
		  stock_read(self->stock, 0, WORD,
			     (uintptr_t)self->mem + page * PAGE, self->rkey));
	for (i = 0; i < WORD; i++)
		EXPECT_EQ(byte, self->stock->mem[i]);
}

static void peer_writes(struct __test_metadata *_metadata,
			FIXTURE_DATA(paged) *self, unsigned int page,
			__u8 byte)
{
	memset(self->stock->mem, byte, WORD);
	ASSERT_EQ(IBV_WC_SUCCESS,
		  stock_write(self->stock, 0, WORD,
			      (uintptr_t)self->mem + page * PAGE, self->rkey));
}

/* An access fails, which ends the connection: make the next one. */
static void peer_is_refused(struct __test_metadata *_metadata,
			    FIXTURE_DATA(paged) *self, unsigned int page)
{
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
		  stock_read(self->stock, 0, WORD,
			     (uintptr_t)self->mem + page * PAGE, self->rkey));
	stock_disconnect(self->stock);
	ASSERT_EQ(0, raw_destroy(self->link.fd, self->link.endpoint));
	ASSERT_EQ(0, link_up(&self->link, &self->queues, true));
}

/*
 * The device faults in pages that were never touched, for reads and writes of
 * the peer.
 */
TEST_F_TIMEOUT(paged, the_device_faults_pages_in, 60)
{
	unsigned int i;

	for (i = 0; i < PAGES; i += 2)
		peer_reads(_metadata, self, i, 0);
	for (i = 0; i < PAGES; i++) {
		peer_writes(_metadata, self, i, i + 1);
		EXPECT_EQ(i + 1, self->mem[i * PAGE]);
		EXPECT_EQ(0, self->mem[i * PAGE + WORD]);
		self->mem[i * PAGE] = i + 1;
		peer_reads(_metadata, self, i, i + 1);
	}
	/* The key pins nothing. */
	EXPECT_EQ(self->pinned, vm_pin(0));
}

/*
 * The peer reaches the present mapping by the key, or nothing if there is none.
 */
TEST_F_TIMEOUT(paged, I2_what_the_peer_reaches_is_what_is_mapped, 60)
{
	memset(self->mem, 1, LEN);
	peer_reads(_metadata, self, 1, 1);
	ASSERT_EQ(0, madvise(self->mem, LEN, MADV_DONTNEED));
	peer_reads(_metadata, self, 1, 0);
	memset(self->mem, 2, LEN);
	peer_reads(_metadata, self, 1, 2);
	ASSERT_EQ(0, munmap(self->mem + 2 * PAGE, PAGE));
	peer_is_refused(_metadata, self, 2);
	peer_reads(_metadata, self, 3, 2);
	ASSERT_NE(MAP_FAILED, mmap(self->mem + 2 * PAGE, PAGE,
				   PROT_READ | PROT_WRITE, MAP_PRIVATE |
				   MAP_ANONYMOUS | MAP_FIXED, -1, 0));
	self->mem[2 * PAGE] = 0;
	peer_reads(_metadata, self, 2, 0);
}

/* The key dies when the MR is deregistered. */
TEST_F_TIMEOUT(paged, I3_key_dies_with_its_mr, 60)
{
	peer_writes(_metadata, self, 0, 9);
	ASSERT_EQ(0, raw_destroy(self->link.fd, self->mr));
	peer_is_refused(_metadata, self, 0);
	EXPECT_EQ(9, self->mem[0]);
}

/* Windows on such an MR, and local work, pin what they name. */
TEST_F_TIMEOUT(paged, windows_and_work_requests_pin_as_ever, 60)
{
	struct ib_memreg_wr wr = WR(SEND, self->link.endpoint,
				    SGE(self->mr, PAGE + 5, 100),
				    .flags = SIGNALED);
	struct ib_memreg_bind bind = {
		.mr_id = self->mr, .offset = 3 * PAGE + 7, .length = 50,
		.access = REMOTE_READ,
	};
	union entry entry;
	struct ibv_wc wc;

	memset(self->mem, 5, LEN);
	ASSERT_EQ(0, stock_recv(self->stock, 0, 100));
	ASSERT_EQ(0, raw_submit(self->link.fd, &wr, 1));
	ASSERT_EQ(0, ring_next(&self->ring, &entry));
	EXPECT_EQ(IB_MEMREG_WC_SUCCESS, entry.cqe.status);
	ASSERT_EQ(0, stock_next(&self->stock->received, &wc));
	EXPECT_EQ(5, self->stock->mem[99]);
	ASSERT_EQ(0, raw_windows(self->link.fd, self->link.domain, LEN,
				 &bind.window_id, 1));
	ASSERT_EQ(0, raw_bind(self->link.fd, self->link.domain, &bind, 1));
	ASSERT_EQ(IBV_WC_SUCCESS, stock_read(self->stock, 200, 50,
					     bind.out_iova, bind.out_rkey));
	EXPECT_EQ(5, self->stock->mem[249]);
}

/*
 * Re-registration with other access flags gives the MR a key, and takes it
 * away.
 */
TEST_F_TIMEOUT(paged, access_can_be_changed, 60)
{
	RAW(mr_reregister, cmd, .flags = IB_MEMREG_REREG_ACCESS,
	    .mr_id = self->mr, .access = LOCAL_WRITE);

	ASSERT_EQ(0, raw_call(self->link.fd, IB_MEMREG_IOC_MR_REREGISTER,
			      &cmd));
	peer_is_refused(_metadata, self, 0);
	cmd.access = FOR_PEERS;
	ASSERT_EQ(0, raw_call(self->link.fd, IB_MEMREG_IOC_MR_REREGISTER,
			      &cmd));
	self->rkey = cmd.out_rkey;
	peer_writes(_metadata, self, 1, 3);
	EXPECT_EQ(3, self->mem[PAGE]);
}

/*
 * Implicit MRs have no keys, nor have those with addresses that are not those
 * of the memory.
 */
TEST_F_TIMEOUT(paged, what_has_no_key_is_refused, 60)
{
	EXPECT_FAIL(EOPNOTSUPP, DEVICE_PAGING,
		    register_paged(self, 0, FOR_PEERS,
				   IB_MEMREG_MR_IMPLICIT));
	EXPECT_FAIL(EOPNOTSUPP, DEVICE_PAGING,
		    register_paged(self, (uintptr_t)self->mem + PAGE, FOR_PEERS,
				   IB_MEMREG_MR_IOVA));
	EXPECT_FAIL(EOPNOTSUPP, DEVICE_PAGING,
		    register_paged(self, 0, FOR_PEERS |
				   IB_MEMREG_ACCESS_ZERO_BASED, 0));
	EXPECT_EQ(0, register_paged(self, (uintptr_t)self->mem, FOR_PEERS,
				    IB_MEMREG_MR_IOVA));
}

/* Some pages are absent, some are not those that the peer has accessed. */
static void change_pages(struct __test_metadata *_metadata,
			 FIXTURE_DATA(paged) *self, unsigned int seed)
{
	pid_t child;

	fill(self->mem, LEN, seed);
	ASSERT_EQ(0, madvise(self->mem + 2 * PAGE, PAGE, MADV_DONTNEED));
	ASSERT_NE(MAP_FAILED, mmap(self->mem + 3 * PAGE, PAGE,
				   PROT_READ | PROT_WRITE, MAP_PRIVATE |
				   MAP_ANONYMOUS | MAP_FIXED, -1, 0));
	/* The child keeps the page, and the write makes another one. */
	child = fork();
	ASSERT_LE(0, child);
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pause();
	}
	memset(self->mem + 5 * PAGE, seed, PAGE);
	ASSERT_EQ(0, kill(child, SIGKILL));
	ASSERT_EQ(child, waitpid(child, NULL, 0));
}

/* The peer reads and writes ranges that begin and end anywhere. */
TEST_F_TIMEOUT(paged, I6_the_peer_reaches_every_byte_and_no_other, 60)
{
	static const struct {
		size_t at;
		size_t length;
	} ranges[] = {
		{ 1024, 8 }, { PAGE - 1, 2 }, { 5, 3 * PAGE },
		{ 2 * PAGE + 7, PAGE - 7 }, { 0, LEN }, { LEN - 1, 1 },
		{ PAGE + 1, 5 * PAGE },
	};
	static __u8 before[LEN];
	struct stock *s = self->stock;
	size_t i, at, length;

	for (i = 0; i < ARRAY_LEN(ranges); i++) {
		at = ranges[i].at;
		length = ranges[i].length;
		change_pages(_metadata, self, i);
		memset(s->mem, 0xa5, LEN);
		ASSERT_EQ(IBV_WC_SUCCESS,
			  stock_read(s, 0, length, (uintptr_t)self->mem + at,
				     self->rkey));
		EXPECT_EQ(0, memcmp(s->mem, self->mem + at, length));
		change_pages(_metadata, self, i + 50);
		memcpy(before, self->mem, LEN);
		fill(s->mem, LEN, i + 100);
		ASSERT_EQ(IBV_WC_SUCCESS,
			  stock_write(s, 0, length, (uintptr_t)self->mem + at,
				      self->rkey));
		memcpy(before + at, s->mem, length);
		EXPECT_EQ(0, memcmp(before, self->mem, LEN));
	}
}

TEST_HARNESS_MAIN
