#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# ib_memreg_blk where memory is short: pages are swapped to a device, and dirty
# ones written to it, so that there is memory to go on with. In a control group,
# as the machine's memory is the server's as well.
# time limit: 180
# shellcheck disable=SC2317,SC2329 # functions are called by check

cd "$(dirname "$(realpath "$0")")" || exit
# shellcheck source-path=SCRIPTDIR source=lib/topology.sh
. lib/topology.sh
# shellcheck source-path=SCRIPTDIR source=lib/blk.sh
. lib/blk.sh

trap blk_end EXIT

ROUNDS=1
((${MEMREG_FULL:-0})) && ROUNDS=20

begin() {
	blk_load || return
	file file 32M
	server_begin -a 192.0.2.2 file="$FILE" && blk_make one export=file &&
		blk_enable one
}

# confined BYTES COMMAND...: with no more memory than that.
confined() {
	local cg=$BLK_FILES/cgroup limit=$1 status=0
	shift
	mkdir -p "$cg" && mount -t cgroup2 none "$cg" &&
		echo +memory >"$cg/cgroup.subtree_control" &&
		mkdir "$cg/blk" && echo "$limit" >"$cg/blk/memory.max" || return
	# shellcheck disable=SC2016 # for the other shell
	bash -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$cg/blk" "$@" ||
		status=1
	await 20 rmdir "$cg/blk" && umount "$cg" && return "$status"
}

swapped() {
	awk '$1 == "pswpout" { print $2 }' /proc/vmstat
}

# Twice through more memory than there is.
swap_space() {
	local before status=0
	before=$(swapped)
	mkswap "$DISK" && swapon "$DISK" || return
	confined 24M python3 -c '
import sys
pages = [bytes([i % 251]) * 4096 for i in range(7000)]
for turn in range(2):
    for i, page in enumerate(pages):
        if page != bytes([i % 251]) * 4096:
            sys.exit("page %d differs" % i)' || status=1
	swapoff "$DISK" && (($(swapped) > before)) && return "$status"
}

writeback_under_pressure() {
	local at=$BLK_FILES/mnt status=0
	mkdir -p "$at"
	head -c 10M /dev/urandom >"$BLK_FILES/data"
	mkfs.ext4 -q -F "$DISK" && mount "$DISK" "$at" || return
	confined 6M dd if="$BLK_FILES/data" of="$at/data" bs=1M status=none &&
		umount "$at" && mount "$DISK" "$at" &&
		cmp "$BLK_FILES/data" "$at/data" || status=1
	umount "$at" && return "$status"
}
check begin
for ((round = 0; round < ROUNDS; round++)); do
	check swap_space
	check writeback_under_pressure
done
check no_errors one
exit $BLK_FAILED
