// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Threads that do what may block.
 *
 * Jobs are started in the order in which they came, except those of an export
 * that uses all threads but one: they are held until it uses fewer. So an
 * export whose medium hangs leaves a thread to the others.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "blkd.h"

struct thread {
	struct jobs *jobs;
	unsigned int nr;
	pthread_t id;
};

struct jobs {
	pthread_mutex_t lock;		/* of the fields up to @end */
	pthread_cond_t more;
	struct cmd *first, **last;	/* to be done */
	struct cmd *done;
	bool end;
	int fd;
	unsigned int share;		/* threads that an export may have */
	unsigned int threads;
	struct thread thread[];
};

/* Take the first job off the list. Returns NULL if it has to be held. */
static struct cmd *take_first(struct jobs *j)
{
	struct cmd *c = j->first;
	struct export *e = c->conn->export;

	j->first = c->next;
	if (!j->first)
		j->last = &j->first;
	if (e->busy < j->share) {
		e->busy++;
		return c;
	}
	c->next = NULL;
	if (!e->held)
		e->held_last = &e->held;
	*e->held_last = c;
	e->held_last = &c->next;
	return NULL;
}

static struct cmd *next_job(struct jobs *j)
{
	struct cmd *c = NULL;

	while (!c) {
		while (!j->first && !j->end)
			pthread_cond_wait(&j->more, &j->lock);
		if (!j->first)
			return NULL;
		c = take_first(j);
	}
	return c;
}

/*
 * A job of an export has ended. The oldest one that the export holds is next:
 * it is older than all jobs that were not held.
 */
static void let_go(struct jobs *j, struct export *e)
{
	struct cmd *c = e->held;

	e->busy--;
	if (!c)
		return;
	e->held = c->next;
	c->next = j->first;
	if (!j->first)
		j->last = &c->next;
	j->first = c;
}

/*
 * A command that discards or zeroes ranges has exclusive access to its file or
 * disk: others wait, also reads that should not wait.
 */
static void count_exclusive(const struct cmd *c, int n)
{
	if (c->opcode == IB_MEMREG_BLK_DISCARD ||
	    c->opcode == IB_MEMREG_BLK_WRITE_ZEROES)
		__atomic_add_fetch(&c->conn->export->exclusive, n,
				   __ATOMIC_RELAXED);
}

static void report(struct jobs *j, struct cmd *c)
{
	uint64_t one = 1;

	c->next = j->done;
	__atomic_store_n(&j->done, c, __ATOMIC_RELEASE);
	/* it can't be full: the other side reads it before the list */
	if (!c->next && write(j->fd, &one, sizeof(one)) < 0)
		abort();
}

static void *work(void *arg)
{
	const struct thread *t = arg;
	struct jobs *j = t->jobs;
	struct export *e;
	struct cmd *c;

	pthread_mutex_lock(&j->lock);
	while ((c = next_job(j))) {
		pthread_mutex_unlock(&j->lock);
		e = c->conn->export;
		c->status = (uint16_t)io_do(e, e->fds ? e->fds[t->nr] : -1, c);
		count_exclusive(c, -1);
		pthread_mutex_lock(&j->lock);
		let_go(j, e);
		report(j, c);
	}
	pthread_mutex_unlock(&j->lock);
	return NULL;
}

static int start_thread(struct jobs *j)
{
	struct thread *t = &j->thread[j->threads];
	int ret;

	t->jobs = j;
	t->nr = j->threads;
	ret = pthread_create(&t->id, NULL, work, t);
	if (!ret)
		j->threads++;
	return ret;
}

struct jobs *jobs_start(unsigned int threads, unsigned int exports)
{
	struct jobs *j = calloc(1, sizeof(*j) +
				threads * sizeof(j->thread[0]));
	int ret = ENOMEM;

	if (!j)
		goto out;
	pthread_mutex_init(&j->lock, NULL);
	pthread_cond_init(&j->more, NULL);
	j->last = &j->first;
	j->share = threads > 1 && exports > 1 ? threads - 1 : threads;
	j->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	ret = j->fd < 0 ? errno : 0;
	while (!ret && j->threads < threads)
		ret = start_thread(j);
	if (!ret)
		return j;
	jobs_end(j);
out:
	fail("threads: %s", strerror(ret));
	return NULL;
}

void jobs_end(struct jobs *j)
{
	if (!j)
		return;
	pthread_mutex_lock(&j->lock);
	j->end = true;
	pthread_cond_broadcast(&j->more);
	pthread_mutex_unlock(&j->lock);
	while (j->threads)
		pthread_join(j->thread[--j->threads].id, NULL);
	if (j->fd >= 0)
		close(j->fd);
	pthread_cond_destroy(&j->more);
	pthread_mutex_destroy(&j->lock);
	free(j);
}

int jobs_fd(const struct jobs *j)
{
	return j->fd;
}

void jobs_add(struct jobs *j, struct cmd *c)
{
	c->next = NULL;
	count_exclusive(c, 1);
	pthread_mutex_lock(&j->lock);
	*j->last = c;
	j->last = &c->next;
	pthread_cond_signal(&j->more);
	pthread_mutex_unlock(&j->lock);
}

struct cmd *jobs_take(struct jobs *j)
{
	struct cmd *done;
	uint64_t count;

	if (!__atomic_load_n(&j->done, __ATOMIC_ACQUIRE))
		return NULL;
	pthread_mutex_lock(&j->lock);
	if (read(j->fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
		abort();
	done = j->done;
	__atomic_store_n(&j->done, NULL, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&j->lock);
	return done;
}

/* @last is the new end of the list. */
static unsigned int drop(struct cmd **at, struct cmd ***last,
			 const struct conn *conn)
{
	unsigned int count = 0;

	while (*at) {
		if ((*at)->conn == conn) {
			count_exclusive(*at, -1);
			*at = (*at)->next;
			count++;
		} else {
			at = &(*at)->next;
		}
	}
	*last = at;
	return count;
}

unsigned int jobs_cancel(struct jobs *j, const struct conn *conn)
{
	struct export *e = conn->export;
	unsigned int count;

	pthread_mutex_lock(&j->lock);
	count = drop(&j->first, &j->last, conn);
	count += drop(&e->held, &e->held_last, conn);
	pthread_mutex_unlock(&j->lock);
	return count;
}
