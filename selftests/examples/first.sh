#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# The program that README.md shows: it serves its peer until that goes.
# shellcheck disable=SC2317 # functions are called by check

cd "$(dirname "$(realpath "$0")")/.." || exit
# shellcheck source-path=SCRIPTDIR source=../lib/tool.sh
. lib/tool.sh

FIRST=../build/user/examples/first
DIR=$(mktemp -d)
trap 'rm -rf "$DIR" "$SAID"' EXIT
mkfifo "$DIR/go"

# ask_and_give_up: request a connection that is not answered, and give up.
ask_and_give_up() {
	local pid
	ip netns exec memreg-peer memreg peek -d rxe_peer 192.0.2.1 \
		>/dev/null 2>&1 &
	pid=$!
	await 60 objects endpoint requested 1
	kill -KILL "$pid"
	wait "$pid" 2>/dev/null
	await 60 objects endpoint closed 1
}

# The peer has written, another host requests a connection and gives up, and the
# peer reads.
bystander_ends_nothing() {
	local status=0 first peer
	ip netns exec memreg-owner "$FIRST" rxe_owner >"$DIR/said" 2>&1 &
	first=$!
	await 60 objects listener - 1 || status=1
	ip netns exec memreg-peer verbs_peer -t 60000 -c 60000 192.0.2.1 7471 \
		write 0 5 65 pause read 0 5 <"$DIR/go" >"$SAID" 2>&1 &
	peer=$!
	exec {GO}>"$DIR/go"
	await 60 grep -q '^write .* status=success' "$SAID" || status=1
	ask_and_give_up || status=1
	await 60 is_in "$first" S || status=1
	exec {GO}>&-
	wait "$peer" || status=1
	((status == 0)) || kill "$first" 2>/dev/null
	wait "$first" || status=1
	cat "$DIR/said" >>"$SAID"
	grep -q '^read .* status=success' "$SAID" &&
		grep -qx 'it left behind: AAAAA' "$SAID" && return "$status"
}

check bystander_ends_nothing
exit "$FAILED"
