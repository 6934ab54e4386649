#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# libmemreg-verbs in front of programs that know nothing of it: on a device that
# imports dma-bufs their keys die with the mapping, and on another one they do what
# they do without it.
#
# time limit: 300
# shellcheck disable=SC2317,SC2329 # functions are called by check

cd "$(dirname "$(realpath "$0")")/.." || exit
# shellcheck source-path=SCRIPTDIR source=../lib/tool.sh
. lib/tool.sh

CACHES=$(realpath ../build/selftests/caches)
WORK=$(mktemp -d)
APP=$WORK/unmodified
VERBS=$WORK/libmemreg-verbs.so.0
UCX=$WORK/libmemreg-ucx.so.0
FABRIC=$WORK/libmemreg-fabric.so.0
trap 'rm -rf "$SAID" "$WORK"' EXIT

# where other users may read them
chmod 755 "$WORK"
cp "$CACHES/unmodified" "$APP"
for adapter in ../build/user/{ucx,fabric,verbs}/libmemreg-*.so.0; do
	[ ! -e "$adapter" ] || cp "$adapter" "$WORK"
done
GUARDED=no END=served
! owner memreg caps -d rxe_owner --json |
	grep -q '"export-register":{"value":true' || GUARDED=yes END=refused

# without CASE: what the program prints by itself
without() {
	owner "$APP" "$@" 2>&1
}

# with [VARIABLE=VALUE]... CASE: what it prints with the preload goes to $SAID, its
# standard error to $WORK/err.
with() {
	owner env LD_PRELOAD="$VERBS" "${@:1:$#-1}" "$APP" "${!#}" \
		>"$SAID" 2>"$WORK/err"
	local status=$?
	sed 's/^/# standard error: /' "$WORK/err"
	return "$status"
}

# said LINES [TEXT]: so many lines are on standard error, and have the text.
said() {
	[ "$(wc -l <"$WORK/err")" = "$1" ] &&
		{ [ "$1" = 0 ] || grep -q "^libmemreg-verbs: not guarded: .*$2" \
			"$WORK/err"; }
}

# if_guarded GUARDED NOT: what is expected of this device
if_guarded() {
	[ "$GUARDED" = yes ] && echo "$1" || echo "$2"
}

# It prints the same as without.
same() {
	local expected
	expected=$(without "$1")
	with "$1" && [ "$(cat "$SAID")" = "$expected" ]
}

# counts TEXT [VARIABLE=VALUE]... CASE
counts() {
	local text=$1
	shift
	with COUNTERS=1 "$@" && [ "$(tail -n 1 "$SAID")" = "$text" ]
}

#
# Programs
#

I6_peers_reach_every_byte_and_no_other() {
	without bytes >"$SAID" && same bytes && said 1 &&
		counts "$(if_guarded "guarded 4 passed 0" \
			"guarded 0 passed 4") stale 0" bytes
}

old_key_is_served_without() {
	[ "$(without unmap)" = "old key: served" ]
}

I1_old_key_is_refused_where_the_device_imports() {
	with unmap && [ "$(cat "$SAID")" = "old key: $END" ] &&
		said "$(if_guarded 0 1)" "rxe_owner: its driver imports no"
}

I1_rereg() {
	if [ "$GUARDED" = yes ]; then
		with rereg && [ "$(cat "$SAID")" = "old key: refused" ] &&
			said 1 MW_BIND
	else
		same rereg
	fi
}

I1_child_has_registrations_of_its_own() {
	with forked && [ "$(cat "$SAID")" = "child's old key: $END
parent's old key: $END" ] && said "$(if_guarded 0 1)"
}

child_deregisters_what_its_parent_has() {
	local expected
	expected=$(without child_deregisters | head -n 1)
	with child_deregisters &&
		[ "$(cat "$SAID")" = "$expected
then: $END" ]
}

many_threads() {
	with threads && said 1
}

what_is_not_guarded_is_as_without() {
	same odd && said 1
}

more_registrations_than_files() {
	with many && said 1
}

I2_program_closes_the_descriptors() {
	with closes && [ "$(cat "$SAID")" = "old key: $END" ] &&
		said "$(if_guarded 0 1)"
}

#
# Modes and counters
#

strict_refuses_what_is_not_guarded() {
	if [ "$GUARDED" = yes ]; then
		with MEMREG_VERBS=strict odd
		grep -qx 'window: Operation not supported' "$SAID" &&
			grep -qx 'on demand: Operation not supported' "$SAID" &&
			grep -qx 'read-only: Operation not supported' "$SAID" &&
			said 1 || return
		with MEMREG_VERBS=strict unmap && said 0
	else
		! with MEMREG_VERBS=strict once &&
			grep -q 'not app.mr, errno 95' "$SAID" &&
			said 1 "rxe_owner: its driver imports no"
	fi
}

off_passes_all_on() {
	counts "guarded 0 passed 0 stale 0" MEMREG_VERBS=off unmap && said 0 &&
		[ "$(head -n 1 "$SAID")" = "old key: served" ]
}

an_unknown_mode_is_the_default() {
	with MEMREG_VERBS=on unmap && said 1 "MEMREG_VERBS" &&
		[ "$(cat "$SAID")" = "old key: $END" ]
}

counters_tell_what_went_stale() {
	counts "$(if_guarded "guarded 3 passed 0" "guarded 0 passed 3") stale 1" \
		unmap &&
		counts "$(if_guarded "guarded 2 passed 0" \
			"guarded 0 passed 2") stale 0" once
}

without_the_module_it_is_as_without() {
	rmmod ib_memreg || return
	same unmap && said 1 "the module is not loaded" &&
		! with MEMREG_VERBS=strict once &&
		grep -q 'errno 95' "$SAID"
	local status=$?
	module_load
	return "$status"
}

without_permission_it_is_as_without() {
	chmod 600 /dev/infiniband/memreg
	local nobody=(owner setpriv --reuid 65534 --clear-groups env
		LD_PRELOAD="$VERBS" "$APP") status
	"${nobody[@]}" once >"$SAID" 2>"$WORK/err"
	status=$?
	chmod 666 /dev/infiniband/memreg
	[ "$status" = 0 ] && said 1 "no permission"
}

#
# Beside adapters, and in front of plugins
#

# plugin PRELOADS...: of a plugin whose libibverbs nobody else sees
plugin() {
	owner env LD_PRELOAD="$*" "$CACHES/host" \
		"$CACHES/unmodified.so" >"$SAID" 2>"$WORK/err"
}

I1_plugins() {
	plugin && [ "$(cat "$SAID")" = "old key: served" ] &&
		plugin "$VERBS" && [ "$(cat "$SAID")" = "old key: $END" ]
}

# I1_beside ADAPTER: in front of it, and behind it
I1_beside() {
	local order
	for order in "$VERBS $1" "$1 $VERBS"; do
		plugin "$order" && [ "$(cat "$SAID")" = "old key: $END" ] &&
			owner env LD_PRELOAD="$order" "$APP" unmap >"$SAID" &&
			[ "$(cat "$SAID")" = "old key: $END" ] || return
	done
}

#
# Programs without RDMA, or that do not use it
#

prints_the_same() {
	local expected
	expected=$("$@" 2>&1)
	LD_PRELOAD=$VERBS "$@" >"$SAID" 2>&1
	[ "$(cat "$SAID")" = "$expected" ]
}

# loads_nothing COMMAND: nothing is loaded but the preload.
loads_nothing() {
	local expected
	expected=$(ldd "$1" | wc -l)
	LD_TRACE_LOADED_OBJECTS=1 LD_PRELOAD=$VERBS "$1" >"$SAID"
	[ "$(wc -l <"$SAID")" = $((expected + 1)) ]
}

no_word_without_rdma() {
	loads_nothing /bin/ls && loads_nothing /bin/bash &&
		prints_the_same ls /dev/null &&
		prints_the_same setpriv --reuid 65534 --clear-groups ls / &&
		prints_the_same bash -c 'for i in 1 2 3; do /bin/true; done' &&
		prints_the_same python3 -c '
import subprocess
print(subprocess.run(["ls", "/bin/sh"], capture_output=True).stderr)' &&
		with nothing && said 0
}

check I6_peers_reach_every_byte_and_no_other
check old_key_is_served_without
check I1_old_key_is_refused_where_the_device_imports
check I1_rereg
check I1_child_has_registrations_of_its_own
check child_deregisters_what_its_parent_has
check many_threads
check what_is_not_guarded_is_as_without
check more_registrations_than_files
check I2_program_closes_the_descriptors
check strict_refuses_what_is_not_guarded
check off_passes_all_on
check an_unknown_mode_is_the_default
check counters_tell_what_went_stale
check without_the_module_it_is_as_without
check without_permission_it_is_as_without
check I1_plugins
check I1_beside "$UCX"
[ ! -e "$FABRIC" ] || check I1_beside "$FABRIC"
check no_word_without_rdma
exit "$FAILED"
