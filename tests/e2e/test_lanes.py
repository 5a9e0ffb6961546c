"""Two cards a node: both carry slices, and losing one costs no op."""

import functools
import time

import pytest
from checks import OK, TRAINER, events, longest_step, wait_for_all
from cluster import Namespaces, wait_until

RECOVERED_WITHIN = 5.0


@pytest.fixture
def ring(namespaces, make_cluster):
    return make_cluster(3, network=functools.partial(Namespaces, cards=2)).start()


def lanes_of(node):
    """{peer: [lane, ...]} as gradringctl shows them."""
    return {peer["node"]: peer["lanes"] for peer in node.peers()}


def all_used(ring):
    return all(lane["state"] == "up" for node in ring.nodes for lanes in lanes_of(node).values() for lane in lanes)


def assert_untouched(job, ops):
    for trainer in job:
        ended = events(trainer, "done")
        assert [one["op"] for one in ended] == list(range(ops)), trainer.says()[-600:]
        assert all(one["verdict"] == OK and one["right"] and one["ranks"] == len(job) for one in ended), (
            trainer.name, [one for one in ended if one["verdict"] != OK or not one["right"]][:2])


def test_both_cards_carry_slices(ring):
    job = ring.launch("both", [TRAINER, "--ops", "20", "--count", "1000000"])
    assert job.wait(60) == [0] * 3, [one.says()[-600:] for one in job]
    assert_untouched(job, 20)
    time.sleep(1)  # the daemons renew their counters some times a second
    for node in ring.nodes:
        after = ring.nodes[(node.index + 1) % 3].name  # to which all its slices go
        lanes = lanes_of(node)[after]
        assert [lane["device"].split()[0] for lane in lanes] == ["eth0", "eth1"]
        sent = [lane["sent_bytes"] for lane in lanes]
        assert min(sent) >= 0.9 * max(sent), (node.name, sent)


# Over card 0 go the daemons' control connections as well.
@pytest.mark.parametrize("policy, card, how", [("fail", 1, "cut"), ("elastic", 1, "down"), ("fail", 0, "cut"),
                                               ("elastic", 0, "down")])
def test_a_lost_card_costs_no_op(ring, figure, policy, card, how):
    words = [TRAINER, "--policy", policy, "--ops", "400", "--count", "300000", "--delay-ms", "20"]
    job = ring.launch("goes-on", words, per_node=2)
    wait_for_all(job, "done", 10)
    lost = time.monotonic()
    if how == "cut":
        ring.network.cut(1, card)
    else:
        ring.network.set_link(1, "down", card)

    def given_up():
        lanes = lanes_of(ring.nodes[0])["n1"]
        return len(lanes) == 2 and lanes[card]["state"] != "up" and lanes[1 - card]["state"] == "up"

    wait_until(given_up, 2 * RECOVERED_WITHIN, "the lane is given up")
    told = time.monotonic() - lost
    assert all(lane["state"] == "up" for lane in lanes_of(ring.nodes[0])["n2"]), "others keep theirs"

    def explanation():
        return ring.nodes[0].ask("job", "goes-on")["explanation"]

    wait_until(lambda: "lane" in explanation(), RECOVERED_WITHIN, "the job says what became of it")
    told_of = explanation()
    if how == "cut":
        ring.network.mend(1, card)
    else:
        ring.network.set_link(1, "up", card)
    statuses = job.wait(120)
    assert statuses == [0] * 6, (ring.nodes[0].log(60), [one.says()[-600:] for one in job])
    assert_untouched(job, 400)
    pause = longest_step(job)
    figure(f"lanes: card {card} {how} under load, policy {policy}: 0 ops failed, given up after {told:.1f} s, longest "
           f"pause {pause:.1f} s; {told_of}")
    assert pause < RECOVERED_WITHIN
    wait_until(lambda: all_used(ring), 40, "the card is used again")
