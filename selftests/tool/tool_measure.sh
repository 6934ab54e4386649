#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# memreg bw and memreg lat with themselves: they end well, and print figures. How
# large those are is not looked at.
# time limit: 240
# shellcheck disable=SC2317 # functions are called by check

cd "$(dirname "$(realpath "$0")")/.." || exit
# shellcheck source-path=SCRIPTDIR source=../lib/tool.sh
. lib/tool.sh

trap 'rm -f "$SAID" "$SAID.server" "$SAID.now"' EXIT

listens() {
	grep -q '^waiting on ' "$SAID.server"
}

# serve bw|lat ADDRESS: start a server in the background, and wait until it
# listens.
serve() {
	: >"$SAID.server"
	ip netns exec memreg-owner memreg "$1" --server -d rxe_owner "$2" \
		>"$SAID.server" 2>&1 &
	SERVER=$!
	await 60 listens
}

# client bw|lat ADDRESS OPTION...: run a client, and append its output to $SAID.
client() {
	local what=$1 address=$2 status=0
	shift 2
	ip netns exec memreg-peer memreg "$what" -d rxe_peer "$@" \
		"$address" >>"$SAID" 2>&1 || status=$?
	((status == 0)) || kill "$SERVER" 2>/dev/null
	wait "$SERVER" || status=$?
	cat "$SAID.server" >>"$SAID"
	return "$status"
}

# bw ADDRESS OP SIZE COUNT [OPTION...]: measure, and check the row of the table.
bw() {
	local address=$1 op=$2 size=$3 count=$4
	shift 4
	serve bw "$address" && client bw "$address" -o "$op" -s "$size" \
		-c "$count" "$@" &&
		awk -v op="$op" -v size="$size" -v count="$count" '
			$1 == op && $2 == size && $4 == count && $5 > 0 &&
				$6 > 0 && $7 > 0 { found = 1 }
			END { exit !found }' "$SAID"
}

# lat ADDRESS OP SIZE COUNT: measure; percentiles ascend, and the histogram has
# all samples.
lat() {
	serve lat "$1" && client lat "$1" -o "$2" -s "$3" -c "$4" &&
		awk -v op="$2" -v size="$3" -v count="$4" '
			$1 == op && $2 == size && $3 == count && $4 > 0 &&
				$5 >= $4 && $6 >= $5 && $7 >= $6 && $8 >= $7 {
				found = 1
			}
			$1 == "from" || $1 == "over" { sum += $4 }
			END { exit !(found && sum == count) }' "$SAID"
}

# duration OP [OPTION...]: a measurement ends by itself, after the time that it
# was given.
duration() {
	serve bw 192.0.2.1 && client bw 192.0.2.1 -o "$@" -s 1K -D 1 &&
		awk -v op="$1" '$1 == op && $5 >= 1 { found = 1 }
			END { exit !found }' "$SAID"
}

# stop PID: as by Ctrl-Z; SIGCONT is fg.
stop() {
	kill -STOP "$1" && await 60 is_in "$1" T
}

# end_client PID STATUS: the client measures until it gets a signal, and the
# server serves until then, unless the status is that of an earlier failure.
end_client() {
	local status=$2
	kill -TERM "$1"
	wait "$1" 2>/dev/null
	[ $? = 143 ] || status=1
	((status == 0)) || kill "$SERVER" 2>/dev/null
	wait "$SERVER" || status=1
	cat "$SAID.server" >>"$SAID"
	return "$status"
}

# The client is stopped, and the server waits for it; then both go on.
stop_ends_nothing() {
	local status=0 client
	serve bw 192.0.2.1 || return
	ip netns exec memreg-peer memreg bw -d rxe_peer -o send -D 300 \
		192.0.2.1 >>"$SAID" 2>&1 &
	client=$!
	await 60 objects endpoint connected 2 || status=1
	stop "$client" && await 60 is_in "$SERVER" S || status=1
	stop "$SERVER" && kill -CONT "$SERVER" || status=1
	await 60 is_in "$SERVER" S || status=1
	kill -CONT "$client" && await 60 is_in "$client" S || status=1
	objects endpoint connected 2 || status=1
	end_client "$client" "$status"
}

# Another host that requests a connection and gives up does not end the
# measurement.
bystander_ends_nothing() {
	local status=0 client other
	serve bw 192.0.2.1 || return
	ip netns exec memreg-peer memreg bw -d rxe_peer -D 300 192.0.2.1 \
		>>"$SAID" 2>&1 &
	client=$!
	await 60 objects endpoint connected 2 || status=1
	ip netns exec memreg-peer memreg peek -d rxe_peer -p 7175 192.0.2.1 \
		>>"$SAID" 2>&1 &
	other=$!
	await 60 objects endpoint requested 1 || status=1
	kill -KILL "$other"
	wait "$other" 2>/dev/null
	await 60 objects endpoint closed 1 || status=1
	await 60 is_in "$SERVER" S || status=1
	objects endpoint connected 2 || status=1
	end_client "$client" "$status"
}

# A message that is longer than it may be is not the client's end: this request
# (magic, send, 64 bytes, depth 1, no answers) comes from another program.
bad_message_is_reported() {
	local status=0
	serve bw 192.0.2.1 || return
	ip netns exec memreg-peer verbs_peer -t 60000 -c 60000 \
		-p 6d6561730000000200000040"$(printf %08x%08x 1 0)" \
		192.0.2.1 7175 send 128 expect any >>"$SAID" 2>&1 || status=1
	((status == 0)) || kill "$SERVER" 2>/dev/null
	wait "$SERVER"
	[ $? = 1 ] || status=1
	cat "$SAID.server" >>"$SAID"
	grep -q '^memreg bw: RECV: ' "$SAID.server" || status=1
	return "$status"
}

nobody_listens() {
	says 1 'nobody listens on that port there' ip netns exec memreg-peer \
		memreg bw -d rxe_peer -c 1 192.0.2.1
}

# sweep bw|lat: measure all sizes on one connection; each has a row.
sweep() {
	serve "$1" 192.0.2.1 && client "$1" 192.0.2.1 -a -s 4K -c 5 -o send &&
		awk '$1 == "send" { sizes = sizes " " $2 }
			END { exit sizes != " 1 4 16 64 256 1K 4K" }' "$SAID"
}

# json bw|lat EXPRESSION: the expression is true of the object that is printed.
json() {
	serve "$1" 192.0.2.1 && client "$1" 192.0.2.1 -c 20 -s 64 --json &&
		grep '^{' "$SAID" | python3 -c "
import json, sys
o = json.load(sys.stdin)
sys.exit(not (o['op'] == 'write' and o['size_bytes'] == 64 and
	      o['count'] == 20 and $2))"
}

json_of_bw() {
	json bw "o['bytes_per_second'] > 0 and o['operations_per_second'] > 0"
}

json_of_lat() {
	json lat "o['min_us'] <= o['median_us'] <= o['max_us'] and
		sum(b['count'] for b in o['buckets']) == 20"
}

# A `serve` listens there: the client refuses it, and its memory does not
# change.
measures_nobody_elses_memory() {
	local status=0 what
	begin '*serving*' memreg serve -d rxe_owner --size 4K || return
	echo 'set 0 precious' >&"$TO"
	for what in bw lat; do
		says 1 'is not .memreg .* --server., and nothing was sent' \
			ip netns exec memreg-peer memreg "$what" -d rxe_peer \
			-p 7471 -c 1 192.0.2.1 || status=1
	done
	echo 'show 0 16' >&"$TO"
	hear '*|precious........|' || status=1
	echo quit >&"$TO"
	end && return "$status"
}

# Clients of other kinds are rejected with a reason, and the next good one is
# served.
serves_nobody_else() {
	local status=0
	serve bw 192.0.2.1 || return
	says 1 'turns us away: this is a server of memreg bw and memreg lat' \
		ip netns exec memreg-peer memreg peek -d rxe_peer -p 7175 \
		192.0.2.1 || status=1
	client bw 192.0.2.1 -c 1 && return "$status"
}

for op in write read send; do
	check bw 192.0.2.1 $op 64K 64
	check lat 192.0.2.1 $op 64 200
done
check bw fd00:6d72::1 send 64 500 -q 128
check bw fd00:6d72::1 read 1M 20 -q 2
check bw fd00:6d72::1 write 1M 64 -q 128
check lat fd00:6d72::1 send 4K 100
check sweep bw
check sweep lat
check json_of_bw
check json_of_lat
check measures_nobody_elses_memory
check serves_nobody_else
check duration send
check duration write -q 1
check stop_ends_nothing
check bystander_ends_nothing
check bad_message_is_reported
check nobody_listens
exit $FAILED
