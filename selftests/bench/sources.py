# SPDX-License-Identifier: GPL-2.0-only
"""The sources that `make bench` measures, by one sum over them."""

import hashlib
import pathlib

TREE = pathlib.Path(__file__).resolve().parents[2]

# What is measured, and by what; not what makes tables of it.
MEASURED = ("Kbuild", "include", "kernel", "user/lib", "user/blkd", "user/tool",
            "selftests/bench")
NOT_MEASURED = ("report", "table", "sources.py")


def sum_of_sources(tree=TREE):
    """12 digits that name them."""
    files = []
    for name in MEASURED:
        path = tree / name
        files += path.rglob("*") if path.is_dir() else [path]
    digest = hashlib.sha256()
    for path in sorted(files):
        if path.is_file() and path.name not in NOT_MEASURED:
            name = path.relative_to(tree).as_posix()
            digest.update(f"{name}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:12]
