#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# memreg blk: a device is attached, listed and detached; one that is in use is
# not; and of one that can't be attached nothing is left. memreg unload.
# shellcheck disable=SC2317,SC2329 # functions are called by check

cd "$(dirname "$(realpath "$0")")/.." || exit
# shellcheck source-path=SCRIPTDIR source=../lib/topology.sh
. lib/topology.sh
# shellcheck source-path=SCRIPTDIR source=../lib/blk.sh
. lib/blk.sh

trap blk_end EXIT

# `ip netns exec` would mount a /sys of its own, without configfs.
blk() {
	nsenter --net=/run/netns/memreg-owner memreg blk "$@"
}

# says STATUS WORD ARGUMENT...
says() {
	local status=$1 word=$2 now=0
	shift 2
	blk "$@" >"$SAID.now" 2>&1 || now=$?
	cat "$SAID.now"
	[ "$now" = "$status" ] &&
		{ [ -z "$word" ] || grep -q -- "$word" "$SAID.now"; }
}

# Load the module that was built: the tool finds only one that is installed.
there() {
	blk_load && [ -d "$BLK" ]
}

is_attached_and_detached() {
	says 0 '^one is /dev/' attach -k 1 -q 1 -e disk one 192.0.2.2 || return
	blk_is one keep_alive 1 && blk_is one queues 1 &&
		blk_is one state live &&
		says 0 '^one  *live  *192.0.2.2  *7472  *disk  *[a-z0-9]*  *8.00 MiB ' \
			list && says 0 '' detach one && [ ! -e "$BLK/one" ]
}

json_is_what_programs_want() {
	says 0 '^one is' attach one 192.0.2.2 && blk list --json | python3 -c '
import json, sys
[o] = json.load(sys.stdin)
assert o["name"] == "one" and o["state"] == "live" and o["port"] == 7472
assert o["address"] == "192.0.2.2" and o["size_bytes"] == 8 << 20
assert "error" not in o' && says 0 '' detach one
}

in_use_is_not_detached() {
	local at=$BLK_FILES/mnt disk
	says 0 '^one is' attach one 192.0.2.2 || return
	disk=/dev/$(blk_get one disk)
	mkdir -p "$at" && mkfs.ext4 -q -F "$disk" && mount "$disk" "$at" || return
	says 1 "$disk is in use: unmount it first, or use --force" detach one &&
		blk_is one state live && umount "$at" && says 0 '' detach one
}

what_fails_leaves_nothing() {
	says 1 "no such export" attach -e none one 192.0.2.2 &&
		says 1 "is no IPv4 or IPv6 address" attach one nowhere &&
		says 1 "one can't be attached" attach -p 1 one 192.0.2.2 &&
		[ ! -e "$BLK/one" ] &&
		says 1 'there is no device one' detach one
}

name_is_for_one() {
	says 0 '^one is' attach one 192.0.2.2 &&
		says 1 'there is a device one already' attach one 192.0.2.2 &&
		blk_is one state live && says 0 '' detach --force one
}

# Attach one where configfs is not mounted, as on a machine without systemd.
configfs_is_mounted() {
	umount /sys/kernel/config || return
	says 0 '^one is' attach one 192.0.2.2 &&
		mountpoint -q /sys/kernel/config && says 0 '' detach one
}

unload() {
	local now=0
	memreg unload >"$SAID.now" 2>&1 || now=$?
	cat "$SAID.now"
	[ "$now" = "$1" ] && { [ -z "$2" ] || grep -qF -- "$2" "$SAID.now"; }
}

loaded() {
	[ -d /sys/module/ib_memreg ] && [ -d /sys/module/ib_memreg_blk ]
}

# The server has a file open, the device uses the module: neither module is
# unloaded. Without both, both are.
unload_takes_both_modules() {
	says 0 '^one is' attach one 192.0.2.2 && unload 1 'memreg-blkd' &&
		loaded && says 0 '' detach one &&
		unload 1 'it is in use by process' && loaded || return
	server_end TERM
	mkdir "$BLK/idle" && unload 1 'block devices use it' && loaded &&
		rmdir "$BLK/idle" && unload 0 '' &&
		[ ! -d /sys/module/ib_memreg ] &&
		[ ! -d /sys/module/ib_memreg_blk ] && unload 0 ''
}

topology_up || exit
check there
file disk 8M
server_begin "$FILE" || exit
check is_attached_and_detached
check json_is_what_programs_want
check in_use_is_not_detached
check what_fails_leaves_nothing
check name_is_for_one
check configfs_is_mounted
check unload_takes_both_modules
server_end TERM
exit "$BLK_FAILED"
