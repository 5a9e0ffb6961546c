"""Containers of podman, with storage of their own, from an image that the project's Dockerfile makes."""

import os
import resource
import subprocess
from pathlib import Path

from cluster import wait_until
from conftest import ROOT

IMAGE = "localhost/gradring"
DOCKERFILE = ROOT / "tools/packaging/container/Dockerfile"
# The user namespaces of two tenants: each has its own root, and none of them is another's.
ONE_TENANT = ("--uidmap", "0:100000:65536", "--gidmap", "0:100000:65536")
ANOTHER = ("--uidmap", "0:200000:65536", "--gidmap", "0:200000:65536")


def rlimits():
    """Those of this process: without CAP_SYS_RESOURCE podman fails at the higher ones that it would set."""
    pid_max = int(Path("/proc/sys/kernel/pid_max").read_text())
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    processes = [pid_max if one == resource.RLIM_INFINITY else min(one, pid_max) for one in resource.getrlimit(resource.RLIMIT_NPROC)]
    return ["--ulimit", f"nofile={soft}:{hard}", "--ulimit", f"nproc={processes[0]}:{processes[1]}"]


class Engine:
    """podman; its images and containers are gone when it is closed."""

    def __init__(self, folder):
        self._folder = folder
        # runc, since crun takes no hierarchy of cgroups that is half old and half new.
        self._podman = ["podman", "--root", folder / "storage", "--runroot", folder / "run", "--tmpdir", folder / "tmp",
                        "--runtime", "runc", "--cgroup-manager", "cgroupfs", "--events-backend", "none"]

    def command(self, *words):
        return [*map(str, self._podman), *map(str, words)]

    def run(self, *words, seconds=120, check=True):
        done = subprocess.run(self.command(*words), capture_output=True, text=True, timeout=seconds,
                              check=False, stdin=subprocess.DEVNULL)
        if check and done.returncode != 0:
            raise AssertionError(f"podman {' '.join(map(str, words))}: exit status {done.returncode}:\n{done.stdout}{done.stderr}")
        return done

    def why_not(self, tar):
        """What keeps containers from running here, in podman's words, or nothing."""
        self.run("import", tar, "localhost/base", seconds=300)
        done = self.run("run", "--rm", *rlimits(), "--network", "none", *ONE_TENANT, "localhost/base", "true", check=False)
        return None if done.returncode == 0 else done.stderr.strip()

    def build(self, debs):
        """The image of the Dockerfile; there is no registry here, so what it begins with is the distribution made by hand."""
        begins_with = next(line.split()[1] for line in DOCKERFILE.read_text().splitlines() if line.startswith("FROM "))
        self.run("tag", "localhost/base", f"docker.io/library/{begins_with}")
        self.run("build", "--pull=never", "--network", "host", "--isolation", "chroot", "--file", DOCKERFILE, "--tag", IMAGE, debs,
                 seconds=900)

    def start(self, name, *words, flags=()):
        """A container of the image; `words` begin with the program, or are options of the daemon."""
        words = list(map(str, words))
        entry = [] if not words or words[0].startswith("-") else ["--entrypoint", words.pop(0)]
        command = self.command("run", "--rm", "--interactive", "--name", name, *rlimits(), "--network", "none", *flags, *entry, IMAGE,
                               *words)
        return Container(self, name, command, self._folder / f"{name}.log")

    def close(self):
        self.run("rm", "--force", "--all", "--time", "1", check=False)
        self.run("rmi", "--force", "--all", check=False)
        subprocess.run(["rm", "-rf", "--one-file-system", self._folder], check=True, timeout=120)


class Container:
    """Use as a context: it is gone on the way out."""

    def __init__(self, engine, name, command, log):
        self._engine = engine
        self.name = name
        self._log = log
        with open(log, "wb") as out:
            self._client = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=subprocess.STDOUT)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._engine.run("rm", "--force", "--ignore", "--time", "5", self.name, check=False)
        self._client.wait(30)
        self._client.stdin.close()

    def said(self):
        return self._log.read_text(errors="replace")

    def type(self, line):
        self._client.stdin.write(f"{line}\n".encode())
        self._client.stdin.flush()

    def wait(self, seconds=60):
        """Its exit status."""
        wait_until(lambda: self._client.poll() is not None, seconds, f"{self.name} ends; it said:\n{self.said()}")
        return self._client.returncode

    def wait_for(self, text, seconds=30):
        def there():
            assert self._client.poll() is None or text in self.said(), f"{self.name} ended without '{text}':\n{self.said()}"
            return text in self.said()
        wait_until(there, seconds, f"{self.name} says '{text}'")

    def pid(self):
        """Of its first process, as the machine sees it."""
        return int(self._engine.run("inspect", "--format", "{{.State.Pid}}", self.name).stdout)

    def namespaces(self):
        return {name: os.readlink(f"/proc/{self.pid()}/ns/{name}") for name in ("pid", "user", "ipc", "mnt", "net")}
