"""The trainers of the nodes: one gradring-chaos-trainers each, which forks them on command."""

import os
import selectors
import subprocess
import time

from cluster.process import FOREIGN, MARK

from .records import Trainer
from .schedule import PER_NODE, RANKS

PROGRAM = "gradring-chaos-trainers"


class Nursery:
    """Of one node."""

    def __init__(self, cluster, node, job, folder, options):
        environment = {key: value for key, value in os.environ.items() if not FOREIGN.search(key)}
        environment.update({MARK: cluster.mark, "GRADRING_RUNTIME_DIR": str(node.runtime_dir), "GRADRING_JOB": job,
                            "GRADRING_LOCAL_SIZE": str(PER_NODE)})
        self.node = node
        with open(folder / f"{PROGRAM}-{node.name}.err", "wb") as err:
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "--", cluster.program(PROGRAM), "--folder", folder, "--size",
                 str(RANKS), *options],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err, env=environment, bufsize=0,
                start_new_session=True)
        os.set_blocking(self.process.stdout.fileno(), False)
        self._partial = b""

    def spawn(self, rank, serial):
        self.process.stdin.write(f"{rank} {serial}\n".encode())

    def news(self):
        """What it said since, as lists of words."""
        self._partial += self.process.stdout.read() or b""
        *lines, self._partial = self._partial.split(b"\n")
        return [line.decode().split() for line in lines]

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10)


class Nurseries:
    """All trainers of the run. A rank that ended is started again after a pause, as long as that is wanted."""

    def __init__(self, cluster, job, folder, options):
        self._folder = folder
        self._all = [Nursery(cluster, node, job, folder, options) for node in cluster.nodes]
        self._selector = selectors.DefaultSelector()
        for one in self._all:
            self._selector.register(one.process.stdout, selectors.EVENT_READ, one)
        self._count = 0
        self._asked = {}        # serial: rank, until its pid is known
        self._due = {}          # rank: when to start it again
        self.living = {}        # rank: Trainer
        self.ended = []         # Trainers whose files are to be read to the end
        self.restarting = True
        self.pauses = lambda: 0.05

    def start(self, rank):
        self._count += 1
        serial = f"r{rank}-{self._count}"
        self._asked[serial] = rank
        self._all[rank // PER_NODE].spawn(rank, serial)

    def start_all(self):
        for rank in range(RANKS):
            self.start(rank)

    def wait(self, seconds):
        """Takes in what happened within so many seconds. Returns the trainers that ended."""
        over = []
        for key, _events in self._selector.select(max(0.0, seconds)):
            for words in key.data.news():
                over += self._take_in(words)
        now = time.monotonic()
        for rank in [rank for rank, at in self._due.items() if at <= now]:
            del self._due[rank]
            if self.restarting:
                self.start(rank)
        return over

    def _take_in(self, words):
        serial = words[1]
        if words[0] == "started":
            rank = self._asked.pop(serial)
            self.living[rank] = Trainer(serial, rank, int(words[2]), self._folder / serial, time.monotonic())
            return []
        rank = int(serial[1:].split("-")[0])
        trainer = self.living.pop(rank)
        trainer.ended = time.monotonic()
        trainer.how = " ".join(words[2:])
        self.ended.append(trainer)
        self._due[rank] = trainer.ended + self.pauses()
        return [trainer]

    def close(self):
        self.restarting = False
        for one in self._all:
            one.close()
        self._selector.close()
