"""Daemons know one another by their keys."""

from checks import run_job
from cluster import run, wait_until


def test_two_nodes_with_keys_work(make_cluster):
    cluster = make_cluster(2).start()
    for node in cluster.nodes:
        assert node.ask("status")["secure"]
    run_job(cluster, "keys", "--ops", "3", per_node=2)


def test_without_keys_it_is_shown(make_cluster):
    cluster = make_cluster(2, secure=False).start()
    for node in cluster.nodes:
        assert not node.ask("status")["secure"]
    run_job(cluster, "clear", "--ops", "3")


def test_a_node_with_an_unknown_key_is_refused_and_shown(make_cluster):
    """Its own list names everybody, so it would talk; the others' list has another key for it."""
    cluster = make_cluster(3)
    impostor = cluster.nodes[2]
    other = cluster.folder / "other"
    other.mkdir()
    run(cluster.program("gradringctl"), "keygen", "--out", other, "--name", impostor.name,
        "--address", impostor.address)
    own_list = (cluster.folder / "allowed-keys").read_text().splitlines()
    own_list[-1] = (other / "n2.pub").read_text().strip()
    (other / "allowed-keys").write_text("\n".join(own_list) + "\n")
    cluster.configure(impostor, key=other / "n2.key", allowed_keys=other / "allowed-keys")
    for node in cluster.nodes:
        cluster.processes.append(node.run_daemon())
    good = cluster.nodes[:2]
    for node in good:
        node.wait_ready(1)

    host = impostor.address.rsplit(":", 1)[0]
    for node in good:
        wait_until(lambda n=node: f"refused a peer at {host}: its key is not in allowed-keys" in n.daemon.complains(),
                   15, f"{node.name} logs that it refused the impostor")
        assert [(peer["address"], bool(peer["reason"])) for peer in node.peers() if peer["state"] != "up"] == [
            (impostor.address, True)]
    wait_until(lambda: [peer for peer in impostor.peers() if "does not allow our key" in peer["reason"]], 30,
               "the impostor is told that its key is not allowed")
    assert not impostor.peers("up")
    run_job(cluster, "two", "--ops", "3", nodes=good)
