#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Memory on devices that need no bounce buffers but answer that they would, and
# on one that needs them. See coherent.c.
#
# time limit: 240

cd "$(dirname "$(realpath "$0")")/.." || exit
# shellcheck source-path=SCRIPTDIR source=../lib/topology.sh
. lib/topology.sh

status=0
for parameter in need_sync=1 bounce=1; do
	on_adapter "${MEMREG_ADAPTER:-strict} $parameter" coherent || status=$?
done
exit $status
