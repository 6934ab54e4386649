// SPDX-License-Identifier: GPL-2.0-only
/*
 * Holds a packet of soft-RoCE after its key was checked and before data is
 * copied, for tests of revokes, which have to wait for the packet.
 *
 * While the parameter @hold is 1, the handler of the first packet that would be
 * copied to memory waits at that point, with preemption off; while @hold is 2,
 * that of the first packet that would be copied from memory. Other packets
 * pass, and so do the short ones of the connection manager. The packet
 * continues when @hold is set to 0, or after MEMREG_HOLD_NS, as the kernel
 * would complain about a CPU that is busy for much longer. @held counts packets
 * that have waited, @overdue those that reached the limit.
 */
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/timekeeping.h>

#define MEMREG_HOLD_NS		(10 * NSEC_PER_SEC)
#define MEMREG_HOLD_LENGTH	1024

static unsigned int hold;
module_param(hold, uint, 0600);
MODULE_PARM_DESC(hold, "Hold the next packet to memory (1) or from it (2)");

static atomic_t memreg_held;
static unsigned int overdue;
module_param(overdue, uint, 0400);
MODULE_PARM_DESC(overdue, "Packets that went on by themselves");

static int memreg_hold_get(char *buffer, const struct kernel_param *kp)
{
	return sysfs_emit(buffer, "%d\n", atomic_read(&memreg_held));
}

static const struct kernel_param_ops memreg_hold_held_ops = {
	.get = memreg_hold_get,
};

module_param_cb(held, &memreg_hold_held_ops, NULL, 0400);
MODULE_PARM_DESC(held, "Packets that are being held");

/*
 * rxe_mr_copy(mr, iova, addr, length, dir) is called with a reference to an MR
 * whose key was found good. Of enum rxe_mr_copy_dir, 0 is to memory.
 */
static int memreg_hold_copy(struct kprobe *probe, struct pt_regs *regs)
{
	u32 length = regs_get_kernel_argument(regs, 3);
	u32 dir = regs_get_kernel_argument(regs, 4);
	u64 since = ktime_get_mono_fast_ns();

	if (READ_ONCE(hold) != dir + 1 || length < MEMREG_HOLD_LENGTH ||
	    atomic_cmpxchg(&memreg_held, 0, 1))
		return 0;
	while (READ_ONCE(hold)) {
		if (ktime_get_mono_fast_ns() - since > MEMREG_HOLD_NS) {
			overdue++;
			WRITE_ONCE(hold, 0);
		}
		cpu_relax();
	}
	atomic_set(&memreg_held, 0);
	return 0;
}

static struct kprobe memreg_hold_probe = {
	.symbol_name = "rxe_mr_copy",
	.pre_handler = memreg_hold_copy,
};

static int __init memreg_hold_init(void)
{
	return register_kprobe(&memreg_hold_probe);
}

static void __exit memreg_hold_exit(void)
{
	WRITE_ONCE(hold, 0);
	unregister_kprobe(&memreg_hold_probe);
}

module_init(memreg_hold_init);
module_exit(memreg_hold_exit);

MODULE_DESCRIPTION("Holds packets of soft-RoCE, for tests");
MODULE_LICENSE("GPL");
