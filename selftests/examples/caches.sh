#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# The examples of registration caches: memory that is mapped again is
# registered again.
# shellcheck disable=SC2317,SC2329 # functions are called by check

cd "$(dirname "$(realpath "$0")")/.." || exit
# shellcheck source-path=SCRIPTDIR source=../lib/tool.sh
. lib/tool.sh

EXAMPLES=../build/user/examples
trap 'rm -f "$SAID"' EXIT

# says_at_end LINE COMMAND...: the command succeeds, and LINE is its last
# output.
says_at_end() {
	local line=$1
	shift
	owner "$@" >"$SAID" 2>&1 && [ "$(tail -n 1 "$SAID")" = "$line" ]
}

# The example registers the same buffer three times, mapped anew before the
# third.
cache_of_the_library() {
	says_at_end '2 registered, 1 found, 1 stale' "$EXAMPLES/cache" rxe_owner
}

cache_of_its_own() {
	says_at_end 'registered anew' "$EXAMPLES/own_cache"
}

check cache_of_the_library
check cache_of_its_own
exit "$FAILED"
