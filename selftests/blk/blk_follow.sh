#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# memreg blkd moves to the CPU where commands come in, if they come one at a time
# and it may run there.
# shellcheck disable=SC2317,SC2329 # functions are called by check

cd "$(dirname "$(realpath "$0")")/.." || exit
# shellcheck source-path=SCRIPTDIR source=../lib/topology.sh
. lib/topology.sh
# shellcheck source-path=SCRIPTDIR source=../lib/blk.sh
. lib/blk.sh

trap blk_end EXIT

# serve: start a server that does not poll, but sleeps when it has nothing to
# do.
serve() {
	server_begin -a 192.0.2.2 --poll 0 ram=memory:8M &&
		blk_make dev export=ram && blk_enable dev
}

down() {
	no_errors dev && rmdir "$BLK/dev" && server_end TERM
}

# reads CPU: read one block at a time, by a client on that CPU.
reads() {
	taskset -c "$1" dd if="$DISK" of=/dev/null bs=4K count=64 \
		iflag=direct status=none
}

# may_run_on: CPUs of the thread that serves.
may_run_on() {
	awk '/^Cpus_allowed_list:/ { print $2 }' "/proc/$SERVER/status"
}

# On SIGUSR1 the server prints how often its thread has moved.
has_moved() {
	reads 0 && reads 1 && kill -USR1 "$SERVER" &&
		server_says ' [1-9][0-9]* moves'
}

server_follows_its_client() {
	local before
	serve && before=$(may_run_on) && await 60 has_moved &&
		[ "$(may_run_on)" = "$before" ] && down
}

# The server prints that count once more at its end.
server_stays_where_it_must() {
	SERVER_BY=(taskset -c 0)
	serve && reads 1 && reads 0 && reads 1 && [ "$(may_run_on)" = 0 ] &&
		down && server_says 'end: .* 0 moves'
}

(($(nproc) > 1)) || { echo "1..0 # SKIP there is one CPU"; exit 4; }
check blk_load
check server_follows_its_client
check server_stays_where_it_must
exit $BLK_FAILED
