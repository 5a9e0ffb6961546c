"""What is measured: machines, ranks, links, sizes."""

from dataclasses import dataclass

KIB, MIB = 1 << 10, 1 << 20
# Of a full frame (1500 bytes of MTU and an Ethernet header) TCP leaves so much to its user.
PAYLOAD_PART = 1448 / 1514


@dataclass(frozen=True)
class Scenario:
    letter: str
    nodes: int
    per_node: int
    rate: int  # bit/s of each node's link; 0: not limited
    sizes: tuple
    quick: tuple  # those of --quick

    @property
    def ranks(self):
        return self.nodes * self.per_node

    def title(self):
        link = f", links of {self.rate / 1e9:g} Gbit/s" if self.rate else ", links not limited" if self.nodes > 1 else ""
        return f"{self.letter}: {self.nodes} node{'s'[:self.nodes > 1]} x {self.per_node} rank{'s'[:self.per_node > 1]}{link}"

    def line_seconds(self, size):
        """What the links need for an op: 2(N-1)/N of the buffer leaves each node. None where they are not limited."""
        if not self.rate:
            return None
        return 2 * (self.nodes - 1) / self.nodes * size * 8 / (self.rate * PAYLOAD_PART)


SCENARIOS = {one.letter: one for one in (
    Scenario("A", 1, 2, 0, (4 * KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB, 256 * MIB), (4 * KIB, 16 * MIB)),
    Scenario("B", 1, 4, 0, (4 * KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB), (4 * KIB, 16 * MIB)),
    Scenario("C", 4, 1, 10**9, (4 * KIB, 64 * KIB, MIB, 4 * MIB, 16 * MIB), (64 * KIB, 4 * MIB)),
    Scenario("D", 4, 2, 10**9, (4 * KIB, 64 * KIB, MIB, 4 * MIB, 16 * MIB), (4 * MIB,)),
    Scenario("E", 4, 1, 0, (4 * KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB), (16 * MIB,)),
    Scenario("F", 8, 1, 5 * 10**8, (4 * KIB, 64 * KIB, MIB, 4 * MIB, 16 * MIB), ()),
)}


def text_of(size):
    return f"{size >> 20} MiB" if size >= MIB else f"{size >> 10} KiB"
