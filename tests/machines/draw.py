#!/usr/bin/env python3
"""Draws the recorded machines of this folder: hwloc's XML and the drivers' answers, as `gradringctl topology --record`
writes them. They are invented after real ones, so that their tests need no hardware.

usage: draw.py [FOLDER]        writes FOLDER/NAME/hwloc.xml and machine.yaml; FOLDER: where this file is
"""

import sys
from pathlib import Path
from xml.sax.saxutils import quoteattr

GIGA = 10**9
NVIDIA, MELLANOX, INTEL, REALTEK, AMD = "10de", "15b3", "8086", "10ec", "1022"


def bitmap(members):
    """hwloc's way to write a set: words of 32 bits, the highest first."""
    value = sum(1 << one for one in members)
    words = []
    while value or not words:
        words.insert(0, f"0x{value & 0xffffffff:08x}")
        value >>= 32
    return ",".join(words)


class Object:
    """An object of hwloc's tree."""
    numbers = iter(range(1, 10**9))

    def __init__(self, kind, children=(), infos=None, **attributes):
        self.kind, self.attributes, self.infos = kind, attributes, infos or {}
        self.children = list(children)

    def lines(self, indent):
        attributes = {"type": self.kind, **self.attributes, "gp_index": next(Object.numbers)}
        words = "".join(f" {key}={quoteattr(str(value))}" for key, value in attributes.items())
        inner = [f'{indent}  <info name={quoteattr(key)} value={quoteattr(value)}/>' for key, value in self.infos.items()]
        for child in self.children:
            inner += child.lines(indent + "  ")
        return [f"{indent}<object{words}>", *inner, f"{indent}</object>"] if inner else [f"{indent}<object{words}/>"]


def sets(cpus, nodes):
    return {f"{prefix}{kind}": bitmap(members) for kind, members in (("cpuset", cpus), ("nodeset", nodes))
            for prefix in ("", "complete_")}


def socket(index, cpus, memory_gib, model, devices=()):
    """One package with one NUMA node; `cpus` in pairs of hyper-threads."""
    every = [cpu for core in cpus for cpu in core]
    numa = Object("NUMANode", os_index=index, **sets(every, [index]), local_memory=memory_gib << 30)
    cores = [Object("Core", os_index=number, **sets(core, [index]), children=[
        Object("PU", os_index=cpu, **sets([cpu], [index])) for cpu in core]) for number, core in enumerate(cpus)]
    return Object("Package", os_index=index, **sets(every, [index]), infos={"CPUModel": model},
                  children=[numa, *cores, *devices])


def host_bridge(first, last, *children):
    return Object("Bridge", bridge_type="0-1", depth=0, bridge_pci=f"0000:[{first}-{last}]", children=children)


def bridge(pci, first, last, depth, *children, vendor=INTEL):
    return Object("Bridge", bridge_type="1-1", depth=depth, bridge_pci=f"0000:[{first}-{last}]", pci_busid=f"0000:{pci}",
                  pci_type=f"0604 [{vendor}:352a] [0000:0000] 04", pci_link_speed="63.015385", children=children)


def device(pci, kind, ident, *names, speed="63.015385"):
    """A PCI device with what the system calls it: names of interfaces, and of RDMA devices."""
    children = [Object("OSDev", name=name, osdev_type=3 if name.startswith("mlx5") else 2) for name in names]
    return Object("PCIDev", pci_busid=f"0000:{pci}", pci_type=f"{kind} [{ident}] [0000:0000] a1", pci_link_speed=speed,
                  children=children)


def switch(pci_of_port, bus, last, *devices):
    """A PCIe switch under a root port: an upstream bridge, and a downstream bridge for each device."""
    up, down = (f"{bus + step:02x}" for step in (0, 1))
    ports = [bridge(f"{down}:{slot:02x}.0", each.attributes["pci_busid"][5:7], each.attributes["pci_busid"][5:7], 3, each)
             for slot, each in enumerate(devices)]
    return bridge(pci_of_port, up, last, 1, bridge(f"{up}:00.0", down, last, 2, *ports))


def machine(cpus, nodes, *children):
    return Object("Machine", os_index=0, **sets(cpus, nodes), allowed_cpuset=bitmap(cpus), allowed_nodeset=bitmap(nodes),
                  infos={"Backend": "Linux", "Architecture": "x86_64"}, children=children)


def gids(interface, ip, mac_tail):
    local = f"fe80::a288:c2ff:fe{mac_tail[:2]}:{mac_tail[2:]}"
    return [f"{{index: {2 * i + v}, type: RoCE v{v + 1}, address: \"{address}\", interface: {interface}}}"
            for i, address in enumerate((local, f"::ffff:{ip}")) for v in (0, 1)]


def rdma(name, pci, gigabits, *entries, link="Ethernet", state="active"):
    lines = [f"  - name: {name}", f"    pci: 0000:{pci}", "    ports:", "      - number: 1", f"        state: {state}",
             f"        link_layer: {link}", f"        rate_bps: {gigabits * GIGA}", f"        mtu: {4096}"]
    return "\n".join(lines + (["        gids:"] + [f"          - {entry}" for entry in entries] if entries else []))


def net(name, pci, megabits, *addresses, mtu=1500, bond=None, up=True):
    lines = [f"  - name: {name}", *([f"    pci: 0000:{pci}"] if pci else []), f"    up: {str(up).lower()}"]
    lines += [f"    rate_bps: {megabits * 1000000}"] if up else []
    lines += [f"    mtu: {mtu}", *([f"    bond: {bond}"] if bond else [])]
    return "\n".join(lines + (["    addresses:"] + [f"      - {address}" for address in addresses] if addresses else []))


def gpu(pci, name, uuid, memory_mib, *links):
    lines = [f"    - pci: 0000:{pci}", f"      name: {name}", f"      uuid: GPU-{uuid}",
             f"      memory_bytes: {memory_mib << 20}"]
    return "\n".join(lines + (["      nvlinks:"] + [f"        - {{to: {to}, count: {count}}}" for to, count in links]
                              if links else []))


def uuid_of(number):
    return f"{0x5a0c1f2e + number * 0x01010101:08x}-7c1d-4b6e-9f00-{0x2f91d3a4b500 + number:012x}"


def dgx_h100():
    """Eight GPUs on NVSwitches, each behind a PCIe switch together with a card of its own; and two other cards."""
    model = "Intel(R) Xeon(R) Platinum 8480C"
    halves = ((0x15, "18", "1b"), (0x3d, "40", "43"), (0x4c, "4f", "52"), (0x5b, "5e", "61"),
              (0x97, "9a", "9d"), (0xbd, "c0", "c3"), (0xcb, "ce", "d1"), (0xd9, "dc", "df"))
    trees, gpus, cards, nets = [], [], [], []
    for i, (root, nic_bus, gpu_bus) in enumerate(halves):
        # Cards are numbered along the bus, where the one for storage is the second.
        name, interface, ip = f"mlx5_{i + (i > 0)}", f"ens{i + 1}np0", f"10.{i + 1}.0.11"
        nic, card = f"{nic_bus}:00.0", f"{gpu_bus}:00.0"
        trees.append(host_bridge(f"{root:02x}", gpu_bus, switch(
            f"{root:02x}:01.0", root + 1, gpu_bus, device(nic, "0200", f"{MELLANOX}:1021", interface, name),
            device(card, "0302", f"{NVIDIA}:2330"))))
        gpus.append(gpu(card, "NVIDIA H100 80GB HBM3", uuid_of(i), 81559, ("switch", 18)))
        cards.append(rdma(name, nic, 400, *gids(interface, ip, f"{0x10 + i:02x}4a")))
        nets.append(net(interface, nic, 400000, ip, mtu=9000))
    switches = [device(f"0{i}:00.0", "0680", f"{NVIDIA}:22a3") for i in (7, 8)]
    service = host_bridge("00", "0b", *(bridge(f"00:1{i}.0", f"0{7 + i}", f"0{7 + i}", 1, each)
                                        for i, each in enumerate(switches)),
                          bridge("00:1c.0", "0b", "0b", 1, device("0b:00.0", "0200", f"{INTEL}:1563", "eno1", speed="7.876923")))
    storage = host_bridge("28", "29", bridge("28:01.0", "29", "29", 1,
                                             device("29:00.0", "0200", f"{MELLANOX}:101d", "ens9np0", "mlx5_1")))
    cards.append(rdma("mlx5_1", "29:00.0", 100, *gids("ens9np0", "10.9.0.11", "184a")))
    nets += [net("ens9np0", "29:00.0", 100000, "10.9.0.11"), net("eno1", "0b:00.0", 10000, "192.168.1.11"),
             net("docker0", None, 0, "172.17.0.1", up=False)]
    cores = [[(core + 56 * side, core + 56 * side + 112) for core in range(56)] for side in (0, 1)]
    tree = machine(range(224), [0, 1], socket(0, cores[0], 1024, model, [service, trees[0], storage, *trees[1:4]]),
                   socket(1, cores[1], 1024, model, trees[4:]))
    return tree, "dgx-01", "535.129.03", gpus, cards, nets


def consumer():
    """Two GPUs without NVLink in a desktop, and the network card of its board behind the chipset."""
    gpus = [device(f"0{i}:00.0", "0300", f"{NVIDIA}:2684", speed="31.507692") for i in (1, 2)]
    chipset = bridge("00:02.1", "03", "06", 1, bridge(
        "03:00.0", "04", "06", 2, bridge("04:08.0", "05", "05", 3, device("05:00.0", "0200", f"{REALTEK}:8125", "enp5s0")),
        bridge("04:09.0", "06", "06", 3, device("06:00.0", "0280", f"{INTEL}:2725", "wlp6s0"))), vendor=AMD)
    tree = host_bridge("00", "06", *(bridge(f"00:01.{i + 1}", f"0{i + 1}", f"0{i + 1}", 1, each, vendor=AMD)
                                     for i, each in enumerate(gpus)), chipset)
    cpus = [(core, core + 16) for core in range(16)]
    return (machine(range(32), [0], socket(0, cpus, 64, "AMD Ryzen 9 7950X 16-Core Processor"), tree), "den", "550.54.14",
            [gpu(f"0{i}:00.0", "NVIDIA GeForce RTX 4090", uuid_of(0x20 + i), 24564) for i in (1, 2)], [],
            [net("enp5s0", "05:00.0", 2500, "192.168.178.20"), net("wlp6s0", "06:00.0", 0, up=False)])


def server():
    """Two sockets; on each a pair of GPUs behind a switch below the one of the card, whose two ports are bonded."""
    trees, gpus, cards, nets = [], [], [], []
    for side, root in ((0, 0x16), (1, 0x96)):
        bus = [f"{root + step:02x}" for step in range(10)]
        pair = [device(f"{bus[i]}:00.0", "0302", f"{NVIDIA}:20b5", speed="31.507692") for i in (6, 7)]
        inner = bridge(f"{bus[3]}:00.0", bus[4], bus[7], 3, bridge(f"{bus[4]}:00.0", bus[5], bus[7], 4, *(
            bridge(f"{bus[5]}:0{i}.0", bus[6 + i], bus[6 + i], 5, each) for i, each in enumerate(pair))))
        names = [f"ens{side + 1}f{port}np{port}" for port in (0, 1)]
        card = bridge(f"{bus[3]}:01.0", bus[8], bus[8], 3, *(
            device(f"{bus[8]}:00.{port}", "0200", f"{MELLANOX}:101d", *(
                [names[0], f"mlx5_bond_{side}"] if port == 0 else [names[1]]), speed="31.507692") for port in (0, 1)))
        service = [bridge("16:02.0", "1f", "1f", 1, device("1f:00.0", "0200", f"{INTEL}:1572", "eno1", speed="7.876923"))]
        trees.append(host_bridge(bus[0], bus[9], bridge(f"{bus[0]}:01.0", bus[2], bus[8], 1, bridge(
            f"{bus[2]}:00.0", bus[3], bus[8], 2, inner, card)), *(service if side == 0 else [])))
        for i in (0, 1):
            other = f"0000:{bus[7 - i]}:00.0"
            gpus.append(gpu(f"{bus[6 + i]}:00.0", "NVIDIA A100 80GB PCIe", uuid_of(0x40 + 2 * side + i), 81920, (other, 12)))
            nets.append(net(names[i], f"{bus[8]}:00.{i}", 100000, mtu=9000, bond=f"bond{side}"))
        nets.append(net(f"bond{side}", None, 200000, f"10.{side + 1}.0.7", mtu=9000))
        cards.append(rdma(f"mlx5_bond_{side}", f"{bus[8]}:00.0", 100, *gids(f"bond{side}", f"10.{side + 1}.0.7", f"2{side}4a")))
    nets.append(net("eno1", "1f:00.0", 10000, "192.168.1.7"))
    cores = [[(2 * core + side, 2 * core + side + 64) for core in range(32)] for side in (0, 1)]
    tree = machine(range(128), [0, 1], *(socket(side, cores[side], 256, "Intel(R) Xeon(R) Gold 6338 CPU @ 2.00GHz",
                                                [trees[side]]) for side in (0, 1)))
    return tree, "rack3-07", "535.129.03", gpus, cards, nets


def virtual():
    """A virtual machine: every device on one bus, which belongs to no NUMA node."""
    cards = [device(f"00:{9 + i:02x}.0", "0207", f"{MELLANOX}:101e", f"ib{i}", f"mlx5_{i}") for i in range(4)]
    devices = [device("00:03.0", "0200", "1af4:1041", "eth0"),
               *(device(f"00:{5 + i:02x}.0", "0302", f"{NVIDIA}:20b2") for i in range(4)), *cards]
    sides = [socket(side, [(core + 24 * side,) for core in range(24)], 220, "AMD EPYC 7V12 64-Core Processor") for side in (0, 1)]
    return (machine(range(48), [0, 1], *sides, host_bridge("00", "00", *devices)), "vm-4a", "535.129.03",
            [gpu(f"00:{5 + i:02x}.0", "NVIDIA A100-SXM4-80GB", uuid_of(0x60 + i), 81920, ("switch", 12)) for i in range(4)],
            [rdma(f"mlx5_{i}", f"00:{9 + i:02x}.0", 200, link="InfiniBand") for i in range(4)],
            [net("eth0", "00:03.0", 50000, "10.0.0.4")])


def write(folder, name, drawn):
    tree, host, driver, gpus, cards, nets = drawn
    Object.numbers = iter(range(1, 10**9))
    to = folder / name
    to.mkdir(parents=True, exist_ok=True)
    (to / "hwloc.xml").write_text("\n".join(['<?xml version="1.0" encoding="UTF-8"?>', '<!DOCTYPE topology SYSTEM "hwloc2.dtd">',
                                             '<topology version="2.0">', *tree.lines("  "), "</topology>", ""]))
    blocks = ["gradring-machine: 1", f"host: {host}", "nvml:", f"  driver: {driver}", "  gpus:", *gpus,
              *(["rdma:", *cards] if cards else []), "net:", *nets, ""]
    (to / "machine.yaml").write_text("\n".join(blocks))


if __name__ == "__main__":
    where = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    for machine_name, draw in (("dgx-h100", dgx_h100), ("consumer", consumer), ("server-4x2", server), ("vm-flat", virtual)):
        write(where, machine_name, draw())
