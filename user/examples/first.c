// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* A first program: grant a peer a window on memory until it has gone */
#include <arpa/inet.h>
#include <stdio.h>
#include <memreg.h>

static char memory[4096] __attribute__((aligned(4096)));

#define DO(call) do { if (call) return fprintf(stderr, "%s\n", memreg_reason()), 1; } while (0)

int main(int argc, char **argv)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(7471) };
	uint32_t domain, listener, access = IB_MEMREG_ACCESS_REMOTE_READ | IB_MEMREG_ACCESS_REMOTE_WRITE;
	struct ib_memreg_event event;
	struct ib_memreg_bind bind = { .length = sizeof(memory), .access = access };
	unsigned char data[MEMREG_GRANT_SIZE];
	struct memreg_mr mr;
	struct memreg *m;

	DO(memreg_open(argc > 1 ? argv[1] : NULL, &m));	/* NULL: the only RDMA device */
	DO(memreg_domain_create(m, 0, &domain));
	DO(memreg_mr_register(m, domain, memory, sizeof(memory),
			      IB_MEMREG_ACCESS_MW_BIND | IB_MEMREG_ACCESS_LOCAL_WRITE, 0, &mr));
	DO(memreg_window_alloc(m, domain, IB_MEMREG_WINDOW_TYPE1, mr.length, &bind.window_id, 1));
	DO(memreg_listen(m, (struct sockaddr *)&at, 1, &listener));

	DO(memreg_get_event(m, &event, -1));	/* a peer asks to connect */
	bind.mr_id = mr.id;
	bind.endpoint_id = event.endpoint_id;
	DO(memreg_window_bind(m, domain, &bind));
	memreg_grant_encode(&(struct memreg_grant) { bind.out_iova, bind.length, bind.out_rkey, access }, data);
	DO(memreg_accept(m, event.endpoint_id, domain, data, sizeof(data)));

	do	/* the peer reads and writes memory as it likes */
		DO(memreg_get_event(m, &event, -1));
	while (event.type != IB_MEMREG_EVENT_DISCONNECTED);
	DO(memreg_window_revoke(m, domain, bind.window_id));	/* it is out; this makes sure */
	printf("it left behind: %.64s\n", memory);
	memreg_close(m);
	return 0;
}
