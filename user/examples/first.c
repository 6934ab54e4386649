// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* A first program: grant a peer a window on memory until it has gone */
#include <arpa/inet.h>
#include <err.h>
#include <stdio.h>
#include <memreg.h>

#define MAY (IB_MEMREG_ACCESS_REMOTE_READ | IB_MEMREG_ACCESS_REMOTE_WRITE)
#define MEMORY (IB_MEMREG_ACCESS_MW_BIND | IB_MEMREG_ACCESS_LOCAL_WRITE)

static char memory[4096];

static void must(int result)
{
	if (result)
		errx(1, "%s", memreg_reason());
}

int main(int argc, char **argv)
{
	struct sockaddr_in at = { AF_INET, htons(7471), { INADDR_ANY }, { 0 } };
	struct ib_memreg_bind w = { .length = sizeof(memory), .access = MAY };
	uint32_t domain, listener;
	struct ib_memreg_event event;
	char data[MEMREG_GRANT_SIZE];
	struct memreg_mr mr;
	struct memreg *m;

	/* an RDMA device, or the only one; memory; a window; a port */
	must(memreg_open(argc > 1 ? argv[1] : NULL, &m));
	must(memreg_domain_create(m, 0, &domain));
	must(memreg_mr_register(m, domain, memory, sizeof(memory), MEMORY, 0,
				&mr));
	must(memreg_window_alloc(m, domain, IB_MEMREG_WINDOW_TYPE1, mr.length,
				 &w.window_id, 1));
	must(memreg_listen(m, (struct sockaddr *)&at, 1, &listener));

	/* a peer wants to connect: send it what it may use, and let it in */
	must(memreg_get_event(m, &event, -1));
	w.mr_id = mr.id;
	w.endpoint_id = event.endpoint_id;
	must(memreg_window_bind(m, domain, &w));
	memreg_grant_encode(&(struct memreg_grant) {
		w.out_iova, w.length, w.out_rkey, w.access }, data);
	must(memreg_accept(m, w.endpoint_id, domain, data, sizeof(data)));

	/* it reads and writes memory until it goes; others may ask meanwhile */
	do {
		must(memreg_get_event(m, &event, -1));
	} while (event.endpoint_id != w.endpoint_id ||
		 event.type != IB_MEMREG_EVENT_DISCONNECTED);
	must(memreg_window_revoke(m, domain, w.window_id));
	printf("it left behind: %.64s\n", memory);
	memreg_close(m);
	return 0;
}
