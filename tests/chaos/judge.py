"""Compares what the trainers were told. Everything that docs/failure-contract.md promises about verdicts, bits and
order is checked here, op by op, some time after the last word on it was heard."""

from dataclasses import dataclass, field

from .schedule import PER_NODE, RANKS

OK, OK_SHRUNK, FAILED = 1, 2, 3
REFUSED, EXCLUDED, NO_QUORUM, ROOT_LOST = 8, 10, 11, 12
CODE_DEADLINE = 6
ALLREDUCE, BROADCAST, BARRIER = 0, 1, 2

# So long after a fault that may cost a node its place may somebody still be told that it has lost it.
EXPLAINS = 60.0

# A stopped trainer writes its word on an op when it is woken, and a node that was cut off when it is back.
SETTLED_AFTER = 40.0
COMPLAINTS_MAX = 100


@dataclass
class Told:
    """What some trainers were told of an op, all alike."""
    by: list = field(default_factory=list)  # (trainer, epoch in which it ended there)


@dataclass
class Op:
    kind: int
    told: dict = field(default_factory=dict)  # what was said: Told
    submitted: int = 0                        # a bit for each rank
    heard: float = 0.0


class Judge:
    def __init__(self):
        self.complaints = []
        self.excused = 0       # differences that the contract allows: a node that was left out
        self.ops = 0           # settled
        self.shrunk = 0
        self.verdicts = 0
        self.killed_daemons = set()  # nodes whose daemon was killed so far
        self.may_cost_node = -EXPLAINS  # when something was last done that may cost a node its place
        self.ends = {}         # why trainers ended themselves: how many
        self._ops = {}         # (life, number): Op, in the order in which they were heard of first
        self._views = {}       # (life, epoch): ranks, a bit each
        self._early = {}       # serial: views told before the life was known
        self._joins = {}       # (life, epoch, next op): what a join point said

    def complain(self, text):
        if len(self.complaints) < COMPLAINTS_MAX:
            self.complaints.append(text)

    # ---- what is heard, line by line ----

    def submits(self, trainer, life, number, at):
        if trainer.expected not in (-1, number):
            self.complain(f"{trainer.serial}: submits op {number} behind {trainer.expected - 1}")
        trainer.expected = number + 1
        op = self._ops.setdefault((life, number), Op(-1))
        op.submitted |= 1 << trainer.rank
        op.heard = at

    def ends_op(self, trainer, at, fields):
        life, number, kind, verdict, cause = fields[0], int(fields[1]), int(fields[2]), int(fields[3]), int(fields[4])
        least, most, epoch, joined = map(int, fields[5:9])
        digest, chain, sets = fields[9:12]
        self.verdicts += 1
        if trainer.expected_end not in (-1, number):
            self.complain(f"{trainer.serial}: op {number} ends behind {trainer.expected_end - 1}")
        trainer.expected_end = number + 1
        op = self._ops.setdefault((life, number), Op(kind))
        op.kind = kind
        op.heard = at
        # A broadcast whose root is lost fails with the one cause or the other, see docs/elastic.md.
        said = ("lost", joined, chain) if cause in (ROOT_LOST, REFUSED) else (
            verdict, least, most, joined, digest, chain, sets)
        op.told.setdefault(said, Told()).by.append((trainer, epoch))

    def sees_view(self, trainer, life, epoch, mask):
        if life == "0":
            self._early.setdefault(trainer.serial, []).append((epoch, mask))
            return
        if self._views.setdefault((life, epoch), mask) != mask:
            self.complain(f"{trainer.serial}: view {epoch} has the ranks {mask:b}, and {self._views[life, epoch]:b} "
                          "elsewhere")

    def learns_life(self, trainer, life):
        for epoch, mask in self._early.pop(trainer.serial, []):
            self.sees_view(trainer, life, epoch, mask)
        trainer.expected = trainer.expected_end = -1

    def joins(self, trainer, life, number, said):
        """At a join point all get one view. Whoever has just come in says so after it knows the life."""
        epoch = said[0]
        if self._joins.setdefault((life, epoch, number), said) != said:
            self.complain(f"{trainer.serial}: the join point before op {number} says {said}, and "
                          f"{self._joins[life, epoch, number]} elsewhere")

    def gives_up(self, trainer, at, fields):
        where, code, cause = fields[2], int(fields[3]), int(fields[5])
        text = " ".join(fields[7:])
        why = {EXCLUDED: "excluded", NO_QUORUM: "no quorum"}.get(cause)
        if why is None and "went away" in text and trainer.rank // PER_NODE in self.killed_daemons:
            why = "its daemon was killed"
        if why is None and ("excluded" in text or "goes on without" in text):
            why = "excluded"
        if why is None and "quorum" in text:
            why = "no quorum"
        if at > self.may_cost_node + EXPLAINS:  # deaths of trainers and restarts leave every node in its place
            why = None
        if why is None or code == CODE_DEADLINE:
            self.complain(f"{trainer.serial} (rank {trainer.rank}) ended at {where}, and no fault explains it: "
                          f"code {code}, cause {cause}: {text}")
            why = f"unexplained: {text[:120]}"
        self.ends[why] = self.ends.get(why, 0) + 1

    # ---- judgement ----

    def settle(self, now, all_of_it=False):
        """Judges the ops that nobody has spoken of for a while."""
        done = []
        for key, op in self._ops.items():
            if not all_of_it and op.heard > now - SETTLED_AFTER:
                break
            done.append(key)
        for key in done:
            self._judge(key, self._ops.pop(key))

    def _judge(self, key, op):
        if not op.told:
            return  # submitted, and no trainer that did so lived to see its end
        self.ops += 1
        life, number = key
        if len(op.told) > 1:
            self._judge_difference(life, number, op)
        for said, told in op.told.items():
            if said[0] == "lost":
                continue
            if said[0] not in (OK, OK_SHRUNK):
                self.complain(f"op {number} of {life}: verdict {said[0]} by {told.by[0][0].serial}")
            if op.kind == ALLREDUCE:
                self._judge_sum(life, number, op, said, told)
            elif op.kind == BROADCAST and said[6] == "wrong":
                self.complain(f"op {number} of {life}: wrong values of a broadcast at {told.by[0][0].serial}")

    def _judge_difference(self, life, number, op):
        """Only a node that was left out of the view in which the others ended it may have been told otherwise, and
        it may not be heard of in that view or later."""
        records = [(epoch, trainer, said) for said, told in op.told.items() for trainer, epoch in told.by]
        for epoch, trainer, said in records:
            for later, other, otherwise in records:
                if said == otherwise or later < epoch or self._is_out(trainer, epoch) or self._is_out(other, later):
                    continue
                if later > epoch and not self._has_node(life, later, trainer.rank):
                    trainer.out_since = later
                    self.excused += 1
                    continue
                self.complain(f"op {number} of {life}: {trainer.serial} (rank {trainer.rank}) was told {said} in "
                              f"epoch {epoch}, {other.serial} (rank {other.rank}) {otherwise} in epoch {later}")

    @staticmethod
    def _is_out(trainer, epoch):
        """It was told otherwise before, as a node that was left out may be; so its later results have other bits."""
        return trainer.out_since and epoch < trainer.out_since

    def _has_node(self, life, epoch, rank):
        """Whether the view has ranks of the node that the rank is on; unknown views have."""
        first = rank // PER_NODE * PER_NODE
        node = ((1 << PER_NODE) - 1) << first
        return self._views.get((life, epoch), node) & node != 0

    def _judge_sum(self, life, number, op, said, told):
        verdict, least, most, joined, _digest, _chain, sets = said
        who = f"op {number} of {life} at {told.by[0][0].serial}"
        if sets == "wrong":
            return self.complain(f"{who}: wrong bits: some element is the sum of no set of ranks")
        masks = [int(one, 16) for one in sets.split(",")]
        counts = [mask.bit_count() for mask in masks]
        self.shrunk += verdict == OK_SHRUNK
        if (least, most) != (min(counts), max(counts)):
            self.complain(f"{who}: {least} to {most} contributions are told, {counts} are in it")
        for trainer, _epoch in told.by:
            if not all(mask >> trainer.rank & 1 for mask in masks):
                self.complain(f"{who}: rank {trainer.rank} was told success and is not in every slice: {sets}")
        for mask in masks:
            if mask & ~op.submitted or mask >> RANKS:
                self.complain(f"{who}: {mask:b} contributed, only {op.submitted:b} submitted")
        views = [self._views.get((life, epoch)) for epoch in range(joined, max(e for _, e in told.by) + 1)]
        if verdict == OK and not (len(masks) == 1 and self._is_whole(masks[0], views)):
            known = ", ".join("unknown" if mask is None else f"{mask:x}" for mask in views)
            self.complain(f"{who}: OK with the contributions {sets}, which are no view of epochs {joined} and later: "
                          f"{known}")
        if verdict == OK_SHRUNK and views[0] is not None and all(mask == views[0] for mask in masks):
            self.complain(f"{who}: OK_SHRUNK, and nobody is missing in {sets}")
        return None

    @staticmethod
    def _is_whole(mask, views):
        """All of a view are in it, and beyond them at most some who were there until that view and had submitted, in the
        middle of the change, before they died."""
        return any(mask == view or (view and mask & view == view and before and mask & ~before == 0)
                   for before, view in zip([None, *views], views))
