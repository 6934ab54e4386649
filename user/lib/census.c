// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Explain a failed call by the list of live objects: which of several ids does
 * not exist, which objects use an object that is in use, in which state an
 * endpoint or a window is. The list is read when memreg_reason() is called, so
 * it shows the state at that time.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "line.h"

#define bit(type)	(1u << IB_MEMREG_OBJECT_##type)

static const struct {
	const char *noun;
	uint32_t types;
} nouns[] = {
	{ "domain", bit(DOMAIN) },
	{ "MR", bit(MR) },
	{ "window", bit(WINDOW) },
	{ "endpoint", bit(ENDPOINT) },
	{ "ring", bit(RING) },
	{ "shared receive queue", bit(SRQ) },
	{ "receive queue", bit(ENDPOINT) | bit(SRQ) },
	{ "listener or endpoint", bit(LISTENER) | bit(ENDPOINT) },
	{ "object", ~0u },
};

static uint32_t types_of(const char *noun)
{
	size_t i;

	for (i = 0; i < sizeof(nouns) / sizeof(nouns[0]); i++)
		if (!strcmp(nouns[i].noun, noun))
			return nouns[i].types;
	return 0;
}

/* The noun that means this type and no other */
static const char *noun_of(uint32_t type)
{
	size_t i;

	for (i = 0; i < sizeof(nouns) / sizeof(nouns[0]); i++)
		if (type < 32 && nouns[i].types == 1u << type)
			return nouns[i].noun;
	return "object";
}

static bool is_of(const struct ib_memreg_object *o, uint32_t types, uint64_t id)
{
	return o->id && o->id == id && o->type < 32 && types & 1u << o->type;
}

/* Keep an object if it belongs to a file of this process. */
static bool keep(struct census *c, const struct ib_memreg_object *o)
{
	struct ib_memreg_object *more;

	if (o->pid != getpid())
		return true;
	/* The array grows by 64 entries each time that it is full. */
	if (!(c->count & 63)) {
		more = realloc(c->objects, (c->count + 64) * sizeof(*o));
		if (!more)
			return false;
		c->objects = more;
	}
	c->objects[c->count++] = *o;
	return true;
}

void memreg__census_take(struct census *c)
{
	struct ib_memreg_object object;
	struct memreg_list *list;
	int ret;

	*c = (struct census) { NULL, 0 };
	if (memreg_list_open(&list))
		return;
	do {
		ret = memreg_list_next(list, &object, sizeof(object));
	} while (ret > 0 && keep(c, &object));
	memreg_list_close(list);
	/* The caller would take a part of the list for all of it. */
	if (ret)
		c->count = 0;
}

bool memreg__census_has(const struct census *c, const char *noun, uint64_t id)
{
	uint32_t types = types_of(noun);
	size_t i;

	for (i = 0; i < c->count; i++)
		if (is_of(&c->objects[i], types, id))
			return true;
	return !c->count || !types;
}

/*
 * An object's users by kind, and its state. A value that differs between the
 * files with an object of this id counts as unknown.
 */
struct state {
	const struct ib_memreg_object *object;
	unsigned int users[IB_MEMREG_OBJECT_SRQ + 1];
};

static struct state state_of(const struct census *c,
			     const struct ib_memreg_object *o)
{
	struct state s = { .object = o };
	size_t i;

	for (i = 0; i < c->count; i++) {
		const struct ib_memreg_object *user = &c->objects[i];

		if (user->file == o->file && user->domain_id == o->id &&
		    o->type == IB_MEMREG_OBJECT_DOMAIN &&
		    user->type <= IB_MEMREG_OBJECT_SRQ)
			s.users[user->type]++;
	}
	return s;
}

/* Do two objects, of different files perhaps, agree in what is reported? */
static bool same_details(const struct ib_memreg_object *a,
			 const struct ib_memreg_object *b)
{
	switch (a->type) {
	case IB_MEMREG_OBJECT_WINDOW:
		return a->u.window.bound == b->u.window.bound;
	case IB_MEMREG_OBJECT_ENDPOINT:
		return a->u.endpoint.state == b->u.endpoint.state &&
		       !a->u.endpoint.listener_id == !b->u.endpoint.listener_id;
	default:
		return true;
	}
}

static bool same_state(const struct state *a, const struct state *b)
{
	return a->object->type == b->object->type &&
	       a->object->users == b->object->users &&
	       same_details(a->object, b->object) &&
	       !memcmp(a->users, b->users, sizeof(a->users));
}

/*
 * The state of an object if there is one object of this id and its state is
 * known
 */
static bool find_state(const struct census *c, uint32_t types, uint64_t id,
		       struct state *state)
{
	bool found = false;
	struct state s;
	size_t i;

	for (i = 0; i < c->count; i++) {
		if (!is_of(&c->objects[i], types, id))
			continue;
		s = state_of(c, &c->objects[i]);
		if (found && !same_state(&s, state))
			return false;
		*state = s;
		found = true;
	}
	return found;
}

/* Append like "2 MRs, 1 window". Returns false if there are none. */
static bool add_users(struct out *out, const struct state *s)
{
	static const struct {
		uint32_t type;
		const char *noun;
	} kinds[] = {
		{ IB_MEMREG_OBJECT_MR, "MR" },
		{ IB_MEMREG_OBJECT_WINDOW, "window" },
		{ IB_MEMREG_OBJECT_ENDPOINT, "endpoint" },
		{ IB_MEMREG_OBJECT_SRQ, "shared receive queue" },
	};
	unsigned int i, n, shown = 0;

	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		n = s->users[kinds[i].type];
		if (n)
			add(out, "%s%u %s%s", shown++ ? ", " : "", n,
			    kinds[i].noun, n > 1 ? "s" : "");
	}
	return shown;
}

static const char *explain_users(const struct state *s, struct out *out)
{
	uint32_t id = s->object->id, users = s->object->users;
	struct out before = *out;

	switch (s->object->type) {
	case IB_MEMREG_OBJECT_DOMAIN:
		add(out, "domain %" PRIu32 " has ", id);
		if (add_users(out, s))
			return "destroy those first";
		*out = before;
		break;
	case IB_MEMREG_OBJECT_MR:
		if (!users)
			break;
		add(out, "MR %" PRIu32 " is in work requests that have not completed",
		    id);
		return "wait for their completions";
	case IB_MEMREG_OBJECT_RING:
		if (!users)
			break;
		add(out, "ring %" PRIu32 " serves %" PRIu32 " queue%s", id,
		    users, users > 1 ? "s" : "");
		return "destroy its endpoints and shared receive queues first";
	case IB_MEMREG_OBJECT_SRQ:
		if (!users)
			break;
		add(out, "shared receive queue %" PRIu32 " serves %" PRIu32
		    " endpoint%s", id, users, users > 1 ? "s" : "");
		return "destroy those first";
	}
	add(out, "another call is at work on %s %" PRIu32,
	    noun_of(s->object->type), id);
	return "wait for that call";
}

/*
 * An endpoint is in another state than the call needs. With @answer the call
 * answers a peer.
 */
static bool explain_endpoint(const struct state *s, bool answer,
			     struct out *out)
{
	uint32_t id = s->object->id, state = s->object->u.endpoint.state;
	bool requested = s->object->u.endpoint.listener_id;

	switch (state) {
	case IB_MEMREG_ENDPOINT_CLOSED:
		add(out, answer && requested ?
		    "the peer of endpoint %" PRIu32 " has given up" :
		    "the connection of endpoint %" PRIu32 " is over", id);
		return true;
	case IB_MEMREG_ENDPOINT_REQUESTED:
		add(out, "endpoint %" PRIu32 " is not accepted yet", id);
		return !answer;
	case IB_MEMREG_ENDPOINT_CONNECTING:
	case IB_MEMREG_ENDPOINT_CONNECTED:
		if (answer)
			add(out, requested ?
			    "endpoint %" PRIu32 " was accepted already" :
			    "endpoint %" PRIu32 " is no request of a peer, but was made by connect",
			    id);
		else
			add(out, "endpoint %" PRIu32 " is not connected yet",
			    id);
		return answer || state == IB_MEMREG_ENDPOINT_CONNECTING;
	}
	return false;
}

static bool explain_state(const struct census *c,
			  const struct memreg__failure *f, struct out *out)
{
	bool answer = !strcmp(f->what, "accept") ||
		      !strcmp(f->what, "reject") || !strcmp(f->what, "setup");
	struct out before = *out;
	struct state s;

	if (f->noun[0] && !strcmp(f->noun[0], "endpoint") &&
	    find_state(c, bit(ENDPOINT), f->value[0], &s) &&
	    explain_endpoint(&s, answer, out))
		return true;
	*out = before;
	return false;
}

bool memreg__census_explain(const struct census *c,
			    const struct memreg__failure *f, struct out *out,
			    const char **hint)
{
	struct state s;

	switch (f->code) {
	case IB_MEMREG_REASON_STATE:
		return explain_state(c, f, out);
	case IB_MEMREG_REASON_IN_USE:
		if (!f->noun[0] ||
		    !find_state(c, types_of(f->noun[0]), f->value[0], &s))
			return false;
		*hint = explain_users(&s, out);
		return true;
	default:
		return false;
	}
}
