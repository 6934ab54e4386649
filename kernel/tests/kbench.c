// SPDX-License-Identifier: GPL-2.0-only
/*
 * The cost of taking an MR from a pool and putting it back, next to the pools
 * of the RDMA core (ib_mr_pool_get), whose lock every user takes.
 *
 * Written to the module's parameter @run: "POOL CPUS PAIRS", where POOL is
 * memreg or core: each of CPUS CPUs takes and puts an MR PAIRS times. Written to
 * @client: "POOL DEPTH IOS COUNT", as of memreg_bench_client(). Then @cost holds
 * the nanoseconds and cycles from the first start to the last end. Under vm
 * --icount, cycles are instructions. Written to @race: "ROUNDS", as of
 * memreg_bench_race(); @race then holds the number of requests that were killed.
 */
#include <linux/cpu.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/timex.h>
#include <rdma/memreg_pool.h>
#include <rdma/mr_pool.h>

#include "tests/kbench.h"

/* MRs in a pool, and pages that each holds. */
#define MEMREG_BENCH_MRS	64
#define MEMREG_BENCH_PAGES	16
#define MEMREG_BENCH_CPUS	64

/* Pairs between two calls of cond_resched(). */
#define MEMREG_BENCH_BATCH	1024

static char *device = "";
module_param(device, charp, 0400);
MODULE_PARM_DESC(device, "RDMA device to take MRs of");

/**
 * struct memreg_bench - A measurement
 * @pool: Pool of ours, or NULL
 * @qp: QP that a pool of the core belongs to; only its lock is used
 * @mrs: The core's pool
 * @pairs: Number of times that an MR is taken and put
 * @waiting: Tasks that have not come to the start
 * @go: All of them have
 * @running: Tasks that have not come to the end
 * @failed: Times that there was no MR
 * @end: The last one ended
 */
struct memreg_bench {
	struct ib_memreg_pool *pool;
	struct ib_qp qp;
	struct list_head mrs;
	unsigned int pairs;
	atomic_t waiting;
	bool go;
	atomic_t running;
	atomic_t failed;
	struct completion end;
};

/* Protects the device and the measurement. */
static DEFINE_MUTEX(memreg_bench_lock);
static struct ib_device *memreg_bench_device;
static struct memreg_bench_cost memreg_bench_cost;
static unsigned int memreg_bench_killed;

void memreg_bench_begin(struct memreg_bench_cost *cost)
{
	cost->ns = ktime_get_ns();
	cost->cycles = get_cycles();
}

void memreg_bench_end(struct memreg_bench_cost *cost)
{
	cost->cycles = get_cycles() - cost->cycles;
	cost->ns = ktime_get_ns() - cost->ns;
}

static unsigned int memreg_bench_ours(struct memreg_bench *bench,
				      unsigned int pairs)
{
	unsigned int i, failed = 0;

	for (i = 0; i < pairs; i++) {
		struct ib_memreg_mr *mr = ib_memreg_mr_get(bench->pool);

		if (mr)
			ib_memreg_mr_put(mr);
		else
			failed++;
	}
	return failed;
}

static unsigned int memreg_bench_core(struct memreg_bench *bench,
				      unsigned int pairs)
{
	unsigned int i, failed = 0;

	for (i = 0; i < pairs; i++) {
		struct ib_mr *mr = ib_mr_pool_get(&bench->qp, &bench->mrs);

		if (mr)
			ib_mr_pool_put(&bench->qp, &bench->mrs, mr);
		else
			failed++;
	}
	return failed;
}

/* In batches, so that the measured loop contains only the pairs. */
static unsigned int memreg_bench_pairs(struct memreg_bench *bench)
{
	unsigned int left, n, failed = 0;

	for (left = bench->pairs; left; left -= n) {
		n = min(left, MEMREG_BENCH_BATCH);
		failed += bench->pool ? memreg_bench_ours(bench, n) :
					memreg_bench_core(bench, n);
		cond_resched();
	}
	return failed;
}

static int memreg_bench_task(void *arg)
{
	struct memreg_bench *bench = arg;
	unsigned int failed;

	if (atomic_dec_and_test(&bench->waiting)) {
		memreg_bench_begin(&memreg_bench_cost);
		/* The clock was read before anybody goes. */
		smp_store_release(&bench->go, true);
	}
	/* The measured work starts only after @go is set. */
	while (!smp_load_acquire(&bench->go))
		cpu_relax();
	failed = memreg_bench_pairs(bench);
	atomic_add(failed, &bench->failed);
	if (atomic_dec_and_test(&bench->running)) {
		memreg_bench_end(&memreg_bench_cost);
		complete(&bench->end);
	}
	return 0;
}

/* Wait until tasks have ended, or end those that were not woken. */
static void memreg_bench_stop(struct task_struct **tasks, unsigned int n)
{
	while (n) {
		kthread_stop(tasks[--n]);
		put_task_struct(tasks[n]);
	}
}

/* A task on each of the first CPUs, which wait for each other. */
static int memreg_bench_tasks(struct memreg_bench *bench, unsigned int cpus,
			      struct task_struct **tasks)
{
	unsigned int n = 0;
	int cpu;

	for_each_online_cpu(cpu) {
		struct task_struct *task;

		if (n == cpus)
			break;
		task = kthread_create_on_cpu(memreg_bench_task, bench, cpu,
					     "memreg-bench/%u");
		if (IS_ERR(task))
			break;
		get_task_struct(task);
		tasks[n++] = task;
	}
	if (n == cpus)
		return 0;
	memreg_bench_stop(tasks, n);
	return -EINVAL;
}

static int memreg_bench_measure(struct memreg_bench *bench, unsigned int cpus)
{
	struct task_struct *tasks[MEMREG_BENCH_CPUS];
	unsigned int i;
	int ret;

	init_completion(&bench->end);
	atomic_set(&bench->waiting, cpus);
	atomic_set(&bench->running, cpus);
	cpus_read_lock();
	ret = memreg_bench_tasks(bench, cpus, tasks);
	if (!ret) {
		for (i = 0; i < cpus; i++)
			wake_up_process(tasks[i]);
		wait_for_completion(&bench->end);
		memreg_bench_stop(tasks, cpus);
	}
	cpus_read_unlock();
	return ret ?: atomic_read(&bench->failed) ? -ENOMEM : 0;
}

static int memreg_bench_pool(struct memreg_bench *bench, struct ib_pd *pd,
			     unsigned int cpus)
{
	const struct ib_memreg_pool_attr attr = {
		.name = "bench",
		.count = MEMREG_BENCH_MRS,
		.max_pages = MEMREG_BENCH_PAGES,
		.numa_node = NUMA_NO_NODE,
	};
	int ret;

	bench->pool = ib_memreg_pool_create(pd, &attr);
	if (IS_ERR(bench->pool))
		return PTR_ERR(bench->pool);
	ret = memreg_bench_measure(bench, cpus);
	ib_memreg_pool_destroy(bench->pool);
	return ret;
}

static int memreg_bench_core_pool(struct memreg_bench *bench,
				  struct ib_pd *pd, unsigned int cpus)
{
	int ret;

	bench->qp.device = pd->device;
	bench->qp.pd = pd;
	spin_lock_init(&bench->qp.mr_lock);
	INIT_LIST_HEAD(&bench->mrs);
	ret = ib_mr_pool_init(&bench->qp, &bench->mrs, MEMREG_BENCH_MRS,
			      IB_MR_TYPE_MEM_REG, MEMREG_BENCH_PAGES, 0);
	if (ret)
		return ret;
	ret = memreg_bench_measure(bench, cpus);
	ib_mr_pool_destroy(&bench->qp, &bench->mrs);
	return ret;
}

static int memreg_bench_pools(struct ib_pd *pd, bool memreg, unsigned int cpus,
			      unsigned int pairs)
{
	struct memreg_bench *bench;
	int ret;

	bench = kzalloc(sizeof(*bench), GFP_KERNEL);
	if (!bench)
		return -ENOMEM;
	bench->pairs = pairs;
	if (memreg)
		ret = memreg_bench_pool(bench, pd, cpus);
	else
		ret = memreg_bench_core_pool(bench, pd, cpus);
	kfree(bench);
	return ret;
}

/* Parse the name of a pool. */
static int memreg_bench_is_memreg(const char *pool, bool *memreg)
{
	*memreg = !strcmp(pool, "memreg");
	return *memreg || !strcmp(pool, "core") ? 0 : -EINVAL;
}

/* The device does not go while the lock is held. */
static struct ib_pd *memreg_bench_alloc_pd(void)
{
	lockdep_assert_held(&memreg_bench_lock);

	if (!memreg_bench_device)
		return ERR_PTR(-ENODEV);
	return ib_alloc_pd(memreg_bench_device, 0);
}

static int memreg_bench_run_set(const char *value,
				const struct kernel_param *kp)
{
	unsigned int cpus, pairs;
	struct ib_pd *pd;
	char pool[8];
	bool memreg;
	int ret;

	if (sscanf(value, "%7s %u %u", pool, &cpus, &pairs) != 3 ||
	    memreg_bench_is_memreg(pool, &memreg) || !cpus ||
	    cpus > MEMREG_BENCH_CPUS || !pairs)
		return -EINVAL;
	mutex_lock(&memreg_bench_lock);
	pd = memreg_bench_alloc_pd();
	ret = PTR_ERR_OR_ZERO(pd);
	if (!ret) {
		ret = memreg_bench_pools(pd, memreg, cpus, pairs);
		ib_dealloc_pd(pd);
	}
	mutex_unlock(&memreg_bench_lock);
	return ret;
}

static int memreg_bench_client_set(const char *value,
				   const struct kernel_param *kp)
{
	unsigned int depth, ios, count;
	struct ib_pd *pd;
	char pool[8];
	bool memreg;
	int ret;

	if (sscanf(value, "%7s %u %u %u", pool, &depth, &ios, &count) != 4 ||
	    memreg_bench_is_memreg(pool, &memreg) || !depth || !ios || !count)
		return -EINVAL;
	mutex_lock(&memreg_bench_lock);
	pd = memreg_bench_alloc_pd();
	ret = PTR_ERR_OR_ZERO(pd);
	if (!ret) {
		ret = memreg_bench_client(pd, memreg, depth, ios, count,
					  &memreg_bench_cost);
		ib_dealloc_pd(pd);
	}
	mutex_unlock(&memreg_bench_lock);
	return ret;
}

static int memreg_bench_race_set(const char *value,
				 const struct kernel_param *kp)
{
	unsigned int rounds;
	struct ib_pd *pd;
	int ret;

	ret = kstrtouint(value, 0, &rounds);
	if (ret)
		return ret;
	mutex_lock(&memreg_bench_lock);
	pd = memreg_bench_alloc_pd();
	ret = PTR_ERR_OR_ZERO(pd);
	if (!ret) {
		ret = memreg_bench_race(pd, rounds, &memreg_bench_killed);
		ib_dealloc_pd(pd);
	}
	mutex_unlock(&memreg_bench_lock);
	return ret;
}

static int memreg_bench_race_get(char *buffer, const struct kernel_param *kp)
{
	return sysfs_emit(buffer, "%u\n", memreg_bench_killed);
}

static int memreg_bench_get(char *buffer, const struct kernel_param *kp)
{
	return sysfs_emit(buffer, "%llu %llu\n", memreg_bench_cost.ns,
			  memreg_bench_cost.cycles);
}

static const struct kernel_param_ops memreg_bench_run_ops = {
	.set = memreg_bench_run_set,
};

static const struct kernel_param_ops memreg_bench_client_ops = {
	.set = memreg_bench_client_set,
};

static const struct kernel_param_ops memreg_bench_race_ops = {
	.set = memreg_bench_race_set,
	.get = memreg_bench_race_get,
};

static const struct kernel_param_ops memreg_bench_cost_ops = {
	.get = memreg_bench_get,
};

module_param_cb(run, &memreg_bench_run_ops, NULL, 0200);
MODULE_PARM_DESC(run, "What to measure: memreg|core CPUS PAIRS");
module_param_cb(client, &memreg_bench_client_ops, NULL, 0200);
MODULE_PARM_DESC(client, "What to measure: memreg|core DEPTH IOS COUNT");
module_param_cb(race, &memreg_bench_race_ops, NULL, 0600);
MODULE_PARM_DESC(race, "Connections on which requests end from several sides");
module_param_cb(cost, &memreg_bench_cost_ops, NULL, 0400);
MODULE_PARM_DESC(cost, "Nanoseconds and cycles that it took");

static int memreg_bench_add(struct ib_device *ibdev)
{
	if (strcmp(dev_name(&ibdev->dev), device))
		return -ENODEV;
	mutex_lock(&memreg_bench_lock);
	memreg_bench_device = ibdev;
	mutex_unlock(&memreg_bench_lock);
	return 0;
}

static void memreg_bench_remove(struct ib_device *ibdev, void *client_data)
{
	mutex_lock(&memreg_bench_lock);
	memreg_bench_device = NULL;
	mutex_unlock(&memreg_bench_lock);
}

static struct ib_client memreg_bench_ib_client = {
	.name = "memreg_bench",
	.add = memreg_bench_add,
	.remove = memreg_bench_remove,
};

static int __init memreg_bench_init(void)
{
	return ib_register_client(&memreg_bench_ib_client);
}

static void __exit memreg_bench_exit(void)
{
	ib_unregister_client(&memreg_bench_ib_client);
}

module_init(memreg_bench_init);
module_exit(memreg_bench_exit);

#ifdef MEMREG_EXPORT_NS_STRING
MODULE_IMPORT_NS("IB_MEMREG");
#else
MODULE_IMPORT_NS(IB_MEMREG);
#endif
MODULE_DESCRIPTION("What pools of ib_memreg cost");
MODULE_LICENSE("GPL");
