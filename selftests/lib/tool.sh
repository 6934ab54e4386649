# SPDX-License-Identifier: GPL-2.0-only
# Tests of the tool: commands at either end, their output and their status.
# shellcheck shell=bash
# shellcheck source-path=SCRIPTDIR source=topology.sh
. "${BASH_SOURCE[0]%/*}/topology.sh"

FAILED=0
SAID=$(mktemp)

# check NAME [ARGUMENT...]: run a function of the test; show its output if it
# fails.
check() {
	: >"$SAID"
	if "$@"; then
		echo "ok $*"
	else
		sed 's/^/# /' "$SAID"
		echo "not ok $*"
		# shellcheck disable=SC2034 # the test ends with it
		FAILED=1
	fi
}

owner() {
	ip netns exec memreg-owner "$@"
}

peer() {
	ip netns exec memreg-peer "$@"
}

# begin PATTERN COMMAND...: the owner's side, in the background as $SERVER, its
# input and output being $TO and $FROM; until a line matches the pattern.
begin() {
	local pattern=$1
	shift
	coproc ip netns exec memreg-owner "$@" 2>&1
	SERVER=$COPROC_PID
	# The shell closes those of its own when the process has ended.
	exec {FROM}<&"${COPROC[0]}" {TO}>&"${COPROC[1]}"
	hear "$pattern"
}

# hear PATTERN: wait until a line of the command that began matches it.
hear() {
	local line
	while read -r -t 60 line <&"$FROM"; do
		echo "$line" >>"$SAID"
		# shellcheck disable=SC2053 # it is a pattern
		[[ $line != $1 ]] || return 0
	done
	echo "no $1 from what began" >>"$SAID"
	return 1
}

# end: wait for the command that began, and return its status; its last output
# goes to $SAID.
end() {
	local status=0
	exec {TO}>&-
	cat <&"$FROM" >>"$SAID"
	exec {FROM}<&-
	wait "$SERVER" || status=$?
	return "$status"
}

# says STATUS WORD COMMAND...: the command ends with the status, and its output
# has the word.
says() {
	local status=$1 word=$2 now=0
	shift 2
	"$@" >"$SAID.now" 2>&1 || now=$?
	cat "$SAID.now" >>"$SAID"
	if [ "$now" = "$status" ] && grep -q -- "$word" "$SAID.now"; then
		rm "$SAID.now"
		return 0
	fi
	echo "status $now, or no $word: $*" >>"$SAID"
	return 1
}

# objects TYPE STATE COUNT: there are as many, of everybody.
objects() {
	memreg list | awk -v type="$1" -v state="$2" -v count="$3" '
		$5 == type && $8 == state { n++ }
		END { exit n + 0 != count }'
}

# is_in PID STATE: as ps(1) names the states of processes.
is_in() {
	local stat
	{ read -r stat <"/proc/$1/stat"; } 2>/dev/null && [[ $stat = *") $2 "* ]]
}
