"""How much of the line a ring uses, how many bytes it sends, and what an idle pair of daemons costs.

usage: bench_ring.py [--programs DIR] [--nodes N] [--megabytes M] [--iterations N] [--idle-seconds S]

Four namespaces on links of 1 Gbit/s. In the same run: one TCP stream's goodput, by iperf3; then allreduces of
float32 with 1 and with 2 ranks a node. Bytes are the transport's own counters, and the link's (its traffic
control counts what the wire would carry, headers and all) times 1448/1514, the payload's part of a full frame.
Exit status 0 if all targets are met. Needs root and iperf3.
"""

import argparse
import json
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/lib"))

import cluster as testbed  # noqa: E402  (found by the line above)

PAYLOAD_PART = 1448 / 1514
BUSBW_LEAST = 0.90      # of one stream's goodput
BYTES_TOLERANCE = 0.02
IDLE_MOST = 0.005       # of a core, for the pair


def goodput(ring, seconds=5):
    """Bit/s of one TCP stream from node 0 to node 1."""
    server = testbed.Process("iperf3-server", ["iperf3", "-s", "-1", "--forceflush"], ring.folder, ring.mark,
                             prefix=ring.nodes[1].prefix)
    ring.processes.append(server)
    testbed.wait_until(lambda: "listening" in server.says(), 10, "iperf3 listens")
    host = ring.nodes[1].address.split(":")[0]
    said = ring.network.inside(0, "iperf3", "-c", host, "-t", str(seconds), "-O", "1", "-J", seconds=seconds + 20)
    return json.loads(said)["end"]["sum_received"]["bits_per_second"]


def counted(ring):
    """Bytes sent so far by each node: (payload by the transport, bytes by the link)."""
    time.sleep(1)  # the daemons renew their counters some times a second
    payload = [sum(peer["sent_bytes"] for peer in node.peers()) for node in ring.nodes]
    link = [json.loads(testbed.run("tc", "-n", ring.network.space(node.index), "-j", "-s", "qdisc", "show", "dev",
                                   "eth0"))[0]["bytes"] for node in ring.nodes]
    return payload, link


def measure(ring, per_node, size, iterations):
    """(bus bandwidth in bit/s, payload sent by a node per allreduce, the same by the link)."""
    results = ring.folder / f"perf-{per_node}.json"
    words = ["gradring-perf", "allreduce", "--min", str(size), "--max", str(size), "--dtype", "float32", "--op",
             "sum", "--iters", str(iterations), "--warmup", "2", "--json", str(results)]
    before = counted(ring)
    job = ring.launch(f"bench-{per_node}", words, per_node=per_node)
    statuses = job.wait(300)
    if any(statuses):
        sys.exit(f"gradring-perf: {statuses}\n{job[0].complains()}")
    after = counted(ring)
    ops = iterations + 2
    payload, link = ([(b - a) / ops for a, b in zip(first, then)] for first, then in zip(before, after))
    took = json.loads(results.read_text())["results"][0]["time_seconds"]
    # Counted by nodes, not by ranks as gradring-perf does: only that is comparable with a link.
    return 2 * (len(ring.nodes) - 1) / len(ring.nodes) * size * 8 / took, max(payload), max(link) * PAYLOAD_PART


def idle_cores(programs, seconds):
    """The part of a core that a connected pair without work uses."""
    with testbed.Cluster(programs, 2, testbed.Namespaces) as pair:
        pair.start()
        time.sleep(2)
        before = [testbed.cpu_seconds(node.daemon.pid) for node in pair.nodes]
        time.sleep(seconds)
        after = [testbed.cpu_seconds(node.daemon.pid) for node in pair.nodes]
        rss = [node.footprint().rss_bytes >> 20 for node in pair.nodes]
    return (sum(after) - sum(before)) / seconds, rss


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=Path, default=ROOT / "build/bin")
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--megabytes", type=int, default=16)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--idle-seconds", type=int, default=60)
    options = parser.parse_args()
    reason = testbed.why_no_namespaces()
    if reason:
        sys.exit(f"bench_ring: needs network namespaces: {reason}")

    size, nodes = options.megabytes << 20, options.nodes
    expected = 2 * (nodes - 1) / nodes * size
    good = True

    def line(what, value, target, held):
        nonlocal good
        good = good and held
        print(f"{'OK  ' if held else 'MISS'}  {what:<44} {value:<34} {target}", flush=True)

    with testbed.Cluster(options.programs, nodes, testbed.Namespaces) as ring, testbed.cubic(ring.network, nodes):
        ring.network.shape()
        ring.start()
        stream = goodput(ring)
        print(f"one TCP stream: {stream / 1e6:.0f} Mbit/s; allreduce of {options.megabytes} MiB float32, {nodes} nodes")
        for per_node in (1, 2):
            busbw, payload, link = measure(ring, per_node, size, options.iterations)
            name = f"{nodes} x {per_node}: "
            line(f"{name}bus bandwidth", f"{busbw / 1e6:.0f} Mbit/s = {busbw / stream:.1%} of a stream",
                 f"at least {BUSBW_LEAST:.0%}", busbw >= BUSBW_LEAST * stream)
            for how, sent in (("by the transport", payload), ("by the link", link)):
                line(f"{name}payload sent a node and op, {how}", f"{sent:,.0f} = {sent / expected - 1:+.2%}",
                     f"{expected:,.0f} within {BYTES_TOLERANCE:.0%}", abs(sent / expected - 1) <= BYTES_TOLERANCE)
    if options.idle_seconds > 0:
        cores, rss = idle_cores(options.programs, options.idle_seconds)
        line(f"an idle pair over {options.idle_seconds} s", f"{cores:.2%} of a core, RSS {rss} MiB",
             f"under {IDLE_MOST:.1%}", cores < IDLE_MOST)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
