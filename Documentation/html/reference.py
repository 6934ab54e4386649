#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: GPL-2.0-only
"""Make a page of the reference from comments of the sources.

Usage: reference.py KERNEL-DOC PAGE TITLE SOURCE...

Of a .c file only its sections (DOC:) and what it exports are on the page. It
begins with a list of all that it describes. PAGE is without .rst, and the page
`kernel` has a namespace of its own, as names of its are also those of others.
"""

import pathlib
import re
import subprocess
import sys


def comments(kernel_doc, source):
    """The lines that kernel-doc makes of a file."""
    options = []
    if source.endswith(".c"):
        text = pathlib.Path(source).read_text(encoding="utf-8")
        for name in re.findall(r"^EXPORT_SYMBOL_NS_GPL\((\w+),", text, re.M) + \
                re.findall(r"^ \* DOC: (.*)$", text, re.M):
            options += ["-s", name]
    return subprocess.run(
        [sys.executable, "-B", kernel_doc, "-rst", *options, source], check=True,
        stdout=subprocess.PIPE, encoding="utf-8").stdout.splitlines()


def described(line):
    """The kind and the name of what a line begins to describe, if any."""
    if kind := re.match(r"\.\. c:(struct|enum|union|macro|type):: (\w+)", line):
        return kind.groups()
    if function := re.match(r"\.\. c:function:: .*?\b(\w+) \(", line):
        return "func", function[1]
    return None


def spaced(lines):
    """To Sphinx, structures and functions have names of one kind: a structure
    with the name of a function gets a namespace of its own."""
    functions = {name for kind, name in filter(None, map(described, lines))
                 if kind == "func"}
    inside = False
    for line in lines:
        if inside and line.startswith(".. c:"):
            yield from (".. c:namespace-pop::", "")
            inside = False
        if described(line) and described(line)[0] == "struct" and \
                described(line)[1] in functions:
            yield from (".. c:namespace-push:: structures", "")
            inside = True
        yield line


def contents(lines):
    """A list of links."""
    found = [f"   * :c:{kind}:`{name}`"
             for kind, name in filter(None, map(described, lines))]
    return [".. hlist::", "   :columns: 2", "", *found, ""] if found else []


def main():
    """Read, arrange, write."""
    if len(sys.argv) < 5:
        sys.exit(__doc__.split("\n\n")[1])
    kernel_doc, page, title, *sources = sys.argv[1:]
    lines = [line for source in sources
             for line in comments(kernel_doc, source)]
    space = [".. c:namespace:: kernel", ""] if page.endswith("/kernel") else []
    pathlib.Path(f"{page}.rst").write_text("\n".join(
        [title, "=" * len(title), "", *space, *contents(lines),
         *spaced(lines)]) + "\n", encoding="utf-8")


main()
