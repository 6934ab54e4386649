// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The 32 bytes of private data by which an owner sends a grant to a peer */
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "internal.h"

_Static_assert(sizeof(struct ib_memreg_grant) == MEMREG_GRANT_SIZE,
	       "the format is fixed");

EXPORT void memreg_grant_encode(const struct memreg_grant *grant, void *buf)
{
	struct ib_memreg_grant wire = {
		.magic = htobe32(IB_MEMREG_GRANT_MAGIC),
		.version = htobe16(IB_MEMREG_GRANT_VERSION),
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
	struct ib_memreg_grant wire;

	if (len < sizeof(wire))
		return memreg__fail("grant_decode", -EINVAL,
				    "the private data is shorter than a grant");
	memcpy(&wire, buf, sizeof(wire));
	if (be32toh(wire.magic) != IB_MEMREG_GRANT_MAGIC)
		return memreg__fail("grant_decode", -EINVAL,
				    "the private data is no grant: its magic number is another");
	if (be16toh(wire.version) != IB_MEMREG_GRANT_VERSION)
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
