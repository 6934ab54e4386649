#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# What the tool answers to wrong input: tool_wrong.table has a line for each,
#
#	STATUS | WHERE | ARGUMENTS | MESSAGE
#
# ARGUMENTS are words of the shell. MESSAGE is all of standard error, of one
# line; standard output has nothing. WHERE is the end of the topology that it is
# run at, owner or peer, or - where that makes no difference. After the STATUS
# may be "rxe": not on the bench's adapter, which is no device of rdma_rxe.
# shellcheck disable=SC2317 # functions are called by check

cd "$(dirname "$(realpath "$0")")/.." || exit
# shellcheck source-path=SCRIPTDIR source=../lib/tool.sh
. lib/tool.sh

TABLE=$PWD/tool/tool_wrong.table
ANSWER=$(mktemp)
trap 'rm -f "$SAID" "$SAID.now" "$ANSWER" "$ANSWER.out"' EXIT

# answer WHERE ARGUMENT...: run a command, which must not wait for input, nor
# for long.
answer() {
	local where=$1 command=(timeout 60 memreg)
	shift
	[ "$where" = - ] || command=(ip netns exec "memreg-$where" "${command[@]}")
	"${command[@]}" "$@" </dev/null >"$ANSWER.out" 2>"$ANSWER"
}

# one LINE
one() {
	local status where line message now=0 words
	IFS='|' read -r status where line message <<<"$1"
	[[ "$status" != *rxe* || "${MEMREG_ADAPTER:-}" != strict* ]] || return 0
	status=${status%rxe*}
	eval "words=($line)"
	answer "${where// /}" "${words[@]}" || now=$?
	if [ "$now" != "${status// /}" ] || [ -s "$ANSWER.out" ] ||
		[ "$(<"$ANSWER")" != "${message# }" ]; then
		echo "memreg$line"
		echo "has the status $now, and says"
		cat "$ANSWER.out" "$ANSWER"
		return 1
	fi
}

# section NAME: print the lines behind "# NAME" in the table.
section() {
	local line status=0 count=0
	while IFS= read -r line; do
		one "$line" >>"$SAID" || status=1
		count=$((count + 1))
	done < <(awk -v name="# $1" '
		/^#/ { here = $0 == name; next }
		here && NF' "$TABLE")
	((count > 0)) && return "$status"
}

# The program verbs_peer takes a port, too.
verbs_peer_takes_no_wrong_port() {
	local port
	for port in 0 -1 65536 75000 7471x ''; do
		says 2 "^verbs_peer: $port is no port from 1 to 65535$" \
			verbs_peer 192.0.2.1 "$port" read 0 1 || return
	done
}

# Words of a name, for KTAP.
mapfile -t SECTIONS < <(sed -n 's/^# //p' "$TABLE" | tail -n +2)
for name in "${SECTIONS[@]}"; do
	check section "$name"
done
check verbs_peer_takes_no_wrong_port
exit "$FAILED"
