#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# What measures the block device works: both disks keep what is written, each
# job moves data by the wire, and nothing is left. How fast is not looked at.
# time limit: 300

set -uo pipefail
cd "$(dirname "$(realpath "$0")")/.." || exit

modprobe -nqa brd nvme-rdma nvmet-rdma && command -v fio >/dev/null || exit 4

jobs=(blk_randread_4k_qd1 blk_write_128k_qd8)
[ "${MEMREG_FULL:-0}" = 0 ] ||
	mapfile -t jobs < <(sed -n 's/^\[\(blk.*\)\]/\1/p' bench/jobs.fio)

lib/topology.sh down || exit 1
said=$(mktemp) || exit
trap 'rm -f "$said"' EXIT
bench/blk -n 1 -t 1 -m 4 "${jobs[@]}" | tee "$said" || exit 1

for job in "${jobs[@]}"; do
	for side in ours peer; do
		grep -qE "^result ${job}_$side (iops|mib_s)( [0-9.]+){3} 1$" \
			"$said" || {
			echo "there is no figure of $job, $side"
			exit 1
		}
	done
done
for left in /dev/ram0 /sys/module/{brd,ib_memreg_blk,nvmet_rdma,nvme_rdma} \
	/sys/class/net/mr_owner /sys/class/infiniband/rxe_owner; do
	[ ! -e "$left" ] || { echo "left behind: $left"; exit 1; }
done
