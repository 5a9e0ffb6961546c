"""Peers that come and go: by a file that is watched, by a name with many addresses."""

import contextlib
import shutil
import signal
import socket
import sys
import time
from pathlib import Path

import pytest
from checks import TRAINER, run_job, wait_for_all
from cluster import Process, run, wait_until

HERE = Path(__file__).parent
PATIENCE = 20


def find_by(ring, source):
    """No node names another; all have the same source."""
    for node in ring.nodes:
        ring.configure(node)
        text = node.config.read_text()
        node.config.write_text("".join(line for line in text.splitlines(True) if not line.startswith("peer ="))
                               + f"discover = {source}\n")


def write(path, lines):
    """At once, as whoever manages such a file should."""
    fresh = path.with_suffix(".new")
    fresh.write_text("".join(f"{line}\n" for line in lines))
    fresh.rename(path)


def meet(ring, nodes):
    for node in nodes:
        wait_until(lambda node=node: {peer["node"] for peer in node.peers("up") or []}
                   == {other.name for other in nodes if other is not node}, PATIENCE, f"{node.name} has found the others")


def known_to(node):
    return {peer["address"] for peer in node.peers()}


def test_a_file_that_is_watched(make_cluster):
    ring = make_cluster(3)
    path = ring.folder / "peers"
    find_by(ring, f"file:{path}")
    first, _, last = ring.nodes
    all_of_them = [node.address for node in ring.nodes]  # this node's own as well: one file for all
    write(path, ["# two at first"] + all_of_them[:2])
    ring.start_daemons()
    meet(ring, ring.nodes[:2])
    job = ring.launch("early", [TRAINER, "--ops", "100000", "--delay-ms", "2"], nodes=ring.nodes[:2])
    wait_for_all(job, "done", 2)

    write(path, all_of_them)
    meet(ring, ring.nodes)
    run_job(ring, "all", "--ops", "20", "--count", "100000")
    assert all(trainer.running() for trainer in job), "who comes disturbs nobody"

    write(path, all_of_them[:2] + ["no address at all"])
    wait_until(lambda: "is no address" in first.log(), PATIENCE, "the mistake is told")
    assert len(first.peers("up")) == 2, "and takes nobody away"
    write(path, all_of_them[:2])
    wait_until(lambda: "1 gone" in first.log(), PATIENCE, "the list is read")
    assert len(first.peers("up")) == 2, "who is no longer listed, and lives, is not let go"
    last.daemon.kill()
    for node in ring.nodes[:2]:
        wait_until(lambda node=node: last.address not in known_to(node), PATIENCE, f"{node.name} has let it go")
    assert all(trainer.running() for trainer in job)

    write(path, all_of_them)
    ring.processes.append(last.run_daemon())
    meet(ring, ring.nodes)
    run_job(ring, "again", "--ops", "20", "--count", "100000")
    job.kill()


def test_a_list_that_is_not_there_is_waited_for(make_cluster):
    ring = make_cluster(2)
    path = ring.folder / "peers"
    find_by(ring, f"file:{path}")
    ring.start_daemons()
    for node in ring.nodes:
        wait_until(lambda node=node: "cannot be read: No such file" in node.log(), PATIENCE, "the log says so")
    write(path, [node.address for node in ring.nodes])
    meet(ring, ring.nodes)


def test_a_list_of_thousands_ends_nobody(make_cluster):
    """More sockets than libzmq has for us, once; most of them answer nobody."""
    ring = make_cluster(2)
    path = ring.folder / "peers"
    find_by(ring, f"file:{path}")
    nobody = [f"10.255.{number // 200}.{number % 200 + 1}:7300" for number in range(9000)]
    write(path, [node.address for node in ring.nodes] + nobody)
    ring.start_daemons()
    for node in ring.nodes:
        wait_until(lambda node=node: "9001 addresses are named; the first 8192" in node.log(), PATIENCE, "the log says so")
    write(path, [node.address for node in ring.nodes])
    meet(ring, ring.nodes)
    run_job(ring, "job", "--ops", "5", "--count", "1000")


def test_nonsense_and_a_missing_allocation_are_refused(make_cluster):
    single = make_cluster(1)
    for source, complaint in (("file:peers", "write file:PATH (absolute)"), ("etcd:x", "write file:PATH"),
                              ("slurm", "SLURM_JOB_NODELIST")):
        find_by(single, source)
        daemon = single.nodes[0].run_daemon()
        single.processes.append(daemon)
        assert daemon.wait(10) == 2 and complaint in daemon.complains(), daemon.complains()


@contextlib.contextmanager
def names_from(network, nodes, server, options="timeout:1 attempts:1"):
    """Inside these nodes names are asked of the server."""
    folders = [Path("/etc/netns") / network.space(node.index) for node in nodes]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "resolv.conf").write_text(f"nameserver {server}\noptions {options}\n")
    try:
        yield
    finally:
        for folder in folders:
            shutil.rmtree(folder)


def host(node):
    return node.address.rpartition(":")[0]


@pytest.fixture
def named(namespaces, make_cluster):
    """Three nodes that find each other by a name, and the file of its addresses."""
    ring = make_cluster(3, network=namespaces, secure=False)
    find_by(ring, "dns:ring.example:7300")
    addresses = ring.folder / "addresses"
    with names_from(ring.network, ring.nodes, host(ring.nodes[0])):
        yield ring, addresses


NOBODY_ANSWERS = """import socket, sys
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind((sys.argv[1], 53))
while True:
    print(server.recvfrom(512), flush=True)
"""


def test_a_name_that_no_server_answers_for_takes_nobody_else_away(namespaces, make_cluster):
    ring = make_cluster(2, network=namespaces, secure=False)
    first, last = ring.nodes
    for node in ring.nodes:
        node.config.write_text(node.config.read_text() + "".join(f"peer = gone{number}.example:7300\n" for number in range(4)))
    with names_from(ring.network, ring.nodes, "127.0.0.1", "timeout:5"):
        servers = [Process(f"names{node.index}", [sys.executable, "-c", NOBODY_ANSWERS, "127.0.0.1"], ring.folder, ring.mark,
                           prefix=node.prefix) for node in ring.nodes]
        ring.processes += servers
        ring.start_daemons()
        meet(ring, ring.nodes)
        job = ring.launch("early", [TRAINER, "--ops", "100000", "--delay-ms", "2"])
        wait_for_all(job, "done", 2)
        for node in ring.nodes:
            wait_until(lambda node=node: node.log().count("no name server answers") == 4, PATIENCE, "the log says so, once each")
        time.sleep(10)  # several tries later
        assert all(trainer.running() for trainer in job)
        for node in ring.nodes:
            assert "silent" not in node.log() and node.log().count("no name server answers") == 4, node.log()
        job.kill()
        first.daemon.signal(signal.SIGTERM)
        assert first.daemon.wait(3) == 0, "no name server is waited for"


def serve_names(ring, addresses):
    server = Process("names", [sys.executable, HERE / "name_server.py", host(ring.nodes[0]), addresses], ring.folder,
                     ring.mark, prefix=ring.nodes[0].prefix)
    ring.processes.append(server)
    return server


def test_a_name_with_many_addresses(named):
    ring, addresses = named
    ring.start_daemons()
    first, _, last = ring.nodes
    wait_until(lambda: "cannot be looked up" in first.log(), PATIENCE, "nobody answers yet, and the log says so")
    write(addresses, [host(node) for node in ring.nodes])
    server = serve_names(ring, addresses)
    meet(ring, ring.nodes)
    run_job(ring, "all", "--ops", "20", "--count", "100000")

    server.kill()
    wait_until(lambda: first.log().count("cannot be looked up") >= 2, PATIENCE, "the server is missed")
    assert len(first.peers("up")) == 2, "without a name server the ring stands"

    # A node that comes back elsewhere, as a pod does.
    last.daemon.kill()
    space = ring.network.space(last.index)
    run("ip", "-n", space, "address", "del", f"{host(last)}/24", "dev", "eth0")
    run("ip", "-n", space, "address", "add", "10.77.0.33/24", "dev", "eth0")
    last.config.write_text(last.config.read_text().replace(last.address, "10.77.0.33:7300"))
    last.address = "10.77.0.33:7300"
    ring.processes.append(last.run_daemon())
    write(addresses, [host(node) for node in ring.nodes])
    serve_names(ring, addresses)
    meet(ring, ring.nodes)
    for node in ring.nodes:
        assert known_to(node) == {other.address for other in ring.nodes if other is not node}, "the old address is let go"
    run_job(ring, "moved", "--ops", "20", "--count", "100000")


# ---- names with more addresses than one, or with one that nobody else has ----

@pytest.fixture
def hosts_of(namespaces, make_cluster):
    """A ring of three, and a function that writes /etc/hosts of a node. Node i also has fd77::i+1."""
    ring = make_cluster(3, network=namespaces, secure=False)
    folders = {node: Path("/etc/netns") / ring.network.space(node.index) for node in ring.nodes}
    for node, folder in folders.items():
        folder.mkdir(parents=True)
        ring.network.inside(node.index, "sysctl", "-q", "net.ipv6.conf.all.disable_ipv6=0")
        run("ip", "-n", ring.network.space(node.index), "address", "add", f"{ipv6(node)}/64", "dev", "eth0", "nodad")
    try:
        yield ring, lambda node, lines: (folders[node] / "hosts").write_text("127.0.0.1 localhost\n" + "".join(
            f"{line}\n" for line in lines))
    finally:
        for folder in folders.values():
            shutil.rmtree(folder)


def ipv6(node):
    return f"fd77::{node.index + 1}"


def listen_by_ipv6(node):
    node.config.write_text(node.config.read_text().replace(f"listen = {host(node)}:", f"listen = [{ipv6(node)}]:"))


def nobody_else_is_named(ring):
    for node in ring.nodes:
        assert len(node.peers()) == len(ring.nodes) - 1, node.peers()
        assert node.ctl("peers")[0] == 0


def test_the_own_host_name_in_a_list_is_no_peer(hosts_of):
    """Debian's /etc/hosts has it at 127.0.1.1, where nobody listens."""
    ring, write_hosts = hosts_of
    path = ring.folder / "peers"
    find_by(ring, f"file:{path}")
    write(path, [socket.gethostname(), *(node.address for node in ring.nodes)])
    for node in ring.nodes:
        write_hosts(node, [f"127.0.1.1 {socket.gethostname()}"])
    ring.start_daemons()
    meet(ring, ring.nodes)
    nobody_else_is_named(ring)


@pytest.mark.parametrize("listens", ["IPv4", "IPv6"])
def test_a_name_of_both_families_has_each_node_once(hosts_of, listens):
    """As a headless service of a cluster with both has it, whose daemons listen by one."""
    ring, write_hosts = hosts_of
    find_by(ring, "dns:ring.example:7300")
    for node in ring.nodes:
        write_hosts(node, [f"{address} ring.example" for other in ring.nodes for address in (host(other), ipv6(other))])
        if listens == "IPv6":
            listen_by_ipv6(node)
    ring.start_daemons()
    meet(ring, ring.nodes)
    nobody_else_is_named(ring)


@pytest.mark.parametrize("both", [False, True])
def test_peers_that_listen_by_ipv6_are_met_by_their_names(hosts_of, both):
    ring, write_hosts = hosts_of
    path = ring.folder / "peers"
    find_by(ring, f"file:{path}")
    write(path, [f"{node.name}.example:7300" for node in ring.nodes])
    for node in ring.nodes:
        write_hosts(node, [f"{address} {other.name}.example" for other in ring.nodes
                           for address in [ipv6(other)] + [host(other)] * both])
        listen_by_ipv6(node)
    ring.start_daemons()
    meet(ring, ring.nodes)
    nobody_else_is_named(ring)
    run_job(ring, "job", "--ops", "5", "--count", "1000")
