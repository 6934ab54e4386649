// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The RDMA devices of the network namespace, as `rdma dev` lists them */
#include <errno.h>
#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "internal.h"

#define ANSWER_SIZE	16384

struct walk {
	struct memreg_device *devices;
	unsigned int room;
	unsigned int count;
};

/* Take the attributes of one device, of which the kernel sends more */
static void take_device(struct walk *w, const char *at, size_t left)
{
	struct memreg_device device = { .index = 0 };
	struct nlattr attr;
	size_t len;

	for (; left >= sizeof(attr); at += len, left -= len) {
		memcpy(&attr, at, sizeof(attr));
		if (attr.nla_len < NLA_HDRLEN || attr.nla_len > left)
			break;
		len = attr.nla_len - (size_t)NLA_HDRLEN;
		at += NLA_HDRLEN;
		left -= NLA_HDRLEN;
		switch (attr.nla_type & NLA_TYPE_MASK) {
		case RDMA_NLDEV_ATTR_DEV_INDEX:
			memcpy(&device.index, at, sizeof(device.index));
			break;
		case RDMA_NLDEV_ATTR_PORT_INDEX:
			memcpy(&device.ports, at, sizeof(device.ports));
			break;
		case RDMA_NLDEV_ATTR_DEV_NAME:
			if (len <= sizeof(device.name))
				memcpy(device.name, at, len);
			break;
		}
		len = NLA_ALIGN(len);
		if (len > left)
			break;
	}
	device.name[sizeof(device.name) - 1] = '\0';
	if (w->count < w->room)
		w->devices[w->count] = device;
	w->count++;
}

/* 1 at the end of the answer, 0 if there is more, or a negative errno */
static int take_answer(struct walk *w, const char *at, size_t left)
{
	struct nlmsghdr header;
	int err;

	for (; left >= sizeof(header); at += header.nlmsg_len,
	     left -= header.nlmsg_len) {
		memcpy(&header, at, sizeof(header));
		if (header.nlmsg_len < sizeof(header) ||
		    header.nlmsg_len > left)
			return -EPROTO;
		if (header.nlmsg_type == NLMSG_DONE)
			return 1;
		if (header.nlmsg_type == NLMSG_ERROR) {
			memcpy(&err, at + NLMSG_HDRLEN, sizeof(err));
			return err ? err : -EPROTO;
		}
		take_device(w, at + NLMSG_HDRLEN,
			    header.nlmsg_len - (size_t)NLMSG_HDRLEN);
		header.nlmsg_len = NLMSG_ALIGN(header.nlmsg_len);
		if (header.nlmsg_len > left)
			break;
	}
	return 0;
}

static int walk_devices(int fd, struct walk *w)
{
	const struct nlmsghdr request = {
		.nlmsg_len = NLMSG_HDRLEN,
		.nlmsg_type = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV,
					       RDMA_NLDEV_CMD_GET),
		.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_DUMP,
	};
	struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };
	char answer[ANSWER_SIZE];
	ssize_t n;
	int ret = 0;

	if (sendto(fd, &request, sizeof(request), 0,
		   (struct sockaddr *)&kernel, sizeof(kernel)) < 0)
		return -errno;
	while (!ret) {
		n = recv(fd, answer, sizeof(answer), 0);
		if (n < 0 && errno == EINTR)
			continue;
		ret = n < 0 ? -errno : take_answer(w, answer, (size_t)n);
	}
	return ret < 0 ? ret : 0;
}

static int by_name(const void *a, const void *b)
{
	const struct memreg_device *x = a, *y = b;

	return strcmp(x->name, y->name);
}

int memreg__list_devices(struct memreg_device *devices, unsigned int *count)
{
	struct walk w = { .devices = devices, .room = *count };
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA);
	int ret;

	/* a kernel without the RDMA core has no devices */
	if (fd < 0 && errno == EPROTONOSUPPORT) {
		*count = 0;
		return 0;
	}
	if (fd < 0)
		return -errno;
	ret = walk_devices(fd, &w);
	close(fd);
	if (ret)
		return ret;
	if (w.room)
		qsort(devices, w.count < w.room ? w.count : w.room,
		      sizeof(*devices), by_name);
	*count = w.count;
	return 0;
}

EXPORT int memreg_list_devices(struct memreg_device *devices,
			       unsigned int *count)
{
	int ret = memreg__list_devices(devices, count);

	return ret ? memreg__fail_code("list_devices", ret, 0) : 0;
}
