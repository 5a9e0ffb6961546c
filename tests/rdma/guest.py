"""Guests: virtual machines under emulation, joined by a wire, that run scripts for the host.

A guest boots from an initramfs, mounts a folder of the host and is told by a serial port which script in it to run;
what a script prints goes to files beside it. Nothing is waited for without a bound, and every wait ends when the guest
does.
"""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

BOOT_SECONDS = 240


class GuestError(Exception):
    """A guest ended, or did not do in time what it was told; says what it said last."""


def tell(text):
    """Progress, for people who wait."""
    print(f"  {time.strftime('%H:%M:%S')}  {text}", file=sys.__stderr__, flush=True)


class Running:
    """A script that runs in a guest."""

    def __init__(self, guest, name):
        self.guest, self.name = guest, name

    def _read(self, ending):
        path = self.guest.folder / f"{self.name}.{ending}"
        return path.read_text(errors="replace") if path.exists() else ""

    def says(self):
        return self._read("out")

    def complains(self):
        return self._read("err")

    @property
    def status(self):
        text = self._read("status").strip()
        return int(text) if text else None

    def wait(self, seconds):
        """Its exit status."""
        self.guest.wait_until(lambda: self.status is not None, seconds, self.name, self)
        return self.status

    def wait_for(self, text, seconds):
        """Until it has said this, on either output."""
        self.guest.wait_until(lambda: text in self.says() + self.complains() or self.status is not None, seconds,
                              f"{self.name} says '{text}'", self)
        if text not in self.says() + self.complains():
            raise GuestError(f"{self.guest.name}: {self.name} ended before it said '{text}': {self.last_words()}")

    def last_words(self):
        return (self.says() + self.complains())[-2000:].strip() or "it said nothing"


class Guest:
    def __init__(self, name, folder, image, wires, memory="1536M", processors=2):
        """wires: for each of its cards (path here, path of the other end), sockets of the emulators."""
        self.name, self.folder = name, Path(folder)
        self.folder.mkdir(parents=True)
        self._scripts = 0
        kernel, initramfs = image
        words = ["qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", str(processors),
                 "-m", memory, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
                 "-kernel", str(kernel), "-initrd", str(initramfs),
                 "-append", "console=ttyS0 panic=-1 quiet mitigations=off nokaslr random.trust_cpu=on",
                 "-serial", f"file:{self.folder}/console",
                 "-qmp", f"unix:{self.folder}/monitor,server=on,wait=off",
                 "-fsdev", f"local,id=host,path={self.folder},security_model=none",
                 "-device", "virtio-9p-pci,fsdev=host,mount_tag=host",
                 "-chardev", f"socket,id=port,path={self.folder}/port,server=on,wait=off",
                 "-device", "virtio-serial-pci", "-device", "virtserialport,chardev=port,name=scripts",
                 "-object", "rng-random,id=rng,filename=/dev/urandom", "-device", "virtio-rng-pci,rng=rng"]
        for number, (here, there) in enumerate(wires):
            words += ["-netdev", f"dgram,id=wire{number},local.type=unix,local.path={here},"
                                 f"remote.type=unix,remote.path={there}",
                      "-device", f"virtio-net-pci,id=card{number},netdev=wire{number},host_mtu=9000,"
                                 f"mac=52:54:00:00:0{number}:{name[-1].encode().hex()}"]
        with open(self.folder / "emulator", "wb") as log:
            self._emulator = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "--", *words],
                                              stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        self._port = self._monitor = None

    def wait_booted(self):
        began = time.monotonic()
        self.wait_until((self.folder / "ready").exists, BOOT_SECONDS, "has booted")
        self._port = self._connect("port")
        tell(f"guest {self.name} has booted in {time.monotonic() - began:.0f} s")

    def _connect(self, name):
        end = socket.socket(socket.AF_UNIX)
        end.settimeout(30)
        end.connect(f"{self.folder}/{name}")
        return end

    def running(self):
        return self._emulator.poll() is None

    def wait_until(self, condition, seconds, what, script=None):
        deadline = time.monotonic() + seconds
        reported = time.monotonic()
        while not condition():
            if not self.running():
                raise GuestError(f"guest {self.name} ended before: {what}; its console: {self.console()}")
            now = time.monotonic()
            if now > deadline:
                said = script.last_words() if script else self.console()
                raise GuestError(f"guest {self.name}: {what}: not within {seconds:g} s; it said: {said}")
            if now - reported > 15:
                reported = now
                last = script.last_words().splitlines()[-1][:90] if script else ""
                tell(f"guest {self.name}: waiting {now - deadline + seconds:.0f} s for: {what}  {last}")
            time.sleep(0.05)

    def console(self):
        path = self.folder / "console"
        return path.read_text(errors="replace")[-2000:].strip() if path.exists() else "nothing"

    def start(self, script, name=None):
        self._scripts += 1
        name = f"{self._scripts:03d}-{name or 'script'}"
        (self.folder / f"{name}.sh").write_text(script + "\n")
        self._port.sendall(f"{name}\n".encode())
        return Running(self, name)

    def run(self, script, name=None, seconds=60):
        """What it prints; a failure is told with what it said."""
        running = self.start(script, name)
        if running.wait(seconds) != 0:
            raise GuestError(f"guest {self.name}: '{script}': exit status {running.status}: {running.last_words()}")
        return running.says()

    def carrier(self, card, on):
        """Plugs the cable of a card in, or out."""
        if self._monitor is None:
            self._monitor = self._connect("monitor").makefile("rw")
            self._monitor.readline()
            self._ask("qmp_capabilities")
        self._ask("set_link", name=f"card{card}", up=on)

    def _ask(self, command, **arguments):
        self._monitor.write(json.dumps({"execute": command, "arguments": arguments}) + "\n")
        self._monitor.flush()
        while True:
            answer = json.loads(self._monitor.readline())
            if "error" in answer:
                raise GuestError(f"guest {self.name}: {command}: {answer['error']['desc']}")
            if "return" in answer:
                return

    def close(self):
        if self.running():
            self._emulator.kill()
        self._emulator.wait(30)


def pair(folder, image, cards=2):
    """Two guests, a and b, each of whose cards is joined to the other's of that number."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    ends = {name: [str(folder / f"{name}{card}") for card in range(cards)] for name in "ab"}
    guests = [Guest(name, folder / name, image, list(zip(ends[name], ends[other], strict=True)))
              for name, other in ("ab", "ba")]
    try:
        for guest in guests:
            guest.wait_booted()
    except BaseException:
        for guest in guests:
            guest.close()
        raise
    return guests
