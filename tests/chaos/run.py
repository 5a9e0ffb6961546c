"""One run: a cluster, its trainers, the faults of a seed, and what came of it."""

import random
import sys
import time
from pathlib import Path

import cluster as testbed

from . import bundle, health
from .injector import Injector
from .judge import Judge
from .listener import Listener, Traffic
from .nursery import Nurseries
from .schedule import COSTLY_KINDS, NODES, RANKS, kept_nodes, plan
from .stopwatch import StopWatch
from .wakeup import WakeUps

JOB = "chaos"
SETTINGS = {"quorum-wait": "5s", "slice-bytes": "16K", "flight-recorder-size": "4M"}
# Of nodes whose daemon has a keeper: longer than it takes to start one, however busy the machine.
GRACE = "10s"
# Of a trainer that ended, until it is started anew.
RESPAWN = {"balanced": (0.02, 0.5), "kills": (0.0, 0.05), "restarts": (0.02, 0.5), "calm": (0.02, 0.2), "edges": (0.02, 0.5)}
# After the last fault all ranks must be back and get on.
QUIET_SECONDS = 60.0
QUIET_EPOCHS_OPS = 50
# With --kills the next fault waits until so many ranks are in the job, but not for ever.
COMPANY, COMPANY_SECONDS = 6, 2.0
# With --calm until all are, in one view, and for a moment longer.
CALM_SECONDS, CALM_AFTER = 60.0, 0.3
# Longer than the judge waits for the last word on an op, at ten deaths a second.
KEPT_TRAINERS = 600
PROGRESS_EVERY = 5.0


class Failed(Exception):
    """The run found what must not be."""


class Run:
    def __init__(self, programs, seed, mode, minutes, elements, keep=False, say=print):
        self._say = say
        self._mode = mode
        self._keep = keep
        self.seed, self.minutes = seed, minutes
        self._seconds = minutes * 60
        self._schedule, self._kept = plan(seed, mode, self._seconds), kept_nodes(seed, mode)
        self._log = []
        self._cluster = testbed.Cluster(programs, NODES, network=testbed.Namespaces, settings=SETTINGS)
        self._folder = self._cluster.folder / "trainers"
        self._folder.mkdir()
        self._options = ["--elements", str(elements)]

    def go(self):
        """Returns a dict of figures. Complaints are in it, and the folder of the support bundle if there are any."""
        try:
            return self._go()
        finally:
            left = self._cluster.close()
            for one in left:
                self._say(f"at the end: {one}")

    def _go(self):
        for node in self._kept:
            self._cluster.configure(self._cluster.nodes[node], restart_grace=GRACE)
        self._cluster.start(kept=self._kept)
        self._nurseries = Nurseries(self._cluster, JOB, self._folder, self._options)
        self._injector = Injector(self._cluster, self._nurseries)
        self._born = {node.daemon_pid(): time.monotonic() for node in self._cluster.nodes}
        self.judge, self.watch, self.growth = Judge(), StopWatch(), health.Growth()
        self._wakeups = WakeUps()
        self._complaints, self._hangs = [], 0
        pauses = random.Random(self.seed)
        self._nurseries.pauses = lambda: pauses.uniform(*RESPAWN[self._mode])
        self._nurseries.start_all()
        self._began = time.monotonic()
        self._traffic = Traffic(self._began)
        self._standstill = health.Standstill(health.STANDSTILL_BOUND[self._mode], self._began)
        self._listener = Listener(self.judge, self.watch, self._traffic)
        self._finished = []
        self._next_progress = 0.0
        try:
            self._churn()
            self._quiet()
        except Failed as failure:
            self._complaints.append(str(failure))
        figures = self._figures()
        if self._complaints or self.judge.complaints or self._keep:
            figures["bundle"] = str(bundle.write(
                Path("/tmp") / f"gradring-chaos-{self._mode}-{self.seed}-{int(time.monotonic())}", self._cluster, JOB,
                list(self._nurseries.living.values()), self._finished,
                self._complaints + self.judge.complaints, self._log))
        self._nurseries.close()
        return figures

    # ---- while faults come ----

    def _churn(self):
        self._slip = 0.0
        for fault in self._schedule:
            self._work_until(self._began + fault.at + self._slip, brief=fault.follows)
            if not fault.follows and self._mode == "kills":
                self._wait_for(lambda: len(self._inside()) >= COMPANY, COMPANY_SECONDS)
            if self._mode == "calm":
                self._wait_for(self._is_whole, CALM_SECONDS)
                self._work_until(time.monotonic() + CALM_AFTER)
            present = [one for one in self._nurseries.living.values()
                       if one.epoch > 0 and not self._injector.is_excused(one)]
            disturbed = self._injector.disturbs()
            at = self._injector.inject(fault)
            self._log.append(f"{time.monotonic():.6f} {fault} {'hit' if at else 'nobody'}")
            if at is None:
                continue
            self.watch.fault(fault, at, present, disturbed)
            if fault.kind == "kill-daemon":
                self.judge.killed_daemons.add(fault.target)
            if fault.kind in COSTLY_KINDS:
                self.judge.may_cost_node = at + fault.lasts
            if time.monotonic() > self._began + self._seconds:
                break
        self._work_until(self._began + self._seconds)

    def _inside(self):
        return [one for one in self._nurseries.living.values() if one.epoch > 0]

    def _is_whole(self):
        """All ranks are in one view, and nothing is stopped or cut."""
        inside = self._inside()
        return len(inside) == RANKS and len({one.epoch for one in inside}) == 1 and not self._injector.disturbs()

    def _wait_for(self, done, seconds):
        """The schedule waits as well. With --kills, killing those that are not in the job yet shows little, and keeps it
        from growing."""
        began = time.monotonic()
        while time.monotonic() < began + seconds and not done():
            self._work_until(time.monotonic() + 0.01)
        self._slip += time.monotonic() - began

    def _work_until(self, until, brief=False):
        """Reads, judges and looks after everybody until it is time for the next fault."""
        while True:
            now = time.monotonic()
            self._injector.undo_due(now)
            if brief:  # the next fault comes within milliseconds: nothing else is done before it
                time.sleep(max(0.0, until - now))
                return
            left = min(until, self._injector.next_due()) - now
            self._take_in(min(0.05, max(0.0, left)))
            self._read_logs()
            self._look_after()
            if time.monotonic() >= until:
                return

    def _take_in(self, seconds):
        for trainer in self._nurseries.wait(seconds):
            self.watch.ended(trainer)

    def _read_logs(self):
        # The last words of those that ended, too, so that their files can go.
        for trainer in self._nurseries.ended:
            while self._listener.read(trainer):
                pass
            self._finished.append(trainer)
            if trainer.how != "signal 9" and not trainer.gave_up and "exit 0" != trainer.how:
                raise Failed(f"{trainer.serial} (rank {trainer.rank}) ended by {trainer.how}")
        self._nurseries.ended.clear()
        while len(self._finished) > KEPT_TRAINERS:
            self._finished.pop(0).path.unlink(missing_ok=True)
        for trainer in list(self._nurseries.living.values()):
            self._listener.read(trainer)

    def _look_after(self):
        now = time.monotonic()
        self.watch.collect(now)
        self.judge.settle(now)
        self._born.update({pid: since for _node, pid, since in self._injector.daemon_lives})
        self.growth.sample(self._cluster.nodes, self._born, now)
        for node in self._cluster.nodes:
            if node.index not in self._injector.out_nodes and not node.daemon.running():
                raise Failed(f"gradringd of {node.name} ended with status {node.daemon.status}:\n{node.log(30)}")
        stuck = health.hanging(self._nurseries.living.values(), self._injector, now)
        if stuck:
            self._hangs = len(stuck)
            raise Failed("somebody hangs: " + "; ".join(stuck))
        still = self._standstill.look(self._traffic.last_ended, self._injector.disturbs(), now)
        if still:
            self._hangs = len(self._nurseries.living)
            raise Failed(f"somebody hangs: {still}")
        if self.judge.complaints:
            raise Failed(f"what trainers were told does not fit: {self.judge.complaints[0]}")
        if now >= self._next_progress:
            self._next_progress = now + PROGRESS_EVERY
            self._say(self._progress(now))
            sys.stdout.flush()

    def _progress(self, now):
        seconds = now - self._began
        faults = sum(self._injector.done.values())
        alive = len(self._inside())
        epoch = max((one.epoch for one in self._nurseries.living.values()), default=0)
        return (f"{seconds:6.0f} s  {faults} faults, {self._injector.sigkills} SIGKILLs "
                f"({self._injector.sigkills / max(1, seconds):.1f}/s), {self.judge.verdicts} verdicts, "
                f"{alive} ranks in the job, epoch {epoch}, load {health.load_average()}")

    # ---- when they are over ----

    def _quiet(self):
        """Once nothing happens any more, all ranks come back, and get on."""
        self._injector.undo_all()
        until = time.monotonic() + QUIET_SECONDS
        settles = None  # the epoch, and the op with whose end it is more than a pause before the next fault shows
        while True:
            self._work_until(time.monotonic() + 0.2)
            together = self._inside()
            if self._is_whole():
                if settles is None or settles[0] != together[0].epoch:
                    settles = (together[0].epoch, max(one.expected for one in together) + 2)
                if min(one.expected_end for one in together) >= settles[1]:
                    break
            if time.monotonic() > until:
                raise Failed(f"{len(together)} of {RANKS} ranks are in the job {QUIET_SECONDS:.0f} s after the last "
                             f"fault, in epochs {[one.epoch for one in together]}")
        epoch = together[0].epoch
        target = max(one.expected for one in together) + QUIET_EPOCHS_OPS
        while min(one.expected_end for one in together) < target:
            self._work_until(time.monotonic() + 0.2)
            if {one.epoch for one in together} != {epoch}:
                raise Failed("the view changed although nothing happened any more")
        self._nurseries.restarting = False
        self._injector.kill_rest(list(self._nurseries.living.values()))
        while self._nurseries.living:
            self._take_in(0.05)
        self._read_logs()
        self.judge.settle(time.monotonic(), all_of_it=True)
        if self.judge.complaints:
            raise Failed(f"what trainers were told does not fit: {self.judge.complaints[0]}")
        self._assert_idle()

    def _assert_idle(self):
        def idle():
            # A daemon with a keeper has its own record in memory of the same kind.
            return all(len(node.segments()) == (node.index in self._kept) and not node.ask("status")["sessions"]
                       for node in self._cluster.nodes)
        try:
            testbed.wait_until(idle, 20, "the daemons hold nothing of trainers that are gone")
        except testbed.TookTooLong as error:
            raise Failed(str(error)) from None

    def _figures(self):
        now = time.monotonic()
        under_way, ended = self._traffic.shares(min(now, self._began + self._seconds))
        return {
            "mode": self._mode, "seed": self.seed, "seconds": round(now - self._began, 1),
            "faults": self._injector.done, "missed": self._injector.missed, "sigkills": self._injector.sigkills,
            "during_a_view_change": self.watch.during, "verdicts": self.judge.verdicts, "ops": self.judge.ops,
            "shrunk": self.judge.shrunk, "excused": self.judge.excused, "ends": self.judge.ends,
            "refusals": self._listener.refusals, "under_way": round(under_way, 4), "ended_tenths": round(ended, 4),
            "standstill": round(self._standstill.longest, 3),
            "times": self.watch.times, "crowded": self.watch.crowded, "load": health.load_average(),
            "wakeup": self._wakeups.end(), "growth": self.growth.lines(),
            "rss_slopes": self.growth.slopes("rss_bytes"), "descriptor_slopes": self.growth.slopes("descriptors"),
            "thread_slopes": self.growth.slopes("threads"),
            "complaints": self._complaints + self.judge.complaints,
            "hangs": self._hangs, "divergences": len(self.judge.complaints),
            "other_complaints": 0 if self.judge.complaints or self._hangs else len(self._complaints),
        }
