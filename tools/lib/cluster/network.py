"""Where nodes live: network namespaces joined by a bridge, or ports on loopback."""

import contextlib
import functools
import itertools
import os
import shutil
import socket
from pathlib import Path

from .process import run, wait_until

PORT = 7300
ALLOWED = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
_serial = itertools.count()


class Loopback:
    """Every node is a port of this machine. Links cannot be cut or shaped."""

    kind = "loopback"

    def __init__(self, nodes):
        # Held all at once, so that no two nodes get the same.
        sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(nodes)]
        self._ports = [one.getsockname()[1] for one in sockets]
        for one in sockets:
            one.close()

    def address(self, node):
        return f"127.0.0.1:{self._ports[node]}"

    def prefix(self, _node):
        return []

    def lanes(self, _node):
        return {}

    def close(self):
        """Nothing to take away."""

    def leftovers(self):
        return []


@functools.lru_cache(maxsize=None)
def why_no_namespaces():
    """None if namespaces can be used here, else the reason in words."""
    if shutil.which("ip") is None:
        return "the program ip is not installed (package iproute2)"
    if os.geteuid() != 0:
        return "network namespaces need root"
    try:
        probe = Namespaces(1)
    except OSError as error:
        return f"this machine allows root no network namespaces ({error})"
    probe.close()
    return None


class Namespaces:
    """A namespace for each node, with a bridge in one more: the switch. Of several cards each has a bridge of its own.

    Addresses exist inside the namespaces only, so several runs at once do not meet.
    """

    kind = "namespaces"

    def __init__(self, nodes, cards=1):
        self.name = f"gradring-{os.getpid()}-{next(_serial)}"
        self._nodes = nodes
        self._cards = cards
        self._switch = f"{self.name}-switch"
        try:
            self._build()
        except BaseException:
            self.close()
            raise

    def _build(self):
        run("ip", "netns", "add", self._switch)
        for card in range(self._cards):
            self._ip(self._switch, f"link add br{card} type bridge", f"link set br{card} up")
        for node in range(self._nodes):
            space = self.space(node)
            run("ip", "netns", "add", space)
            # Without IPv6 there are no tentative addresses to wait for and no chatter on the link.
            self.inside(node, "sh", "-c", "echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6; "
                                          "echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6")
            self._ip(space, "link set lo up")
            for card in range(self._cards):
                port = self._port(node, card)
                self._ip(self._switch, f"link add {port} type veth peer name eth{card} netns {space}",
                         f"link set {port} master br{card} up")
                self._ip(space, f"address add {self._host(node, card)}/24 dev eth{card}", f"link set eth{card} up")
        for node, card in itertools.product(range(self._nodes), range(self._cards)):
            # UCX looks at the devices once, at its start: they must be running by then.
            wait_until(lambda n=node, c=card: "state UP" in run("ip", "-n", self.space(n), "link", "show", f"eth{c}"),
                       10, f"the link of {self.space(node)} is up")

    @staticmethod
    def _ip(space, *commands):
        run("ip", "-n", space, "-batch", "-", text_in="\n".join(commands) + "\n")

    @staticmethod
    def _host(node, card=0):
        return f"10.77.{card}.{node + 1}"

    @staticmethod
    def _port(node, card):
        return f"port{node}-{card}"

    def space(self, node):
        return f"{self.name}-n{node}"

    def address(self, node):
        return f"{self._host(node)}:{PORT}"

    def prefix(self, node):
        """What a command begins with to run inside."""
        return ["ip", "netns", "exec", self.space(node)]

    def inside(self, node, *command, seconds=20):
        return run(*self.prefix(node), *command, seconds=seconds)

    def lanes(self, node):
        """The settings for all cards of a node."""
        if self._cards == 1:
            return {}
        return {"net-device": [f"eth{card}" for card in range(self._cards)],
                "listen-also": [f"{self._host(node, card)}:{PORT}" for card in range(1, self._cards)]}

    def cut(self, node, card=0):
        """Unplugs the node at the switch: both ends keep their carrier, nobody is told."""
        self._ip(self._switch, f"link set {self._port(node, card)} nomaster")

    def mend(self, node, card=0):
        self._ip(self._switch, f"link set {self._port(node, card)} master br{card}")

    DIRECTIONS = {"in": ("INPUT", "-i", "-s"), "out": ("OUTPUT", "-o", "-d")}

    def drop(self, node, directions=("in", "out"), share=None, peer=None):
        """Loses packets of the node without telling anybody: all, or a share at random, or those from or to a peer."""
        self._rules(node, "-A", directions, share, peer)

    def stop_dropping(self, node, directions=("in", "out"), share=None, peer=None):
        self._rules(node, "-D", directions, share, peer)

    def _rules(self, node, verb, directions, share, peer):
        chance = ["-m", "statistic", "--mode", "random", "--probability", str(share)] if share else []
        for chain, device, address in (self.DIRECTIONS[one] for one in directions):
            whom = [address, self._host(peer)] if peer is not None else []
            self.inside(node, "iptables", "-w", verb, chain, device, "eth0", *whom, *chance, "-j", "DROP")

    def set_link(self, node, state, card=0):
        """Takes the node's device "down", which it sees, or "up"."""
        self._ip(self.space(node), f"link set eth{card} {state}")

    def unplug(self, node, card=0):
        """Takes the cable out: the node's device loses its carrier, and keeps its addresses and routes."""
        self._ip(self._switch, f"link set {self._port(node, card)} down")

    def plug_in(self, node, card=0):
        self._ip(self._switch, f"link set {self._port(node, card)} up")

    def shape(self, rate="1gbit"):
        """Limits what each node sends, and what it receives, to a rate.

        Large bundles of segments are kept below the burst, else tbf cuts them up itself; a burst of half that
        loses 6 to 8 % of the rate on busy processors, whose timers are late.
        """
        for node, card in itertools.product(range(self._nodes), range(self._cards)):
            for space, device in ((self.space(node), f"eth{card}"), (self._switch, self._port(node, card))):
                self._ip(space, f"link set dev {device} gso_max_size 32768")
                run("tc", "-n", space, "qdisc", "add", "dev", device, "root", "tbf", "rate", rate, "burst", "64kb",
                    "latency", "50ms")

    def slow_down(self, node, rate):
        """Limits what the node sends."""
        self._ip(self.space(node), "link set dev eth0 gso_max_size 32768")
        run("tc", "-n", self.space(node), "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "64kb",
            "latency", "50ms")

    def within(self, *command):
        """What a command begins with to run at the switch."""
        return ["ip", "netns", "exec", self._switch, *command]

    def replace_cable(self, node, near, far):
        """Puts the devices of a relay, which were made at the switch, in the place of the node's cable."""
        space, port = self.space(node), self._port(node, 0)
        self._ip(self._switch, f"link delete {port}", f"link set {near} netns {space}", f"link set {far} name {port}",
                 f"link set {port} master br0 up")
        self._ip(space, f"link set {near} name eth0", f"address add {self._host(node)}/24 dev eth0", "link set eth0 up")

    def close(self):
        for name in self.leftovers():
            run("ip", "netns", "delete", name)

    def leftovers(self):
        """Names of what is still there."""
        names = [line.split()[0] for line in run("ip", "netns", "list").splitlines() if line.strip()]
        return [name for name in names if name.startswith(self.name + "-")]


def best_network():
    """(the class of network to use here, why not namespaces or None)."""
    reason = why_no_namespaces()
    return (Loopback if reason else Namespaces), reason


@contextlib.contextmanager
def cubic(network, nodes):
    """Every node uses cubic: bbr, a common default, loses a tenth in a ring. What namespaces may choose is
    a setting of the host, which is put back."""
    before = ALLOWED.read_text()
    if "cubic" not in before.split():
        ALLOWED.write_text(before.strip() + " cubic\n")
    try:
        for node in range(nodes):
            network.inside(node, "sh", "-c", "echo cubic >/proc/sys/net/ipv4/tcp_congestion_control")
        yield
    finally:
        ALLOWED.write_text(before)
