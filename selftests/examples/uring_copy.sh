#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# The example uring copies a file to a peer: completely, or the receiver
# reports an error.
# shellcheck disable=SC2317 # functions are called by check

cd "$(dirname "$(realpath "$0")")/.." || exit
# shellcheck source-path=SCRIPTDIR source=../lib/tool.sh
. lib/tool.sh

COPY=../build/user/examples/uring
AT=(192.0.2.1 7471)
[ -x $COPY ] || exit 4

DIR=$(mktemp -d)
trap 'rm -rf "$DIR" "$SAID"' EXIT
head -c 1000003 /dev/urandom >"$DIR/file"
mkfifo "$DIR/pipe"

# receive: start the receiver in the background, and wait until it listens.
# $RECEIVER is its process.
receive() {
	ip netns exec memreg-owner "$COPY" rxe_owner -l "${AT[@]}" \
		>"$DIR/copy" 2>>"$SAID" &
	RECEIVER=$!
	await 60 objects listener - 1
}

# send FILE
send() {
	ip netns exec memreg-peer "$COPY" rxe_peer "${AT[@]}" <"$1" 2>>"$SAID"
}

copy_is_whole() {
	if ! receive || ! send "$DIR/file"; then
		kill "$RECEIVER"
		return 1
	fi
	wait "$RECEIVER" && cmp "$DIR/file" "$DIR/copy"
}

arrived() {
	[ -s "$DIR/copy" ]
}

# A sender that dies in the middle has not come to the end of its file.
part_is_no_copy() {
	local status=0 sender
	receive || status=1
	ip netns exec memreg-peer "$COPY" rxe_peer "${AT[@]}" <"$DIR/pipe" &
	sender=$!
	exec {PIPE}>"$DIR/pipe"
	head -c 1000 "$DIR/file" >&"$PIPE"
	await 60 arrived || status=1
	kill -KILL "$sender"
	wait "$sender" 2>/dev/null
	exec {PIPE}>&-
	((status == 0)) || kill "$RECEIVER"
	wait "$RECEIVER"
	[ $? = 1 ] && grep -q 'receive: ' "$SAID" && return "$status"
}

check copy_is_whole
check part_is_no_copy
exit "$FAILED"
