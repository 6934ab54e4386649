#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# memreg blkd on the command line: options, what can't be served, signals. What
# it does for clients is in blkd.c.
# shellcheck disable=SC2317 # functions are called by check

cd "$(dirname "$(realpath "$0")")/.." || exit
# shellcheck source-path=SCRIPTDIR source=../lib/topology.sh
. lib/topology.sh

FAILED=0
SAID=$(mktemp)
FILES=$(mktemp -d /dev/shm/memreg-blkd.XXXXXX)
trap 'rm -rf "$SAID" "$FILES"' EXIT
truncate -s 1M "$FILES/disk"
truncate -s 100 "$FILES/short"
: >"$FILES/empty"

# check NAME [ARGUMENT...]: run a function of this file, and report its result.
check() {
	: >"$SAID"
	if "$@"; then
		echo "ok $*"
	else
		sed 's/^/# /' "$SAID"
		echo "not ok $*"
		FAILED=1
	fi
}


# begin ARGUMENT...: start a server in the background, as $SERVER, and wait
# until it serves.
begin() {
	: >"$SAID"
	ip netns exec memreg-owner memreg blkd -d rxe_owner "$@" >"$SAID" 2>&1 &
	SERVER=$!
	await 60 says 'serving on' 2>>"$SAID"
}

says() {
	grep -q -- "$1" "$SAID"
}

# end SIGNAL: end the server by a signal. Its exit status has to be 0.
end() {
	kill -s "$1" "$SERVER"
	wait "$SERVER"
}

# ends STATUS WORD ARGUMENT...
ends() {
	local status=$1 word=$2 now=0
	shift 2
	timeout 60 ip netns exec memreg-owner memreg blkd "$@" >"$SAID" 2>&1 ||
		now=$?
	[ "$now" = "$status" ] && says "$word"
}

explains_itself() {
	ends 0 'usage: memreg blkd' --help && says '--read-only' &&
		says '--max-length' && says '--inline-max' &&
		memreg --help | grep -q ' blkd '
}

reports_bad_usage() {
	ends 2 'what is to be served' &&
		ends 2 'is for memory' --size 1M "$FILES/disk" &&
		ends 2 'power of two' -b 1536 "$FILES/disk" &&
		ends 2 'multiple of 4096' -l 5000 "$FILES/disk" &&
		ends 2 'must hold a command' -B 64K "$FILES/disk" &&
		ends 2 'exclude each other' -n -w "$FILES/disk" &&
		ends 2 'it is not a number' memory:x &&
		ends 2 'a name has' seventeen_letters="$FILES/disk" &&
		ends 2 'a name has' "=$FILES/disk" &&
		ends 2 'two exports are called a' a="$FILES/disk" a=memory:1M
}

reports_what_it_can_not_serve() {
	ends 1 'No such file' "$FILES/none" &&
		ends 1 'smaller than a block' "$FILES/short" &&
		ends 1 'smaller than a block' "$FILES/empty" &&
		ends 1 'smaller than a block' -b 4096 memory:1K &&
		ends 1 'Is a directory' dir="$FILES" &&
		ends 1 'neither a file nor' /dev/null &&
		ends 1 "no RDMA device 'none' here" -d none "$FILES/disk"
}

# EXPECTED is the end of the line that the server prints about the export.
serves() {
	local expected=$1
	shift
	begin -p 0 "$@" && end TERM && says "$expected\$" && says ' end: 0 commands'
}

serves_what_the_options_say() {
	serves 'export disk: .*, 1048576 bytes in blocks of 512, write cache, discard' \
		"$FILES/disk" &&
		serves 'blocks of 4096, read only, write cache' -r -b 4096 \
			"$FILES/disk" &&
		serves 'blocks of 512, discard' -n "$FILES/disk" &&
		serves 'export memory: memory, 65536 bytes in blocks of 512' \
			-s 64K &&
		serves 'blocks of 512, write cache' -w -s 64K &&
		serves 'export x: memory, 1536 bytes in blocks of 512' \
			x=memory:2000 y="$FILES/disk" && says 'export y: '
}

# Two devices are here, and the address is one's.
takes_the_device_that_has_the_address() {
	: >"$SAID"
	ip netns exec memreg-owner memreg blkd -a 192.0.2.1 -p 0 -s 64K \
		>"$SAID" 2>&1 &
	SERVER=$!
	await 60 says 'serving on rxe_owner, address 192.0.2.1 ' && end TERM &&
		ends 1 "no RDMA device here has the address '192.0.2.9'\$" \
			-a 192.0.2.9 -s 64K &&
		ends 1 'there are 2 RDMA devices, and none was named' -s 64K
}

# As sd_notify(3) has it. A server that can't serve reports nothing.
reports_to_a_service_manager() {
	local socket=$FILES/notify listener status=0
	python3 - "$socket" >"$FILES/notified" <<-'EOT' &
		import socket, sys
		s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
		s.bind(sys.argv[1])
		s.settimeout(120)
		state = ""
		while state != "STOPPING=1":
		    state = s.recv(4096).decode()
		    print(state, flush=True)
	EOT
	listener=$!
	await 60 [ -S "$socket" ] || return
	export NOTIFY_SOCKET=$socket
	ends 1 'No such file' -d rxe_owner "$FILES/none" &&
		ends 1 'no RDMA device here' -a 192.0.2.9 -s 64K &&
		[ ! -s "$FILES/notified" ] && begin -p 0 -s 64K &&
		await 60 grep -qx 'READY=1' "$FILES/notified" && end TERM ||
		status=1
	unset NOTIFY_SOCKET
	((status == 0)) || kill "$listener"
	wait "$listener" || status=1
	[ "$(paste -s -d ' ' "$FILES/notified")" = 'READY=1 STOPPING=1' ] &&
		return "$status"
}

one_port_has_one_server() {
	local status
	begin -s 64K && ends 1 'EADDRINUSE' -d rxe_owner -s 64K
	status=$?
	end INT && return "$status"
}

# A second server of the same file is refused: by its path, by another path, and
# by another name of the export.
one_file_has_one_server() {
	local status=0 port=(-d rxe_owner -p 0)
	ln -f "$FILES/disk" "$FILES/link"
	begin -p 0 "$FILES/disk" || return
	ends 1 'disk: another process has locked it' "${port[@]}" "$FILES/disk" &&
		ends 1 'another process has locked it' "${port[@]}" x="$FILES/link" &&
		ends 1 'another process has locked it' "${port[@]}" -r "$FILES/disk"
	status=$?
	end TERM && return "$status"
}

# Nor does it keep itself off.
what_is_shared_is_served() {
	local first
	begin -p 0 a="$FILES/disk" b="$FILES/disk" && end TERM &&
		begin -p 0 -r "$FILES/disk" || return
	first=$SERVER
	begin -p 0 -r "$FILES/disk" && end TERM
	SERVER=$first
	end TERM && says ' end: 0 commands'
}

# The disk is read-only, though its driver lets it be opened for writing. It is
# served as with -r.
disk_that_is_read_only_is_served_so() {
	local disk first status=0
	modprobe loop && disk=$(losetup -r -f --show "$FILES/disk") || return
	begin -p 0 "$disk" || status=1
	first=$SERVER
	serves 'blocks of 512, read only, write cache' "$disk" || status=1
	SERVER=$first
	end TERM && losetup -d "$disk" && return "$status"
}

# has_open PID FILE: has the tool the file open? The shell that it was before
# may have, too.
has_open() {
	local fd comm
	{ read -r comm <"/proc/$1/comm"; } 2>/dev/null && [ "$comm" = memreg-blkd ] ||
		return
	for fd in "/proc/$1/fd/"*; do
		[ "$fd" -ef "$2" ] && return
	done
	return 1
}

# waited_for_a_moment: wait until the server has opened the file and tried for a
# while, or has printed an outcome.
waited_for_a_moment() {
	local lock status=0 end=$((SECONDS + 60))
	exec {lock}<"$FILES/disk"
	flock "$lock" || status=1
	: >"$SAID"
	ip netns exec memreg-owner memreg blkd -d rxe_owner -p 0 \
		"$FILES/disk" >"$SAID" 2>&1 {lock}<&- &
	SERVER=$!
	# Another process has the file only for as long as sleep(1) takes on a
	# busy machine.
	until has_open "$SERVER" "$FILES/disk" || [ -s "$SAID" ] ||
		((SECONDS > end)); do :; done
	exec {lock}<&-
	await 60 says 'serving on\|another process' && says 'serving on' ||
		status=1
	end TERM && return "$status"
}

# On a busy machine the other process may have ended before the server tries:
# try again.
who_has_it_for_a_moment_is_waited_for() {
	for _ in 1 2 3; do
		waited_for_a_moment && return
	done
	return 1
}

# 64 files and 20 threads are more than the soft limit that a login shell has.
opens_many_files() {
	local files=("$FILES/many"{1..64}) soft status=0
	truncate -s 4K "${files[@]}" || return
	soft=$(ulimit -S -n)
	ulimit -S -n 1024
	begin -p 0 --threads 20 "${files[@]}" || status=1
	ulimit -S -n "$soft"
	end TERM && return "$status"
}

ends_by_a_signal() {
	begin -p 0 -s 64K && end "$1" && says stopping && says ' end: 0 commands'
}

prints_statistics() {
	begin -p 0 -s 64K && kill -USR1 "$SERVER" &&
		await 60 says ' so far: 0 commands in' && end TERM
}

prints_them_by_itself() {
	begin -p 0 -s 64K -i 1 && await 60 says ' so far: 0 commands in' &&
		end TERM
}

sees_another_size() {
	begin -p 0 "$FILES/disk" && truncate -s 3M "$FILES/disk" &&
		kill -HUP "$SERVER" &&
		await 60 says 'export disk: 3145728 bytes now' &&
		truncate -s 1M "$FILES/disk" && kill -HUP "$SERVER" &&
		await 60 says 'export disk: 1048576 bytes now' && end TERM
}

# selftests/run checks what is left after a kill.
is_killed() {
	local status=0
	begin -p 0 -s 1M "$@" || return
	kill -KILL "$SERVER"
	wait "$SERVER" 2>/dev/null || status=$?
	[ "$status" = 137 ]
}

topology_up || exit
check explains_itself
check reports_bad_usage
check reports_what_it_can_not_serve
check serves_what_the_options_say
check takes_the_device_that_has_the_address
check reports_to_a_service_manager
check one_port_has_one_server
check one_file_has_one_server
check what_is_shared_is_served
check disk_that_is_read_only_is_served_so
check who_has_it_for_a_moment_is_waited_for
check opens_many_files
check ends_by_a_signal INT
check ends_by_a_signal TERM
check prints_statistics
check prints_them_by_itself
check sees_another_size
check is_killed
exit "$FAILED"
