"""Random programs of collectives, every result compared with a plain reference, to the bit.

By hand, for as long as you like:  pytest tests/e2e/test_differential.py --seeds 2000 [--first-seed 1]
What failed is run again alone by --first-seed N --seeds 1.
"""

import itertools
import os
import signal
import time

import pytest
from checks import child_of, last_words, settle
from cluster import wait_until

PROGRAM = "gradring-differential"
SECONDS_A_SEED = 2  # many times what it takes

KILL_SECONDS = 1.0  # a keeper starts its daemon five times in ten seconds

# Ranks of a node, one number for each.
LAYOUTS = {"one-node": [4], "two-nodes": [3, 2], "four-nodes": [1, 1, 1, 1], "eight-ranks": [2, 2, 2, 2],
           "uneven": [1, 4, 2, 3]}
# Daemons that have little room, and those that take every care.
SETTINGS = {"small-slices": {"slice-bytes": "4K", "slots": "4", "staging-limit": "1M"},
            "careful": {"checksum": "on", "verify": "on", "completion": "stable"},
            "patient": {"restart-grace": "10s"}}


def start(cluster, per_node, words):
    """The ranks of the nodes in turns, so that they do not lie one behind the other."""
    left = list(per_node)
    hosts = []
    while any(left):
        for node in range(len(left)):
            if left[node]:
                left[node] -= 1
                hosts.append(node)
    return [cluster.start_trainer("differential", [PROGRAM, *words], cluster.nodes[node], rank, len(hosts))
            for rank, node in enumerate(hosts)]


def segments_of(cluster):
    return sum(len(node.segments()) for node in cluster.nodes)


def run_programs(request, cluster, per_node, *words, times=1, during=None):
    first, seeds = request.config.getoption("--first-seed"), request.config.getoption("--seeds") * times
    before = segments_of(cluster)
    ranks = start(cluster, per_node, ["--seed", first, "--seeds", seeds, *words])
    if during:
        during(lambda: any(one.running() for one in ranks))
    wait_until(lambda: not any(one.running() for one in ranks), 60 + SECONDS_A_SEED * seeds, "all ranks end")
    assert all(one.status == 0 for one in ranks), "\n".join(f"{one.name}: {last_words(one)}" for one in ranks)
    settle(lambda: not any(node.ask("status")["sessions"] for node in cluster.nodes), "all sessions are closed")
    settle(lambda: segments_of(cluster) <= before, "all segments but a daemon's own are freed")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_random_programs(request, layout):
    per_node = LAYOUTS[layout]
    run_programs(request, request.getfixturevalue({1: "single", 2: "pair", 4: "quad"}[len(per_node)]), per_node)


@pytest.mark.parametrize("settings", SETTINGS)
def test_random_programs_among_daemons_with(request, make_cluster, settings):
    run_programs(request, make_cluster(3, settings=SETTINGS[settings]).start(), [2, 1, 2])


def test_random_programs_while_daemons_restart(request, make_cluster):
    """Each is killed every few seconds, in the middle of ops of all kinds. Groups are left out: one that forms
    while a daemon dies may fail."""
    cluster = make_cluster(3, settings={"restart-grace": "10s"}).start(kept=(0, 1, 2))

    def kill_in_turns(running):
        for node in itertools.cycle(cluster.nodes):
            time.sleep(KILL_SECONDS)
            if not running():
                return
            os.kill(child_of(node), signal.SIGKILL)

    run_programs(request, cluster, [2, 1, 2], "--formed", times=8, during=kill_in_turns)
