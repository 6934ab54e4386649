#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# A file goes to a peer by the example uring, whole.

cd "$(dirname "$(realpath "$0")")" || exit
# shellcheck source-path=SCRIPTDIR source=lib/topology.sh
. lib/topology.sh

COPY=../build/user/examples/uring
AT=(192.0.2.1 7471)
[ -x $COPY ] || exit 4

DIR=$(mktemp -d)
trap 'rm -rf "$DIR"' EXIT
head -c 1000003 /dev/urandom >"$DIR/file"

send() {
	ip netns exec memreg-peer $COPY rxe_peer "${AT[@]}" <"$DIR/file"
}

ip netns exec memreg-owner $COPY rxe_owner -l "${AT[@]}" >"$DIR/copy" &
# It takes a moment until somebody listens.
await 30 send 2>"$DIR/said" || { cat "$DIR/said"; kill $!; exit 1; }
wait $! || exit
cmp "$DIR/file" "$DIR/copy"
