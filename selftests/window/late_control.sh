#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# The control of peer_race: if a device that does not wait says that it does, late
# bytes are found. A packet is held to that end.
#
# time limit: 240

cd "$(dirname "$(realpath "$0")")/.." || exit
# shellcheck source-path=SCRIPTDIR source=../lib/topology.sh
. lib/topology.sh

case="I3_revoke_waits_for_a_write_in_flight"
said=$(on_adapter "weak claim=1" peer_race -t "$case" 2>&1)
status=$?
((status != 4)) || exit 4
echo "TAP version 13"
echo "1..1"
if grep -q "^not ok .*$case" <<<"$said"; then
	echo "ok 1 late bytes of a device that is believed are found"
else
	echo "not ok 1 late bytes of a device that is believed are found"
	echo "# ${said//$'\n'/$'\n'# }"
	exit 1
fi
