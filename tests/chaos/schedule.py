"""What is done to whom and when: a function of the seed alone, so that a run can be had again."""

import random
from dataclasses import dataclass

NODES, PER_NODE = 4, 2
RANKS = NODES * PER_NODE

# What may happen to a trainer, and what to a node.
TRAINER_KINDS = ("kill-trainer", "kill-two-trainers", "stop-trainer")
SHORT_KINDS = ("cut-short", "stop-daemon-short")  # below what anybody suspects
# A daemon with a keeper is killed: a pause, and nobody may be given up.
RESTART = "restart-daemon"
LONG_KINDS = ("kill-daemon", "stop-daemon", "cut", "cut-in", "cut-out", "link-down")
KINDS = TRAINER_KINDS + SHORT_KINDS + (RESTART,) + LONG_KINDS
# What is over about when the daemons decide, so that each may think otherwise: of a node, between two nodes alone, or
# between the two halves of all.
EDGE_KINDS = ("cut-midway", "cut-in-midway", "cut-out-midway", "cut-pair", "split")
# After these a node may be out.
COSTLY_KINDS = LONG_KINDS + EDGE_KINDS

# Nodes whose daemon has a keeper and a grace. On the others the death of a daemon is one.
KEPT = {"balanced": 2, "kills": 2, "restarts": NODES, "calm": 2, "edges": 2}

# How often each kind is chosen. `balanced` does everything, `kills` what ends in SIGKILL; in `restarts` nothing happens
# to a node that could cost it its place; in `calm` one fault comes at a time, to see how long each takes; in `edges`
# ways between nodes are back about when others decide that they are not.
WEIGHTS = {
    "balanced": {"kill-trainer": 6, "kill-two-trainers": 3, "stop-trainer": 3, "cut-short": 2,
                 "stop-daemon-short": 2, "kill-daemon": 3, "stop-daemon": 2.5, "cut": 2.5, "cut-in": 2.5,
                 "cut-out": 2.5, "link-down": 2.5, RESTART: 4},
    "kills": {"kill-trainer": 60, "kill-two-trainers": 30, "kill-daemon": 2, RESTART: 6},
    "restarts": {"kill-trainer": 10, "kill-two-trainers": 4, RESTART: 16},
    "calm": {"kill-trainer": 8, "kill-two-trainers": 4, "kill-daemon": 3, RESTART: 2, "stop-daemon": 0.7, "cut": 0.7,
             "cut-in": 0.7, "cut-out": 0.7, "link-down": 0.7},
    "edges": {"cut-midway": 4, "cut-in-midway": 4, "cut-out-midway": 4, "cut-pair": 6, "split": 4, "kill-trainer": 3,
              RESTART: 2, "stop-daemon-short": 1},
}
# Seconds from one fault to the next, those that follow at once apart.
PAUSE = {"balanced": (0.4, 2.4), "kills": (0.05, 0.30), "restarts": (0.2, 1.0), "calm": (0.2, 0.6), "edges": (0.5, 4.0)}
# Of all faults, those that are followed by another one while the daemons are still busy with it.
FOLLOWED = {"balanced": 0.35, "kills": 0.3, "restarts": 0.35, "calm": 0.0, "edges": 0.35}
FOLLOW_AFTER = (0.0005, 0.02)

# How long each lasts. Daemons of a run suspect after 1 s and decide after 3 s (settings.py).
LASTS = {"stop-trainer": (0.05, 2.0), "cut-short": (0.1, 0.7), "stop-daemon-short": (0.1, 0.7),
         # Until its keeper may start it again: five starts in ten seconds are too many.
         RESTART: (2.0, 3.0),
         "kill-daemon": (0.05, 1.0), "stop-daemon": (3.8, 5.2), "cut": (3.8, 5.2), "cut-in": (3.8, 5.2),
         "cut-out": (3.8, 5.2), "link-down": (3.8, 5.2), **{kind: (0.8, 4.2) for kind in EDGE_KINDS}}
# Until the node is a member again, so that nodes are not all out at once.
RECOVERY = 1.0
# Of the faults that would put a second node out beside another, so many are let through.
TWO_NODES_OUT = 0.25


@dataclass(frozen=True)
class Fault:
    at: float       # seconds after the start
    kind: str
    target: int     # a rank, or a node
    other: int      # the second rank of kill-two-trainers, the other node of cut-pair and split, else -1
    lasts: float    # seconds, 0 for what is over at once
    follows: bool   # comes while the one before is still felt

    def ranks(self):
        """Whom a view that knows of it has lost, once it is decided."""
        if self.kind in TRAINER_KINDS:
            return {self.target} | ({self.other} if self.other >= 0 else set())
        if self.kind == RESTART or self.kind in EDGE_KINDS:
            return set()
        return {self.target * PER_NODE + i for i in range(PER_NODE)}


class Planner:
    def __init__(self, seed, mode):
        self._random = random.Random(f"{mode} {seed}")
        self._mode = mode
        self._kinds = list(WEIGHTS[mode])
        self._weights = [WEIGHTS[mode][kind] for kind in self._kinds]
        self._node_free = [0.0] * NODES  # when the node is whole again
        self.kept = sorted(self._random.sample(range(NODES), KEPT[mode]))

    def _node_for(self, at, kind):
        whole = [node for node in range(NODES) if self._node_free[node] <= at]
        free = [node for node in whole if kind not in (RESTART, "kill-daemon") or (node in self.kept) == (kind == RESTART)]
        out = NODES - len(whole)
        if not free or (out > 0 and kind in COSTLY_KINDS and self._random.random() > TWO_NODES_OUT ** out):
            return None
        return self._random.choice(free)

    def fault(self, at, follows):
        while True:
            kind = self._random.choices(self._kinds, self._weights)[0]
            lasts = self._random.uniform(*LASTS.get(kind, (0, 0)))
            if kind in TRAINER_KINDS:
                ranks = self._random.sample(range(RANKS), 2)
                return Fault(at, kind, ranks[0], ranks[1] if kind == "kill-two-trainers" else -1, lasts, follows)
            node = self._node_for(at, kind)
            if node is not None:
                self._node_free[node] = at + lasts + RECOVERY
                other = -1
                if kind in ("cut-pair", "split"):
                    other = self._random.choice([one for one in range(NODES) if one != node])
                return Fault(at, kind, node, other, lasts, follows)

    def faults(self, seconds):
        """All of a run, in order."""
        at = 1.0
        while at < seconds:
            yield self.fault(at, False)
            while self._random.random() < FOLLOWED[self._mode]:
                at += self._random.uniform(*FOLLOW_AFTER)
                yield self.fault(at, True)
            at += self._random.uniform(*PAUSE[self._mode])


def plan(seed, mode, seconds):
    return list(Planner(seed, mode).faults(seconds))


def kept_nodes(seed, mode):
    return Planner(seed, mode).kept
