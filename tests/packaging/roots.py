"""Throw-away root folders: the distribution with nothing of gradring in it, to install into and to look at afterwards."""

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

# What a booted root and the commands of docs/install.md need, and no library of gradring's.
PACKAGES = "systemd,systemd-sysv,dbus,iproute2,procps"
# Where programs put what says nothing about what is installed: caches, logs, and the package manager's own state.
PASSING = ("proc/", "sys/", "dev/", "run/", "tmp/", "var/cache/", "var/lib/apt/", "var/lib/dpkg/", "var/log/", "debs/")


def codename():
    words = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    return words["VERSION_CODENAME"].strip('"')


def base(folder):
    """A tar of the distribution in `folder`, made once; the mirror is the one that mmdebstrap knows."""
    tar = folder / f"root-{codename()}.tar"
    if not tar.exists():
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = tar.with_suffix(".part.tar")
        subprocess.run(["mmdebstrap", "--quiet", "--variant=apt", f"--include={PACKAGES}", codename(), unfinished],
                       check=True, timeout=1800)
        unfinished.rename(tar)
    return tar


class Root:
    """Use as a context: unpacked on the way in, deleted on the way out."""

    def __init__(self, tar, folder, mounts=True):
        self.path = Path(folder)
        self._tar = tar
        self._mounted = mounts  # a booted root mounts its own
        self._mounts = contextlib.ExitStack()

    def __enter__(self):
        self.path.mkdir(parents=True)
        subprocess.run(["tar", "-xpf", self._tar, "-C", self.path, "--numeric-owner"], check=True, timeout=300)
        shutil.copy("/etc/resolv.conf", self.path / "etc/resolv.conf")
        if not self._mounted:
            return self
        self.mount("proc", "-t", "proc", "proc")
        for seen in ("dev", "sys"):  # UCX lists the network devices from /sys
            self.mount(seen, "--rbind", f"/{seen}", "--make-rslave")
        return self

    def __exit__(self, *_):
        self._mounts.close()
        subprocess.run(["rm", "-rf", "--one-file-system", self.path], check=True, timeout=120)

    def mount(self, where, *words):
        target = self.path / where
        target.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", *words, target], check=True, timeout=20)
        self._mounts.callback(subprocess.run, ["umount", "-R", "-l", target], check=True, timeout=20)

    def keep_downloads_in(self, folder):
        """The distribution's own packages are fetched once for all roots."""
        folder.mkdir(parents=True, exist_ok=True)
        (self.path / "etc/apt/apt.conf.d/99keep").write_text('APT::Keep-Downloaded-Packages "true";\n')
        self.mount("var/cache/apt/archives", "--bind", folder)

    def command(self, *words):
        return ["chroot", self.path, "/usr/bin/env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/", "LC_ALL=C.UTF-8",
                "DEBIAN_FRONTEND=noninteractive", *words]

    def run(self, *words, seconds=600, check=True):
        """Runs a command inside; what it printed is in the error if it fails."""
        done = subprocess.run(self.command(*words), capture_output=True, text=True, timeout=seconds, check=False,
                              stdin=subprocess.DEVNULL)
        if check and done.returncode != 0:
            raise AssertionError(f"{' '.join(map(str, words))}: exit status {done.returncode}:\n{done.stdout}{done.stderr}")
        return done

    def pack(self, tar):
        """What is in it, without what is mounted."""
        subprocess.run(["tar", "-cpf", tar, "--one-file-system", "--numeric-owner", "-C", self.path, "."], check=True, timeout=300)

    def files(self):
        """Every path that says something about what is installed."""
        found = set()
        for folder, folders, names in os.walk(self.path):
            here = Path(folder).relative_to(self.path)
            folders[:] = [name for name in folders if not f"{here / name}/".startswith(PASSING)]
            found |= {str(here / name) for name in names + folders}
        return found
