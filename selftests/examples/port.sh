#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# The program that Documentation/porting.rst shows works.
# shellcheck disable=SC2317 # functions are called by check

cd "$(dirname "$(realpath "$0")")/.." || exit
# shellcheck source-path=SCRIPTDIR source=../lib/tool.sh
. lib/tool.sh

trap 'rm -rf "$SAID"' EXIT

program_runs_to_its_end() {
	ip netns exec memreg-owner ../build/user/examples/port rxe_owner \
		>"$SAID" 2>&1 || return
	grep -qE '^peers read 65536 bytes by the key 0x[0-9a-f]+$' "$SAID" &&
		grep -qx 'a column of 1024 bytes' "$SAID"
}

check program_runs_to_its_end
exit "$FAILED"
