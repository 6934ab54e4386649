#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# The API for other modules, on a device that exists in name only; keys that
# list any bytes, on one in software; and errnos of the RDMA CM: KUnit's
# tests, which are those of ib_memreg_kunit.ko, each counted as one here.

cd "$(dirname "$(realpath "$0")")/.." || exit
# shellcheck source-path=SCRIPTDIR source=../lib/topology.sh
. lib/topology.sh

SUITES=5
MODULE=$TOPOLOGY_TREE/build/kernel-$(uname -r)/ib_memreg_kunit.ko
MARK="memreg-kunit $$ $RANDOM"

# Print what KUnit has logged since the mark.
said() {
	dmesg | sed -E "1,/$MARK/d; s/^\[[^]]*\] (\[ *[TC][0-9]+\] )?//"
}

# report: report the result of each KUnit test as one of this program's, with
# its messages.
report() {
	local line
	while IFS= read -r line; do
		case $line in
		"    ok "* | "    not ok "*)
			sed -E 's/^ *((not )?ok) [0-9]+ (memreg_test_)?/\1 kapi./' \
				<<<"$line"
			;;
		"    # "* | "# "*) echo "# ${line##*( )}" ;;
		esac
	done < <(said)
}

# All suites have ended, and each has passed.
passed() {
	[ "$(said | grep -cE '^ok [0-9]+ ib_memreg_(pool|map|req|mem|conn)$')" = $SUITES ] &&
		! said | grep -q '^ *not ok '
}

main() {
	if ! modprobe kunit enable=1 autorun=1 2>/dev/null; then
		echo "ok kapi_kunit # SKIP this kernel has no KUnit"
		exit 4
	fi
	if [ ! -e "$MODULE" ]; then
		echo "not ok kapi_kunit # $MODULE was not built"
		exit 1
	fi
	echo "$MARK" >/dev/kmsg
	insmod "$MODULE" || exit
	report
	rmmod ib_memreg_kunit || exit
	rmmod kunit || exit
	passed
}

main
