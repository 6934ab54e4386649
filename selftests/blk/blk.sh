#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# ib_memreg_blk with memreg blkd: reads return the written data, by all
# operations of block devices; the disk has the properties that the server
# reports.
# time limit: 360
# shellcheck disable=SC2317,SC2329 # functions are called by check

cd "$(dirname "$(realpath "$0")")/.." || exit
# shellcheck source-path=SCRIPTDIR source=../lib/topology.sh
. lib/topology.sh
# shellcheck source-path=SCRIPTDIR source=../lib/blk.sh
. lib/blk.sh

trap blk_end EXIT

# RW BS DEPTH SIZE
JOBS=(
	"randwrite 512 64 64K"
	"randwrite 4K 32 512K"
	"write 4K 1 128K"
	"randrw 64K 8 1M"
	"write 1M 4 2M"
)
FILES=$((40 * ${MEMREG_TIMES:-1}))
if ((${MEMREG_FULL:-0})); then
	JOBS=()
	for depth in 1 8 64; do
		for size in "512 64K" "1K 128K" "4K 512K" "12K 1536K" "64K 6M" \
			"256K 6M" "1M 6M"; do
			for rw in randwrite write randrw; do
				JOBS+=("$rw ${size% *} $depth ${size#* }")
			done
		done
	done
fi

# up NAME ATTRIBUTE=VALUE...: enable a device of the server that is running.
up() {
	blk_make "$@" && blk_enable "$1"
}

down() {
	rmdir "$BLK/$1"
}

# as_large BYTES
as_large() {
	[ "$(blockdev --getsize64 "$DISK")" = "$1" ]
}

disk_is_the_export() {
	local queue=/sys/block/${DISK#/dev/}/queue
	as_large $((8 << 20)) &&
		[ "$(cat "$queue/logical_block_size")" = 512 ] &&
		[ "$(cat "$queue/max_hw_sectors_kb")" = 1024 ] &&
		[ "$(cat "$queue/write_cache")" = "write back" ] &&
		[ "$(blockdev --getro "$DISK")" = 0 ] &&
		blk_is one state live && blk_is one enabled 1
}

is_called() {
	[ "$(cat "/sys/block/${DISK#/dev/}/wwid")" = "$1" ]
}

# The disk has another number each time, and the same name.
name_stays() {
	local name=memreg-192.0.2.2-7472
	up one export=ram && is_called "$name-ram" && up two export=file &&
		[ "$DISK" = /dev/memregb1 ] && is_called "$name-file" &&
		down one && down two && up two export=file &&
		[ "$DISK" = /dev/memregb0 ] && is_called "$name-file" && down two
}

verified() {
	verify "$DISK" "$@"
}

# buffered: fio writes through the page cache, and reads back from the server.
buffered() {
	local options=(--rw=randwrite --bs=4K --size=512K --name=buffered
		--filename="$DISK" --verify=crc32c --verify_fatal=1 --minimal
		--thread --ioengine=psync --verify_state_save=0)
	fio "${options[@]}" --do_verify=0 --end_fsync=1 &&
		fio "${options[@]}" --verify_only --direct=1
}

# odd_memory: I/O from memory that neither begins nor ends at a page.
odd_memory() {
	verify "$DISK" randwrite 4K 8 256K --iomem_align=512 &&
		verify "$DISK" randwrite 8704 8 256K --iomem_align=1536
}

# Answers have ended keys. On rxe nothing is shown of packets in flight: the
# client destroys such MRs (I1). A strict device needs no MR in their place.
keys_end_with_the_answers() {
	no_errors one && (($(blk_count one remote-invalidated) > 0)) &&
		[ "$(blk_count one local-invalidated)" = 0 ] &&
		await 20 all_replaced
}

all_replaced() {
	local replaced=0
	# Not grep -q, which leaves before the command has written all.
	memreg caps -d rxe_owner | grep '^strict-invalidate .* yes' >/dev/null ||
		replaced=$(blk_count one remote-invalidated)
	[ "$(blk_count one mrs-replaced)" = "$replaced" ]
}

sum_tree() {
	(cd "$1" && find . -type f -exec md5sum {} + | sort)
}

make_tree() {
	local i
	for ((i = 0; i < FILES; i++)); do
		((i % 10)) || mkdir -p "$1/$((i / 10))" || return
		head -c $((RANDOM / 2)) /dev/urandom >"$1/$((i / 10))/$i" ||
			return
	done
}

file_system() {
	local at=$BLK_FILES/mnt before after
	mkdir -p "$at"
	mkfs.ext4 -q -F "$DISK" && mount "$DISK" "$at" || return
	make_tree "$at"
	before=$(sum_tree "$at")
	umount "$at" && fsck.ext4 -fn "$DISK" && mount "$DISK" "$at" || return
	after=$(sum_tree "$at")
	umount "$at" && [ -n "$before" ] && [ "$before" = "$after" ]
}

holes() {
	local blocks
	dd if=/dev/urandom of="$DISK" bs=1M count=4 oflag=direct status=none ||
		return
	blocks=$(find "$FILE" -printf %b)
	blkdiscard -o 0 -l 2M "$DISK" &&
		blkdiscard -z -o 2M -l 1M "$DISK" &&
		cmp -n $((1 << 20)) -i $((2 << 20)):0 "$FILE" /dev/zero &&
		! cmp -s -n 4096 -i $((3 << 20)):0 "$FILE" /dev/zero &&
		(($(find "$FILE" -printf %b) < blocks)) && same "$DISK" "$FILE"
}

# resized COUNT: the client has counted so many changes of size, which it does
# after the disk has the new size.
resized() {
	[ "$(blk_count one resizes)" = "$1" ]
}

grows_and_shrinks() {
	truncate -s 12M "$FILE" && await 20 as_large $((12 << 20)) &&
		await 20 resized 1 &&
		verify "$DISK" write 64K 4 256K --offset=10M &&
		truncate -s 8M "$FILE" && await 20 as_large $((8 << 20)) &&
		await 20 resized 2
}

read_only() {
	local before
	before=$(md5sum <"$FILE")
	[ "$(blockdev --getro "$DISK")" = 1 ] &&
		! dd if=/dev/zero of="$DISK" bs=4K count=1 oflag=direct \
			status=none && same "$DISK" "$FILE" &&
		[ "$before" = "$(md5sum <"$FILE")" ]
}

# Data of 4 KiB needs no key if messages may have that much, and otherwise does.
data_in_messages() {
	local most=$1 taken
	up messages export=file queues=2 inline_max="$most" || return
	verify "$DISK" randwrite 4K 16 256K &&
		verify "$DISK" randrw 512 8 32K --iomem_align=512 &&
		verify "$DISK" randwrite 12K 8 384K &&
		same "$DISK" "$FILE" && no_errors messages || return
	taken=$(blk_count messages mrs-taken)
	dd if="$DISK" of=/dev/null bs=4K count=32 iflag=direct status=none &&
		if ((most >= 4096)); then
			[ "$(blk_count messages mrs-taken)" = "$taken" ]
		else
			(($(blk_count messages mrs-taken) >= taken + 32))
		fi && down messages
}

memory_of_the_peer() {
	up memory export=ram queues=1 depth=2 &&
		[ "$(cat "/sys/block/${DISK#/dev/}/queue/write_cache")" = \
			"write through" ] &&
		verify "$DISK" randwrite 4K 8 256K && no_errors memory &&
		down memory
}

large_blocks() {
	up large export=large queues=2 && unmerged &&
		[ "$(blockdev --getss "$DISK")" = 4096 ] &&
		verify "$DISK" randwrite 4K 16 256K && no_errors large &&
		(($(blk_count large mrs-taken) >= 128)) && down large
}

# domains: print how many protection domains the block client has.
domains() {
	rdma resource show pd | grep -c 'comm \[ib_memreg_blk\]'
}

# A packet of another queue could still copy by a key that an answer has ended.
I1_each_queue_has_a_protection_domain() {
	local before queues
	before=$(domains)
	up each export=file queues=4 && unmerged || return
	queues=("/sys/block/${DISK#/dev/}/mq"/*)
	echo "${#queues[@]} queues, $before and $(domains) domains"
	(($(domains) - before == ${#queues[@]})) &&
		(($(blk_count each mrs) >= 16 * ${#queues[@]})) &&
		verify "$DISK" randwrite 64K 8 1M && no_errors each &&
		(($(blk_count each mrs-taken) >= 32)) && down each
}

# Two devices of one export are two clients.
two_devices() {
	local first
	up a export=file && first=$DISK && up b export=file || return
	[ "$first" != "$DISK" ] &&
		verify "$first" randwrite 4K 8 128K --offset=0 &&
		verify "$DISK" randwrite 4K 8 128K --offset=1M &&
		same "$first" "$FILE" && down a && down b
}

reenabled() {
	blk_disable one && blk_is one state disabled &&
		blk_is one enabled 0 && blk_is one disk "" &&
		blk_set one queues 1 && blk_enable one &&
		verify "$DISK" randwrite 4K 8 256K && no_errors one
}

begin() {
	blk_load || return
	file file 8M
	server_begin -a 192.0.2.2 file="$FILE" ram=memory:8M &&
		up one export=file
}

check begin
check disk_is_the_export
for job in "${JOBS[@]}"; do
	# shellcheck disable=SC2086 # they are words
	check verified $job
done
check buffered
check odd_memory
check keys_end_with_the_answers
check file_system
check holes
check grows_and_shrinks
check reenabled
check I1_each_queue_has_a_protection_domain
check two_devices
for most in 0 2049 4096 16384; do
	check data_in_messages $most
done
check memory_of_the_peer
check down one
check name_stays
server_end TERM
server_begin -a 192.0.2.2 --read-only file="$FILE" >>"$SAID" 2>&1
check up one
check read_only
check down one
server_end TERM
file large 4M
server_begin -a 192.0.2.2 --block-size 4096 --inline-max 0 large="$FILE" \
	>>"$SAID" 2>&1
check large_blocks
exit $BLK_FAILED
