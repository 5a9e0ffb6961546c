"""What the trainers wrote down (tests/chaos/trainer.cc), read while they still write."""

from dataclasses import dataclass, field


@dataclass
class Trainer:
    """One process of a rank, from its start to its end."""
    serial: str
    rank: int
    pid: int
    path: object
    started: float
    ended: float = 0.0        # when its end was seen; 0: it lives
    how: str = ""             # "signal 9", "exit 0"
    offset: int = 0           # of its file, up to where it was read
    joined: float = 0.0
    life: str = "0"           # of the job, once it is known
    open_ops: dict = field(default_factory=dict)  # number: since when
    waits_since: float = 0.0  # in a join point
    last: str = ""            # its last line, for people
    epoch: int = 0
    expected: int = -1        # number of the next op it hands over, or sees the end of
    expected_end: int = -1
    pending_join: tuple = ()  # what its last join point said: next op, view
    gave_up: bool = False
    out_since: int = 0        # the epoch whose view it is not in, and in which the others ended an op otherwise

    def oldest_wait(self):
        """Since when it waits for something of the daemons, or None."""
        if self.open_ops:
            return next(iter(self.open_ops.values()))
        return self.waits_since or (None if self.joined else self.started)


def new_lines(trainer):
    """Whole lines that were not read before."""
    try:
        with open(trainer.path, "rb") as file:
            file.seek(trainer.offset)
            data = file.read(1 << 16)
    except FileNotFoundError:
        return []  # it has not begun yet
    end = data.rfind(b"\n") + 1
    trainer.offset += end
    return data[:end].decode(errors="replace").splitlines()
