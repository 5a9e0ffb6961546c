"""What the tests ask of trainers' reports and of daemons."""

import json

from cluster import TookTooLong, wait_until

# proto/verdict.h and docs/failure-contract.md
OK, OK_SHRUNK, FAILED = 1, 2, 3
MISMATCH, TRAINER_DIED, TRAINER_LEFT, PEER_LOST, PEER_SILENT, DEADLINE = 1, 2, 3, 4, 5, 6
REFUSED, DRAINED, EXCLUDED = 8, 9, 10
# gradring.h
CODE_UNAVAILABLE, CODE_FAILED = 5, 7

TRAINER = "gradring-e2e-trainer"

# What a daemon may hold more than before, once all is over. Allocators keep some of what was freed.
RSS_SLACK = 24 << 20
SETTLE_SECONDS = 15


def events(trainer, kind=None, op=None):
    """What gradring-e2e-trainer reported so far; a line still being written is left out."""
    text = trainer.says()
    lines = text.splitlines() if text.endswith("\n") else text.splitlines()[:-1]
    found = [json.loads(line) for line in lines]
    return [one for one in found if kind in (None, one["event"]) and op in (None, one.get("op"))]


def wait_for(trainer, kind, op=None, seconds=30):
    """The first such event."""
    def look():
        found = events(trainer, kind, op)
        assert found or trainer.running() or events(trainer, kind, op), (
            f"{trainer.name} ended with status {trainer.status} before '{kind}' {op}: {last_words(trainer)}")
        return found
    return wait_until(look, seconds, f"{trainer.name} says '{kind}' {'' if op is None else op}")[0]


def wait_for_all(trainers, kind, op=None, seconds=30):
    return [wait_for(trainer, kind, op, seconds) for trainer in trainers]


def run_job(cluster, name, *words, seconds=60, **options):
    """A job that must end well; returns it."""
    job = cluster.launch(name, [TRAINER, *words], **options)
    statuses = job.wait(seconds)
    assert statuses == [0] * len(job), [(one.name, one.status, one.says(), one.complains()) for one in job]
    for trainer in job:
        assert all(one["verdict"] == OK and one["right"] and one["ranks"] == len(job)
                   for one in events(trainer, "done")), trainer.says()
    return job


def bad_news(trainer):
    """The events that say that something failed: an op that was waited for, or one that was not taken any more."""
    return [one for one in events(trainer) if one["event"] == "refused" or one.get("verdict", OK) != OK]


def wait_failed(trainer, seconds):
    """The event by which a trainer was told of the failure."""
    wait_until(lambda: bad_news(trainer) or not trainer.running(), seconds, f"{trainer.name} is told of the failure")
    news = bad_news(trainer)
    assert news, f"{trainer.name} ended with status {trainer.status} and was told of no failure: {last_words(trainer)}"
    return news[0]


def last_words(trainer):
    return "\n".join((trainer.says() + trainer.complains()).splitlines()[-5:])


def assert_blames(told, culprit, cause):
    """The failure names rank, node and pid of the culprit, in fields and in words.

    An op that was submitted after the job had failed is refused by the library, in words alone.
    """
    assert told["code"] == CODE_FAILED, told
    if told["event"] == "done":
        assert (told["verdict"], told["cause"], told["blamed_rank"], told["blamed_node"], told["blamed_pid"]) == (
            FAILED, cause, culprit.rank, culprit.node.name, culprit.pid), told
    for word in (f"rank {culprit.rank}", f"node {culprit.node.name}", f"pid {culprit.pid}"):
        assert word in told["message"], told


def jobs_of(node):
    """The jobs that are not over; those that are stay in the list for a while."""
    return [job for job in node.ask("jobs")["jobs"] if job["state"] in ("forming", "running")]


def settle(condition, what):
    wait_until(condition, SETTLE_SECONDS, what)


class Baseline:
    """What the daemons held when they were idle, after a first job had set up whatever is set up once."""

    def __init__(self, cluster):
        self._cluster = cluster
        for round_ in range(2):
            run_job(cluster, f"warm-up-{round_}", "--ops", "3", "--count", "300000", per_node=2)
        settle(self._idle, "the daemons are idle after the first jobs")
        self._before = {node: node.footprint() for node in cluster.nodes}

    def _idle(self):
        for node in self._cluster.nodes:
            if node.segments() or jobs_of(node) or node.ask("status")["sessions"]:
                return False
        return True

    def _difference(self):
        """How the daemons differ from before, as sentences."""
        found = []
        for node, before in self._before.items():
            now = node.footprint()
            if now.descriptors > before.descriptors:
                found.append(f"{node.name}: {now.descriptors} descriptors, {before.descriptors} before")
            if now.threads != before.threads:
                found.append(f"{node.name}: {now.threads} threads, {before.threads} before")
            if now.rss_bytes > before.rss_bytes + RSS_SLACK:
                found.append(f"{node.name}: {now.rss_bytes >> 20} MiB resident, {before.rss_bytes >> 20} before")
        return found

    def check(self):
        for node in self._cluster.nodes:
            assert node.daemon.running(), f"gradringd of {node.name} ended: {node.daemon.status}\n{node.log(30)}"
        still = [one.name for one in self._cluster.processes
                 if one.running() and one not in [node.daemon for node in self._cluster.nodes]]
        assert not still, f"the test left {still} running"
        try:
            settle(self._idle, "the daemons are idle again")
        except TookTooLong as error:
            raise TookTooLong(f"{error}: " + "; ".join(
                f"{node.name}: {len(node.segments())} segments, jobs {jobs_of(node)}"
                for node in self._cluster.nodes)) from None
        try:
            settle(lambda: not self._difference(), "the daemons hold no more than before")
        except TookTooLong as error:
            raise TookTooLong(f"{error}: {'; '.join(self._difference())}") from None


def assert_agreed(survivors):
    """Every op ended alike on all of them: the same verdict, contributions and bits."""
    seen = {}
    for trainer in survivors:
        for one in events(trainer, "done"):
            told = (one["verdict"], one["ranks"], one["ranks_max"], one.get("hash"))
            assert one["verdict"] in (OK, OK_SHRUNK) and one["right"], (trainer.name, one)
            assert seen.setdefault(one["op"], told) == told, (trainer.name, one, seen[one["op"]])
    assert len({events(trainer, "end")[0]["digest"] for trainer in survivors}) == 1
    return seen


def longest_step(survivors):
    """The longest time between two ops of one trainer, in seconds."""
    longest = 0.0
    for trainer in survivors:
        times = [one["time"] for one in events(trainer, "done")]
        longest = max([longest, *(after - before for before, after in zip(times, times[1:]))])
    return longest


def child_of(node):
    """The daemon itself, as against its keeper."""
    return wait_until(node.daemon_pid, 5.0, f"{node.name} has a daemon")
