"""A bad cable: passes frames on between two devices of its own, some of them twice, some late and so behind those that
came after them.

    relay.py NEAR FAR TWICE LATE

makes the tap devices NEAR and FAR, says "ready", and works until it is killed. TWICE and LATE are shares of all frames.
What comes out of a tap is whole frames with all checksums, as no offload reaches there.
"""

import fcntl
import heapq
import os
import random
import select
import struct
import sys
import time

TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI = 0x0002, 0x1000
FRAME_MAX = 1 << 16
LATE_BY = (0.0005, 0.005)  # seconds: some dozens of frames overtake


def tap(name):
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    return fd


def pass_on(fd, frame):
    try:
        os.write(fd, frame)
    except OSError:
        pass  # the device is down, or full: a cable loses frames, too


def main():
    near, far = tap(sys.argv[1]), tap(sys.argv[2])
    twice, late = float(sys.argv[3]), float(sys.argv[4])
    other = {near: far, far: near}
    chance = random.Random(19)
    held = []  # (when it goes, number, where to, frame)
    number = 0
    print("ready", flush=True)
    while True:
        now = time.monotonic()
        while held and held[0][0] <= now:
            _when, _number, fd, frame = heapq.heappop(held)
            pass_on(fd, frame)
        patience = max(0.0, held[0][0] - now) if held else None
        for fd in select.select([near, far], [], [], patience)[0]:
            frame = os.read(fd, FRAME_MAX)
            number += 1
            if chance.random() < late:
                heapq.heappush(held, (time.monotonic() + chance.uniform(*LATE_BY), number, other[fd], frame))
                continue
            pass_on(other[fd], frame)
            if chance.random() < twice:
                pass_on(other[fd], frame)


if __name__ == "__main__":
    main()
