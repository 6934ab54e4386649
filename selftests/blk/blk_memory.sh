#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# ib_memreg_blk where memory is short: pages are swapped to a device, so that
# there is memory to go on with. In a control group, as the machine's memory is
# the server's as well.
# time limit: 400
# shellcheck disable=SC2317,SC2329 # functions are called by check

cd "$(dirname "$(realpath "$0")")/.." || exit
# shellcheck source-path=SCRIPTDIR source=../lib/topology.sh
. lib/topology.sh
# shellcheck source-path=SCRIPTDIR source=../lib/blk.sh
. lib/blk.sh

# With all the checkers it takes minutes: for a soak.
((${DEBUG:-0} && !${MEMREG_FULL:-0})) && exit 4

trap blk_end EXIT

ROUNDS=${MEMREG_TIMES:-1}

begin() {
	blk_load || return
	file file 32M
	server_begin -a 192.0.2.2 file="$FILE" && blk_make one export=file &&
		blk_enable one
}

# confined BYTES COMMAND...: with no more memory than that. It waits for pages to
# be swapped, and isn't killed as it does where a slow machine takes its time.
confined() {
	local cg=$BLK_FILES/cgroup limit=$1 status=0
	shift
	mkdir -p "$cg" && mount -t cgroup2 none "$cg" &&
		echo +memory >"$cg/cgroup.subtree_control" &&
		mkdir "$cg/blk" && echo "$limit" >"$cg/blk/memory.high" || return
	# shellcheck disable=SC2016 # for the other shell
	bash -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$cg/blk" "$@" ||
		status=1
	await 20 rmdir "$cg/blk" && umount "$cg" && return "$status"
}

swapped() {
	awk '$1 == "pswpout" { print $2 }' /proc/vmstat
}

# More memory than there is, written and read.
swap_space() {
	local before status=0
	before=$(swapped)
	mkswap "$DISK" && swapon "$DISK" || return
	confined 24M python3 -c '
import sys
pages = [bytes([i % 251]) * 4096 for i in range(6000)]
for i, page in enumerate(pages):
    if page != bytes([i % 251]) * 4096:
        sys.exit("page %d differs" % i)' || status=1
	swapoff "$DISK" && (($(swapped) > before)) && return "$status"
}

check begin
for ((round = 0; round < ROUNDS; round++)); do
	check swap_space
done
check no_errors one
exit $BLK_FAILED
