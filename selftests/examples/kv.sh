#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# The store of keys and values among the examples: stock clients get the values,
# each by a key of its own, at once and one after the other, and nobody's end is
# that of the server.
# shellcheck disable=SC2317 # functions are called by check

cd "$(dirname "$(realpath "$0")")/.." || exit
# shellcheck source-path=SCRIPTDIR source=../lib/tool.sh
. lib/tool.sh

KV=../build/user/examples/kv
GET=../build/user/examples/kv_get
LONG=$(printf '%04095d' 7)
trap '[ -z "${SERVER:-}" ] || kill "$SERVER" 2>/dev/null; rm -f "$SAID" "$SAID".*' EXIT

# serve: in the background, until it listens.
serve() {
	ip netns exec memreg-owner "$KV" rxe_owner 7471 color=blue "long=$LONG" \
		"${LONG:0:200}=deep" empty= >"$SAID.kv" 2>&1 &
	SERVER=$!
	await 60 objects listener - 1
}

get() {
	ip netns exec memreg-peer "$GET" 192.0.2.1 7471 "$@"
}

# gets EXPECTED KEY...
gets() {
	local expected=$1 got
	shift
	got=$(get "$@" 2>>"$SAID") && [ "$got" = "$expected" ] && return
	echo "not what was expected: $got" >>"$SAID"
	return 1
}

# The third key is longer than what a completion entry can have.
values_are_read() {
	gets blue color && gets "$LONG" long && gets deep "${LONG:0:200}" &&
		gets "$(printf 'blue\n%s\nblue' "$LONG")" color long color
}

what_is_not_there_is_reported() {
	says 1 'there is no colour' get colour &&
		says 1 'there is no empty' get empty && gets blue color
}

# More requests than the pool has buffers, so that each buffer is used again.
buffers_come_back() {
	local keys=() i
	for i in {1..150}; do
		keys+=(color)
	done
	gets "$(printf 'blue\n%.0s' {1..150})" "${keys[@]}"
}

clients_at_once() {
	local pids=() status=0 i
	for i in 1 2 3 4; do
		gets "$(printf 'blue\n%s' "$LONG")" color long &
		pids+=($!)
	done
	for i in "${pids[@]}"; do
		wait "$i" || status=1
	done
	return "$status"
}

# A client that READs all of its buffer finds nothing behind its value: neither of
# longer values, nor of longer requests.
nothing_of_others_is_left_behind() {
	local keys=() i
	for i in {1..150}; do
		keys+=(color "${LONG:0:200}")
	done
	gets deep "${LONG:0:200}" &&
	gets "$(printf '%s\n' "$LONG" "$LONG")" long long &&
		[ "$(ip netns exec memreg-peer "$BUILD/selftests/kv" 192.0.2.1 7471 \
			long "${keys[@]}" 2>>"$SAID" | sort -u)" = 0 ]
}

# A client that connects, asks nothing, and is killed.
client_that_is_killed_ends_nothing() {
	local pid status=0
	mkfifo "$SAID.go" || return
	ip netns exec memreg-peer verbs_peer -i -t 60000 -c 60000 192.0.2.1 \
		7471 <>"$SAID.go" >>"$SAID" 2>&1 &
	pid=$!
	await 60 objects endpoint connected 1 || status=1
	kill -KILL "$pid"
	wait "$pid" 2>/dev/null
	await 60 objects endpoint connected 0 || status=1
	gets blue color && return "$status"
}

server_is_well() {
	kill -0 "$SERVER" && ! [ -s "$SAID.kv" ] && return
	cat "$SAID.kv" >>"$SAID"
	return 1
}

serve || exit
check values_are_read
check what_is_not_there_is_reported
check buffers_come_back
check clients_at_once
check nothing_of_others_is_left_behind
check client_that_is_killed_ends_nothing
check server_is_well
kill "$SERVER"
wait "$SERVER" 2>/dev/null
SERVER=
exit "$FAILED"
