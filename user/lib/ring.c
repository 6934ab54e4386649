// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Completion rings: the functions that are not inline in memreg.h */
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "internal.h"

static int map_ring(struct memreg_ring *ring, size_t size, uint32_t offset)
{
	/* Populated, so that polling takes no page faults. */
	void *at = mmap(NULL, size, PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_POPULATE, ring->fd, 0);

	/* With mlockall(MCL_FUTURE) a mapping counts against RLIMIT_MEMLOCK. */
	if (at == MAP_FAILED && errno == EAGAIN)
		return memreg__fail("ring_create", -EAGAIN,
				    "the ring can't be mapped: mlockall(MCL_FUTURE) locks it, and RLIMIT_MEMLOCK has no room for it");
	if (at == MAP_FAILED)
		return memreg__fail("ring_create", -errno,
				    "the ring can't be mapped");
	ring->shared = at;
	ring->first = (const char *)at + offset;
	ring->map_size = size;
	return 0;
}

EXPORT int memreg_ring_create(struct memreg *m, uint32_t entries,
			      uint32_t entry_size, int eventfd, uint32_t flags,
			      struct memreg_ring *ring)
{
	struct ib_memreg_ring_create arg = {
		.size = sizeof(arg),
		.flags = flags,
		.entries = entries,
		.entry_size = entry_size,
		.eventfd = eventfd,
	};
	struct memreg_ring made;
	int ret;

	ret = memreg__call(m->fd, IB_MEMREG_IOC_RING_CREATE, &arg,
			   "ring_create");
	if (ret && memreg_reason_code() == IB_MEMREG_REASON_RING)
		return memreg__about_number(ret, "bytes", entry_size);
	if (ret)
		return memreg__about_number(ret, "entries", entries);
	made = (struct memreg_ring) {
		.id = arg.out_ring_id,
		.fd = arg.out_fd,
		.entries = arg.entries,
		.entry_size = entry_size,
		.mask = arg.entries - 1,
	};
	ret = map_ring(&made, arg.out_map_size, arg.out_entries_offset);
	if (ret) {
		struct ib_memreg_destroy undo = {
			.size = sizeof(undo),
			.id = made.id,
		};

		memreg__undo(m->fd, IB_MEMREG_IOC_DESTROY, &undo);
		close(made.fd);
		return ret;
	}
	*ring = made;
	return 0;
}

EXPORT int memreg_ring_destroy(struct memreg *m, struct memreg_ring *ring)
{
	struct ib_memreg_destroy arg = { .size = sizeof(arg), .id = ring->id };
	int ret = 0;

	if (m)
		ret = memreg__call(m->fd, IB_MEMREG_IOC_DESTROY, &arg,
				   "ring_destroy");
	memreg__about_id(ret, "ring", ring->id);
	if (ret && ret != -ENODEV)
		return ret;
	munmap(ring->shared, ring->map_size);
	close(ring->fd);
	return ret;
}

EXPORT int memreg_ring_wait(struct memreg_ring *ring, uint32_t min,
			    uint64_t timeout_ns, unsigned int *count)
{
	struct ib_memreg_ring_wait arg = {
		.size = sizeof(arg),
		.min_count = min,
		.out_count = memreg_ring_ready(ring),
		.timeout_ns = timeout_ns,
	};
	int ret = 0;

	if (!min || arg.out_count < min)
		ret = memreg__call(ring->fd, IB_MEMREG_IOC_RING_WAIT, &arg,
				   "ring_wait");
	if (ret == -ETIMEDOUT)
		memreg__fail("ring_wait", ret,
			     "fewer completions than wanted within the time");
	else if (ret && memreg_reason_code() == IB_MEMREG_REASON_COUNT)
		memreg__because(min ? "the ring has fewer entries" :
				"it can't wait for 0 entries", NULL);
	memreg__about_number(ret, ret == -ETIMEDOUT ? "wanted" : "entries",
			     min);
	if (count && (!ret || ret == -ETIMEDOUT))
		*count = arg.out_count;
	return ret;
}
