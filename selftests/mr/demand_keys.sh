#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Keys of MRs on demand, on the adapter of the test bench: its paging is that of
# soft-RoCE without the faults. See demand_keys.c.
#
# time limit: 240

cd "$(dirname "$(realpath "$0")")/.." || exit
# shellcheck source-path=SCRIPTDIR source=../lib/topology.sh
. lib/topology.sh

on_adapter "${MEMREG_ADAPTER:-strict}" demand_keys
