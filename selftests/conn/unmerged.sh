#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Scattered memory on an adapter whose DMA segments are of a page each: messages of
# too many pieces are refused, transfers are split, and keys end at their span, as
# on soft-RoCE.
#
# time limit: 240

cd "$(dirname "$(realpath "$0")")/.." || exit
# shellcheck source-path=SCRIPTDIR source=../lib/topology.sh
. lib/topology.sh

scattered() {
	local status=0
	submit -t scattered_memory_is_written_and_read \
		-t scattered_message_has_a_limit || status=1
	submit_rules -t I8_messages_must_not_be_too_scattered || status=1
	ring -t I10_scattered_work_takes_the_room_of_several || status=1
	ranges -t I6_segments_tile_scattered_memory \
		-t only_segments_that_there_is_room_for || status=1
	return $status
}

export -f scattered
on_adapter "${MEMREG_ADAPTER:-strict} segment=4096" bash -c scattered
