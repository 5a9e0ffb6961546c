"""One link of a ring is slow: all wait for it, and everything that watches the ring names it."""

import sys
import time

import pytest
from checks import TRAINER, wait_for_all
from cluster import run, wait_until

USUAL, SLOW = "500mbit", "100mbit"
NAMED_WITHIN = 10.0
METRICS = "http://127.0.0.1:7390/metrics"


@pytest.fixture
def ring(namespaces, make_cluster):
    made = make_cluster(4, network=namespaces, settings={"metrics": "127.0.0.1:7390"}).start()
    made.network.shape(USUAL)
    job = made.launch("busy", [TRAINER, "--ops", "100000", "--count", "1000001"])
    wait_for_all(job, "done", 5)
    yield made
    job.kill()


def slow_down(ring, node):
    run("tc", "-n", ring.network.space(node), "qdisc", "del", "dev", "eth0", "root")
    ring.network.slow_down(node, SLOW)


def paths(ring):
    """{(node, peer): bytes per second} of the lanes that carry gradients, by the metrics."""
    found = {}
    for node in ring.nodes:
        page = run(*node.prefix, sys.executable, "-c", f"import urllib.request as u; print(u.urlopen('{METRICS}').read().decode())")
        for line in page.splitlines():
            after = f"n{(node.index + 1) % 4}"
            if line.startswith("gradring_lane_path_bytes_per_second") and f'peer="{after}"' in line:
                found[node.name, after] = float(line.split()[-1])
    return found


def named(told):
    return [(one["from"], one["to"]) for one in told["slow_links"]]


def test_a_slow_link_is_named_by_everything_that_watches(ring, figure):
    wait_until(lambda: len(paths(ring)) == 4, 20, "all ways are measured")
    told = ring.nodes[0].ask("bandwidth", "--seconds", "2")
    assert named(told) == [], told
    slow_down(ring, 2)
    began = time.monotonic()
    # While the figures of the last seconds change, the way whose acknowledgements come over this link can look no faster.
    told = wait_until(lambda: (lambda seen: seen if named(seen) == [("n2", "n3")] else None)(
        ring.nodes[0].ask("bandwidth", "--seconds", "0.5")), NAMED_WITHIN, "bandwidth names the link, and no other")
    took = time.monotonic() - began
    assert any("slow link: n2 -> n3" in problem for problem in told["problems"]), told["problems"]

    def by_metrics():
        seen = paths(ring)
        median = sorted(seen.values())[len(seen) // 2]
        way = min(seen, key=seen.get)
        return way if seen[way] < median / 2 else None

    wait_until(lambda: by_metrics() == ("n2", "n3"), NAMED_WITHIN, "the metrics name the link")
    # From any node, as a person would ask.
    for node in (ring.nodes[1], ring.nodes[2]):
        told = node.ask("doctor", "--seconds", "1")
        slow = [one for one in told["checks"] if one["check"] == "slow link"]
        assert [one["level"] for one in slow] == ["FAIL"], slow
        assert "n2 -> n3" in slow[0]["found"] and not told["healthy"], slow
    figure(f"slow link: {SLOW} among {USUAL}: named by bandwidth after {took:.1f} s; {slow[0]['found']}")
