"""A card that comes up after services start: the service waits for it, since nobody would start it again."""

import signal

import pytest
from checks import run_job
from cluster import Namespaces, Process, wait_until


@pytest.fixture
def late(namespaces, make_cluster):
    """Two nodes; the first one's daemon is to be a service, and its card is not there yet."""
    cluster = make_cluster(2, network=Namespaces)
    cluster.network.inside(0, "ip", "link", "set", "eth0", "down")
    address = cluster.nodes[0].address.split(":")[0]
    cluster.network.inside(0, "ip", "address", "del", f"{address}/24", "dev", "eth0")
    return cluster, cluster.nodes[0], address


def as_service(cluster, node, *flags):
    manager = f"NOTIFY_SOCKET={cluster.folder / 'manager'}"
    service = Process("service", ["env", manager, cluster.program("gradringd"), "--config", node.config, *flags],
                      cluster.folder, cluster.mark, prefix=node.prefix)
    wait_until(lambda: "waiting for the network" in service.complains() + service.says(), 10, "it says what it waits for")
    return service


def test_a_service_waits_for_its_address(late):
    cluster, node, address = late
    cluster.processes.append(cluster.nodes[1].run_daemon())
    node.daemon = as_service(cluster, node)
    cluster.processes.append(node.daemon)
    assert f"no network interface of this machine has the address of {node.address}" in node.log()
    cluster.network.inside(0, "ip", "address", "add", f"{address}/24", "dev", "eth0")
    wait_until(lambda: "no network interface" not in node.log(1), 10, "the card is missed by now")
    cluster.network.inside(0, "ip", "link", "set", "eth0", "up")
    for each in cluster.nodes:
        each.wait_ready(1)
    run_job(cluster, "late", "--ops", "2")


def test_it_may_be_told_to_end_meanwhile(late):
    cluster, node, _ = late
    service = as_service(cluster, node)
    service.signal(signal.SIGTERM)
    assert service.wait(10) == 0


def test_by_hand_nobody_waits(late):
    cluster, node, address = late
    refused = Process("refused", [cluster.program("gradringd"), "--config", node.config], cluster.folder, cluster.mark,
                      prefix=node.prefix)
    assert refused.wait(10) == 2
    assert address in refused.complains()
