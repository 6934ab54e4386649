#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# The demonstration, which has a topology and loads the module itself.

cd "$(dirname "$(realpath "$0")")/.." || exit
# shellcheck source-path=SCRIPTDIR source=../lib/topology.sh
. lib/topology.sh

topology_down
rmmod ib_memreg
exec ../user/examples/demo.sh
