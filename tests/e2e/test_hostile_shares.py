"""What one user takes at the daemon's doors leaves room for the others."""

import resource
import signal
import subprocess
import sys
import time

import pytest
import strangers
from test_hostile import STRANGERS, as_stranger, assert_undisturbed, innocent

COMES_OFTEN = """
import sys
runtime_dir, times = sys.argv[1], int(sys.argv[2])
become(12345)
held = []
for _ in range(times):
    try:
        held.append(greeted(f"{runtime_dir}/control.sock"))
    except OSError:
        pass
print(len(held))
"""


ASKS_TOO_MUCH = """
import sys, time
one = Session(sys.argv[1])
while "segment-limit" in one.allocate(1 << 60):
    time.sleep(0.01)
"""


def test_one_user_that_takes_all_connections(pair):
    """Half of what there is room for is left to the others. It is told, whatever else is refused meanwhile."""
    node = pair.nodes[0]
    pid = node.daemon_pid()
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    asks = subprocess.Popen([sys.executable, "-c", "from strangers import *\n" + ASKS_TOO_MUCH, node.runtime_dir], env=STRANGERS)
    try:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (400, before[1]))
        for _ in range(2):  # those of before are gone
            assert int(as_stranger(COMES_OFTEN, node.runtime_dir, 230)) == 200
            time.sleep(0.5)
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
        asks.kill()
        asks.wait()
    assert "uid 12345 has half of the connections" in node.log(200)


ASKS_WHO_IS_SILENT = """
import sys
become(12345)
one = greeted(f"{sys.argv[1]}/control.sock")
one.sendall(frame(query(0, f3=b"n1")) * 700 + frame(query(3, f2=b"innocent")) * 200)
print("asked", flush=True)
sys.stdin.read()
"""


def test_who_asks_much_of_a_silent_peer(make_cluster):
    """The others may ask as well."""
    cluster = make_cluster(2).start()
    job = innocent(cluster)
    runtime_dir = cluster.nodes[0].runtime_dir
    with strangers.greeted(f"{runtime_dir}/control.sock") as root:
        cluster.nodes[1].daemon.signal(signal.SIGSTOP)
        try:
            with subprocess.Popen([sys.executable, "-c", "from strangers import *\n" + ASKS_WHO_IS_SILENT, runtime_dir],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=STRANGERS) as asks:
                assert asks.stdout.readline() == b"asked\n"
                root.sendall(strangers.frame(strangers.query(0, f3=b"n1")) + strangers.frame(strangers.query(3, f2=b"innocent")))
                time.sleep(0.2)
                asks.stdin.close()
        finally:
            cluster.nodes[1].daemon.signal(signal.SIGCONT)
        for _ in range(2):
            answer = strangers.received(root)
            assert b"at once" not in answer, answer
    assert_undisturbed(job)


BEGINS_JOBS = """
import sys
session = Session(sys.argv[1])
one = session.control()
received(one)
for _ in range(300):
    one.sendall(frame(field(1, 1) + field(4, field(1, b"again") + field(4, 1))))
    one.sendall(frame(field(1, 1) + field(6, field(1, fields(fields(received(one))[3])[1]))))
    received(one)
"""


def test_one_user_that_begins_jobs_without_end(make_cluster):
    """What else happened on the node is still told."""
    node = make_cluster(1).start().nodes[0]
    as_stranger(BEGINS_JOBS, node.runtime_dir)
    told = [one["event"] for one in node.ask("events")["events"]]
    assert told[0] == "ready" and told.count("limit hit") == 1 and told.count("job ended") > 100


CHANGES_ITS_MIND = """
import sys
become(1234)
session = Session(sys.argv[1])
one = session.control()
received(one)
one.sendall(frame(field(1, 1) + field(2, 2) + field(4, field(1, b"its") + field(4, 1))))
received(one)
orders = {"drain": (query(20, f20=field(1, 1) + field(2, 1) + field(3, 60_000)), query(20, f20=field(1, 2))),
          "set": [query(22, f2=b"its", f22=field(1, b"weight") + field(2, weight)) for weight in (b"2", b"3")],
          "trace": (query(6, f5=1), query(6, f5=0))}[sys.argv[2]]
refused = 0
for _ in range(200):
    for order in orders:
        one.sendall(frame(order))
        answer = received(one)
        while fields(answer).get(1) != 5:
            answer = received(one)
        refused += b"one a second" in answer or b"as root" in answer
print(refused)
"""


@pytest.mark.parametrize(("order", "refused"), [("drain", range(400, 401)), ("set", range(400, 401)), ("trace", range(100, 400))])
def test_a_user_whose_jobs_are_all_of_the_node(make_cluster, order, refused):
    """May trace it, and leaves room in the log and among the events; it neither ends the daemon nor divides its wires."""
    node = make_cluster(1).start().nodes[0]
    assert int(as_stranger(CHANGES_ITS_MIND, node.runtime_dir, order)) in refused
    assert node.ask("events")["events"][0]["event"] == "ready"
    assert len(node.log(10_000).splitlines()) < 600
