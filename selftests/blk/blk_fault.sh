#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# ib_memreg_blk when things go wrong: servers die, hang and come back, the link
# goes down, RDMA devices go away, all of it during I/O; and what is not valid.
# time limit: 600
# shellcheck disable=SC2317,SC2329 # functions are called by check

cd "$(dirname "$(realpath "$0")")/.." || exit
# shellcheck source-path=SCRIPTDIR source=../lib/topology.sh
. lib/topology.sh
# shellcheck source-path=SCRIPTDIR source=../lib/blk.sh
. lib/blk.sh

SLOW=$BLK_FILES/slow

finish() {
	slow_end
	zeroed_end
	blk_end
}
trap finish EXIT

ROUNDS=$((2 * ${MEMREG_TIMES:-1}))

# serve OPTION...: the same file on the same port as the server before.
serve() {
	server_begin -a 192.0.2.2 "$@" file="$BLK_FILES/file"
}

# up ATTRIBUTE=VALUE...: a device with a server, of 4 MiB.
up() {
	file file 4M
	serve && blk_make dev export=file queues=2 "$@" && blk_enable dev
}

down() {
	rmdir "$BLK/dev" || return
	server_end TERM
}

# scheduled: requests of $DISK lose their tags when they are requeued, on kernels
# that have a scheduler.
scheduled() {
	local at=/sys/block/${DISK#/dev/}/queue/scheduler
	! grep -qw mq-deadline "$at" || echo mq-deadline >"$at"
}

# io_until_told: writes that are verified.
io_until_told() {
	while [ ! -e "$BLK_FILES/enough" ]; do
		verify "$DISK" randwrite 4K 16 256K || return
	done
}

# io_begin: in the background, as process $IO.
io_begin() {
	rm -f "$BLK_FILES/enough"
	io_until_told >"$BLK_FILES/io" 2>&1 &
	IO=$!
	await 60 commands_since 0 50
}

# io_end: wait for its end and return its status; checks that reads have
# returned the written data.
io_end() {
	touch "$BLK_FILES/enough"
	wait "$IO" && return
	cat "$BLK_FILES/io"
	return 1
}

# commands_since COUNT MORE
commands_since() {
	(($(blk_count dev commands) >= $1 + $2))
}

lost_since() {
	(($(blk_count dev losses) > $1))
}

# resent_since COUNT: what a lost connection left unanswered is to be sent anew, so
# that no answer on the old one can come any more.
resent_since() {
	(($(blk_count dev retries) > $1))
}

live() {
	blk_is dev state live
}

#
# Recovery
#

# What was in messages is sent again by RDMA, and then the other way round.
server_dies_and_comes_back() {
	local round before status=0
	up fail_after=-1 && io_begin || return
	for ((round = 0; round < ROUNDS; round++)); do
		before=$(blk_count dev losses)
		server_end KILL
		await 90 lost_since "$before" || return
		serve --inline-max $((round % 2 * 4096)) && await 60 live ||
			return
		before=$(blk_count dev commands)
		await 90 commands_since "$before" 20 || status=1
	done
	io_end && [ "$(blk_count dev failed)" = 0 ] &&
		same "$DISK" "$BLK_FILES/file" && down && return "$status"
}

# The keep-alive would find it before I/O does that begins later.
server_hangs_and_wakes_up() {
	local status=0
	up io_timeout=5 keep_alive=60 fail_after=-1 && scheduled && io_begin ||
		return
	kill -STOP "$SERVER"
	await 60 resent_since 0 || status=1
	kill -CONT "$SERVER"
	await 60 live || status=1
	io_end && (($(blk_count dev timeouts) > 0)) &&
		[ "$(blk_count dev failed)" = 0 ] &&
		same "$DISK" "$BLK_FILES/file" && down && return "$status"
}

# Only the keep-alive notices.
idle_server_dies() {
	up || return
	server_end KILL
	await 60 lost_since 0 && serve && await 60 live &&
		verify "$DISK" randwrite 4K 8 256K && down
}

idle_server_hangs() {
	up io_timeout=5 || return
	kill -STOP "$SERVER"
	await 60 lost_since 0
	kill -CONT "$SERVER"
	await 60 live && (($(blk_count dev timeouts) > 0)) && down
}

# rxe_mend END: a device that could not send while the link was down sends no
# more. Whoever used it has to come back.
rxe_mend() {
	await 10 rxe_active "$1" "$(number "$1")"
	rxe_ready "$1" && return
	[ "$1" = owner ] || server_end KILL
	rxe_down "$1" && rxe_up "$1" && await 60 rxe_ready "$1" || return
	[ "$1" = owner ] || serve
}

link_goes_down_and_up() {
	up io_timeout=5 fail_after=-1 && io_begin || return
	ip -n memreg-owner link set mr_owner down
	await 60 lost_since 0
	addresses_up owner && rxe_mend owner && rxe_mend peer &&
		await 90 live && io_end && [ "$(blk_count dev failed)" = 0 ] &&
		same "$DISK" "$BLK_FILES/file" && down
}

# The same address, on another RDMA device then.
rdma_device_goes_and_comes() {
	up fail_after=-1 && io_begin || return
	rxe_down owner
	await 60 lost_since 0 && rxe_up owner && await 60 rxe_ready owner &&
		await 60 live && io_end &&
		[ "$(blk_count dev failed)" = 0 ] &&
		same "$DISK" "$BLK_FILES/file" && down
}

# The server ends with its device.
peers_device_goes_and_comes() {
	up io_timeout=5 fail_after=-1 && io_begin || return
	rxe_down peer
	server_end TERM
	await 60 lost_since 0 && rxe_up peer && await 60 rxe_ready peer &&
		serve && await 90 live && io_end &&
		[ "$(blk_count dev failed)" = 0 ] &&
		same "$DISK" "$BLK_FILES/file" && down
}

# Packets from the server to the client are dropped, but the carrier stays up.
client_unreachable() {
	ip -n memreg-peer neigh replace 192.0.2.1 lladdr 02:00:00:00:02:77 \
		dev mr_peer
}

# The first client is alive, though it sends nothing.
client_vanishes() {
	local status=0
	file file 4M
	serve --timeout 3 --interval 1 &&
		blk_make dev export=file queues=2 keep_alive=600 \
			io_timeout=20 &&
		blk_enable dev && await 60 server_says ' [4-9] probes' &&
		no_errors dev && live && ! server_says gone || return
	client_unreachable
	await 120 server_says 'gone, epoch 1' || status=1
	addresses_up peer
	[ "$status" = 0 ] && verify "$DISK" randwrite 4K 8 256K &&
		(($(blk_count dev losses) == 1)) &&
		[ "$(blk_count dev failed)" = 0 ] && down
}

# What clients have answered while the server did not run counts, though it sees
# that late.
server_that_was_stopped_blames_nobody() {
	local status=0 i before
	file file 4M
	serve --timeout 3 &&
		blk_make dev export=file queues=2 keep_alive=600 fail_after=-1 &&
		blk_enable dev && io_begin || return
	for ((i = 0; i < ROUNDS; i++)); do
		before=$(blk_count dev commands)
		await 60 commands_since "$before" 1 || status=1
		kill -STOP "$SERVER"
		# Longer than it waits for a client.
		sleep 6.1
		kill -CONT "$SERVER"
	done
	io_end && no_errors dev && ! server_says gone &&
		same "$DISK" "$BLK_FILES/file" && down && return "$status"
}

#
# A server that is in the middle of a write
#

# slow_file: one whose file system can be frozen.
slow_file() {
	modprobe loop && file image 16M && mkfs.ext4 -q -F "$FILE" &&
		mkdir -p "$SLOW" && mount -o loop,noatime "$FILE" "$SLOW" ||
		return
	file slow/file 4M
}

# slow_serve: data that has been written to it is stable.
slow_serve() {
	server_begin -a 192.0.2.2 --no-cache slow="$SLOW/file"
}

# slow_begin: a device with that file. When it is frozen writes wait, in threads
# of the server, and the server does not.
slow_begin() {
	slow_file && slow_serve &&
		blk_make dev export=slow queues=1 io_timeout=3 fail_after=-1 &&
		blk_enable dev
}

# slow_write: it can't end; its process is $IO.
slow_write() {
	fsfreeze --freeze "$SLOW" && wait_for_server && return
	thaw
	return 1
}

thaw() {
	fsfreeze --unfreeze "$SLOW"
}

slow_end() {
	mountpoint -q "$SLOW" || return 0
	thaw 2>/dev/null
	server_end KILL
	umount "$SLOW"
}

# Otherwise it would overwrite data that is written later.
what_was_begun_ends_before_it_is_enabled_again() {
	local status=0
	slow_begin && slow_write || return
	{ blk_disable dev && ! wait "$IO" && ! blk_enable dev; } || status=1
	grep 'no answer: connecting' "$BLK/dev/error" || status=1
	thaw
	# What follows may take longer, on a busy machine, and more than one
	# try.
	[ "$status" = 0 ] && blk_set dev io_timeout 60 &&
		await 60 blk_enable dev &&
		verify "$DISK" randwrite 4K 8 256K && same "$DISK" "$FILE" &&
		no_errors dev && (($(blk_count dev commands) < 500)) &&
		rmdir "$BLK/dev" && slow_end
}

# refused_server WORDS EXPORT: a second one can't begin, and prints the reason.
refused_server() {
	local status=0
	timeout 60 ip netns exec memreg-peer memreg blkd -d rxe_peer \
		-a 192.0.2.2 "$2" >"$SAID.second" 2>&1 || status=$?
	cat "$SAID.second"
	[ "$status" = 1 ] && grep -q "$1" "$SAID.second"
}

# The next one's writes must not be passed by those that the old one began.
the_next_server_waits_for_the_last_write_of_the_old_one() {
	local status=0
	slow_begin && slow_write || return
	kill -TERM "$SERVER"
	await 20 server_says stopping && kill -TERM "$SERVER" &&
		await 20 server_says 'gone, epoch' || status=1
	refused_server 'another process has locked it' slow="$SLOW/file" || status=1
	refused_server EADDRINUSE memory:1M || status=1
	kill -0 "$SERVER" || status=1
	thaw
	wait "$SERVER" || status=1
	SERVER=
	[ "$status" = 0 ] && slow_serve && wait "$IO" &&
		same "$DISK" "$SLOW/file" && rmdir "$BLK/dev" && slow_end
}

# zeroed_disk: one that writes some 0.8 MiB in a second. What is larger than the
# share of 20 ms would wait for ever.
ZEROED=nullb_zeroed
NULLB=/sys/kernel/config/nullb/$ZEROED
zeroed_disk() {
	modprobe null_blk nr_devices=0 && mkdir "$NULLB" &&
		echo 128 >"$NULLB/size" && echo 1 >"$NULLB/mbps" &&
		echo 1 >"$NULLB/power" &&
		echo 16 >"/sys/block/$ZEROED/queue/max_sectors_kb"
}

# zeroed_writes: how many were done.
zeroed_writes() {
	local stat
	read -ra stat <"/sys/block/$ZEROED/stat"
	echo "${stat[4]}"
}

# zeroing_has_begun COUNT: the disk had more than COUNT writes.
zeroing_has_begun() {
	(($(zeroed_writes) > $1))
}

zeroed_end() {
	[ -d "$NULLB" ] || return 0
	server_end KILL
	echo 0 >"$NULLB/power"
	rmdir "$NULLB" && modprobe -r null_blk
}

# zeroing_is_by_itself LENGTH: so much of $zeroing, which $disk has to wait for,
# and $other does not.
zeroing_is_by_itself() {
	local status=0 before zeroer reader
	before=$(zeroed_writes)
	blkdiscard --zeroout --length "$1" "$zeroing" &
	zeroer=$!
	await 60 zeroing_has_begun "$before" || status=1
	DISK=$disk
	dd if="$disk" of=/dev/null bs=4K count=1 iflag=direct status=none &
	reader=$!
	await 20 reads_in_flight 1 || status=1
	# The server has it by then: who comes before it proves nothing.
	sleep 1
	dd if="$other" of=/dev/null bs=4K count=8 iflag=direct status=none ||
		status=1
	kill -0 "$zeroer" && kill -0 "$reader" || status=1
	wait "$zeroer" || status=1
	wait "$reader" || status=1
	return "$status"
}

# The program that zeroes a disk has it alone. A read, which the page cache could
# have at once, waits for that, and nobody else does. Two clients have the disk,
# as each waits on its own side as well. On a busy machine it may be over before
# all others were looked at: then for longer. Those that wait do so in each try.
zeroing_a_disk_leaves_the_others_alone() {
	local status=1 disk other zeroing length
	zeroed_disk && file other 4M || return
	server_begin -a 192.0.2.2 zeroed="/dev/$ZEROED" other="$FILE" &&
		blk_make other export=other queues=1 && blk_enable other ||
		return
	other=$DISK
	blk_make dev export=zeroed queues=1 io_timeout=300 &&
		blk_enable dev || return
	disk=$DISK
	blk_make zeroed export=zeroed queues=1 io_timeout=300 &&
		blk_enable zeroed || return
	zeroing=$DISK
	for length in 16M 32M 96M; do
		zeroing_is_by_itself "$length" && status=0 && break
	done
	[ "$status" = 0 ] && no_errors dev && no_errors other &&
		rmdir "$BLK/dev" "$BLK/zeroed" "$BLK/other" && zeroed_end
}

# More commands than there are threads, each so short that the page cache could
# have it at once.
one_slow_export_leaves_the_others_alone() {
	local status=0 i other writers=()
	slow_file && file other 4M || return
	server_begin -a 192.0.2.2 --threads 3 slow="$SLOW/file" \
		other="$FILE" && blk_make other export=other queues=1 &&
		blk_enable other || return
	other=$DISK
	blk_make dev export=slow queues=1 && blk_enable dev &&
		verify "$DISK" randwrite 4K 8 256K &&
		fsfreeze --freeze "$SLOW" || return
	for ((i = 0; i < 6; i++)); do
		dd if=/dev/zero of="$DISK" bs=4K count=1 seek="$i" oflag=direct \
			conv=nocreat status=none &
		writers+=($!)
	done
	await 60 writes_in_flight 6 || status=1
	verify "$other" randwrite 4K 8 256K && sync "$other" || status=1
	writes_in_flight 6 || status=1
	thaw
	wait "${writers[@]}" || status=1
	no_errors dev && no_errors other && rmdir "$BLK/dev" "$BLK/other" &&
		slow_end && return "$status"
}

#
# No recovery
#

fails() {
	! dd if="$DISK" of=/dev/null bs=4K count=1 iflag=direct status=none
}

io_fails_when_it_took_too_long() {
	up fail_after=1 || return
	server_end KILL
	await 60 blk_is dev state failed && fails || return
	(($(blk_count dev retries) == 0)) || return
	serve && await 60 live && verify "$DISK" randwrite 4K 8 256K && down
}

# silent_server_fails_io: in time, after it has answered something.
silent_server_fails_io() {
	local status=0 before
	! fails || return
	before=$(blk_count dev losses)
	kill -STOP "$SERVER"
	await 60 lost_since "$before" && await 7 blk_is dev state failed &&
		fails || status=1
	kill -CONT "$SERVER"
	await 60 live && return "$status"
}

# The host that is connected to is up, but accepts no connection. A busy machine
# may take longer by itself; a wrong one takes 10 s each time.
io_fails_in_time_with_a_silent_server() {
	local status=1
	up io_timeout=5 fail_after=2 || return
	for _ in 1 2 3; do
		silent_server_fails_io && status=0 && break
	done
	[ "$status" = 0 ] && verify "$DISK" randwrite 4K 8 256K && down
}

# I/O that waits for the connection fails with it.
waiting_io_fails() {
	local io
	up fail_after=2 || return
	server_end KILL
	dd if=/dev/zero of="$DISK" bs=4K count=64 oflag=direct conv=nocreat &
	io=$!
	! wait "$io" && blk_is dev state failed && down
}

another_export_is_refused() {
	up || return
	server_end KILL
	server_begin -a 192.0.2.2 --read-only file="$BLK_FILES/file" &&
		await 60 grep -q 'flags has changed' "$BLK/dev/error" &&
		! live || return
	server_end KILL
	serve && await 60 live && down
}

# refused_as_lost: the device doesn't take what there is at its server's address
# for what there was, and logs that; enabled anew, it does.
refused_as_lost() {
	await 60 grep 'may have lost what was written' "$BLK/dev/error" &&
		await 60 blk_is dev state failed && fails && ! live &&
		blk_disable dev && blk_enable dev &&
		verify "$DISK" randwrite 4K 8 256K && down
}

memory_of_another_server_is_refused() {
	server_begin -a 192.0.2.2 ram=memory:4M &&
		blk_make dev export=ram queues=2 fail_after=1 &&
		blk_enable dev && verify "$DISK" randwrite 4K 8 256K || return
	server_end KILL
	server_begin -a 192.0.2.2 ram=memory:4M && refused_as_lost
}

# serve_rebooted OPTION...: what was in the page cache may be lost, for all that
# a server can see.
serve_rebooted() {
	local id=$BLK_FILES/boot_id SERVER_BY
	cat /proc/sys/kernel/random/uuid >"$id" || return
	# shellcheck disable=SC2016 # for the other shell
	SERVER_BY=(bash -c 'mount --bind "$0" /proc/sys/kernel/random/boot_id &&
		exec "$@"' "$id")
	serve "$@"
}

a_cache_that_may_be_lost_is_refused() {
	up fail_after=1 && verify "$DISK" randwrite 4K 8 256K || return
	server_end KILL
	serve_rebooted && refused_as_lost
}

# Acknowledged data was stable.
without_a_cache_nothing_is_lost() {
	file file 4M
	serve --no-cache && blk_make dev export=file queues=2 fail_after=-1 &&
		blk_enable dev && io_begin || return
	server_end KILL
	serve_rebooted --no-cache && await 60 live && io_end &&
		[ "$(blk_count dev failed)" = 0 ] &&
		same "$DISK" "$BLK_FILES/file" && down
}

#
# The end
#

# wait_for_server: one write is on its way; its process is $IO.
wait_for_server() {
	local before
	before=$(blk_count dev commands)
	dd if=/dev/zero of="$DISK" bs=64K count=4 oflag=direct conv=nocreat \
		status=none &
	IO=$!
	# This passes, if the server doesn't answer; the count stays.
	await 60 writes_in_flight && await 20 commands_since "$before" 1
}

# writes_in_flight [COUNT]: the disk has some that were not answered.
writes_in_flight() {
	local writes
	read -r _ writes <"/sys/block/${DISK#/dev/}/inflight"
	((writes >= ${1:-1}))
}

reads_in_flight() {
	local reads
	read -r reads _ <"/sys/block/${DISK#/dev/}/inflight"
	((reads >= ${1:-1}))
}

removed_with_a_dead_server() {
	up fail_after=-1 || return
	server_end KILL
	await 60 lost_since 0
	dd if=/dev/zero of="$DISK" bs=64K count=4 conv=nocreat status=none &
	down
	wait $!
	[ ! -d "$BLK/dev" ]
}

removed_with_a_silent_server() {
	up io_timeout=10 keep_alive=60 fail_after=-1 || return
	kill -STOP "$SERVER"
	wait_for_server && rmdir "$BLK/dev" && ! wait "$IO" || return
	kill -CONT "$SERVER"
	server_end TERM
	[ ! -d "$BLK/dev" ]
}

removed_without_an_rdma_device() {
	up fail_after=-1 || return
	rxe_down owner
	await 60 lost_since 0 && down || return
	rxe_up owner && await 60 rxe_ready owner
}

# The one that has it open keeps the module, not the connection.
removed_during_io() {
	up && io_begin && rmdir "$BLK/dev" || return
	! wait "$IO" || return
	server_end TERM
}

#
# Invalid settings
#

# refused ATTRIBUTE VALUE...
refused() {
	local attribute=$1 value
	shift
	for value; do
		if blk_set dev "$attribute" "$value"; then
			echo "$attribute takes '$value'"
			return 1
		fi
	done
}

bad_values_are_refused() {
	blk_make dev || return
	refused address '' nobody 192.0.2.256 'fd00:::1' '192.0.2.2 x' &&
		refused port 0 65536 -1 x '' &&
		refused export 'a b' 12345678901234567 &&
		refused queues 0 65 x && refused depth 1 257 -1 &&
		refused io_timeout 0 86401 && refused keep_alive 0 &&
		refused fail_after -2 86401 && refused retries -1 1001 &&
		refused inline_max -1 16385 x &&
		refused enabled 2 x '' && refused state live &&
		blk_set dev export 1234567890123456 &&
		blk_is dev export 1234567890123456 &&
		blk_set dev address fd00:6d72::2 && blk_set dev export '' &&
		rmdir "$BLK/dev"
}

nothing_changes_while_enabled() {
	up || return
	refused address 192.0.2.3 && refused port 1 && refused export x &&
		refused queues 1 && refused depth 8 && refused enabled 1 &&
		refused retries 1 && refused inline_max 0 && live && blk_set dev enabled 0 &&
		blk_set dev enabled 0 && blk_set dev queues 1 && down
}

# says WORDS: enabling the device fails, with these words in its error.
says() {
	if blk_enable dev; then
		echo "it is enabled, without: $1"
		return 1
	fi
	blk_is dev state disabled && blk_is dev disk '' &&
		grep -q "$1" "$BLK/dev/error"
}

reasons_are_told() {
	blk_make dev queues=1 || return
	says 'nobody serves\|REJECTED\|rejected\|can.t connect' || return
	file file 1M
	server_begin -a 192.0.2.2 file="$FILE" other="$FILE" || return
	blk_set dev export none && says 'no such export' &&
		blk_set dev address 192.0.2.77 &&
		says "can't connect\|no answer" &&
		rmdir "$BLK/dev" && server_end TERM
}

CHECKS=(
	bad_values_are_refused
	reasons_are_told
	nothing_changes_while_enabled
	server_dies_and_comes_back
	server_hangs_and_wakes_up
	idle_server_dies
	idle_server_hangs
	io_fails_when_it_took_too_long
	io_fails_in_time_with_a_silent_server
	waiting_io_fails
	another_export_is_refused
	memory_of_another_server_is_refused
	a_cache_that_may_be_lost_is_refused
	without_a_cache_nothing_is_lost
	removed_with_a_dead_server
	removed_with_a_silent_server
	removed_during_io
	removed_without_an_rdma_device
	rdma_device_goes_and_comes
	peers_device_goes_and_comes
	client_vanishes
	server_that_was_stopped_blames_nobody
	what_was_begun_ends_before_it_is_enabled_again
	the_next_server_waits_for_the_last_write_of_the_old_one
	one_slow_export_leaves_the_others_alone
	zeroing_a_disk_leaves_the_others_alone
	link_goes_down_and_up
)

# Those that are named, for who looks for an error.
[ $# = 0 ] || CHECKS=("$@")
check blk_load
for name in "${CHECKS[@]}"; do
	check "$name"
done
exit $BLK_FAILED
