"""A ring that a real Prometheus watches, each second."""

import re
import shutil
import socket
import sys
import urllib.request
from pathlib import Path


ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/lib"))
RULES = ROOT / "tools/prometheus"
sys.path.insert(0, str(ROOT / "tools/grafana"))

import cluster as testbed  # noqa: E402  (found by the lines above)
import dashboard  # noqa: E402
from cluster import Process, wait_until  # noqa: E402


def why_no_prometheus():
    missing = [name for name in ("prometheus", "promtool") if shutil.which(name) is None]
    return f"{' and '.join(missing)} not installed (Debian's package prometheus)" if missing else None


def free_ports(count):
    """Held all at once, so that they differ."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Monitored:
    """A started cluster on loopback, with metrics, and a Prometheus with the rules of the tree."""

    def __init__(self, cluster, watch=True):
        self.cluster = cluster
        *ports, own = free_ports(len(cluster.nodes) + 1)
        self.addresses = [f"127.0.0.1:{port}" for port in ports]
        for node, address in zip(cluster.nodes, self.addresses):
            cluster.configure(node, metrics=address)
        cluster.start()
        self.api = dashboard.Prometheus(f"http://127.0.0.1:{own}")
        self.url = f"http://127.0.0.1:{own}"
        if watch:
            self._run_prometheus(own)

    def _run_prometheus(self, port):
        folder = self.cluster.folder / "prometheus"
        folder.mkdir()
        for name in ("recording.yml", "alerts.yml"):
            shutil.copy(RULES / name, folder)
        targets = ", ".join(f'"{address}"' for address in self.addresses)
        shipped = (RULES / "prometheus.yml").read_text()
        (folder / "prometheus.yml").write_text(
            re.sub(r"targets: \[.*\]", f"targets: [{targets}]", shipped).replace("_interval: 5s", "_interval: 1s"))
        process = Process("prometheus", ["prometheus", f"--config.file={folder}/prometheus.yml",
                                         f"--storage.tsdb.path={folder}/data", f"--web.listen-address=127.0.0.1:{port}"],
                          self.cluster.folder, self.cluster.mark)
        self.cluster.processes.append(process)

        def scraped():
            assert process.running(), process.complains()
            try:
                return len(self.api.query('up{job="gradring"} == 1')) == len(self.addresses)
            except (OSError, ValueError):
                return False  # it does not listen yet, or reads its files
        wait_until(scraped, 60, "Prometheus has scraped every daemon")

    def page(self, node=0):
        with urllib.request.urlopen(f"http://{self.addresses[node]}/metrics", timeout=20) as answer:
            return answer.read().decode()

    def wait_for(self, expression, seconds=60, what=None):
        """The first answer that has data."""
        return wait_until(lambda: self.api.query(expression), seconds, what or f"Prometheus has data for {expression}")


def parse(page):
    """{family: (type, labels of its samples, without those of histograms and exposition)} of a page."""
    families = {name: (kind, set()) for name, kind in re.findall(r"(?m)^# TYPE (\S+) (\S+)$", page)}
    for name, labels in re.findall(r"(?m)^(\w+)\{(.*)\} \S+$", page):
        base = name if name in families else re.sub(r"_(bucket|sum|count)$", "", name)
        families[base][1].update(set(re.findall(r'(\w+)="', labels)) - {"le"})
    return families


__all__ = ["Monitored", "RULES", "ROOT", "dashboard", "free_ports", "parse", "testbed", "why_no_prometheus"]
