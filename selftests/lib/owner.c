// SPDX-License-Identifier: GPL-2.0-only
/* The owner of memory, by the library. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include "net.h"
#include "owner.h"
#include "test.h"

void owner_listen(struct __test_metadata *_metadata, struct owner *o,
		  const char *ip, unsigned int backlog)
{
	struct sockaddr_storage ss;
	struct sockaddr *addr = ip_address(ip, 0, &ss);

	ASSERT_EQ(0, memreg_listen(o->m, addr, backlog, &o->listener))
		TH_LOG("%s", memreg_reason());
	/* sin_port and sin6_port are at the same offset. */
	o->port = ntohs(((struct sockaddr_in *)addr)->sin_port);
}

void owner_open(struct __test_metadata *_metadata, struct owner *o)
{
	ASSERT_EQ(0, memreg_open(OWNER_DEVICE, &o->m))
		TH_LOG("%s", memreg_reason());
	ASSERT_EQ(0, memreg_domain_create(o->m, 0, &o->domain))
		TH_LOG("%s", memreg_reason());
	owner_listen(_metadata, o, OWNER_IP4, 16);
}

void owner_close(struct owner *o)
{
	memreg_close(o->m);
	o->m = NULL;
}

uint32_t owner_await(struct __test_metadata *_metadata, struct owner *o,
		     uint32_t type, struct ib_memreg_event *event)
{
	struct ib_memreg_event local;

	event = event ?: &local;
	ASSERT_EQ(0, memreg_get_event(o->m, event, LIMIT_MS))
		TH_LOG("no event of type %u: %s", type, memreg_reason());
	ASSERT_EQ(type, event->type)
		TH_LOG("endpoint %u, status %d", event->endpoint_id,
		       event->status);
	ASSERT_EQ(sizeof(*event), event->size);
	return event->endpoint_id;
}

void owner_no_event(struct __test_metadata *_metadata, struct owner *o)
{
	struct ib_memreg_event event;

	ASSERT_EQ(-EAGAIN, memreg_get_event(o->m, &event, 0))
		TH_LOG("event of type %u", event.type);
}

void owner_accept(struct __test_metadata *_metadata, struct owner *o,
		  uint32_t endpoint, uint32_t domain,
		  const struct memreg_grant *g)
{
	uint8_t data[MEMREG_GRANT_SIZE];

	if (g)
		memreg_grant_encode(g, data);
	ASSERT_EQ(0, memreg_accept(o->m, endpoint, domain, data,
				   g ? sizeof(data) : 0))
		TH_LOG("%s", memreg_reason());
	owner_await(_metadata, o, IB_MEMREG_EVENT_ESTABLISHED, NULL);
}

uint32_t owner_admit(struct __test_metadata *_metadata, struct owner *o,
		     struct peer *p, uint32_t domain,
		     const struct memreg_grant *g)
{
	uint32_t endpoint;

	endpoint = owner_await(_metadata, o, IB_MEMREG_EVENT_CONNECT_REQUEST,
			       NULL);
	owner_accept(_metadata, o, endpoint, domain, g);
	peer_answer(_metadata, p);
	ASSERT_EQ(0, strncmp(p->line, "connected ", 10))
		TH_LOG("the peer said: %s", p->line);
	return endpoint;
}

uint32_t owner_admit_again(struct __test_metadata *_metadata, struct owner *o,
			   struct peer *p, uint32_t endpoint)
{
	peer_ask(_metadata, p, "disconnect");
	owner_await(_metadata, o, IB_MEMREG_EVENT_DISCONNECTED, NULL);
	ASSERT_EQ(0, memreg_destroy(o->m, endpoint));
	peer_tell(_metadata, p, "conn");
	return owner_admit(_metadata, o, p, o->domain, NULL);
}

void owner_bind(struct __test_metadata *_metadata, struct owner *o,
		uint32_t domain, struct ib_memreg_bind *bind,
		struct memreg_grant *g)
{
	ASSERT_EQ(0, memreg_window_bind(o->m, domain, bind))
		TH_LOG("%s", memreg_reason());
	ASSERT_NE(0, bind->out_rkey);
	*g = (struct memreg_grant) {
		.iova = bind->out_iova,
		.length = bind->length,
		.rkey = bind->out_rkey,
		.access = bind->access,
	};
}
