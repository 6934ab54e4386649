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

# serve OPTION...: serve the same file at the same port as before.
serve() {
	server_begin -a 192.0.2.2 "$@" file="$BLK_FILES/file"
}

# up ATTRIBUTE=VALUE...: start a server, and enable a device with 4 MiB of it.
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

# io_until_stopped: writes that are verified.
io_until_stopped() {
	while [ ! -e "$BLK_FILES/enough" ]; do
		verify "$DISK" randwrite 4K 16 256K || return
	done
}

# io_begin: in the background, as process $IO.
io_begin() {
	rm -f "$BLK_FILES/enough"
	io_until_stopped >"$BLK_FILES/io" 2>&1 &
	IO=$!
	await 60 commands_since 0 50
}

# io_end: wait for I/O to end, and return its status, which is not 0 if a read
# returned wrong data.
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

# resent_since COUNT: commands of a lost connection wait to be sent again; no
# answer to them can come on that connection any more.
resent_since() {
	(($(blk_count dev retries) > $1))
}

live() {
	blk_is dev state live
}

#
# Recovery
#

# Commands whose data was in messages are sent again by RDMA, and the other way
# round.
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

# I/O has to be under way first, as otherwise the keep-alive would find that the
# server hangs.
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

# rxe_mend END: make the device again, as a device that could not send while its
# link was down never sends again. Users of the old one have to reconnect.
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

# The RDMA device is removed, and another one gets its address.
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

# client_unreachable: have the server's packets go nowhere, without loss of
# carrier.
client_unreachable() {
	ip -n memreg-peer neigh replace 192.0.2.1 lladdr 02:00:00:00:02:77 \
		dev mr_peer
}

# The server drops a client that has vanished, and keeps one that is merely
# idle.
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

# A server that was stopped counts what clients have answered meanwhile, though
# it reads it late.
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

# Servers that end in the middle of a write

# slow_file: make a file whose file system can be frozen.
slow_file() {
	modprobe loop && file image 16M && mkfs.ext4 -q -F "$FILE" &&
		mkdir -p "$SLOW" && mount -o loop,noatime "$FILE" "$SLOW" ||
		return
	file slow/file 4M
}

# slow_serve: serve that file as stable storage, so that a write waits for the
# disk.
slow_serve() {
	server_begin -a 192.0.2.2 --no-cache slow="$SLOW/file"
}

# slow_begin: enable a device with that file, and freeze it. Writes then wait in
# threads of the server, which itself does not wait.
slow_begin() {
	slow_file && slow_serve &&
		blk_make dev export=slow queues=1 io_timeout=3 fail_after=-1 &&
		blk_enable dev
}

# slow_write: begin a write, which cannot end. Its process is $IO.
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

# A write from before the device was disabled must not overwrite data that is
# written after it is enabled again.
what_was_begun_ends_before_it_is_enabled_again() {
	local status=0
	slow_begin && slow_write || return
	{ blk_disable dev && ! wait "$IO" && ! blk_enable dev; } || status=1
	grep 'no answer: connecting' "$BLK/dev/error" || status=1
	thaw
	# On a busy machine the device may need more time, and more than one
	# attempt.
	[ "$status" = 0 ] && blk_set dev io_timeout 60 &&
		await 60 blk_enable dev &&
		verify "$DISK" randwrite 4K 8 256K && same "$DISK" "$FILE" &&
		no_errors dev && (($(blk_count dev commands) < 500)) &&
		rmdir "$BLK/dev" && slow_end
}

# refused_server WORDS EXPORT: a second server fails to start, and prints these
# words.
refused_server() {
	local status=0
	timeout 60 ip netns exec memreg-peer memreg blkd -d rxe_peer \
		-a 192.0.2.2 "$2" >"$SAID.second" 2>&1 || status=$?
	cat "$SAID.second"
	[ "$status" = 1 ] && grep -q "$1" "$SAID.second"
}

# Writes that the old server has begun must land before any write of the next
# one.
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

# zeroed_disk: make a disk of about 0.8 MiB/s. A request for more than 20 ms of
# that would wait for ever.
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

# zeroing_has_begun COUNT: the disk has done more than COUNT writes.
zeroing_has_begun() {
	(($(zeroed_writes) > $1))
}

zeroed_end() {
	[ -d "$NULLB" ] || return 0
	server_end KILL
	echo 0 >"$NULLB/power"
	rmdir "$NULLB" && modprobe -r null_blk
}

# zeroing_is_by_itself LENGTH: while LENGTH bytes of $zeroing are zeroed, $disk
# has to wait, and $other does not.
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
	# Give the server time to take the read: only what comes after it shows
	# anything.
	sleep 1
	dd if="$other" of=/dev/null bs=4K count=8 iflag=direct status=none ||
		status=1
	kill -0 "$zeroer" && kill -0 "$reader" || status=1
	wait "$zeroer" || status=1
	wait "$reader" || status=1
	return "$status"
}

# While a disk is zeroed, a read of it waits, even if the page cache could serve
# it, and other exports do not wait. There are two clients, as each also waits
# by itself. On a busy machine zeroing may end before the others were tried:
# then try with a larger range. Whoever has to wait is tried each time.
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

# Writes to a frozen export are more than the threads; each is so short that the
# page cache could take it at once.
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

# silent_server_fails_io: I/O fails in time if a server that has answered before
# answers no more.
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

# The host is up and accepts no connection. On a busy machine an attempt may
# take longer; where the client is wrong it takes 10 s each time.
io_fails_in_time_with_a_silent_server() {
	local status=1
	up io_timeout=5 fail_after=2 || return
	for _ in 1 2 3; do
		silent_server_fails_io && status=0 && break
	done
	[ "$status" = 0 ] && verify "$DISK" randwrite 4K 8 256K && down
}

# I/O that waits for a connection fails when the device gives up.
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

# refused_as_lost: the device does not accept what its server's address serves
# now in place of what it served before, and logs that. Enabled anew, it does.
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

# serve_rebooted OPTION...: serve with another boot id, so that the server has
# to assume that data in the page cache was lost.
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

# wait_for_server: begin a write, and wait until it is on its way. Its process
# is $IO.
wait_for_server() {
	local before
	before=$(blk_count dev commands)
	dd if=/dev/zero of="$DISK" bs=64K count=4 oflag=direct conv=nocreat \
		status=none &
	IO=$!
	# As the server does not answer, the count of commands does not change
	# any more.
	await 60 writes_in_flight && await 20 commands_since "$before" 1
}

# writes_in_flight [COUNT]: the disk has writes that were not answered.
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

# The process that has the disk open keeps the module loaded, and not the
# connection.
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

# says WORDS: enabling the device fails, and its error attribute has these
# words.
says() {
	if blk_enable dev; then
		echo "it is enabled, without: $1"
		return 1
	fi
	blk_is dev state disabled && blk_is dev disk '' &&
		grep -q "$1" "$BLK/dev/error"
}

reasons_are_reported() {
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
	reasons_are_reported
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
