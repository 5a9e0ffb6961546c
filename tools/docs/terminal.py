#!/usr/bin/env python3
"""Runs a command in a terminal and draws what it shows, with its colours, as a PNG.

usage: terminal.py [--columns N] [--seconds S] [--prompt TEXT] OUT.png -- COMMAND...

Needs pyte and Pillow of PyPI, and DejaVu Sans Mono (Debian's fonts-dejavu-core), or --font FILE.
"""

import argparse
import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pyte
from PIL import Image, ImageDraw, ImageFont

FONT = "/usr/share/fonts/truetype/dejavu/DejaVuSansMono.ttf"
ROWS = 120  # more than any answer has: nothing scrolls away
POINTS, MARGIN = 22, 20
PAPER, INK = "#1e2127", "#dcdfe4"
COLOURS = {"default": INK, "black": "#1e2127", "red": "#ff6b74", "green": "#98c379", "brown": "#e5c07b", "blue": "#61afef",
           "magenta": "#c678dd", "cyan": "#56b6c2", "white": INK, "brightblack": "#7f8794"}


def output_of(command, columns, seconds):
    """What it writes to a terminal within so many seconds; then it is killed."""
    near, far = pty.openpty()
    fcntl.ioctl(far, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, columns, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": str(ROWS)}
    environment.pop("NO_COLOR", None)
    with subprocess.Popen(command, stdin=far, stdout=far, stderr=far, env=environment, start_new_session=True) as process:
        os.close(far)
        written, deadline = b"", time.monotonic() + seconds
        while time.monotonic() < deadline:
            if not select.select([near], [], [], 0.1)[0]:
                continue
            try:
                written += os.read(near, 65536)
            except OSError:  # nobody has the other end open any more
                break
        if process.poll() is None:
            process.kill()
    os.close(near)
    return written


def screen_of(written, columns):
    """The terminal's cells after that. pyte knows no faint text, so it becomes grey."""
    screen = pyte.Screen(columns, ROWS)
    pyte.ByteStream(screen).feed(written.replace(b"\x1b[2m", b"\x1b[90m"))
    return [[screen.buffer[row][column] for column in range(columns)] for row in range(ROWS)]


def trimmed(rows):
    """Without the empty rows at the end and the empty columns at the right."""
    def used(row):
        return max((i + 1 for i, cell in enumerate(row) if cell.data.strip()), default=0)
    while rows and not used(rows[-1]):
        rows.pop()
    width = max(map(used, rows), default=0)
    return [row[:width] for row in rows]


def hex_of(colour, otherwise):
    if colour == "default":
        return otherwise
    return COLOURS.get(colour) or (f"#{colour}" if len(colour) == 6 else otherwise)


def draw(rows, path, font_file=FONT):
    """Rows of pyte's cells as a picture."""
    fonts = {bold: ImageFont.truetype(font_file.replace("Mono.", "Mono-Bold.") if bold else font_file, POINTS)
             for bold in (False, True) if not bold or Path(font_file.replace("Mono.", "Mono-Bold.")).exists()}
    across, down = round(fonts[False].getlength("M")), round(POINTS * 1.3)
    picture = Image.new("RGB", (max(map(len, rows)) * across + 2 * MARGIN, len(rows) * down + 2 * MARGIN), PAPER)
    pen = ImageDraw.Draw(picture)
    for y, row in enumerate(rows):
        for x, cell in enumerate(row):
            ink, paper = hex_of(cell.fg, INK), hex_of(cell.bg, PAPER)
            if cell.reverse:
                ink, paper = paper, ink
            left, top = MARGIN + x * across, MARGIN + y * down
            if paper != PAPER:
                pen.rectangle((left, top, left + across - 1, top + down - 1), fill=paper)
            if cell.data.strip():
                pen.text((left, top), cell.data, fill=ink, font=fonts.get(cell.bold, fonts[False]))
    picture.quantize(64, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(path, optimize=True)
    return picture.size


def shoot(command, path, columns=160, seconds=10, prompt=None, font=FONT):
    """The picture of a command, below the line by which somebody would call it."""
    words = f"$ {prompt or ' '.join(map(str, command))}"
    rows = trimmed(screen_of(output_of([str(word) for word in command], columns, seconds), columns))
    first = [pyte.screens.Char(one, fg="brightblack" if i == 0 else "default", bold=i > 0) for i, one in enumerate(words)]
    return draw([first, *rows], path, font)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--columns", type=int, default=160)
    parser.add_argument("--seconds", type=float, default=10, help="how long it may run")
    parser.add_argument("--prompt", help="what to show instead of the command")
    parser.add_argument("--font", default=FONT)
    parser.add_argument("out")
    parser.add_argument("command", nargs="+")
    chosen = parser.parse_args()
    width, height = shoot(chosen.command, chosen.out, chosen.columns, chosen.seconds, chosen.prompt, chosen.font)
    print(f"{chosen.out}: {width}x{height}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
