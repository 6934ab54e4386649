#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# memreg ping with rdma-core's rping and with itself; memreg peek and poke with
# memreg serve.
# time limit: 300
# soak in parts: 3
# shellcheck disable=SC2317 # functions are called by check

cd "$(dirname "$(realpath "$0")")/.." || exit
# shellcheck source-path=SCRIPTDIR source=../lib/tool.sh
. lib/tool.sh

ROUNDS=20

# Sizes of messages, 65535 at most for rping; and addresses of IPv4 and
# IPv6, which the rounds use by turns.
SIZES=(64 4096 65535)
OWNERS=(192.0.2.1 fd00:6d72::1)
PEERS=(192.0.2.2 fd00:6d72::2)

if ((${MEMREG_FULL:-0})); then
	ROUNDS=$((999 / ${MEMREG_PART#*/} + 1))
	SIZES=(64 64 65 65 1000 1000 4096 4096 16385 16385 65535 65535)
fi

DATA=$(mktemp)
trap 'rm -f "$SAID" "$DATA" "$DATA".*' EXIT

# counter NAME: of the client's device.
counter() {
	memreg stat -d rxe_peer | awk -v name="$1" '$1 == name { print $2 }'
}

more_than() {
	(($(counter inline-receives) > $1))
}

listens() {
	rdma resource show cm_id | grep -q 'rxe_peer.* state LISTEN'
}

#
# ping
#

# rping prints nothing before it ends, so that no line can be waited for.
client_of_rping() {
	local status=0 pid
	: >"$SAID"
	ip netns exec memreg-peer rping -s -V -a "$1" -S "$2" >"$DATA" 2>&1 &
	pid=$!
	await 60 listens >>"$SAID" 2>&1 || status=1
	says 0 "$ROUNDS rounds of $2 bytes.* verified" \
		owner memreg ping -d rxe_owner -V -c "$ROUNDS" -s "$2" "$1" ||
		status=1
	((status == 0)) || kill "$pid" 2>/dev/null
	wait "$pid" || status=1
	cat "$DATA" >>"$SAID"
	return "$status"
}

server_of_rping() {
	local status=0
	: >"$SAID"
	begin 'waiting on *' memreg ping --server -d rxe_owner -V \
		-c "$ROUNDS" "$1" || return
	peer rping -c -V -a "$1" -S "$2" -C "$ROUNDS" >>"$SAID" 2>&1 ||
		status=1
	((status == 0)) || kill "$SERVER" 2>/dev/null
	end && grep -q "$ROUNDS rounds of $2 bytes.* verified" "$SAID" &&
		return "$status"
}

# with_itself OPTION...: of the client.
with_itself() {
	local status=0
	: >"$SAID"
	begin 'waiting on *' memreg ping --server -d rxe_owner -V \
		-c "$ROUNDS" || return
	says 0 "$ROUNDS rounds" peer memreg ping -d rxe_peer -V -c "$ROUNDS" \
		"$@" 192.0.2.1 || status=1
	((status == 0)) || kill "$SERVER" 2>/dev/null
	end && return "$status"
}

# In each round the client receives two messages.
inline_receive_is_the_default() {
	local before
	before=$(counter inline-receives)
	with_itself && (($(counter inline-receives) == before + 2 * ROUNDS))
}

without_inline_receive() {
	local before MEMREG_SCATTER_TO_CQE=0
	export MEMREG_SCATTER_TO_CQE
	before=$(counter inline-receives)
	with_itself -s 4K && [ "$(counter inline-receives)" = "$before" ]
}

# A server that was to see more rounds than came has failed.
missing_rounds_are_missed() {
	: >"$SAID"
	begin 'waiting on *' memreg ping --server -d rxe_owner -c 5 ||
		return
	says 0 '3 rounds' peer memreg ping -d rxe_peer -c 3 192.0.2.1 &&
		! end && grep -q '2 rounds are missing' "$SAID"
}

nobody_listens() {
	: >"$SAID"
	says 1 'nobody listens on that port there' \
		peer memreg ping -d rxe_peer -c 1 -p 7175 192.0.2.1
}

# With --json the client prints a summary, too.
sums_up_as_json() {
	: >"$SAID"
	begin 'waiting on *' memreg ping --server -d rxe_owner -V || return
	peer memreg ping -d rxe_peer -V -c 3 --json 192.0.2.1 >"$DATA" \
		2>>"$SAID" || kill "$SERVER"
	end || return
	cat "$DATA" >>"$SAID"
	python3 -c '
import json, sys
o = json.load(sys.stdin)
assert o["peer"] == "192.0.2.1:7174" and o["rounds"] == 3
assert o["size_bytes"] == 64 and o["verified"] is True
assert 0 < o["min_ms"] <= o["mean_ms"] <= o["max_ms"]' <"$DATA" 2>>"$SAID"
}

# An interrupted client ends with the round, as its server expects.
interrupt_ends_with_the_round() {
	local status=0 pid before
	: >"$SAID"
	before=$(counter inline-receives)
	begin 'waiting on *' memreg ping --server -d rxe_owner -V || return
	ip netns exec memreg-peer memreg ping -d rxe_peer -V 192.0.2.1 \
		>"$DATA" 2>&1 &
	pid=$!
	# It catches signals once the rounds begin.
	await 60 more_than "$before" || status=1
	kill -INT "$pid"
	wait "$pid" || status=1
	cat "$DATA" >>"$SAID"
	end && return "$status"
}

no_route() {
	: >"$SAID"
	says 1 'no route' peer memreg ping -d rxe_peer 198.51.100.1
}

#
# serve, peek, poke
#

# serve OPTION...
serve() {
	: >"$SAID"
	begin '*serving*' memreg serve -d rxe_owner "$@"
}

quit() {
	echo quit >&"$TO"
	end
}

poke() {
	peer memreg poke -d rxe_peer "$@"
}

peek() {
	peer memreg peek -d rxe_peer "$@"
}

# peek reads what poke has written, and so does the owner.
text_goes_there_and_back() {
	local status=0
	serve --size 4K || return
	says 0 '11 bytes written from 4080' poke -o 4080 192.0.2.1 \
		'hello there' &&
		says 0 '00000ff0  68 65 6c 6c .* |hello there\.\.\.\.\.|$' \
			peek -o 4080 -l 16 192.0.2.1 &&
		says 0 '^000000f0 .* |\.*|$' peek -o 0xf0 -l 16 \
			192.0.2.1 || status=1
	echo 'show 4080 16' >&"$TO"
	quit && grep -q '|hello there\.\.\.\.\.|$' "$SAID" && return "$status"
}

# More data than the tool moves at a time, to an odd address
file_goes_there_and_back() {
	local status=0
	head -c 1500001 /dev/urandom >"$DATA"
	serve --size 2044K -a fd00:6d72::1 || return
	says 0 '1500001 bytes written from 4097' poke -o 4097 fd00:6d72::1 \
		<"$DATA" || status=1
	peek -o 4097 -l 1500001 --raw fd00:6d72::1 >"$DATA.back" 2>>"$SAID" ||
		status=1
	cmp "$DATA" "$DATA.back" >>"$SAID" 2>&1 || status=1
	quit && return "$status"
}

# one_line FILE: it has one at least.
one_line() {
	[ -s "$1" ]
}

revoked_window_refuses() {
	local status=0 pid
	serve || return
	: >"$DATA"
	peek -l 16 -i 1 192.0.2.1 >"$DATA" 2>"$DATA.err" &
	pid=$!
	await 60 one_line "$DATA" || status=1
	echo 'revoke all' >&"$TO"
	wait "$pid"
	[ $? = 1 ] || status=1
	cat "$DATA" "$DATA.err" >>"$SAID"
	grep -q 'the peer refuses the access' "$DATA.err" || status=1
	quit && return "$status"
}

what_is_not_granted_is_not_tried() {
	local status=0
	serve --size 4K --read-only || return
	says 1 "doesn't grant to write, but: read" \
		poke 192.0.2.1 something &&
		says 1 '4096 bytes, and not 2 from 4095' \
			peek -o 4095 -l 2 192.0.2.1 &&
		says 1 '4096 bytes, and none at 4096' peek -o 4096 192.0.2.1 &&
		says 0 '00000ff8  00 00 00 00 .* |\.\.\.\.\.\.\.\.|$' \
			peek -o 4088 192.0.2.1 || status=1
	quit && return "$status"
}

too_much_input_is_refused() {
	local status=0
	serve --size 4K || return
	head -c 4097 /dev/zero |
		says 1 'more input than the 4096' poke 192.0.2.1 || status=1
	quit && return "$status"
}

for i in "${!SIZES[@]}"; do
	check client_of_rping "${PEERS[i % 2]}" "${SIZES[i]}"
	check server_of_rping "${OWNERS[i % 2]}" "${SIZES[i]}"
done
check with_itself --keys type1 -s 65536
check with_itself --keys type2b
check with_itself --keys mr -s 65536
check inline_receive_is_the_default
check without_inline_receive
check missing_rounds_are_missed
check sums_up_as_json
check nobody_listens
check no_route
check interrupt_ends_with_the_round
check text_goes_there_and_back
check file_goes_there_and_back
check revoked_window_refuses
check what_is_not_granted_is_not_tried
check too_much_input_is_refused
exit $FAILED
