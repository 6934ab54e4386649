// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The bytes by which an owner sends a grant, or a list of them, to a peer */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
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
#define LIST_VERSION	2

/* The formats that memreg_grants_encode() documents; network byte order */
struct wire_list {
	uint32_t magic;
	uint16_t version;
	uint16_t reserved;
	uint32_t count;
	uint32_t reserved2;
};

struct wire_entry {
	uint64_t iova;
	uint64_t length;
	uint32_t rkey;
	uint16_t access;
	uint16_t reserved;
};

_Static_assert(sizeof(struct wire_list) == MEMREG_GRANTS_SIZE(0) &&
	       sizeof(struct wire_list) + sizeof(struct wire_entry) ==
	       MEMREG_GRANTS_SIZE(1), "the formats are fixed");

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

/*
 * Lists
 */

static int take_segments(struct memreg *m, uint32_t mr,
			 struct ib_memreg_segment *segments,
			 struct memreg_grant *grants, unsigned int *count)
{
	unsigned int i, room = *count;
	struct memreg_mr_info info;
	int ret = memreg_mr_query(m, mr, &info, segments, count);

	if (ret)
		return ret;
	if (!info.mr.rkey)
		return memreg__fail("mr_grants", -EACCES,
				    "the MR has no remote access");
	if (*count > room)
		return memreg__fail("mr_grants", -ENOSPC,
				    "there is no room for so many grants");
	for (i = 0; i < *count; i++)
		grants[i] = (struct memreg_grant) {
			.iova = segments[i].iova,
			.length = segments[i].length,
			.rkey = segments[i].rkey,
			.access = info.mr.access,
		};
	return 0;
}

EXPORT int memreg_mr_grants(struct memreg *m, uint32_t mr,
			    struct memreg_grant *grants, unsigned int *count)
{
	struct ib_memreg_segment *segments = NULL;
	int ret;

	if (*count) {
		segments = calloc(*count, sizeof(*segments));
		if (!segments)
			return memreg__fail_code("mr_grants", -ENOMEM, 0);
	}
	ret = take_segments(m, mr, segments, grants, count);
	free(segments);
	return memreg__about_id(ret, "MR", mr);
}

EXPORT void memreg_grants_encode(const struct memreg_grant *grants,
				 unsigned int count, void *buf)
{
	struct wire_list list = {
		.magic = htobe32(GRANT_MAGIC),
		.version = htobe16(LIST_VERSION),
		.count = htobe32(count),
	};
	char *at = buf;
	unsigned int i;

	memcpy(at, &list, sizeof(list));
	at += sizeof(list);
	for (i = 0; i < count; i++, at += sizeof(struct wire_entry)) {
		struct wire_entry entry = {
			.iova = htobe64(grants[i].iova),
			.length = htobe64(grants[i].length),
			.rkey = htobe32(grants[i].rkey),
			.access = htobe16((uint16_t)grants[i].access),
		};

		memcpy(at, &entry, sizeof(entry));
	}
}

static struct memreg_grant entry_at(const char *entries, unsigned int i)
{
	struct wire_entry entry;

	memcpy(&entry, entries + i * sizeof(entry), sizeof(entry));
	return (struct memreg_grant) {
		.iova = be64toh(entry.iova),
		.length = be64toh(entry.length),
		.rkey = be32toh(entry.rkey),
		.access = be16toh(entry.access),
	};
}

/* Add a grant to the sum of lengths; false if it is empty, or if one wraps */
static bool is_valid(const struct memreg_grant *grant, uint64_t *sum)
{
	uint64_t end;

	return grant->length &&
	       !__builtin_add_overflow(grant->iova, grant->length - 1, &end) &&
	       !__builtin_add_overflow(*sum, grant->length, sum);
}

static int fail_entry(unsigned int i)
{
	int ret = memreg__fail("grants_decode", -EINVAL,
			       "a grant is empty, or wraps around");

	return memreg__about_number(ret, "grant", i);
}

static int fail_room(unsigned int found, unsigned int *count)
{
	*count = found;
	return memreg__fail("grants_decode", -ENOSPC,
			    "there is no room for so many grants");
}

/* Count the entries of a list that is right in all respects */
static int check_list(const char *buf, size_t len, uint32_t *count)
{
	struct memreg_grant grant;
	struct wire_list list;
	uint64_t sum = 0;
	uint32_t i;

	memcpy(&list, buf, sizeof(list));
	*count = be32toh(list.count);
	if (!*count || *count > MEMREG_GRANTS_MAX)
		return memreg__fail("grants_decode", -EINVAL,
				    "a list has 1 to 65536 grants");
	if (len < MEMREG_GRANTS_SIZE(*count))
		return memreg__fail("grants_decode", -EINVAL,
				    "the data is shorter than the list that it begins");
	for (i = 0; i < *count; i++) {
		grant = entry_at(buf + sizeof(list), i);
		if (!is_valid(&grant, &sum))
			return fail_entry(i);
	}
	return 0;
}

/* A single grant is a list of one */
static int decode_one(const void *buf, size_t len, struct memreg_grant *grants,
		      unsigned int *count)
{
	struct memreg_grant grant;
	uint64_t sum = 0;
	int ret = memreg_grant_decode(buf, len, &grant);

	if (ret)
		return ret;
	if (!is_valid(&grant, &sum))
		return fail_entry(0);
	if (!*count)
		return fail_room(1, count);
	grants[0] = grant;
	*count = 1;
	return 0;
}

EXPORT int memreg_grants_decode(const void *buf, size_t len,
				struct memreg_grant *grants,
				unsigned int *count)
{
	struct wire_list list;
	uint32_t i, found;
	int ret;

	if (len < sizeof(list))
		return memreg__fail("grants_decode", -EINVAL,
				    "the data is shorter than a list of grants");
	memcpy(&list, buf, sizeof(list));
	if (be32toh(list.magic) != GRANT_MAGIC)
		return memreg__fail("grants_decode", -EINVAL,
				    "the data is no list of grants: its magic number is another");
	if (be16toh(list.version) == GRANT_VERSION)
		return decode_one(buf, len, grants, count);
	if (be16toh(list.version) != LIST_VERSION)
		return memreg__fail("grants_decode", -EOPNOTSUPP,
				    "the list is of a version that this library doesn't know");
	ret = check_list(buf, len, &found);
	if (ret)
		return ret;
	if (found > *count)
		return fail_room(found, count);
	*count = found;
	for (i = 0; i < found; i++)
		grants[i] = entry_at((const char *)buf + sizeof(list), i);
	return 0;
}
