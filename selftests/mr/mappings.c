// SPDX-License-Identifier: GPL-2.0-only
/*
 * Registering every kind of mapping. It either works, and then VmPin and the
 * file's count of pages are exact, or fails with the documented errno, and
 * then nothing is pinned or charged (I8).
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include "harness.h"
#include "mem.h"
#include "raw.h"
#include "state.h"
#include "test.h"

#define LENGTH		(4 * PAGE)
/* Mappings of a process, in which its first notifier takes a while */
#define SCATTERED	1000
/* Times at which a signal interrupts that */
#define SIGNALS		10

FIXTURE(mappings) {
	int fd;
	__u32 domain;
	long pinned;
	struct state before;
};

FIXTURE_SETUP(mappings)
{
	self->fd = raw_open_bound();
	ASSERT_LE(0, self->fd);
	ASSERT_EQ(0, raw_domain(self->fd, &self->domain));
	ASSERT_EQ(0, state_get(&self->before));
}

FIXTURE_TEARDOWN(mappings)
{
	EXPECT_TRUE(state_same(&self->before));
	state_free(&self->before);
	EXPECT_EQ(0, close(self->fd));
	EXPECT_EQ(0, vm_pin(0));
}

/* Pages that LIST shows for this process's only file. */
static long file_pages(void)
{
	struct state now;
	long pages = -1;
	__u32 i;

	if (!state_get(&now))
		for (i = 0; i < now.count; i++)
			if (now.objects[i].type == IB_MEMREG_OBJECT_FILE)
				pages = now.objects[i].u.file.pinned;
	state_free(&now);
	return pages;
}

static void registers(struct __test_metadata *_metadata,
		      FIXTURE_DATA(mappings) *self, void *addr, size_t length,
		      __u32 access)
{
	const uintptr_t start = (uintptr_t)addr & -PAGE;
	const uintptr_t end = ((uintptr_t)addr + length + PAGE - 1) & -PAGE;
	__u32 mr, again;

	ASSERT_EQ(0, raw_register(self->fd, self->domain, addr, length, access,
				  &mr));
	EXPECT_EQ((end - start) / PAGE, vm_pin(0));
	EXPECT_EQ((end - start) / PAGE, file_pages());
	/* Every MR counts its pages. */
	ASSERT_EQ(0, raw_register(self->fd, self->domain, addr, length, access,
				  &again));
	EXPECT_EQ(2 * (end - start) / PAGE, vm_pin(0));
	EXPECT_EQ(2 * (end - start) / PAGE, file_pages());
	EXPECT_EQ(0, raw_destroy(self->fd, mr));
	EXPECT_EQ((end - start) / PAGE, vm_pin(0));
	EXPECT_EQ(0, raw_destroy(self->fd, again));
	EXPECT_EQ(0, vm_pin(0));
	EXPECT_EQ(0, file_pages());
}

/* A prefetch of an MR on demand: the reason, or -errno of the call */
static int prefetch(FIXTURE_DATA(mappings) *self, void *addr, size_t length,
		    __u32 access)
{
	RAW(mr_register, mr, .flags = IB_MEMREG_MR_ON_DEMAND,
	    .domain_id = self->domain, .access = access & LOCAL_WRITE,
	    .addr = (uintptr_t)addr, .length = length);
	struct ib_memreg_range range = { .length = length };
	RAW(mr_advise, advise, .flags = IB_MEMREG_ADVISE_WAIT,
	    .advice = access & LOCAL_WRITE ? IB_MEMREG_ADVICE_PREFETCH_WRITE :
					     IB_MEMREG_ADVICE_PREFETCH,
	    .count = 1, .ranges = (uintptr_t)&range);
	int ret;

	ret = raw_call(self->fd, IB_MEMREG_IOC_MR_REGISTER, &mr);
	if (ret)
		return ret;
	range.mr_id = mr.out_mr_id;
	ret = raw_call(self->fd, IB_MEMREG_IOC_MR_ADVISE, &advise);
	if (!ret)
		ret = range.out_error == EFAULT ? (int)range.out_reason :
						  -(int)range.out_error;
	return raw_destroy(self->fd, mr.out_mr_id) ?: ret;
}

/*
 * No call pins the memory, whether it registers it, changes an MR to it, or
 * pins it on demand, and each has the same reason.
 */
static void refused(struct __test_metadata *_metadata,
		    FIXTURE_DATA(mappings) *self, void *addr, size_t length,
		    __u32 access, __u32 reason)
{
	RAW(mr_reregister, change, .access = access, .length = length,
	    .flags = IB_MEMREG_REREG_TRANSLATION | IB_MEMREG_REREG_ACCESS,
	    .addr = (uintptr_t)addr);
	char good[16];
	__u32 mr;

	EXPECT_EQ(-EFAULT, raw_register(self->fd, self->domain, addr, length,
					access, &mr));
	EXPECT_EQ(reason, raw_reason());
	EXPECT_EQ(reason, prefetch(self, addr, length, access));
	EXPECT_EQ(0, vm_pin(0));
	EXPECT_EQ(0, file_pages());
	ASSERT_EQ(0, raw_register(self->fd, self->domain, good, sizeof(good),
				  0, &change.mr_id));
	EXPECT_EQ(-EFAULT, raw_call(self->fd, IB_MEMREG_IOC_MR_REREGISTER,
				    &change));
	EXPECT_EQ(reason, raw_reason());
	EXPECT_EQ(IB_MEMREG_MR_LIVE, raw_mr_state(self->fd, change.mr_id));
	EXPECT_EQ(0, raw_destroy(self->fd, change.mr_id));
}

#define REFUSED(_addr, _length, _access, _reason)			\
	refused(_metadata, self, _addr, _length, _access,		\
		IB_MEMREG_REASON_##_reason)

/* Access flags for writable and for read-only mappings. */
#define WRITABLE	(LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ)
#define READABLE	REMOTE_READ

TEST_F(mappings, anonymous_memory_untouched)
{
	char *addr = mem_alloc(LENGTH);

	ASSERT_NE(NULL, addr);
	registers(_metadata, self, addr, LENGTH, WRITABLE);
	registers(_metadata, self, addr + 1, LENGTH - 2, WRITABLE);
	mem_free(addr, LENGTH);
	addr = mem_alloc(LENGTH);
	registers(_metadata, self, addr, LENGTH, READABLE);
	mem_free(addr, LENGTH);
}

TEST_F(mappings, the_stack)
{
	char memory[LENGTH];

	memset(memory, 1, sizeof(memory));
	registers(_metadata, self, memory, sizeof(memory), WRITABLE);
}

TEST_F(mappings, read_only_memory)
{
	char *addr = mem_alloc(LENGTH);

	ASSERT_NE(NULL, addr);
	memset(addr, 1, LENGTH);
	ASSERT_EQ(0, mprotect(addr, LENGTH, PROT_READ));
	REFUSED(addr, LENGTH, WRITABLE, NOT_WRITABLE);
	REFUSED(addr, LENGTH, LOCAL_WRITE, NOT_WRITABLE);
	registers(_metadata, self, addr, LENGTH, READABLE);
	registers(_metadata, self, addr, LENGTH, MW_BIND);
	mem_free(addr, LENGTH);
}

TEST_F(mappings, last_page_is_read_only)
{
	char *addr = mem_alloc(LENGTH);

	ASSERT_NE(NULL, addr);
	memset(addr, 1, LENGTH);
	ASSERT_EQ(0, mprotect(addr + LENGTH - PAGE, PAGE, PROT_READ));
	REFUSED(addr, LENGTH, WRITABLE, NOT_WRITABLE);
	REFUSED(addr, LENGTH - PAGE + 1, WRITABLE, NOT_WRITABLE);
	registers(_metadata, self, addr, LENGTH - PAGE, WRITABLE);
	mem_free(addr, LENGTH);
}

TEST_F(mappings, memory_without_access)
{
	void *addr = mmap(NULL, LENGTH, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS,
			  -1, 0);

	ASSERT_NE(MAP_FAILED, addr);
	REFUSED(addr, LENGTH, WRITABLE, NOT_WRITABLE);
	REFUSED(addr, LENGTH, READABLE, NOT_READABLE);
	mem_free(addr, LENGTH);
}

TEST_F(mappings, memory_that_can_only_be_executed)
{
	void *addr = mmap(NULL, LENGTH, PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS,
			  -1, 0);

	ASSERT_NE(MAP_FAILED, addr);
	REFUSED(addr, LENGTH, WRITABLE, NOT_WRITABLE);
	mem_free(addr, LENGTH);
}

TEST_F(mappings, no_mapping)
{
	void *addr = mem_alloc(LENGTH);

	mem_free(addr, LENGTH);
	REFUSED(addr, LENGTH, WRITABLE, UNMAPPED);
	REFUSED(addr, LENGTH, READABLE, UNMAPPED);
	REFUSED(NULL, LENGTH, READABLE, UNMAPPED);
}

/* Large enough for more than one round of pinning. */
TEST_F(mappings, I8_hole_at_each_end_and_in_the_middle)
{
	const size_t length = 1500 * PAGE;
	static const int holes[] = { 0, 1, 511, 512, 513, 750, 1498, 1499 };
	unsigned int i;
	char *addr;

	for (i = 0; i < ARRAY_LEN(holes); i++) {
		addr = mem_alloc(length);
		ASSERT_NE(NULL, addr);
		memset(addr, 1, length);
		ASSERT_EQ(0, munmap(addr + holes[i] * PAGE, PAGE));
		REFUSED(addr, length, WRITABLE, UNMAPPED);
		REFUSED(addr, length, READABLE, UNMAPPED);
		mem_free(addr, length);
	}
}

static void *map_file(int fd, int prot, int flags)
{
	void *addr = mmap(NULL, LENGTH, prot, flags, fd, 0);

	close(fd);
	return addr;
}

TEST_F(mappings, dev_zero)
{
	void *addr;

	addr = map_file(open("/dev/zero", O_RDWR), PROT_READ | PROT_WRITE,
			MAP_PRIVATE);
	ASSERT_NE(MAP_FAILED, addr);
	registers(_metadata, self, addr, LENGTH, WRITABLE);
	mem_free(addr, LENGTH);

	addr = map_file(open("/dev/zero", O_RDWR), PROT_READ | PROT_WRITE,
			MAP_SHARED);
	ASSERT_NE(MAP_FAILED, addr);
	registers(_metadata, self, addr, LENGTH, WRITABLE);
	mem_free(addr, LENGTH);
}

TEST_F(mappings, memfd)
{
	int fd = memfd_create("memreg", MFD_CLOEXEC);
	void *addr;

	ASSERT_LE(0, fd);
	ASSERT_EQ(0, ftruncate(fd, LENGTH));
	addr = map_file(fd, PROT_READ | PROT_WRITE, MAP_SHARED);
	ASSERT_NE(MAP_FAILED, addr);
	registers(_metadata, self, addr, LENGTH, WRITABLE);
	registers(_metadata, self, addr, LENGTH, READABLE);
	mem_free(addr, LENGTH);
}

TEST_F(mappings, memfd_shorter_than_its_mapping)
{
	int fd = memfd_create("memreg", MFD_CLOEXEC);
	char *addr;

	ASSERT_LE(0, fd);
	ASSERT_EQ(0, ftruncate(fd, LENGTH - PAGE));
	addr = map_file(fd, PROT_READ | PROT_WRITE, MAP_SHARED);
	ASSERT_NE(MAP_FAILED, addr);
	REFUSED(addr, LENGTH, WRITABLE, FILE_END);
	registers(_metadata, self, addr, LENGTH - PAGE, WRITABLE);
	mem_free(addr, LENGTH);
}

TEST_F(mappings, memfd_that_shrank)
{
	int fd = memfd_create("memreg", MFD_CLOEXEC);
	char *addr;

	ASSERT_LE(0, fd);
	ASSERT_EQ(0, ftruncate(fd, LENGTH));
	addr = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ASSERT_NE(MAP_FAILED, addr);
	memset(addr, 1, LENGTH);
	registers(_metadata, self, addr, LENGTH, WRITABLE);
	ASSERT_EQ(0, ftruncate(fd, PAGE));
	close(fd);
	REFUSED(addr, LENGTH, WRITABLE, FILE_END);
	REFUSED(addr, LENGTH, READABLE, FILE_END);
	registers(_metadata, self, addr, PAGE, WRITABLE);
	mem_free(addr, LENGTH);
}

/* A tmpfs of LENGTH bytes, in a mount namespace of this test */
static bool mount_tmpfs(void)
{
	return !unshare(CLONE_NEWNS) &&
	       !mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL) &&
	       !mount("tmpfs", "/mnt", "tmpfs", 0, "size=16k");
}

TEST_F(mappings, file_of_a_full_tmpfs)
{
	char text[LENGTH] = "full";
	int fd, other;
	char *addr;

	ASSERT_TRUE(mount_tmpfs());
	fd = open("/mnt/hole", O_CREAT | O_RDWR | O_CLOEXEC, 0600);
	ASSERT_LE(0, fd);
	ASSERT_EQ(0, ftruncate(fd, LENGTH));
	addr = map_file(fd, PROT_READ | PROT_WRITE, MAP_SHARED);
	ASSERT_NE(MAP_FAILED, addr);
	/* There is room for all but this page, and then for none. */
	other = open("/mnt/other", O_CREAT | O_RDWR | O_CLOEXEC, 0600);
	ASSERT_LE(0, other);
	ASSERT_EQ(PAGE, write(other, text, PAGE));
	REFUSED(addr, LENGTH, WRITABLE, FILE_FULL);
	registers(_metadata, self, addr, LENGTH - PAGE, WRITABLE);
	REFUSED(addr, LENGTH, READABLE, FILE_FULL);
	ASSERT_EQ(0, unlink("/mnt/other"));
	close(other);
	registers(_metadata, self, addr, LENGTH, WRITABLE);
	mem_free(addr, LENGTH);
	ASSERT_EQ(0, umount("/mnt"));
}

TEST_F(mappings, too_few_huge_pages)
{
	const size_t length = 4UL << 20;
	int flags[] = { MAP_PRIVATE, MAP_SHARED };
	unsigned int i;
	void *addr;

	ASSERT_EQ(0, file_write("/proc/sys/vm/nr_hugepages", "0"));
	for (i = 0; i < ARRAY_LEN(flags); i++) {
		addr = mmap(NULL, length, PROT_READ | PROT_WRITE, flags[i] |
			    MAP_ANONYMOUS | MAP_HUGETLB | MAP_NORESERVE, -1, 0);
		ASSERT_NE(MAP_FAILED, addr);
		REFUSED(addr, length, WRITABLE, HUGE_PAGES);
		REFUSED(addr, length, READABLE, HUGE_PAGES);
		mem_free(addr, length);
	}
}

TEST_F(mappings, memfd_sealed_against_writing)
{
	int fd = memfd_create("memreg", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	char text[LENGTH] = "sealed";
	void *addr;

	ASSERT_LE(0, fd);
	ASSERT_EQ(sizeof(text), write(fd, text, sizeof(text)));
	ASSERT_EQ(0, fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE));
	addr = map_file(fd, PROT_READ, MAP_SHARED);
	ASSERT_NE(MAP_FAILED, addr);
	REFUSED(addr, LENGTH, WRITABLE, NOT_WRITABLE);
	registers(_metadata, self, addr, LENGTH, READABLE);
	mem_free(addr, LENGTH);
}

TEST_F(mappings, memfd_secret)
{
	int fd = syscall(SYS_memfd_secret, 0);
	void *addr;

	if (fd < 0)
		SKIP(return, "there is no memfd_secret()");
	ASSERT_EQ(0, ftruncate(fd, LENGTH));
	addr = map_file(fd, PROT_READ | PROT_WRITE, MAP_SHARED);
	ASSERT_NE(MAP_FAILED, addr);
	memset(addr, 1, LENGTH);
	REFUSED(addr, LENGTH, WRITABLE, SECRET);
	REFUSED(addr, LENGTH, READABLE, SECRET);
	mem_free(addr, LENGTH);
}

/* The mapping shows no cause: the handler of its faults has SIGBUS raised. */
TEST_F(mappings, memory_whose_page_faults_raise_SIGBUS)
{
	struct uffdio_api api = {
		.api = UFFD_API, .features = UFFD_FEATURE_SIGBUS,
	};
	struct uffdio_register reg = {
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	char *addr = mem_alloc(LENGTH);

	ASSERT_LE(0, fd);
	ASSERT_NE(NULL, addr);
	reg.range.start = (uintptr_t)addr;
	reg.range.len = LENGTH;
	ASSERT_EQ(0, ioctl(fd, UFFDIO_API, &api));
	ASSERT_EQ(0, ioctl(fd, UFFDIO_REGISTER, &reg));
	REFUSED(addr, LENGTH, WRITABLE, PIN);
	REFUSED(addr, LENGTH, READABLE, PIN);
	close(fd);
	registers(_metadata, self, addr, LENGTH, WRITABLE);
	mem_free(addr, LENGTH);
}

/* A file of LENGTH bytes, without a name, in that directory. */
static int temporary_file(const char *dir)
{
	char text[LENGTH] = "memreg";
	int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	if (fd >= 0 && write(fd, text, sizeof(text)) != sizeof(text)) {
		close(fd);
		return -1;
	}
	return fd;
}

TEST_F(mappings, file_of_tmpfs)
{
	void *addr;
	int fd;

	fd = temporary_file("/dev/shm");
	ASSERT_LE(0, fd);
	addr = map_file(fd, PROT_READ | PROT_WRITE, MAP_SHARED);
	ASSERT_NE(MAP_FAILED, addr);
	registers(_metadata, self, addr, LENGTH, WRITABLE);
	mem_free(addr, LENGTH);
}

/* An ext4 on a loop device, in a mount namespace of this test. */
static bool mount_ext4(void)
{
	static const char *const commands[] = {
		"modprobe -q loop",
		"truncate -s 16M /mnt/image",
		"mkfs.ext4 -q /mnt/image",
		"mkdir /mnt/fs",
		"mount -o loop /mnt/image /mnt/fs",
	};
	unsigned int i;

	if (unshare(CLONE_NEWNS) ||
	    mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("tmpfs", "/mnt", "tmpfs", 0, NULL))
		return false;
	for (i = 0; i < ARRAY_LEN(commands); i++)
		if (system(commands[i]))
			return false;
	return true;
}

/*
 * A file system has to learn of each write, and it does not learn of those of
 * devices: so a long-term pin for writing is refused.
 */
TEST_F_TIMEOUT(mappings, file_of_a_disk_file_system, 240)
{
	void *addr;
	int fd;

	if (!mount_ext4())
		SKIP(return, "an ext4 can't be mounted on a loop device");
	fd = temporary_file("/mnt/fs");
	ASSERT_LE(0, fd);
	addr = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ASSERT_NE(MAP_FAILED, addr);
	REFUSED(addr, LENGTH, WRITABLE, FILE_WRITE);
	registers(_metadata, self, addr, LENGTH, READABLE);
	mem_free(addr, LENGTH);

	/* A private mapping has anonymous copies of the file's pages. */
	addr = map_file(fd, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	ASSERT_NE(MAP_FAILED, addr);
	registers(_metadata, self, addr, LENGTH, WRITABLE);
	mem_free(addr, LENGTH);
	ASSERT_EQ(0, system("umount /mnt/fs"));
}

/* A thread of the process that makes its first notifier */
struct beginner {
	char *page;
	pid_t tid;
	int ret;
};

static void *store(void *arg)
{
	struct beginner *b = arg;

	__atomic_store_n(&b->tid, gettid(), __ATOMIC_RELEASE);
	__atomic_store_n(b->page, 1, __ATOMIC_RELAXED);
	return NULL;
}

static int make_monitor(void)
{
	struct ib_memreg_monitor monitor = { .addr = PAGE, .length = PAGE };
	struct status_map status;
	int fd = raw_open();

	return status_create(fd, 1, 0, &status) ?:
	       raw_monitor(fd, status.id, &monitor, 1);
}

static void *begin(void *arg)
{
	struct beginner *b = arg;

	__atomic_store_n(&b->tid, gettid(), __ATOMIC_RELEASE);
	b->ret = make_monitor();
	return NULL;
}

static pthread_t blocked(struct __test_metadata *_metadata,
			 void *(*run)(void *arg), struct beginner *b)
{
	pthread_t thread;

	b->tid = 0;
	ASSERT_EQ(0, pthread_create(&thread, NULL, run, b));
	AWAIT(__atomic_load_n(&b->tid, __ATOMIC_ACQUIRE));
	EXPECT_TRUE(task_is(b->tid, 'D'));
	return thread;
}

/* One thread waits for the file system, and one behind it. */
static void be_blocked(struct __test_metadata *_metadata, int fd, int ready)
{
	struct beginner storer, beginner = {};
	pthread_t threads[2];

	storer.page = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
			   0);
	ASSERT_NE(MAP_FAILED, (void *)storer.page);
	/* Read the page, so that the store alone has to wait. */
	EXPECT_EQ('m', __atomic_load_n(storer.page, __ATOMIC_RELAXED));
	ASSERT_EQ(0, system("fsfreeze --freeze /mnt/fs"));
	threads[0] = blocked(_metadata, store, &storer);
	threads[1] = blocked(_metadata, begin, &beginner);
	ASSERT_EQ(1, write(ready, "x", 1));
	ASSERT_EQ(0, pthread_join(threads[0], NULL));
	ASSERT_EQ(0, pthread_join(threads[1], NULL));
	EXPECT_EQ(0, beginner.ret);
}

/*
 * A page fault that waits for its file system holds a lock of the mapping. The
 * first notifier of that process waits for it, and that of another does not
 * wait for the first.
 */
TEST_F_TIMEOUT(mappings, first_notifier_waits_for_no_other_process, 240)
{
	int fd, ready[2];
	char byte = 0;
	pid_t pid;

	if (!mount_ext4())
		SKIP(return, "an ext4 can't be mounted on a loop device");
	fd = temporary_file("/mnt/fs");
	ASSERT_LE(0, fd);
	ASSERT_EQ(0, pipe(ready));
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		be_blocked(_metadata, fd, ready[1]);
		_exit(_metadata->exit_code);
	}
	ASSERT_EQ(1, read(ready[0], &byte, 1));
	IN_CHILD {
		alarm(LIMIT_MS / 1000);
		EXPECT_EQ(0, make_monitor());
	}
	EXPECT_EQ(0, system("fsfreeze --unfreeze /mnt/fs"));
	child_ended(pid, &_metadata->exit_code);
	close(fd);
	ASSERT_EQ(0, system("umount /mnt/fs"));
}

static void ignore_alarm(int signal)
{
	(void)signal;
}

/* Make the first notifier of a process, with a signal after so many us. */
static int begin_with_signal(unsigned int us)
{
	struct sigaction act = { .sa_handler = ignore_alarm };
	struct itimerval once = { .it_value.tv_usec = us };
	unsigned int page;
	char *mem;

	mem = mmap(NULL, SCATTERED * PAGE, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (mem == MAP_FAILED)
		return -errno;
	for (page = 1; page < SCATTERED; page += 2)
		if (mprotect(mem + page * PAGE, PAGE, PROT_READ))
			return -errno;
	if (sigaction(SIGALRM, &act, NULL) ||
	    setitimer(ITIMER_REAL, &once, NULL))
		return -errno;
	return make_monitor();
}

/* A signal interrupts the first notifier, and user space does not notice. */
TEST_F_TIMEOUT(mappings, first_notifier_is_restarted_after_a_signal, 240)
{
	unsigned int i;

	(void)self;
	for (i = 1; i <= SIGNALS; i++) {
		IN_CHILD {
			EXPECT_EQ(0, begin_with_signal(i * 250));
		}
	}
}

TEST_F(mappings, hugetlb)
{
	const size_t length = 4UL << 20;
	char *addr = mem_hugetlb(length);

	if (!addr)
		SKIP(return, "there are no huge pages to be had");
	registers(_metadata, self, addr, length, WRITABLE);
	registers(_metadata, self, addr + 5 * PAGE + 1, 100 * PAGE, WRITABLE);
	mem_free(addr, length);
	EXPECT_EQ(0, file_write("/proc/sys/vm/nr_hugepages", "0"));
}

TEST_F(mappings, transparent_huge_pages)
{
	const size_t length = 4UL << 20;
	char *addr = mem_thp(length);

	if (!addr)
		SKIP(return, "no transparent huge pages came");
	registers(_metadata, self, addr, length, WRITABLE);
	registers(_metadata, self, addr + 5 * PAGE + 1, 100 * PAGE, WRITABLE);
	/* Part of it is read-only: the huge page is split. */
	ASSERT_EQ(0, mprotect(addr + PAGE, PAGE, PROT_READ));
	REFUSED(addr, length, WRITABLE, NOT_WRITABLE);
	registers(_metadata, self, addr, length, READABLE);
	mem_free(addr, length);
}

TEST_F(mappings, locked_memory)
{
	void *addr = mem_alloc(LENGTH);

	ASSERT_NE(NULL, addr);
	ASSERT_EQ(0, mlock(addr, LENGTH));
	registers(_metadata, self, addr, LENGTH, WRITABLE);
	ASSERT_EQ(0, munlock(addr, LENGTH));
	mem_free(addr, LENGTH);
}

/* Address of a special mapping of the kernel that has no pages to pin */
static void *find_mapping(const char *name)
{
	unsigned long start = 0;
	FILE *f = fopen("/proc/self/maps", "r");
	char line[512];

	while (f && fgets(line, sizeof(line), f)) {
		if (strstr(line, name)) {
			start = strtoul(line, NULL, 16);
			break;
		}
	}
	if (f)
		fclose(f);
	return (void *)start;
}

TEST_F(mappings, the_kernel_s_own_pages)
{
	void *vvar = find_mapping("[vvar]");
	__u32 mr;

	if (!vvar)
		SKIP(return, "there is no vvar page");
	/* In Linux 7.3 vvar has ordinary pages, which can be pinned. */
	if (raw_register(self->fd, self->domain, vvar, PAGE, READABLE, &mr)) {
		REFUSED(vvar, PAGE, READABLE, IO_MEMORY);
		REFUSED(vvar, PAGE, WRITABLE, IO_MEMORY);
	} else {
		EXPECT_EQ(0, raw_destroy(self->fd, mr));
		REFUSED(vvar, PAGE, WRITABLE, NOT_WRITABLE);
		registers(_metadata, self, vvar, PAGE, READABLE);
	}
}

/* The file of a PCI device's memory that can be mapped, or -1. */
static int open_pci_memory(void)
{
	FILE *f = popen("ls -S /sys/bus/pci/devices/*/resource[0-5]", "r");
	char path[256];
	int fd = -1;
	void *addr;

	while (f && fd < 0 && fgets(path, sizeof(path), f)) {
		path[strcspn(path, "\n")] = 0;
		fd = open(path, O_RDWR);
		addr = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
		if (addr != MAP_FAILED) {
			munmap(addr, PAGE);
		} else if (fd >= 0) {
			close(fd);
			fd = -1;
		}
	}
	if (f)
		pclose(f);
	return fd;
}

TEST_F(mappings, memory_of_a_PCI_device)
{
	int fd = open_pci_memory();
	void *addr;

	if (fd < 0)
		SKIP(return, "no PCI device's memory can be mapped");
	addr = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	ASSERT_NE(MAP_FAILED, addr);
	REFUSED(addr, PAGE, WRITABLE, IO_MEMORY);
	REFUSED(addr, PAGE, READABLE, IO_MEMORY);
	mem_free(addr, PAGE);
}

/* Each page of a range may be of another kind. */
TEST_F(mappings, range_of_many_kinds)
{
	char *addr = mem_alloc(LENGTH);
	int fd = memfd_create("memreg", MFD_CLOEXEC);

	ASSERT_NE(NULL, addr);
	ASSERT_LE(0, fd);
	ASSERT_EQ(0, ftruncate(fd, PAGE));
	ASSERT_NE(MAP_FAILED, mmap(addr + PAGE, PAGE, PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_FIXED, fd, 0));
	registers(_metadata, self, addr, LENGTH, WRITABLE);
	/* The same page twice. */
	ASSERT_NE(MAP_FAILED, mmap(addr + 2 * PAGE, PAGE,
				   PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_FIXED, fd, 0));
	registers(_metadata, self, addr, LENGTH, WRITABLE);
	close(fd);
	mem_free(addr, LENGTH);
}

/*
 * The pages of an MR stay pinned until it is deregistered, even if they are
 * unmapped before.
 */
TEST_F(mappings, mapping_that_goes_away_stays_pinned)
{
	void *addr = mem_alloc(LENGTH);
	__u32 mr;

	ASSERT_NE(NULL, addr);
	ASSERT_EQ(0, raw_register(self->fd, self->domain, addr, LENGTH,
				  WRITABLE, &mr));
	mem_free(addr, LENGTH);
	EXPECT_EQ(4, vm_pin(0));
	EXPECT_EQ(0, raw_destroy(self->fd, mr));
	EXPECT_EQ(0, vm_pin(0));
}

TEST_HARNESS_MAIN
