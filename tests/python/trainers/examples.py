"""Runs examples one after the other in one process, as `python EXAMPLE WORDS --weights FOLDER/NAME-SIZE`.

The words: the folder, where ranks meet as HOST:PORT, then "NAME EXAMPLE WORD ..." for each.
"""

import contextlib
import io
import os
import runpy
import sys
from pathlib import Path

from report import say

EXAMPLES = Path(__file__).parents[3] / "client/python/examples"
folder, meeting, *runs = sys.argv[2:]
host, port = meeting.split(":")
for number, one in enumerate(runs):
    name, script, *words = one.split()
    os.environ |= {"MASTER_ADDR": host, "MASTER_PORT": str(int(port) + number)}
    sys.argv = [script, *words, "--weights", f"{folder}/{name}-{os.environ['WORLD_SIZE']}"]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        runpy.run_path(str(EXAMPLES / f"{script}.py"), run_name="__main__")
    say(name=name, last=printed.getvalue().splitlines()[-1:])
