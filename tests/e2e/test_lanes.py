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


SLOW = {"suspect": "20s", "decide": "40s"}  # so nothing of what follows can be by heartbeats


@pytest.mark.parametrize("how", ["down", "unplugged"])
def test_a_port_without_a_link_is_said_and_given_up_at_once(namespaces, make_cluster, figure, how):
    ring = make_cluster(2, network=functools.partial(Namespaces, cards=2), settings=SLOW).start()
    job = ring.launch("at-once", [TRAINER, "--ops", "200", "--count", "300000", "--delay-ms", "20"])
    wait_for_all(job, "done", 20)
    lost = time.monotonic()
    if how == "down":
        ring.network.set_link(1, "down", 1)
    else:
        ring.network.unplug(1, 1)

    def given_up(node, other):
        return [lane["state"] for lane in lanes_of(ring.nodes[node])[other]] == ["up", "lost"]

    wait_until(lambda: given_up(1, "n0"), 15, "the node without the link gives the lane up")
    wait_until(lambda: given_up(0, "n1"), 15, "and the other is told")
    took = time.monotonic() - lost
    assert lanes_of(ring.nodes[1])["n0"][1]["reason"] == "its port eth1 is down"
    assert lanes_of(ring.nodes[1])["n0"][1]["port_state"] == "down"
    ports = [lane["ports"] for lane in ring.nodes[1].ask("topology")["nodes"][0]["lanes"]]
    assert [one[0]["state"] for one in ports] == ["active", "down"], ports
    kinds = [(one["event"], one["about"].get("port")) for one in ring.nodes[1].ask("events")["events"]]
    assert ("port down", "eth1") in kinds, kinds
    statuses = job.wait(60)
    assert statuses == [0] * 2, (ring.nodes[0].log(60), [one.says()[-600:] for one in job])
    assert_untouched(job, 200)
    figure(f"lanes: a port {how} under load with suspect = 20s: given up at both ends after {took:.2f} s, "
           f"longest pause {longest_step(job):.2f} s")
    if how == "down":
        ring.network.set_link(1, "up", 1)
    else:
        ring.network.plug_in(1, 1)
    wait_until(lambda: ring.nodes[1].ask("topology")["nodes"][0]["lanes"][1]["ports"][0]["state"] == "active", 15,
               "the port is back")


def test_a_card_without_a_link_at_the_start_costs_its_lane_alone(namespaces, make_cluster):
    ring = make_cluster(3, network=functools.partial(Namespaces, cards=2))
    ring.network.unplug(1, 1)
    ring.start()
    wait_until(lambda: [lane["state"] for lane in lanes_of(ring.nodes[1])["n0"]] == ["up", "lost"], 15, "the lane is down")
    assert "port eth1 of lane 1 is down: look at cable" in ring.nodes[1].log()
    job = ring.launch("goes", [TRAINER, "--ops", "20", "--count", "300000"])
    assert job.wait(60) == [0] * 3, [one.says()[-600:] for one in job]
    assert_untouched(job, 20)
    ring.network.plug_in(1, 1)
    wait_until(lambda: all_used(ring), 40, "the card is used")


def test_the_port_of_the_only_lane_may_flap(namespaces, make_cluster):
    ring = make_cluster(2, network=Namespaces, settings=SLOW).start()
    job = ring.launch("flaps", [TRAINER, "--ops", "100", "--count", "30000", "--delay-ms", "20"])
    wait_for_all(job, "done", 20)
    ring.network.unplug(1)
    wait_until(lambda: "port eth0 of lane 0 is down" in ring.nodes[1].log(60), 15, "it is said")
    assert [lane["state"] for lane in lanes_of(ring.nodes[1])["n0"]] == ["up"]
    ring.network.plug_in(1)
    assert job.wait(60) == [0] * 2, (ring.nodes[1].log(60), [one.says()[-600:] for one in job])
    assert_untouched(job, 100)


def test_an_address_that_is_not_valid_yet_is_left_out(namespaces, make_cluster):
    """One of IPv6 that the kernel still asks the network about cannot be listened at."""
    ring = make_cluster(2, network=Namespaces)
    ring.network.inside(0, "sysctl", "-qw", "net.ipv6.conf.eth0.disable_ipv6=0", "net.ipv6.conf.eth0.dad_transmits=600")
    ring.network.inside(0, "ip", "addr", "add", "fd09::1/64", "dev", "eth0")
    assert "tentative" in ring.network.inside(0, "ip", "-6", "addr", "show", "eth0", "tentative")
    ring.start()
    job = ring.launch("goes", [TRAINER, "--ops", "3", "--count", "300000"])
    assert job.wait(60) == [0, 0], [one.says()[-600:] for one in job]


@pytest.mark.parametrize("way", ["sockets", "ucx"])
def test_a_node_may_listen_at_an_address_with_a_label(namespaces, make_cluster, way):
    """As those have that move from node to node: getifaddrs(3) calls such an entry by its label."""
    ring = make_cluster(2, network=Namespaces, settings={"tcp-by": way})
    address = ring.nodes[0].address.rpartition(":")[0]
    ring.network.inside(0, "ip", "addr", "del", f"{address}/24", "dev", "eth0")
    if way == "ucx":  # asks for an address without a label
        ring.network.inside(0, "ip", "addr", "add", "10.77.0.99/24", "dev", "eth0")
    ring.network.inside(0, "ip", "addr", "add", f"{address}/24", "dev", "eth0", "label", "eth0:1")
    ring.start()
    assert ring.nodes[0].ask("topology")["nodes"][0]["lanes"][0]["device"] == "eth0 (TCP)"
    job = ring.launch("goes", [TRAINER, "--ops", "3", "--count", "300000"])
    assert job.wait(60) == [0, 0], [one.says()[-600:] for one in job]


def test_tcp_may_go_by_ucx(make_cluster):
    ring = make_cluster(2, settings={"tcp-by": "ucx"}).start()
    assert ring.nodes[0].ask("status")["transport"].startswith("ucx ")
    job = ring.launch("by-ucx", [TRAINER, "--ops", "3", "--count", "300000"])
    assert job.wait(60) == [0, 0], [one.says()[-600:] for one in job]


def test_nodes_whose_tcp_goes_by_different_ways_say_so(make_cluster):
    ring = make_cluster(2)
    for node, way in zip(ring.nodes, ("ucx", "sockets"), strict=True):
        ring.processes.append(node.run_daemon("--tcp-by", way))
    wait_until(lambda: any("with one tcp-by" in str(node.peers()) for node in ring.nodes), 10, "one refuses the other")
