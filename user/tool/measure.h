/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Declarations that the files of memreg bw and memreg lat share */
#ifndef MEMREG_TOOL_MEASURE_H
#define MEMREG_TOOL_MEASURE_H

#include "link.h"

#define MEASURE_SIZE_MAX	(UINT64_C(1) << 20)
#define MEASURE_DEPTH_MAX	128
#define MEASURE_SAMPLES		(UINT64_C(1) << 20)

enum op { OP_WRITE, OP_READ, OP_SEND };

extern const char *const measure_ops[];

/* The client's request, as private data; all in network byte order */
struct measure_request {
	uint32_t magic;		/* MEASURE_MAGIC */
	uint32_t op;
	uint32_t size;
	uint32_t depth;
	uint32_t echo;		/* messages are to be answered */
};

/*
 * Private data with which the server accepts. Nothing is measured without it:
 * the memory of any other program that accepts, such as memreg serve, must not
 * be written to.
 */
struct measure_answer {
	uint32_t magic;		/* MEASURE_MAGIC, network byte order */
	char grant[MEMREG_GRANT_SIZE];
};

#define MEASURE_MAGIC	UINT32_C(0x6d656173)	/* "meas" */

struct measure {
	/* as the options have it */
	const char *device;
	const char *address;
	uint16_t port;
	uint32_t timeout_ms;
	uint64_t count;		/* operations, or 0 */
	uint64_t duration;	/* nanoseconds, or 0 */
	uint64_t size;		/* of each, or of the largest with @all */
	uint64_t depth;
	enum op op;
	bool all;		/* sizes up to @size */
	bool server;
	bool lat;
	bool json;

	struct memreg *m;
	uint32_t domain;
	uint32_t endpoint;
	struct memreg_ring ring;
	struct memreg_mr mr;
	char *memory;
	struct memreg_grant grant;
	uint64_t now;			/* size of what is under way */
	uint64_t done;
	int64_t start, shown, end;	/* nanoseconds */
	bool progress;
	uint32_t *samples;		/* nanoseconds each, of lat */
};

/* measure_link.c: what either side does */
int measure_open(struct measure *s);
struct ib_memreg_queues measure_queues(const struct measure *s);
int measure_post_receives(struct measure *s);
void measure_prep_receive(const struct measure *s, struct ib_memreg_wr *wr,
			  uint64_t slot);
/* An operation of @s->now bytes */
void measure_prep(const struct measure *s, struct ib_memreg_wr *wr);

/* measure_server.c: wait for a client and serve it; the exit status */
int measure_serve(struct measure *s);

/* measure_report.c: what came of one size */
int measure_report(struct measure *s);
double measure_rate(const struct measure *s, int64_t now);	/* MiB/s */

#endif /* MEMREG_TOOL_MEASURE_H */
