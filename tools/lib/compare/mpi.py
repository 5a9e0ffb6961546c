"""MPIs: the distribution's and those of PyPI."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from .contestant import HERE, Contestant, compiled, python_of


class Mpi(Contestant):
    """An MPI whose ranks on other nodes are started through the namespaces' own agent."""

    def __init__(self, name, explains, *flags, quick=True, source=None, environment=None):
        super().__init__(name, explains, quick)
        self._flags = flags
        self._source = source  # packages of PyPI; else the distribution's
        self._environment = environment or {}
        self._mpirun = self._agent = None

    def tools(self, context):
        """(mpicc, mpirun, variables that both want)"""
        raise NotImplementedError

    def prepare(self, context):
        mpicc, self._mpirun, more = self.tools(context)
        for tool in (mpicc, self._mpirun):
            if shutil.which(tool) is None and not Path(tool).exists():
                raise OSError(f"{tool} is not installed")
        self._environment = {**more, **self._environment}
        before = dict(os.environ)
        os.environ.update(more)
        try:
            program = compiled(context, f"{self.name}-rank", [mpicc], ["mpi.c", "bench.c"])
        finally:
            os.environ.clear()
            os.environ.update(before)
        self.command = [program]
        self._agent = HERE / "ranks/agent"

    def version(self, _context):
        done = subprocess.run([self._mpirun, "--version"], capture_output=True, text=True, check=False,
                              env={**os.environ, **self._environment})
        lines = [" ".join(line.split()) for line in (done.stdout + done.stderr).splitlines() if re.search(r"\d", line)]
        return lines[0].removeprefix("Version: ")[:60] if lines else "?"

    def variables(self, nodes):
        """What its ranks want in their environment."""
        inside = "posix,cma,self" if nodes == 1 else "tcp,self"
        network = {"UCX_TLS": inside, "UCX_NET_DEVICES": "eth0"} if nodes > 1 else {"UCX_TLS": inside}
        return {**network, "FI_PROVIDER": "shm" if nodes == 1 else "tcp", "FI_TCP_IFACE": "eth0", **self._environment}

    def hosts(self, ring):
        return [node.address.split(":")[0] for node in ring.nodes]

    def run(self, ring, board, most, *flags):
        # Each node has a host name of its own, else an MPI takes all for one machine with shared memory; and what
        # looks at the machine itself is told to use the network.
        first = ring.nodes[0]
        environment = {"COMPARE_NETWORK": ring.network.name, **self.variables(len(ring.nodes))}
        words = ["unshare", "-u", "sh", "-c", 'hostname n0; exec "$@"', "sh", self._mpirun, *flags, *self._flags,
                 *self.command, board, *str(most).split()]
        return [self.spawn(ring, "mpirun", words, environment, first)]


class OpenMpi(Mpi):
    def tools(self, context):
        if self._source is None:
            return "mpicc.openmpi", "mpirun.openmpi", {}
        folder = python_of(context, self._source[0].partition("==")[0], *self._source).parent
        # Some are scripts that call one another by name.
        more = {"I_MPI_ROOT": str(folder.parent), "PATH": f"{folder}:{os.environ['PATH']}"}
        return str(folder / "mpicc"), str(folder / "mpirun"), more

    def start(self, ring, scenario, board, most):
        slots = ",".join(f"{host}:{scenario.per_node}" for host in self.hosts(ring))
        flags = ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", scenario.ranks, "--host", slots,
                 "--mca", "plm_rsh_agent", self._agent]
        if scenario.nodes > 1:
            flags += ["--mca", "btl_tcp_if_include", "eth0", "--mca", "oob_tcp_if_include", "eth0"]
        for name in self.variables(scenario.nodes).keys() - {"PATH"}:
            flags += ["-x", name]
        return self.run(ring, board, most, *flags)


class Mpich(Mpi):
    def why_not(self, scenario):
        if scenario.ranks > os.cpu_count() and "I_MPI_WAIT_MODE" not in self._environment:
            return "its ranks never yield, and here are more of them than processors"
        return None

    def tools(self, context):
        if self._source is None:
            return "mpicc.mpich", "mpirun.mpich", {}
        folder = python_of(context, self._source[0].partition("==")[0], *self._source).parent
        # Some are scripts that call one another by name.
        more = {"I_MPI_ROOT": str(folder.parent), "PATH": f"{folder}:{os.environ['PATH']}"}
        return str(folder / "mpicc"), str(folder / "mpirun"), more

    def start(self, ring, scenario, board, most):
        hosts = ",".join(f"{host}:{scenario.per_node}" for host in self.hosts(ring))
        return self.run(ring, board, most, "-launcher", "ssh", "-launcher-exec", self._agent, "-hosts", hosts, "-n",
                        scenario.ranks, "-iface", "eth0")


class IntelMpi(Mpich):
    """Started by MPICH's launcher: its own insists on ssh."""

    def tools(self, context):
        mpicc, _, more = super().tools(context)
        return mpicc, "mpirun.mpich", more

    def version(self, _context):
        return self._source[0].replace("==", " ")


class OneCcl(IntelMpi):
    """Over Intel MPI, which it starts by itself."""

    def prepare(self, context):
        super().prepare(context)  # finds the launcher
        folder = python_of(context, "oneccl", *self._source).parent.parent
        bench = compiled(context, "bench.o", ["cc"], ["bench.c"], "-c")
        lib = folder / "lib"
        self._environment |= {"CCL_ROOT": str(folder), "CCL_WORKER_COUNT": "1", "CCL_LOG_LEVEL": "error",
                              "CCL_ATL_TRANSPORT": "mpi", "LD_LIBRARY_PATH": str(lib)}
        self.command = [compiled(context, "ccl-rank", ["c++"], ["ccl.cc"], "-std=c++17", f"-I{folder / 'include'}", bench,
                                 f"-L{lib}", f"-Wl,-rpath,{lib},--allow-shlib-undefined", "-lccl", "-lpthread")]

    def run(self, ring, board, most, *flags):
        meeting = ring.folder / f"{self.name}-meets"
        return super().run(ring, board, f"{most} {meeting}", *flags)
