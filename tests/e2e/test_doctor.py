"""gradringctl doctor on rings in health, on rings that are not, and without any daemon."""

import signal

from cluster import wait_until


def level_of(told, check):
    return next((one["level"] for one in told["checks"] if one["check"] == check), None)


def test_nothing_fails_in_health(pair):
    status, text, complaint = pair.nodes[0].ctl("doctor", "--seconds", "0.5")
    told = pair.nodes[0].ask("doctor", "--seconds", "0.5")
    failed = [one for one in told["checks"] if one["level"] == "FAIL"]
    assert status == 0 and not failed, (failed, complaint)
    assert level_of(told, "daemon") == level_of(told, "peers") == level_of(told, "versions") == "OK", text
    assert level_of(told, "settings") == level_of(told, "clocks") == level_of(told, "lanes") == "OK", text
    assert "this node\n" in text and "between nodes\n" in text, text


def test_a_peer_that_is_gone_is_told_with_what_to_try(make_cluster):
    ring = make_cluster(2).start()
    ring.nodes[1].daemon.signal(signal.SIGKILL)
    wait_until(lambda: not ring.nodes[0].peers("up"), 10, "the peer is lost")
    status, text, _ = ring.nodes[0].ctl("doctor", "--seconds", "0.5")
    assert status == 1 and "FAIL  peer n1" in text and "nc -vz" in text, text
    status, text, _ = ring.nodes[1].ctl("doctor", "--seconds", "0.5")
    assert status == 1 and "FAIL  daemon" in text and "memlock" in text, text


def test_nodes_that_differ_are_told_apart(make_cluster):
    ring = make_cluster(2)
    ring.configure(ring.nodes[1], op_deadline="77s")
    ring.start()
    told = ring.nodes[0].ask("doctor", "--seconds", "0.5")
    assert level_of(told, "op-deadline") == "WARN", told
    found = next(one["found"] for one in told["checks"] if one["check"] == "op-deadline")
    assert "77000 ms on n1" in found, found


def test_who_asks_for_nonsense_is_told_so(single):
    for words in (["--seconds", "0"], ["--seconds", "nan"], ["now"], ["--node", "n9"]):
        assert single.nodes[0].ctl("doctor", *words)[0] == 2, words
