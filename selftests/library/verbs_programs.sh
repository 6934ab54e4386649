#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Programs of others in front of libmemreg-verbs: perftest, the examples of
# libibverbs and of librdmacm. On a device that imports dma-bufs every registration
# of theirs is guarded (MEMREG_VERBS=strict), and they end as they do without.
#
# time limit: 300
# shellcheck disable=SC2317,SC2329 # functions are called by check

cd "$(dirname "$(realpath "$0")")/.." || exit
# shellcheck source-path=SCRIPTDIR source=../lib/tool.sh
. lib/tool.sh

WORK=$(mktemp -d)
VERBS=$WORK/libmemreg-verbs.so.0
trap 'rm -rf "$SAID" "$WORK"' EXIT
cp ../build/user/verbs/libmemreg-verbs.so.0 "$VERBS"

owner memreg caps -d rxe_owner --json |
	grep -q '"export-register":{"value":true' || exit 4

SERVER_IP=192.0.2.1
PORT=18500

# pair SERVER -- CLIENT: run a server at the owner's end, and a client at the
# peer's, which is tried again until the server listens. Both have to succeed.
pair() {
	local server=() pid status=1 end=$((SECONDS + 40))
	while [ "$1" != -- ]; do
		server+=("$1")
		shift
	done
	shift
	owner "${server[@]}" >"$WORK/server" 2>&1 &
	pid=$!
	while kill -0 "$pid" 2>/dev/null && ((SECONDS < end)); do
		if timeout 60 ip netns exec memreg-peer "$@" \
			>"$WORK/client" 2>&1; then
			status=0
			break
		fi
		grep -qi "couldn't connect\|refused\|unable to\|rejected" \
			"$WORK/client" || break
	done
	[ "$status" = 0 ] || { cat "$WORK/client"; kill "$pid"; }
	wait "$pid" || status=1
	[ "$status" = 0 ] || cat "$WORK/server"
	return "$status"
}

# preloaded: the words that put the library in front of a program
PRELOADED=(env LD_PRELOAD="$VERBS" MEMREG_VERBS=strict)

# both SERVER -- CLIENT: without the library, and with it, silently.
both() {
	local server=()
	pair "$@" || return
	while [ "$1" != -- ]; do
		server+=("$1")
		shift
	done
	shift
	pair "${PRELOADED[@]}" "${server[@]}" -- "${PRELOADED[@]}" "$@" &&
		! grep -h libmemreg "$WORK/server" "$WORK/client"
}

perftest() {
	local options=(-n 64 -F -p $((++PORT)))
	case $1 in
	*_lat) options+=(-s 4096) ;;
	*atomic*) ;;
	*) options+=(-s 65536) ;;
	esac
	both "$1" -d rxe_owner "${options[@]}" -- \
		"$1" -d rxe_peer "${options[@]}" "$SERVER_IP"
}

perftest_by_cm() {
	local options=(-R -s 65536 -n 64 -F -p $((++PORT)))
	both ib_write_bw "${options[@]}" -- \
		ib_write_bw "${options[@]}" "$SERVER_IP"
}

pingpong() {
	local options=(-g 1 -p $((++PORT)) -n 50)
	both "$1" -d rxe_owner "${options[@]}" -- \
		"$1" -d rxe_peer "${options[@]}" "$SERVER_IP"
}

rping_verifies() {
	local options=(-a "$SERVER_IP" -p $((++PORT)) -C 20 -V)
	both rping -s "${options[@]}" -- rping -c "${options[@]}"
}

ucmatose_connects() {
	both ucmatose -p $((++PORT)) -- ucmatose -s "$SERVER_IP" -p "$PORT"
}

for program in ib_write_bw ib_read_bw ib_send_bw ib_write_lat ib_read_lat ib_send_lat \
	ib_atomic_bw; do
	check perftest "$program"
done
check perftest_by_cm
check pingpong ibv_rc_pingpong
check pingpong ibv_srq_pingpong
check rping_verifies
check ucmatose_connects
exit "$FAILED"
