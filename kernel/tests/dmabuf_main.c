// SPDX-License-Identifier: GPL-2.0-only
/*
 * /dev/ib_memreg_dmabuf_test: an exporter and an importer of dma-bufs, for
 * tests. It has nothing of ib_memreg.
 */
#include <linux/dma-mapping.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/platform_device.h>
#include <linux/uaccess.h>

#include "dmabuf.h"

/* The importer's device */
static struct platform_device *memreg_fake_device;

static int memreg_fake_open(struct inode *inode, struct file *file)
{
	file->private_data = memreg_importer_new();
	return file->private_data ? 0 : -ENOMEM;
}

static int memreg_fake_close(struct inode *inode, struct file *file)
{
	memreg_importer_free(file->private_data);
	return 0;
}

union memreg_fake_cmd {
	struct memreg_fake_export export;
	struct memreg_fake_control control;
	struct memreg_fake_import import;
	struct memreg_fake_access access;
	struct memreg_fake_hold hold;
};

static long memreg_fake_call(struct memreg_importer *importer, unsigned int num,
			     union memreg_fake_cmd *cmd)
{
	switch (num) {
	case MEMREG_FAKE_IOC_EXPORT:
		return memreg_fake_export(&cmd->export);
	case MEMREG_FAKE_IOC_CONTROL:
		return memreg_fake_control(&cmd->control);
	case MEMREG_FAKE_IOC_IMPORT:
		return memreg_importer_import(importer,
					      &memreg_fake_device->dev,
					      &cmd->import);
	case MEMREG_FAKE_IOC_ACCESS:
		return memreg_importer_access(importer, &cmd->access);
	case MEMREG_FAKE_IOC_HOLD:
		return memreg_importer_hold(&cmd->hold);
	default:
		return -ENOTTY;
	}
}

static long memreg_fake_ioctl(struct file *file, unsigned int num,
			      unsigned long arg)
{
	size_t size = _IOC_SIZE(num);
	union memreg_fake_cmd cmd;
	long ret;

	if (size > sizeof(cmd))
		return -ENOTTY;
	if (copy_from_user(&cmd, (void __user *)arg, size))
		return -EFAULT;
	ret = memreg_fake_call(file->private_data, num, &cmd);
	/* Of the answer counts what is there even if the call failed. */
	if (copy_to_user((void __user *)arg, &cmd, size))
		return -EFAULT;
	return ret;
}

static const struct file_operations memreg_fake_fops = {
	.owner = THIS_MODULE,
	.open = memreg_fake_open,
	.release = memreg_fake_close,
	.unlocked_ioctl = memreg_fake_ioctl,
};

static struct miscdevice memreg_fake_miscdev = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "ib_memreg_dmabuf_test",
	.fops = &memreg_fake_fops,
	.mode = 0600,
};

static int __init memreg_fake_init(void)
{
	struct platform_device *pdev;
	int ret;

	pdev = platform_device_register_simple("ib_memreg_dmabuf_test", -1,
					       NULL, 0);
	if (IS_ERR(pdev))
		return PTR_ERR(pdev);
	memreg_fake_device = pdev;
	/* After dma_set_mask() the kernel would leave syncs out, untraced. */
	*pdev->dev.dma_mask = DMA_BIT_MASK(64);
	pdev->dev.coherent_dma_mask = DMA_BIT_MASK(64);
	ret = misc_register(&memreg_fake_miscdev);
	if (ret)
		platform_device_unregister(pdev);
	return ret;
}

static void __exit memreg_fake_exit(void)
{
	misc_deregister(&memreg_fake_miscdev);
	platform_device_unregister(memreg_fake_device);
}

module_init(memreg_fake_init);
module_exit(memreg_fake_exit);

#ifdef MEMREG_EXPORT_NS_STRING
MODULE_IMPORT_NS("DMA_BUF");
#else
MODULE_IMPORT_NS(DMA_BUF);
#endif
MODULE_DESCRIPTION("An exporter and an importer of dma-bufs, for tests");
MODULE_LICENSE("GPL");
