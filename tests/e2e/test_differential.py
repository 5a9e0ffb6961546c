"""Random programs of collectives, every result compared with a plain reference, to the bit.

By hand, for as long as you like:  pytest tests/e2e/test_differential.py --seeds 2000 [--first-seed 1]
What failed is run again alone by --first-seed N --seeds 1.
"""

import pytest
from checks import last_words, settle
from cluster import wait_until

PROGRAM = "gradring-differential"
SECONDS_A_SEED = 2  # many times what it takes

# Ranks of a node, one number for each.
LAYOUTS = {"one-node": [4], "two-nodes": [3, 2], "four-nodes": [1, 1, 1, 1], "eight-ranks": [2, 2, 2, 2],
           "uneven": [1, 4, 2, 3]}


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


@pytest.mark.parametrize("layout", LAYOUTS)
def test_random_programs(request, layout):
    per_node = LAYOUTS[layout]
    cluster = request.getfixturevalue({1: "single", 2: "pair", 4: "quad"}[len(per_node)])
    first, seeds = request.config.getoption("--first-seed"), request.config.getoption("--seeds")
    ranks = start(cluster, per_node, ["--seed", first, "--seeds", seeds])
    wait_until(lambda: not any(one.running() for one in ranks), 60 + SECONDS_A_SEED * seeds, "all ranks end")
    assert all(one.status == 0 for one in ranks), "\n".join(f"{one.name}: {last_words(one)}" for one in ranks)
    settle(lambda: not any(node.ask("status")["sessions"] for node in cluster.nodes), "all sessions are closed")
    assert not any(node.segments() for node in cluster.nodes)
