#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# The least that has to work on a kernel: the module loads, a peer reads a window
# until it is revoked, and the module unloads. Both ends are in the first network
# namespace, the only one in which soft-RoCE works on Linux 6.12.
# shellcheck disable=SC2317 # functions are called by check

cd "$(dirname "$(realpath "$0")")/.." || exit
# shellcheck source-path=SCRIPTDIR source=../lib/tool.sh
. lib/tool.sh
# shellcheck source-path=SCRIPTDIR source=../lib/one_net.sh
. lib/one_net.sh

DIR=$(mktemp -d)
trap 'rm -rf "$DIR" "$SAID"' EXIT
mkfifo "$DIR/go"

module_loads() {
	module_load && one_net_up && memreg caps -d rxe_owner >>"$SAID" 2>&1
}

# serve: start a server. $TO is its input; await_said waits for a line of its
# output.
serve() {
	mkfifo "$DIR/to"
	memreg serve -d rxe_owner -a 192.0.2.1 --size 64K \
		<"$DIR/to" >"$DIR/said" 2>&1 &
	SERVER=$!
	exec {TO}>"$DIR/to"
	await 60 grep -q "serving 65536 bytes" "$DIR/said" || cat "$DIR/said"
}

# A key works until the server revokes it, and then no more, on the same
# connection.
peer_reads_until_revoked() {
	local peer status=0
	serve || status=1
	echo "set 0 hello" >&"$TO"
	verbs_peer -t 60000 -c 60000 192.0.2.1 7471 read 0 5 expect ok pause \
		read 0 5 expect access <"$DIR/go" >"$DIR/peer" 2>&1 &
	peer=$!
	exec {GO}>"$DIR/go"
	await 60 grep -q 'result=match' "$DIR/peer" || status=1
	echo "revoke all" >&"$TO"
	await 60 grep -q revoked "$DIR/said" || status=1
	exec {GO}>&-
	wait "$peer" || status=1
	echo quit >&"$TO"
	exec {TO}>&-
	wait "$SERVER" || status=1
	cat "$DIR/said" "$DIR/peer" >>"$SAID"
	grep -q 'data=68656c6c6f' "$DIR/peer" && return "$status"
}

module_unloads() {
	objects region - 0 && memreg unload >>"$SAID" 2>&1 && one_net_down &&
		[ ! -d /sys/module/ib_memreg ]
}

topology_down
check module_loads
check peer_reads_until_revoked
check module_unloads
exit "$FAILED"
