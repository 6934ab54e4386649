// SPDX-License-Identifier: GPL-2.0-only
/*
 * Re-registration: after a call that succeeds the MR is wholly new, and after
 * one that fails wholly old (I8), as a stock peer sees it; no key outlives the
 * pages that it led to (I1); and pages that are kept are pinned and charged
 * once.
 *
 * time limit: 300
 * soak in parts: 2
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ends.h"
#include "fault.h"
#include "harness.h"
#include "mem.h"
#include "memreg.h"
#include "raw.h"
#include "state.h"
#include "stock.h"
#include "test.h"

#define READ_WRITE	(PROT_READ | PROT_WRITE)
#define TRANSLATION	IB_MEMREG_REREG_TRANSLATION
#define DOMAIN		IB_MEMREG_REREG_DOMAIN
#define ACCESS		IB_MEMREG_REREG_ACCESS

#define PAGES		16UL
#define LENGTH		(PAGES * PAGE)

/* Access flags before and after re-registration */
#define OLD_ACCESS	(LOCAL_WRITE | REMOTE_READ)
#define NEW_ACCESS	(LOCAL_WRITE | REMOTE_READ | REMOTE_WRITE)

/* Range of the memory before and after re-registration */
#define OLD_OFFSET	(1 * PAGE + 100)
#define OLD_LENGTH	(4 * PAGE)
#define NEW_OFFSET	(3 * PAGE + 7)
#define NEW_LENGTH	(6 * PAGE)

static int rereg(int fd, struct ib_memreg_mr_reregister *cmd)
{
	cmd->size = sizeof(*cmd);
	return raw_call(fd, IB_MEMREG_IOC_MR_REREGISTER, cmd);
}

FIXTURE(rereg) {
	struct link link;
	__u32 domains[2];
	uint8_t *mem;
	int memory;
	long others;	/* pages that the peer has pinned */
	struct ib_memreg_mr_register mr;
};

FIXTURE_VARIANT(rereg) {
	__u32 flags;
};

FIXTURE_VARIANT_ADD(rereg, pinned) {
	.flags = 0,
};

FIXTURE_VARIANT_ADD(rereg, memory_object) {
	.flags = IB_MEMREG_MR_FD,
};

/* Address in the MR's memory, or offset if that is a descriptor's */
static __u64 place(const FIXTURE_DATA(rereg) *self, __u64 offset)
{
	return self->mr.flags & IB_MEMREG_MR_FD ?
	       offset : (uintptr_t)self->mem + offset;
}

static int register_old(FIXTURE_DATA(rereg) *self, __u32 flags)
{
	self->mr = (struct ib_memreg_mr_register){
		.size = sizeof(self->mr),
		.flags = flags,
		.domain_id = self->domains[0],
		.access = OLD_ACCESS,
		.length = OLD_LENGTH,
	};
	if (flags & IB_MEMREG_MR_FD)
		self->mr.fd = self->memory;
	self->mr.addr = place(self, OLD_OFFSET);
	return raw_call(self->link.fd, IB_MEMREG_IOC_MR_REGISTER, &self->mr);
}

FIXTURE_SETUP(rereg)
{
	ASSERT_EQ(0, link_open(&self->link, LENGTH));
	self->others = vm_pin(0);
	self->domains[0] = self->link.domain;
	ASSERT_EQ(0, raw_domain(self->link.fd, &self->domains[1]));
	self->memory = raw_memory(self->link.fd, LENGTH, 0);
	ASSERT_LE(0, self->memory);
	self->mem = variant->flags & IB_MEMREG_MR_FD ?
		    mmap(NULL, LENGTH, READ_WRITE, MAP_SHARED, self->memory,
			 0) :
		    mem_alloc(LENGTH);
	ASSERT_NE(MAP_FAILED, (void *)self->mem);
	ASSERT_NE(NULL, self->mem);
	ASSERT_EQ(0, register_old(self, variant->flags));
}

FIXTURE_TEARDOWN(rereg)
{
	link_close(&self->link);
	EXPECT_EQ(0, close(self->memory));
	munmap(self->mem, LENGTH);
	EXPECT_EQ(0, vm_pin(0));
}

/* Connect to an endpoint of a domain, once the peer is disconnected. */
static void connect_to(struct __test_metadata *_metadata, struct link *link,
		       __u32 domain)
{
	struct ib_memreg_queues queues = {};

	link->domain = domain;
	ASSERT_EQ(0, link_up(link, &queues, true));
}

static void disconnect(struct __test_metadata *_metadata, struct link *link)
{
	stock_disconnect(&link->stock);
	ASSERT_EQ(0, raw_await(link->fd, IB_MEMREG_EVENT_DISCONNECTED, NULL));
	ASSERT_EQ(0, raw_destroy(link->fd, link->endpoint));
	link->endpoint = 0;
}

/*
 * Expect that the peer reaches exactly this range by the key, with exactly this
 * access.
 */
static void key_leads_to(struct __test_metadata *_metadata,
			 FIXTURE_DATA(rereg) *self, __u32 domain, __u64 iova,
			 __u32 rkey, __u32 access, size_t offset, size_t len)
{
	struct stock *s = &self->link.stock;

	fill(self->mem, LENGTH, 1);
	memset(s->mem, 0, LENGTH);
	connect_to(_metadata, &self->link, domain);
	ASSERT_EQ(IBV_WC_SUCCESS, stock_read(s, offset, len, iova, rkey));
	EXPECT_TRUE(filled(s->mem + offset, len, offset, 1));
	fill(s->mem, LENGTH, 2);
	EXPECT_EQ(access & REMOTE_WRITE ? IBV_WC_SUCCESS :
					  IBV_WC_REM_ACCESS_ERR,
		  stock_write(s, offset, len, iova, rkey));
	EXPECT_TRUE(filled(self->mem, offset, 0, 1));
	EXPECT_TRUE(filled(self->mem + offset, len, offset,
			   access & REMOTE_WRITE ? 2 : 1));
	EXPECT_TRUE(filled(self->mem + offset + len, LENGTH - offset - len,
			   offset + len, 1));
	disconnect(_metadata, &self->link);
}

static void key_is_dead(struct __test_metadata *_metadata,
			FIXTURE_DATA(rereg) *self, __u32 domain, __u64 iova,
			__u32 rkey)
{
	connect_to(_metadata, &self->link, domain);
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
		  stock_read(&self->link.stock, 0, 8, iova, rkey));
	disconnect(_metadata, &self->link);
}

/* The parameters of a change with these flags, to the new values above */
static struct ib_memreg_mr_reregister change(const FIXTURE_DATA(rereg) *self,
					     __u32 what)
{
	RAW(mr_reregister, cmd, .flags = what, .mr_id = self->mr.out_mr_id);

	if (what & DOMAIN)
		cmd.domain_id = self->domains[1];
	if (what & ACCESS)
		cmd.access = NEW_ACCESS;
	if (what & TRANSLATION) {
		cmd.mr_flags = self->mr.flags;
		cmd.addr = place(self, NEW_OFFSET);
		cmd.length = NEW_LENGTH;
		cmd.fd = self->mr.fd;
	}
	return cmd;
}

static unsigned long pages_of(unsigned long offset, unsigned long length)
{
	return (offset + length - 1) / PAGE - offset / PAGE + 1;
}

/* Pages that a change keeps */
static unsigned long kept_by(const FIXTURE_DATA(rereg) *self, __u32 what)
{
	if (self->mr.flags & IB_MEMREG_MR_FD)
		return 0;
	if (!(what & TRANSLATION))
		return pages_of(OLD_OFFSET, OLD_LENGTH);
	return pages_of(NEW_OFFSET, OLD_OFFSET + OLD_LENGTH - NEW_OFFSET);
}

static void check_query(struct __test_metadata *_metadata,
			FIXTURE_DATA(rereg) *self, __u32 what,
			const struct ib_memreg_mr_reregister *cmd)
{
	struct ib_memreg_segment segment = {};
	RAW(mr_query, query, .mr_id = cmd->mr_id, .count = 1,
	    .segments = (uintptr_t)&segment);

	ASSERT_EQ(0, raw_call(self->link.fd, IB_MEMREG_IOC_MR_QUERY, &query));
	EXPECT_EQ(IB_MEMREG_MR_LIVE, query.out_state);
	EXPECT_EQ(self->domains[!!(what & DOMAIN)], query.out_domain_id);
	EXPECT_EQ(what & ACCESS ? NEW_ACCESS : OLD_ACCESS, query.out_access);
	EXPECT_EQ(what & TRANSLATION ? NEW_LENGTH : OLD_LENGTH,
		  query.out_length);
	EXPECT_EQ(place(self, what & TRANSLATION ? NEW_OFFSET : OLD_OFFSET),
		  query.out_addr);
	EXPECT_EQ(query.out_iova, cmd->iova);
	EXPECT_EQ(segment.rkey, cmd->out_rkey);
	EXPECT_EQ(segment.lkey, cmd->out_lkey);
	EXPECT_EQ(1, query.count);
	EXPECT_EQ(0, query.out_generation);
}

static void change_and_check(struct __test_metadata *_metadata,
			     FIXTURE_DATA(rereg) *self, __u32 what)
{
	struct ib_memreg_mr_reregister cmd = change(self, what);
	size_t offset = what & TRANSLATION ? NEW_OFFSET : OLD_OFFSET;
	size_t length = what & TRANSLATION ? NEW_LENGTH : OLD_LENGTH;
	bool charged = !(self->mr.flags & IB_MEMREG_MR_FD);

	ASSERT_EQ(0, rereg(self->link.fd, &cmd));
	EXPECT_NE(self->mr.out_rkey, cmd.out_rkey);
	EXPECT_EQ(kept_by(self, what), cmd.out_kept);
	EXPECT_EQ(self->others + (charged ? (long)pages_of(offset, length) : 0),
		  vm_pin(0));
	check_query(_metadata, self, what, &cmd);
	key_leads_to(_metadata, self, self->domains[!!(what & DOMAIN)],
		     cmd.iova, cmd.out_rkey,
		     what & ACCESS ? NEW_ACCESS : OLD_ACCESS, offset, length);
	key_is_dead(_metadata, self, self->domains[0], self->mr.iova,
		    self->mr.out_rkey);
}

TEST_F_TIMEOUT(rereg, I8_every_change_is_whole, 240)
{
	__u32 what;

	for (what = 1; what < 8 && !_metadata->exit_code; what++) {
		change_and_check(_metadata, self, what);
		ASSERT_EQ(0, raw_destroy(self->link.fd, self->mr.out_mr_id));
		EXPECT_EQ(self->others, vm_pin(0));
		ASSERT_EQ(0, register_old(self, variant->flags));
	}
}

/*
 * Expect that the call has changed nothing: MR_QUERY reports the old MR, and
 * the peer reads by the old key.
 */
static void is_old(struct __test_metadata *_metadata, FIXTURE_DATA(rereg) *self)
{
	struct ib_memreg_segment segment = {};
	RAW(mr_query, query, .mr_id = self->mr.out_mr_id, .count = 1,
	    .segments = (uintptr_t)&segment);
	struct stock *s = &self->link.stock;

	ASSERT_EQ(0, raw_call(self->link.fd, IB_MEMREG_IOC_MR_QUERY, &query));
	EXPECT_EQ(IB_MEMREG_MR_LIVE, query.out_state);
	EXPECT_EQ(self->domains[0], query.out_domain_id);
	EXPECT_EQ(OLD_ACCESS, query.out_access);
	EXPECT_EQ(OLD_LENGTH, query.out_length);
	EXPECT_EQ(self->mr.iova, query.out_iova);
	EXPECT_EQ(self->mr.out_rkey, segment.rkey);
	memset(s->mem, 0, OLD_LENGTH);
	ASSERT_EQ(IBV_WC_SUCCESS, stock_read(s, 0, OLD_LENGTH, self->mr.iova,
					     self->mr.out_rkey));
	EXPECT_TRUE(filled(s->mem, OLD_LENGTH, OLD_OFFSET, 1));
}

/*
 * Expect that the new key reaches the new range, and the old key nothing. Then
 * restore the MR.
 */
static void is_new(struct __test_metadata *_metadata, FIXTURE_DATA(rereg) *self,
		   __u32 what, const struct ib_memreg_mr_reregister *cmd)
{
	disconnect(_metadata, &self->link);
	check_query(_metadata, self, what, cmd);
	key_leads_to(_metadata, self, self->domains[!!(what & DOMAIN)],
		     cmd->iova, cmd->out_rkey,
		     what & ACCESS ? NEW_ACCESS : OLD_ACCESS,
		     what & TRANSLATION ? NEW_OFFSET : OLD_OFFSET,
		     what & TRANSLATION ? NEW_LENGTH : OLD_LENGTH);
	key_is_dead(_metadata, self, self->domains[0], self->mr.iova,
		    self->mr.out_rkey);
	ASSERT_EQ(0, raw_destroy(self->link.fd, self->mr.out_mr_id));
	ASSERT_EQ(0, register_old(self, self->mr.flags));
	fill(self->mem, LENGTH, 1);
	connect_to(_metadata, &self->link, self->domains[0]);
}

/*
 * Re-register with a fault injected at each allocation and work request, one at
 * a time.
 */
static void change_with_faults(struct __test_metadata *_metadata,
			       FIXTURE_DATA(rereg) *self, __u32 what)
{
	unsigned int nth, left, failed = 0;
	struct ib_memreg_mr_reregister cmd;
	bool hit = true;
	int ret;

	for (nth = 1 + sweep_first(SWEEP_K); hit && !_metadata->exit_code;
	     nth += sweep_stride(SWEEP_K)) {
		cmd = change(self, what);
		fail_nth_arm(nth);
		ret = rereg(self->link.fd, &cmd);
		hit = fail_nth_disarm(&left);
		failed += !!ret;
		EXPECT_TRUE(hit || !ret);
		if (ret)
			is_old(_metadata, self);
		else
			is_new(_metadata, self, what, &cmd);
	}
	TH_LOG("change %u: %u faults", what, failed);
	EXPECT_LT(0, failed);
}

TEST_F_TIMEOUT(rereg, I8_after_any_fault_the_peer_sees_old_or_new, SOAK_S)
{
	__u32 what;

	if (!fault_injection())
		SKIP(return, "this kernel can't inject faults");
	fill(self->mem, LENGTH, 1);
	connect_to(_metadata, &self->link, self->domains[0]);
	for (what = 1; what < 8 && !_metadata->exit_code; what++)
		change_with_faults(_metadata, self, what);
	disconnect(_metadata, &self->link);
}

/*
 * Each invalid field, memory or state is refused, and the old key works
 * afterwards.
 */
TEST_F(rereg, I8_what_is_refused_changes_nothing)
{
	struct ib_memreg_mr_reregister cmd;
	struct state before;

	ASSERT_EQ(0, state_get(&before));
#define TRY(_what, _field, _value)					\
	({								\
		cmd = change(self, _what);				\
		cmd._field = (_value);					\
		rereg(self->link.fd, &cmd);				\
	})
	EXPECT_FAIL(EOPNOTSUPP, FLAGS, TRY(ACCESS, flags, 8));
	EXPECT_FAIL(EINVAL, FLAGS, TRY(0, flags, 0));
	EXPECT_FAIL(EINVAL, RESERVED, TRY(ACCESS, reserved, 1));
	EXPECT_FAIL(EINVAL, RESERVED, TRY(ACCESS, addr, PAGE));
	EXPECT_FAIL(EINVAL, RESERVED, TRY(ACCESS, length, PAGE));
	EXPECT_FAIL(EINVAL, RESERVED, TRY(ACCESS, fd, 1));
	EXPECT_FAIL(EINVAL, RESERVED, TRY(ACCESS, mr_flags, 1));
	EXPECT_FAIL(EINVAL, RESERVED,
		    TRY(ACCESS, domain_id, self->domains[0]));
	EXPECT_FAIL(EINVAL, RESERVED, TRY(DOMAIN, access, LOCAL_WRITE));
	EXPECT_FAIL(ENOENT, ID, TRY(ACCESS, mr_id, 0));
	EXPECT_FAIL(ENOENT, ID, TRY(ACCESS, mr_id, self->domains[0]));
	EXPECT_FAIL(ENOENT, ID, TRY(DOMAIN, domain_id, 0));
	EXPECT_FAIL(ENOENT, ID, TRY(DOMAIN, domain_id, self->mr.out_mr_id));
	EXPECT_FAIL(EINVAL, REMOTE_WRITE, TRY(ACCESS, access, REMOTE_WRITE));
	EXPECT_FAIL(EINVAL, ACCESS, TRY(ACCESS, access, 1U << 31));
	EXPECT_FAIL(EINVAL, ZERO_LENGTH, TRY(TRANSLATION, length, 0));
	EXPECT_FAIL(EOVERFLOW, WRAPS, TRY(TRANSLATION, addr, ~0ULL));
	EXPECT_FAIL(EOPNOTSUPP, FLAGS, TRY(TRANSLATION, mr_flags, 1U << 20));
	EXPECT_FAIL(EBADF, FD, (cmd = change(self, TRANSLATION),
				cmd.mr_flags = IB_MEMREG_MR_FD, cmd.fd = -1,
				rereg(self->link.fd, &cmd)));
	EXPECT_FAIL(EINVAL, RANGE, (cmd = change(self, TRANSLATION),
				    cmd.mr_flags = IB_MEMREG_MR_FD,
				    cmd.fd = self->memory, cmd.addr = LENGTH,
				    rereg(self->link.fd, &cmd)));
#undef TRY
	EXPECT_TRUE(state_same(&before));
	state_free(&before);
	key_leads_to(_metadata, self, self->domains[0], self->mr.iova,
		     self->mr.out_rkey, OLD_ACCESS, OLD_OFFSET, OLD_LENGTH);
}

/*
 * Memory of the caller
 */

FIXTURE(own) {
	int fd;
	__u32 domain;
	uint8_t *mem;
};

FIXTURE_SETUP(own)
{
	self->fd = raw_open_bound();
	ASSERT_LE(0, self->fd);
	ASSERT_EQ(0, raw_domain(self->fd, &self->domain));
	self->mem = mem_alloc(LENGTH);
	ASSERT_NE(NULL, self->mem);
}

FIXTURE_TEARDOWN(own)
{
	EXPECT_EQ(0, close(self->fd));
	mem_free(self->mem, LENGTH);
	EXPECT_EQ(0, vm_pin(0));
}

static int move(FIXTURE_DATA(own) *self, __u32 mr, size_t first, size_t pages,
		__u64 *kept)
{
	RAW(mr_reregister, cmd, .flags = TRANSLATION, .mr_id = mr,
	    .addr = (uintptr_t)self->mem + first * PAGE,
	    .length = pages * PAGE);
	int ret = rereg(self->fd, &cmd);

	*kept = cmd.out_kept;
	return ret;
}

/*
 * A range that grows, shrinks or moves pins its new pages and unpins those that
 * it has left.
 */
TEST_F(own, pages_that_are_kept_are_pinned_once)
{
	static const struct {
		size_t first, pages, kept;
	} steps[] = {
		{ 4, 4, 0 }, { 4, 5, 4 }, { 3, 6, 5 }, { 0, 16, 6 },
		{ 8, 8, 8 }, { 0, 9, 1 }, { 0, 8, 8 }, { 8, 8, 0 },
		{ 8, 8, 8 }, { 15, 1, 1 },
	};
	__u64 kept, pinned[2], unpinned[2];
	unsigned int i;
	__u32 mr;

	ASSERT_EQ(0, raw_register(self->fd, self->domain, self->mem, PAGE,
				  LOCAL_WRITE | REMOTE_READ, &mr));
	for (i = 0; i < ARRAY_LEN(steps); i++) {
		raw_stat(self->fd, IB_MEMREG_STAT_PAGES_PINNED, &pinned[0]);
		raw_stat(self->fd, IB_MEMREG_STAT_PAGES_UNPINNED,
			 &unpinned[0]);
		ASSERT_EQ(0, move(self, mr, steps[i].first, steps[i].pages,
				  &kept));
		EXPECT_EQ(steps[i].kept, kept);
		EXPECT_EQ((long)steps[i].pages, vm_pin(0));
		raw_stat(self->fd, IB_MEMREG_STAT_PAGES_PINNED, &pinned[1]);
		raw_stat(self->fd, IB_MEMREG_STAT_PAGES_UNPINNED,
			 &unpinned[1]);
		EXPECT_EQ(steps[i].pages - kept, pinned[1] - pinned[0]);
		EXPECT_EQ((i ? steps[i - 1].pages : 1) - kept,
			  unpinned[1] - unpinned[0]);
	}
	EXPECT_EQ(0, raw_destroy(self->fd, mr));
}

/* Pages are kept only if the mapping has them still. */
TEST_F(own, a_stale_mr_is_healed_by_other_memory)
{
	RAW(mr_reregister, access, .flags = ACCESS, .access = LOCAL_WRITE);
	RAW(mr_query, query);
	unsigned int i;
	__u64 kept;

	ASSERT_EQ(0, raw_register(self->fd, self->domain, self->mem, 4 * PAGE,
				  LOCAL_WRITE | REMOTE_READ, &query.mr_id));
	access.mr_id = query.mr_id;
	for (i = 1; i < 4; i++) {
		query.count = 0;
		ASSERT_EQ(0, madvise(self->mem, PAGE, MADV_DONTNEED));
		EXPECT_FAIL(ESTALE, STALE, rereg(self->fd, &access));
		ASSERT_EQ(0, raw_call(self->fd, IB_MEMREG_IOC_MR_QUERY,
				      &query));
		EXPECT_EQ(IB_MEMREG_MR_STALE, query.out_state);
		ASSERT_EQ(0, move(self, query.mr_id, 0, 8, &kept));
		EXPECT_EQ(0, kept);
		query.count = 0;
		ASSERT_EQ(0, raw_call(self->fd, IB_MEMREG_IOC_MR_QUERY,
				      &query));
		EXPECT_EQ(IB_MEMREG_MR_LIVE, query.out_state);
		EXPECT_EQ(i, query.out_generation);
	}
	EXPECT_EQ(0, raw_destroy(self->fd, query.mr_id));
}

/* Pages that are pinned only for reading must not be given to writers. */
TEST_F(own, pages_to_be_written_are_pinned_anew)
{
	RAW(mr_reregister, cmd, .flags = ACCESS,
	    .access = LOCAL_WRITE | REMOTE_WRITE);

	ASSERT_EQ(0, raw_register(self->fd, self->domain, self->mem, LENGTH,
				  REMOTE_READ, &cmd.mr_id));
	ASSERT_EQ(0, rereg(self->fd, &cmd));
	EXPECT_EQ(0, cmd.out_kept);
	cmd.access = REMOTE_READ;
	ASSERT_EQ(0, rereg(self->fd, &cmd));
	EXPECT_EQ(PAGES, cmd.out_kept);
	IN_CHILD {
		cmd.access = 0;
		EXPECT_EQ(0, rereg(self->fd, &cmd));
		EXPECT_EQ(0, cmd.out_rkey);
	}
	EXPECT_EQ(0, raw_destroy(self->fd, cmd.mr_id));
	ASSERT_EQ(0, mprotect(self->mem, LENGTH, PROT_READ));
	ASSERT_EQ(0, raw_register(self->fd, self->domain, self->mem, LENGTH,
				  REMOTE_READ, &cmd.mr_id));
	cmd.access = LOCAL_WRITE;
	EXPECT_FAIL(EFAULT, NOT_WRITABLE, rereg(self->fd, &cmd));
	EXPECT_EQ(0, raw_destroy(self->fd, cmd.mr_id));
}

TEST_F(own, another_process_can_pin_none_of_its_own_for_it)
{
	RAW(mr_reregister, cmd, .flags = ACCESS, .access = LOCAL_WRITE);

	ASSERT_EQ(0, raw_register(self->fd, self->domain, self->mem, LENGTH,
				  REMOTE_READ, &cmd.mr_id));
	IN_CHILD {
		EXPECT_FAIL(EFAULT, PROCESS, rereg(self->fd, &cmd));
	}
	EXPECT_EQ((long)PAGES, vm_pin(0));
	EXPECT_EQ(0, raw_destroy(self->fd, cmd.mr_id));
}

TEST_F(own, an_mr_in_use_stays_as_it_is)
{
	RAW(mr_reregister, cmd, .flags = ACCESS, .access = LOCAL_WRITE);
	RAW(pool_create, pool, .domain_id = self->domain, .count = 2,
	    .access = REMOTE_READ, .addr = (uintptr_t)self->mem,
	    .buffer_size = PAGE);
	struct ib_memreg_bind bind = { .length = PAGE,
				       .access = REMOTE_READ };

	ASSERT_EQ(0, raw_register(self->fd, self->domain, self->mem, LENGTH,
				  LOCAL_WRITE | MW_BIND, &cmd.mr_id));
	ASSERT_EQ(0, raw_windows(self->fd, self->domain, PAGE,
				 &bind.window_id, 1));
	bind.mr_id = cmd.mr_id;
	ASSERT_EQ(0, raw_bind(self->fd, self->domain, &bind, 1));
	EXPECT_FAIL(EBUSY, WINDOWS_BOUND, rereg(self->fd, &cmd));
	ASSERT_EQ(0, raw_revoke(self->fd, self->domain, &bind.window_id, 1));
	EXPECT_EQ(0, rereg(self->fd, &cmd));
	EXPECT_EQ(0, raw_destroy(self->fd, cmd.mr_id));

	ASSERT_EQ(0, raw_call(self->fd, IB_MEMREG_IOC_POOL_CREATE, &pool));
	EXPECT_EQ(0, close(pool.out_table_fd));
	cmd.mr_id = pool.out_mr_id;
	EXPECT_FAIL(EINVAL, POOL, rereg(self->fd, &cmd));
	EXPECT_EQ(0, raw_destroy(self->fd, cmd.mr_id));
}

TEST_F(own, the_library_changes_its_own_copy_with_it)
{
	struct memreg_rereg_attr attr = {
		.what = TRANSLATION | ACCESS,
		.access = LOCAL_WRITE | REMOTE_READ,
		.addr = self->mem + PAGE,
		.length = 2 * PAGE,
		.flags = IB_MEMREG_MR_IOVA,
		.iova = 0x10000,
	};
	struct memreg_mr mr, old;
	struct memreg *m;
	uint32_t domain;
	uint64_t kept;

	ASSERT_EQ(0, memreg_open(test_device(), &m));
	ASSERT_EQ(0, memreg_domain_create(m, 0, &domain));
	ASSERT_EQ(0, memreg_mr_register(m, domain, self->mem, 2 * PAGE,
					LOCAL_WRITE, 0, &mr));
	old = mr;
	ASSERT_EQ(0, memreg_mr_reregister(m, &attr, &mr, &kept));
	EXPECT_EQ(1, kept);
	EXPECT_EQ(old.id, mr.id);
	EXPECT_EQ(self->mem + PAGE, mr.addr);
	EXPECT_EQ(0x10000, mr.iova);
	EXPECT_EQ(1, mr.segments);
	EXPECT_NE(0, mr.rkey);
	attr.what = 0;
	EXPECT_EQ(-EINVAL, memreg_mr_reregister(m, &attr, &mr, NULL));
	EXPECT_STREQ("mr_reregister: nothing is named that is to change (EINVAL)",
		     memreg_reason());
	memreg_close(m);
}

/*
 * Races
 */

#define HALF	(PAGES / 2)

struct race {
	int fd;
	__u32 domain;
	__u32 mr;
	uint8_t *mem;
	_Atomic uint64_t key;	/* offset << 32 | rkey */
	_Atomic uint64_t old;	/* the one before */
	_Atomic bool stop;
	_Atomic unsigned int bad;
};

/* Re-register the MR on one half of the memory and the other in turn. */
static void *change_in_a_loop(void *arg)
{
	struct race *r = arg;
	unsigned int turn;
	int ret;

	for (turn = 0; !r->stop; turn++) {
		size_t offset = (turn % 2) * HALF * PAGE;
		RAW(mr_reregister, cmd, .flags = TRANSLATION, .mr_id = r->mr,
		    .addr = (uintptr_t)r->mem + offset,
		    .length = HALF * PAGE);

		ret = rereg(r->fd, &cmd);
		/* The mapping changes all the time. */
		if (ret && ret != -EAGAIN && ret != -EBUSY && ret != -EFAULT)
			r->bad++;
		if (ret)
			continue;
		r->old = r->key;
		r->key = (uint64_t)offset << 32 | cmd.out_rkey;
	}
	return NULL;
}

/* Take a page away and give another one in its place. */
static void *unmap_in_a_loop(void *arg)
{
	struct race *r = arg;
	unsigned int turn;
	uint8_t *page;

	for (turn = 0; !r->stop; turn++) {
		page = r->mem + turn % PAGES * PAGE;
		if (mmap(page, PAGE, READ_WRITE, MAP_PRIVATE | MAP_ANONYMOUS |
			 MAP_FIXED | MAP_POPULATE, -1, 0) != page)
			r->bad++;
		usleep(100);
	}
	return NULL;
}

FIXTURE(race) {
	struct link link;
	uint8_t *all;		/* a page, the memory, and another page */
	struct race race;
};

FIXTURE_SETUP(race)
{
	struct race *race = &self->race;

	ASSERT_EQ(0, link_open(&self->link, PAGE));
	self->all = mem_alloc(LENGTH + 2 * PAGE);
	ASSERT_NE(NULL, self->all);
	fill(self->all, LENGTH + 2 * PAGE, 3);
	race->fd = self->link.fd;
	race->domain = self->link.domain;
	race->mem = self->all + PAGE;
	memset(race->mem, 0, LENGTH);
	RAW(mr_register, cmd, .domain_id = race->domain,
	    .access = NEW_ACCESS, .addr = (uintptr_t)race->mem,
	    .length = HALF * PAGE);
	ASSERT_EQ(0, raw_call(race->fd, IB_MEMREG_IOC_MR_REGISTER, &cmd));
	race->mr = cmd.out_mr_id;
	race->key = cmd.out_rkey;
	race->old = cmd.out_rkey;
}

FIXTURE_TEARDOWN(race)
{
	EXPECT_EQ(0, raw_destroy(self->race.fd, self->race.mr));
	link_close(&self->link);
	mem_free(self->all, LENGTH + 2 * PAGE);
	EXPECT_EQ(0, vm_pin(0));
}

/*
 * Write by the newest key that the other thread has announced, or by the one
 * before.
 */
static bool writes_by(FIXTURE_DATA(race) *self, _Atomic uint64_t *key)
{
	uint64_t now = *key;

	return stock_write(&self->link.stock, 0, 64,
			   (uintptr_t)self->race.mem + (now >> 32),
			   (uint32_t)now) == IBV_WC_SUCCESS;
}

/*
 * Write until a write fails, 50 times at most. Counts the writes that
 * succeeded.
 */
static void write_for_a_while(FIXTURE_DATA(race) *self, bool old,
			      unsigned int *done)
{
	unsigned int n;

	for (n = 0; n < 50; n++) {
		if (!writes_by(self, old ? &self->race.old : &self->race.key))
			break;
		done[old]++;
	}
}

/*
 * The peer writes by the new key and by the old one in turn; either write may
 * fail, but the new key has to work at times. No byte before or behind the
 * memory changes, and inside only the first bytes of a half.
 */
TEST_F_TIMEOUT(race, I1_keys_that_change_lead_nowhere_else, SOAK_S)
{
	unsigned int i, rounds = times(20, 2000), done[2] = {};
	struct race *race = &self->race;
	pthread_t changer, unmapper;

	memset(self->link.stock.mem, 0xee, 64);
	ASSERT_EQ(0, pthread_create(&changer, NULL, change_in_a_loop, race));
	ASSERT_EQ(0, pthread_create(&unmapper, NULL, unmap_in_a_loop, race));
	for (i = 0; (i < rounds || !done[0]) && !_metadata->exit_code; i++) {
		connect_to(_metadata, &self->link, race->domain);
		write_for_a_while(self, i % 2, done);
		disconnect(_metadata, &self->link);
	}
	race->stop = true;
	ASSERT_EQ(0, pthread_join(changer, NULL));
	ASSERT_EQ(0, pthread_join(unmapper, NULL));
	ksft_print_msg("%u writes by the new key, %u by the old one\n",
		       done[0], done[1]);
	EXPECT_EQ(0, race->bad);
	EXPECT_TRUE(filled(self->all, PAGE, 0, 3));
	EXPECT_TRUE(filled(self->all + PAGE + LENGTH, PAGE, PAGE + LENGTH, 3));
	for (i = 0; i < LENGTH; i++)
		if (i % (HALF * PAGE) >= 64)
			ASSERT_EQ(0, race->mem[i]);
}

TEST_HARNESS_MAIN
