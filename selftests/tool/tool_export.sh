#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# memreg serve --export: peers of librdmacm and libibverbs alone, on connections
# that are not memreg's, reach the memory until the export is revoked or the memory
# goes. Where the driver cannot import it, the command says so.
# time limit: 300
# shellcheck disable=SC2317 # functions are called by check

cd "$(dirname "$(realpath "$0")")/.." || exit
# shellcheck source-path=SCRIPTDIR source=../lib/tool.sh
. lib/tool.sh

FILES=$(mktemp -d /dev/shm/memreg.XXXXXX)
trap 'rm -rf "$SAID" "$SAID".* "$FILES"' EXIT
GO=() PIDS=()

# serve [OPTION...]
serve() {
	begin '*serving*' memreg serve -d rxe_owner --export "$@"
}

quit() {
	echo quit >&"$TO"
	end
}

verbs() {
	peer verbs_peer -t 60000 -c 60000 "$@"
}

# join NUMBER [REPORT]: a peer that is connected, and takes commands.
join() {
	local fd
	rm -f "$SAID.in$1"
	mkfifo "$SAID.in$1" || return
	ip netns exec memreg-peer verbs_peer -i -t 60000 -c 60000 192.0.2.1 \
		7471 <"$SAID.in$1" >"$SAID.out$1" 2>&1 &
	PIDS[$1]=$!
	exec {fd}>"$SAID.in$1"
	GO[$1]=$fd
	hear "${2:-*: connected from *}"
}

# ask NUMBER COMMAND ANSWER: its last answer matches.
ask() {
	local lines
	lines=$(wc -l <"$SAID.out$1")
	echo "$2" >&"${GO[$1]}"
	await 60 more_than "$lines" "$SAID.out$1" &&
		tail -n 1 "$SAID.out$1" | grep -qE "$3" && return
	echo "peer $1 was asked to $2, and not $3" >>"$SAID"
	return 1
}

more_than() {
	[ "$(wc -l <"$2")" -gt "$1" ]
}

# leave NUMBER: it ends. Fails if the last thing that it was asked for did.
leave() {
	local fd=${GO[$1]} status=0
	echo quit >&"$fd"
	exec {fd}>&-
	wait "${PIDS[$1]}" || status=$?
	sed "s/^/peer $1: /" "$SAID.out$1" >>"$SAID"
	return "$status"
}

# rkey NUMBER: the key that it got.
rkey() {
	sed -n 's/^connected .* rkey=\(0x[0-9a-f]*\) .*/\1/p' "$SAID.out$1"
}

driver_that_can_not_is_named() {
	says 1 "^memreg serve: --export: the driver of rxe_owner can't import memory that is revoked later (\`memreg caps\`: export-register), as those of irdma and mlx5 can; without --export each peer gets a window\$" \
		owner memreg serve -d rxe_owner --export
}

# The size is not one of whole pages, which exports are: the key is for the size.
peer_reaches_every_byte_and_no_other() {
	local status=0
	serve --size 5000 || return
	verbs 192.0.2.1 7471 fill 0 5000 7 read 0 5000 \
		write 1 5000 9 expect access >>"$SAID" 2>&1 || status=1
	verbs 192.0.2.1 7471 write -1 2 9 expect access >>"$SAID" 2>&1 ||
		status=1
	says 0 "data=0708090a" verbs 192.0.2.1 7471 read 0 5000 || status=1
	echo 'show 4992 100' >&"$TO"
	hear '00001380 *87 88 89 8a 8b 8c 8d 8e*' || status=1
	hear '*end of show' || status=1
	quit && grep -q 'may read,write 5000 bytes' "$SAID" &&
		grep -q 'one export for all' "$SAID" && return "$status"
}

peek_and_poke_are_its_peers() {
	local status=0
	serve --size 4K --once || return
	says 0 '5 bytes written' \
		peer memreg poke -d rxe_peer -o 16 192.0.2.1 hello || status=1
	end || status=1
	serve --size 4K --access read || return
	says 1 "doesn't grant to write, but: read" \
		peer memreg poke -d rxe_peer 192.0.2.1 lost || status=1
	verbs 192.0.2.1 7471 write 0 1 9 expect access >>"$SAID" 2>&1 ||
		status=1
	says 0 '^00000000 ' peer memreg peek -d rxe_peer 192.0.2.1 || status=1
	quit && return "$status"
}

# All peers have one key. It is dead for all when revoke has been answered, their
# connections are not, and the next peer has another key, which is good.
revoke_ends_the_key_of_all_peers() {
	local status=0
	serve --size 8K || return
	join 1 && join 2 || status=1
	ask 1 'fill 0 8192 1' success && ask 2 'read 0 8192' data=010203 ||
		status=1
	[ -n "$(rkey 1)" ] && [ "$(rkey 1)" = "$(rkey 2)" ] || status=1
	echo 'revoke 1' >&"$TO"
	hear '*revoke 1: all peers have the same key*' || status=1
	ask 1 'read 0 8192' success || status=1
	echo revoke >&"$TO"
	hear '*peer *: revoked, rkey 0x* is dead' || status=1
	hear '*peer *: revoked, rkey 0x* is dead' || status=1
	ask 1 state connected=yes && ask 2 state connected=yes || status=1
	join 3 && ask 3 'read 0 8192' data=010203 || status=1
	[ "$(rkey 3)" != "$(rkey 1)" ] || status=1
	# An old connection does not get in by the new key either.
	ask 2 "rkey $(rkey 3)" rkey && ask 2 'read 0 1' remote-access-error ||
		status=1
	ask 1 'write 0 8192 9' remote-access-error || status=1
	echo list >&"$TO"
	hear '*peer 1: 192.0.2.2:* revoked' || status=1
	hear '*end of list' || status=1
	ask 3 'read 0 8192' data=010203 || status=1
	leave 1 && status=1
	leave 2 && status=1
	leave 3 || status=1
	quit && return "$status"
}

signal_revokes() {
	local status=0
	serve --size 4K || return
	join 1 && ask 1 'read 0 4096' success || status=1
	kill -USR1 "$SERVER"
	hear '*: revoked, rkey 0x* is dead' || status=1
	ask 1 'read 0 4096' remote-access-error || status=1
	leave 1 && status=1
	quit && return "$status"
}

# The time begins with the first peer; the other one shares its key.
revoked_when_the_time_is_over() {
	local status=0
	serve --size 4K --revoke-after 20 || return
	join 1 && ask 1 'read 0 4096' success && join 2 || status=1
	hear '*: revoked, rkey 0x* is dead' || status=1
	hear '*: revoked, rkey 0x* is dead' || status=1
	ask 1 'read 0 4096' remote-access-error || status=1
	ask 2 'read 0 4096' remote-access-error || status=1
	leave 1 && status=1
	leave 2 && status=1
	quit && return "$status"
}

disconnect_ends_the_connection() {
	local status=0
	serve --size 4K || return
	join 1 && join 2 || status=1
	echo 'disconnect 1' >&"$TO"
	hear '*peer 1: gone after *' || status=1
	ask 1 'wait 60000' event=disconnected || status=1
	ask 2 'read 0 4096' success || status=1
	echo 'disconnect all' >&"$TO"
	hear '*peer 2: gone after *' || status=1
	leave 1
	leave 2
	quit && return "$status"
}

# The peer is refused at once, without a command. What comes later is served again
# if the file is as long as it was.
truncation_ends_the_key() {
	local status=0 file=$FILES/file
	truncate -s 8K "$file" && serve -f "$file" -A read,write || return
	join 1 && ask 1 'fill 0 8192 5' success || status=1
	truncate -s 0 "$file"
	ask 1 'write 0 8192 9' remote-access-error || status=1
	[ -s "$file" ] && status=1
	echo anew >"$file" && truncate -s 8K "$file"
	join 2 && ask 2 'read 0 8192' data=616e6577 || status=1
	grep -q 'its export went with the memory' "$SAID" &&
		grep -q 'registered anew' "$SAID" || status=1
	truncate -s 0 "$file"
	ask 2 'read 0 1' remote-access-error || status=1
	says 1 'turns us away: what it served is gone' \
		peer memreg peek -d rxe_peer 192.0.2.1 || status=1
	leave 1 && status=1
	leave 2 && status=1
	end && status=1
	return "$status"
}

reports_in_json() {
	local status=0
	begin '*"serving"*' memreg serve -d rxe_owner --size 4K --export \
		--json || return
	join 1 '*"event":"connected"*' || status=1
	echo list >&"$TO"
	echo revoke >&"$TO"
	hear '*"event":"revoked"*' || status=1
	leave 1 || status=1
	hear '*"event":"gone"*' || status=1
	quit || status=1
	grep '^{' "$SAID" >"$SAID.json"
	python3 -c '
import json, sys
events = {r["event"]: r for r in map(json.loads, sys.stdin)}
assert list(events) == ["serving", "connected", "peer", "end_of_list",
    "revoked", "gone", "end"], list(events)
serving, peer = events["serving"], events["connected"]
assert serving["export"] is True and serving["length_bytes"] == 4096
assert peer["peer"] == 1 and peer["access"] == ["read", "write"]
assert peer["revoked"] is False and events["peer"]["connected"] is True
assert events["revoked"]["rkey"] == peer["rkey"] == events["peer"]["rkey"]
assert events["revoked"]["revoked"] is True' <"$SAID.json" 2>>"$SAID" ||
		status=1
	return "$status"
}

# `memreg list` has the export below the MR, for as long as it has peers.
list_shows_the_export() {
	local status=0
	serve --size 4K || return
	join 1 || status=1
	objects export live 1 && objects endpoint connected 0 || status=1
	echo revoke >&"$TO"
	hear '*: revoked, rkey 0x* is dead' || status=1
	objects export ended 1 || status=1
	leave 1 || status=1
	hear '*: gone after *' || status=1
	await 60 objects export ended 0 || status=1
	quit && return "$status"
}

# The kernel ends what it left.
killed_server_leaves_nothing() {
	local status=0
	serve --size 4K || return
	join 1 && ask 1 'read 0 4096' success || status=1
	kill -KILL "$SERVER"
	end && status=1
	ask 1 'wait 60000' event=disconnected || status=1
	leave 1
	return "$status"
}

can=$(memreg caps -d rxe_owner --json | python3 -c '
import json, sys
print(json.load(sys.stdin)["capabilities"]["export-register"]["value"])')
if [ "$can" != True ]; then
	check driver_that_can_not_is_named
	exit "$FAILED"
fi
check peer_reaches_every_byte_and_no_other
check peek_and_poke_are_its_peers
check revoke_ends_the_key_of_all_peers
check signal_revokes
check revoked_when_the_time_is_over
check disconnect_ends_the_connection
check truncation_ends_the_key
check reports_in_json
check list_shows_the_export
check killed_server_leaves_nothing
exit "$FAILED"
