# SPDX-License-Identifier: GPL-2.0-only
#
# `make help` lists the targets. Kbuild here is the half of the module, and the
# directory user/ builds the library, the tool and the examples by itself.

KDIR ?= /lib/modules/$(shell uname -r)/build

# Everything that is built goes below this directory, which `clean` removes.
B := $(CURDIR)/build

.PHONY: all
all: module user

# Each kernel has a directory of its own, named after its release as in uname(1),
# so that a build for one does not change that of another.
release = $(shell sed -n 's/.*UTS_RELEASE "\(.*\)"/\1/p' \
	$(KDIR)/include/generated/utsrelease.h 2>/dev/null)
M = $(B)/kernel-$(release)

# The oldest kernel that the module is for. Debian 12 has an older one, and a
# newer one in its backports.
OLDEST = 6.12
too_old = $(shell printf '$(OLDEST)\n%s\n' $(release) | sort -C -V || echo yes)
need_kdir = $(if $(release),$(if $(too_old),$(error $(error_old))),$(error \
	$(error_none)))
error_old = memreg needs Linux $(OLDEST) or later, and $(KDIR) is of \
	$(release): on Debian 12, install linux-image-amd64 and \
	linux-headers-amd64 of bookworm-backports, and boot that kernel
error_none = $(KDIR) is no kernel build tree: install the headers of the \
	kernel (on Debian: linux-headers-$(shell uname -r)), or set KDIR

# Version of the module, the library and the packages.
VERSION = $(shell awk '/define MEMREG_VERSION_(MAJOR|MINOR|PATCH)/ \
	{ v = v s $$3; s = "." } END { print v }' user/lib/memreg.h)

# Since Linux 6.13 a module can be built outside its source directory (MO=).
# For older kernels the source directory is one of symbolic links.
has_mo = $(shell printf '6.13\n%s\n' $(release) | sort -C -V && echo yes)
kbuild = $(MAKE) -C $(KDIR) W=1e MEMREG_VERSION=$(VERSION) \
	$(if $(has_mo),M=$(CURDIR) MO=$(M),M=$(M)/links MO=)

.PHONY: module
module:
	$(need_kdir)
	@mkdir -p $(M)
ifeq ($(has_mo),)
	@mkdir -p $(M)/links
	@find $(M)/links -type l -delete
	@cp -rs $(CURDIR)/Kbuild $(CURDIR)/include $(CURDIR)/kernel $(M)/links
	+@$(kbuild) modules
	@ln -sf links/ib_memreg.ko $(M)/ib_memreg.ko
	@ln -sf links/ib_memreg_blk.ko $(M)/ib_memreg_blk.ko
	@ln -sf links/Module.symvers $(M)/Module.symvers
else
	+@$(kbuild) modules
endif

# Modules that only measure, test or show are built here, and not installed.
.PHONY: test-modules
test-modules: module
	+@$(kbuild) MEMREG_TESTS=m modules
ifeq ($(has_mo),)
	@ln -sf links/ib_memreg_bench.ko $(M)/ib_memreg_bench.ko
	@ln -sf links/ib_memreg_sample.ko $(M)/ib_memreg_sample.ko
	@ln -sf links/ib_memreg_rpc.ko $(M)/ib_memreg_rpc.ko
	@ln -sf links/ib_memreg_shared.ko $(M)/ib_memreg_shared.ko
	@ln -sf links/ib_memreg_dmabuf_test.ko $(M)/ib_memreg_dmabuf_test.ko
	@[ ! -e $(M)/links/ib_memreg_hold.ko ] || \
		ln -sf links/ib_memreg_hold.ko $(M)/ib_memreg_hold.ko
	@[ ! -e $(M)/links/ib_memreg_creds.ko ] || \
		ln -sf links/ib_memreg_creds.ko $(M)/ib_memreg_creds.ko
	@[ ! -e $(M)/links/ib_memreg_spans.ko ] || \
		ln -sf links/ib_memreg_spans.ko $(M)/ib_memreg_spans.ko
	@[ ! -e $(M)/links/ib_memreg_kunit.ko ] || \
		ln -sf links/ib_memreg_kunit.ko $(M)/ib_memreg_kunit.ko
endif

# A tree can be shared with the test bench, whose compiler and libraries are
# not those of this machine: what one has built, the other builds again.
.PHONY: machine
machine:
	@mkdir -p $(B)
	@{ $(CC) --version; cat /etc/os-release; } >$(B)/machine.new
	@cmp -s $(B)/machine.new $(B)/machine || rm -rf $(B)/user $(B)/selftests
	@mv $(B)/machine.new $(B)/machine

.PHONY: user
user: machine
	+@$(MAKE) --no-print-directory -C user O=$(B)

# The test programs; they take kselftest_harness.h from the Linux source.
KSRC ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/memreg/ksrc

.PHONY: tests
tests: user $(if $(release),test-modules)
	+@$(MAKE) --no-print-directory -C selftests O=$(B) KSRC=$(KSRC)

# Targets that need a guest, or tools that this machine may not have.
.PHONY: demo stale check check-selftest soak bench lint lint-selftest deb docs newcomer
demo stale check check-selftest soak bench lint lint-selftest deb docs \
	newcomer:
	@selftests/drive $@

# Directory for the files that other modules are built with.
PREFIX ?= /usr/local
dev = $(DESTDIR)$(PREFIX)/src/memreg-dev

.PHONY: install install-module install-user install-kernel-dev
install: install-module install-user

# A kernel's headers come without the key that its modules are signed with, and
# without the System.map that the kernel's build runs depmod with: it would
# complain of the first, and leave depmod out for lack of the second.
has_key = $(or $(filter pkcs11:%,$(sig_key)), \
	$(wildcard $(filter /%,$(sig_key)) $(addprefix $(KDIR)/,$(sig_key))))
sig_key = $(shell sed -n 's/^CONFIG_MODULE_SIG_KEY="*\([^"]*\)"*$$/\1/p' \
	$(KDIR)/include/config/auto.conf)
unsigned = $(if $(has_key),,CONFIG_MODULE_SIG_ALL=)

install-module: module install-kernel-dev
	+@$(kbuild) $(if $(DESTDIR),INSTALL_MOD_PATH=$(abspath $(DESTDIR))) \
		$(unsigned) cmd_depmod=: modules_install
	install -m 644 $(M)/Module.symvers $(dev)/$(release).symvers
	$(if $(DESTDIR),,depmod $(release))
	@$(if $(has_key),,echo 'The modules are not signed: with Secure Boot,' \
		'see README.md.')

install-kernel-dev:
	install -D -m 644 -t $(dev)/include/rdma include/rdma/*.h
	install -m 644 kernel/ib_memreg.mk $(dev)

# Only root can write the cache of ld.so, and a PREFIX of a user is not in it.
ldconfig = $(if $(DESTDIR),,[ "$$(id -u)" != 0 ] || ldconfig)

install-user: user
	+@$(MAKE) --no-print-directory -C user O=$(B) install
	$(ldconfig)

.PHONY: uninstall uninstall-module uninstall-user
uninstall: uninstall-module uninstall-user

uninstall-module:
	$(need_kdir)
	rm -f $(DESTDIR)/lib/modules/$(release)/updates/ib_memreg.ko*
	rm -f $(DESTDIR)/lib/modules/$(release)/updates/ib_memreg_blk.ko*
	rm -f $(DESTDIR)/lib/modules/$(release)/updates/ib_memreg_kunit.ko*
	[ ! -d $(DESTDIR)/lib/modules/$(release)/updates ] || \
		rmdir --ignore-fail-on-non-empty \
		$(DESTDIR)/lib/modules/$(release)/updates
	rm -f $(dev)/$(release).symvers
	[ -n "$$(ls $(dev)/*.symvers 2>/dev/null)" ] || rm -rf $(dev)
	$(if $(DESTDIR),,depmod $(release))

uninstall-user:
	+@$(MAKE) --no-print-directory -C user O=$(B) uninstall
	$(ldconfig)

# For DKMS: the files that `make module` needs.
.PHONY: install-source version
install-source:
	mkdir -p $(DESTDIR)$(SOURCEDIR)/user/lib
	cp -r Kbuild Makefile COPYING include kernel $(DESTDIR)$(SOURCEDIR)
	cp user/lib/memreg.h $(DESTDIR)$(SOURCEDIR)/user/lib

version:
	@echo $(VERSION)

.PHONY: clean
clean:
	rm -rf $(B)

.PHONY: help
help:
	@echo 'On a machine with RDMA, for the kernel that it runs:'
	@echo '  all            module and user, the default'
	@echo '  module         ib_memreg.ko and ib_memreg_blk.ko for KDIR, into'
	@echo '                 build/kernel-RELEASE'
	@echo '  user           library, tool and examples, into build/user'
	@echo '  tests          the test programs, into build/selftests, and what'
	@echo '                 measures the module, if KDIR is there'
	@echo '  install        all of it but the tests (also: install-module,'
	@echo '                 install-user); DESTDIR and PREFIX count'
	@echo '  uninstall      what install did (also: uninstall-module,'
	@echo '                 uninstall-user)'
	@echo '  clean          remove build/'
	@echo
	@echo 'Anywhere, as root on Debian or alike; in a guest unless NATIVE=1:'
	@echo '  demo           a peer reads, writes, and is locked out; what it costs'
	@echo '  stale          what registration caches return after the mapping changed'
	@echo '  check          every test that a change since its last success can'
	@echo '                 reach, and on a debug kernel what that finds;'
	@echo '                 FULL=1: all on both; TESTS="NAME..." [KERNEL=NAME]:'
	@echo '                 these alone'
	@echo '  check-selftest plant faults in the module, and see them found'
	@echo '  soak           all tests at full counts, as far as they are due;'
	@echo '                 hours; TESTS="NAME..." counts here, too'
	@echo '  bench          what it costs: a table, and build/bench.json'
	@echo '  deb            Debian packages, into build/deb'
	@echo '  docs           the documents as HTML, into build/docs/html'
	@echo '  newcomer       what README.md has one do, word by word'
	@echo '  lint           every static check'
	@echo '  lint-selftest  plant an error for every check, and see it found'
	@echo
	@echo 'KDIR is the build tree of a kernel: $(KDIR)'
