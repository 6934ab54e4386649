/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Declarations that the files of memreg-blkd share.
 *
 * One thread does all work that does not block: it takes completions and
 * events, and posts. Threads of job.c do file I/O that may block, and access
 * only the command that they are passed and its export.
 */
#ifndef MEMREG_BLKD_H
#define MEMREG_BLKD_H

#include <pthread.h>
#include <rdma/ib_memreg_blk.h>

#include "link.h"

#define BLKD_PAGE	4096u
#define BLKD_SEGS	(IB_MEMREG_BLK_SEGS_MAX * \
			 sizeof(struct ib_memreg_blk_seg))
#define BLKD_EXPORTS	64
#define BLKD_OPCODES	(IB_MEMREG_BLK_WRITE_ZEROES + 1)

/* As the options have it */
struct blkd_options {
	const char *device;
	const char *address;
	uint16_t port;
	uint64_t size;		/* of the only export; 0: there are paths */
	uint32_t block_size;	/* 0: that of the medium */
	uint32_t max_length;
	uint32_t inline_max;
	uint32_t queues_max;
	uint32_t depth_max;
	uint32_t clients_max;
	uint32_t threads;
	uint64_t buffers;	/* bytes */
	int64_t poll_ns;
	int64_t stats_ns;	/* 0: never by itself */
	int64_t timeout_ns;	/* for a reply to be taken, or silence */
	bool read_only;
	bool no_cache;
	bool write_cache;	/* memory says so as well */
};

enum export_kind { EXPORT_FILE, EXPORT_DISK, EXPORT_MEMORY };

struct export {
	char name[IB_MEMREG_BLK_EXPORT_MAX + 1];
	const char *path;
	enum export_kind kind;
	int fd;			/* -1 of memory */
	int *fds;		/* one for each thread, see io.c */
	unsigned int nr_fds;
	bool lost;		/* a sync failed; atomic */
	pthread_mutex_t lock;	/* of finding that out */
	struct cmd *held;	/* job.c has these three, and their lock */
	struct cmd **held_last;
	unsigned int busy;	/* threads */
	/* commands with exclusive access to the export; atomic */
	int exclusive;
	uint64_t capacity;
	uint32_t flags;		/* enum ib_memreg_blk_flags */
	uint32_t block_size;
	uint32_t physical;
	uint32_t granularity;	/* of discards */
	uint64_t instance;	/* another one may have lost data; or 0 */
	bool no_nowait;		/* writes can't be tried */
	char *memory;
	struct memreg_mr mr;	/* of @memory */
};

/*
 * export.c: @spec is [NAME=]PATH or [NAME=]memory:SIZE; the exit status.
 * From @exports on there are those that were opened before.
 */
int export_open(struct export *e, const struct export *exports,
		const char *spec, const struct blkd_options *options);
int export_register(struct export *e, struct memreg *m, uint32_t domain);
void export_close(struct export *e);
/* Present size in bytes, or -1 if that is unknown */
int64_t export_size(const struct export *e);
/* Read the size again. Returns true if it has changed. */
bool export_refresh(struct export *e);

struct conn;

struct seg {
	uint64_t addr;
	uint32_t length;
	uint32_t rkey;
};

/* A command, from its message to its reply */
struct cmd {
	struct conn *conn;
	struct cmd *next;	/* of those that wait, of a thread, or free */
	uint64_t seq;
	uint64_t offset;
	uint32_t length;
	uint16_t slot;		/* where its message stood */
	uint16_t tag;
	uint16_t nr_segs;
	uint16_t status;
	uint16_t room;		/* places of the send queue that it has */
	uint8_t opcode;
	uint8_t flags;
	bool valid;		/* if not, its connection ends with it */
	bool replayed;		/* it was done in an earlier epoch */
	uint32_t page;		/* its buffer in the slab */
	uint32_t pages;
	char *data;		/* where that is, or behind its message */
	int64_t start;
	struct seg segs[IB_MEMREG_BLK_SEGS_MAX];
};

/*
 * io.c: execute a command on its export, by system calls that may block, on
 * @fd, which no other thread uses; or only without blocking. Returns enum
 * ib_memreg_blk_status, or -EAGAIN
 */
int io_do(struct export *e, int fd, const struct cmd *c);
int io_try(struct export *e, const struct cmd *c);
/* Sync at the end. Returns false if written data was lost. */
bool io_end(struct export *e);

/*
 * job.c: threads that execute commands. jobs_take() returns those that are
 * done.
 */
struct jobs;
struct jobs *jobs_start(unsigned int threads, unsigned int exports);
void jobs_end(struct jobs *jobs);
int jobs_fd(const struct jobs *jobs);	/* readable if there may be some */
void jobs_add(struct jobs *jobs, struct cmd *c);
struct cmd *jobs_take(struct jobs *jobs);	/* a list, or NULL */
/* Take back the commands that no thread has begun. Returns their number. */
unsigned int jobs_cancel(struct jobs *jobs, const struct conn *conn);

/* slab.c: buffers for the data of files */
struct slab_run {
	uint32_t pages;
	uint32_t next;		/* first page of the next, from 1; or 0 */
};

struct slab {
	char *memory;
	struct memreg_mr mr;
	uint32_t pages;
	uint32_t next;		/* where to look first */
	uint8_t *used;
	struct slab_run *runs;	/* by the first page, of those that are kept */
};

int slab_open(struct slab *slab, struct memreg *m, uint32_t domain,
	      uint64_t bytes);
void slab_close(struct slab *slab, struct memreg *m);
bool slab_take(struct slab *slab, uint32_t pages, uint32_t *page);
void slab_give(struct slab *slab, uint32_t page, uint32_t pages);
/*
 * Free pages later, together with those that @kept already has; it is 0 at
 * first.
 */
void slab_keep(struct slab *slab, uint32_t *kept, uint32_t page,
	       uint32_t pages);
void slab_give_kept(struct slab *slab, uint32_t *kept);

/* outcome.c: outcomes of commands that changed data */
struct outcome {
	uint64_t seq;
	uint32_t epoch;
	uint16_t status;
	uint16_t next;
};

struct outcomes {
	uint32_t count;		/* ever */
	struct outcome of[IB_MEMREG_BLK_REMEMBERED];
	uint16_t first[IB_MEMREG_BLK_REMEMBERED];
};

const struct outcome *outcomes_find(const struct outcomes *o, uint64_t seq);
void outcomes_add(struct outcomes *o, uint64_t seq, uint32_t epoch,
		  uint16_t status);

/* A client that the server knows, whether or not it is connected */
struct client {
	struct client *next;
	uint8_t id[IB_MEMREG_BLK_CLIENT_SIZE];
	char name[2 * 4 + 1];	/* the beginning of @id, for people */
	uint32_t epoch;
	struct export *export;	/* that of this epoch, and so are: */
	uint16_t queues;
	uint64_t used;		/* those that it has had */
	unsigned int conns;	/* of any epoch, until they are forgotten */
	unsigned int up;
	int64_t seen;
	struct outcomes *outcomes;
	uint64_t commands;
	uint64_t bytes;
};

enum conn_state {
	CONN_ASKED,		/* to be accepted */
	CONN_UP,
	CONN_ENDED,		/* it has no endpoint any more */
};

struct conn {
	struct conn *next;
	struct conn *bucket;	/* next of the same hash */
	struct client *client;
	struct export *export;
	uint32_t endpoint;
	uint32_t epoch;
	uint16_t queue;
	uint16_t depth;
	uint16_t inline_max;	/* bytes of data that a message may have */
	uint32_t message;	/* bytes that a message may have */
	enum conn_state state;
	const char *broken;	/* why it is to end, or NULL if it is not */
	bool broken_off;	/* something of it could not be posted */
	bool last;		/* takes no more commands */
	bool established;
	uint32_t room;		/* places of the send queue that are free */
	uint32_t owed;		/* those of unsignalled replies */
	uint32_t max_send;
	bool starved;		/* one of its commands waits for room */
	unsigned int inflight;	/* commands without a reply */
	unsigned int replies;	/* signalled ones that have not completed */
	int64_t progress;	/* when one of those came last */
	int64_t heard;		/* when anything came of the client last */
	unsigned int jobs;
	uint64_t ended;		/* turn of the loop in which it was */
	struct memreg_mr mr;	/* of @messages */
	char *messages;
	size_t replies_at;	/* those with data, behind @messages */
	uint32_t reply_next;	/* which of those is next */
	uint32_t kept;		/* pages of replies that were not posted */
	struct cmd *free;	/* of @cmds */
	uint8_t tags[8192];	/* those in flight, a bit each */
	char address[ADDRESS_TEXT];
	struct cmd cmds[];	/* @depth + 1 */
};

struct op_stats {
	uint64_t count;
	uint64_t errors;
	uint64_t bytes;
	int64_t sum;		/* of the nanoseconds each took here */
	int64_t max;
};

struct blkd_stats {
	struct op_stats ops[BLKD_OPCODES];
	uint64_t replayed;
	uint64_t invalid;
	uint64_t refused;
	uint64_t accepted;
	uint64_t submits;
	uint64_t probes;
	uint64_t moves;
};

#define BATCH	IB_MEMREG_BATCH_MAX
#define BUCKETS	256

struct batch {
	unsigned int count;
	struct ib_memreg_wr wrs[BATCH];
	struct ib_memreg_blk_reply replies[BATCH];
	struct ib_memreg_sge sges[BATCH][2];
};

struct blkd {
	struct blkd_options options;
	int64_t start;
	struct export exports[BLKD_EXPORTS];
	unsigned int nr_exports;
	struct memreg *m;
	uint32_t domain;
	uint32_t fragments;	/* that one work request of the device takes */
	uint32_t queue_max;	/* places that a queue can have */
	uint32_t chunk;		/* bytes that one work request may have */
	struct memreg_ring ring;
	uint32_t claimed;	/* entries of it, for queues */
	struct slab slab;
	struct jobs *jobs;
	struct client *clients;
	unsigned int nr_clients;
	struct conn *conns;
	struct conn *buckets[BUCKETS];
	struct cmd *waiting, **waiting_end;
	bool hungry;		/* one of them waits for a buffer */
	bool freed;		/* room or a buffer came back */
	bool ending;		/* conns_advance() has something to do */
	bool broken_off;	/* some connections are, which it is to end */
	bool gone;		/* the device is */
	bool stopping;
	uint64_t turn;
	unsigned int away;	/* commands that woke it on another CPU */
	struct batch batch;
	struct blkd_stats stats;
};

/*
 * User data of a work request: its kind, with the slot of a message, the number
 * of a command, or the room and the slab pages that a reply frees.
 */
enum wr_kind { WR_OTHER, WR_RECV, WR_READ, WR_REPLY, WR_LAST_REPLY };

static inline uint64_t wr_data(enum wr_kind kind, uint16_t low, uint32_t page,
			       uint32_t pages)
{
	return (uint64_t)kind << 60 | (uint64_t)pages << 40 |
	       (uint64_t)page << 16 | low;
}

static inline enum wr_kind wr_kind(uint64_t data)
{
	return (enum wr_kind)(data >> 60);
}

static inline uint16_t wr_low(uint64_t data)
{
	return (uint16_t)data;
}

static inline uint32_t wr_page(uint64_t data)
{
	return (uint32_t)(data >> 16 & 0xffffff);
}

static inline uint32_t wr_pages(uint64_t data)
{
	return (uint32_t)(data >> 40 & 0xfffff);
}

/* serve.c: serve the exports until a signal comes. Returns the exit status. */
int blkd_serve(struct blkd *b);

/* options.c: do what the command line asks for. Returns the exit status. */
int blkd_main(int argc, char **argv);

/* batch.c: work requests, collected and posted together */
struct ib_memreg_wr *batch_next(struct blkd *b);
/*
 * The reply, or two ranges, for the work request that batch_next() returned
 * last
 */
struct ib_memreg_blk_reply *batch_reply(struct blkd *b);
struct ib_memreg_sge *batch_sges(struct blkd *b);
void batch_flush(struct blkd *b);

/* conn_find.c: connections, for commands and work requests */
struct conn *conn_find(const struct blkd *b, uint32_t endpoint);
/* Have a connection end soon. @why is a constant, "" for no message. */
void conn_break(struct blkd *b, struct conn *c, const char *why);
/* Position of a message, and of the reply to a READ with its data behind it */
size_t conn_message_at(const struct conn *c, uint32_t slot);
size_t conn_reply_at(struct conn *c);
/* Places of the send queue that a connection must have at least */
uint32_t conn_min_send(const struct blkd *b);

/* client.c: identities and epochs of clients */
void client_request(struct blkd *b, const struct ib_memreg_event *event);
void clients_free(struct blkd *b);

/* conn.c: connections */
struct conn *conn_new(struct blkd *b, struct client *client,
		      const struct ib_memreg_event *event, uint16_t depth);
void conn_refuse(struct blkd *b, uint32_t endpoint, const char *who,
		 enum ib_memreg_blk_status status);
void conn_end(struct blkd *b, struct conn *c);
void conn_event(struct blkd *b, const struct ib_memreg_event *event);
/*
 * Called once in each turn, when all completions were taken: ends, forgets and
 * accepts connections.
 */
void conns_advance(struct blkd *b);
bool conns_busy(const struct blkd *b);
/*
 * End connections whose peers don't take replies, which may hold buffers, and
 * probe peers that send nothing
 */
void conns_watch(struct blkd *b, int64_t now);
void conns_end(struct blkd *b);

/* cmd.c: commands */
void cmd_completion(struct blkd *b, const struct ib_memreg_cqe *cqe);
void cmd_job_done(struct blkd *b, struct cmd *c);
void cmds_run_waiting(struct blkd *b);
void cmds_drop_waiting(struct blkd *b, const struct conn *conn);
void cmd_give_buffer(struct blkd *b, struct cmd *c);
/* Probe whether the client's adapter is there; if not, the connection ends. */
void cmd_probe(struct blkd *b, struct conn *conn);
void cmd_prep_recv(struct conn *conn, struct ib_memreg_wr *wr, uint32_t slot);

/*
 * parse.c: check a message by the rules of the header, and fill in @c, whose
 * status is then OK, or the status to reply. Returns false if there is no reply
 * to it.
 */
bool cmd_parse(const struct blkd *b, struct conn *conn, struct cmd *c,
	       const void *message, uint32_t length);

static inline bool cmd_has_data(const struct cmd *c)
{
	return c->opcode == IB_MEMREG_BLK_READ ||
	       c->opcode == IB_MEMREG_BLK_WRITE;
}

/* Is the data of a command in a message, and not in segments? */
static inline bool cmd_inline(const struct cmd *c)
{
	return cmd_has_data(c) && !c->nr_segs && c->length;
}

static inline bool cmd_changes(const struct cmd *c)
{
	return c->opcode == IB_MEMREG_BLK_WRITE ||
	       c->opcode == IB_MEMREG_BLK_DISCARD ||
	       c->opcode == IB_MEMREG_BLK_WRITE_ZEROES;
}

/*
 * follow.c: after it slept and took so many @completions: go to the CPU that
 * reports them if that saves waking another one for each command
 */
void follow_completions(struct blkd *b, unsigned int completions);

/* stats.c */
void stats_count(struct blkd *b, const struct cmd *c);
void stats_say(const struct blkd *b, const char *title);

#endif /* MEMREG_BLKD_H */
