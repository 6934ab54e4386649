// SPDX-License-Identifier: GPL-2.0
/*
 * The guest's first process: make a place to work in, run the command that
 * `vm` left in /mnt, see whether the kernel is still sound, report, reboot.
 *
 * The root file system is the host's root directory, read-only, in which the
 * source tree and the other shares are mounted. A RAM overlay makes all of it
 * writable; only changes in the shares outlive the guest.
 *
 * A shell script would do the same with forty processes, each of which costs
 * up to a second with the debug kernel in an emulator.
 */
#define _GNU_SOURCE
#include <err.h>
#include <fcntl.h>
#include <glob.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#define NEW "/run/root"
#define OVERLAY "lowerdir=/,upperdir=/run/upper,workdir=/run/work"
#define KMEMLEAK "/sys/kernel/debug/kmemleak"
#define KCSAN "/sys/kernel/debug/kcsan"

/*
 * Milliseconds after which kmemleak reports an object: it spares those younger
 * than 5 s.
 */
#define LEAK_AGE 5500

/* More stacks than the kernel keeps of ended tasks for each CPU */
#define STACKS_PER_CPU 4

static const struct {
	const char *type, *dir, *options;
} mounts[] = {
	{ "proc", "/proc" },
	{ "sysfs", "/sys" },
	{ "devtmpfs", "/dev", "mode=755" },
	{ "devpts", "/dev/pts", "gid=5,mode=620,ptmxmode=666" },
	{ "tmpfs", "/dev/shm", "mode=1777" },
	{ "tmpfs", "/run", "mode=755" },
	{ "tmpfs", "/tmp", "mode=1777" },
	{ "cgroup2", "/sys/fs/cgroup" },
	{ "debugfs", "/sys/kernel/debug" },
	{ "tracefs", "/sys/kernel/tracing" },
	{ "configfs", "/sys/kernel/config" },
};

static const char *const links[][2] = {
	{ "/proc/self/fd", "/dev/fd" },
	{ "/proc/self/fd/0", "/dev/stdin" },
	{ "/proc/self/fd/1", "/dev/stdout" },
	{ "/proc/self/fd/2", "/dev/stderr" },
};

/* The log shows requests that the kernel refuses to its first process. */
static void must(int result, const char *what)
{
	if (result < 0)
		err(1, "%s", what);
}

static void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0644);

	if (fd < 0)
		return;
	if (write(fd, text, strlen(text)) < 0)
		warn("%s", path);
	close(fd);
}

static void make_dirs(char *path)
{
	char *slash = path;

	while ((slash = strchr(slash + 1, '/'))) {
		*slash = 0;
		mkdir(path, 0755);
		*slash = '/';
	}
	mkdir(path, 0755);
}

/* A module of the kernel that may be built in. */
static void load(const char *module)
{
	struct utsname name;
	char path[512];
	int fd;

	uname(&name);
	snprintf(path, sizeof(path), "/lib/modules/%s/kernel/fs/%s.ko",
		 name.release, module);
	fd = open(path, O_RDONLY);
	if (fd < 0)
		return;
	must(syscall(SYS_finit_module, fd, "", 0), path);
	close(fd);
}

static void make_root(void)
{
	char path[256];
	unsigned int i;

	load("overlayfs/overlay");
	load("configfs/configfs");
	must(mount("tmpfs", "/run", "tmpfs", 0, NULL), "/run");
	mkdir("/run/upper", 0755);
	mkdir("/run/work", 0755);
	mkdir(NEW, 0755);
	must(mount("overlay", NEW, "overlay", 0, OVERLAY), "overlay");
	for (i = 0; i < sizeof(mounts) / sizeof(*mounts); i++) {
		snprintf(path, sizeof(path), NEW "%s", mounts[i].dir);
		mkdir(path, 0755);
		must(mount(mounts[i].type, path, mounts[i].type, 0,
			   mounts[i].options), path);
	}
	for (i = 0; i < sizeof(links) / sizeof(*links); i++) {
		snprintf(path, sizeof(path), NEW "%s", links[i][1]);
		must(symlink(links[i][0], path), path);
	}
}

static void bind_dir(const char *dir)
{
	char path[4200];

	snprintf(path, sizeof(path), NEW "%s", dir);
	make_dirs(path);
	must(mount(dir, path, NULL, MS_BIND, NULL), dir);
}

/* Shares come last, as their path may be below what was mounted before. */
static void bind_shares(void)
{
	FILE *shares = fopen("/mnt/shares", "r");
	char dir[4096];

	if (!shares)
		err(1, "/mnt/shares");
	while (fgets(dir, sizeof(dir), shares)) {
		dir[strcspn(dir, "\n")] = 0;
		bind_dir(dir);
	}
	fclose(shares);
	bind_dir("/mnt");
}

static void enter_root(void)
{
	must(chdir(NEW), NEW);
	must(syscall(SYS_pivot_root, ".", "srv"), "pivot_root");
	must(chdir("/"), "/");
	must(umount2("/srv", MNT_DETACH), "/srv");
}

static void set_up(void)
{
	/* The environment of a login. */
	const struct rlimit files = { .rlim_cur = 1024, .rlim_max = 1 << 20 };
	struct ifreq lo = { .ifr_name = "lo", .ifr_flags = IFF_UP };
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	must(ioctl(fd, SIOCSIFFLAGS, &lo), "lo");
	close(fd);
	must(setrlimit(RLIMIT_NOFILE, &files), "RLIMIT_NOFILE");
	must(sethostname("memreg", 6), "hostname");
	write_file("/proc/sys/kernel/sysrq", "1");
	write_file("/proc/sys/kernel/printk_ratelimit", "0");
	write_file("/proc/sys/kernel/hung_task_warnings", "-1");
	/*
	 * Seconds for which others may keep a network device that is being
	 * removed
	 */
	write_file("/proc/sys/net/core/netdev_unregister_timeout_secs", "60");
	/*
	 * KCSAN is off during the boot: it takes time, and races there are not
	 * the module's.
	 */
	if (!access(KCSAN, F_OK))
		write_file(KCSAN, "on");
}

static int open_port(void)
{
	glob_t found;
	int fd = -1;

	if (!glob("/dev/vport*p1", 0, NULL, &found))
		fd = open(found.gl_pathv[0], O_WRONLY);
	must(fd, "the output port");
	return fd;
}

static void run_command(int out)
{
	setsid();
	dup2(open("/dev/null", O_RDONLY), 0);
	dup2(out, 1);
	dup2(out, 2);
	execl("/mnt/command", "command", NULL);
	err(125, "/mnt/command");
}

static void send_all(int port, const char *data, ssize_t count)
{
	while (count > 0) {
		ssize_t sent = write(port, data, count);

		if (sent < 0)
			return;
		data += sent;
		count -= sent;
	}
}

/* Pass on the output that is there. Returns false when the output has ended. */
static bool pass_on(int in, int port)
{
	static char data[65536];
	ssize_t count = read(in, data, sizeof(data));

	if (count > 0)
		send_all(port, data, count);
	return count > 0;
}

static void on_child(int signal)
{
	(void)signal;
}

/*
 * Pass the command's output on until it ends. Returns the exit status as a
 * shell has it.
 */
static int follow(pid_t command, int in, int port)
{
	struct pollfd ready = { .fd = in, .events = POLLIN };
	sigset_t none;
	pid_t pid;
	int status;

	sigemptyset(&none);
	for (;;) {
		while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
			if (pid == command)
				return WIFSIGNALED(status) ?
					128 + WTERMSIG(status) :
					WEXITSTATUS(status);
		if (ppoll(&ready, 1, NULL, &none) > 0 && !pass_on(in, port))
			ready.fd = -1;
	}
}

/*
 * The output goes through a pipe, as the command may open a pipe again as
 * /dev/stderr, but not the port. Processes that the command left running are
 * killed.
 */
static int run(void)
{
	struct sigaction action = { .sa_handler = on_child };
	int port = open_port(), output[2], status;
	sigset_t child, old;
	pid_t pid;

	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	sigprocmask(SIG_BLOCK, &child, &old);
	sigaction(SIGCHLD, &action, NULL);
	must(pipe2(output, O_CLOEXEC), "pipe");
	pid = fork();
	must(pid, "fork");
	if (!pid) {
		sigprocmask(SIG_SETMASK, &old, NULL);
		run_command(output[1]);
	}
	close(output[1]);
	status = follow(pid, output[0], port);
	kill(-1, SIGKILL);
	while (wait(NULL) > 0)
		;
	while (pass_on(output[0], port))
		;
	close(port);
	return status;
}

static void complain(const char *text)
{
	write_file("/mnt/complaints", text);
}

/*
 * The kernel caches the stacks of ended tasks, and kmemleak scans them: old
 * data there would count as references. Start so many tasks at a time that each
 * cached stack is used, and let them overwrite it.
 */
static void overwrite_stacks(void)
{
	long n = STACKS_PER_CPU * sysconf(_SC_NPROCESSORS_ONLN);

	while (n--) {
		if (!fork()) {
			dup2(open("/dev/null", O_WRONLY), 1);
			execl("/bin/ls", "ls", "-lR", "/etc", NULL);
			_exit(1);
		}
	}
	while (wait(NULL) > 0)
		;
}

static bool scan(char *report, size_t size)
{
	ssize_t count;
	int fd;

	write_file(KMEMLEAK, "scan");
	fd = open(KMEMLEAK, O_RDONLY);
	count = fd < 0 ? 0 : read(fd, report, size - 1);
	close(fd);
	report[count > 0 ? count : 0] = 0;
	return count > 0;
}

/*
 * An object is a leak if four scans find no reference to it: the first one
 * records checksums, the next two report only objects of a certain age, and the
 * last one clears objects that were being moved from one list to another.
 */
static void check_leaks(void)
{
	static char report[65536];

	if (access(KMEMLEAK, F_OK))
		return;
	overwrite_stacks();
	scan(report, sizeof(report));
	poll(NULL, 0, LEAK_AGE);
	/* Linux 7.3 reports most leaks one scan later than it could. */
	scan(report, sizeof(report));
	if (!scan(report, sizeof(report)))
		return;
	sleep(1);
	if (!scan(report, sizeof(report)))
		return;
	complain("kmemleak found memory that nothing refers to:\n");
	complain(report);
}

static void read_line(const char *path, const char *start, char *line, int size)
{
	FILE *file = fopen(path, "r");

	*line = 0;
	while (file && fgets(line, size, file))
		if (strstr(line, start))
			break;
	if (file)
		fclose(file);
}

/*
 * What a full log buffer or an unknown wording could hide: the taint flags
 * B (5, bad page), D (7, oops), W (9, warning) and L (14, lockup), and lockdep.
 */
static void check_kernel(void)
{
	const long bad = 1 << 5 | 1 << 7 | 1 << 9 | 1 << 14;
	char line[256];

	read_line("/proc/sys/kernel/tainted", "", line, sizeof(line));
	if (strtol(line, NULL, 10) & bad) {
		complain("the kernel is tainted by more than modules: ");
		complain(line);
	}
	read_line("/proc/lockdep_stats", "debug_locks:", line, sizeof(line));
	if (*line && !strchr(line, '1'))
		complain("lockdep has turned itself off\n");
}

int main(void)
{
	char status[16];

	make_root();
	bind_shares();
	enter_root();
	set_up();
	snprintf(status, sizeof(status), "%d\n", run());
	check_leaks();
	check_kernel();
	write_file("/mnt/status", status);
	write_file("/dev/kmsg", "memreg: the guest is done\n");
	must(reboot(RB_AUTOBOOT), "reboot");
}
