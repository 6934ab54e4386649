#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# ib_memreg_blk where its own calls fail: allocations, posts, MRs. Data that is
# read is what was written, I/O ends once, what can't be made leaves nothing, and
# what is removed goes. On kernels that inject faults.
# time limit: 300
# shellcheck disable=SC2317,SC2329 # functions are called by check

cd "$(dirname "$(realpath "$0")")/.." || exit
# shellcheck source-path=SCRIPTDIR source=../lib/topology.sh
. lib/topology.sh
# shellcheck source-path=SCRIPTDIR source=../lib/blk.sh
. lib/blk.sh

DEBUGFS=/sys/kernel/debug
BLK_IO=$TOPOLOGY_TREE/build/selftests/blk_io

[ -d $DEBUGFS/failslab ] && [ -d $DEBUGFS/fail_memreg ] || exit 4

# How often each fault point fails in a row
FAULTS=$((2 * ${MEMREG_TIMES:-1}))
((${MEMREG_CHOSEN:-0} == 0)) || FAULTS=1

finish() {
	faults_end
	blk_end
}
trap finish EXIT

POINTS=(failslab fail_page_alloc
	fail_memreg/{post_send,work_request,alloc_mr,map_mr})

# code: print the first and the last address of the block client's code.
code() {
	grep -F '[ib_memreg_blk]' /proc/kallsyms | grep ' [tT] ' | sort |
		awk 'NR == 1 { print "0x" $1 } END { print "0x" $1 }'
}

# fault POINT FILE=VALUE...
fault() {
	local point=$DEBUGFS/$1 set
	shift
	for set; do
		echo "${set#*=}" >"$point/${set%%=*}" || return
	done
}

# faults_begin POINT PERCENT: have so many of the block client's next calls
# fail. Calls of other processes, such as the server, do not fail.
faults_begin() {
	local ends
	mapfile -t ends < <(code)
	[ ${#ends[@]} = 2 ] || return
	# Allocations that may wait, and single pages.
	case $1 in
	failslab) fault "$1" ignore-gfp-wait=N cache-filter=N || return ;;
	fail_page_alloc)
		fault "$1" ignore-gfp-wait=N ignore-gfp-highmem=N min-order=0 ||
			return
		;;
	esac
	fault "$1" verbose=0 task-filter=N interval=1 space=0 times="$FAULTS" \
		stacktrace-depth=32 require-start="${ends[0]}" \
		require-end="${ends[1]}" probability="$2"
}

# faults_done POINT: all of them have happened.
faults_done() {
	[ "$(cat "$DEBUGFS/$1/times")" = 0 ]
}

faults_end() {
	local point
	for point in "${POINTS[@]}"; do
		[ ! -d "$DEBUGFS/$point" ] ||
			fault "$point" probability=0 require-start=0 \
				require-end=0xffffffffffffffff
	done
}

serve() {
	server_begin -a 192.0.2.2 file="$BLK_FILES/file"
}

# up: enable a device of 4 MiB that never gives up.
up() {
	file file 4M
	serve && blk_make dev export=file queues=2 retries=1000 fail_after=-1 &&
		blk_enable dev
}

down() {
	rmdir "$BLK/dev" && server_end TERM
}

live() {
	blk_is dev state live
}

# io_begin: in the background, as process $IO.
io_begin() {
	"$BLK_IO" io "$DISK" >"$BLK_FILES/io" 2>&1 &
	IO=$!
	await 60 commands_since 30
}

commands_since() {
	(($(blk_count dev commands) >= $1))
}

# io_end: wait for I/O to end. Fails if a read returned wrong data.
io_end() {
	local status=0
	kill -TERM "$IO"
	wait "$IO" || status=1
	cat "$BLK_FILES/io"
	return "$status"
}

# order POINT=PERCENT...: inject faults, and wait until all of them have
# happened.
order() {
	local set status=0
	for set; do
		faults_begin "${set%=*}" "${set#*=}" || return
	done
	for set; do
		await $((60 * FAULTS)) "${UNTIL:-faults_done}" "${set%=*}" || status=1
	done
	faults_end
	return "$status"
}

# faults_done_or_lost POINT: all faults have happened, or the connection is lost
# and has to be made again.
faults_done_or_lost() {
	faults_done "$1" && return
	if live; then
		server_end KILL
		serve
	fi
	return 1
}

# well: the device works again, and reads return what was written.
well() {
	local status=0
	await 60 live && io_end || status=1
	blk_show
	same "$DISK" "$FILE" && down && return "$status"
}

io_with_failed_posts() {
	up && io_begin &&
		order fail_memreg/post_send=5 fail_memreg/work_request=5 &&
		[ "$(blk_count dev failed)" = 0 ] && well
}

# A request that can't be mapped fails, once.
io_with_failed_mappings() {
	up && io_begin && order fail_memreg/map_mr=5 && well &&
		[ "$(awk '{ n += $7 } END { print n }' "$BLK_FILES/io")" = \
			"$FAULTS" ]
}

# The server comes back, but a step of connecting fails.
recovery_with_failures() {
	up && io_begin || return
	server_end KILL
	serve && UNTIL=faults_done_or_lost order failslab=5 \
		fail_page_alloc=10 fail_memreg/alloc_mr=10 && await 60 live &&
		[ "$(blk_count dev failed)" = 0 ] && well
}

as_large() {
	[ "$(blockdev --getsize64 "$DISK")" = "$1" ]
}

# The event of the new size may be lost, and the size itself is set.
resized_with_failed_allocations() {
	up && faults_begin failslab 30 || return
	truncate -s 6M "$FILE"
	await 30 as_large $((6 << 20)) || return
	truncate -s 4M "$FILE"
	await 30 as_large $((4 << 20)) || return
	faults_end
	down
}

# Removed while it can't recover.
removed_with_failed_allocations() {
	up && io_begin || return
	server_end KILL
	faults_begin failslab 30 && rmdir "$BLK/dev" || return
	faults_end
	! io_end && [ ! -d "$BLK/dev" ]
}

# Fail at each place of enabling and disabling, or at every so many of them.
enabled_with_each_fault() {
	file file 4M
	serve && blk_make dev export=file queues=1 depth=2 &&
		nsenter --net=/run/netns/memreg-owner "$BLK_IO" nth "$BLK/dev" &&
		down
}

CHECKS=(
	enabled_with_each_fault
	io_with_failed_posts
	io_with_failed_mappings
	recovery_with_failures
	resized_with_failed_allocations
	removed_with_failed_allocations
)

[ $# = 0 ] || CHECKS=("$@")
check blk_load
for name in "${CHECKS[@]}"; do
	check "$name"
	faults_end
done
exit $BLK_FAILED
