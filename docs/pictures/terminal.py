#!/usr/bin/env python3
"""Draws the text of standard input as a picture of a terminal (SVG): python3 terminal.py [COLUMNS] <why.txt >why.svg

Lines that begin with `$ ` are commands. A line that is too long continues below, indented by four more columns.
"""

import sys
from html import escape

COLUMNS = int(sys.argv[1]) if len(sys.argv) > 1 else 112
CHARACTER = 8.43  # The width of a character of 14 px in a monospaced font.
LINE = 20
MARGIN = 22
TITLE = 34


def wrapped(line):
    """Yields the parts of a line, each at most COLUMNS long."""
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    while len(line) > COLUMNS:
        end = line.rfind(" ", len(indent) + 1, COLUMNS + 1)
        end = end if end > 0 else COLUMNS
        yield line[:end]
        line = indent + line[end:].lstrip()
    yield line


def element(number, line):
    kind = ' class="command"' if line.startswith("$ ") else ""
    # Not every program that draws SVG keeps spaces, least of all at the beginning of a line.
    left = MARGIN + (len(line) - len(line.lstrip())) * CHARACTER
    text = escape(line.strip()).replace(" ", "\u00a0")
    return f'<text x="{left:g}" y="{TITLE + LINE * (number + 1)}"{kind}>{text}</text>'


lines = [part for line in sys.stdin.read().rstrip("\n").split("\n") for part in wrapped(line)]
width = round(2 * MARGIN + COLUMNS * CHARACTER)
height = TITLE + LINE * len(lines) + MARGIN
dots = [("#ff5f57", 22), ("#febc2e", 42), ("#28c840", 62)]
print(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">')
print(
    "<style>text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace;"
    " fill: #e6edf3; white-space: pre } .command { fill: #7ee787; font-weight: bold }</style>"
)
print(f'<rect width="{width}" height="{height}" rx="10" fill="#161b22"/>')
for colour, x in dots:
    print(f'<circle cx="{x}" cy="18" r="6" fill="{colour}"/>')
for number, line in enumerate(lines):
    if line:
        print(element(number, line))
print("</svg>")
