// SPDX-License-Identifier: GPL-2.0-only
/*
 * Completion rings: memory that kernel and user share, in which the kernel
 * reports the outcome of work requests.
 *
 * Polling
 *
 * The user polls memory, so the kernel has to write completions there without a
 * call. The driver calls the completion handler in any context, sometimes with
 * locks held that polling needs, so the handler only schedules irq_work on the
 * same CPU, which runs as soon as interrupts are enabled. That avoids a switch
 * to a thread. If completions come in faster than they are handled, the device
 * is set to moderate its events, or a timer polls in place of irq_work, as
 * lib/dim decides.
 *
 * A task that sleeps in RING_WAIT for any entry is woken to poll instead,
 * unless moderation is off: completions that come until the task runs then need
 * neither calls nor interrupts. As other threads may poll the same ring's
 * memory, a timer polls if the task does not run soon.
 *
 * The end of a window needs a context that may sleep. A completion that ends a
 * window is held, and all later ones with it, to keep the order. It is handled
 * by a task that waits for the ring, or else by a worker, and reported only
 * then: a user that reads that a window has ended can bind the window again, or
 * destroy its MR, unless more of the user's work on it is pending.
 */
#include <linux/anon_inodes.h>
#include <linux/dim.h>
#include <linux/eventfd.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "conn/complete.h"
#include "conn/ring.h"
#include "conn/slot.h"
#include "core.h"
#include "device.h"

/* Longest delay of completions for a task which was woken to poll. */
#define MEMREG_RING_POLLER_US	1000

/* Room for struct ib_memreg_ring in front of the entries. */
#define MEMREG_RING_HEADER	128

/* Profiles for lib/dim: microseconds, and completions, per interrupt. */
static const struct {
	u16 usec;
	u16 comps;
} memreg_ring_profiles[RDMA_DIM_PARAMS_NUM_PROFILES] = {
	{ 0, 1 }, { 1, 4 }, { 2, 4 }, { 2, 8 }, { 4, 8 },
	{ 16, 8 }, { 16, 16 }, { 32, 16 }, { 32, 32 },
};

static_assert(sizeof(struct ib_memreg_ring) <= MEMREG_RING_HEADER);
static_assert(sizeof(struct ib_memreg_cqe) == 64);

/*
 * Entries that the user has not consumed; all, if the user's index is invalid.
 */
static u32 memreg_ring_pending(struct memreg_kring *ring)
{
	/*
	 * Read before @producer: the user can only have consumed entries it
	 * could see.
	 */
	u32 consumer = smp_load_acquire(&ring->shared->consumer);
	/*
	 * Pairs with memreg_ring_wake(): the counted entries are visible in
	 * memory.
	 */
	u32 shown = smp_load_acquire(&ring->shown);

	/* The user may have consumed entries that @shown does not count yet. */
	if (consumer - shown <= READ_ONCE(ring->producer) - shown)
		return 0;
	return min(shown - consumer, ring->nr_entries);
}

/*
 * Waiting
 */

/**
 * struct memreg_ring_waiter - A task in RING_WAIT
 * @entry: In memreg_kring.wait
 * @ring: The ring
 * @count: Entries that it waits for
 */
struct memreg_ring_waiter {
	struct wait_queue_entry entry;
	struct memreg_kring *ring;
	u32 count;
};

/* Has a task that waits for @count entries to wake up? */
static bool memreg_ring_has(struct memreg_kring *ring, u32 count)
{
	return memreg_ring_pending(ring) >= count || READ_ONCE(ring->dead) ||
	       (READ_ONCE(ring->held) && !READ_ONCE(ring->handling));
}

static int memreg_ring_wake_waiter(struct wait_queue_entry *entry,
				   unsigned int mode, int sync, void *key)
{
	struct memreg_ring_waiter *waiter =
		container_of(entry, struct memreg_ring_waiter, entry);

	if (!memreg_ring_has(waiter->ring, waiter->count))
		return 0;
	return autoremove_wake_function(entry, mode, sync, key);
}

/*
 * Polling
 */

/*
 * Handle completions until they have cost as much as the budget. Returns the
 * cost, which is less than the budget if there are no more.
 */
static unsigned int memreg_ring_take(struct memreg_kring *ring,
				     unsigned int budget)
{
	bool emptied = false, more;
	unsigned int n = 0;
	int got;

	lockdep_assert_held(&ring->lock);

	while (n < budget && !ring->held) {
		if (ring->wc_next == ring->wc_count) {
			if (emptied)
				break;
			got = ib_poll_cq(ring->cq, MEMREG_RING_WCS, ring->wcs);
			ring->wc_next = 0;
			ring->wc_count = max(got, 0);
			if (got <= 0)
				break;
			emptied = got < MEMREG_RING_WCS;
		}
		if (!ring->wc_handled &&
		    memreg_slot_is_slow(&ring->wcs[ring->wc_next])) {
			WRITE_ONCE(ring->held, true);
			break;
		}
		n += memreg_slot_done(ring, &ring->wcs[ring->wc_next],
				      budget - n, &more);
		if (more)
			break;
		ring->wc_handled = false;
		ring->wc_next++;
		WRITE_ONCE(ring->taken, ring->taken + 1);
	}
	return n;
}

/*
 * Take all completions, up to a budget, and arm the CQ for more. Returns
 * whether there may be more at once.
 */
static bool memreg_ring_poll(struct memreg_kring *ring, unsigned int budget)
{
	unsigned int n, all = 0;
	u32 taken = ring->taken;

	lockdep_assert_held(&ring->lock);

	if (ring->dead)
		return false;
	do {
		n = memreg_ring_take(ring, budget - all);
		all += n;
	} while (all < budget && !ring->held &&
		 ib_req_notify_cq(ring->cq, IB_CQ_NEXT_COMP |
				  IB_CQ_REPORT_MISSED_EVENTS) > 0);
	if (ring->shown != ring->producer || ring->held)
		memreg_ring_wake(ring);
	if (ring->moderated)
		rdma_dim(&ring->dim, ring->taken - taken);
	return all >= budget || ring->held;
}

static void memreg_ring_interrupt(struct memreg_kring *ring)
{
	unsigned long flags;
	bool more;

	spin_lock_irqsave(&ring->lock, flags);
	more = memreg_ring_poll(ring, MEMREG_RING_BUDGET);
	/*
	 * A sleeper in RING_WAIT handles the held completion, and continues
	 * polling.
	 */
	if (more && !(ring->held && atomic_read(&ring->waiters)))
		memreg_user_work_queue(&ring->work);
	spin_unlock_irqrestore(&ring->lock, flags);
}

static void memreg_ring_irq(struct irq_work *irq)
{
	memreg_ring_interrupt(container_of(irq, struct memreg_kring, irq));
}

static enum hrtimer_restart memreg_ring_timer(struct hrtimer *timer)
{
	memreg_ring_interrupt(container_of(timer, struct memreg_kring, timer));
	return HRTIMER_NORESTART;
}

/*
 * Wake the sleeping poller task. It polls after it was the poller, even if
 * another event has woken it, and it does not exit before RCU readers are done.
 */
static bool memreg_ring_wake_poller(struct memreg_kring *ring)
{
	struct task_struct *poller;

	if (!READ_ONCE(ring->poller))
		return false;
	rcu_read_lock();
	poller = xchg(&ring->poller, NULL);
	if (poller)
		wake_up_process(poller);
	rcu_read_unlock();
	return poller;
}

/* Completion event of the CQ. */
static void memreg_ring_event(struct ib_cq *cq, void *context)
{
	struct memreg_kring *ring = context;
	u32 delay = READ_ONCE(ring->delay_us);

	if (memreg_ring_wake_poller(ring)) {
		if (hrtimer_is_queued(&ring->timer))
			return;
		delay = MEMREG_RING_POLLER_US;
	}
	if (delay)
		hrtimer_start(&ring->timer, ns_to_ktime(delay * NSEC_PER_USEC),
			      HRTIMER_MODE_REL_SOFT);
	else
		irq_work_queue(&ring->irq);
}

/* Handle the held completion, without the lock. */
static void memreg_ring_handle_held(struct memreg_kring *ring)
{
	struct ib_wc wc = ring->wcs[ring->wc_next];

	lockdep_assert_held(&ring->lock);

	WRITE_ONCE(ring->handling, true);
	spin_unlock_irq(&ring->lock);
	memreg_slot_handle_slow(&wc);
	spin_lock_irq(&ring->lock);
	/* The caller handles it now, with the slots that it stands for. */
	ring->wc_handled = true;
	WRITE_ONCE(ring->handling, false);
	WRITE_ONCE(ring->held, false);
	/* Not only for entries: see memreg_ring_flush(). */
	if (wq_has_sleeper(&ring->handled))
		wake_up_all(&ring->handled);
}

/* Handle some completions. Returns whether there may be more at once. */
static bool memreg_ring_pass(struct memreg_kring *ring)
{
	lockdep_assert_held(&ring->lock);

	if (ring->held && !ring->handling)
		memreg_ring_handle_held(ring);
	/* A task that is handling polls the rest when it is done. */
	return memreg_ring_poll(ring, MEMREG_RING_BUDGET) && !ring->handling;
}

/*
 * Lock the ring in a call. As many threads as there are CPUs may want to poll,
 * so they wait with interrupts on, and not in line. PREEMPT_RT leaves these on
 * anyway, and there a task may have preempted the one with the lock. Returns
 * false if the task is killed.
 */
static bool memreg_ring_lock(struct memreg_kring *ring)
{
	if (IS_ENABLED(CONFIG_PREEMPT_RT)) {
		spin_lock_irq(&ring->lock);
		return true;
	}
	while (!spin_trylock_irq(&ring->lock)) {
		if (fatal_signal_pending(current))
			return false;
		cond_resched();
		cpu_relax();
	}
	return true;
}

/* Handle some completions in a call. Returns true also if it is killed. */
static bool memreg_ring_pass_in_call(struct memreg_kring *ring)
{
	bool more;

	if (!memreg_ring_lock(ring))
		return true;
	more = memreg_ring_pass(ring);
	spin_unlock_irq(&ring->lock);
	return more;
}

/* Number of completions that were reported so far, wrapping */
static u32 memreg_ring_taken(struct memreg_kring *ring)
{
	u32 taken;

	spin_lock_irq(&ring->lock);
	taken = ring->taken;
	spin_unlock_irq(&ring->lock);
	return taken;
}

/* Most completions that can be there */
static u32 memreg_ring_most(const struct memreg_kring *ring)
{
	/* Each send queue may have a marker in addition to its entries. */
	return ring->nr_entries + ring->max_senders + MEMREG_RING_WCS;
}

/* Have a worker handle the rest, unless the ring's object has gone. */
static void memreg_ring_leave_rest(struct memreg_kring *ring)
{
	spin_lock_irq(&ring->lock);
	if (!ring->dead)
		memreg_user_work_queue(&ring->work);
	spin_unlock_irq(&ring->lock);
}

/*
 * Handle the completions that are there. If they keep coming, because others
 * post, and take the entries, or if the task is killed, a worker handles the
 * rest.
 */
static void memreg_ring_process(struct memreg_kring *ring)
{
	u32 taken = READ_ONCE(ring->taken), most = memreg_ring_most(ring);

	while (memreg_ring_pass_in_call(ring)) {
		if (fatal_signal_pending(current) ||
		    READ_ONCE(ring->taken) - taken >= most) {
			memreg_ring_leave_rest(ring);
			return;
		}
		cond_resched();
	}
}

/* Has everything that had completed when @taken was sampled been reported? */
static bool memreg_ring_flushed(struct memreg_kring *ring, u32 taken)
{
	unsigned int n;
	bool done;

	spin_lock_irq(&ring->lock);
	if (ring->held && !ring->handling)
		memreg_ring_handle_held(ring);
	n = memreg_ring_take(ring, MEMREG_RING_BUDGET);
	/* Completions that keep coming are behind those that were there. */
	done = (!ring->held && n < MEMREG_RING_BUDGET) ||
	       ring->taken - taken >= memreg_ring_most(ring);
	memreg_ring_wake(ring);
	spin_unlock_irq(&ring->lock);
	return done;
}

/**
 * memreg_ring_flush() - Report all that has completed by now
 * @ring: The ring
 *
 * Context: may sleep.
 */
void memreg_ring_flush(struct memreg_kring *ring)
{
	u32 taken = memreg_ring_taken(ring);

	while (!memreg_ring_flushed(ring, taken)) {
		wait_event(ring->handled, !READ_ONCE(ring->handling));
		cond_resched();
	}
	/* The CQ is not armed: continue in the worker. */
	memreg_user_work_queue(&ring->work);
}

/* Set the profile that lib/dim has chosen, if it has. */
static void memreg_ring_moderate(struct memreg_kring *ring)
{
	struct dim *dim = &ring->dim;
	u16 usec, comps;
	bool chosen;

	spin_lock_irq(&ring->lock);
	chosen = dim->state == DIM_APPLY_NEW_PROFILE;
	if (chosen)
		dim->state = DIM_START_MEASURE;
	usec = memreg_ring_profiles[dim->profile_ix].usec;
	comps = memreg_ring_profiles[dim->profile_ix].comps;
	spin_unlock_irq(&ring->lock);
	if (chosen && rdma_set_cq_moderation(ring->cq, comps, usec))
		WRITE_ONCE(ring->delay_us, usec);
}

/*
 * Rings take turns with others: those whose completions keep coming, and those
 * that set another profile, for which the driver may have to wait.
 */
static void memreg_ring_work(struct work_struct *work)
{
	struct memreg_kring *ring =
		container_of(work, struct memreg_kring, work.work);
	bool more;

	memreg_ring_moderate(ring);
	spin_lock_irq(&ring->lock);
	more = memreg_ring_pass(ring);
	spin_unlock_irq(&ring->lock);
	if (more)
		memreg_user_work_queue(&ring->work);
	memreg_user_work_end(&ring->work);
}

/* lib/dim has chosen another profile. All of the kernel shares this worker. */
static void memreg_ring_dim_work(struct work_struct *work)
{
	struct dim *dim = container_of(work, struct dim, work);
	struct memreg_kring *ring = container_of(dim, struct memreg_kring, dim);

	memreg_user_work_queue(&ring->work);
}

/*
 * The descriptor
 */

static int memreg_ring_file_release(struct inode *inode, struct file *filp)
{
	memreg_ring_release(filp->private_data);
	return 0;
}

static int memreg_ring_mmap(struct file *filp, struct vm_area_struct *vma)
{
	struct memreg_kring *ring = filp->private_data;

	return memreg_usermem_mmap(&ring->memory, vma);
}

static __poll_t memreg_ring_file_poll(struct file *filp, poll_table *table)
{
	struct memreg_kring *ring = filp->private_data;
	__poll_t mask = 0;

	poll_wait(filp, &ring->wait, table);
	if (READ_ONCE(ring->dead))
		mask |= EPOLLHUP | EPOLLERR;
	if (memreg_ring_pending(ring))
		mask |= EPOLLIN | EPOLLRDNORM;
	return mask;
}

/*
 * Sleep until there are enough entries, or the task is to poll; the caller
 * polls in either case. Returns 0, -EINTR or -ETIMEDOUT.
 */
static int memreg_ring_sleep(struct memreg_kring *ring, u32 count,
			     ktime_t *expires)
{
	struct memreg_ring_waiter waiter = { .ring = ring, .count = count };
	bool polls = count == 1 && ring->moderated;
	int ret = 0;

	init_waitqueue_func_entry(&waiter.entry, memreg_ring_wake_waiter);
	waiter.entry.private = current;
	INIT_LIST_HEAD(&waiter.entry.entry);
	atomic_inc(&ring->waiters);
	prepare_to_wait(&ring->wait, &waiter.entry, TASK_INTERRUPTIBLE);
	if (polls)
		cmpxchg(&ring->poller, NULL, current);
	if (signal_pending(current))
		ret = -EINTR;
	else if (memreg_ring_has(ring, count))
		ret = expires && ktime_after(ktime_get(), *expires) ?
		      -ETIMEDOUT : 0;
	else if (!expires)
		schedule();
	else if (!schedule_hrtimeout(expires, HRTIMER_MODE_ABS))
		ret = -ETIMEDOUT;
	finish_wait(&ring->wait, &waiter.entry);
	if (polls)
		cmpxchg(&ring->poller, current, NULL);
	atomic_dec(&ring->waiters);
	return ret;
}

static int memreg_ring_wait_for(struct memreg_kring *ring, u32 count,
				u64 timeout)
{
	ktime_t time = KTIME_MAX, *expires = NULL;
	/*
	 * Without moderation, the handler of the completion queue has handled
	 * what has completed.
	 */
	bool look = ring->moderated || !timeout;
	int ret = 0;
	bool dead;

	if (timeout != IB_MEMREG_WAIT_FOREVER) {
		time = ktime_add_safe(ktime_get(),
				      min_t(u64, timeout, KTIME_MAX));
		expires = &time;
	}
	if (memreg_ring_pending(ring) >= count)
		return 0;
	for (;;) {
		/*
		 * Slow completions that came during the sleep were left to this
		 * task.
		 */
		if (look)
			memreg_ring_process(ring);
		look = true;
		/*
		 * All entries that were reported before the ring died are
		 * visible.
		 */
		dead = smp_load_acquire(&ring->dead);
		if (memreg_ring_pending(ring) >= count)
			return 0;
		if (dead)
			return -ENODEV;
		if (ret || !timeout)
			return ret ?: -ETIMEDOUT;
		ret = memreg_ring_sleep(ring, count, expires);
	}
}

/* ioctl(IB_MEMREG_IOC_RING_WAIT) */
static int memreg_ring_wait_ioctl(struct memreg_kring *ring,
				  struct ib_memreg_ring_wait *cmd)
{
	int ret;

	cmd->out_reason = IB_MEMREG_REASON_NONE;
	if (cmd->flags) {
		cmd->out_reason = IB_MEMREG_REASON_FLAGS;
		return -EOPNOTSUPP;
	}
	if (cmd->reserved) {
		cmd->out_reason = IB_MEMREG_REASON_RESERVED;
		return -EINVAL;
	}
	if (!cmd->min_count || cmd->min_count > ring->nr_entries) {
		cmd->out_reason = IB_MEMREG_REASON_COUNT;
		return -EINVAL;
	}
	ret = memreg_ring_wait_for(ring, cmd->min_count, cmd->timeout_ns);
	if (ret == -ENODEV)
		cmd->out_reason = IB_MEMREG_REASON_DEVICE_GONE;
	cmd->out_count = memreg_ring_pending(ring);
	return ret;
}

static long memreg_ring_ioctl(struct file *filp, unsigned int num,
			      unsigned long arg)
{
	void __user *to = (void __user *)arg;
	struct ib_memreg_ring_wait cmd;
	u32 size;
	int ret;

	if (num != IB_MEMREG_IOC_RING_WAIT)
		return -ENOTTY;
	if (get_user(size, (u32 __user *)to))
		return -EFAULT;
	if (size < offsetofend(struct ib_memreg_ring_wait, out_reason))
		return -EINVAL;
	if (size < sizeof(cmd))
		return put_user(IB_MEMREG_REASON_SIZE, (u32 __user *)to + 1) ?
		       -EFAULT : -EINVAL;
	ret = size > IB_MEMREG_SIZE_MAX ? -E2BIG :
	      copy_struct_from_user(&cmd, sizeof(cmd), to, size);
	if (ret)
		return put_user(IB_MEMREG_REASON_NONE, (u32 __user *)to + 1) ?
		       -EFAULT : ret;
	ret = memreg_ring_wait_ioctl(filp->private_data, &cmd);
	return copy_to_user(to, &cmd, sizeof(cmd)) ? -EFAULT : ret;
}

static const struct file_operations memreg_ring_fops = {
	.owner = THIS_MODULE,
	.release = memreg_ring_file_release,
	.mmap = memreg_ring_mmap,
	.poll = memreg_ring_file_poll,
	.unlocked_ioctl = memreg_ring_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

/*
 * The object
 */

/*
 * In a softirq, as all timers that are due expire in the same interrupt.
 */
static void memreg_ring_timer_init(struct memreg_kring *ring)
{
#ifdef MEMREG_HRTIMER_SETUP
	hrtimer_setup(&ring->timer, memreg_ring_timer, CLOCK_MONOTONIC,
		      HRTIMER_MODE_REL_SOFT);
#else
	hrtimer_init(&ring->timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL_SOFT);
	ring->timer.function = memreg_ring_timer;
#endif
}

static struct memreg_kring *memreg_ring_alloc(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_ring_create *cmd = ucmd->cmd;
	struct memreg_kring *ring;
	size_t size;

	ring = kzalloc(sizeof(*ring), GFP_KERNEL_ACCOUNT);
	if (!ring)
		return NULL;
	refcount_set(&ring->refs, 1);
	ring->mdev = ucmd->mdev;
	ring->nr_entries = roundup_pow_of_two(cmd->entries);
	ring->entry_size = cmd->entry_size;
	ring->max_senders = min_t(u32, ring->nr_entries,
				  ucmd->mdev->ibdev->attrs.max_cqe -
				  ring->nr_entries);
	size = MEMREG_RING_HEADER + (size_t)ring->nr_entries * ring->entry_size;
	ring->shared = memreg_usermem_alloc(&ring->memory, size);
	if (!ring->shared) {
		kfree(ring);
		return NULL;
	}
	ring->entries = (void *)ring->shared + MEMREG_RING_HEADER;
	spin_lock_init(&ring->lock);
	INIT_LIST_HEAD(&ring->ended);
	init_waitqueue_head(&ring->wait);
	init_waitqueue_head(&ring->handled);
	init_irq_work(&ring->irq, memreg_ring_irq);
	memreg_user_work_init(&ring->work, ucmd->file->user, MEMREG_WORK_RING,
			      memreg_ring_work);
	memreg_ring_timer_init(ring);
	ring->moderated = !(cmd->flags & IB_MEMREG_RING_NO_MODERATION);
	ring->dim.state = DIM_START_MEASURE;
	ring->dim.tune_state = DIM_GOING_RIGHT;
	ring->dim.profile_ix = RDMA_DIM_START_PROFILE;
	INIT_WORK(&ring->dim.work, memreg_ring_dim_work);
	return ring;
}

static int memreg_ring_set_eventfd(struct memreg_ucmd *ucmd,
				   struct memreg_kring *ring, int fd)
{
	struct eventfd_ctx *eventfd;

	if (fd == -1)
		return 0;
	eventfd = eventfd_ctx_fdget(fd);
	if (IS_ERR(eventfd))
		return memreg_fail(ucmd, -EBADF, IB_MEMREG_REASON_EVENTFD);
	ring->eventfd = eventfd;
	return 0;
}

static int memreg_ring_create_cq(struct memreg_ucmd *ucmd,
				 struct memreg_kring *ring)
{
	struct ib_device *ibdev = ring->mdev->ibdev;
	struct ib_cq_init_attr attr = {
		.cqe = ring->nr_entries + ring->max_senders,
		.comp_vector = raw_smp_processor_id() %
			       max(ibdev->num_comp_vectors, 1),
	};
	struct ib_cq *cq;
	int ret;

	ret = memreg_charge(&ring->charge, ring->mdev, false);
	if (ret)
		return memreg_charge_reason(ucmd, ret);
	cq = ib_create_cq(ibdev, memreg_ring_event, NULL, ring, &attr);
	if (IS_ERR(cq)) {
		memreg_uncharge(&ring->charge, ring->mdev);
		return PTR_ERR(cq) == -ENOMEM ? -ENOMEM : -ENOSPC;
	}
	ring->cq = cq;
	ib_req_notify_cq(cq, IB_CQ_NEXT_COMP);
	return 0;
}

/* All queues are gone, so no completion and no event comes any more. */
static void memreg_ring_destroy_cq(struct memreg_kring *ring)
{
	spin_lock_irq(&ring->lock);
	WRITE_ONCE(ring->dead, true);
	spin_unlock_irq(&ring->lock);
	/* Nobody else queues the work now, whose function uses the CQ. */
	cancel_work_sync(&ring->dim.work);
	memreg_user_work_disable(&ring->work);
	/* A last event may still come, and finds no completion. */
	ib_destroy_cq(ring->cq);
	hrtimer_cancel(&ring->timer);
	irq_work_sync(&ring->irq);
	memreg_uncharge(&ring->charge, ring->mdev);
	wake_up_poll(&ring->wait, EPOLLHUP | EPOLLERR);
}

/* Make the descriptor, and fill in the answer. */
static int memreg_ring_respond(struct memreg_ucmd *ucmd,
			       struct memreg_kring *ring)
{
	struct ib_memreg_ring_create *cmd = ucmd->cmd;
	struct file *filp;
	int fd, ret;

	fd = get_unused_fd_flags(O_CLOEXEC);
	if (fd < 0)
		return fd;
	filp = anon_inode_getfile("[memreg_ring]", &memreg_ring_fops, ring,
				  O_RDWR | O_CLOEXEC);
	if (IS_ERR(filp)) {
		put_unused_fd(fd);
		return PTR_ERR(filp);
	}
	memreg_ring_hold(ring);
	cmd->entries = ring->nr_entries;
	cmd->out_ring_id = ring->obj.id;
	cmd->out_fd = fd;
	cmd->out_map_size = PAGE_ALIGN(MEMREG_RING_HEADER +
				       ring->nr_entries * ring->entry_size);
	cmd->out_entries_offset = MEMREG_RING_HEADER;
	ret = memreg_respond(ucmd, sizeof(*cmd));
	if (ret) {
		fput(filp);
		put_unused_fd(fd);
		return ret;
	}
	fd_install(fd, filp);
	return 0;
}

static int memreg_ring_check(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_ring_create *cmd = ucmd->cmd;

	if (cmd->flags & ~IB_MEMREG_RING_NO_MODERATION)
		return memreg_fail(ucmd, -EOPNOTSUPP, IB_MEMREG_REASON_FLAGS);
	if (!cmd->entries || cmd->entries > memreg_ring_max(ucmd->mdev))
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_COUNT);
	if (cmd->entry_size != 64 && cmd->entry_size != 128)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_RING);
	return 0;
}

/* ioctl(IB_MEMREG_IOC_RING_CREATE) */
int memreg_ring_create_ioctl(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_ring_create *cmd = ucmd->cmd;
	struct memreg_kring *ring;
	int ret;

	ret = memreg_ring_check(ucmd);
	if (ret)
		return ret;
	ring = memreg_ring_alloc(ucmd);
	if (!ring)
		return -ENOMEM;
	ret = memreg_ring_set_eventfd(ucmd, ring, cmd->eventfd);
	if (!ret)
		ret = memreg_ring_create_cq(ucmd, ring);
	if (ret)
		goto err_free;
	ret = memreg_object_alloc(ucmd->file, &ring->obj,
				  &memreg_ring_ops);
	if (ret)
		goto err_cq;
	memreg_object_made(ucmd, &ring->obj);
	return memreg_ring_respond(ucmd, ring);

err_cq:
	memreg_ring_destroy_cq(ring);
err_free:
	memreg_ring_release(ring);
	return ret;
}

static void memreg_ring_destroy_obj(struct memreg_file *file,
				    struct memreg_object *obj)
{
	struct memreg_kring *ring = container_of(obj, struct memreg_kring, obj);

	memreg_ring_destroy_cq(ring);
	memreg_ring_release(ring);
}

static void memreg_ring_info(struct memreg_object *obj,
			     struct ib_memreg_object *info)
{
	struct memreg_kring *ring = container_of(obj, struct memreg_kring, obj);

	info->u.ring.entries = ring->nr_entries;
}

const struct memreg_object_ops memreg_ring_ops = {
	.type = IB_MEMREG_OBJECT_RING,
	.destroy = memreg_ring_destroy_obj,
	.info = memreg_ring_info,
};
