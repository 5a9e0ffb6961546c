"""A root that is booted by systemd in namespaces of its own, as a host is: its own processes, network, cgroups and journal."""

import contextlib
import json
import os
import subprocess
from pathlib import Path

from cluster import TookTooLong, wait_until

# The build host may have the old hierarchy of cgroups or a mixture; systemd is given a fresh view of the new one.
BOOT = """
mount --make-rprivate /
umount -R /sys/fs/cgroup
mount -t cgroup2 cgroup /sys/fs/cgroup
mkdir -p /sys/fs/cgroup/{name}
echo $$ >/sys/fs/cgroup/{name}/cgroup.procs
exec systemd-nspawn --quiet --directory={path} --machine={name} --register=no --keep-unit --boot --console=pipe \
  {more}
"""


class Host:
    """Use as a context: booted on the way in, powered off on the way out."""

    def __init__(self, root, name="gradring-host", *more):
        self.root = root
        self.name = name
        self._more = " ".join(more or ("--private-network",))
        self._log = Path(str(root.path) + ".console")
        self._console = self._init = None

    def __enter__(self):
        (self.root.path / "etc/hostname").write_text(f"{self.name}\n")
        script = BOOT.format(name=self.name, path=self.root.path, more=self._more)
        with open(self._log, "wb") as log:
            self._console = subprocess.Popen(["unshare", "-m", "sh", "-e", "-c", script], stdin=subprocess.DEVNULL,
                                             stdout=log, stderr=subprocess.STDOUT)
        try:
            self._init = wait_until(self._find_init, 30, "the root boots")
            wait_until(lambda: self.run("systemctl", "is-system-running", check=False).stdout.strip() in ("running", "degraded"),
                       60, "the root is up")
        except TookTooLong as error:
            self.__exit__()
            raise AssertionError(f"{error}; its console says:\n{self._log.read_text(errors='replace')[-3000:]}") from None
        return self

    def __exit__(self, *_):
        if self._init and self._console.poll() is None:
            self.run("systemctl", "poweroff", check=False)
        try:
            self._console.wait(60)
        except subprocess.TimeoutExpired:
            self._console.kill()
            self._console.wait(20)
        for at in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
            for folder, _, _ in os.walk(f"{at}/{self.name}", topdown=False):
                with contextlib.suppress(OSError):
                    os.rmdir(folder)

    def _find_init(self):
        """Process 1 of the container, once it is systemd."""
        if self._console.poll() is not None:
            raise AssertionError(f"systemd-nspawn ended with status {self._console.returncode}:\n{self._log.read_text(errors='replace')}")
        for line in subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout.splitlines():
            pid, parent, args = line.split(None, 2)
            if int_or_0(parent) == self._console.pid and "systemd-nspawn" not in args and "systemd" in args:
                return int(pid)
        return None

    def command(self, *words):
        return ["nsenter", "-t", str(self._init), "-a", "/usr/bin/env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/",
                "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive", *map(str, words)]

    def run(self, *words, seconds=60, check=True):
        done = subprocess.run(self.command(*words), capture_output=True, text=True, timeout=seconds, check=False,
                              stdin=subprocess.DEVNULL)
        if check and done.returncode != 0:
            raise AssertionError(f"{' '.join(map(str, words))}: exit status {done.returncode}:\n{done.stdout}{done.stderr}")
        return done

    def start(self, *words):
        """A command that goes on; its output is read from what is returned."""
        return subprocess.Popen(self.command(*words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True)

    def show(self, unit, name):
        return self.run("systemctl", "show", "--property", name, "--value", unit).stdout.strip()

    def journal(self, *matches):
        """Entries that match, oldest first, as dictionaries."""
        said = self.run("journalctl", "--output=json", "--all", "--no-pager", *matches, check=False).stdout
        return [json.loads(line) for line in said.splitlines() if line.startswith("{")]


def int_or_0(text):
    return int(text) if text.isdigit() else 0
