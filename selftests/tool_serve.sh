#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# memreg serve with peers that give up, and with commands that are none; what
# list and unload print of others; and the status if output can't be written.
# time limit: 240
# shellcheck disable=SC2317 # functions are called by check

cd "$(dirname "$(realpath "$0")")" || exit
# shellcheck source-path=SCRIPTDIR source=lib/tool.sh
. lib/tool.sh

DEBUGFS=/sys/kernel/debug
BACKLOG=16		# of memreg serve
NAMES=$(mktemp -d)
trap 'rm -rf "$SAID" "$SAID.now" "$NAMES"' EXIT

# serve OPTION...
serve() {
	: >"$SAID"
	begin '*serving*' memreg serve -d rxe_owner --size 4K "$@"
}

quit() {
	echo quit >&"$TO"
	end
}

peek() {
	peer memreg peek -d rxe_peer "$@"
}

# As many peers as may wait ask and give up while the server is not looking.
# What is left of them is nothing, and the next one gets in. They are patient, as
# it takes some machines a while to begin them all.
peers_that_give_up_leave_their_places() {
	local status=0 pids=() i
	serve || return
	kill -STOP "$SERVER"
	for ((i = 0; i < BACKLOG; i++)); do
		ip netns exec memreg-peer verbs_peer -t 120000 -c 120000 \
			192.0.2.1 7471 read 0 1 >/dev/null 2>&1 &
		pids+=($!)
	done
	await 100 objects endpoint requested "$BACKLOG" || status=1
	kill -KILL "${pids[@]}"
	wait "${pids[@]}" 2>/dev/null
	await 60 objects endpoint closed "$BACKLOG" || status=1
	kill -CONT "$SERVER"
	await 60 objects endpoint closed 0 || status=1
	objects domain up 1 || status=1
	says 0 '^00000000 ' peek 192.0.2.1 || status=1
	quit || status=1
	[ "$(grep -c 'is turned away' "$SAID")" = "$BACKLOG" ] && return "$status"
}

# order POINT FILE=VALUE...: the kernel makes the next one fail.
order() {
	local point=$DEBUGFS/$1 set
	shift
	for set in verbose=0 interval=1 space=0 times=1 "$@" probability=100; do
		echo "${set#*=}" >"$point/${set%%=*}" || return
	done
}

happened() {
	[ "$(cat "$DEBUGFS/$1/times")" = 0 ]
}

# The endpoint is in its domain by then, which can't go before it.
peer_that_is_gone_when_accepted_leaves_nothing() {
	local status=0
	serve || return
	order fail_memreg/accept task-filter=N || status=1
	says 1 'rejects the connection' peek 192.0.2.1 || status=1
	happened fail_memreg/accept || status=1
	echo 0 >"$DEBUGFS/fail_memreg/accept/probability"
	objects endpoint closed 0 && objects domain up 1 || status=1
	says 0 '^00000000 ' peek 192.0.2.1 || status=1
	quit && grep -q 'is turned away' "$SAID" && return "$status"
}

# The call that is to revoke is the next thing that the server does.
revoke_that_fails_is_tried_again() {
	local status=0 pid
	serve --revoke-after 20 || return
	peek -l 16 -i 1 192.0.2.1 >"$SAID.peek" 2>&1 &
	pid=$!
	hear '*connected from*' || status=1
	await 60 is_in "$SERVER" S || status=1
	echo 1 >"/proc/$SERVER/make-it-fail" || status=1
	order fail_usercopy task-filter=Y || status=1
	hear 'memreg serve: peer *' || status=1
	hear '*: revoked, rkey *' || status=1
	happened fail_usercopy || status=1
	echo 0 >"$DEBUGFS/fail_usercopy/probability"
	((status == 0)) || kill "$pid"
	wait "$pid"
	[ $? = 1 ] && grep -q 'the peer refuses' "$SAID.peek" || status=1
	cat "$SAID.peek" >>"$SAID"
	rm "$SAID.peek"
	quit && return "$status"
}

# The rest of a line that is too long to be a command is none either.
rest_of_a_long_line_is_no_command() {
	serve || return
	printf '%01023dquit\n%s\n' 0 'show 0100 010' >&"$TO"
	if ! hear '*show 100 10'; then
		end
		return 1
	fi
	quit && grep -q '1022 bytes at most' "$SAID"
}

zeros_in_front_are_nothing() {
	local status=0
	serve || return
	says 0 '^0000000a .* |\.\.\.\.\.\.\.\.|$' peek -o 010 -l 08 192.0.2.1 &&
		says 2 'no offset' peek -o 0x 192.0.2.1 || status=1
	says 0 '^write offset=-10 length=16 ' peer verbs_peer -t 60000 -c 60000 -o 0100 \
		192.0.2.1 7471 write -010 0x10 09 || status=1
	quit && return "$status"
}

# What the terminal sends to those who read from it in the background.
input_of_others_stops_nothing() {
	local status=0
	serve || return
	kill -TTIN "$SERVER" || status=1
	says 0 '^00000000 ' peek 192.0.2.1 || status=1
	quit && return "$status"
}

# The file behind it was truncated: to look there would be SIGBUS.
memory_that_went_is_not_touched() {
	local status=0 file=/dev/shm/memreg.$$
	truncate -s 4K "$file" || return
	if serve -f "$file"; then
		truncate -s 0 "$file"
		printf 'show\nset 0 text\nlist\n' >&"$TO"
		hear '*show: the memory went*' || status=1
		hear '*set: the memory went*' || status=1
		quit || status=1
	else
		status=1
	fi
	rm "$file"
	return "$status"
}

# plain FILE: nothing in it that a terminal would obey.
plain() {
	! LC_ALL=C grep -q '[^ -~]' "$1"
}

names_of_others_are_plain() {
	local status=0 tool=$NAMES/$'m\e[31m\xffg'
	: >"$SAID"
	ln -s "$(command -v memreg)" "$tool"
	begin '*serving*' "$tool" serve -d rxe_owner --size 4K || return
	memreg list >"$NAMES/list" || status=1
	memreg unload >"$NAMES/unload" 2>&1 && status=1
	grep -qF ' m?[31m?g ' "$NAMES/list" && plain "$NAMES/list" || status=1
	grep -qF '(m?[31m?g)' "$NAMES/unload" && plain "$NAMES/unload" ||
		status=1
	memreg list --json | grep -qF '"m\u001b[31m\u00ffg"' || status=1
	cat -v "$NAMES/list" "$NAMES/unload" >>"$SAID"
	quit && return "$status"
}

# full COMMAND...: its output goes where there is no room for it.
full() {
	"$@" >/dev/full
}

lost_output_is_a_failure() {
	local lost="can't write all of the output"
	: >"$SAID"
	says 1 "$lost" full memreg --version &&
		says 1 "$lost" full memreg --help &&
		says 1 "$lost" full memreg serve --help &&
		says 1 "$lost" full memreg list &&
		says 1 "$lost" full memreg list --json &&
		says 1 "$lost" full memreg caps -d rxe_owner &&
		says 1 "$lost" full memreg stat -d rxe_owner &&
		says 2 'no subcommand' full memreg none
}

check peers_that_give_up_leave_their_places
check rest_of_a_long_line_is_no_command
check zeros_in_front_are_nothing
check input_of_others_stops_nothing
check memory_that_went_is_not_touched
check names_of_others_are_plain
check lost_output_is_a_failure
if [ -d "$DEBUGFS/fail_memreg/accept" ] && [ -d "$DEBUGFS/fail_usercopy" ]; then
	check peer_that_is_gone_when_accepted_leaves_nothing
	check revoke_that_fails_is_tried_again
fi
exit "$FAILED"
