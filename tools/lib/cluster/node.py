"""One node: its folder, its daemon, and questions to it."""

import json
import signal
import subprocess

from .process import Footprint, Process, TookTooLong, children_of, segments_of, tail, wait_until


class Node:
    def __init__(self, cluster, index):
        self._cluster = cluster
        self.index = index
        self.name = f"n{index}"
        self.address = cluster.network.address(index)
        self.prefix = cluster.network.prefix(index)
        self.runtime_dir = cluster.folder / self.name
        self.runtime_dir.mkdir(mode=0o755)
        self.config = cluster.folder / f"{self.name}.conf"
        self.daemon = None  # or its keeper, with --keep
        self._kept = False
        self.programs = None  # a folder of its own, if it is to have one
        self._starts = 0

    def as_host(self):
        """What a command begins with, behind the prefix, to run under the node's name and to find others by theirs.

        In a namespace only.
        """
        hosts = self._cluster.folder / "hosts"
        if not hosts.exists():
            hosts.write_text("127.0.0.1 localhost\n" + "".join(
                f"{node.address.rpartition(':')[0]} {node.name}\n" for node in self._cluster.nodes))
        return ["unshare", "--uts", "--mount", "sh", "-c",
                f'mount --bind {hosts} /etc/hosts && hostname {self.name} && exec "$@"', "sh"]

    def write_config(self, peers, settings):
        """A value of None leaves a setting out; one that may be given several times can be a list."""
        lines = {"node": self.name, "runtime-dir": self.runtime_dir, "listen": self.address, **settings}
        text = "".join(f"{key} = {one}\n" for key, value in lines.items() if value is not None
                       for one in (value if isinstance(value, list) else [value]))
        self.config.write_text(text + "".join(f"peer = {peer}\n" for peer in peers))

    def program(self, name):
        return self.programs / name if self.programs else self._cluster.program(name)

    def run_daemon(self, *flags):
        """Starts the daemon and returns at once, see wait_ready. On the log each start has its own file."""
        self._starts += 1
        self._kept = "--keep" in flags
        self.daemon = Process(f"gradringd-{self.name}-{self._starts}",
                              [self.program("gradringd"), "--config", self.config, *flags],
                              self._cluster.folder, self._cluster.mark, prefix=self.prefix)
        return self.daemon

    def wait_ready(self, peers, seconds=20):
        """Until it is connected with so many peers."""
        def ready():
            if not self.daemon.running():
                raise RuntimeError(f"the daemon of {self.name} ended with status {self.daemon.status}:\n{self.log()}")
            return len(self.peers("up") or []) >= peers if peers else self.ask("status", missing_ok=True)
        try:
            wait_until(ready, seconds, f"{self.name} is connected with {peers} peers")
        except TookTooLong as error:
            raise TookTooLong(f"{error}; gradringctl peers says {self.ask('peers', missing_ok=True)}; "
                              f"its log ends:\n{self.log()}") from None

    def log(self, lines=15):
        return tail(self.daemon.err, lines) or tail(self.daemon.out, lines)

    def ctl(self, *words, seconds=10):
        """gradringctl, as (exit status, output, complaint)."""
        done = subprocess.run([self.program("gradringctl"), "--runtime-dir", self.runtime_dir, *words],
                              capture_output=True, text=True, timeout=seconds, check=False)
        return done.returncode, done.stdout, done.stderr

    def ask(self, *words, missing_ok=False):
        """What gradringctl --json says; None if nothing can be said and missing_ok."""
        status, out, err = self.ctl("--json", *words)
        if status in (0, 1) and out.strip():
            return json.loads(out)
        if missing_ok:
            return None
        raise RuntimeError(f"gradringctl {' '.join(words)} at {self.name}: exit status {status}: {err or out}")

    def peers(self, state=None):
        """The peers, or those in one state; None if the daemon does not answer."""
        answer = self.ask("peers", missing_ok=True)
        return answer and [peer for peer in answer["peers"] if state in (None, peer["state"])]

    def daemon_pid(self):
        """Of the daemon itself, as against its keeper; None while there is none."""
        return next(iter(children_of(self.daemon.pid)), None) if self._kept else self.daemon.pid

    def footprint(self):
        return Footprint.of(self.daemon_pid())

    def segments(self):
        return segments_of(self.daemon_pid())

    def stop(self, seconds=15):
        """Asks the daemon to end, as a service manager would. Returns a complaint, or None."""
        if self.daemon is None or not self.daemon.running():
            return None
        self.daemon.signal(signal.SIGCONT)
        self.daemon.signal(signal.SIGTERM)
        try:
            status = self.daemon.wait(seconds)
        except TookTooLong:
            self.daemon.kill()
            return f"gradringd of {self.name} did not end within {seconds} s of SIGTERM:\n{self.log()}"
        if status != 0:
            return f"gradringd of {self.name} ended with status {status}:\n{self.log()}"
        left = sorted(path.name for path in self.runtime_dir.iterdir() if path.is_socket())
        return f"gradringd of {self.name} left {', '.join(left)} in {self.runtime_dir}" if left else None
