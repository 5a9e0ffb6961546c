#!/usr/bin/env python3
"""Writes the manual pages and the completions of the programs, from their --help and the texts in pages/.

usage: generate.py VERSION FOLDER PROGRAM...      PROGRAM: path of a built one; FOLDER gets man/ bash/ zsh/ fish/
"""

import sys
from pathlib import Path

import bash
import fish
import helptext
import manual
import zsh

PAGES = Path(__file__).resolve().parent / "pages"


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def generate(version, out, programs):
    told = {Path(path).name: helptext.ask(Path(path).name, path) for path in programs}
    for name, one in told.items():
        write(out / "bash" / name, bash.script(one))
        write(out / "zsh" / f"_{name}", zsh.script(one))
        write(out / "fish" / f"{name}.fish", fish.script(one))
    for template in sorted(PAGES.iterdir()):
        program = template.name.split(".")[0]
        if program in told:
            write(out / "man" / template.name, manual.page(template.read_text(), told[program], version))


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    generate(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
