"""One scenario: everybody is started, then measured in turn, round by round."""

import contextlib
import math
import random
import shutil
import signal
import statistics
from dataclasses import dataclass, field
from pathlib import Path

import cluster as testbed

from .board import Board, Lost
from .scenarios import MIB, text_of

SAMPLE_SECONDS = 0.02   # a sample is at least so long
CALLS_MOST = 5000
SAMPLES = 3
START_SECONDS = 60


def machine_cpu():
    """Seconds that the machine's processors were busy, with interrupts."""
    with open("/proc/stat", encoding="ascii") as stat:
        user, nice, system, _idle, _iowait, irq, softirq = map(int, stat.readline().split()[1:8])
    return (user + nice + system + irq + softirq) / 100


@dataclass
class Figures:
    """Of a contestant and a size: one entry a round."""
    seconds: list = field(default_factory=list)
    cpu: list = field(default_factory=list)      # its ranks' and daemons', a call
    machine: list = field(default_factory=list)  # the whole machine's

    def median(self):
        return statistics.median(self.seconds)


class Running:
    """A contestant whose ranks wait for orders."""

    def __init__(self, contestant, ring, scenario, library, most):
        self.contestant = contestant
        self.error = None
        self._ring = ring
        self._scenario = scenario
        self._calls = {}
        self.figures = {}
        self._board = Board(library, ring.folder, contestant.name, scenario.ranks)
        self._processes = []
        unfair = contestant.why_not(scenario)
        if unfair:
            self.error = unfair
            return
        try:
            self._processes = contestant.start(ring, scenario, self._board.path, most)
            testbed.wait_until(lambda: self._alive() or self._board.complete(), START_SECONDS,
                               f"the ranks of {contestant.name} are ready")
        except (OSError, Lost, testbed.TookTooLong) as error:
            self.give_up(error)

    def _alive(self):
        for process in self._processes:
            if not process.running():
                said = (process.complains().strip() or process.says().strip()).splitlines()[-6:]
                raise Lost(f"{process.name} ended with status {process.status}: {' | '.join(said)[:400]}")

    def give_up(self, error):
        self.error = str(error)
        for process in self._processes:
            process.kill()

    def measure(self, size, seconds):
        """One round; `seconds`: how long it may take."""
        if self.error:
            return
        self._board.signal(signal.SIGCONT)
        try:
            self._measure(size, seconds)
        except Lost as error:
            self.give_up(f"at {text_of(size)}: {error}")
        self.rest()

    def rest(self):
        """Some have threads that never sleep; they must not disturb the others."""
        if not self.error:
            self._board.signal(signal.SIGSTOP)

    def _measure(self, size, seconds):
        if size not in self._calls:
            wrong = self._board.check(size, seconds, self._alive)
            if wrong:
                raise Lost(f"{wrong} elements of the result are wrong")
            each = self._board.time(size, 1, 3, seconds, self._alive).seconds
            if each < SAMPLE_SECONDS:
                each = min(each, self._board.time(size, 10, 1, seconds, self._alive).seconds)
            self._calls[size] = max(1, min(CALLS_MOST, math.ceil(SAMPLE_SECONDS / each)))
        pids = [pid for pid in self.contestant.daemons(self._ring)]
        daemons, machine = sum(map(testbed.cpu_seconds, pids)), machine_cpu()
        taken = self._board.time(size, self._calls[size], SAMPLES, seconds, self._alive)
        daemons, machine = sum(map(testbed.cpu_seconds, pids)) - daemons, machine_cpu() - machine
        line = self._scenario.line_seconds(size)
        if line is not None and size >= MIB and taken.seconds < 0.9 * line * self.contestant.bytes_sent:
            raise Lost(f"it is faster than the links ({1e3 * taken.seconds:.3g} ms, they need {1e3 * line:.3g} ms), so it "
                       "goes around them")
        mine = self.figures.setdefault(size, Figures())
        mine.seconds.append(taken.seconds)
        mine.cpu.append(taken.rank_cpu + daemons / taken.calls)
        mine.machine.append(machine / taken.calls)

    def check_again(self, size, seconds):
        """That what was timed was right to the end."""
        if self.error or size not in self.figures:
            return
        self._board.signal(signal.SIGCONT)
        try:
            wrong = self._board.check(size, seconds, self._alive)
            if wrong:
                raise Lost(f"after the rounds {wrong} elements of the result are wrong")
        except Lost as error:
            self.give_up(f"at {text_of(size)}: {error}")

    def close(self):
        self._board.signal(signal.SIGCONT if not self.error else signal.SIGKILL)
        if not self.error:
            self._board.stop()
            for process in self._processes:
                try:
                    process.wait(20)
                except testbed.TookTooLong:
                    process.kill()
        self._board.close()


@contextlib.contextmanager
def names(ring):
    """The nodes know one another by name; inside the namespaces only."""
    hosts = "127.0.0.1 localhost\n" + "".join(f"{node.address.split(':')[0]} {node.name}\n" for node in ring.nodes)
    folders = [Path("/etc/netns") / ring.network.space(node.index) for node in ring.nodes]
    try:
        for folder in folders:
            folder.mkdir(parents=True)
            (folder / "hosts").write_text(hosts)
        yield
    finally:
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)


def run(scenario, contestants, sizes, rounds, context, say, patience=120):
    """{contestant's name: Running} after all rounds. `say(text)`: progress. `patience`: seconds for one order."""
    most = max(sizes)
    with testbed.Cluster(context.programs, scenario.nodes, testbed.Namespaces) as ring, \
            testbed.cubic(ring.network, scenario.nodes), names(ring):
        if scenario.rate:
            ring.network.shape(f"{scenario.rate // 10**6}mbit")
        ring.start()
        running = []
        try:
            for contestant in contestants:
                say(f"{scenario.letter}: starting {contestant.name}")
                running.append(Running(contestant, ring, scenario, context.library, most))
                running[-1].rest()
                if running[-1].error:
                    say(f"{contestant.name} does not run: {running[-1].error}", keep=True)
            steps = [(number, size) for number in range(rounds) for size in sizes]
            for done, (number, size) in enumerate(steps):
                # By chance, the same in every run: nobody always comes after the same one, whose traces it would bear.
                for one in random.Random(done).sample(running, len(running)):
                    say(f"{scenario.letter}: round {number + 1} of {rounds}, {text_of(size)}, {one.contestant.name}",
                        done / len(steps))
                    one.measure(size, patience)
            for one in running:
                for size in sizes:
                    one.check_again(size, patience)
        finally:
            for one in running:
                one.close()
    return running
