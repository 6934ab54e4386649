#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# The adapters that are preloaded: in programs without RDMA, and with libraries
# under other names, several times in a process, and loaded in other ways.
#
# time limit: 300
# shellcheck disable=SC2317,SC2329 # functions are called by check

cd "$(dirname "$(realpath "$0")")/.." || exit
# shellcheck source-path=SCRIPTDIR source=../lib/tool.sh
. lib/tool.sh

CACHES=$(realpath ../build/selftests/caches)
LIBS=/usr/lib/x86_64-linux-gnu
WORK=$(mktemp -d)
trap 'rm -rf "$SAID" "$WORK"' EXIT

# The adapters, where other users may read them
UCX=$WORK/libmemreg-ucx.so.0
FABRIC=$WORK/libmemreg-fabric.so.0
chmod 755 "$WORK"
for adapter in ../build/user/{ucx,fabric}/libmemreg-*.so.0; do
	[ ! -e "$adapter" ] || cp "$adapter" "$WORK"
done

#
# Programs without RDMA
#

# prints_the_same PRELOAD COMMAND...: a command prints what it prints without
# the preload, on standard error as well.
prints_the_same() {
	local preload=$1 without
	shift
	without=$("$@" 2>&1)
	LD_PRELOAD=$preload "$@" >"$SAID" 2>&1
	[ "$(cat "$SAID")" = "$without" ]
}

# loads_nothing PRELOAD COMMAND: nothing is loaded but the preload.
loads_nothing() {
	local without
	without=$(ldd "$2" | wc -l)
	LD_TRACE_LOADED_OBJECTS=1 LD_PRELOAD=$1 "$2" >"$SAID"
	[ "$(wc -l <"$SAID")" = $((without + 1)) ]
}

# quiet PRELOAD
quiet() {
	[ -e "$1" ] || return 0
	local nobody=(setpriv --reuid 65534 --clear-groups)
	loads_nothing "$1" /bin/ls &&
		loads_nothing "$1" /bin/bash &&
		prints_the_same "$1" ls /dev/null &&
		prints_the_same "$1" "${nobody[@]}" ls /dev/null &&
		prints_the_same "$1" \
			bash -c 'for i in 1 2 3; do /bin/true; done' &&
		prints_the_same "$1" python3 -c '
import subprocess
print(subprocess.run(["ls", "/bin/sh"], capture_output=True).stderr)'
}

no_word_from_ucx_without_rdma() {
	quiet "$UCX"
}

no_word_from_fabric_without_rdma() {
	quiet "$FABRIC"
}

#
# libfabric
#

# The plugin's libfabric is in a directory that only the plugin names.
libfabric_of_the_plugin_stays() {
	mkdir -p "$WORK/own" &&
		cp "$LIBS/libfabric.so.1" "$WORK/own" &&
		cp "$CACHES/plug_fabric.so" "$WORK" &&
		LD_PRELOAD=$FABRIC owner "$CACHES/host" \
			"$WORK/plug_fabric.so" >"$SAID" 2>&1 &&
		[ "$(cat "$SAID")" = "$WORK/own/libfabric.so.1" ]
}

#
# UCX
#

# Copies of UCX and of the plugin whose libraries have other names, as Python's
# wheels have; and links by the usual names beside them.
rename() {
	local file
	mkdir -p "$WORK/renamed/ucx" "$WORK/aliases"
	for file in "$LIBS"/libuc[pstm].so.0 "$LIBS"/ucx/libu*.so.0 \
		"$CACHES/plug_ucx.so"; do
		local name=${file#"$LIBS"/}
		name=${name#"$CACHES"/}
		sed 's/libuc\([pstm]\)\.so/libux\1.so/g' "$file" \
			>"$WORK/renamed/${name/#libuc/libux}" || return
	done
	for file in p s t m; do
		ln -sf "../renamed/libux$file.so.0" \
			"$WORK/aliases/libuc$file.so.0"
	done
}

# run_ucx [VARIABLE=VALUE]... PROGRAM [ARGUMENT]...: its output goes to $SAID, its
# standard error to $WORK/err.
run_ucx() {
	owner env UCX_TLS=rc_verbs,self UCX_NET_DEVICES=rxe_owner:1 \
		UCX_LOG_FILE="$WORK/log" "$@" >"$SAID" 2>"$WORK/err"
}

PRELOAD=("LD_PRELOAD=$UCX")
NO_HOOKS=UCX_MEM_MMAP_HOOK_MODE=none
RENAMED="LD_LIBRARY_PATH=$WORK/renamed"

# guarded [VARIABLE=VALUE]... PROGRAM [ARGUMENT]...: with the preload everything
# is found and nothing is stale, and nothing is said.
guarded() {
	run_ucx "$NO_HOOKS" "${PRELOAD[@]}" "$@"
	cat "$WORK/err" >>"$SAID"
	[ "$(cat "$SAID")" = "found 20 stale 0" ]
}

# left [VARIABLE=VALUE]... PROGRAM [ARGUMENT]...: one line says that the preload
# is not in use, and UCX does what it does without.
left() {
	local without
	run_ucx "$@" || return
	without=$(cat "$SAID")
	run_ucx "${PRELOAD[@]}" "$@"
	cp "$SAID" "$WORK/out"
	cat "$WORK/err" >>"$SAID"
	[ "$(cat "$WORK/out")" = "$without" ] &&
		[ "$(grep -c '^libmemreg-ucx: not in use: ' "$WORK/err")" = 1 ]
}

ucx_alone_is_stale() {
	run_ucx "$CACHES/host" "$CACHES/plug_ucx.so" &&
		[ "$(cat "$SAID")" = "found 20 stale 20" ]
}

I2_ucx_in_a_plugin() {
	guarded "$CACHES/host" "$CACHES/plug_ucx.so" &&
		guarded "$CACHES/host" "$CACHES/plug_ucx.so" global
}

I2_ucx_with_deepbind_is_left() {
	left "$NO_HOOKS" "$CACHES/host" "$CACHES/plug_ucx.so" deepbind &&
		left "$CACHES/host" "$CACHES/plug_ucx.so" deepbind
}

I2_ucx_under_other_names() {
	guarded "$RENAMED" "$CACHES/host" "$WORK/renamed/plug_ucx.so" &&
		guarded "$RENAMED:$WORK/aliases" "$CACHES/host" \
			"$WORK/renamed/plug_ucx.so"
}

# first_is_guarded [local]: the first is guarded. The second is loaded with
# RTLD_DEEPBIND, and left: one line says so.
first_is_guarded() {
	local two=("$RENAMED" "$CACHES/host" "$WORK/renamed/plug_ucx.so" "$@"
		"$CACHES/plug_ucx.so" deepbind) second
	run_ucx "$NO_HOOKS" "${two[@]}" || return
	second=$(sed -n 2p "$SAID")
	run_ucx "$NO_HOOKS" "${PRELOAD[@]}" "${two[@]}" || return
	cat "$WORK/err" >>"$SAID"
	[ "$(sed -n 1p "$SAID")" = "found 20 stale 0" ] &&
		[ "$(sed -n 2p "$SAID")" = "$second" ] &&
		[ "$(grep -c '^libmemreg-ucx: ' "$WORK/err")" = 1 ] &&
		grep -q '^libmemreg-ucx: not in use: calls of .*/renamed/' \
			"$WORK/err"
}

# Where all of the program sees the first, the modules of the second become those
# of the first: no call of the second passes the preload. Otherwise they pin memory
# for the second.
I2_two_ucx_in_a_process() {
	first_is_guarded && first_is_guarded local
}

# Functions of the second UCX are mixed with those of the first, with which some
# versions call abort(). The preload makes that no worse.
I2_two_ucx_that_share_symbols() {
	local two=("$RENAMED" "$CACHES/host" "$WORK/renamed/plug_ucx.so"
		"$CACHES/plug_ucx.so") without alone=0 with=0
	run_ucx "${two[@]}" || alone=$?
	without=$(cat "$SAID")
	run_ucx "${PRELOAD[@]}" "${two[@]}" || with=$?
	cat "$WORK/err" >>"$SAID"
	[ "$with" = "$alone" ] && { [ "$with" != 0 ] ||
		! grep -vxF "$without" "$SAID" | grep -v '^libmemreg-ucx: ' |
			grep -vqx 'found 20 stale 0'; }
}

changes_elsewhere_take_nothing() {
	guarded PLUG_UNMAPS=17000 "$CACHES/host" "$CACHES/plug_ucx.so"
}

I2_program_closes_the_descriptors() {
	guarded PLUG_CLOSES=1 "$CACHES/host" "$CACHES/plug_ucx.so"
}

ucx_without_the_module_is_left() {
	rmmod ib_memreg && left "$CACHES/host" "$CACHES/plug_ucx.so"
	local status=$?
	module_load
	return "$status"
}

check no_word_from_ucx_without_rdma
check no_word_from_fabric_without_rdma
[ ! -e "$CACHES/plug_fabric.so" ] || check libfabric_of_the_plugin_stays
if [ -e "$CACHES/plug_ucx.so" ]; then
	rename || exit
	check ucx_alone_is_stale
	check I2_ucx_in_a_plugin
	check I2_ucx_with_deepbind_is_left
	check I2_ucx_under_other_names
	check I2_two_ucx_in_a_process
	check I2_two_ucx_that_share_symbols
	check changes_elsewhere_take_nothing
	check I2_program_closes_the_descriptors
	check ucx_without_the_module_is_left
fi
exit "$FAILED"
