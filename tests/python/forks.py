"""Ranks that are forked off processes that have imported torch, in the place of interpreters of their own."""

import functools
import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import cluster as testbed
from cluster.process import FOREIGN, start_program

PROGRAM = Path(__file__).with_name("fork_server.py")


class ForkServers:
    """Of the ranks of a cluster. Each node has its own, so that what an interpreter draws at its start, such as the order of
    sets, is the same for ranks of one node alone; and each environment, which libraries read as they are loaded."""

    def __init__(self, cluster, settings):
        """`settings`: what ranks have in their environment beside what comes with each."""
        self._cluster = cluster
        self._settings = settings
        self._servers = {}

    def start(self, command, environment, out, err, prefix, _uid):
        """In the place of start_program; the command is a script and its words."""
        known = frozenset((name, value) for name, value in environment.items()
                          if not FOREIGN.search(name) and name != "PYTEST_CURRENT_TEST")
        if known not in self._servers:  # all at once: they take their time
            self._servers[known] = {place: self._server(place) for place in {tuple(node.prefix) for node in self._cluster.nodes}}
        script, *words = map(str, command)
        asked = {"script": script, "words": words, "environment": environment | self._settings}
        server = self._servers[known][tuple(prefix)]
        return ForkedRank(server, server.ask(asked, [out.fileno(), err.fileno()]))

    def _server(self, prefix):
        server = ForkServer(f"fork-server-{len(self._cluster.processes)}", self._cluster, self._settings, prefix)
        self._cluster.processes.append(server.process)
        return server


class ForkServerEnded(Exception):
    """And all its ranks with it."""


class ForkServer:
    """See fork_server.py."""

    def __init__(self, name, cluster, settings, prefix):
        self._channel, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel.settimeout(60)
        with end:
            self.process = testbed.Process(name, [sys.executable, PROGRAM], cluster.folder, cluster.mark, settings, prefix,
                                           start=functools.partial(start_program, stdin=end))

    def ask(self, what, files=()):
        try:
            socket.send_fds(self._channel, [json.dumps(what).encode()], files)
            answer = self._channel.recv(64)
        except OSError:
            answer = b""
        if not answer:  # nor is it to give this answer to the next question
            self.process.kill()
            raise ForkServerEnded(f"{self.process.name} has ended, or was asked and did not answer within "
                                  f"{self._channel.gettimeout():g} s; its last words: {self.process.complains()}")
        return json.loads(answer)


class ForkedRank:
    """What cluster.Process needs of a subprocess.Popen."""

    def __init__(self, server, pid):
        self._server = server
        self._status = None
        self.pid = pid

    def poll(self):
        if self._status is None:
            try:
                self._status = self._server.ask(self.pid)
            except ForkServerEnded:
                self._status = -signal.SIGKILL
        return self._status

    def wait(self, timeout):
        deadline = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(f"pid {self.pid}", timeout)
            time.sleep(0.02)
        return self._status
