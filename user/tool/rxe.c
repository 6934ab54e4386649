// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Soft-RoCE on a network interface, as by `rdma link add` */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>

#include "tool.h"

struct request {
	struct nlmsghdr header;
	char room[256];
};

static void add_string(struct request *r, uint16_t type, const char *s)
{
	size_t len = strlen(s) + 1;
	struct nlattr attr = {
		.nla_type = type,
		.nla_len = (uint16_t)(NLA_HDRLEN + len),
	};
	char *at = (char *)r + NLMSG_ALIGN(r->header.nlmsg_len);

	memcpy(at, &attr, sizeof(attr));
	memcpy(at + NLA_HDRLEN, s, len);
	r->header.nlmsg_len = NLMSG_ALIGN(r->header.nlmsg_len) +
			      (uint32_t)NLA_ALIGN(attr.nla_len);
}

/* Send a request and take its acknowledgment */
static int talk(int fd, const struct request *r)
{
	struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };
	struct {
		struct nlmsghdr header;
		struct nlmsgerr err;
		char rest[1024];
	} answer;
	ssize_t n;

	if (sendto(fd, r, r->header.nlmsg_len, 0, (struct sockaddr *)&kernel,
		   sizeof(kernel)) < 0)
		return -errno;
	n = recv(fd, &answer, sizeof(answer), 0);
	if (n < 0)
		return -errno;
	if ((size_t)n < sizeof(answer.header) + sizeof(answer.err) ||
	    answer.header.nlmsg_type != NLMSG_ERROR)
		return -EPROTO;
	return answer.err.error;
}

int rxe_link_add(const char *name, const char *netdev)
{
	struct request r = {
		.header = {
			.nlmsg_len = NLMSG_HDRLEN,
			.nlmsg_type = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV,
						       RDMA_NLDEV_CMD_NEWLINK),
			.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK,
		},
	};
	int fd, ret;

	if (strlen(name) >= IB_MEMREG_DEVICE_NAME_MAX || strlen(netdev) >= 64)
		return -ENAMETOOLONG;
	add_string(&r, RDMA_NLDEV_ATTR_DEV_NAME, name);
	add_string(&r, RDMA_NLDEV_ATTR_LINK_TYPE, "rxe");
	add_string(&r, RDMA_NLDEV_ATTR_NDEV_NAME, netdev);
	fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA);
	if (fd < 0)
		return -errno;
	ret = talk(fd, &r);
	close(fd);
	return ret;
}
