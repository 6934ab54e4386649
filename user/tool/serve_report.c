// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What memreg serve reports: lines for people, or with --json records */
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "record.h"
#include "serve.h"

void report_text(const struct server *s, const char *format, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	if (!s->json) {
		say("%s", text);
		return;
	}
	record_event("message");
	record_string("text", text, sizeof(text));
	record_end();
}

/* What a peer has, of its own unless it is an export */
static const char *thing(const struct server *s)
{
	return s->exports ? "export" : s->pool ? "buffer" : "window";
}

static uint64_t length_for_peer(const struct server *s)
{
	return s->pool ? s->buffer_size : s->size;
}

static uint64_t offset_of(const struct server *s, const struct peer *p)
{
	return (uint64_t)((char *)p->buffer - s->memory);
}

static void say_serving(const struct server *s, const char *device,
			const char *at)
{
	const char *domains = s->exports ? "one export for all" :
			      s->shared ? "one domain for all" :
					  "a domain for each peer";
	char access[ACCESS_TEXT];

	access_text(s->access, access);
	if (s->pool)
		say("serving %" PRIu64 " buffers of %" PRIu64
		    " bytes on %s, address %s, to %s, %s", s->buffers,
		    s->buffer_size, device, at, access, domains);
	else
		say("serving %" PRIu64
		    " bytes of %s on %s, address %s, to %s, %s", s->size,
		    s->file ? s->file : "anonymous memory", device, at, access,
		    domains);
}

void report_serving(const struct server *s, const char *device,
		    const struct ib_memreg_addr *bound)
{
	char at[ADDRESS_TEXT];

	if (!s->json) {
		say_serving(s, device, place_text(bound, at));
		return;
	}
	record_event("serving");
	record_string("device", device, strlen(device));
	record_string("address", address_text(bound, at), ADDRESS_TEXT);
	if (s->file)
		record_string("file", s->file, strlen(s->file));
	record_number("length_bytes", s->size);
	if (s->pool) {
		record_number("buffers", s->buffers);
		record_number("size_bytes", s->buffer_size);
	}
	record_access(s->access);
	record_bool("shared_domain", s->shared || s->exports);
	record_bool("export", s->exports);
	record_end();
}

void report_end(const struct server *s)
{
	if (!s->json) {
		say("end");
		return;
	}
	record_event("end");
	record_end();
}

void report_memory(const struct server *s, bool there)
{
	if (!s->json) {
		say("%s", there ? "it is registered anew" :
		    "the memory went, as it does when its file is truncated");
		return;
	}
	record_event(there ? "memory_registered" : "memory_gone");
	record_end();
}

/* What each record about a peer begins with */
static void record_peer(const char *event, const struct peer *p)
{
	record_event(event);
	record_number("peer", p->id);
	record_string("address", p->address, sizeof(p->address));
}

/* The key of a peer's window, and whether the window is revoked */
static void record_key(const struct peer *p)
{
	record_number("rkey", p->rkey);
	record_bool("revoked", !p->bound);
}

void report_connected(const struct server *s, const struct peer *p)
{
	char access[ACCESS_TEXT];

	if (s->json) {
		record_peer("connected", p);
		record_access(s->access);
		record_number("length_bytes", length_for_peer(s));
		if (s->pool)
			record_number("offset_bytes", offset_of(s, p));
		record_key(p);
		record_end();
	} else if (!p->bound) {
		say("peer %" PRIu32 ": connected from %s, its %s is revoked",
		    p->id, p->address, thing(s));
	} else {
		say("peer %" PRIu32 ": connected from %s, may %s %" PRIu64
		    " bytes, rkey 0x%08" PRIx32, p->id, p->address,
		    access_text(s->access, access), length_for_peer(s),
		    p->rkey);
		if (s->pool)
			say("peer %" PRIu32 ": its buffer is at %" PRIu64,
			    p->id, offset_of(s, p));
	}
}

void report_gone(const struct server *s, const struct peer *p, int64_t ms)
{
	if (!s->json) {
		say("peer %" PRIu32 ": gone after %" PRId64 ".%" PRId64
		    " s%s%s%s", p->id, ms / 1000, ms % 1000 / 100,
		    s->exports ? "" : ", its ", s->exports ? "" : thing(s),
		    s->exports ? "" : " is revoked");
		return;
	}
	record_peer("gone", p);
	record_milli("connected_seconds", ms);
	record_end();
}

void report_failed(const struct server *s, const struct peer *p,
		   const char *reason)
{
	if (!s->json) {
		say("peer %" PRIu32 ": from %s, did not come up: %s", p->id,
		    p->address, reason);
		return;
	}
	record_peer("failed", p);
	record_string("reason", reason, strlen(reason));
	record_end();
}

void report_revoked(const struct server *s, const struct peer *p)
{
	if (!s->json) {
		say("peer %" PRIu32 ": revoked, rkey 0x%08" PRIx32 " is dead",
		    p->id, p->rkey);
		return;
	}
	record_peer("revoked", p);
	record_key(p);
	record_end();
}

void report_window_gone(const struct server *s, const struct peer *p)
{
	if (!s->json) {
		say("peer %" PRIu32 ": its %s went with the memory", p->id,
		    thing(s));
		return;
	}
	record_peer("window_gone", p);
	record_end();
}

void report_peer(const struct server *s, const struct peer *p)
{
	if (!s->json) {
		say("peer %" PRIu32 ": %s, rkey 0x%08" PRIx32 " %s%s", p->id,
		    p->address, p->rkey, p->bound ? "good" : "revoked",
		    p->up ? "" : ", not connected yet");
		return;
	}
	record_peer("peer", p);
	record_bool("connected", p->up);
	record_key(p);
	record_end();
}

void report_list_end(const struct server *s)
{
	if (!s->json) {
		say("end of list");
		return;
	}
	record_event("end_of_list");
	record_end();
}

void report_shown(const struct server *s, uint64_t offset, uint64_t len)
{
	if (s->json) {
		record_event("show");
		record_number("offset_bytes", offset);
		record_number("length_bytes", len);
		record_hex("data_hex", s->memory + offset, len);
		record_end();
		return;
	}
	say("show %" PRIu64 " %" PRIu64, offset, len);
	print_hex(s->memory + offset, offset, len);
	say("end of show");
}

void report_set(const struct server *s, uint64_t offset, uint64_t len)
{
	if (!s->json) {
		say("set %" PRIu64 " %" PRIu64, offset, len);
		return;
	}
	record_event("set");
	record_number("offset_bytes", offset);
	record_number("length_bytes", len);
	record_end();
}
