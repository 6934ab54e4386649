#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# The example that moves the halo of an array, with a stock peer: after each step,
# both cubes are what the shell makes of the same cubes by itself.
# shellcheck disable=SC2317 # functions are called by check

cd "$(dirname "$(realpath "$0")")/.." || exit
# shellcheck source-path=SCRIPTDIR source=../lib/tool.sh
. lib/tool.sh

HALO=../build/user/examples/halo
PEER=../build/user/examples/halo_peer
N=8
STEPS=3
trap '[ -z "${SERVER:-}" ] || kill "$SERVER" 2>/dev/null; rm -f "$SAID" "$SAID".*' EXIT

# sum_of_neighbours MINE OTHERS Z Y X: set $SUM to the sum over a cell's
# neighbours. At a surface the neighbour is on the opposite surface of the other
# cube.
sum_of_neighbours() {
	local -n mine=$1 others=$2
	local z=$3 y=$4 x=$5 unit at i=$((($3 * N + $4) * N + $5))
	SUM=0
	for unit in 1 $N $((N * N)); do
		case $unit in
		1) at=$x ;;
		"$N") at=$y ;;
		*) at=$z ;;
		esac
		if [ "$at" = 1 ]; then
			SUM=$((SUM + others[i + (N - 3) * unit]))
		else
			SUM=$((SUM + mine[i - unit]))
		fi
		if [ "$at" = $((N - 2)) ]; then
			SUM=$((SUM + others[i - (N - 3) * unit]))
		else
			SUM=$((SUM + mine[i + unit]))
		fi
	done
}

# step MINE OTHERS NEXT: compute one step of a cube, and set $TOTAL to the sum
# over its cells.
step() {
	local -n next=$3
	local z y x i
	TOTAL=0
	for ((z = 1; z < N - 1; z++)); do
		for ((y = 1; y < N - 1; y++)); do
			for ((x = 1; x < N - 1; x++)); do
				i=$(((z * N + y) * N + x))
				sum_of_neighbours "$1" "$2" "$z" "$y" "$x"
				# shellcheck disable=SC2034 # it is the caller's
				next[i]=$SUM
				TOTAL=$((TOTAL + SUM * i))
			done
		done
	done
}

# The programs print to $SAID.halo and $SAID.peer.
expect() {
	local a=() b=() c=() d=() i
	for ((i = 0; i < N * N * N; i++)); do
		a[i]=$i
		b[i]=$((1000 + 3 * i))
	done
	c=("${a[@]}") d=("${b[@]}")
	for ((i = 0; i < STEPS; i++)); do
		step a b c
		printf '%016x\n' "$TOTAL" >>"$SAID.halo"
		step b a d
		printf '%016x\n' "$TOTAL" >>"$SAID.peer"
		a=("${c[@]}") b=("${d[@]}")
	done
}

# begin_peer STEPS: start the peer, and wait until it listens. It prints to
# $SAID.peer.now.
begin_peer() {
	: >"$SAID.peer.now"
	ip netns exec memreg-peer "$PEER" 192.0.2.2 7471 "$1" \
		>>"$SAID.peer.now" 2>>"$SAID" &
	SERVER=$!
	until grep -q ready "$SAID.peer.now"; do
		kill -0 "$SERVER" 2>>"$SAID" || return
	done
}

# both STEPS: run both programs. Ours prints to $SAID.halo.now.
both() {
	local status=0
	begin_peer "$1" || return
	ip netns exec memreg-owner "$HALO" rxe_owner 192.0.2.2 7471 "$1" \
		>"$SAID.halo.now" 2>>"$SAID" || {
		status=1
		kill "$SERVER"
	}
	wait "$SERVER" || status=1
	SERVER=
	return "$status"
}

cubes_are_what_the_shell_computes() {
	expect
	both "$STEPS" || return
	diff "$SAID.halo" "$SAID.halo.now" >>"$SAID" &&
		diff <(echo ready; cat "$SAID.peer") "$SAID.peer.now" >>"$SAID"
}

# A hundred steps, each of which overwrites the results of the one before.
many_steps_end() {
	both 100 && [ "$(wc -l <"$SAID.halo.now")" = 100 ] &&
		[ "$(wc -l <"$SAID.peer.now")" = 101 ] &&
		diff <(head -n "$STEPS" "$SAID.halo.now") "$SAID.halo" >>"$SAID"
}

# The peer is killed between two steps: the other program reports an error, and
# does not hang.
peer_that_goes_ends_it() {
	local status=0 owner
	begin_peer 2 || return
	timeout 60 ip netns exec memreg-owner "$HALO" rxe_owner 192.0.2.2 7471 \
		5 >"$SAID.halo.now" 2>>"$SAID" &
	owner=$!
	until [ "$(wc -l <"$SAID.peer.now")" = 3 ]; do
		kill -0 "$SERVER" "$owner" 2>>"$SAID" || return
	done
	kill -KILL "$SERVER"
	wait "$SERVER"
	SERVER=
	wait "$owner" || status=$?
	[ "$status" = 1 ] && diff "$SAID.halo.now" >>"$SAID" \
		<(head -n "$(wc -l <"$SAID.halo.now")" "$SAID.halo")
}

check cubes_are_what_the_shell_computes
check many_steps_end
check peer_that_goes_ends_it
exit "$FAILED"
