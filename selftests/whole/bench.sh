#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# What measures works: all that it measures can be done, and the report has all
# of it. What it costs is not looked at.
# time limit: 300

set -uo pipefail
cd "$(dirname "$(realpath "$0")")/.." || exit

command -v python3 >/dev/null || exit 4

tmp=$(mktemp -d) || exit

# A bench that is killed leaves its kernel module loaded.
cleanup() {
	rm -rf "$tmp"
	[ ! -d /sys/module/ib_memreg_bench ] || rmmod ib_memreg_bench
}

trap cleanup EXIT

measure() {
	nsenter --net=/run/netns/memreg-owner ../build/selftests/bench/bench \
		-n 1 -r 1 -N 1 -d 1 -f 16 -w 64 -l 500 -g 50 "$@"
}

measure -i >"$tmp/ki" && measure >"$tmp/us" || exit 1
bench/report "$tmp/json" "$tmp/ki" "$tmp/us" || exit 1
[ ! -e "../build/kernel-$(uname -r)/ib_memreg_bench.ko" ]
python3 - "$tmp/json" $? <<'EOT'
import json, os, sys

WINDOW = ("64k_batch32 64k_batch256 64k_batch32_thp 64k_single "
          "64k_batch32_relaxed 64k_batch256_relaxed 64k_batch32_thp_relaxed "
          "64k_batch32_relaxed_vs_mw2 64k_batch32_thp_relaxed_vs_mw2 "
          "64k_batch32_8mrs_relaxed 64k_batch32_elsewhere_relaxed live_100000")
OTHER = ("mr_register_64k_local mr_register_64k_remote mr_register_4k_remote "
         "mr_register_1m_remote mr_register_1g_memory pool_take_give "
         "pool_recycle_64k_batch32 pool_create_1024x64k "
         "cache_hit cache_hit_100000_entries monitor_add_delete "
         "monitor_add_delete_batch32 munmap_unguarded_10000_monitors "
         "rereg_access_64k rereg_access_64k_remote rereg_domain_64k "
         "rereg_domain_64k_remote rereg_grow compose_bind_16x4k "
         "compose_bind_16x4k_vs_batch strided_write_64x1k "
         "odp_hit_send_8b_batch32 odp_hit_send_8b_batch32_pages odp_fault_64k "
         "odp_prefetch_1m odp_register_1g register_4_files_64m "
         "munmap_10000_guards exit_10000_guards "
         "write_64k read_64k write_1m read_1m write_64k_vs_perftest "
         "read_64k_vs_perftest write_1m_vs_perftest read_1m_vs_perftest "
         "write_8b_batch32 write_8b_batch32_vs_perftest send_8b_batch32 "
         "pingpong_64b bind_send_inv ring_poll_empty ring_reap")
KERNEL = ["frwr_take_put_1cpu", "kapi_client_4k", "kapi_client_4k_qd16",
          "kapi_client_4k_qd16_small_pool"]
# Instructions are counted on one CPU, so two CPUs have times alone.
KERNEL_TIME = [n + "_time" for n in KERNEL] + ["frwr_take_put_2cpu_time"]
THREADS_TIME = ["pool_take_give_2cpu_time", "cache_hit_2cpu_time"]
ALONE = {"ring_reap", "ring_reap_time"}
KEYS = {"name", "unit", "ours", "peer", "peer_name", "ratio", "runs"}

names = ["window_bind_revoke_" + w for w in WINDOW.split()] + OTHER.split()
made = json.load(open(sys.argv[1]))
assert len(made["sources"]) == 12 and made["kernel"], made
rows = made["rows"]
printed = {row["name"]: row for row in rows}
assert len(printed) == len(rows), "a name is there twice"
wanted = set(names) | {n + "_time" for n in names}
if int(sys.argv[2]):
    wanted |= set(KERNEL + KERNEL_TIME)
if os.cpu_count() > 1:
    wanted |= set(THREADS_TIME)
assert set(printed) == wanted, sorted(printed)
for row in rows:
    assert KEYS <= set(row), row
    assert row["unit"] == ("us" if row["name"].endswith("_time") else "ki"), row
    assert row["runs"] == 1 and row["ours"] > 0, row
    if row["name"] in ALONE:
        assert row["peer"] is None and row["ratio"] is None, row
        continue
    assert row["peer"] > 0, row
    assert abs(row["ratio"] * row["peer"] / row["ours"] - 1) < 1e-9, row
EOT
