#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# ib_memreg_blk behind the page cache of a control group that has much less
# memory than is written: it goes on, and what is read is what was written.
#
# The group has memory.high as well as memory.max. With the latter alone the
# writer may be killed, whatever the disk is: the group's dirty pages are counted
# some seconds late, so that by then all of its memory may be in writeback, which
# reclaim waits for only so often.
# time limit: 200
# shellcheck disable=SC2317,SC2329 # functions are called by check

cd "$(dirname "$(realpath "$0")")/.." || exit
# shellcheck source-path=SCRIPTDIR source=../lib/topology.sh
. lib/topology.sh
# shellcheck source-path=SCRIPTDIR source=../lib/blk.sh
. lib/blk.sh

# With all the checkers it takes minutes: for a soak.
((${DEBUG:-0} && !${MEMREG_FULL:-0})) && exit 4

# MiB: data to write in all, and memory limit of the writer.
LIMIT=16 SIZE=40
((${MEMREG_FULL:-0} == 0)) || LIMIT=64 SIZE=512
((${DEBUG:-0} == 0)) || LIMIT=16 SIZE=48
CGROUPS=$BLK_FILES/cgroup
GROUP=$CGROUPS/blk

finish() {
	local at
	for at in "$BLK_FILES/mnt" "$CGROUPS"; do
		! mountpoint -q "$at" || umount "$at"
	done
	blk_end
}
trap finish EXIT

# Without the io controller, writeback is charged to no group.
group_begin() {
	mkdir -p "$GROUP" &&
		echo $((LIMIT * 3 / 4))M >"$GROUP/memory.high" &&
		echo "${LIMIT}M" >"$GROUP/memory.max"
}

begin() {
	blk_load || return
	file file $((SIZE + SIZE / 8 + 16))M
	server_begin -a 192.0.2.2 file="$FILE" && blk_make one export=file &&
		blk_enable one || return
	mkdir -p "$CGROUPS" "$BLK_FILES/mnt" &&
		mount -t cgroup2 none "$CGROUPS" || return
	echo +memory >"$CGROUPS/cgroup.subtree_control" || return
	! grep -qw io "$CGROUPS/cgroup.controllers" ||
		echo +io >"$CGROUPS/cgroup.subtree_control"
}

# confined COMMAND...: with no more memory than that.
confined() {
	local status=0
	group_begin || return
	# shellcheck disable=SC2016 # for the other shell
	bash -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$GROUP" "$@" ||
		status=1
	grep -HE . "$GROUP/memory.events"
	grep -q '^oom_kill 0$' "$GROUP/memory.events" || status=1
	await 20 rmdir "$GROUP" && return "$status"
}

# text: SIZE MiB, no two lines of which are alike.
text() {
	seq 10000000 99999999 2>/dev/null | head -c $((SIZE << 20))
}

# throttled FILE: more is written than there is memory for, and synced.
throttled() {
	text | confined dd of="$1" bs=256K iflag=fullblock conv=fsync,notrunc \
		status=none
}

# kept FILE: the file has the same contents as the server's.
kept() {
	cmp <(dd if="$1" bs=1M count="$SIZE" iflag=direct status=none) <(text)
}

raw_disk() {
	throttled "$DISK" && kept "$DISK"
}

file_system() {
	local at=$BLK_FILES/mnt
	mkfs.ext4 -q -F "$DISK" && mount "$DISK" "$at" && throttled "$at/file" &&
		umount "$at" && fsck.ext4 -fn "$DISK" && mount "$DISK" "$at" &&
		kept "$at/file" && umount "$at"
}

check begin
check raw_disk
check file_system
check no_errors one
exit $BLK_FAILED
