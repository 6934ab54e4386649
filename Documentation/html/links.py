#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: GPL-2.0-only
"""Print links of HTML pages that lead nowhere, and what needs a network.

Usage: links.py DIRECTORY
"""

import html.parser
import pathlib
import sys
import urllib.parse


class Page(html.parser.HTMLParser):
    """The links, the resources and the anchors of a page."""

    def __init__(self, path):
        super().__init__()
        self.links, self.resources, self.anchors = [], [], {""}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.anchors |= {attrs[name] for name in ("id", "name")
                         if attrs.get(name)}
        if tag == "a" and attrs.get("href"):
            self.links.append(attrs["href"])
        elif attrs.get("src"):
            self.resources.append(attrs["src"])
        elif tag == "link" and attrs.get("rel") == "stylesheet":
            self.resources.append(attrs["href"])


def wrong(path, pages):
    """What is wrong with the links of a page."""
    page = pages[path]
    for link in page.links + page.resources:
        parts = urllib.parse.urlsplit(link)
        if parts.scheme or parts.netloc:
            if link in page.resources:
                yield f"{link} needs a network"
            continue
        target = path
        if parts.path:
            target = (path.parent / urllib.parse.unquote(parts.path)).resolve()
        if not target.exists():
            yield f"there is no {link}"
        elif target in pages and \
                urllib.parse.unquote(parts.fragment) not in pages[target].anchors:
            yield f"there is no anchor {link}"


def main():
    """All pages below the directory."""
    if len(sys.argv) != 2:
        sys.exit(__doc__.split("\n\n")[1])
    top = pathlib.Path(sys.argv[1]).resolve()
    pages = {path: Page(path) for path in top.glob("**/*.html")}
    found = [f"{path.relative_to(top)}: {text}"
             for path in pages for text in wrong(path, pages)]
    print("\n".join(found) or f"{len(pages)} pages, and every link leads there")
    sys.exit(bool(found) or not pages)


main()
