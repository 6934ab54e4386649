// SPDX-License-Identifier: GPL-2.0-only
/*
 * Measures how long ib_memreg holds spinlocks, for tests of the waits of other
 * users.
 *
 * The function tracer calls this module where a spinlock is taken, and where
 * one is released. Only locks count that are taken by code between @start and
 * @end, the addresses of ib_memreg's functions. A span is the time from the
 * call that takes the lock to the call that releases it. If the call disables
 * interrupts, they are off for as long. Spans that an interrupt came into, and
 * spans of a contended lock, are left out: these measure how long others had
 * the CPU, or the lock.
 *
 * The longest span of each function is in the debugfs file memreg_spans, a line
 * each: nanoseconds, number of spans, function. To write to the file forgets
 * them.
 */
#include <linux/atomic.h>
#include <linux/debugfs.h>
#include <linux/ftrace.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/sched.h>
#include <linux/seq_file.h>
#include <linux/spinlock.h>
#include <linux/timekeeping.h>

/* Spinlocks that are held, or waited for, at a time. */
#define MEMREG_SPANS_OPEN	64

/* Functions that take spinlocks. */
#define MEMREG_SPANS_SITES	256

static unsigned long start;
module_param(start, ulong, 0400);
MODULE_PARM_DESC(start, "Address of the first function of ib_memreg");

static unsigned long end;
module_param(end, ulong, 0400);
MODULE_PARM_DESC(end, "First address behind the functions of ib_memreg");

static unsigned int lost;
module_param(lost, uint, 0400);
MODULE_PARM_DESC(lost, "Spans that there was no room for");

/**
 * struct memreg_span - A spinlock that is held, or waited for
 * @lock: The lock, or 0
 * @task: Current task of the context that takes it
 * @site: Address at which it is taken
 * @contended: Another CPU had the lock
 * @cpu: On which CPU
 * @interrupts: Number of interrupts on that CPU before
 * @since: Time at which the span began
 */
struct memreg_span {
	unsigned long lock;
	struct task_struct *task;
	unsigned long site;
	bool contended;
	int cpu;
	unsigned long interrupts;
	u64 since;
};

/**
 * struct memreg_site - A place where a lock is taken
 * @address: The place, or 0
 * @longest: Nanoseconds
 * @count: Number of spans
 */
struct memreg_site {
	unsigned long address;
	atomic64_t longest;
	atomic_t count;
};

static DEFINE_PER_CPU(unsigned long, memreg_interrupts);
static struct memreg_span memreg_spans[MEMREG_SPANS_OPEN];
static struct memreg_site memreg_sites[MEMREG_SPANS_SITES];

static void notrace memreg_spans_take(unsigned long ip, unsigned long parent,
				      struct ftrace_ops *ops,
				      struct ftrace_regs *fregs)
{
	unsigned long lock = ftrace_regs_get_argument(fregs, 0);
	unsigned int i;

	if (parent < start || parent >= end)
		return;
	for (i = 0; i < MEMREG_SPANS_OPEN; i++) {
		struct memreg_span *span = &memreg_spans[i];

		if (READ_ONCE(span->lock) || cmpxchg(&span->lock, 0, 1))
			continue;
		span->task = current;
		span->site = parent;
		span->contended =
			raw_spin_is_locked((raw_spinlock_t *)lock);
		span->cpu = raw_smp_processor_id();
		span->interrupts = raw_cpu_read(memreg_interrupts);
		span->since = ktime_get_mono_fast_ns();
		/* The CPU that releases the lock sees all fields. */
		smp_store_release(&span->lock, lock);
		return;
	}
	lost++;
}

static struct memreg_site *memreg_spans_site(unsigned long address)
{
	unsigned long old;
	unsigned int i;

	for (i = 0; i < MEMREG_SPANS_SITES; i++) {
		old = READ_ONCE(memreg_sites[i].address);
		if (!old)
			old = cmpxchg(&memreg_sites[i].address, 0, address);
		if (!old || old == address)
			return &memreg_sites[i];
	}
	lost++;
	return NULL;
}

static void notrace memreg_spans_count(const struct memreg_span *span, u64 now)
{
	struct memreg_site *site = memreg_spans_site(span->site);
	s64 old, length = now - span->since;

	if (!site)
		return;
	atomic_inc(&site->count);
	if (span->contended || span->cpu != raw_smp_processor_id() ||
	    span->interrupts != raw_cpu_read(memreg_interrupts))
		return;
	old = atomic64_read(&site->longest);
	while (old < length &&
	       !atomic64_try_cmpxchg(&site->longest, &old, length))
		;
}

static void notrace memreg_spans_release(unsigned long ip,
					 unsigned long parent,
					 struct ftrace_ops *ops,
					 struct ftrace_regs *fregs)
{
	unsigned long lock = ftrace_regs_get_argument(fregs, 0);
	unsigned int i;

	for (i = 0; i < MEMREG_SPANS_OPEN; i++) {
		struct memreg_span *span = &memreg_spans[i];

		/* Pairs with memreg_spans_take(). */
		if (smp_load_acquire(&span->lock) != lock ||
		    span->task != current)
			continue;
		memreg_spans_count(span, ktime_get_mono_fast_ns());
		/* From here on the place is another span's. */
		smp_store_release(&span->lock, 0);
		return;
	}
}

static void notrace memreg_spans_interrupt(unsigned long ip,
					   unsigned long parent,
					   struct ftrace_ops *ops,
					   struct ftrace_regs *fregs)
{
	raw_cpu_inc(memreg_interrupts);
}

static struct ftrace_ops memreg_spans_interrupts = {
	.func = memreg_spans_interrupt,
	.flags = FTRACE_OPS_FL_RECURSION,
};

static struct ftrace_ops memreg_spans_takes = {
	.func = memreg_spans_take,
	.flags = FTRACE_OPS_FL_RECURSION,
};

static struct ftrace_ops memreg_spans_releases = {
	.func = memreg_spans_release,
	.flags = FTRACE_OPS_FL_RECURSION,
};

static int memreg_spans_show(struct seq_file *m, void *v)
{
	unsigned int i;

	for (i = 0; i < MEMREG_SPANS_SITES; i++) {
		struct memreg_site *site = &memreg_sites[i];

		if (atomic_read(&site->count))
			seq_printf(m, "%lld %d %ps\n",
				   atomic64_read(&site->longest),
				   atomic_read(&site->count),
				   (void *)site->address);
	}
	return 0;
}

static int memreg_spans_open(struct inode *inode, struct file *filp)
{
	return single_open(filp, memreg_spans_show, NULL);
}

static ssize_t memreg_spans_write(struct file *filp, const char __user *from,
				  size_t size, loff_t *offset)
{
	unsigned int i;

	for (i = 0; i < MEMREG_SPANS_SITES; i++) {
		atomic_set(&memreg_sites[i].count, 0);
		atomic64_set(&memreg_sites[i].longest, 0);
	}
	return size;
}

static const struct file_operations memreg_spans_fops = {
	.owner = THIS_MODULE,
	.open = memreg_spans_open,
	.read = seq_read,
	.llseek = seq_lseek,
	.write = memreg_spans_write,
	.release = single_release,
};

static struct dentry *memreg_spans_file;

static int memreg_spans_trace(struct ftrace_ops *ops, unsigned char *functions)
{
	int ret = ftrace_set_filter(ops, functions, strlen(functions), 1);

	return ret ?: register_ftrace_function(ops);
}

static int __init memreg_spans_init(void)
{
	unsigned char releases[] = "_raw_spin_unlock*";
	unsigned char takes[] = "_raw_spin_lock*";
	unsigned char interrupts[] = "irq_enter_rcu";
	int ret;

	ret = memreg_spans_trace(&memreg_spans_interrupts, interrupts);
	if (ret)
		return ret;
	ret = memreg_spans_trace(&memreg_spans_releases, releases);
	if (ret)
		goto err_interrupts;
	ret = memreg_spans_trace(&memreg_spans_takes, takes);
	if (ret)
		goto err_releases;
	memreg_spans_file = debugfs_create_file("memreg_spans", 0600, NULL,
						NULL, &memreg_spans_fops);
	return 0;

err_releases:
	unregister_ftrace_function(&memreg_spans_releases);
err_interrupts:
	unregister_ftrace_function(&memreg_spans_interrupts);
	return ret;
}

static void __exit memreg_spans_exit(void)
{
	debugfs_remove(memreg_spans_file);
	unregister_ftrace_function(&memreg_spans_takes);
	unregister_ftrace_function(&memreg_spans_releases);
	unregister_ftrace_function(&memreg_spans_interrupts);
}

module_init(memreg_spans_init);
module_exit(memreg_spans_exit);

MODULE_DESCRIPTION("Measures spinlocks of ib_memreg, for tests");
MODULE_LICENSE("GPL");
