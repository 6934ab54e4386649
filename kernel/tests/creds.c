// SPDX-License-Identifier: GPL-2.0-only
/*
 * Records the credentials with which kernel QPs are made, as security modules
 * decide by these.
 *
 * The parameter @made has a line for each QP: the effective user id of the
 * credentials with which ib_create_qp_kernel() is called, and the name of the
 * task. They are those by which SELinux labels the QP a moment later. To write
 * to @made forgets them.
 */
#include <linux/cred.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/uidgid.h>

/* QPs that are recorded at most. */
#define MEMREG_CREDS_QPS	64

/**
 * struct memreg_creds_qp - A QP that was made
 * @uid: User id in the first user namespace
 * @comm: Name of the task
 */
struct memreg_creds_qp {
	uid_t uid;
	char comm[TASK_COMM_LEN];
};

static DEFINE_RAW_SPINLOCK(memreg_creds_lock);
static struct memreg_creds_qp memreg_creds_qps[MEMREG_CREDS_QPS];
static unsigned int memreg_creds_count;

static int memreg_creds_get(char *buffer, const struct kernel_param *kp)
{
	unsigned long flags;
	unsigned int i;
	int len = 0;

	raw_spin_lock_irqsave(&memreg_creds_lock, flags);
	for (i = 0; i < memreg_creds_count; i++)
		len += sysfs_emit_at(buffer, len, "%u %s\n",
				     memreg_creds_qps[i].uid,
				     memreg_creds_qps[i].comm);
	raw_spin_unlock_irqrestore(&memreg_creds_lock, flags);
	return len;
}

static int memreg_creds_set(const char *value, const struct kernel_param *kp)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&memreg_creds_lock, flags);
	memreg_creds_count = 0;
	raw_spin_unlock_irqrestore(&memreg_creds_lock, flags);
	return 0;
}

static const struct kernel_param_ops memreg_creds_ops = {
	.get = memreg_creds_get,
	.set = memreg_creds_set,
};

module_param_cb(made, &memreg_creds_ops, NULL, 0600);
MODULE_PARM_DESC(made, "User ids and names of tasks that made QPs");

static int memreg_creds_probe(struct kprobe *probe, struct pt_regs *regs)
{
	struct memreg_creds_qp *qp;
	unsigned long flags;

	raw_spin_lock_irqsave(&memreg_creds_lock, flags);
	if (memreg_creds_count < MEMREG_CREDS_QPS) {
		qp = &memreg_creds_qps[memreg_creds_count++];
		qp->uid = from_kuid(&init_user_ns, current_euid());
		strscpy(qp->comm, current->comm);
	}
	raw_spin_unlock_irqrestore(&memreg_creds_lock, flags);
	return 0;
}

static struct kprobe memreg_creds_kprobe = {
	.symbol_name = "ib_create_qp_kernel",
	.pre_handler = memreg_creds_probe,
};

static int __init memreg_creds_init(void)
{
	return register_kprobe(&memreg_creds_kprobe);
}

static void __exit memreg_creds_exit(void)
{
	unregister_kprobe(&memreg_creds_kprobe);
}

module_init(memreg_creds_init);
module_exit(memreg_creds_exit);

MODULE_DESCRIPTION("Records with whose credentials QPs are made, for tests");
MODULE_LICENSE("GPL");
