"""Sums and a training over verbs: right, the same bits as over TCP, and not by way of TCP."""

import re

import pytest
from ring import SOON, TRAINER, counters

MIB = 1 << 20


# Over verbs nobody tells UCX of a peer's end other than its silence, later than these cases have patience for: a
# daemon is told by its control connections (test_faults.py).
TOLD_LATE = ("CompletesEverySendExactlyOnceWhenThePeerDies", "EveryAnnouncedPayloadEndsOnceWhenTheSenderDies",
             "SurvivesTheDeathOfAPeerWhileBothSend", "AnIdleConnectionNoticesTheDeathOfThePeer",
             "APeerThatIsGoneIsLostAndNotAnError", "ReconnectsAfterLoss", "ClosesWithTrafficUnderWay")
# Two queue pairs serve both directions, so who leaves may take the other's way along; daemons always both leave.
SHARED = ("OneSideMayReconnectAlone",)


@pytest.mark.parametrize("suite", ["conformance_test", "conformance_endings_test"])
def test_conformance(guests, figure, suite):
    """What every transport has to do, with both ends on one device."""
    without = ":".join(f"*.{name}/*" for name in TOLD_LATE + SHARED)
    environment = "CONFORMANCE_DEVICE=rxe0:1 UCX_HANDLE_ERRORS=none"
    before = counters(guests[0])["sent_pkts"]
    said = guests[0].run(f"{environment} {suite} --gtest_filter='*ucx*-{without}'", suite, 500)
    passed = int(re.search(r"\[  PASSED  \] (\d+) test", said)[1])
    packets = counters(guests[0])["sent_pkts"] - before
    assert passed > 0 and packets > 1000 * passed
    figure(f"{suite} over verbs: {passed} cases passed, {packets} RoCE packets")


def test_sums_are_right_and_go_by_verbs(guests, make_ring, figure):
    ring = make_ring()
    before = [counters(guest) for guest in guests]
    ranks = ring.run("perf", "gradring-perf allreduce --min 4K --max 1M --factor 16 --check")
    after = [counters(guest) for guest in guests]
    assert "Wrong values: 0 OK" in ranks[0].says()
    for guest, old, new in zip(guests, before, after, strict=True):
        sent = {name: new[name] - old[name] for name in new}
        assert sent["sent_pkts"] * 4096 > MIB, f"guest {guest.name} sent {sent}"
        assert sent["tcp_segments"] < sent["sent_pkts"] / 2, f"guest {guest.name} sent {sent}"
        figure(f"perf, guest {guest.name}: {sent['sent_pkts']} RoCE packets, {sent['rdma_sends']} verbs sends, "
               f"{sent['tcp_segments']} TCP segments")
    # That the queue pairs are reliable connections is in the kernel's own list.
    pairs = guests[0].run("rdma resource show qp link rxe0", seconds=SOON)
    assert re.search(r"type RC state RTS .*comm gradringd", pairs), pairs
    for line in re.findall(r"^ +\d+ .*float32.*$", ranks[0].says(), re.M):
        figure(f"perf: {' '.join(line.split())}")


def test_every_collective(make_ring):
    ring = make_ring()
    for collective in ("broadcast", "barrier", "allreduce"):
        ring.run(collective, f"{TRAINER} --ops 3 --count 20000 --collective {collective}")


def test_training_has_the_bits_of_tcp(guests, make_ring, figure):
    weights = {}
    for network, devices in (("tcp", ("eth0",)), ("verbs", ("rxe0",))):
        ring = make_ring(devices=devices)
        before = counters(guests[0])
        ring.run(f"digits-{network}", "gradring-digits --epochs 3 --data /usr/share/digits.csv "
                                      f"--weights-out /host/{network}-%r.bin", 500)
        sent = counters(guests[0])["rdma_sends"] - before["rdma_sends"]
        weights[network] = [(guest.folder / f"{network}-{node}.bin").read_bytes()
                            for node, guest in enumerate(guests)]
        figure(f"digits over {network}: {sent} verbs sends of guest a")
        assert (sent > 100) == (network == "verbs")
        ring.close()
    assert weights["tcp"][0] == weights["tcp"][1] == weights["verbs"][0] == weights["verbs"][1]
    assert len(weights["tcp"][0]) > 10_000


def test_what_people_are_shown(make_ring, keep):
    ring = make_ring()
    ring.run("shown", "gradring-perf allreduce --min 64K --max 64K --check")
    for words in ("topology", "peers", "bandwidth", "status"):
        said = ring.ask(0, words)
        keep(f"{words}.txt", said)
        assert words not in ("topology", "peers") or "rxe0" in said or "up" in said
    doctor = ring.guests[0].start("gradringctl --runtime-dir /run/gradring doctor", "doctor")
    doctor.wait(SOON)
    keep("doctor.txt", doctor.says() + doctor.complains())
    assert "lanes up between 2 nodes" in doctor.says()
