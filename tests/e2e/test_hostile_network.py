"""Strangers from the network at the daemon's control port: whoever is on the node goes on."""

import resource
import subprocess
import sys

from checks import run_job
from cluster import wait_until
from test_hostile import STRANGERS, assert_undisturbed, innocent

SILENT = """
import sys
held = [connect(sys.argv[1]) for _ in range(250)]
print("held", flush=True)
sys.stdin.read()
"""


def test_strangers_from_the_network_leave_room_for_who_is_on_the_node(make_cluster):
    """At `listen` it is libzmq that accepts, all that come, and knows nobody's key by then."""
    cluster = make_cluster(2, secure=False).start()  # without keys they stay for ever
    job = innocent(cluster)
    node = cluster.nodes[0]
    pid = node.daemon_pid()
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (200, before[1]))
    ways = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "env": STRANGERS}
    words = [*cluster.nodes[1].prefix, sys.executable, "-c", "from strangers import *\n" + SILENT, node.address]
    try:
        with subprocess.Popen(words, **ways) as silent:
            assert silent.stdout.readline() == b"held\n"
            wait_until(lambda: "the connections to `listen` take half" in node.log(200), 10, "it is said")
            assert [one["state"] for one in node.peers()] == ["up"]
            run_job(cluster, "newcomer", "--ops", "3")
            silent.stdin.close()
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
    assert_undisturbed(job)
