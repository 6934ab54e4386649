#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# For tests of ib_memreg_blk: sourced after topology.sh. Block devices of the
# owner's end, and memreg blkd on the peer's.
#
# The output of a test goes to $SAID, files of exports are in $BLK_FILES, and
# both are removed, with all devices, the server and the module, when it ends.

BLK=/sys/kernel/config/memreg_blk
BLK_FAILED=0

# Files of tmpfs can have holes.
BLK_FILES=$(mktemp -d /dev/shm/blk.XXXXXX)
SAID=$BLK_FILES/said
SERVER=

# blk_load: load the module, the one that was built unless one is installed.
blk_load() {
	local built
	modprobe configfs || return
	[ -d /sys/kernel/config ] || return
	mountpoint -q /sys/kernel/config ||
		mount -t configfs none /sys/kernel/config || return
	[ ! -d /sys/module/ib_memreg_blk ] || return 0
	built=$TOPOLOGY_TREE/build/kernel-$(uname -r)/ib_memreg_blk.ko
	if [ -e "$built" ]; then
		insmod "$built"
	else
		modprobe ib_memreg_blk
	fi
}

# blk_clear: no devices, and no server.
blk_clear() {
	local dir
	[ -z "$SERVER" ] || kill -CONT "$SERVER" 2>/dev/null
	server_end KILL
	for dir in "$BLK"/*; do
		[ ! -d "$dir" ] || rmdir "$dir"
	done
}

blk_end() {
	blk_clear
	[ ! -d /sys/module/ib_memreg_blk ] || rmmod ib_memreg_blk
	rm -rf "$BLK_FILES"
}

# check NAME [ARGUMENT...]: run a function of the test, and report its result.
check() {
	: >"$SAID"
	if "$@" >>"$SAID" 2>&1; then
		echo "ok $*"
	else
		sed 's/^/# /' "$SAID"
		[ ! -e "$SAID.server" ] || sed 's/^/# server: /' "$SAID.server"
		blk_show | sed 's/^/# /'
		dmesg | grep ib_memreg_blk | tail -n 5 | sed 's/^/# /'
		blk_clear
		echo "not ok $*"
		# shellcheck disable=SC2034 # the test exits with it
		BLK_FAILED=1
	fi
}

#
# The server
#

server_says() {
	grep -q -- "$1" "$SAID.server"
}

# server_begin OPTION... EXPORT...: start a server and wait until it serves.
# $SERVER is its process. The words of SERVER_BY precede the command. Output of
# the server before is removed first, so that it is not read for that of this
# one.
SERVER_BY=()
server_begin() {
	: >"$SAID.server"
	ip netns exec memreg-peer "${SERVER_BY[@]}" memreg blkd -d rxe_peer \
		"$@" >"$SAID.server" 2>&1 &
	SERVER=$!
	await 60 server_says 'serving on'
}

# server_end SIGNAL
server_end() {
	local pid=$SERVER
	[ -n "$pid" ] || return 0
	SERVER=
	kill "-$1" "$pid" 2>/dev/null
	wait "$pid" 2>/dev/null
	return 0
}

# file NAME BYTES: make a file of zeros for an export. $FILE is its path.
file() {
	FILE=$BLK_FILES/$1
	rm -f "$FILE"
	truncate -s "$2" "$FILE"
}

#
# Devices
#

# blk_set NAME ATTRIBUTE VALUE
blk_set() {
	echo "$3" 2>/dev/null >"$BLK/$1/$2"
}

# blk_get NAME ATTRIBUTE
blk_get() {
	cat "$BLK/$1/$2"
}

# blk_is NAME ATTRIBUTE VALUE
blk_is() {
	[ "$(blk_get "$1" "$2")" = "$3" ]
}

# blk_count NAME COUNTER
blk_count() {
	awk -v name="$2" '$1 == name { print $2 }' "$BLK/$1/stats"
}

# blk_make NAME ATTRIBUTE=VALUE...
blk_make() {
	local name=$1 set
	mkdir "$BLK/$name" || return
	shift
	for set in address=192.0.2.2 keep_alive=1 "$@"; do
		blk_set "$name" "${set%%=*}" "${set#*=}" || return
	done
}

# blk_enable NAME: enable a device in the owner's namespace. $DISK is its disk.
blk_enable() {
	if ! echo 1 | nsenter --net=/run/netns/memreg-owner \
		tee "$BLK/$1/enabled" >/dev/null; then
		echo "$1: $(blk_get "$1" error)"
		return 1
	fi
	DISK=/dev/$(blk_get "$1" disk)
	await 20 [ -b "$DISK" ]
}

# unmerged: have the block layer merge no requests of $DISK, so that the size of
# each is known.
unmerged() {
	echo 2 >"/sys/block/${DISK#/dev/}/queue/nomerges"
}

# blk_disable NAME
blk_disable() {
	blk_set "$1" enabled 0
}

blk_show() {
	local dir
	for dir in "$BLK"/*; do
		[ ! -d "$dir" ] ||
			(cd "$dir" && grep . state error disk stats) |
				paste -s -d ' '
	done
}

# no_errors NAME: no connection was lost, and neither side violated the
# protocol.
no_errors() {
	[ "$(blk_count "$1" losses)" = 0 ] &&
		[ "$(blk_count "$1" timeouts)" = 0 ] &&
		[ "$(blk_count "$1" protocol-errors)" = 0 ] &&
		[ "$(blk_count "$1" bogus-invalidations)" = 0 ] &&
		[ "$(blk_count "$1" failed)" = 0 ]
}

#
# I/O
#

# verify DISK RW BS DEPTH SIZE OPTION...: run fio, which checks that reads
# return the written data.
verify() {
	local disk=$1 rw=$2 bs=$3 depth=$4 size=$5
	shift 5
	fio --name=verify --filename="$disk" --rw="$rw" --bs="$bs" \
		--iodepth="$depth" --size="$size" --ioengine=libaio \
		--direct=1 --thread --verify=crc32c --verify_fatal=1 \
		--do_verify=1 --verify_state_save=0 --allow_file_create=0 \
		--minimal "$@"
}

# same DISK FILE: a disk, read from the server, has the same contents as a file.
same() {
	cmp <(dd if="$1" iflag=direct bs=1M status=none) "$2"
}
