# SPDX-License-Identifier: GPL-2.0-only
# For kernel modules that use ib_memreg. A module's Kbuild has a line
#
#	include /usr/src/memreg-dev/ib_memreg.mk
#
# (/usr/local/src, if memreg was installed from source), and its source includes
# <rdma/memreg_pool.h> and imports the namespace IB_MEMREG. Its ib_memreg.ko must be
# installed for the kernel that the module is built for: the versions of its
# symbols are known from then on.

memreg-dev := $(patsubst %/,%,$(dir $(lastword $(MAKEFILE_LIST))))
ccflags-y += -I$(memreg-dev)/include
KBUILD_EXTRA_SYMBOLS += $(firstword $(wildcard \
	$(memreg-dev)/$(KERNELRELEASE).symvers \
	/var/lib/dkms/memreg/*/$(KERNELRELEASE)/*/module/Module.symvers))
