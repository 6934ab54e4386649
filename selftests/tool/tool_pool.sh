#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# memreg serve --pool: each peer has a buffer of its own, whose key dies with its
# end or when it is revoked. memreg bench pool ends well, and prints figures; how
# large those are is not looked at.
# time limit: 240
# shellcheck disable=SC2317 # functions are called by check

cd "$(dirname "$(realpath "$0")")/.." || exit
# shellcheck source-path=SCRIPTDIR source=../lib/tool.sh
. lib/tool.sh

trap 'rm -f "$SAID" "$SAID".*' EXIT

# serve COUNT SIZE [OPTION...]
serve() {
	local count=$1 size=$2
	shift 2
	begin "*serving $count buffers of $size bytes on *" \
		memreg serve -d rxe_owner --pool "${count}x$size" "$@"
}

quit() {
	echo quit >&"$TO"
	end
}

verbs() {
	peer verbs_peer -t 60000 -c 60000 "$@"
}

# The key reaches all of its buffer, and no byte of the next one.
peer_has_a_buffer() {
	local status=0
	serve 4 5000 || return
	verbs 192.0.2.1 7471 fill 0 5000 7 read 0 5000 \
		write 1 5000 9 expect access >>"$SAID" 2>&1 || status=1
	quit && grep -q 'may read,write 5000 bytes' "$SAID" && return "$status"
}

# Two peers at once: each sees its own data, and the third peer is rejected.
buffers_are_apart_and_run_out() {
	local status=0 pids=() i
	serve 2 4096 || return
	for i in 1 2; do
		mkfifo "$SAID.in$i" || return
		ip netns exec memreg-peer verbs_peer -i -t 60000 -c 60000 \
			192.0.2.1 7471 <"$SAID.in$i" >"$SAID.out$i" 2>&1 &
		pids+=($!)
		eval "exec {GO$i}>\"\$SAID.in$i\""
	done
	await 60 objects endpoint connected 2 || status=1
	says 3 'rejected' verbs 192.0.2.1 7471 read 0 1 || status=1
	# shellcheck disable=SC2153 # eval has set them
	{
		printf '%s\n' 'fill 0 4096 1' 'read 0 4096' quit >&"$GO1"
		printf '%s\n' 'fill 0 4096 2' 'read 0 4096' quit >&"$GO2"
		exec {GO1}>&- {GO2}>&-
	}
	for i in "${pids[@]}"; do
		wait "$i" || status=1
	done
	cat "$SAID.out1" "$SAID.out2" >>"$SAID"
	grep -q 'data=0102030405' "$SAID.out1" &&
		grep -q 'data=0203040506' "$SAID.out2" || status=1
	# Both are free again.
	await 60 objects endpoint connected 0 || status=1
	verbs 192.0.2.1 7471 read 0 4096 >>"$SAID" 2>&1 || status=1
	quit && return "$status"
}

# A key is dead when its peer has gone, also for the next peer in the same
# domain.
key_ends_with_the_peer() {
	local status=0 rkey
	serve 1 4096 || return
	rkey=$(verbs 192.0.2.1 7471 read 0 1 2>>"$SAID" |
		sed -n 's/.* rkey=\(0x[0-9a-f]*\) .*/\1/p')
	hear '*: gone after *' || status=1
	[ -n "$rkey" ] || status=1
	verbs -k "$rkey" 192.0.2.1 7471 read 0 1 expect access \
		>>"$SAID" 2>&1 || status=1
	quit && return "$status"
}

# The only buffer goes from peer to peer, by their end and by a revoke.
next_peer_finds_nothing_of_the_last_one() {
	local status=0 pid
	serve 1 5000 || return
	says 0 'data=0708090a' verbs 192.0.2.1 7471 fill 0 5000 7 read 0 5000 ||
		status=1
	hear '*: gone after *' || status=1
	says 0 "data=$(printf '%064d' 0)" verbs 192.0.2.1 7471 read 0 5000 \
		write 4999 1 9 || status=1
	hear '*: gone after *' || status=1
	mkfifo "$SAID.wipe" || return
	ip netns exec memreg-peer verbs_peer -i -t 60000 -c 60000 192.0.2.1 \
		7471 <"$SAID.wipe" >"$SAID.wiped" 2>&1 &
	pid=$!
	exec {GO}>"$SAID.wipe"
	hear '*: connected from *' || status=1
	printf '%s\n' 'read 4968 32' 'fill 0 5000 3' >&"$GO"
	await 60 grep -q '^fill' "$SAID.wiped" || status=1
	echo revoke >&"$TO"
	hear '*: revoked, rkey 0x* is dead' || status=1
	echo quit >&"$GO"
	exec {GO}>&-
	wait "$pid" || status=1
	cat "$SAID.wiped" >>"$SAID"
	grep -q "data=$(printf '%064d' 0)" "$SAID.wiped" || status=1
	says 0 "data=$(printf '%064d' 0)" verbs 192.0.2.1 7471 read 0 5000 ||
		status=1
	quit && return "$status"
}

revoked_key_is_dead() {
	local status=0 pid
	serve 2 4096 || return
	mkfifo "$SAID.in" || return
	ip netns exec memreg-peer verbs_peer -i -t 60000 -c 60000 192.0.2.1 \
		7471 <"$SAID.in" >"$SAID.out" 2>&1 &
	pid=$!
	exec {GO}>"$SAID.in"
	hear '*: connected from *' || status=1
	echo revoke >&"$TO"
	hear '*: revoked, rkey 0x* is dead' || status=1
	echo revoke >&"$TO"
	hear '*: has no buffer any more' || status=1
	printf '%s\n' 'read 0 1' 'expect access' quit >&"$GO"
	exec {GO}>&-
	wait "$pid" || status=1
	cat "$SAID.out" >>"$SAID"
	grep -q 'status=remote-access-error' "$SAID.out" || status=1
	quit && return "$status"
}

pool_is_served_in_json() {
	local status=0
	: >"$SAID"
	begin '*"serving"*' memreg serve -d rxe_owner --pool 3x5000 --json ||
		return
	peer memreg peek -d rxe_peer -l 5 192.0.2.1 >/dev/null 2>&1 || status=1
	hear '*"event":"gone"*' || status=1
	quit || status=1
	grep '^{' "$SAID" >"$SAID.json"
	python3 -c '
import json, sys
events = {r["event"]: r for r in map(json.loads, sys.stdin)}
serving, peer = events["serving"], events["connected"]
assert serving["buffers"] == 3 and serving["size_bytes"] == 5000, serving
assert serving["shared_domain"] is True, serving
assert peer["length_bytes"] == 5000 and peer["revoked"] is False, peer
assert peer["offset_bytes"] % 5056 == 0, peer' \
		<"$SAID.json" 2>>"$SAID" || status=1
	return "$status"
}

# A pool that is too large is refused.
pool_that_is_too_large() {
	says 1 'memreg serve: ' owner memreg serve -d rxe_owner \
		--pool 65536x2G </dev/null &&
		says 1 'memreg bench: ' memreg bench pool -d rxe_owner -s 2G
}

caps_have_limits() {
	memreg caps -d rxe_owner --json | python3 -c '
import json, sys
caps = json.load(sys.stdin)["capabilities"]
assert caps["pool"]["value"] > 1 and caps["pool"]["backed_by"] == "FRWR"
assert caps["contiguous"]["unit"] == "bytes"
assert caps["contiguous"]["value"] >= 4096
assert caps["dma-buf"]["value"] in (True, False)' 2>>"$SAID" || return
	memreg caps -d rxe_owner >>"$SAID" &&
		grep -qE '^pool  .* buffers of a pool$' "$SAID" &&
		grep -qE '^contiguous .* of memory in one block$' "$SAID" &&
		grep -qE '^dma-buf ' "$SAID"
}

bench_has_a_row_for_each() {
	memreg bench pool -d rxe_owner -s 4K -c 40 -b 8 -D 0.5 >>"$SAID" 2>&1 &&
		awk '$1 == "take_give" || $1 == "recycle" {
				n += $2 > 0 && $3 > 0 && $4 > 0 && $5 >= $4 &&
					$6 >= $5 && $7 >= $6 && $8 >= $7
			}
			END { exit n != 2 }' "$SAID"
}

bench_has_json() {
	memreg bench pool -d rxe_owner -D 0.2 -j 2>>"$SAID" | python3 -c '
import json, sys
o = json.load(sys.stdin)
assert o["bench"] == "pool" and o["size_bytes"] == 65536, o
assert o["buffers"] == 256 and o["batch"] == 32 and o["seconds"] >= 0.2, o
assert o["recycle"]["count"] % 32 == 0 and o["take_give"]["count"] > 0, o
for kind in o["take_give"], o["recycle"]:
    assert 0 < kind["min_us"] <= kind["median_us"] <= kind["p99_us"], o
    assert kind["p99_us"] <= kind["p99_9_us"] <= kind["max_us"], o' 2>>"$SAID"
}

# Without a duration the measurement ends at SIGINT, prints its results, and
# leaves no object.
bench_ends_at_a_signal() {
	local pid status=0
	memreg bench pool -d rxe_owner >"$SAID.bench" 2>&1 &
	pid=$!
	await 60 objects mr live 1 || status=1
	kill -INT "$pid"
	wait "$pid" || status=1
	cat "$SAID.bench" >>"$SAID"
	grep -q '^recycle ' "$SAID.bench" && objects mr live 0 && return "$status"
}

check peer_has_a_buffer
check buffers_are_apart_and_run_out
check key_ends_with_the_peer
check next_peer_finds_nothing_of_the_last_one
check revoked_key_is_dead
check pool_is_served_in_json
check pool_that_is_too_large
check caps_have_limits
check bench_has_a_row_for_each
check bench_has_json
check bench_ends_at_a_signal
exit "$FAILED"
