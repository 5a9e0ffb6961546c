"""Daemons know one another by their keys."""

import signal

from checks import TRAINER, bad_news, events, run_job, wait_for_all
from cluster import run, wait_until


def allow(cluster, lines):
    """The list on all nodes from now on, which the first two read anew."""
    (cluster.folder / "allowed-keys").write_text("\n".join(lines) + "\n")
    for node in cluster.nodes[:2]:
        node.daemon.signal(signal.SIGHUP)


def replace_key(cluster):
    """Of the last node, which does not know of it; its new file."""
    node, other = cluster.nodes[2], cluster.folder / "other"
    other.mkdir()
    run(cluster.program("gradringctl"), "keygen", "--out", other, "--name", node.name, "--address", node.address)
    lines = (cluster.folder / "allowed-keys").read_text().splitlines()
    allow(cluster, [*lines[:2], (other / f"{node.name}.pub").read_text().strip()])
    return other / f"{node.name}.key"


def wait_lost(cluster, node):
    """Once the first two have given it up for its key, and stay connected."""
    for one in cluster.nodes[:2]:
        wait_until(lambda n=one: "its key was taken out of allowed-keys" in n.daemon.complains(), 15,
                   f"{one.name} gives up {node.name}")
        assert len(one.peers("up")) == 1, one.peers()


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


def test_a_key_that_is_replaced_ends_its_connections_and_no_others(make_cluster):
    cluster = make_cluster(3).start()
    good, changed = cluster.nodes[:2], cluster.nodes[2]
    going = cluster.launch("going", [TRAINER, "--ops", "1000000", "--delay-ms", "2"], nodes=good)
    wait_for_all(going, "done", 2)
    key = replace_key(cluster)
    wait_lost(cluster, changed)
    # By the connection that its old key has opened it says hello again, for which nobody would ask the list.
    wait_until(lambda: [one for one in changed.peers() if "key" in one["reason"]], 15, "it is told of its key")
    assert not changed.peers("up")

    changed.stop()
    cluster.configure(changed, key=key)
    cluster.processes.append(changed.run_daemon())
    for node in cluster.nodes:
        node.wait_ready(2)
    run_job(cluster, "all", "--ops", "3")
    assert all(one.running() and not bad_news(one) for one in going)
    going.kill()


def test_who_is_back_by_its_new_key_within_its_grace_keeps_its_jobs(make_cluster):
    cluster = make_cluster(3, settings={"restart-grace": "60s"}).start(kept=(0, 1, 2))
    changed = cluster.nodes[2]
    going = cluster.launch("going", [TRAINER, "--ops", "1000000", "--delay-ms", "20"])
    wait_for_all(going, "done", 2)
    key = replace_key(cluster)
    wait_lost(cluster, changed)
    done = [len(events(one, "done")) for one in going]
    cluster.configure(changed, key=key)
    changed.daemon.signal(signal.SIGUSR1)  # restarts it
    wait_until(lambda: all(len(events(one, "done")) > count + 20 for one, count in zip(going, done, strict=True)), 60,
               "the job goes on")
    assert all(one.running() and not bad_news(one) for one in going)
    going.kill()


def test_a_node_whose_line_is_taken_away_is_shut_out(make_cluster):
    cluster = make_cluster(3).start()
    out = cluster.nodes[2]
    for node in cluster.nodes[:2]:
        node.config.write_text(node.config.read_text().replace(f"peer = {out.address}\n", ""))
    allow(cluster, (cluster.folder / "allowed-keys").read_text().splitlines()[:2])
    wait_lost(cluster, out)
    wait_until(lambda: not out.peers("up"), 15, "it hears that it was given up")
    run_job(cluster, "two", "--ops", "3", nodes=cluster.nodes[:2])
