"""A ring of two daemons, one in each guest, whose gradients go over the RDMA devices that rxe makes of their cards."""

import json
import re

SUSPECT, DECIDE = 10, 20  # s; an emulated node may be mute for some seconds without being ill
RUNTIME = "/run/gradring"
TRAINER = "gradring-e2e-trainer"
# Every wait for something that takes a second or so on real processors.
SOON = 120


def address(card, node):
    return f"10.{card}.0.{node + 1}"


def prepare(guest, node, cards=2):
    """Addresses, and an RDMA device for each card."""
    lines = ["set -e"]
    for card in range(cards):
        lines += [f"ip link set dev eth{card} mtu 9000 up", f"ip addr add {address(card, node)}/24 dev eth{card}",
                  f"rdma link add rxe{card} type rxe netdev eth{card}"]
    guest.run("\n".join([*lines, "rdma link"]), "prepare", seconds=SOON)


def counters(guest, device="rxe0"):
    """What the driver of an RDMA device has counted, and the kernel's TCP beside it."""
    text = guest.run(f"""cd /sys/class/infiniband/{device}/ports/1/hw_counters
        for name in *; do echo "$name $(cat $name)"; done
        awk '/^Tcp: [0-9]/ {{print "tcp_segments", $12}}' /proc/net/snmp""", "counters", SOON)
    return {name: int(value) for name, value in re.findall(r"^(\w+) (\d+)$", text, re.M)}


class Ring:
    """devices: a lane each; control: the card of the daemons' own connections; keep: start a dead daemon anew; where:
    other addresses than the card's first, by node; more: further lines of the configuration; environment: variables;
    prefix: what the shell does before."""

    def __init__(self, guests, devices=("rxe0",), control=0, keep=False, where=None, more=(), environment="",
                 prefix=""):
        self.guests = guests
        self.daemons = []
        where = where or [address(control, node) for node in range(len(guests))]
        for node, guest in enumerate(guests):
            lines = [f"node = {guest.name}", f"runtime-dir = {RUNTIME}", "insecure = true",
                     f"listen = {where[node]}:7300", f"peer = {where[1 - node]}:7300",
                     f"suspect = {SUSPECT}s", f"decide = {DECIDE}s", *(f"net-device = {one}" for one in devices), *more]
            text = "\n".join(lines)
            kept = "--keep" if keep else ""
            self.daemons.append(guest.start(
                f"cat >/run/gradringd.conf <<END\n{text}\nEND\n"
                f"{prefix}exec env UCX_HANDLE_ERRORS=none {environment} gradringd {kept} --config /run/gradringd.conf", "gradringd"))
        try:
            for daemon in self.daemons:
                daemon.wait_for("is ready", SOON)
            self.wait_joined()
        except BaseException:
            self.close()
            raise

    def ask(self, node, words, seconds=SOON):
        return self.guests[node].run(f"gradringctl --runtime-dir {RUNTIME} {words}", words.split()[0], seconds)

    def wait_joined(self, seconds=SOON, lanes=""):
        """Until both show the other as up, over so many lanes."""
        for node, guest in enumerate(self.guests):
            other = self.guests[1 - node].name
            guest.run(f"for turn in $(seq {seconds}); do gradringctl --runtime-dir {RUNTIME} peers >/tmp/peers\n"
                      f"grep -q '^{other} .* up  *{lanes}' /tmp/peers && exit 0; sleep 1; done; cat /tmp/peers; exit 1",
                      "joined", seconds * 3)

    def launch(self, job, command):
        """One rank on each node."""
        of_all = f"WORLD_SIZE=2 GRADRING_JOB={job} GRADRING_RUNTIME_DIR={RUNTIME}"
        return [guest.start(f"export RANK={node} {of_all}\nexec {command}", job)
                for node, guest in enumerate(self.guests)]

    def run(self, job, command, seconds=SOON * 2):
        ranks = self.launch(job, command)
        statuses = [rank.wait(seconds) for rank in ranks]
        assert statuses == [0, 0], [one.last_words() for one in [*ranks, *self.daemons]]
        return ranks

    def close(self):
        """Statuses of the daemons; those that were killed have theirs already."""
        for guest, daemon in zip(self.guests, self.daemons, strict=True):
            if daemon.status is None:
                guest.run("killall -TERM gradringd; sleep 0.2; killall -TERM gradringd; true", "stop", SOON)
        return [daemon.wait(SOON) for daemon in self.daemons]


def events(trainer, kind):
    """What gradring-e2e-trainer reported."""
    return [one for one in map(json.loads, trainer.says().splitlines()) if one["event"] == kind]
