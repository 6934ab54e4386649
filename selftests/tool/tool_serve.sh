#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# memreg serve with peers that give up, commands that are none, and memory that
# goes; what list and unload print of others; and the status if output can't be
# written.
# time limit: 300
# shellcheck disable=SC2317 # functions are called by check

cd "$(dirname "$(realpath "$0")")/.." || exit
# shellcheck source-path=SCRIPTDIR source=../lib/tool.sh
. lib/tool.sh

DEBUGFS=/sys/kernel/debug
BACKLOG=16		# of memreg serve
NAMES=$(mktemp -d)
FILES=$(mktemp -d /dev/shm/memreg.XXXXXX)
trap 'rm -rf "$SAID" "$SAID.now" "$NAMES" "$FILES"' EXIT

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

# As many peers as the backlog has places request connections and give up, while
# the server is stopped. Nothing of them is left, and the next peer is accepted.
# They wait long, as a slow machine takes a while to start them all.
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

# Both ends see two devices, and each address is one's.
the_address_names_the_device() {
	: >"$SAID"
	begin '*serving*rxe_owner*' memreg serve --size 4K -a 192.0.2.1 ||
		return
	says 0 '^00000000 ' peer memreg peek 192.0.2.1 && quit
}

# order POINT FILE=VALUE...: have the kernel fail the next call at this point.
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

# The endpoint keeps its domain from being destroyed.
peer_that_is_gone_when_accepted_leaves_nothing() {
	local status=0
	serve || return
	order fail_memreg/accept task-filter=N || status=1
	says 1 'rejects' peek 192.0.2.1 || status=1
	happened fail_memreg/accept || status=1
	echo 0 >"$DEBUGFS/fail_memreg/accept/probability"
	objects endpoint closed 0 && objects domain up 1 || status=1
	says 0 '^00000000 ' peek 192.0.2.1 || status=1
	quit && grep -q 'is turned away' "$SAID" && return "$status"
}

# The next call of the server is the one that revokes.
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

# lose_confirmations: lose each message of the connection manager by which a peer
# confirms that it was accepted: the attribute ID of READY TO USE, behind the
# headers of IPv4, UDP and RoCE. Soft-RoCE does not see that they are lost, as it
# would where they are sent, which puts its GSI QP in error for good.
lose_confirmations() {
	ip netns exec memreg-owner tc qdisc add dev mr_owner clsact &&
		ip netns exec memreg-owner tc filter add dev mr_owner ingress \
			protocol ip u32 match u16 0x0014 0xffff at 64 \
			action drop
}

# unconfirmed: begin to read by such a peer, again and again, until it has read.
unconfirmed() {
	peek -l 16 -i 0.1 192.0.2.1 >"$SAID.peek" 2>&1 &
	PEEK=$!
	await 60 grep -q '^00000000 ' "$SAID.peek"
}

# refused_in_the_end: the peer that began fails, and the server says that it has
# never been connected.
refused_in_the_end() {
	local status=0
	hear '*: from 192.0.2.2:*, did not come up: *' || status=1
	wait "$PEEK"
	[ $? = 1 ] || status=1
	cat "$SAID.peek" >>"$SAID"
	rm "$SAID.peek"
	return "$status"
}

# A peer whose confirmation is lost has its key. It is listed, revoked in time,
# and disconnected, as all are.
unconfirmed_peer_is_a_peer() {
	local status=0
	serve --revoke-after 20 || return
	lose_confirmations || status=1
	unconfirmed || status=1
	echo list >&"$TO"
	hear '*: 192.0.2.2:*, rkey * good, not connected yet' || status=1
	hear '*: revoked, rkey *' || status=1
	refused_in_the_end || status=1
	unconfirmed || status=1
	echo disconnect all >&"$TO"
	refused_in_the_end || status=1
	ip netns exec memreg-owner tc qdisc del dev mr_owner clsact || status=1
	quit && ! grep -q ': connected from' "$SAID" && return "$status"
}

# A line that is too long is refused as a whole, and none of it is taken for a
# command.
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
		says 2 'not a number' peek -o 0x 192.0.2.1 || status=1
	says 0 '^write offset=-10 length=16 ' peer verbs_peer -t 60000 -c 60000 -o 0100 \
		192.0.2.1 7471 write -010 0x10 09 || status=1
	quit && return "$status"
}

# SIGTTIN, which the terminal sends to background processes that read from it
input_of_others_stops_nothing() {
	local status=0
	serve || return
	kill -TTIN "$SERVER" || status=1
	says 0 '^00000000 ' peek 192.0.2.1 || status=1
	quit && return "$status"
}

# The file is truncated, so that reading the mapping would raise SIGBUS. The
# server does not serve what is gone, and registers anew when it is back.
memory_that_went_ends_the_server() {
	local status=0 file=$FILES/gone
	truncate -s 4K "$file" && serve -f "$file" || return
	truncate -s 0 "$file"
	echo show >&"$TO"
	hear '*the memory went*' || status=1
	end && status=1
	grep -q "gone has 0 bytes now, and 4096 were served" "$SAID" &&
		return "$status"
}

# A peer that connects later is rejected with the reason.
peer_gets_the_reason_that_memory_went() {
	local status=0 file=$FILES/gone
	truncate -s 4K "$file" && serve -f "$file" || return
	truncate -s 0 "$file"
	says 1 'turns us away: what it served is gone' peek 192.0.2.1 ||
		status=1
	end && status=1
	return "$status"
}

# The file has its size again: the next peer is served, and peers that were
# connected are again.
memory_that_came_back_is_served() {
	local status=0 file=$FILES/back
	truncate -s 4K "$file" && serve -f "$file" || return
	truncate -s 0 "$file" && echo anew >"$file" && truncate -s 4K "$file"
	says 0 '|anew\.' peek 192.0.2.1 || status=1
	quit && grep -q 'registered anew' "$SAID" && return "$status"
}

# Only --access lets peers, or a command, write to a file.
file_is_read_only() {
	local status=0 file=$FILES/precious
	echo precious >"$file" && truncate -s 4K "$file" || return
	serve -f "$file" || return
	says 1 "doesn't grant to write, but: read" peer memreg poke \
		-d rxe_peer 192.0.2.1 lost || status=1
	echo 'set 0 lost' >&"$TO"
	hear '*is mapped read-only; --access read,write maps it otherwise' ||
		status=1
	quit || status=1
	grep -q precious "$file" || status=1
	serve -f "$file" -A read,write || return
	says 0 '4 bytes written' peer memreg poke -d rxe_peer 192.0.2.1 kept ||
		status=1
	quit && grep -q keptious "$file" && return "$status"
}

says_who_may_connect() {
	local status=0
	serve && quit && grep -q 'anybody who reaches this host' "$SAID" ||
		status=1
	serve -a 192.0.2.1 && quit && ! grep -q anybody "$SAID" &&
		return "$status"
}

# shows PATTERN COMMAND...: the command prints a line that matches.
shows() {
	local pattern=$1
	shift
	"$@" >"$NAMES/shows" 2>>"$SAID" || return
	cat "$NAMES/shows" >>"$SAID"
	grep -qE -- "$pattern" "$NAMES/shows"
}

# `memreg list` shows the file, domain, MR and listener of the server.
list_can_be_filtered() {
	local status=0
	serve || return
	shows " $SERVER .* listener " memreg list --pid "$SERVER" &&
		! shows " mr " memreg list --pid "$SERVER" --type domain &&
		shows " up " memreg list --pid "$SERVER" --type domain &&
		shows " live " memreg list --state live -d rxe_owner &&
		! shows file memreg list --state stale --json &&
		! shows " (mr|file) " memreg list -d rxe_peer || status=1
	quit && return "$status"
}

list_is_a_tree() {
	local status=0
	serve || return
	shows "^process $SERVER memreg, user 0" memreg list --tree &&
		shows '^  file [0-9]+ on rxe_owner, 4.00 KiB pinned' \
			memreg list --tree &&
		shows '^    domain [0-9]+ up' memreg list --tree &&
		shows '^      mr [0-9]+ live  0x[0-9a-f]+ \+ 4.00 KiB ' \
			memreg list --tree || status=1
	quit && return "$status"
}

# In JSON a field has one meaning: "bytes" of an MR are not those that a file
# has pinned.
list_json_has_names() {
	local status=0
	serve || return
	memreg list --json --pid "$SERVER" | python3 -c '
import json, sys
objects = {o["type"]: o for o in json.load(sys.stdin)}
mr = objects["mr"]
assert mr["length_bytes"] == 4096 and mr["access"] == ["local-write", "bind"]
assert mr["domain"] == objects["domain"]["id"] and "rkey" not in mr
assert objects["file"]["pinned_bytes"] == 4096
assert "length" not in objects["file"]
assert objects["domain"]["queue_rebuilds"] == 0' 2>>"$SAID" || status=1
	quit && return "$status"
}

# With --json, serve prints its events and its answers to commands as records,
# and so do peek and poke their results.
serve_peek_and_poke_have_json() {
	local status=0 word
	: >"$SAID"
	begin '*"serving"*' memreg serve -d rxe_owner --size 4K --json || return
	peer memreg poke -d rxe_peer --json -o 16 192.0.2.1 hello \
		>"$NAMES/poke" 2>>"$SAID" || status=1
	hear '*"event":"gone"*' || status=1
	peek --json -o 16 -l 5 192.0.2.1 >"$NAMES/peek" 2>>"$SAID" || status=1
	hear '*"event":"gone"*' || status=1
	for word in 'show 16 5' 'set 21 !' list nonsense; do
		echo "$word" >&"$TO"
	done
	hear '*no command nonsense*' || status=1
	quit || status=1
	grep '^{' "$SAID" >"$NAMES/serve"
	python3 - "$NAMES" <<-'END' 2>>"$SAID" || status=1
		import json, sys
		def records(name):
		    return [json.loads(line) for line in
		            open(sys.argv[1] + "/" + name)]
		here = {"offset_bytes": 16, "length_bytes": 5}
		assert records("poke") == [here]
		assert records("peek") == [here | {"data_hex": b"hello".hex()}]
		events = {r["event"]: r for r in records("serve")}
		assert list(events) == ["serving", "connected", "gone", "show",
		    "set", "end_of_list", "message", "end"], list(events)
		assert all(r["time_seconds"] > 1e9 for r in events.values())
		serving, peer = events["serving"], events["connected"]
		assert serving["length_bytes"] == peer["length_bytes"] == 4096
		assert serving["access"] == peer["access"] == ["read", "write"]
		assert serving["device"] == "rxe_owner" and "file" not in serving
		assert peer["rkey"] > 0 and peer["revoked"] is False
		assert events["gone"]["peer"] == peer["peer"]
		assert events["gone"]["connected_seconds"] >= 0
		assert events["show"]["data_hex"] == b"hello".hex()
		assert events["set"]["length_bytes"] == 1
	END
	return "$status"
}

caps_has_json() {
	memreg caps -d rxe_owner --json | python3 -c '
import json, sys
o = json.load(sys.stdin)
caps = o["capabilities"]
assert o["device"] == "rxe_owner" and o["ports"] == 1
assert caps["key-span"]["unit"] == "bytes"
assert caps["key-span"]["value"] % 4096 == 0
assert caps["window-type1"]["value"] is True
assert "read" in caps["opcodes"]["value"]
assert caps["access"]["value"][0] == "read"' 2>>"$SAID"
}

# plain FILE: the file has no control sequences for a terminal.
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

# full COMMAND...: the command fails if its output goes to a full device.
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

check the_address_names_the_device
check peers_that_give_up_leave_their_places
check unconfirmed_peer_is_a_peer
check rest_of_a_long_line_is_no_command
check zeros_in_front_are_nothing
check input_of_others_stops_nothing
check memory_that_went_ends_the_server
check peer_gets_the_reason_that_memory_went
check memory_that_came_back_is_served
check file_is_read_only
check says_who_may_connect
check list_can_be_filtered
check list_is_a_tree
check list_json_has_names
check serve_peek_and_poke_have_json
check caps_has_json
check names_of_others_are_plain
check lost_output_is_a_failure
if [ -d "$DEBUGFS/fail_memreg/accept" ] && [ -d "$DEBUGFS/fail_usercopy" ]; then
	check peer_that_is_gone_when_accepted_leaves_nothing
	check revoke_that_fails_is_tried_again
fi
exit "$FAILED"
