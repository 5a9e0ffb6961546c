"""Where nodes live: network namespaces joined by a bridge, or ports on loopback."""

import functools
import itertools
import os
import shutil
import socket

from .process import run, wait_until

PORT = 7300
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
    """A namespace for each node, with a bridge in one more: the switch.

    Addresses exist inside the namespaces only, so several runs at once do not meet.
    """

    kind = "namespaces"

    def __init__(self, nodes):
        self.name = f"gradring-{os.getpid()}-{next(_serial)}"
        self._nodes = nodes
        self._switch = f"{self.name}-switch"
        try:
            self._build()
        except BaseException:
            self.close()
            raise

    def _build(self):
        run("ip", "netns", "add", self._switch)
        self._ip(self._switch, "link add br0 type bridge", "link set br0 up")
        for node in range(self._nodes):
            space = self.space(node)
            run("ip", "netns", "add", space)
            # Without IPv6 there are no tentative addresses to wait for and no chatter on the link.
            self.inside(node, "sh", "-c", "echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6; "
                                          "echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6")
            self._ip(self._switch, f"link add port{node} type veth peer name eth0 netns {space}",
                     f"link set port{node} master br0 up")
            self._ip(space, f"address add {self._host(node)}/24 dev eth0", "link set lo up", "link set eth0 up")
        for node in range(self._nodes):
            # UCX looks at the devices once, at its start: they must be running by then.
            wait_until(lambda n=node: "state UP" in run("ip", "-n", self.space(n), "link", "show", "eth0"), 10,
                       f"the link of {self.space(node)} is up")

    @staticmethod
    def _ip(space, *commands):
        run("ip", "-n", space, "-batch", "-", text_in="\n".join(commands) + "\n")

    @staticmethod
    def _host(node):
        return f"10.77.0.{node + 1}"

    def space(self, node):
        return f"{self.name}-n{node}"

    def address(self, node):
        return f"{self._host(node)}:{PORT}"

    def prefix(self, node):
        """What a command begins with to run inside."""
        return ["ip", "netns", "exec", self.space(node)]

    def inside(self, node, *command, seconds=20):
        return run(*self.prefix(node), *command, seconds=seconds)

    def cut(self, node):
        """Unplugs the node at the switch: both ends keep their carrier, nobody is told."""
        self._ip(self._switch, f"link set port{node} nomaster")

    def mend(self, node):
        self._ip(self._switch, f"link set port{node} master br0")

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

    def set_link(self, node, state):
        """Takes the node's device "down", which it sees, or "up"."""
        self._ip(self.space(node), f"link set eth0 {state}")

    def shape(self, rate="1gbit"):
        """Limits what each node sends, and what it receives, to a rate.

        Large bundles of segments are kept below the burst, else tbf cuts them up itself; a burst of half that
        loses 6 to 8 % of the rate on busy processors, whose timers are late.
        """
        for node in range(self._nodes):
            for space, device in ((self.space(node), "eth0"), (self._switch, f"port{node}")):
                self._ip(space, f"link set dev {device} gso_max_size 32768")
                run("tc", "-n", space, "qdisc", "add", "dev", device, "root", "tbf", "rate", rate, "burst", "64kb",
                    "latency", "50ms")

    def slow_down(self, node, rate):
        """Limits what the node sends."""
        self._ip(self.space(node), "link set dev eth0 gso_max_size 32768")
        run("tc", "-n", self.space(node), "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "64kb",
            "latency", "50ms")

    def within(self, *command):
        """What a command begins with to run at the switch."""
        return ["ip", "netns", "exec", self._switch, *command]

    def replace_cable(self, node, near, far):
        """Puts the devices of a relay, which were made at the switch, in the place of the node's cable."""
        space = self.space(node)
        self._ip(self._switch, f"link delete port{node}", f"link set {near} netns {space}", f"link set {far} name port{node}",
                 f"link set port{node} master br0 up")
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
