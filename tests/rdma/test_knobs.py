"""What an operator says of a card is what the card does, by the word of the kernel and of UCX's own log."""

import json
import re

from ring import SOON, counters

# UCX tells what it asked of verbs when a connection is made.
TELLS = {"environment": "UCX_LOG_LEVEL=debug"}
PERF = "gradring-perf allreduce --min 256K --max 256K --iters 4 --check"


def arrived(guest):
    """IP packets by the ECN bits of their traffic class: 0 to 3."""
    said = guest.run("awk '/^IpExt: [0-9]/ {print} /^IpExt: In/ {print}' /proc/net/netstat", "netstat", SOON)
    names, values = (line.split()[1:] for line in said.strip().splitlines())
    found = dict(zip(names, map(int, values), strict=True))
    return [found[name] for name in ("InNoECTPkts", "InECT1Pkts", "InECT0Pkts", "InCEPkts")]


def gids(guest):
    """Index by address, of RoCE v2."""
    said = guest.run("cd /sys/class/infiniband/rxe0/ports/1; for n in $(seq 0 31); do "
                     "echo $n $(cat gids/$n) $(cat gid_attrs/types/$n 2>/dev/null); done", "gids", SOON)
    return {gid: int(index) for index, gid in re.findall(r"^(\d+) (\S+) RoCE v2$", said, re.M)}


def test_settings_reach_the_card(guests, make_ring, figure):
    """Each value another than UCX's own; the class's last two bits are counted by the other end's IP."""
    ring = make_ring(more=("rdma-traffic-class = 97", "rdma-service-level = 3", "rdma-path-mtu = 1024",
                           "rdma-timeout = 300ms", "rdma-retries = 4", "rdma-rnr-retries = 5", "log-level = debug"), **TELLS)
    before = [arrived(guest) for guest in guests]
    packets = counters(guests[1])["rcvd_pkts"]
    ring.run("knobs", PERF)
    packets = counters(guests[1])["rcvd_pkts"] - packets
    for guest, old in zip(guests, before, strict=True):
        new = [after - then for after, then in zip(arrived(guest), old, strict=True)]
        figure(f"rdma-traffic-class = 97, guest {guest.name}: {new[1]} packets arrived as ECT(1), {new[2]} as ECT(0)")
        assert new[1] > 1000 and new[1] > 10 * new[2], new
    said = "".join(ring.daemons[0].says() + ring.daemons[0].complains())
    made = set(re.findall(r"connected rc qp .* sl (\d+) .* mtu (\d+) timer (\d+)x(\d+) rnr \d+x(\d+)", said))
    # 4.096 us times 2 to the 16th is 268 ms.
    assert made == {("3", "1024", "16", "4", "5")}, made
    figure(f"UCX asked of verbs (sl, mtu, timeout, retries, rnr retries): {sorted(made)}; {packets} packets of 1024 bytes")


def test_the_address_is_that_in_the_network_of_listen(guests, make_ring, figure):
    """A second address of the interface, which UCX alone would not take."""
    where = [f"10.9.0.{node + 1}" for node in range(len(guests))]
    for guest, one in zip(guests, where, strict=True):
        guest.run(f"ip addr add {one}/24 dev eth0; sleep 1", "second", SOON)
    try:
        table = gids(guests[0])
        second = table["0000:0000:0000:0000:0000:ffff:0a09:0001"]
        assert second > table["0000:0000:0000:0000:0000:ffff:0a00:0001"]
        ring = make_ring(where=where, more=("log-level = debug",), **TELLS)
        ring.run("second", PERF)
        lane = json.loads(ring.ask(0, "--json topology"))["nodes"][0]["lanes"][0]
        assert lane["gid"]["index"] == second and lane["gid"]["address"] == "::ffff:10.9.0.1"
        assert "the address of listen" in lane["reason"]
        figure(f"two IPv4 addresses: {lane['reason']}")
        ring.close()
        # UCX's own first one is taken where nobody asks for the second.
        plain = make_ring()
        lane = json.loads(plain.ask(0, "--json topology"))["nodes"][0]["lanes"][0]
        assert lane["gid"]["address"] == "::ffff:10.0.0.1"
    finally:
        for guest, one in zip(guests, where, strict=True):
            guest.run(f"ip addr del {one}/24 dev eth0", "second", SOON)


def test_an_address_that_is_not_there_is_refused(guests):
    said = guests[0].run("gradringd --check-config --insecure true --listen 10.0.0.1:7300 --net-device rxe0 "
                         "--rdma-gid-index 77 2>&1 && exit 1; test $? = 2", "refused", SOON)
    assert "rdma-gid-index: 77 is not in the table of rxe0:1" in said and "RoCE v2, 10.0.0.1, eth0" in said, said
