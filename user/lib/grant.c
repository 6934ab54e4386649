// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The 32 bytes of private data by which an owner sends a grant to a peer */
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "internal.h"

/* The format that memreg_grant_encode() documents; network byte order */
struct wire_grant {
	uint32_t magic;
	uint16_t version;
	uint16_t access;
	uint64_t iova;
	uint64_t length;
	uint32_t rkey;
	uint32_t reserved;
};

#define GRANT_MAGIC	0x6d726567	/* "mreg" */
#define GRANT_VERSION	1

_Static_assert(sizeof(struct wire_grant) == MEMREG_GRANT_SIZE,
	       "the format is fixed");

EXPORT void memreg_grant_encode(const struct memreg_grant *grant, void *buf)
{
	struct wire_grant wire = {
		.magic = htobe32(GRANT_MAGIC),
		.version = htobe16(GRANT_VERSION),
		.access = htobe16((uint16_t)grant->access),
		.iova = htobe64(grant->iova),
		.length = htobe64(grant->length),
		.rkey = htobe32(grant->rkey),
	};

	memcpy(buf, &wire, sizeof(wire));
}

EXPORT int memreg_grant_decode(const void *buf, size_t len,
			       struct memreg_grant *grant)
{
	struct wire_grant wire;

	if (len < sizeof(wire))
		return memreg__fail("grant_decode", -EINVAL,
				    "the private data is shorter than a grant");
	memcpy(&wire, buf, sizeof(wire));
	if (be32toh(wire.magic) != GRANT_MAGIC)
		return memreg__fail("grant_decode", -EINVAL,
				    "the private data is no grant: its magic number is another");
	if (be16toh(wire.version) != GRANT_VERSION)
		return memreg__fail("grant_decode", -EOPNOTSUPP,
				    "the grant is of a version that this library doesn't know");
	*grant = (struct memreg_grant) {
		.iova = be64toh(wire.iova),
		.length = be64toh(wire.length),
		.rkey = be32toh(wire.rkey),
		.access = be16toh(wire.access),
	};
	return 0;
}
