// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* A walk over the live objects of all files that the caller may see */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "internal.h"

#define LIST_ROOM 64

struct memreg_list {
	int fd;
	uint32_t count;		/* objects in @page */
	uint32_t next;		/* index of the next one to return */
	uint64_t cursor;	/* of the call that fetches the next page */
	struct ib_memreg_object page[LIST_ROOM];
};

EXPORT int memreg_list_open(struct memreg_list **out)
{
	struct memreg_list *list = calloc(1, sizeof(*list));

	if (!list)
		return memreg__fail_code("list_open", -ENOMEM, 0);
	list->fd = memreg__open_node("list_open");
	if (list->fd < 0) {
		int ret = list->fd;

		free(list);
		return ret;
	}
	*out = list;
	return 0;
}

static int fetch(struct memreg_list *list)
{
	struct ib_memreg_list arg = {
		.size = sizeof(arg),
		.count = LIST_ROOM,
		.cursor = list->cursor,
		.objects = to_u64(list->page),
		.object_size = sizeof(list->page[0]),
	};
	int ret;

	ret = memreg__call(list->fd, IB_MEMREG_IOC_LIST, &arg, "list_next");
	if (ret)
		return ret;
	list->cursor = arg.cursor;
	list->count = arg.count;
	list->next = 0;
	return 0;
}

EXPORT int memreg_list_next(struct memreg_list *list,
			    struct ib_memreg_object *object, size_t size)
{
	size_t known = sizeof(list->page[0]);
	int ret;

	if (!size)
		return memreg__fail("list_next", -EINVAL, "the size is 0");
	if (list->next == list->count) {
		ret = fetch(list);
		if (ret)
			return ret;
		if (!list->count)
			return 0;
	}
	memset(object, 0, size);
	memcpy(object, &list->page[list->next++], size < known ? size : known);
	return 1;
}

EXPORT void memreg_list_close(struct memreg_list *list)
{
	if (!list)
		return;
	close(list->fd);
	free(list);
}
