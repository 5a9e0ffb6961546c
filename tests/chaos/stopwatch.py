"""How long it took until all that were left had the verdict of what was under way when something was lost."""

from dataclasses import dataclass, field

from .schedule import LONG_KINDS, PER_NODE, RESTART, TRAINER_KINDS

# What a node's last trainer had submitted counts for two seconds, and so long the others may have to wait.
LAST_OF_NODE = "a node's last trainer"
# Of a fault's time to verdict: what docs/failure-contract.md promises, in seconds (and of a restart, which is a pause, what is
# usual). The tests insist on twice that.
BOUNDS = {"kill-trainer": 0.5, "kill-two-trainers": 0.5, LAST_OF_NODE: 2.5, "kill-daemon": 0.5, RESTART: 1.0, "cut": 5.0,
          "cut-in": 5.0, "cut-out": 5.0, "link-down": 5.0, "stop-daemon": 5.0}
SLACK = 2


@dataclass
class Running:
    """A fault whose verdict is being waited for."""
    kind: str
    at: float
    expects: dict                 # serial of a survivor: None, or when it was in a view without the lost
    lost: int                     # a bit for each rank; 0: a new view with the same members is waited for
    clean: bool = True            # nothing else happened meanwhile
    epoch: int = 0                # the first view without them


@dataclass
class StopWatch:
    times: dict = field(default_factory=dict)     # kind: seconds, with nothing else going on
    crowded: dict = field(default_factory=dict)   # kind: seconds, when other faults came in between
    during: int = 0                               # faults that came before the verdict on another was out
    _running: list = field(default_factory=list)
    _views: dict = field(default_factory=dict)    # epoch: ranks

    def view(self, epoch, mask):
        self._views[epoch] = mask
        if len(self._views) > 64:
            self._views.pop(next(iter(self._views)))

    def fault(self, fault, at, present, disturbed=False):
        """`present`: the trainers that are in the job now. `disturbed`: something is stopped or cut already."""
        for one in self._running:
            one.clean = False
        lost_ranks = fault.ranks() if fault.kind in BOUNDS else set()
        hit = [one for one in present if one.rank in lost_ranks]
        # A view change is under way from the moment of a loss until the last survivor has its verdict.
        self.during += any(self._is_changing(one, at) for one in self._running)
        for one in self._running:
            for trainer in hit:
                one.expects.pop(trainer.serial, None)
        if hit or fault.kind == RESTART:
            expects = {one.serial: None for one in present if one.rank not in lost_ranks}
            nodes_left = {rank // PER_NODE for rank in (one.rank for one in present) if rank not in lost_ranks}
            last = fault.kind in TRAINER_KINDS and any(one.rank // PER_NODE not in nodes_left for one in hit)
            self._running.append(Running(LAST_OF_NODE if last else fault.kind, at, expects,
                                         sum(1 << one.rank for one in hit), clean=not self._running and not disturbed))

    @staticmethod
    def _is_changing(one, at):
        # Of a silent node the daemons decide only after 3 s: what comes before is no view change yet.
        return at - one.at > (3.0 if one.kind in LONG_KINDS and one.kind != "kill-daemon" else 0.0)

    def ended(self, trainer):
        for one in self._running:
            one.expects.pop(trainer.serial, None)

    def reached(self, trainer, at, epochs):
        """A survivor was told something that ended in the last of these epochs; it had skipped the others."""
        masks = [self._views[epoch] for epoch in epochs if epoch in self._views]
        for one in self._running:
            if trainer.serial in one.expects and one.expects[trainer.serial] is None and at > one.at and any(
                    one.lost == 0 or mask & one.lost != one.lost for mask in masks):
                one.expects[trainer.serial] = at

    def collect(self, now):
        """Takes off what is decided, or will not be."""
        for one in list(self._running):
            known = [at for at in one.expects.values() if at is not None]
            if len(known) == len(one.expects) or now - one.at > 30:
                self._running.remove(one)
                late = [at - one.at for at in known if at > one.at]
                if late and len(known) == len(one.expects):
                    (self.times if one.clean else self.crowded).setdefault(one.kind, []).append(max(late))


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
