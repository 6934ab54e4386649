#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# ib_memreg_blk with a server that lies: each lie ends the connection, and none
# of them does harm. blk_liar.c has what they are.
# time limit: 300
# shellcheck disable=SC2317,SC2329 # functions are called by check

cd "$(dirname "$(realpath "$0")")/.." || exit
# shellcheck source-path=SCRIPTDIR source=../lib/topology.sh
. lib/topology.sh
# shellcheck source-path=SCRIPTDIR source=../lib/blk.sh
. lib/blk.sh

trap blk_end EXIT

lies=(seq capacity length epoch tag idle-tag status error-length refusal reserved
	no-key key short long too-long garbage twice)
# Lies that are possible if data is in messages.
data_lies=(seq length tag idle-tag error-length reserved short long garbage
	more-data byte-more less-data byte-less no-data data-of-error twice)
LIES=() DATA_LIES=()
for ((i = 0; i < ${MEMREG_TIMES:-1}; i++)); do
	LIES+=("${lies[@]}")
	DATA_LIES+=("${data_lies[@]}")
done

# liar_begin EVERY LIE...: start a server that tells these lies.
liar_begin() {
	: >"$SAID.server"
	ip netns exec memreg-peer "$TOPOLOGY_TREE/build/selftests/blk_liar" \
		192.0.2.2 "$@" >"$SAID.server" 2>&1 &
	SERVER=$!
	await 60 server_says 'serving on'
}

# liar EVERY LIE...: a device of such a server.
liar() {
	liar_begin "$@" &&
		blk_make dev queues=1 depth=8 "io_timeout=${WAIT:-30}" \
			retries=10 &&
		{ [ -n "${OFFERED:-}" ] || blk_enable dev; }
}

down() {
	rmdir "$BLK/dev"
	server_end KILL
}

# told COUNT: lies that were told.
told() {
	[ "$(grep -c '^lie:' "$SAID.server")" = "$1" ]
}

# One that is told twice in a connection that is over already counts once.
lies_end_the_connection() {
	local every=$1
	shift
	liar "$every" "$@" && unmerged || return
	TAKEN=$(blk_count dev mrs-taken)
	verify "$DISK" randwrite 4K 4 $(($# * 80))K --verify_backlog=16 ||
		return
	told $# && [ "$(blk_count dev failed)" = 0 ] &&
		[ "$(blk_count dev timeouts)" = 0 ] &&
		[ "$(blk_count dev protocol-errors)" -ge $# ] &&
		[ "$(blk_count dev losses)" = $# ] &&
		blk_is dev state live
}

I5_lies_end_the_connection_and_do_no_harm() {
	lies_end_the_connection 30 "${LIES[@]}" && down
}

# There are no keys that could be named, but for what the kernel may have read
# ahead when it looked for partitions.
I5_lies_about_data_end_the_connection_and_do_no_harm() {
	lies_end_the_connection 30:4096 "${DATA_LIES[@]}" &&
		[ "$(blk_count dev mrs-taken)" = "$TAKEN" ] &&
		[ "$(blk_count dev bogus-invalidations)" = 0 ] && down
}

# Longer than the client has offered, also if it has offered nothing.
more_data_than_was_offered_is_refused() {
	local offered
	for offered in 0 4096; do
		OFFERED=$offered liar 1000:4608 &&
			blk_set dev inline_max "$offered" && ! blk_enable dev &&
			blk_get dev error | grep 'data in messages' &&
			[ "$(blk_count dev protocol-errors)" = 1 ] &&
			down || return
	done
	liar 1000:512 && unmerged && less_data_than_was_offered && down
}

less_data_than_was_offered() {
	local taken
	taken=$(blk_count dev mrs-taken)
	verify "$DISK" randwrite 512 4 16K &&
		[ "$(blk_count dev mrs-taken)" = "$taken" ] &&
		verify "$DISK" randwrite 1K 4 16K &&
		(($(blk_count dev mrs-taken) >= taken + 32)) && no_errors dev
}

# reads: direct, one at a time, until something fails.
reads() {
	dd if="$DISK" of=/dev/null bs=4K count="$1" iflag=direct status=none
}

I1_no_key_works_after_the_answer() {
	liar 20 late && reads 40 && told 1 &&
		await 20 server_says '^late:' &&
		server_says '^late: remote access error' && down
}

# The key of a command that was not answered, on the next connection.
I1_no_key_works_after_recovery() {
	WAIT=5 liar 20 silent && reads 40 && told 1 &&
		await 20 server_says '^late:' &&
		server_says '^late: remote access error' &&
		(($(blk_count dev timeouts) > 0)) &&
		[ "$(blk_count dev failed)" = 0 ] && down
}

# A command that is not answered within io_timeout, though others are, and is
# answered later.
slow_ones_are_waited_for() {
	WAIT=10 liar 20 slow && reads 40 && told 1 &&
		server_says '^slow: answered' && no_errors dev &&
		[ "$(blk_count dev retries)" = 0 ] && down
}

errors_are_not_retried() {
	liar 20 io && ! reads 40 && told 1 &&
		[ "$(blk_count dev failed)" = 1 ] &&
		[ "$(blk_count dev retries)" = 0 ] &&
		[ "$(blk_count dev losses)" = 0 ] && reads 40 && down
}

invalid_ends_the_connection_and_the_command() {
	liar 20 invalid && ! reads 40 && told 1 &&
		[ "$(blk_count dev failed)" = 1 ] &&
		[ "$(blk_count dev retries)" = 0 ] &&
		await 60 blk_is dev state live &&
		[ "$(blk_count dev losses)" = 1 ] && reads 40 && down
}

# The first loss is no reason to wait, those of connections that are of no use are:
# 0.1 seconds, 0.2, and so on, 6.3 together.
who_drops_connections_is_asked_less_and_less() {
	local start=$EPOCHREALTIME took
	liar 20 seq drop drop drop drop drop drop && reads 40 && told 7 || return
	took=$(((${EPOCHREALTIME/./} - ${start/./}) / 1000))
	echo "it took $took ms"
	((took >= 6300)) && [ "$(blk_count dev losses)" -le 7 ] &&
		[ "$(blk_count dev failed)" = 0 ] && down
}

# Nor are they connections that I/O could be done by.
who_only_drops_connections_is_none() {
	local lies=(seq drop drop drop drop drop drop drop drop drop drop)
	liar_begin 20 "${lies[@]}" "${lies[@]/seq/drop}" &&
		blk_make dev queues=1 depth=8 retries=1000 fail_after=2 &&
		blk_enable dev && ! reads 40 &&
		[ "$(blk_count dev retries)" -le 10 ] && down
}

# Another capacity with each answer: user space hears of it once in a second.
changes_of_capacity_are_put_together() {
	local start before resizes
	liar 20 wobble && reads 40 && told 1 || return
	before=$(blk_count dev resizes) start=$SECONDS
	reads 600 || return
	await 20 capacity_was_reported "$before" || return
	resizes=$(($(blk_count dev resizes) - before))
	echo "$resizes of 600 in $((SECONDS - start)) s"
	((resizes <= SECONDS - start + 2)) && no_errors dev && down
}

capacity_was_reported() {
	(($(blk_count dev resizes) > $1))
}

# It goes when the kernel looks for partitions, and nobody can disable what is
# not yet enabled.
server_leaves_while_a_disk_is_made() {
	local device
	liar_begin 1 leave && blk_make dev queues=1 depth=8 fail_after=-1 ||
		return
	! blk_enable dev || return
	blk_is dev state disabled && blk_is dev disk '' && told 1 &&
		[ -n "$(blk_get dev error)" ] || return
	for device in /dev/memregb*; do
		[ ! -b "$device" ] || return
	done
	down
}

check blk_load
check I5_lies_end_the_connection_and_do_no_harm
check I5_lies_about_data_end_the_connection_and_do_no_harm
check more_data_than_was_offered_is_refused
check I1_no_key_works_after_the_answer
check I1_no_key_works_after_recovery
check slow_ones_are_waited_for
check errors_are_not_retried
check invalid_ends_the_connection_and_the_command
check who_drops_connections_is_asked_less_and_less
check who_only_drops_connections_is_none
check changes_of_capacity_are_put_together
check server_leaves_while_a_disk_is_made
exit $BLK_FAILED
