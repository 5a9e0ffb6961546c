"""Does to the cluster what the schedule says, and undoes it."""

import os
import signal
import time

from .schedule import NODES, PER_NODE


class Injector:
    def __init__(self, cluster, nurseries):
        self._cluster = cluster
        self._nurseries = nurseries
        self._later = []          # (when, what to call)
        self.done = {}            # kind: how many
        self.missed = {}          # kind: how many found nobody to hit
        self.sigkills = 0
        self.stopped_ranks = {}   # rank: pid
        self.out_nodes = set()    # whose daemon or link is not as it should be
        self.daemon_lives = []    # (node, pid, since)
        for node in cluster.nodes:
            self.daemon_lives.append((node, node.daemon_pid(), time.monotonic()))

    # ---- time ----

    def next_due(self):
        return min((when for when, _ in self._later), default=float("inf"))

    def undo_due(self, now):
        for entry in sorted((one for one in self._later if one[0] <= now), key=lambda one: one[0]):
            self._later.remove(entry)
            entry[1]()

    def undo_all(self):
        for _when, what in sorted(self._later, key=lambda one: one[0]):
            what()
        self._later.clear()

    def _after(self, seconds, what):
        self._later.append((time.monotonic() + seconds, what))

    # ---- faults ----

    def inject(self, fault):
        """Returns when it took effect, or None if there was nobody to hit."""
        did = getattr(self, "_" + fault.kind.replace("-", "_"))(fault)
        counts = self.done if did else self.missed
        counts[fault.kind] = counts.get(fault.kind, 0) + 1
        return did

    @staticmethod
    def _signal(pid, number):
        """False if there is no such process any more: its end was not reported yet."""
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return False
        return True

    def _kill_pid(self, pid):
        if not self._signal(pid, signal.SIGKILL):
            return None
        self.sigkills += 1
        return time.monotonic()

    def kill_rest(self, trainers):
        """At the end of a run."""
        for one in trainers:
            self._kill_pid(one.pid)

    def _kill_trainer(self, fault):
        at = time.monotonic()
        trainer = self._nurseries.living.get(fault.target)
        return at if trainer and self._kill_pid(trainer.pid) else None

    def _kill_two_trainers(self, fault):
        at = time.monotonic()
        hit = [self._nurseries.living.get(rank) for rank in (fault.target, fault.other)]
        return at if [one for one in hit if one and self._kill_pid(one.pid)] else None

    def _stop_trainer(self, fault):
        trainer = self._nurseries.living.get(fault.target)
        if trainer is None or fault.target in self.stopped_ranks:
            return None
        if not self._signal(trainer.pid, signal.SIGSTOP):
            return None
        self.stopped_ranks[fault.target] = trainer.pid

        def go_on():
            self.stopped_ranks.pop(fault.target, None)
            now = self._nurseries.living.get(fault.target)
            if now is not None and now.pid == trainer.pid:  # else it was killed, and its pid may be another's
                self._signal(trainer.pid, signal.SIGCONT)
        self._after(fault.lasts, go_on)
        return time.monotonic()

    def _kill_daemon(self, fault):
        node = self._cluster.nodes[fault.target]
        if fault.target in self.out_nodes:
            return None
        at = self._kill_pid(node.daemon.pid)
        node.daemon.wait(10)
        self.out_nodes.add(fault.target)

        def start():
            self._cluster.processes.remove(node.daemon)
            self._cluster.processes.append(node.run_daemon())
            self.daemon_lives.append((node, node.daemon.pid, time.monotonic()))
            self.out_nodes.discard(fault.target)
        self._after(fault.lasts, start)
        return at

    def _restart_daemon(self, fault):
        """Its keeper brings it back. Nobody is excused for it: trainers and the other daemons wait, and lose nothing."""
        node = self._cluster.nodes[fault.target]
        # One that dies while it takes over records leaves none to the next.
        if fault.target in self.out_nodes or node.ask("status", missing_ok=True) is None:
            return None
        return self._kill_pid(node.daemon_pid())

    def _stop_daemon(self, fault):
        node = self._cluster.nodes[fault.target]
        pid = node.daemon_pid()
        if fault.target in self.out_nodes or pid is None or not self._signal(pid, signal.SIGSTOP):
            return None
        at = time.monotonic()
        self.out_nodes.add(fault.target)

        def go_on():
            self._signal(pid, signal.SIGCONT)
            self.out_nodes.discard(fault.target)
        self._after(fault.lasts, go_on)
        return at

    _stop_daemon_short = _stop_daemon

    # ---- links ----

    def _broken(self, fault, breaking, mending, nodes=()):
        """`nodes`: whose links are not whole; that of the target, if nothing is said."""
        nodes = set(nodes) or {fault.target}
        if nodes & self.out_nodes:
            return None
        self.out_nodes |= nodes
        breaking()
        at = time.monotonic()

        def mend():
            mending()
            self.out_nodes -= nodes
        self._after(fault.lasts, mend)
        return at

    def _dropped(self, fault, *directions):
        network = self._cluster.network
        return self._broken(fault, lambda: network.drop(fault.target, directions),
                            lambda: network.stop_dropping(fault.target, directions))

    def _cut(self, fault):
        return self._dropped(fault, "in", "out")

    _cut_short = _cut

    def _cut_in(self, fault):
        return self._dropped(fault, "in")

    def _cut_out(self, fault):
        return self._dropped(fault, "out")

    _cut_midway, _cut_in_midway, _cut_out_midway = _cut, _cut_in, _cut_out

    def _parted(self, fault, pairs):
        """Neither of a pair hears the other; all others hear both."""
        network = self._cluster.network

        def each(what):
            for one, other in pairs:
                what(one, peer=other)
                what(other, peer=one)
        return self._broken(fault, lambda: each(network.drop), lambda: each(network.stop_dropping),
                            {node for pair in pairs for node in pair})

    def _cut_pair(self, fault):
        return self._parted(fault, [(fault.target, fault.other)])

    def _split(self, fault):
        half = (fault.target, fault.other)
        return self._parted(fault, [(one, other) for one in half for other in range(NODES) if other not in half])

    def _link_down(self, fault):
        network = self._cluster.network
        return self._broken(fault, lambda: network.set_link(fault.target, "down"),
                            lambda: network.set_link(fault.target, "up"))

    def is_excused(self, trainer):
        """It waits because we made it, or its daemon, wait."""
        return trainer.rank in self.stopped_ranks or trainer.rank // PER_NODE in self.out_nodes

    def disturbs(self):
        """Something is stopped or cut at this moment, so others may have to wait."""
        return bool(self.stopped_ranks or self.out_nodes)
