// SPDX-License-Identifier: GPL-2.0-only
/*
 * Functions of the library beyond single calls of the kernel: user data, grants
 * in one call, receives by the hundred, rejections that leave no object, and
 * reasons that name the error. Both ends are the library's, in this process.
 *
 * time limit: 300
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "ends.h"
#include "harness.h"
#include "memreg.h"
#include "net.h"
#include "raw.h"
#include "state.h"
#include "test.h"

#define PEER_DEVICE	"rxe_peer"
#define QUEUE		100
#define MEMORY		65536
#define MESSAGE		256
#define LISTENER_DATA	UINT64_C(0x1111111122222222)
#define OWNER_DATA	UINT64_C(0x3333333344444444)
#define PEER_DATA	UINT64_C(0x5555555566666666)

/* One end, which has the queues of one connection */
struct end {
	struct memreg *m;
	uint32_t domain;
	uint32_t endpoint;
	struct memreg_ring ring;
	struct memreg_mr mr;
	char *memory;
};

FIXTURE(comfort)
{
	struct end owner;
	struct end peer;
	uint32_t listener;
	struct sockaddr_in at;
};

static void end_open(struct __test_metadata *_metadata, struct end *e,
		     const char *device)
{
	ASSERT_EQ(0, memreg_open(device, &e->m)) TH_LOG("%s", memreg_reason());
	ASSERT_EQ(0, memreg_domain_create(e->m, 0, &e->domain));
	e->memory = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, e->memory);
	ASSERT_EQ(0, memreg_mr_register(e->m, e->domain, e->memory, MEMORY,
					FOR_WINDOWS, 0, &e->mr));
	ASSERT_EQ(0, memreg_ring_create(e->m, 4 * QUEUE, 64, -1, 0, &e->ring));
}

static void end_close(struct end *e)
{
	memreg_close(e->m);
	memreg_ring_destroy(NULL, &e->ring);
	munmap(e->memory, MEMORY);
}

FIXTURE_SETUP(comfort)
{
	self->at = (struct sockaddr_in) { .sin_family = AF_INET };
	inet_pton(AF_INET, OWNER_IP4, &self->at.sin_addr);
	end_open(_metadata, &self->owner, OWNER_DEVICE);
	/* A handle connects in the namespace that it was opened in */
	ASSERT_EQ(0, enter_namespace("memreg-peer"));
	end_open(_metadata, &self->peer, PEER_DEVICE);
	ASSERT_EQ(0, enter_namespace("memreg-owner"));
	ASSERT_EQ(0, memreg_listen(self->owner.m, (struct sockaddr *)&self->at,
				   16, &self->listener));
}

FIXTURE_TEARDOWN(comfort)
{
	end_close(&self->owner);
	end_close(&self->peer);
}

static struct ib_memreg_queues queues_of(const struct end *e)
{
	return queues_on(e->ring.id, QUEUE, QUEUE, 1, 32);
}

static void begin(struct __test_metadata *_metadata,
		  FIXTURE_DATA(comfort) *self)
{
	struct ib_memreg_queues queues = queues_of(&self->peer);

	ASSERT_EQ(0, memreg_connect_queues(self->peer.m, self->peer.domain,
					   (struct sockaddr *)&self->at, NULL,
					   LIMIT_MS, NULL, 0, &queues,
					   &self->peer.endpoint))
		TH_LOG("%s", memreg_reason());
}

static struct ib_memreg_event await(struct __test_metadata *_metadata,
				    struct end *e, uint32_t type)
{
	struct ib_memreg_event event;

	EXPECT_EQ(0, memreg_get_event(e->m, &event, LIMIT_MS))
		TH_LOG("%s", memreg_reason());
	EXPECT_EQ(type, event.type)
		TH_LOG("%s: %s", memreg_event_string(event.type),
		       memreg_event_reason(&event));
	return event;
}

/*
 * Have the peer request a connection. The event names an endpoint of the owner.
 */
static struct ib_memreg_event request(struct __test_metadata *_metadata,
				      FIXTURE_DATA(comfort) *self)
{
	struct ib_memreg_event event;

	begin(_metadata, self);
	event = await(_metadata, &self->owner, IB_MEMREG_EVENT_CONNECT_REQUEST);
	self->owner.endpoint = event.endpoint_id;
	return event;
}

static void set_up(struct __test_metadata *_metadata,
		   FIXTURE_DATA(comfort) *self)
{
	struct ib_memreg_queues queues = queues_of(&self->owner);

	ASSERT_EQ(0, memreg_setup(self->owner.m, self->owner.endpoint,
				  self->owner.domain, &queues));
}

static void let_in(struct __test_metadata *_metadata,
		   FIXTURE_DATA(comfort) *self, const void *data, size_t len)
{
	ASSERT_EQ(0, memreg_accept(self->owner.m, self->owner.endpoint,
				   self->owner.domain, data, len));
}

static const struct ib_memreg_cqe *next(struct __test_metadata *_metadata,
					struct end *e)
{
	EXPECT_EQ(0, memreg_ring_wait(&e->ring, 1, LIMIT_MS * 1000000ULL,
				      NULL))
		TH_LOG("%s", memreg_reason());
	return memreg_ring_peek(&e->ring);
}

static void say(struct __test_metadata *_metadata, struct end *e,
		const char *text, uint32_t length)
{
	struct ib_memreg_wr wr;

	memcpy(e->memory, text, length);
	memreg_prep_send(&wr, e->endpoint, e->mr.id, 0, length);
	ASSERT_EQ(0, memreg_submit(e->m, &wr, 1, NULL));
}

/*
 * Expect that the owner has received this message in the first of its buffers.
 */
static void hear(struct __test_metadata *_metadata,
		 FIXTURE_DATA(comfort) *self, const char *text,
		 uint32_t length, uint64_t endpoint_data)
{
	const struct ib_memreg_cqe *cqe = next(_metadata, &self->owner);
	const char *message;

	ASSERT_NE(NULL, cqe);
	EXPECT_EQ(IB_MEMREG_WC_SUCCESS, cqe->status);
	EXPECT_EQ(endpoint_data, cqe->endpoint_data);
	ASSERT_EQ(length, cqe->byte_len);
	message = memreg_cqe_message(cqe, self->owner.memory +
				     cqe->user_data * MESSAGE);
	EXPECT_EQ(0, memcmp(text, message, length));
	memreg_ring_seen(&self->owner.ring, 1);
}

/*
 * User data
 */

TEST_F_TIMEOUT(comfort, user_data_is_in_events_and_completions, LIMIT_S)
{
	static const char text[MESSAGE] = "long enough for a buffer";
	struct memreg *owner = self->owner.m;
	struct ib_memreg_event event;

	ASSERT_EQ(0, memreg_set_user_data(owner, self->listener,
					  LISTENER_DATA));
	event = request(_metadata, self);
	EXPECT_EQ(LISTENER_DATA, event.user_data);
	EXPECT_EQ(self->listener, event.listener_id);
	ASSERT_EQ(0, memreg_set_user_data(self->peer.m, self->peer.endpoint,
					  PEER_DATA));
	set_up(_metadata, self);
	ASSERT_EQ(0, memreg_set_user_data(owner, self->owner.endpoint,
					  OWNER_DATA));
	ASSERT_EQ(0, memreg_submit_recvs(owner, self->owner.endpoint,
					 self->owner.mr.id, 0, MESSAGE, 0, 8,
					 NULL));
	let_in(_metadata, self, NULL, 0);
	event = await(_metadata, &self->owner, IB_MEMREG_EVENT_ESTABLISHED);
	EXPECT_EQ(OWNER_DATA, event.user_data);
	event = await(_metadata, &self->peer, IB_MEMREG_EVENT_ESTABLISHED);
	EXPECT_EQ(PEER_DATA, event.user_data);

	/* In the entry, and in the buffer */
	say(_metadata, &self->peer, text, 16);
	hear(_metadata, self, text, 16, OWNER_DATA);
	say(_metadata, &self->peer, text, MESSAGE);
	hear(_metadata, self, text, MESSAGE, OWNER_DATA);

	/* Without user data, completions have the endpoint's id */
	ASSERT_EQ(0, memreg_set_user_data(owner, self->owner.endpoint, 0));
	say(_metadata, &self->peer, text, 16);
	hear(_metadata, self, text, 16, self->owner.endpoint);
	ASSERT_EQ(0, memreg_destroy(self->peer.m, self->peer.endpoint));
	event = await(_metadata, &self->owner, IB_MEMREG_EVENT_DISCONNECTED);
	EXPECT_EQ(self->owner.endpoint, event.user_data);
}

/* A listener may be destroyed before its requests are read. */
TEST_F_TIMEOUT(comfort, user_data_of_a_listener_that_went, LIMIT_S)
{
	struct pollfd pfd = { .events = POLLIN };
	struct ib_memreg_event event;

	ASSERT_EQ(0, memreg_set_user_data(self->owner.m, self->listener,
					  LISTENER_DATA));
	begin(_metadata, self);
	pfd.fd = memreg_fd(self->owner.m);
	ASSERT_EQ(1, poll(&pfd, 1, LIMIT_MS));
	ASSERT_EQ(0, memreg_destroy(self->owner.m, self->listener));
	event = await(_metadata, &self->owner, IB_MEMREG_EVENT_CONNECT_REQUEST);
	EXPECT_EQ(LISTENER_DATA, event.user_data);
	ASSERT_EQ(0, memreg_refuse(self->owner.m, event.endpoint_id, NULL, 0));
}

TEST_F(comfort, user_data_is_for_listeners_and_endpoints)
{
	struct memreg *m = self->owner.m;

	EXPECT_EQ(-ENOENT, memreg_set_user_data(m, self->owner.domain, 1));
	EXPECT_STREQ("set_user_data: this handle has no listener or endpoint 1 (ENOENT)",
		     memreg_reason());
	EXPECT_EQ(-ENOENT, memreg_set_user_data(m, 0, 1));
	EXPECT_EQ(-ENOENT, memreg_set_user_data(m, 999, 1));
	EXPECT_EQ(0, memreg_destroy(m, self->listener));
	EXPECT_EQ(-ENOENT, memreg_set_user_data(m, self->listener, 1));
}

/*
 * Grants
 */

TEST_F_TIMEOUT(comfort, grant_is_one_call, LIMIT_S)
{
	struct ib_memreg_bind bind = {
		.mr_id = self->owner.mr.id,
		.length = 4096,
		.access = REMOTE_RW,
	};
	char data[MEMREG_GRANT_SIZE];
	struct memreg_grant grant;
	struct ib_memreg_event event;
	struct ib_memreg_wr wr;

	bind.endpoint_id = request(_metadata, self).endpoint_id;
	ASSERT_EQ(0, memreg_window_grant(self->owner.m, self->owner.domain,
					 &bind, data));
	EXPECT_NE(0, bind.window_id);
	let_in(_metadata, self, data, sizeof(data));
	event = await(_metadata, &self->peer, IB_MEMREG_EVENT_ESTABLISHED);
	ASSERT_EQ(0, memreg_grant_decode(event.private_data,
					 event.private_data_len, &grant));
	EXPECT_EQ(bind.out_rkey, grant.rkey);
	EXPECT_EQ(4096, grant.length);
	strcpy(self->peer.memory, "granted");
	memreg_prep_write(&wr, self->peer.endpoint, self->peer.mr.id, 0, 8,
			  grant.iova, grant.rkey);
	memreg_wr_signal(&wr, 0);
	ASSERT_EQ(0, memreg_submit(self->peer.m, &wr, 1, NULL));
	EXPECT_EQ(IB_MEMREG_WC_SUCCESS,
		  next(_metadata, &self->peer)->status);
	EXPECT_STREQ("granted", self->owner.memory);
}

/*
 * If the bind fails, a window that memreg_window_grant() has made is destroyed;
 * one of the caller's is not.
 */
TEST_F(comfort, grant_that_fails_leaves_nothing)
{
	struct ib_memreg_bind bind = {
		.mr_id = self->owner.mr.id,
		.length = MEMORY + 1,
		.access = REMOTE_RW,
	};
	struct memreg *m = self->owner.m;
	uint32_t domain = self->owner.domain, window;
	char data[MEMREG_GRANT_SIZE];
	struct state before;

	ASSERT_EQ(0, state_get(&before));
	EXPECT_EQ(-EINVAL, memreg_window_grant(m, domain, &bind, data));
	EXPECT_EQ(0, bind.window_id);
	EXPECT_EQ(IB_MEMREG_REASON_RANGE, memreg_reason_code());
	bind.length = UINT64_MAX;
	EXPECT_EQ(-EINVAL, memreg_window_grant(m, domain, &bind, data));
	EXPECT_EQ(0, bind.window_id);
	EXPECT_TRUE(state_same(&before));
	state_free(&before);

	ASSERT_EQ(0, memreg_window_alloc(m, domain, IB_MEMREG_WINDOW_TYPE1,
					 4096, &window, 1));
	bind.window_id = window;
	bind.length = 8192;
	EXPECT_EQ(-EINVAL, memreg_window_grant(m, domain, &bind, data));
	EXPECT_EQ(window, bind.window_id);
	EXPECT_EQ(0, memreg_window_free(m, window));
}

/*
 * Lists of grants
 */

#define ROWS		40U
#define ROW		100U
#define ROW_STRIDE	1500U

/* The peer WRITEs a composition of the owner's, with a key for each row. */
TEST_F_TIMEOUT(comfort, grants_of_a_composition_reach_its_bytes, LIMIT_S)
{
	struct ib_memreg_piece piece;
	struct memreg_grant grants[ROWS], *sent;
	struct ib_memreg_wr wrs[ROWS];
	unsigned int i, count = 0;
	struct memreg_mr rows;
	char *list;
	int n;

	request(_metadata, self);
	let_in(_metadata, self, NULL, 0);
	await(_metadata, &self->peer, IB_MEMREG_EVENT_ESTABLISHED);
	piece = memreg_piece_2d(self->owner.mr.id, 7, ROW, ROW_STRIDE, ROWS);
	ASSERT_EQ(0, memreg_mr_compose(self->owner.m, self->owner.domain,
				       &piece, 1, LOCAL_WRITE | REMOTE_RW, 0,
				       &rows)) {
		TH_LOG("%s", memreg_reason());
	}
	EXPECT_EQ(-ENOSPC, memreg_mr_grants(self->owner.m, rows.id, NULL,
					    &count));
	ASSERT_EQ(rows.segments, count);
	ASSERT_LT(1, count);
	ASSERT_GE(ROWS, count);
	sent = calloc(count, sizeof(*sent));
	ASSERT_EQ(0, memreg_mr_grants(self->owner.m, rows.id, sent, &count));
	list = malloc(MEMREG_GRANTS_SIZE(count));
	memreg_grants_encode(sent, count, list);

	i = ROWS;
	ASSERT_EQ(0, memreg_grants_decode(list, MEMREG_GRANTS_SIZE(count),
					  grants, &i));
	ASSERT_EQ(count, i);
	EXPECT_EQ(0, memcmp(sent, grants, count * sizeof(*sent)));
	free(list);
	free(sent);
	for (i = 0; i < ROWS * ROW; i++)
		self->peer.memory[i] = (char)(i / ROW + i % ROW + 1);
	n = memreg_transfer_plan(&self->peer.mr, 0, grants, count,
				 IB_MEMREG_OP_WRITE, self->peer.endpoint, wrs,
				 ROWS);
	ASSERT_EQ(count, n);
	ASSERT_EQ(0, memreg_submit(self->peer.m, wrs, (unsigned int)n, NULL));
	EXPECT_EQ(IB_MEMREG_WC_SUCCESS, next(_metadata, &self->peer)->status);
	for (i = 0; i < ROWS * ROW_STRIDE; i++) {
		unsigned int row = i / ROW_STRIDE, at = i % ROW_STRIDE - 7;

		ASSERT_EQ(at < ROW ? (char)(row + at + 1) : 0,
			  self->owner.memory[i]) {
			TH_LOG("byte %u", i);
		}
	}
	ASSERT_EQ(0, memreg_mr_deregister(self->owner.m, rows.id));
}

TEST_F(comfort, grants_of_what_has_none)
{
	struct memreg_grant grant;
	unsigned int count = 1;

	EXPECT_EQ(-EACCES, memreg_mr_grants(self->owner.m, self->owner.mr.id,
					    &grant, &count));
	EXPECT_EQ(-ENOENT, memreg_mr_grants(self->owner.m, 12345, &grant,
					    &count));
	EXPECT_STREQ("mr_query: this handle has no MR 12345 (ENOENT)",
		     memreg_reason());
}

/* A list as it is on the wire, of whose grants the last is (iova, length) */
static size_t make_list(char *buf, unsigned int count, uint64_t iova,
			uint64_t length)
{
	struct memreg_grant grants[3] = {
		{ .iova = 4096, .length = 4096, .rkey = 1, .access = 1 },
		{ .iova = UINT64_MAX - 4095, .length = 4096, .rkey = 2 },
		{ .iova = 1, .length = 1, .rkey = 3, .access = 7 },
	};

	grants[count - 1].iova = iova;
	grants[count - 1].length = length;
	memreg_grants_encode(grants, count, buf);
	return MEMREG_GRANTS_SIZE(count);
}

/* Expect a failure that writes nothing to what the caller has. */
static void refused(struct __test_metadata *_metadata, int err,
		    const char *buf, size_t len)
{
	struct memreg_grant grants[4], before[4];
	unsigned int count = 4;
	char *copy = malloc(len);

	memset(before, 0xa5, sizeof(before));
	memcpy(grants, before, sizeof(grants));
	/* It ends where the data does, for a sanitizer to see. */
	memcpy(copy, buf, len);
	EXPECT_EQ(err, memreg_grants_decode(copy, len, grants, &count)) {
		TH_LOG("%zu bytes: %s", len, memreg_reason());
	}
	EXPECT_EQ(4, count);
	EXPECT_EQ(0, memcmp(before, grants, sizeof(grants)));
	free(copy);
}

TEST(lists_of_grants_are_read_back)
{
	char buf[MEMREG_GRANTS_SIZE(3) + 8], one[MEMREG_GRANT_SIZE];
	struct memreg_grant grants[3] = { 0 };
	unsigned int count = 3;
	size_t len = make_list(buf + 1, 3, 8192, 10);

	/* Neither alignment nor padding behind it matters. */
	ASSERT_EQ(0, memreg_grants_decode(buf + 1, len + 7, grants, &count));
	EXPECT_EQ(3, count);
	EXPECT_EQ(4096, grants[0].iova);
	EXPECT_EQ(UINT64_MAX - 4095, grants[1].iova);
	EXPECT_EQ(4096, grants[1].length);
	EXPECT_EQ(2, grants[1].rkey);
	EXPECT_EQ(8192, grants[2].iova);
	EXPECT_EQ(10, grants[2].length);
	EXPECT_EQ(7, grants[2].access);
	count = 2;
	EXPECT_EQ(-ENOSPC, memreg_grants_decode(buf + 1, len, grants, &count));
	EXPECT_EQ(3, count);
	count = 0;
	EXPECT_EQ(-ENOSPC, memreg_grants_decode(buf + 1, len, NULL, &count));
	EXPECT_EQ(3, count);

	/* A single grant is a list of one, and a list is no single grant. */
	memreg_grant_encode(&grants[2], one);
	ASSERT_EQ(0, memreg_grants_decode(one, sizeof(one), grants, &count));
	EXPECT_EQ(1, count);
	EXPECT_EQ(8192, grants[0].iova);
	EXPECT_EQ(-EOPNOTSUPP, memreg_grant_decode(buf + 1, len, grants));
	count = 0;
	EXPECT_EQ(-ENOSPC, memreg_grants_decode(one, sizeof(one), NULL,
						&count));
	EXPECT_EQ(1, count);
}

TEST(lists_of_grants_from_hostile_peers_are_refused)
{
	char buf[MEMREG_GRANTS_SIZE(3)], one[MEMREG_GRANT_SIZE];
	static const uint32_t counts[] = { 0, 4, 0x10000, 0x10001, 0x0aaaaaab,
					   0xffffffff };
	struct memreg_grant empty = { .iova = 1 };
	size_t i, len = make_list(buf, 3, 1, 1);
	uint32_t count;

	for (i = 0; i < len; i++)
		refused(_metadata, -EINVAL, buf, i);
	for (i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		count = htonl(counts[i]);
		memcpy(buf + 8, &count, sizeof(count));
		refused(_metadata, -EINVAL, buf, len);
	}
	make_list(buf, 3, 1, 0);
	refused(_metadata, -EINVAL, buf, len);
	make_list(buf, 3, UINT64_MAX, 2);
	refused(_metadata, -EINVAL, buf, len);
	EXPECT_STREQ("grants_decode: a grant is empty, or wraps around: grant 2 (EINVAL)",
		     memreg_reason());
	/* Each is no longer than an address space, and their sum is. */
	make_list(buf, 3, 1, UINT64_MAX);
	refused(_metadata, -EINVAL, buf, len);
	make_list(buf, 3, 1, 1);
	buf[5] = 3;
	refused(_metadata, -EOPNOTSUPP, buf, len);
	buf[5] = 2;
	buf[0]++;
	refused(_metadata, -EINVAL, buf, len);
	memreg_grant_encode(&empty, one);
	refused(_metadata, -EINVAL, one, sizeof(one));
	refused(_metadata, -EINVAL, one, sizeof(one) - 1);
}

/*
 * Receives
 */

TEST_F_TIMEOUT(comfort, receives_by_the_hundred, LIMIT_S)
{
	__u64 failed, now;
	unsigned int taken = 0;
	uint32_t endpoint;

	ASSERT_EQ(0, raw_stat(memreg_fd(self->owner.m),
			      IB_MEMREG_STAT_WRS_FAILED, &failed));
	endpoint = request(_metadata, self).endpoint_id;
	set_up(_metadata, self);
	EXPECT_EQ(0, memreg_submit_recvs(self->owner.m, endpoint,
					 self->owner.mr.id, 0, 16, 1000, 0,
					 &taken));
	EXPECT_EQ(0, taken);
	/*
	 * More receives than one call takes, and more than the queue has room
	 * for
	 */
	EXPECT_EQ(-EAGAIN, memreg_submit_recvs(self->owner.m, endpoint,
					       self->owner.mr.id, 0, 16, 1000,
					       400, &taken));
	EXPECT_EQ(QUEUE, taken);
	EXPECT_EQ(0, memreg_destroy(self->owner.m, endpoint));
	ASSERT_EQ(QUEUE, memreg_ring_ready(&self->owner.ring));
	EXPECT_EQ(IB_MEMREG_WC_WR_FLUSH_ERR,
		  memreg_ring_entry(&self->owner.ring, 0)->status);
	/* Receives that are flushed at the end did not fail. */
	ASSERT_EQ(0, raw_stat(memreg_fd(self->owner.m),
			      IB_MEMREG_STAT_WRS_FAILED, &now));
	EXPECT_EQ(failed, now);
	EXPECT_EQ(1000, memreg_ring_entry(&self->owner.ring, 0)->user_data);
	EXPECT_EQ(1000 + QUEUE - 1,
		  memreg_ring_entry(&self->owner.ring, QUEUE - 1)->user_data);
	memreg_ring_seen(&self->owner.ring, QUEUE);
}

/*
 * Refusals
 */

TEST_F_TIMEOUT(comfort, refusal_says_why, LIMIT_S)
{
	uint32_t endpoint = request(_metadata, self).endpoint_id;
	struct ib_memreg_event event;

	ASSERT_EQ(0, memreg_refuse(self->owner.m, endpoint, "why", 4));
	EXPECT_EQ(-ENOENT, memreg_destroy(self->owner.m, endpoint));
	event = await(_metadata, &self->peer, IB_MEMREG_EVENT_REJECTED);
	EXPECT_STREQ("why", (char *)event.private_data);
	EXPECT_STREQ("the program that listens there rejects, without a reason that is known here",
		     memreg_event_reason(&event));
}

/* A peer that gave up keeps no place in the backlog. */
TEST_F_TIMEOUT(comfort, refusal_releases_who_has_gone, LIMIT_S)
{
	uint32_t endpoint = request(_metadata, self).endpoint_id;

	ASSERT_EQ(0, memreg_destroy(self->peer.m, self->peer.endpoint));
	await(_metadata, &self->owner, IB_MEMREG_EVENT_DISCONNECTED);
	EXPECT_EQ(-ENOTCONN, memreg_reject(self->owner.m, endpoint, NULL, 0));
	EXPECT_EQ(0, memreg_refuse(self->owner.m, endpoint, NULL, 0));
	EXPECT_EQ(-ENOENT, memreg_refuse(self->owner.m, endpoint, NULL, 0));
	EXPECT_EQ(-ENOENT, memreg_destroy(self->owner.m, endpoint));
}

TEST_F_TIMEOUT(comfort, nobody_listens_is_said, LIMIT_S)
{
	struct ib_memreg_event event;

	ASSERT_EQ(0, memreg_destroy(self->owner.m, self->listener));
	begin(_metadata, self);
	event = await(_metadata, &self->peer, IB_MEMREG_EVENT_REJECTED);
	EXPECT_STREQ("nobody listens on that port there",
		     memreg_event_reason(&event));
}

/*
 * Reasons
 */

#define EXPECT_REASON(_errno, _call, _reason)				\
	do {								\
		EXPECT_EQ(-(_errno), _call);				\
		EXPECT_STREQ(_reason, memreg_reason());			\
	} while (0)

TEST_F(comfort, reasons_name_devices)
{
	struct memreg_device devices[8];
	unsigned int i, count = 8, found = 0;
	struct memreg *m;

	ASSERT_EQ(0, memreg_list_devices(devices, &count));
	for (i = 0; i < count && i < 8; i++)
		found += devices[i].ports == 1 &&
			 (!strcmp(devices[i].name, OWNER_DEVICE) ||
			  !strcmp(devices[i].name, PEER_DEVICE));
	EXPECT_EQ(2, found);
	i = 0;
	EXPECT_EQ(0, memreg_list_devices(NULL, &i));
	EXPECT_EQ(count, i);
	if (count != 2)
		SKIP(return, "this machine has other devices");
	EXPECT_REASON(ENODEV, memreg_open(NULL, &m),
		      "open: there are 2 RDMA devices, and none was named (ENODEV); there are rxe_owner, rxe_peer");
	EXPECT_REASON(ENODEV, memreg_open("rxe9", &m),
		      "open: there is no RDMA device 'rxe9' here (ENODEV); there are rxe_owner, rxe_peer");
}

TEST_F(comfort, reasons_name_ids_and_numbers)
{
	struct memreg *m = self->owner.m;
	uint32_t domain = self->owner.domain, id;
	struct memreg_domain_info info;
	struct ib_memreg_wr wr;
	char byte = 0;

	EXPECT_REASON(ENOENT, memreg_domain_destroy(m, 77),
		      "domain_destroy: this handle has no domain 77 (ENOENT)");
	EXPECT_REASON(ENOENT, memreg_domain_query(m, 77, &info),
		      "domain_query: this handle has no domain 77 (ENOENT)");
	EXPECT_REASON(ENOENT, memreg_mr_deregister(m, 0),
		      "mr_deregister: 0 is the id of no object (ENOENT)");
	EXPECT_REASON(EBUSY, memreg_domain_destroy(m, domain),
		      "domain_destroy: domain 1 has 1 MR (EBUSY); destroy those first");
	EXPECT_REASON(ENOENT, memreg_accept(m, 77, domain, NULL, 0),
		      "accept: this handle has no endpoint 77 (ENOENT)");
	EXPECT_REASON(ENOENT, memreg_accept(m, 77, 78, NULL, 0),
		      "accept: this handle has no endpoint 77, and no domain 78 (ENOENT)");
	EXPECT_REASON(EINVAL,
		      memreg_window_alloc(m, domain, IB_MEMREG_WINDOW_TYPE1,
					  4096, &id, 257),
		      "window_alloc: a call allocates 1 to 256 windows: windows 257 (EINVAL); make several calls");
	EXPECT_REASON(EINVAL, memreg_accept(m, 77, domain, &byte, 70000),
		      "accept: more private data than the RDMA CM carries: bytes 70000 (EINVAL); `memreg caps` shows how much it is");
	memreg_prep_recv(&wr, 77, self->owner.mr.id, 0, 16, 0);
	EXPECT_REASON(ENOENT, memreg_submit(m, &wr, 1, NULL),
		      "submit: this handle has no receive queue 77 (ENOENT)");
	EXPECT_REASON(EAGAIN, memreg_get_event(m, &(struct ib_memreg_event) {},
					       0),
		      "get_event: no event within the time: milliseconds 0 (EAGAIN)");
	/*
	 * Where the kernel could not read an array, the library does not read
	 * it for its reason.
	 */
	EXPECT_EQ(-EFAULT, memreg_submit(m, (void *)8, 1, NULL));
	EXPECT_EQ(-EFAULT, memreg_window_bind(m, domain, (void *)8));
	EXPECT_EQ(-EFAULT, memreg_window_revoke_batch(m, domain, (void *)8, 1,
						      NULL));
}

TEST_F(comfort, reasons_name_addresses)
{
	struct memreg *m = self->owner.m;
	struct sockaddr_in other = self->at, any = self->at;
	struct sockaddr_in6 local = { .sin6_family = AF_INET6 };
	uint32_t domain = self->owner.domain, id;
	char expected[160];

#define CONNECT(_to) \
	memreg_connect(m, domain, (struct sockaddr *)(_to), NULL, 1000, NULL, \
		       0, &id)
	inet_pton(AF_INET, "192.0.2.77", &other.sin_addr);
	other.sin_port = 0;
	EXPECT_REASON(EADDRNOTAVAIL,
		      memreg_listen(m, (struct sockaddr *)&other, 1, &id),
		      "listen: this RDMA device has no such address: 192.0.2.77:0 (EADDRNOTAVAIL); `ip address` shows those of the network interface behind it");
	snprintf(expected, sizeof(expected),
		 "listen: somebody listens on this address and port already: 192.0.2.1:%u (EADDRINUSE); use another port; 0 takes a free one",
		 ntohs(self->at.sin_port));
	EXPECT_REASON(EADDRINUSE,
		      memreg_listen(m, (struct sockaddr *)&self->at, 1, &id),
		      expected);
	any.sin_addr.s_addr = 0;
	EXPECT_REASON(EINVAL, CONNECT(&any),
		      "connect: the wildcard address 0.0.0.0 is no peer's (EINVAL)");
	other.sin_port = 0;
	EXPECT_REASON(EINVAL, CONNECT(&other),
		      "connect: a peer does not listen on port 0 (EINVAL)");
	other.sin_family = AF_UNIX;
	EXPECT_REASON(EINVAL, CONNECT(&other),
		      "connect: the address is of family 1, neither IPv4 nor IPv6 (EINVAL)");
	EXPECT_REASON(EINVAL, CONNECT(NULL),
		      "connect: the address is NULL (EINVAL)");
	local.sin6_port = htons(1);
	inet_pton(AF_INET6, "fe80::1", &local.sin6_addr);
	EXPECT_REASON(EINVAL, CONNECT(&local),
		      "connect: the link-local address fe80::1 lacks its zone (EINVAL); write fe80::1%mr_owner");
}

/*
 * The same, with a text of printf(3), for reasons with numbers that are known
 * only at run time
 */
#define EXPECT_REASON_OF(_errno, _call, ...)				\
	do {								\
		char _line[480];					\
									\
		snprintf(_line, sizeof(_line), __VA_ARGS__);		\
		EXPECT_REASON(_errno, _call, _line);			\
	} while (0)

/* Reason codes with several causes: the text names the one that it was. */
TEST_F(comfort, reasons_of_mrs_are_one_cause)
{
	struct memreg *m = self->owner.m;
	uint32_t domain = self->owner.domain;
	struct memreg_mr mr = { .iova = 1 };
	char *at = self->owner.memory;

#define EXPECT_MR(_errno, _access, _flags, _cause, _end)		\
	EXPECT_REASON_OF(_errno,					\
			 memreg_mr_register(m, domain, at, 4096, _access, \
					    _flags, &mr),		\
		"mr_register: %s: 4096 bytes at 0x%lx, access 0x%x %s",	\
			 _cause, (unsigned long)at,			\
			 (unsigned int)(_access), _end)
	EXPECT_MR(EINVAL, 1u << 30, 0, "an access flag is unknown",
		  "(EINVAL)");
	EXPECT_MR(EINVAL, IB_MEMREG_ACCESS_REMOTE_WRITE, 0,
		  "remote write needs local write",
		  "(EINVAL); add IB_MEMREG_ACCESS_LOCAL_WRITE");
	EXPECT_MR(EINVAL, IB_MEMREG_ACCESS_REMOTE_ATOMIC, 0,
		  "remote atomic needs local write",
		  "(EINVAL); add IB_MEMREG_ACCESS_LOCAL_WRITE");
	EXPECT_MR(EINVAL, 0, IB_MEMREG_MR_IOVA,
		  "the I/O address differs from the memory's in the offset within a page of 4096 bytes",
		  "(EINVAL)");
	mr.iova = -4096UL;
	EXPECT_MR(EINVAL, 0, IB_MEMREG_MR_IOVA,
		  "I/O address plus length is more than 64 bits hold",
		  "(EINVAL)");
	EXPECT_MR(EINVAL, IB_MEMREG_ACCESS_ZERO_BASED, IB_MEMREG_MR_IOVA,
		  "what is zero-based can't have another I/O address",
		  "(EINVAL); leave out the I/O address or IB_MEMREG_ACCESS_ZERO_BASED");
	EXPECT_MR(EINVAL, 0, IB_MEMREG_MR_IMPLICIT,
		  "an implicit MR must be on demand",
		  "(EINVAL); add IB_MEMREG_MR_ON_DEMAND");
	EXPECT_MR(EINVAL, 0, IB_MEMREG_MR_IMPLICIT | IB_MEMREG_MR_ON_DEMAND,
		  "an implicit MR is the whole address space: address and length must be 0",
		  "(EINVAL)");
	EXPECT_MR(EINVAL, 0,
		  IB_MEMREG_MR_ON_DEMAND | IB_MEMREG_MR_UNGUARDED,
		  "an MR on demand can't be unguarded",
		  "(EINVAL); leave out IB_MEMREG_MR_UNGUARDED or IB_MEMREG_MR_ON_DEMAND");
	EXPECT_REASON(EBADF,
		      memreg_mr_register_fd(m, domain, 999, 0, 4096, 0, 0, &mr),
		      "mr_register_fd: the descriptor is not open: descriptor 999 (EBADF)");
	EXPECT_REASON(EINVAL,
		      memreg_mr_register_fd(m, domain, 999, 0, 4096, 0,
					    IB_MEMREG_MR_ON_DEMAND, &mr),
		      "mr_register_fd: the MR of a descriptor can't be on demand: descriptor 999, length 4096 (EINVAL); leave out IB_MEMREG_MR_ON_DEMAND");
	EXPECT_REASON_OF(EBADF,
			 memreg_mr_register_fd(m, domain, memreg_fd(m), 0, 4096,
					       0, 0, &mr),
			 "mr_register_fd: the descriptor is not one of a dma-buf: descriptor %d (EBADF); memreg_memory_create() makes one",
			 memreg_fd(m));
}

TEST_F(comfort, reasons_of_windows_are_one_cause)
{
	struct ib_memreg_bind bind = { .length = 4096 };
	uint32_t domain = self->owner.domain, ids[2];
	struct memreg *m = self->owner.m;

#define ALLOC(_span) \
	memreg_window_alloc(m, domain, IB_MEMREG_WINDOW_TYPE1, _span, ids, 2)
	EXPECT_REASON(EINVAL, ALLOC(0),
		      "window_alloc: the span is 0: bytes 0 (EINVAL)");
	EXPECT_REASON(EINVAL, ALLOC(1UL << 40),
		      "window_alloc: the span is more than one key of this device covers: bytes 1099511627776 (EINVAL); `memreg caps` shows it: a window has 4096 bytes less; use several");
	ASSERT_EQ(0, ALLOC(8192));
	bind.mr_id = self->owner.mr.id;
	bind.window_id = ids[0];
	EXPECT_REASON_OF(EINVAL, memreg_window_bind(m, domain, &bind),
			 "window_bind: the window has no remote access: window %u, MR %u (EINVAL); add IB_MEMREG_ACCESS_REMOTE_READ, for one",
			 ids[0], bind.mr_id);
	bind.access = IB_MEMREG_ACCESS_LOCAL_WRITE | REMOTE_RW;
	EXPECT_REASON_OF(EINVAL, memreg_window_bind(m, domain, &bind),
			 "window_bind: a window can't have an access flag that is set: window %u, MR %u (EINVAL); windows take remote access, flushes and ZERO_BASED",
			 ids[0], bind.mr_id);
	bind.access = REMOTE_RW;
	bind.offset = MEMORY - 1;
	EXPECT_REASON_OF(EINVAL, memreg_window_bind(m, domain, &bind),
			 "window_bind: the range is not inside the MR: MR %u, offset 65535, length 4096 (EINVAL)",
			 bind.mr_id);
	bind.offset = -1UL;
	EXPECT_REASON_OF(EOVERFLOW, memreg_window_bind(m, domain, &bind),
			 "window_bind: offset plus length is more than 64 bits hold: MR %u, offset 18446744073709551615, length 4096 (EOVERFLOW)",
			 bind.mr_id);
	bind.offset = 0;
	ASSERT_EQ(0, memreg_window_bind(m, domain, &bind));
	EXPECT_REASON_OF(EBUSY, memreg_window_bind(m, domain, &bind),
			 "window_bind: the window is bound already: window %u, MR %u (EBUSY); revoke it, or end one of type 2B by an INVALIDATE, first",
			 ids[0], bind.mr_id);
	ids[1] = ids[0];
	EXPECT_REASON_OF(EBUSY,
			 memreg_window_revoke_batch(m, domain, ids, 2, NULL),
			 "window_revoke: the window is named twice: window %u (EBUSY); name each window once",
			 ids[0]);
	EXPECT_EQ(0, memreg_window_revoke(m, domain, ids[0]));
}

TEST_F(comfort, reasons_of_domains_and_rings_are_one_cause)
{
	struct memreg_ring *ring = &self->owner.ring;
	struct memreg *m = self->owner.m;
	uint32_t id;

	EXPECT_REASON(EINVAL, memreg_domain_create(m, 77, &id),
		      "domain_create: the RDMA device has no such port: port 77 (EINVAL); `rdma link` shows the ports; 0 takes one that works");
	EXPECT_REASON(EINVAL, memreg_ring_wait(ring, 0, 0, NULL),
		      "ring_wait: it can't wait for 0 entries: entries 0 (EINVAL)");
	EXPECT_REASON(EINVAL, memreg_ring_wait(ring, 100000, 0, NULL),
		      "ring_wait: the ring has fewer entries: entries 100000 (EINVAL)");
	ASSERT_EQ(0, memreg_srq_create(m, self->owner.domain, ring->id, 4, 1, 0,
				       &id));
	/* that of the other handle has the same id, and no users */
	ASSERT_EQ(0, memreg_destroy(self->peer.m, self->peer.ring.id));
	EXPECT_REASON_OF(EBUSY, memreg_destroy(m, ring->id),
			 "destroy: ring %u serves 1 queue (EBUSY); destroy its endpoints and shared receive queues first",
			 ring->id);
	EXPECT_EQ(0, memreg_destroy(m, id));
}

TEST_F_TIMEOUT(comfort, reasons_of_queues_are_one_cause, LIMIT_S)
{
	struct ib_memreg_queues queues;
	uint32_t ep = request(_metadata, self).endpoint_id;

#define SEND_QUEUE \
	"a send queue has a ring, max_send and max_send_sge, and without these there is no max_inline"
#define RECV_QUEUE \
	"a receive queue has a ring, max_recv and max_recv_sge, or none of these"
#define EXPECT_SETUP_OF(_field, _value, _text, ...)			\
	do {								\
		queues = queues_of(&self->owner);			\
		queues._field = (_value);				\
		EXPECT_REASON_OF(EINVAL,				\
				 memreg_setup(self->owner.m, ep,	\
					      self->owner.domain,	\
					      &queues),			\
				 "setup: " _text, __VA_ARGS__);		\
	} while (0)
#define EXPECT_SETUP(_field, _value, _text)				\
	EXPECT_SETUP_OF(_field, _value, "%s", _text)
	EXPECT_SETUP_OF(max_send, 0, SEND_QUEUE ": ring %u, max_send_sge 1 (EINVAL)",
			self->owner.ring.id);
	EXPECT_SETUP_OF(max_send_sge, 0, SEND_QUEUE ": ring %u, max_send 100 (EINVAL)",
			self->owner.ring.id);
	EXPECT_SETUP_OF(send_ring_id, 0, SEND_QUEUE ": max_send %u, max_send_sge 1 (EINVAL)",
			QUEUE);
	EXPECT_SETUP_OF(recv_ring_id, 0, RECV_QUEUE ": max_recv %u, max_recv_sge 1 (EINVAL)",
			QUEUE);
	EXPECT_SETUP_OF(max_recv_sge, 0, RECV_QUEUE ": ring %u, max_recv 100 (EINVAL)",
			self->owner.ring.id);
	EXPECT_SETUP(max_recv, 1 << 30,
		     "a queue is to be deeper than the device allows: max_send 100, max_recv 1073741824 (EINVAL); `memreg caps` shows how many work requests a queue has");
	EXPECT_SETUP(max_send_sge, 17,
		     "a work request is to have more than 16 SGEs: max_send_sge 17, max_recv_sge 1 (EINVAL)");
	EXPECT_SETUP(max_inline, 257,
		     "max_inline is more than 256: max_inline 257 (EINVAL)");
	set_up(_metadata, self);
	queues = queues_of(&self->owner);
	EXPECT_REASON_OF(EBUSY,
			 memreg_setup(self->owner.m, ep, self->owner.domain,
				      &queues),
			 "setup: the endpoint has its queues already: endpoint %u, domain %u, ring %u (EBUSY)",
			 ep, self->owner.domain, self->owner.ring.id);
}

/* Calls that fail because of the state of an endpoint name the state. */
TEST_F_TIMEOUT(comfort, reasons_name_states, LIMIT_S)
{
	uint32_t ep, domain = self->owner.domain, mr = self->owner.mr.id;
	struct memreg *m = self->owner.m;
	struct ib_memreg_wr wr;

	ep = request(_metadata, self).endpoint_id;
	memreg_prep_send(&wr, ep, mr, 0, 16);
	EXPECT_REASON(EINVAL, memreg_submit(m, &wr, 1, NULL),
		      "submit: the endpoint was made without the queue that the work request is for: work request 0 (EINVAL); give it one: memreg_connect_queues(), memreg_setup()");
	set_up(_metadata, self);
	EXPECT_REASON_OF(ENOTCONN, memreg_submit(m, &wr, 1, NULL),
			 "submit: endpoint %u is not accepted yet (ENOTCONN)",
			 ep);
	let_in(_metadata, self, NULL, 0);
	await(_metadata, &self->peer, IB_MEMREG_EVENT_ESTABLISHED);
	await(_metadata, &self->owner, IB_MEMREG_EVENT_ESTABLISHED);
	EXPECT_REASON_OF(ENOTCONN, memreg_accept(m, ep, domain, NULL, 0),
			 "accept: endpoint %u was accepted already (ENOTCONN)",
			 ep);
	ASSERT_EQ(0, memreg_disconnect(self->peer.m, self->peer.endpoint));
	await(_metadata, &self->owner, IB_MEMREG_EVENT_DISCONNECTED);
	EXPECT_REASON_OF(ENOTCONN, memreg_submit(m, &wr, 1, NULL),
			 "submit: the connection of endpoint %u is over (ENOTCONN)",
			 ep);
	memreg_prep_recv(&wr, ep, mr, 0, 16, 0);
	EXPECT_REASON_OF(ENOTCONN, memreg_submit(m, &wr, 1, NULL),
			 "submit: the connection of endpoint %u is over (ENOTCONN)",
			 ep);
}

TEST_F_TIMEOUT(comfort, reasons_of_work_requests_are_one_cause, LIMIT_S)
{
	uint32_t mr = self->owner.mr.id, ep;
	struct ib_memreg_sge sges[2] = {
		{ .mr_id = mr, .length = 8 }, { .mr_id = mr, .length = 8 },
	};
	struct ib_memreg_wr wr;
	char data[64];

	ep = request(_metadata, self).endpoint_id;
	set_up(_metadata, self);
	let_in(_metadata, self, NULL, 0);
	await(_metadata, &self->owner, IB_MEMREG_EVENT_ESTABLISHED);
#define EXPECT_WR(_change, _text)					\
	do {								\
		memreg_prep_send(&wr, ep, mr, 0, 16);			\
		_change;						\
		EXPECT_REASON(EINVAL,					\
			      memreg_submit(self->owner.m, &wr, 1, NULL), \
			      "submit: " _text);			\
	} while (0)
	EXPECT_WR(wr.opcode = 99,
		  "there is no such opcode: opcode 99 (EINVAL)");
	EXPECT_WR(wr.num_sge = 17,
		  "a work request has up to 16 SGEs: SGEs 17 (EINVAL)");
	EXPECT_WR(wr.num_sge = 2; wr.sges = (uintptr_t)sges;
		  memset(&wr.sge, 0, sizeof(wr.sge)),
		  "there are more SGEs than the queue was made for: SGEs 2 (EINVAL); max_send_sge or max_recv_sge of the queue is the limit");
	EXPECT_WR(memreg_prep_fetch_add(&wr, ep, mr, 0, 1, 1, 1),
		  "the remote address of an atomic is no multiple of 8: work request 0 (EINVAL)");
	EXPECT_WR(memreg_prep_fetch_add(&wr, ep, mr, 0, 8, 1, 1);
		  wr.sge.length = 4,
		  "an atomic has a length of 8: work request 0 (EINVAL)");
	EXPECT_WR(memreg_wr_inline(&wr, data, sizeof(data)),
		  "the inline data is longer than max_inline of the send queue: work request 0 (EINVAL); memreg_connect_queues() and memreg_setup() take up to 256 bytes");
	EXPECT_WR(memreg_prep_invalidate(&wr, ep, 1);
		  wr.flags = IB_MEMREG_WR_INLINE,
		  "the opcode takes no inline data: work request 0 (EINVAL)");
}

/* Memory is looked at when somebody asks. */
TEST_F(comfort, reasons_name_memory)
{
	struct end *e = &self->owner;
	char *at = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			0);
	struct memreg_mr mr;

	ASSERT_NE(MAP_FAILED, at);
	ASSERT_EQ(0, munmap(at + 4096, 4096));
	EXPECT_REASON_OF(EFAULT,
			 memreg_mr_register(e->m, e->domain, at, 8192, 0, 0,
					    &mr),
			 "mr_register: nothing is mapped at an address of the range: 8192 bytes at 0x%lx, access 0x0, the first at 0x%lx (EFAULT)",
			 (long)at, (long)at + 4096);
	EXPECT_REASON_OF(EFAULT,
			 memreg_mr_register(e->m, e->domain, at, 4096,
					    IB_MEMREG_ACCESS_LOCAL_WRITE, 0,
					    &mr),
			 "mr_register: the memory is not mapped for writing: 4096 bytes at 0x%lx, access 0x1, the first at 0x%lx (EFAULT); map it with PROT_WRITE, or leave out IB_MEMREG_ACCESS_LOCAL_WRITE",
			 (long)at, (long)at);
	munmap(at, 4096);
}

/* ulimit -l is advised where it helps. Root is not limited. */
TEST_F(comfort, reasons_name_limits)
{
	struct rlimit limit = { .rlim_cur = 8192, .rlim_max = 1 << 20 };
	struct end *e = &self->owner;
	struct memreg_mr mr;

	ASSERT_EQ(0, setrlimit(RLIMIT_MEMLOCK, &limit));
	ASSERT_EQ(0, syscall(SYS_setresuid, -1, 65534, -1));
	EXPECT_REASON(ENOMEM, memreg_mr_register(e->m, e->domain, e->memory,
						 16384, 0, 0, &mr),
		      "mr_register: 16384 bytes more than are locked already would exceed RLIMIT_MEMLOCK, 8192 bytes (ENOMEM); raise it with `ulimit -l 1024`");
	limit.rlim_max = 8192;
	ASSERT_EQ(0, setrlimit(RLIMIT_MEMLOCK, &limit));
	EXPECT_REASON(ENOMEM, memreg_mr_register(e->m, e->domain, e->memory,
						 16384, 0, 0, &mr),
		      "mr_register: 16384 bytes more than are locked already would exceed RLIMIT_MEMLOCK, 8192 bytes (ENOMEM); deregister something, or raise it in limits.conf(5) or by LimitMEMLOCK= of the service");
	ASSERT_EQ(0, syscall(SYS_setresuid, -1, 0, -1));
}

PEER_HARNESS_MAIN
