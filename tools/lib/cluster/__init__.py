"""A ring on this machine: nodes in network namespaces of their own, or on loopback ports where the privilege
for namespaces is missing; a gradringd on each, trainers beside it, and everything taken away again at the end.

tools/quickstart and tests/e2e are built on it. It needs Debian's python3 and iproute2, nothing else.
"""

from .cluster import Cluster, Job
from .network import Loopback, Namespaces, best_network, cubic, why_no_namespaces
from .node import Node
from .process import Footprint, Process, TookTooLong, children_of, cpu_seconds, run, state_of, tail, wait_until
from .slurm import Slurm, why_no_slurm

__all__ = ["Cluster", "Footprint", "Job", "Loopback", "Namespaces", "Node", "Process", "Slurm", "TookTooLong",
           "best_network", "cpu_seconds", "cubic", "run", "state_of", "tail", "wait_until", "why_no_namespaces",
           "why_no_slurm"]
