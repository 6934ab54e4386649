// SPDX-License-Identifier: GPL-2.0-only
/* An application that keeps registrations: it does what it is asked for. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "app.h"
#include "mem.h"

static struct {
	struct place place;
	struct app_key key;
	struct qp_end end;
} app;

static int get(struct app_answer *answer)
{
	int ret = cache_get(app.place.at, app.place.length, &app.key);

	answer->rkey = app.key.rkey;
	answer->iova = app.key.iova;
	return ret;
}

static int get_and_put(struct app_answer *answer)
{
	int ret = get(answer);

	if (!ret)
		cache_put(&app.key);
	return ret;
}

/*
 * The cache has to keep the registration: one that it does not keep is never
 * stale.
 */
static int map(const struct app_ask *ask, struct app_answer *answer)
{
	struct app_answer again;
	int ret = place_map(&app.place, ask->change, ask->huge);

	if (ret)
		return ret;
	fill(app.place.at, SMALL_LENGTH, OLD);
	ret = get_and_put(answer);
	ret = ret ?: get_and_put(&again);
	return ret ?: again.rkey == answer->rkey ? 0 : -ENODATA;
}

static int change(const struct app_ask *ask)
{
	int ret = place_change(&app.place, ask->change);

	if (!ret)
		fill(app.place.at, SMALL_LENGTH, NEW);
	return ret;
}

static int serve(const struct app_ask *ask, struct app_answer *answer)
{
	int ret;

	if (!app.key.pd)
		return cache_listen(&answer->port);
	qp_close(&app.end);
	ret = qp_open(&app.end, app.key.pd);
	answer->addr = app.end.addr;
	return ret ?: qp_connect(&app.end, &ask->addr);
}

static int step(const struct app_ask *ask, struct app_answer *answer)
{
	switch (ask->step) {
	case STEP_MAP:
		return map(ask, answer);
	case STEP_CHANGE:
		return change(ask);
	case STEP_GET:
		return get(answer);
	case STEP_PUT:
		cache_put(&app.key);
		return 0;
	case STEP_QP:
		return serve(ask, answer);
	case STEP_ACCEPT:
		return cache_accept();
	case STEP_UNMAP:
		place_unmap(&app.place);
		return 0;
	case STEP_ROUNDS:
		return rounds_run(ask->seed, ask->rounds);
	case STEP_END:
		qp_close(&app.end);
		cache_close();
		return 0;
	default:
		return -EINVAL;
	}
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
	struct app_answer answer = {};
	struct app_ask ask;

	/*
	 * The program that execve(2) has put in place of the application waits
	 * to be killed.
	 */
	while (!strcmp(mode, "--idle"))
		pause();
	/*
	 * The descriptor is closed by execve(2), which shows the other end that
	 * the process has another address space.
	 */
	fcntl(APP_FD, F_SETFD, FD_CLOEXEC);
	answer.ret = cache_open(mode);
	for (;;) {
		if (send(APP_FD, &answer, sizeof(answer), 0) < 0 ||
		    recv(APP_FD, &ask, sizeof(ask), 0) != sizeof(ask))
			return 1;
		memset(&answer, 0, sizeof(answer));
		answer.ret = step(&ask, &answer);
		if (ask.step == STEP_END) {
			send(APP_FD, &answer, sizeof(answer), 0);
			return 0;
		}
	}
}
