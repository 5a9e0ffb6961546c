"""Reads what the trainers write and tells it to the judge, the stop watch and the traffic counter."""

from .records import new_lines


class Traffic:
    """For which part of the time some op was under way, and in which part one ended."""

    BIN = 0.02  # seconds

    def __init__(self, began):
        self._began = began
        self._under_way = set()
        self._ended = set()
        self.last_ended = began

    def op(self, submitted, ended):
        first, last = (int((at - self._began) / self.BIN) for at in (submitted, ended))
        self._under_way.update(range(first, last + 1))
        self._ended.add(int(last * self.BIN / 0.1))
        self.last_ended = max(self.last_ended, ended)

    def shares(self, until):
        bins = int((until - self._began) / self.BIN)
        tenths = int((until - self._began) / 0.1)
        return (sum(1 for one in self._under_way if one < bins) / max(1, bins),
                sum(1 for one in self._ended if one < tenths) / max(1, tenths))


class Listener:
    def __init__(self, judge, watch, traffic):
        self._judge = judge
        self._watch = watch
        self._traffic = traffic
        self.refusals = {}  # what trainers that could not come in were told: how many

    def read(self, trainer):
        """Takes in what is new of one trainer. Returns how many lines."""
        lines = new_lines(trainer)
        for line in lines:
            kind, at, rest = line.split(" ", 2)
            getattr(self, f"_on_{kind}")(trainer, float(at), rest)
        if lines:
            trainer.last = lines[-1]
        return len(lines)

    def _on_S(self, trainer, at, rest):  # started
        trainer.started = at

    def _on_J(self, trainer, at, rest):  # joined
        trainer.joined = at
        trainer.waits_since = at

    def _on_r(self, trainer, at, rest):  # could not come in
        self.refusals[rest] = self.refusals.get(rest, 0) + 1
        trainer.joined = at

    def _on_q(self, trainer, at, rest):  # enters a join point
        trainer.waits_since = at

    def _on_v(self, trainer, at, rest):  # a view it was told
        life, epoch, mask, _words = rest.split(" ", 3)
        self._judge.sees_view(trainer, life, int(epoch), int(mask, 16))
        self._watch.view(int(epoch), int(mask, 16))

    def _on_p(self, trainer, at, rest):  # passed a join point
        life, number, _verdict, epoch, grew, oldest, mask = rest.split()
        trainer.waits_since = 0.0
        trainer.pending_join = (int(number), (int(epoch), grew, oldest, mask))
        if life != "0":
            self._judge.joins(trainer, life, *trainer.pending_join)
        self._reached(trainer, at, int(epoch))

    def _on_b(self, trainer, at, rest):  # was given the state
        life, number, verdict, _cause, epoch, _chain = rest.split()
        if verdict in "12" and life != trainer.life:
            trainer.life = life
            self._judge.learns_life(trainer, life)
            self._judge.joins(trainer, life, int(number), trainer.pending_join[1])
        self._reached(trainer, at, int(epoch))

    def _on_s(self, trainer, at, rest):  # submits
        life, number = rest.split()
        trainer.open_ops[number] = at
        self._judge.submits(trainer, life, int(number), at)

    def _on_o(self, trainer, at, rest):  # an op ended
        fields = rest.split(" ", 11)
        self._traffic.op(trainer.open_ops.pop(fields[1], at), at)
        self._judge.ends_op(trainer, at, fields)
        self._reached(trainer, at, int(fields[7]))

    def _on_x(self, trainer, at, rest):  # ends itself
        self._judge.gives_up(trainer, at, rest.split(" "))
        trainer.open_ops.clear()
        trainer.waits_since = 0.0
        trainer.gave_up = True

    def _reached(self, trainer, at, epoch):
        if epoch > trainer.epoch:
            self._watch.reached(trainer, at, range(max(trainer.epoch, epoch - 8) + 1, epoch + 1))
            trainer.epoch = epoch
