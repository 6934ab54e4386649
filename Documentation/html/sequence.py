#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: GPL-2.0-only
"""Draw who calls whom, from top to bottom.

Usage: sequence.py TEXT SVG

The text has one line for each actor, message and note:

    actor NAME
    NAME -> NAME: what is sent
    NAME: what it does
    # a comment

A message that begins with an asterisk is one that memory carries, and dashed.
"""

import html
import re
import sys

STEP = 26               # from one line to the next
LETTER = 7.0            # width of one, about
MARGIN = 10
HEAD = 34
FONT = 'font-family="sans-serif" font-size="13"'


def parse(path):
    """The actors, and rows of (from, to or None, text)."""
    actors, rows = [], []
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            line = line.split("#")[0].strip()
            message = re.fullmatch(r"(\w+)(?: -> (\w+))?: (.*)", line)
            if line.startswith("actor "):
                actors.append(line[len("actor "):])
            elif message and {message[1], message[2]} <= {*actors, None}:
                rows.append(message.groups())
            elif line:
                sys.exit(f"{path}:{number}: neither actor nor message")
    return actors, rows


def places(actors, rows):
    """The x of each actor, so that every text has room beside its line."""
    gaps = [max(len(a), len(b)) * LETTER / 2 + 40
            for a, b in zip(actors, actors[1:])] + [60]
    for source, target, text in rows:
        first = actors.index(source)
        last = actors.index(target) if target else first + 1
        first, last = sorted((first, last))
        need = len(text) * LETTER + 24
        missing = need - sum(gaps[first:last])
        if missing > 0:
            for gap in range(first, min(last, len(gaps))):
                gaps[gap] += missing / (last - first)
    at = MARGIN + max(40, len(actors[0]) * LETTER / 2 + 12)
    xs = []
    for gap in gaps:
        xs.append(at)
        at += gap
    return dict(zip(actors, xs)), at


def text(x, y, words, anchor="middle", more=""):
    """One line of words."""
    return (f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" {FONT}'
            f'{more}>{html.escape(words)}</text>')


def draw_message(out, x, y, row):
    """An arrow, or a note beside a line."""
    source, target, words = row
    if not target:
        out.append(f'<circle cx="{x[source]:.0f}" cy="{y - 4}" r="3"/>')
        out.append(text(x[source] + 9, y, words, "start", ' fill="#555"'))
        return
    dashed = ' stroke-dasharray="5 4"' if words.startswith("*") else ""
    out.append(f'<line x1="{x[source]:.0f}" y1="{y}" x2="{x[target]:.0f}" '
               f'y2="{y}" stroke="#000"{dashed} marker-end="url(#arrow)"/>')
    out.append(text((x[source] + x[target]) / 2, y - 5, words.lstrip("* ")))


def draw(actors, rows):
    """The lines of the SVG."""
    x, width = places(actors, rows)
    height = HEAD + STEP * (len(rows) + 1) + MARGIN
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" '
           f'height="{height}" viewBox="0 0 {width:.0f} {height}">',
           '<defs><marker id="arrow" markerWidth="9" markerHeight="8" refX="8" '
           'refY="4" orient="auto"><path d="M0,0 L9,4 L0,8 z"/></marker></defs>',
           f'<rect width="{width:.0f}" height="{height}" fill="#fff"/>']
    for actor in actors:
        half = len(actor) * LETTER / 2 + 10
        out.append(f'<line x1="{x[actor]:.0f}" y1="{HEAD}" x2="{x[actor]:.0f}" '
                   f'y2="{height - MARGIN}" stroke="#999"/>')
        out.append(f'<rect x="{x[actor] - half:.0f}" y="{MARGIN - 4}" '
                   f'width="{2 * half:.0f}" height="{HEAD - MARGIN + 2}" rx="4" '
                   'fill="#eef3f8" stroke="#567"/>')
        out.append(text(x[actor], HEAD - 11, actor, more=' font-weight="bold"'))
    for number, row in enumerate(rows, 1):
        draw_message(out, x, HEAD + STEP * number, row)
    return out + ["</svg>"]


def main():
    """Read, draw, write."""
    if len(sys.argv) != 3:
        sys.exit(__doc__.split("\n\n")[1])
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write("\n".join(draw(*parse(sys.argv[1]))) + "\n")


main()
