"""Whether anybody hangs, and whether the daemons grow."""

from dataclasses import dataclass, field

from cluster.process import Footprint

# Nothing that is done here holds an op up for longer than a silence and its decision (about 6 s) a few times over.
OP_BOUND = 30.0
# To come in: until the node is connected again and the others stand at a join point.
OPEN_BOUND = 60.0
# No op ends for anybody. With --kills only trainers die, so there is always a quorum.
STANDSTILL_BOUND = {"balanced": 30.0, "kills": 10.0, "restarts": 30.0, "calm": 30.0, "edges": 30.0}
SAMPLE_EVERY = 2.0
# A daemon's first seconds are not looked at: what it sets up once it keeps.
WARM_UP = 20.0


def hanging(trainers, injector, now):
    """Sentences about trainers that wait too long, for no fault that is still there."""
    found = []
    for one in trainers:
        since = one.oldest_wait()
        if since is None or injector.is_excused(one):
            continue
        bound = OP_BOUND if one.joined else OPEN_BOUND
        if now - since > bound:
            found.append(f"rank {one.rank} (pid {one.pid}, {one.serial}) waits for {now - since:.1f} s; "
                         f"it last wrote: {one.last}")
    return found


@dataclass
class Standstill:
    """How long no op has ended for anybody, while nothing is stopped or cut. What a hang looks like from outside when
    the next kill ends it: nobody waits for long then, and nobody gets on."""
    bound: float
    since: float
    longest: float = 0.0

    def look(self, last_ended, disturbed, now):
        """Returns a sentence if it has lasted for too long."""
        self.since = now if disturbed else max(self.since, last_ended)
        self.longest = max(self.longest, now - self.since)
        return f"no op ended anywhere for {now - self.since:.1f} s" if now - self.since > self.bound else None


def slope(points):
    """Of a line through (x, y) points, least squares."""
    n = len(points)
    mean_x, mean_y = sum(x for x, _ in points) / n, sum(y for _, y in points) / n
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0


@dataclass
class Growth:
    """Samples of all lives of all daemons."""
    samples: dict = field(default_factory=dict)  # (node, pid): [(age, Footprint)]
    _next: float = 0.0

    def sample(self, nodes, born, now):
        if now < self._next:
            return
        self._next = now + SAMPLE_EVERY
        for node in nodes:
            pid = node.daemon_pid()
            try:
                footprint = Footprint.of(pid)
            except (OSError, TypeError):
                continue  # it was just killed
            self.samples.setdefault((node.name, pid), []).append((now - born.setdefault(pid, now), footprint))

    def lines(self, least_seconds=120):
        """What the longest lives held, first and last, and how fast it grew."""
        said = []
        for (node, _pid), samples in sorted(self.samples.items()):
            late = [(age, one) for age, one in samples if age > WARM_UP]
            if not late or late[-1][0] - late[0][0] < least_seconds:
                continue
            first, last = late[0][1], late[-1][1]
            per_minute = {key: 60 * slope([(age, getattr(one, key)) for age, one in late])
                          for key in ("rss_bytes", "descriptors", "threads")}
            said.append(f"daemon of {node}, {late[-1][0]:.0f} s old: {first.rss_bytes >> 20} -> {last.rss_bytes >> 20} "
                        f"MiB ({per_minute['rss_bytes'] / 1e6:+.3f} MB/min), descriptors {first.descriptors} -> "
                        f"{last.descriptors} ({per_minute['descriptors']:+.2f}/min), threads {first.threads} -> "
                        f"{last.threads} ({per_minute['threads']:+.2f}/min)")
        return said

    def slopes(self, key, least_seconds=120):
        """Growth a minute of each life that was long enough."""
        found = []
        for samples in self.samples.values():
            late = [(age, getattr(one, key)) for age, one in samples if age > WARM_UP]
            if late and late[-1][0] - late[0][0] >= least_seconds:
                found.append(60 * slope(late))
        return found


def load_average():
    with open("/proc/loadavg") as file:
        return file.read().split()[0]
