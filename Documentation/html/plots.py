#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: GPL-2.0-only
"""Make plots and tables of what `make bench` has measured.

Usage: plots.py BENCH.JSON DIRECTORY

Of each group of rows there is a plot of the ratios, GROUP.svg, and a table of all
figures, GROUP.txt, which the documents include.
"""

import html
import json
import math
import pathlib
import sys

# Name, what is plotted, and how its rows begin; the last one has all others.
GROUPS = (
    ("data", "Cost of moving data: memreg / other",
     ("write_", "read_", "send_", "pingpong_", "bind_send", "ring_",
      "strided_", "odp_hit_")),
    ("block", "Rate of the block device: memreg / NVMe over RDMA", ("blk_",)),
    ("register", "Cost of registering and granting: memreg / other", ("",)),
)
UNITS = {"ki": "thousand instructions"}

# Pixels; beside a bar there is room for its ratio.
ROW, LABEL, RATIO, PLOT, TOP, FOOT = 20, 400, 56, 420, 44, 30
FONT = 'font-family="sans-serif" font-size="12"'
GOOD, BAD = "#3a7d44", "#b5543c"


def better(row):
    """Whether ours is the better one, or as good."""
    return (row["ratio"] >= 1) if row.get("higher_is_better") else \
        (row["ratio"] <= 1)


def quotient(value):
    """A ratio; what is small has more digits."""
    return f"{value:.2f}" if value >= 0.01 else f"{value:.4f}"


def label(x, y, words, anchor="start", more=""):
    """One line of words."""
    return (f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" {FONT}'
            f'{more}>{html.escape(words)}</text>')


def scale(rows):
    """A function from ratios to pixels, logarithmic, and its marks."""
    low = min(0.5, *(max(row["ratio"], 0.001) for row in rows))
    high = max(2.0, *(row["ratio"] for row in rows)) * 1.1
    span = math.log(high / low)
    marks = [m for m in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20)
             if low <= m <= high]
    return (lambda ratio: LABEL + RATIO + PLOT * math.log(ratio / low) / span,
            marks)


def plot(title, rows):
    """The lines of the SVG: one bar for each row, from 1 to its ratio."""
    at, marks = scale(rows)
    width, height = LABEL + PLOT + 2 * RATIO, TOP + ROW * len(rows) + FOOT
    bottom = height - FOOT
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" '
           f'height="{height}" viewBox="0 0 {width} {height}">',
           f'<rect width="{width}" height="{height}" fill="#fff"/>',
           label(10, 20, title, more=' font-weight="bold"')]
    for mark in marks:
        color = "#333" if mark == 1 else "#ccc"
        out.append(f'<line x1="{at(mark):.0f}" y1="{TOP - 8}" '
                   f'x2="{at(mark):.0f}" y2="{bottom}" stroke="{color}"/>')
        out.append(label(at(mark), bottom + 18, f"{mark:g}", "middle"))
    for number, row in enumerate(rows):
        y = TOP + ROW * number
        left, right = sorted((at(max(row["ratio"], 0.001)), at(1)))
        color = GOOD if better(row) else BAD
        out.append(label(LABEL - 8, y + 11, row["name"], "end"))
        out.append(f'<rect x="{left:.1f}" y="{y}" '
                   f'width="{max(right - left, 1.5):.1f}" height="{ROW - 6}" '
                   f'fill="{color}"/>')
        end, anchor = (left - 4, "end") if row["ratio"] < 1 else \
            (right + 4, "start")
        out.append(label(end, y + 11, quotient(row["ratio"]), anchor))
    return out + ["</svg>"]


def figure(value):
    """Three digits, or as many as there are before the point."""
    digits = max(0, 2 - math.floor(math.log10(value))) if value else 0
    return f"{value:,.{min(digits, 3)}f}"


def cells(row):
    """What a table has of a row, or of none."""
    if not row:
        return ["", "", "", ""]
    if not row["ratio"]:
        return [figure(row["ours"]), "", "", ""]
    bounds = row.get("ratio_range")
    return [figure(row["ours"]), figure(row["peer"]), quotient(row["ratio"]),
            " to ".join(map(quotient, bounds)) if bounds else ""]


def table(rows):
    """The lines of a list-table: a row and its time are one."""
    times = {row["name"]: row for row in rows if row["unit"] == "us"}
    names = dict.fromkeys(row["name"].removesuffix("_time") for row in rows)
    by_name = {row["name"]: row for row in rows}
    unit = next(UNITS.get(row["unit"], "") for row in rows)
    out = [".. list-table::", "   :header-rows: 1", "   :class: figures", ""]
    head = ["row", "ours", "other", "ratio", "target", "the other is"]
    if times:
        head[1] = f"ours, {unit}"
        head[5:5] = ["ours, microseconds", "other", "ratio", "range"]
    lines = [head]
    for name in names:
        row = by_name.get(name)
        either = row or times[f"{name}_time"]
        line = [f"``{name}``", *cells(row)[:3],
                quotient(either["target"]) if "target" in either else ""]
        if times:
            line += cells(times.get(f"{name}_time"))
        else:
            line[1:3] = [f"{text} {row['unit']}" if text else ""
                         for text in line[1:3]]
        lines.append([*line, either["peer_name"] or ""])
    for line in lines:
        out += [("   * - " if number == 0 else "     - ") + text
                for number, text in enumerate(line)]
    return [text.rstrip() for text in out] + [""]


def main():
    """Each group."""
    if len(sys.argv) != 3:
        sys.exit(__doc__.split("\n\n")[1])
    figures = json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))
    directory = pathlib.Path(sys.argv[2])
    left = figures["rows"]
    for name, title, starts in GROUPS:
        rows = [row for row in left if row["name"].startswith(starts)]
        left = [row for row in left if row not in rows]
        shown = [row for row in rows
                 if row["ratio"] and not row["name"].endswith("_time")]
        (directory / f"{name}.svg").write_text(
            "\n".join(plot(title, shown)) + "\n", encoding="utf-8")
        (directory / f"{name}.txt").write_text("\n".join(table(rows)),
                                               encoding="utf-8")
    (directory / "measured.txt").write_text(
        f"These figures were measured on Linux {figures['kernel']}, with the "
        f"sources ``{figures['sources']}``.\n", encoding="utf-8")


main()
