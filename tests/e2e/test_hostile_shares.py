"""What one user takes at the daemon's doors leaves room for the others."""

import resource
import subprocess
import sys
import time

from test_hostile import STRANGERS, as_stranger

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
