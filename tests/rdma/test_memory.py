"""Memory that the card may reach: once an op has gone, nothing more is registered, by the kernel's own list."""

import json
import re
import time

from ring import SOON

OPS = 300


def registered(guest):
    """Length by number of each registration of gradringd; a number is not used again soon."""
    said = guest.run("rdma resource show mr dev rxe0", "mr", SOON)
    return {int(number): int(length) for number, length in re.findall(r"mrn (\d+) .*?mrlen (\d+) .*comm gradringd", said)}


def counted(ring, node):
    """What gradringd says of it: how often, and how many bytes are registered now."""
    counters = json.loads(ring.ask(node, "--json status"))["counters"]
    return counters["registrations"], counters["registered_bytes"]


def completed(ring, node, job):
    for one in json.loads(ring.ask(node, "--json jobs"))["jobs"]:
        if one["name"] == job:
            return one["ops_completed"]
    return 0


def wait_completed(ring, node, job, ops):
    until = time.monotonic() + 2 * SOON
    while completed(ring, node, job) < ops:
        assert time.monotonic() < until, f"{completed(ring, node, job)} of {ops} ops"
        time.sleep(0.5)
    return completed(ring, node, job)


def test_nothing_is_registered_while_a_job_runs(guests, make_ring, figure):
    ring = make_ring()
    idle = registered(guests[0])
    assert counted(ring, 0) == (0, 0)
    ranks = ring.launch("steady", "gradring-perf allreduce --min 256K --max 256K --iters 5000 --check")
    first = wait_completed(ring, 0, "steady", 50)
    before, by_itself = [registered(guest) for guest in guests], counted(ring, 0)
    last = wait_completed(ring, 0, "steady", first + OPS)
    after, still = [registered(guest) for guest in guests], counted(ring, 0)
    for rank in ranks:
        assert rank.status is None, rank.last_words()
    for guest in guests:
        guest.run("killall gradring-perf; true", "enough", SOON)
    for rank in ranks:
        rank.wait(SOON)
    assert before == after
    assert by_itself == still and still[0] == 1
    new = {number: length for number, length in before[0].items() if number not in idle}
    assert still[1] in new.values(), "the job's memory is one registration"
    figure(f"steady state: {last - first} ops of 256 KiB, {len(before[0])} registrations before and after, "
           f"{still[1] >> 10} KiB are the job's slots")


def test_a_job_that_would_lock_too_much_is_refused_in_words(guests, make_ring, figure):
    ring = make_ring(prefix="ulimit -l 1048576; ", environment="/usr/bin/setpriv --bounding-set=-ipc_lock",
                     more=("slots = 4096", "slice-bytes = 512K", "staging-limit = 8G"))
    ranks = ring.launch("greedy", "gradring-perf allreduce --min 4K --max 4K --iters 1")
    assert all(rank.wait(SOON) != 0 for rank in ranks)
    said = ranks[0].says() + ranks[0].complains()
    figure(f"too much to lock: {said.strip().splitlines()[-1]}")
    assert "memory more" in said and "LimitMEMLOCK=infinity" in said, said
    # The daemons live, and serve who asks for less.
    assert counted(ring, 0)[1] == 0
