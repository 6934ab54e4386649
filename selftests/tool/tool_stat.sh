#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# memreg stat: its output, for people and for programs, matches the operations
# done.

cd "$(dirname "$(realpath "$0")")/.." || exit
# shellcheck source-path=SCRIPTDIR source=../lib/topology.sh
. lib/topology.sh

FAILED=0

# report NAME STATUS
report() {
	if [ "$2" = 0 ]; then
		echo "ok $1"
	else
		echo "not ok $1"
		FAILED=1
	fi
}

# value COUNTER: from the table.
value() {
	memreg stat -d rxe_owner | awk -v name="$1" '$1 == name { print $2 }'
}

# is COUNTER VALUE...: compare counters. The module was loaded for this test,
# and counts from 0.
is() {
	local now
	while [ $# -gt 1 ]; do
		now=$(value "$1")
		if [ "$now" != "$2" ]; then
			echo "# $1 is $now, not $2"
			return 1
		fi
		shift 2
	done
}

counts_from_0() {
	is mrs-registered 0 keys-made 0 guard-events 0 endpoints-failed 0
}

# A server that has registered 64 KiB for windows has ended.
counts_a_server() {
	local line pid
	coproc ip netns exec memreg-owner memreg serve -d rxe_owner --size 64K
	# bash forgets it when it has ended.
	pid=$COPROC_PID
	read -r -t 60 line <&"${COPROC[0]}" || return
	echo "# $line"
	is mrs-registered 1 mrs-deregistered 0 pages-pinned 16 || return
	echo quit >&"${COPROC[1]}"
	wait "$pid" || return
	is mrs-registered 1 mrs-deregistered 1 pages-unpinned 16
}

# json EXPRESSION OPTION...: the expression is true of each line l of the
# output.
json() {
	local expression=$1
	shift
	memreg stat -d rxe_owner --json "$@" | python3 -c "
import json, sys
lines = [json.loads(l) for l in sys.stdin]
sys.exit(not lines or not all($expression for l in lines))"
}

json_has_the_counters() {
	json 'l["device"] == "rxe_owner" and
		l["counters"]["pages-pinned"] == 16 and
		len(l["counters"]) == 68'
}

json_has_rates() {
	json 'l["seconds"] >= 1 and len(lines) == 2 and
		set(l["per_second"].values()) == {0}' -i 1 -c 2
}

# The output has a heading and two rows with the same number of columns.
rates_have_a_heading() {
	memreg stat -d rxe_owner --interval 1 --count 2 | awk '
		NR == 1 { columns = NF; if ($1 != "made") exit 1 }
		NR > 1 && (NF != columns || $1 != 0) { exit 1 }
		END { exit NR != 3 }'
}

# refused STATUS WORD OPTION...: the command fails with this status, and its
# complaint has the word.
refused() {
	local status=$1 word=$2 said now=0
	shift 2
	said=$(memreg stat "$@" 2>&1 >/dev/null) || now=$?
	if [ "$now" = "$status" ] && [[ $said = *"memreg stat: "*"$word"* ]]; then
		return 0
	fi
	echo "# memreg stat $* ends with $now: $said"
	return 1
}

refuses_bad_usage() {
	refused 2 'needs --interval' -c 3 &&
		refused 2 '0.1 to 86400 seconds' -i 0 &&
		refused 2 'too large' -i 86401 &&
		refused 2 'not a number' -i 1 -c x &&
		refused 2 'too many' -d rxe_owner more &&
		refused 2 'no option --nonesuch' --nonesuch &&
		refused 1 "no RDMA device 'nonesuch' here" -d nonesuch
}

counts_from_0
report counts_from_0 $?
counts_a_server
report counts_a_server $?
json_has_the_counters
report json_has_the_counters $?
json_has_rates
report json_has_rates $?
rates_have_a_heading
report rates_have_a_heading $?
refuses_bad_usage
report refuses_bad_usage $?
grep -q -- --interval <(memreg stat --help 2>/dev/null)
report help_goes_to_standard_output $?
exit $FAILED
