// SPDX-License-Identifier: GPL-2.0-only
/*
 * The form of the ABI: sizes, unknown numbers and flags, reserved fields, bad
 * pointers, ids of the wrong type, bounds. Each call that fails has the
 * documented errno and reason, and has changed nothing (I8). It is built as a
 * 32-bit program, too.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/major.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "calls.h"
#include "harness.h"
#include "mem.h"
#include "raw.h"
#include "state.h"
#include "test.h"

/* The layout is the same for 32-bit and 64-bit programs. */
_Static_assert(sizeof(struct ib_memreg_device_bind) == 80, "layout");
_Static_assert(sizeof(struct ib_memreg_cap_entry) == 16, "layout");
_Static_assert(sizeof(struct ib_memreg_device_query) == 96, "layout");
_Static_assert(sizeof(struct ib_memreg_destroy) == 16, "layout");
_Static_assert(sizeof(struct ib_memreg_domain_create) == 24, "layout");
_Static_assert(sizeof(struct ib_memreg_domain_query) == 32, "layout");
_Static_assert(sizeof(struct ib_memreg_demand_stats) == 56, "layout");
_Static_assert(sizeof(struct ib_memreg_mr_register) == 80, "layout");
_Static_assert(sizeof(struct ib_memreg_segment) == 24, "layout");
_Static_assert(sizeof(struct ib_memreg_mr_query) == 280, "layout");
_Static_assert(sizeof(struct ib_memreg_mr_advise) == 32, "layout");
_Static_assert(sizeof(struct ib_memreg_range) == 40, "layout");
_Static_assert(sizeof(struct ib_memreg_mr_reregister) == 80, "layout");
_Static_assert(sizeof(struct ib_memreg_mr_compose) == 72, "layout");
_Static_assert(sizeof(struct ib_memreg_piece) == 72, "layout");
_Static_assert(sizeof(struct ib_memreg_window_alloc) == 40, "layout");
_Static_assert(sizeof(struct ib_memreg_bind) == 48, "layout");
_Static_assert(sizeof(struct ib_memreg_window_bind) == 32, "layout");
_Static_assert(sizeof(struct ib_memreg_window_revoke) == 32, "layout");
_Static_assert(sizeof(struct ib_memreg_addr) == 24, "layout");
_Static_assert(sizeof(struct ib_memreg_listener_create) == 48, "layout");
_Static_assert(sizeof(struct ib_memreg_endpoint_accept) == 32, "layout");
_Static_assert(sizeof(struct ib_memreg_endpoint_reject) == 32, "layout");
_Static_assert(sizeof(struct ib_memreg_endpoint_connect) == 128, "layout");
_Static_assert(sizeof(struct ib_memreg_endpoint_disconnect) == 16, "layout");
_Static_assert(sizeof(struct ib_memreg_event) == 256, "layout");
_Static_assert(sizeof(struct ib_memreg_object) == 240, "layout");
_Static_assert(sizeof(struct ib_memreg_list) == 40, "layout");
_Static_assert(sizeof(struct ib_memreg_stat_entry) == 16, "layout");
_Static_assert(sizeof(struct ib_memreg_device_stat) == 24, "layout");
_Static_assert(sizeof(struct ib_memreg_ring) == 128, "layout");
_Static_assert(sizeof(struct ib_memreg_cqe) == 64, "layout");
_Static_assert(sizeof(struct ib_memreg_ring_create) == 40, "layout");
_Static_assert(sizeof(struct ib_memreg_ring_wait) == 32, "layout");
_Static_assert(sizeof(struct ib_memreg_srq_create) == 32, "layout");
_Static_assert(sizeof(struct ib_memreg_queues) == 40, "layout");
_Static_assert(sizeof(struct ib_memreg_endpoint_setup) == 64, "layout");
_Static_assert(sizeof(struct ib_memreg_sge) == 16, "layout");
_Static_assert(sizeof(struct ib_memreg_wr) == 96, "layout");
_Static_assert(sizeof(struct ib_memreg_submit) == 32, "layout");
_Static_assert(sizeof(struct ib_memreg_set_user_data) == 24, "layout");
_Static_assert(sizeof(struct ib_memreg_pool_table) == 64, "layout");
_Static_assert(sizeof(struct ib_memreg_pool_entry) == 16, "layout");
_Static_assert(sizeof(struct ib_memreg_pool_create) == 80, "layout");
_Static_assert(sizeof(struct ib_memreg_pool_recycle) == 32, "layout");
_Static_assert(sizeof(struct ib_memreg_memory_create) == 40, "layout");
_Static_assert(sizeof(struct ib_memreg_memory_dup) == 24, "layout");
_Static_assert(sizeof(struct ib_memreg_export_create) == 64, "layout");
_Static_assert(sizeof(struct ib_memreg_export_revoke) == 32, "layout");
_Static_assert(sizeof(struct ib_memreg_status_table) == 128, "layout");
_Static_assert(sizeof(struct ib_memreg_status_slot) == 16, "layout");
_Static_assert(sizeof(struct ib_memreg_change) == 16, "layout");
_Static_assert(sizeof(struct ib_memreg_status_create) == 40, "layout");
_Static_assert(sizeof(struct ib_memreg_monitor) == 40, "layout");
_Static_assert(sizeof(struct ib_memreg_monitor_create) == 32, "layout");
_Static_assert(sizeof(struct ib_memreg_monitor_destroy) == 32, "layout");

/*
 * Iterate over the calls of ioctl(2), up to the first for which an expectation
 * fails.
 */
#define for_each_call(call)						\
	for (call = calls; call < calls + ncalls && !_metadata->exit_code; \
	     call++)							\
		if (call->on != CALL_BY_URING)

FIXTURE(uapi) {
	int fd;
	int ring;
	__u32 domain;
	__u32 mr;
	__u32 window;
	__u32 listener;
	char *memory;
	/* Two pages for arguments, and the unmapped page behind them */
	char *arg;
	char *hole;
	struct state before;
	/* Name of the call under test, for messages */
	const char *doing;
};

static int listen_any(int fd, __u32 *listener)
{
	RAW(listener_create, cmd, .backlog = 4, .addr = { .family = AF_INET });
	int ret = raw_call(fd, IB_MEMREG_IOC_LISTENER_CREATE, &cmd);

	*listener = cmd.out_listener_id;
	return ret;
}

/* What a call is made on */
static int fd_of(FIXTURE_DATA(uapi) *self, const struct call *call)
{
	return call->on == CALL_ON_RING ? self->ring : self->fd;
}

static int try(FIXTURE_DATA(uapi) *self, const struct call *call,
	       struct raw_head *head)
{
	return raw_call(fd_of(self, call), call->num, head);
}

FIXTURE_SETUP(uapi)
{
	RAW(ring_create, ring, .entries = 4, .entry_size = 64, .eventfd = -1);

	self->fd = raw_open_bound();
	ASSERT_LE(0, self->fd);
	ASSERT_EQ(0, raw_call(self->fd, IB_MEMREG_IOC_RING_CREATE, &ring));
	self->ring = ring.out_fd;
	self->memory = mem_alloc(16 * PAGE);
	self->arg = mem_alloc(3 * PAGE);
	ASSERT_NE(NULL, self->memory);
	ASSERT_NE(NULL, self->arg);
	self->hole = self->arg + 2 * PAGE;
	ASSERT_EQ(0, munmap(self->hole, PAGE));
	ASSERT_EQ(0, raw_domain(self->fd, &self->domain));
	ASSERT_EQ(0, raw_register(self->fd, self->domain, self->memory,
				  16 * PAGE, LOCAL_WRITE | MW_BIND,
				  &self->mr));
	ASSERT_EQ(0, raw_windows(self->fd, self->domain, 8 * PAGE,
				 &self->window, 1));
	ASSERT_EQ(0, listen_any(self->fd, &self->listener));
	ASSERT_EQ(0, state_get(&self->before));
}

FIXTURE_TEARDOWN(uapi)
{
	if (_metadata->exit_code && self->doing)
		TH_LOG("the call was %s", self->doing);
	EXPECT_TRUE(state_same(&self->before));
	state_free(&self->before);
	EXPECT_EQ(0, close(self->ring));
	EXPECT_EQ(0, close(self->fd));
	EXPECT_EQ(0, vm_pin(0));
}

/* A zeroed argument of @size bytes, up to the unmapped page */
static struct raw_head *arg_at_end(FIXTURE_DATA(uapi) *self, __u32 size)
{
	struct raw_head *head = (void *)(self->hole - size);

	memset(self->arg, 0, 2 * PAGE);
	head->size = size;
	return head;
}

/*
 * A flag that no call knows. Each call checks its size first, and then its
 * flags.
 */
#define BAD_FLAG	(1U << 31)

TEST_F(uapi, cmd_length_smaller_is_EINVAL)
{
	const struct call *call;
	struct raw_head *head;

	for_each_call(call) {
		self->doing = call->name;
		head = arg_at_end(self, call->size);
		head->size = (call->first ?: call->size) - 1;
		EXPECT_FAIL(EINVAL, SIZE, try(self, call, head));
		head->size = 0;
		head->out_reason = 77;
		EXPECT_EQ(-EINVAL, try(self, call, head));
		EXPECT_EQ(77, head->out_reason);
		head->size = 8;
		EXPECT_FAIL(EINVAL, SIZE, try(self, call, head));
	}
}

/* Fields that the first release did not have count as 0. */
TEST_F(uapi, cmd_length_of_the_first_release_works)
{
	const struct call *call;
	struct raw_head *head;

	for_each_call(call) {
		self->doing = call->name;
		head = arg_at_end(self, call->first ?: call->size);
		head->flags = BAD_FLAG;
		EXPECT_FAIL(EOPNOTSUPP, FLAGS, try(self, call, head));
	}
}

TEST_F(uapi, cmd_length_larger_needs_zeros)
{
	const struct call *call;
	struct raw_head *head;
	char *tail;

	for_each_call(call) {
		self->doing = call->name;
		head = arg_at_end(self, call->size + 9);
		head->flags = BAD_FLAG;
		EXPECT_FAIL(EOPNOTSUPP, FLAGS, try(self, call, head));
		for (tail = self->hole - 9; tail < self->hole; tail++) {
			*tail = 1;
			EXPECT_FAIL(E2BIG, NONE, try(self, call, head));
			*tail = 0;
		}
		head->size = IB_MEMREG_SIZE_MAX + 1;
		EXPECT_FAIL(E2BIG, NONE, try(self, call, head));
		head->size = ~0U;
		EXPECT_FAIL(E2BIG, NONE, try(self, call, head));
	}
}

TEST_F(uapi, cmd_length_larger_works)
{
	struct ib_memreg_device_query *query;

	query = (void *)arg_at_end(self, IB_MEMREG_SIZE_MAX);
	ASSERT_EQ(0, raw_call(self->fd, IB_MEMREG_IOC_DEVICE_QUERY, query));
	EXPECT_STREQ(test_device(), query->out_name);
	EXPECT_EQ(IB_MEMREG_SIZE_MAX, query->size);
}

TEST_F(uapi, argument_not_mapped_is_EFAULT)
{
	const struct call *call;
	struct raw_head *head;

	for_each_call(call) {
		self->doing = call->name;
		EXPECT_EQ(-1, ioctl(fd_of(self, call), call->num, NULL));
		EXPECT_EQ(EFAULT, errno);
		EXPECT_EQ(-1, ioctl(fd_of(self, call), call->num, self->hole));
		EXPECT_EQ(EFAULT, errno);
		head = arg_at_end(self, call->size);
		head->size = call->size + 1;
		EXPECT_FAIL(EFAULT, NONE, try(self, call, head));
		head->size = IB_MEMREG_SIZE_MAX;
		EXPECT_FAIL(EFAULT, NONE, try(self, call, head));
	}
}

/* Try all numbers on a descriptor: those that are none of its calls. */
static void try_numbers(struct __test_metadata *_metadata, int fd,
			enum call_on on, struct raw_head *head)
{
	const struct call *call;
	unsigned long num;
	unsigned int nr;

	for (nr = 0; nr < CALL_NRS; nr++) {
		num = _IO(IB_MEMREG_IOC_MAGIC, nr);
		call = call_of(num);
		if (!call || call->on != on)
			EXPECT_EQ(-ENOTTY, raw_call(fd, num, head));
		EXPECT_EQ(-ENOTTY, raw_call(fd, _IO(0x1b, nr), head));
		EXPECT_EQ(-ENOTTY, raw_call(fd, _IOWR(IB_MEMREG_IOC_MAGIC, nr,
						      int), head));
	}
}

TEST_F(uapi, unknown_number_is_ENOTTY)
{
	struct raw_head *head = arg_at_end(self, PAGE);

	try_numbers(_metadata, self->fd, CALL_ON_FILE, head);
	try_numbers(_metadata, self->ring, CALL_ON_RING, head);
}

TEST_F(uapi, unknown_flag_is_EOPNOTSUPP)
{
	const struct call *call;
	struct raw_head *head;
	__u32 flag;

	for_each_call(call) {
		self->doing = call->name;
		for (flag = 1; flag; flag <<= 1) {
			if (flag & call->flags)
				continue;
			head = arg_at_end(self, call->size);
			head->flags = flag | call->flags;
			EXPECT_FAIL(EOPNOTSUPP, FLAGS, try(self, call, head));
		}
	}
}

TEST_F(uapi, reserved_is_EINVAL)
{
	const struct call *call;
	struct raw_head *head;
	unsigned int i;

	for_each_call(call) {
		if (call->reserved == NO_RESERVED)
			continue;
		self->doing = call->name;
		for (i = 0; i < 4; i++) {
			head = arg_at_end(self, call->size);
			((char *)head)[call->reserved + i] = 0x80;
			EXPECT_FAIL(EINVAL, RESERVED, try(self, call, head));
		}
	}
}

TEST_F(uapi, not_bound_is_ENODEV)
{
	const struct call *call;
	struct raw_head *head;
	char buf[512];
	int fd;

	fd = raw_open();
	ASSERT_LE(0, fd);
	for_each_call(call) {
		if (call->unbound || call->on != CALL_ON_FILE)
			continue;
		self->doing = call->name;
		head = arg_at_end(self, call->size);
		EXPECT_FAIL(ENODEV, NOT_BOUND, raw_call(fd, call->num, head));
	}
	EXPECT_EQ(-1, read(fd, buf, sizeof(buf)));
	EXPECT_EQ(ENODEV, errno);
	EXPECT_EQ(0, raw_bind_device(fd, test_device()));
	EXPECT_EQ(0, close(fd));
}

/*
 * The kernel opens misc devices one at a time, and to open this one may wait
 * for memory.
 */
TEST_F(uapi, node_is_no_misc_device_and_all_may_open_it)
{
	struct stat st;

	ASSERT_EQ(0, fstat(self->fd, &st));
	EXPECT_TRUE(S_ISCHR(st.st_mode));
	EXPECT_NE(MISC_MAJOR, major(st.st_rdev));
	EXPECT_EQ(0666, st.st_mode & 0777);
}

TEST_F(uapi, bind_device_again_is_EBUSY)
{
	EXPECT_FAIL(EBUSY, BOUND, raw_bind_device(self->fd, test_device()));
	EXPECT_FAIL(EBUSY, BOUND, raw_bind_device(self->fd, "nonesuch"));
	EXPECT_FAIL(EBUSY, BOUND, raw_bind_device(self->fd, ""));
}

TEST_F(uapi, bind_device_by_a_wrong_name_leaves_the_file_unbound)
{
	RAW(device_bind, cmd);
	int fd;

	fd = raw_open();
	ASSERT_LE(0, fd);
	EXPECT_FAIL(ENODEV, NO_DEVICE, raw_bind_device(fd, "nonesuch"));
	/*
	 * An empty name is good only if there is one device; the topology has
	 * two.
	 */
	EXPECT_FAIL(ENODEV, NO_DEVICE, raw_bind_device(fd, ""));
	memset(cmd.name, 'x', sizeof(cmd.name));
	EXPECT_EQ(-EINVAL, raw_call(fd, IB_MEMREG_IOC_DEVICE_BIND, &cmd));
	EXPECT_EQ(1, state_count(IB_MEMREG_OBJECT_FILE));
	EXPECT_EQ(0, raw_bind_device(fd, test_device()));
	EXPECT_EQ(2, state_count(IB_MEMREG_OBJECT_FILE));
	EXPECT_EQ(0, close(fd));
}

TEST_F(uapi, bind_device_reports_name_and_index)
{
	struct ib_memreg_cap_entry caps[2] = {};
	RAW(device_bind, bind);
	RAW(device_query, query, .count = 1, .caps = (uintptr_t)caps);
	int fd;

	fd = raw_open();
	ASSERT_LE(0, fd);
	snprintf(bind.name, sizeof(bind.name), "%s", test_device());
	ASSERT_EQ(0, raw_call(fd, IB_MEMREG_IOC_DEVICE_BIND, &bind));
	EXPECT_STREQ(test_device(), bind.name);
	ASSERT_EQ(0, raw_call(fd, IB_MEMREG_IOC_DEVICE_QUERY, &query));
	EXPECT_EQ(bind.out_index, query.out_index);
	EXPECT_STREQ(test_device(), query.out_name);
	EXPECT_LE(1, query.out_ports);
	/* QUERY writes only as many entries as the caller has room for. */
	EXPECT_EQ(IB_MEMREG_CAP_LEASE, query.count);
	EXPECT_EQ(IB_MEMREG_CAP_KEY_PAGES, caps[0].cap);
	EXPECT_EQ(0, caps[1].cap);
	EXPECT_EQ(0, close(fd));
}

struct binder {
	pthread_barrier_t *barrier;
	int fd;
	int ret;
};

static void *bind_at_once(void *arg)
{
	struct binder *binder = arg;

	pthread_barrier_wait(binder->barrier);
	binder->ret = raw_bind_device(binder->fd, test_device());
	return NULL;
}

TEST_F(uapi, bind_device_by_two_threads_succeeds_once)
{
	pthread_barrier_t barrier;
	struct binder binders[2];
	pthread_t threads[2];
	int fd, round, i;

	ASSERT_EQ(0, pthread_barrier_init(&barrier, NULL, 2));
	for (round = 0; round < 50; round++) {
		fd = raw_open();
		ASSERT_LE(0, fd);
		for (i = 0; i < 2; i++) {
			binders[i] = (struct binder){ &barrier, fd, 0 };
			ASSERT_EQ(0, pthread_create(&threads[i], NULL,
						    bind_at_once,
						    &binders[i]));
		}
		for (i = 0; i < 2; i++)
			ASSERT_EQ(0, pthread_join(threads[i], NULL));
		EXPECT_EQ(-EBUSY, binders[0].ret + binders[1].ret);
		EXPECT_EQ(0, close(fd));
	}
}

/* Try an id that does not exist, or is of another type than the call needs. */
static void try_wrong_id(struct __test_metadata *_metadata,
			 FIXTURE_DATA(uapi) *self, __u32 id, int type)
{
	struct ib_memreg_bind bind = { .mr_id = self->mr, .window_id = id };
	RAW(mr_query, query, .mr_id = id);
	RAW(domain_query, domain, .domain_id = id);
	RAW(endpoint_disconnect, disconnect, .endpoint_id = id);
	RAW(endpoint_accept, accept, .endpoint_id = id,
	    .domain_id = self->domain);
	RAW(endpoint_reject, reject, .endpoint_id = id);
	RAW(endpoint_setup, setup, .endpoint_id = id,
	    .domain_id = self->domain);
	RAW(srq_create, srq, .domain_id = self->domain, .ring_id = id,
	    .max_recv = 1, .max_recv_sge = 1);
	struct ib_memreg_wr wr = { .target_id = id, .opcode = 1 };
	RAW(submit, submit, .count = 1, .wrs = (uintptr_t)&wr);
	__u32 out;

	EXPECT_FAIL(ENOENT, ID, raw_call(self->fd, IB_MEMREG_IOC_ENDPOINT_SETUP,
					 &setup));
	EXPECT_FAIL(ENOENT, ID, raw_call(self->fd, IB_MEMREG_IOC_SRQ_CREATE,
					 &srq));
	EXPECT_FAIL(ENOENT, ID, raw_call(self->fd, IB_MEMREG_IOC_SUBMIT,
					 &submit));
	EXPECT_EQ(0, submit.out_taken);
	EXPECT_FAIL(ENOENT, ID,
		    raw_call(self->fd, IB_MEMREG_IOC_ENDPOINT_ACCEPT, &accept));
	EXPECT_FAIL(ENOENT, ID,
		    raw_call(self->fd, IB_MEMREG_IOC_ENDPOINT_REJECT, &reject));
	EXPECT_FAIL(ENOENT, ID,
		    raw_call(self->fd, IB_MEMREG_IOC_ENDPOINT_DISCONNECT,
			     &disconnect));
	if (type != IB_MEMREG_OBJECT_MR)
		EXPECT_FAIL(ENOENT, ID, raw_call(self->fd,
						 IB_MEMREG_IOC_MR_QUERY,
						 &query));
	if (type != IB_MEMREG_OBJECT_WINDOW) {
		EXPECT_FAIL(ENOENT, ID, raw_bind(self->fd, self->domain, &bind,
						 1));
		EXPECT_FAIL(ENOENT, ID, raw_revoke(self->fd, self->domain, &id,
						   1));
	}
	if (type == IB_MEMREG_OBJECT_DOMAIN)
		return;
	EXPECT_FAIL(ENOENT, ID, raw_call(self->fd, IB_MEMREG_IOC_DOMAIN_QUERY,
					 &domain));
	EXPECT_FAIL(ENOENT, ID, raw_register(self->fd, id, self->memory, PAGE,
					     LOCAL_WRITE, &out));
	EXPECT_FAIL(ENOENT, ID, raw_windows(self->fd, id, PAGE, &out, 1));
	EXPECT_FAIL(ENOENT, ID, raw_bind(self->fd, id, &bind, 1));
	EXPECT_FAIL(ENOENT, ID, raw_revoke(self->fd, id, &id, 1));
}

TEST_F(uapi, id_of_the_wrong_type_is_ENOENT)
{
	struct ib_memreg_bind bind = {
		.window_id = self->window,
		.mr_id = self->window,
	};

	try_wrong_id(_metadata, self, 0, 0);
	try_wrong_id(_metadata, self, ~0U, 0);
	try_wrong_id(_metadata, self, 1U << 31, 0);
	try_wrong_id(_metadata, self, self->listener + 1, 0);
	try_wrong_id(_metadata, self, self->domain, IB_MEMREG_OBJECT_DOMAIN);
	try_wrong_id(_metadata, self, self->mr, IB_MEMREG_OBJECT_MR);
	try_wrong_id(_metadata, self, self->window, IB_MEMREG_OBJECT_WINDOW);
	try_wrong_id(_metadata, self, self->listener,
		     IB_MEMREG_OBJECT_LISTENER);
	EXPECT_FAIL(ENOENT, ID, raw_bind(self->fd, self->domain, &bind, 1));
	bind.mr_id = self->mr;
	bind.length = PAGE;
	bind.access = REMOTE_READ;
	bind.endpoint_id = self->listener;
	EXPECT_FAIL(ENOENT, ID, raw_bind(self->fd, self->domain, &bind, 1));
}

TEST_F(uapi, ids_are_of_one_file)
{
	__u32 mr;
	int fd;

	fd = raw_open_bound();
	ASSERT_LE(0, fd);
	EXPECT_FAIL(ENOENT, ID, raw_destroy(fd, self->domain));
	EXPECT_FAIL(ENOENT, ID, raw_register(fd, self->domain, self->memory,
					     PAGE, LOCAL_WRITE, &mr));
	EXPECT_EQ(0, close(fd));
}

TEST_F(uapi, destroy_with_users_is_EBUSY)
{
	struct ib_memreg_bind bind = {
		.mr_id = self->mr,
		.length = PAGE,
		.access = REMOTE_READ,
	};
	__u32 domain, mr;

	ASSERT_EQ(0, raw_domain(self->fd, &domain));
	ASSERT_EQ(0, raw_register(self->fd, domain, self->memory, PAGE,
				  LOCAL_WRITE, &mr));
	EXPECT_FAIL(EBUSY, IN_USE, raw_destroy(self->fd, domain));
	ASSERT_EQ(0, raw_destroy(self->fd, mr));
	EXPECT_FAIL(ENOENT, ID, raw_destroy(self->fd, mr));

	ASSERT_EQ(0, raw_windows(self->fd, domain, PAGE, &bind.window_id, 1));
	EXPECT_FAIL(EBUSY, IN_USE, raw_destroy(self->fd, domain));
	ASSERT_EQ(0, raw_bind(self->fd, domain, &bind, 1));
	EXPECT_FAIL(EBUSY, WINDOWS_BOUND, raw_destroy(self->fd, self->mr));
	EXPECT_EQ(0, raw_destroy(self->fd, bind.window_id));
	EXPECT_EQ(0, raw_destroy(self->fd, domain));
	EXPECT_FAIL(ENOENT, ID, raw_destroy(self->fd, domain));
}

TEST_F(uapi, destroy_of_no_object_is_ENOENT)
{
	EXPECT_FAIL(ENOENT, ID, raw_destroy(self->fd, 0));
	EXPECT_FAIL(ENOENT, ID, raw_destroy(self->fd, ~0U));
	EXPECT_FAIL(ENOENT, ID, raw_destroy(self->fd, self->listener + 1));
}

/* Calls undo what they did if they cannot write their answer (I8). */
TEST_F(uapi, I8_read_only_argument_changes_nothing)
{
	struct ib_memreg_domain_create *domain;
	struct ib_memreg_mr_register *mr;
	struct ib_memreg_listener_create *listen;
	struct ib_memreg_endpoint_connect *connect;

	domain = (void *)arg_at_end(self, sizeof(*domain));
	ASSERT_EQ(0, mprotect(self->arg, 2 * PAGE, PROT_READ));
	EXPECT_EQ(-EFAULT, raw_call(self->fd, IB_MEMREG_IOC_DOMAIN_CREATE,
				    domain));

	ASSERT_EQ(0, mprotect(self->arg, 2 * PAGE, PROT_READ | PROT_WRITE));
	mr = (void *)arg_at_end(self, sizeof(*mr));
	mr->domain_id = self->domain;
	mr->addr = (uintptr_t)self->memory;
	mr->length = 3 * PAGE;
	mr->access = LOCAL_WRITE | REMOTE_WRITE;
	ASSERT_EQ(0, mprotect(self->arg, 2 * PAGE, PROT_READ));
	EXPECT_EQ(-EFAULT, raw_call(self->fd, IB_MEMREG_IOC_MR_REGISTER, mr));

	ASSERT_EQ(0, mprotect(self->arg, 2 * PAGE, PROT_READ | PROT_WRITE));
	listen = (void *)arg_at_end(self, sizeof(*listen));
	listen->backlog = 1;
	listen->addr.family = AF_INET;
	ASSERT_EQ(0, mprotect(self->arg, 2 * PAGE, PROT_READ));
	EXPECT_EQ(-EFAULT,
		  raw_call(self->fd, IB_MEMREG_IOC_LISTENER_CREATE, listen));

	ASSERT_EQ(0, mprotect(self->arg, 2 * PAGE, PROT_READ | PROT_WRITE));
	connect = (void *)arg_at_end(self, sizeof(*connect));
	connect->domain_id = self->domain;
	connect->timeout_ms = 1000;
	connect->addr.family = AF_INET;
	connect->addr.port = htons(7);
	connect->addr.ip[0] = 192;
	ASSERT_EQ(0, mprotect(self->arg, 2 * PAGE, PROT_READ));
	EXPECT_EQ(-EFAULT,
		  raw_call(self->fd, IB_MEMREG_IOC_ENDPOINT_CONNECT, connect));
}

TEST_F(uapi, I8_bad_array_changes_nothing)
{
	struct ib_memreg_bind *bind = (void *)self->arg;
	const struct ib_memreg_bind good = {
		.window_id = self->window,
		.mr_id = self->mr,
		.length = PAGE,
		.access = REMOTE_READ,
	};
	__u32 *ids = (__u32 *)self->hole - 1;

	/* The first of two ids is written before the second one faults. */
	EXPECT_EQ(-EFAULT, raw_windows(self->fd, self->domain, PAGE, ids, 2));
	EXPECT_EQ(-EFAULT, raw_bind(self->fd, self->domain,
				    (void *)self->hole, 1));
	EXPECT_EQ(0, raw_index());
	*ids = self->window;
	EXPECT_EQ(-EFAULT, raw_revoke(self->fd, self->domain, ids, 2));
	EXPECT_EQ(1, raw_index());

	/* A bind makes its key and then cannot write it to the array. */
	*bind = good;
	ASSERT_EQ(0, mprotect(self->arg, PAGE, PROT_READ));
	EXPECT_EQ(-EFAULT, raw_bind(self->fd, self->domain, bind, 1));
	ASSERT_EQ(0, mprotect(self->arg, PAGE, PROT_READ | PROT_WRITE));
	EXPECT_EQ(0, raw_bind(self->fd, self->domain, bind, 1));
	EXPECT_EQ(0, raw_revoke(self->fd, self->domain, &self->window, 1));

	bind = (void *)(self->hole - sizeof(*bind));
	*bind = good;
	EXPECT_EQ(-EFAULT, raw_bind(self->fd, self->domain, bind, 2));
	EXPECT_EQ(1, raw_index());
}

TEST_F(uapi, bad_output_array_is_EFAULT)
{
	RAW(device_query, query, .count = 1, .caps = (uintptr_t)self->hole);
	RAW(mr_query, mr, .count = 1, .segments = (uintptr_t)self->hole);
	RAW(list, list, .count = 1, .objects = (uintptr_t)self->hole,
	    .object_size = sizeof(struct ib_memreg_object));
	RAW(device_stat, stat, .count = 2);
	__u32 keyed;

	EXPECT_EQ(-EFAULT,
		  raw_call(self->fd, IB_MEMREG_IOC_DEVICE_QUERY, &query));
	EXPECT_FAIL(EFAULT, NONE,
		    raw_call(self->fd, IB_MEMREG_IOC_DEVICE_STAT, &stat));
	/* The second entry is in the hole. */
	stat.stats = (uintptr_t)self->hole -
		     sizeof(struct ib_memreg_stat_entry);
	EXPECT_FAIL(EFAULT, NONE,
		    raw_call(self->fd, IB_MEMREG_IOC_DEVICE_STAT, &stat));
	stat.count = 1;
	EXPECT_EQ(0, raw_call(self->fd, IB_MEMREG_IOC_DEVICE_STAT, &stat));
	EXPECT_EQ(-EFAULT, raw_call(self->fd, IB_MEMREG_IOC_LIST, &list));
	ASSERT_EQ(0, raw_register(self->fd, self->domain, self->memory, PAGE,
				  REMOTE_READ, &keyed));
	mr.mr_id = keyed;
	EXPECT_EQ(-EFAULT, raw_call(self->fd, IB_MEMREG_IOC_MR_QUERY, &mr));
	/* With room for 0 entries the pointer is not used. */
	mr.count = 0;
	EXPECT_EQ(0, raw_call(self->fd, IB_MEMREG_IOC_MR_QUERY, &mr));
	EXPECT_EQ(1, mr.count);
	EXPECT_EQ(0, raw_destroy(self->fd, keyed));
}

TEST_F(uapi, counts_and_types_have_bounds)
{
	const __u32 too_many = IB_MEMREG_BATCH_MAX + 1;
	RAW(window_alloc, alloc, .domain_id = self->domain, .count = 1,
	    .max_span = PAGE, .ids = (uintptr_t)self->arg);
	RAW(domain_create, domain, .port = 2);
	void *arg = self->arg;

	EXPECT_FAIL(EINVAL, COUNT, raw_windows(self->fd, self->domain, PAGE,
					       arg, 0));
	EXPECT_FAIL(EINVAL, COUNT, raw_windows(self->fd, self->domain, PAGE,
					       arg, too_many));
	EXPECT_FAIL(EINVAL, COUNT, raw_bind(self->fd, self->domain, arg, 0));
	EXPECT_FAIL(EINVAL, COUNT, raw_bind(self->fd, self->domain, arg,
					    too_many));
	EXPECT_FAIL(EINVAL, COUNT, raw_revoke(self->fd, self->domain, arg, 0));
	EXPECT_FAIL(EINVAL, COUNT, raw_revoke(self->fd, self->domain, arg,
					      too_many));
	EXPECT_EQ(-EOPNOTSUPP, raw_call(self->fd, IB_MEMREG_IOC_WINDOW_ALLOC,
					&alloc));
	alloc.type = 3;
	EXPECT_EQ(-EOPNOTSUPP, raw_call(self->fd, IB_MEMREG_IOC_WINDOW_ALLOC,
					&alloc));
	EXPECT_FAIL(EINVAL, PORT, raw_call(self->fd,
					   IB_MEMREG_IOC_DOMAIN_CREATE,
					   &domain));
	domain.port = ~0U;
	EXPECT_FAIL(EINVAL, PORT, raw_call(self->fd,
					   IB_MEMREG_IOC_DOMAIN_CREATE,
					   &domain));
}

TEST_F(uapi, domain_on_a_port_by_number)
{
	RAW(domain_create, domain, .port = 1);

	ASSERT_EQ(0, raw_call(self->fd, IB_MEMREG_IOC_DOMAIN_CREATE, &domain));
	EXPECT_EQ(0, raw_destroy(self->fd, domain.out_domain_id));
}

static int try_listen(int fd, struct ib_memreg_listener_create cmd)
{
	cmd.size = sizeof(cmd);
	return raw_call(fd, IB_MEMREG_IOC_LISTENER_CREATE, &cmd);
}

TEST_F(uapi, listen_has_bounds)
{
	struct ib_memreg_listener_create cmd = {
		.addr = { .family = AF_INET },
	};

	EXPECT_FAIL(EINVAL, COUNT, try_listen(self->fd, cmd));
	cmd.backlog = 1025;
	EXPECT_FAIL(EINVAL, COUNT, try_listen(self->fd, cmd));
	cmd.backlog = 1024;
	cmd.addr.family = AF_UNIX;
	EXPECT_FAIL(EINVAL, ADDRESS, try_listen(self->fd, cmd));
	cmd.addr.family = 0;
	EXPECT_FAIL(EINVAL, ADDRESS, try_listen(self->fd, cmd));
	cmd.addr.family = AF_INET;
	cmd.addr.ip[4] = 1;
	EXPECT_FAIL(EINVAL, ADDRESS, try_listen(self->fd, cmd));
	cmd.addr.ip[4] = 0;
	cmd.addr.scope_id = 1;
	EXPECT_FAIL(EINVAL, ADDRESS, try_listen(self->fd, cmd));
	/* 198.51.100.1 (TEST-NET-2) is not an address of any host. */
	cmd.addr.scope_id = 0;
	memcpy(cmd.addr.ip, "\xc6\x33\x64\x01", 4);
	EXPECT_FAIL(EADDRNOTAVAIL, ADDRESS, try_listen(self->fd, cmd));
}

TEST_F(uapi, listen_on_a_port_in_use_is_EADDRINUSE)
{
	RAW(listener_create, first, .backlog = 1,
	    .addr = { .family = AF_INET });
	struct ib_memreg_listener_create second;

	ASSERT_EQ(0, raw_call(self->fd, IB_MEMREG_IOC_LISTENER_CREATE, &first));
	EXPECT_NE(0, first.addr.port);
	second = first;
	EXPECT_FAIL(EADDRINUSE, ADDRESS, try_listen(self->fd, second));
	EXPECT_EQ(0, raw_destroy(self->fd, first.out_listener_id));
	ASSERT_EQ(0,
		  raw_call(self->fd, IB_MEMREG_IOC_LISTENER_CREATE, &second));
	EXPECT_EQ(0, raw_destroy(self->fd, second.out_listener_id));
}

static int try_connect(int fd, struct ib_memreg_endpoint_connect cmd)
{
	cmd.size = sizeof(cmd);
	return raw_call(fd, IB_MEMREG_IOC_ENDPOINT_CONNECT, &cmd);
}

TEST_F(uapi, connect_has_bounds)
{
	const struct ib_memreg_endpoint_connect good = {
		.domain_id = self->domain,
		.timeout_ms = 100,
		.addr = { .family = AF_INET, .port = htons(7), .ip = { 192 } },
	};
	struct ib_memreg_endpoint_connect cmd;

	cmd = good;
	cmd.timeout_ms = 0;
	EXPECT_EQ(-EINVAL, try_connect(self->fd, cmd));
	cmd.timeout_ms = 60001;
	EXPECT_EQ(-EINVAL, try_connect(self->fd, cmd));
	cmd = good;
	cmd.addr.port = 0;
	EXPECT_FAIL(EINVAL, ADDRESS, try_connect(self->fd, cmd));
	cmd = good;
	cmd.addr.ip[0] = 0;
	EXPECT_FAIL(EINVAL, ADDRESS, try_connect(self->fd, cmd));
	cmd = good;
	cmd.addr.family = 0;
	EXPECT_FAIL(EINVAL, ADDRESS, try_connect(self->fd, cmd));
	cmd = good;
	cmd.src.family = AF_INET6;
	EXPECT_FAIL(EINVAL, ADDRESS, try_connect(self->fd, cmd));
	cmd = good;
	cmd.src.port = htons(7);
	EXPECT_FAIL(EINVAL, ADDRESS, try_connect(self->fd, cmd));
	cmd = good;
	cmd.private_data_len = 57;
	EXPECT_FAIL(EINVAL, PRIVATE_DATA, try_connect(self->fd, cmd));
	cmd.private_data_len = 1;
	EXPECT_EQ(-EFAULT, try_connect(self->fd, cmd));
	cmd = good;
	cmd.domain_id = self->mr;
	EXPECT_FAIL(ENOENT, ID, try_connect(self->fd, cmd));
	/* 198.51.100.1 (TEST-NET-2) is not an address of any host. */
	cmd = good;
	cmd.src.family = AF_INET;
	memcpy(cmd.src.ip, "\xc6\x33\x64\x01", 4);
	EXPECT_FAIL(EADDRNOTAVAIL, ADDRESS, try_connect(self->fd, cmd));
}

TEST_F(uapi, answers_to_no_request_have_bounds)
{
	RAW(endpoint_accept, accept, .private_data_len = 197);
	RAW(endpoint_reject, reject, .private_data_len = 149);

	EXPECT_FAIL(EINVAL, PRIVATE_DATA,
		    raw_call(self->fd, IB_MEMREG_IOC_ENDPOINT_ACCEPT, &accept));
	accept.private_data_len = 1;
	EXPECT_EQ(-EFAULT,
		  raw_call(self->fd, IB_MEMREG_IOC_ENDPOINT_ACCEPT, &accept));
	EXPECT_FAIL(EINVAL, PRIVATE_DATA,
		    raw_call(self->fd, IB_MEMREG_IOC_ENDPOINT_REJECT, &reject));
	reject.private_data_len = 1;
	EXPECT_EQ(-EFAULT,
		  raw_call(self->fd, IB_MEMREG_IOC_ENDPOINT_REJECT, &reject));
}

TEST_F(uapi, events_that_are_not_there)
{
	struct pollfd pollfd = { .fd = self->fd, .events = POLLIN };
	char buf[sizeof(struct ib_memreg_event)];

	EXPECT_EQ(0, poll(&pollfd, 1, 0));
	ASSERT_EQ(0, fcntl(self->fd, F_SETFL, O_NONBLOCK));
	EXPECT_EQ(-1, read(self->fd, buf, sizeof(buf)));
	EXPECT_EQ(EAGAIN, errno);
	EXPECT_EQ(-1, read(self->fd, buf, sizeof(buf) - 1));
	EXPECT_EQ(EINVAL, errno);
}

TEST_F(uapi, the_file_does_nothing_else)
{
	EXPECT_EQ(-1, write(self->fd, "x", 1));
	EXPECT_EQ(-1, lseek(self->fd, 0, SEEK_SET));
	EXPECT_EQ(ESPIPE, errno);
	EXPECT_EQ(MAP_FAILED, mmap(NULL, PAGE, PROT_READ, MAP_SHARED, self->fd,
				   0));
	EXPECT_EQ(ENODEV, errno);
}

TEST_HARNESS_MAIN
