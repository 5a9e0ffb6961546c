"""A process that only sleeps, and measures how late it is woken: what the machine itself adds to every time here.

usage: wakeup.py        until its stdin ends; then p50 and p99 in seconds on stdout
"""

import select
import subprocess
import sys
import time

PAUSE = 0.005
KEPT = 200_000


class WakeUps:
    def __init__(self):
        self._process = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def end(self):
        """(p50, p99) in seconds."""
        out, _err = self._process.communicate()
        return tuple(map(float, out.split()))


def main():
    late = []
    while not select.select([sys.stdin], [], [], 0)[0]:
        before = time.monotonic()
        time.sleep(PAUSE)
        if len(late) < KEPT:
            late.append(time.monotonic() - before - PAUSE)
    late.sort()
    print(late[len(late) // 2], late[int(len(late) * 0.99)])


if __name__ == "__main__":
    main()
