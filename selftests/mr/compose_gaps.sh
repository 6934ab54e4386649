#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Compositions on a device that lists pieces which begin and end at any byte: all
# of it is under one key. See compose.c.
#
# time limit: 300

cd "$(dirname "$(realpath "$0")")/.." || exit
# shellcheck source-path=SCRIPTDIR source=../lib/topology.sh
. lib/topology.sh

on_adapter "${MEMREG_ADAPTER:-strict} gaps=1" compose
