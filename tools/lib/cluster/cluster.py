"""A whole ring, its jobs, and its end."""

import contextlib
import shutil
import signal
import tempfile
import uuid
from pathlib import Path

from .network import Loopback
from .node import Node
from .process import Process, TookTooLong, holders_of, marked, run, start_program, wait_until


class Job:
    """The trainers of one launch, by rank."""

    def __init__(self, name, trainers):
        self.name = name
        self.trainers = trainers

    def __getitem__(self, rank):
        return self.trainers[rank]

    def __iter__(self):
        return iter(self.trainers)

    def __len__(self):
        return len(self.trainers)

    def wait(self, seconds):
        """Exit statuses by rank, once all have ended."""
        wait_until(lambda: not any(one.running() for one in self), seconds,
                   f"all trainers of {self.name} end ({', '.join(one.name for one in self if one.running())} run)")
        return [one.status for one in self]

    def kill(self):
        for trainer in self:
            trainer.kill()


class Cluster:
    """Use as a context, or call close(), which returns what went wrong at the end as a list of sentences."""

    def __init__(self, programs, nodes, network=None, settings=None, secure=True):
        """`programs`: the folder of the built programs. `settings`: of every daemon, above the defaults here."""
        self.programs = Path(programs)
        self.mark = uuid.uuid4().hex
        self.processes = []
        self._segments = set()
        self.folder = Path(tempfile.mkdtemp(prefix="gradring-"))
        self.folder.chmod(0o755)  # trainers of other users reach the sockets
        self.network = None
        try:
            self.network = network(nodes) if network else Loopback(nodes)
            self.nodes = [Node(self, index) for index in range(nodes)]
            self.settings = {"drain-timeout": "2s", **(self._keys() if secure else {"insecure": "true"}),
                             **(settings or {})}
            for node in self.nodes:
                self.configure(node)
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def program(self, name):
        return self.programs / name

    def _keys(self):
        """A key for each node, and the list of them all."""
        allowed = self.folder / "allowed-keys"
        lines = ""
        for node in self.nodes:
            run(self.program("gradringctl"), "keygen", "--out", self.folder, "--name", node.name,
                "--address", node.address)
            lines += (self.folder / f"{node.name}.pub").read_text()
        allowed.write_text(lines)
        return {"allowed-keys": allowed}

    def configure(self, node, **settings):
        """Writes the node's configuration file; takes effect at its next start."""
        own = {"key": self.folder / f"{node.name}.key"} if "allowed-keys" in self.settings else {}
        peers = [other.address for other in self.nodes if other is not node]
        lanes = self.network.lanes(node.index)
        node.write_config(peers, {**lanes, **self.settings, **own, **{k.replace("_", "-"): v for k, v in settings.items()}})

    def start(self, kept=()):
        """Starts all daemons, those of the nodes of these indices with a keeper, and returns when all are connected."""
        self.start_daemons(kept)
        for node in self.nodes:
            node.wait_ready(len(self.nodes) - 1)
        return self

    def start_daemons(self, kept=()):
        """The same, and waits for nothing."""
        for node in self.nodes:
            self.processes.append(node.run_daemon(*(["--keep"] if node.index in kept else [])))

    def launch(self, name, command, per_node=1, nodes=None, token=None, uids=None, of_rank=None, start=start_program):
        """Starts a job: `per_node` trainers on each node, ranks in the order of the nodes.

        `of_rank`: {rank: more words for the command}. `uids`: {rank: user id}. `start`: how each is started.
        """
        hosts = [node for node in (nodes or self.nodes) for _ in range(per_node)]
        trainers = [self.start_trainer(name, command + (of_rank or {}).get(rank, []), node, rank, len(hosts),
                                       rank % per_node, per_node, token, (uids or {}).get(rank), start)
                    for rank, node in enumerate(hosts)]
        return Job(name, trainers)

    def start_trainer(self, job, command, node, rank, size, local_rank=0, local_size=1, token=None, uid=None,
                      start=start_program):
        environment = {"GRADRING_RUNTIME_DIR": str(node.runtime_dir), "GRADRING_JOB": job, "RANK": str(rank),
                       "WORLD_SIZE": str(size), "LOCAL_RANK": str(local_rank), "LOCAL_WORLD_SIZE": str(local_size)}
        if token is not None:
            environment["GRADRING_JOB_TOKEN"] = token
        trainer = Process(f"{job}-{len(self.processes)}-rank{rank}", [self._resolve(command[0]), *command[1:]],
                          self.folder, self.mark, environment, node.prefix, uid, start)
        trainer.node, trainer.rank = node, rank
        self.processes.append(trainer)
        return trainer

    def _resolve(self, word):
        return self.program(word) if self.program(word).exists() else word

    def remember_segments(self):
        """Notes the segments that exist now, so that close() can tell whether one is left. Returns their number."""
        found = set().union(*(node.segments() for node in self.nodes if node.daemon and node.daemon.running()))
        self._segments |= found
        return len(found)

    def close(self):
        """Ends everything and takes it away. Returns complaints about daemons and about what was left behind."""
        complaints = []
        daemons = [node.daemon for node in getattr(self, "nodes", [])]
        for process in reversed(self.processes):  # whose parent one of them is, was started later
            if process not in daemons:
                process.kill()
        for daemon in daemons:
            if daemon:
                daemon.signal(signal.SIGTERM)  # all at once, then each is waited for
        for node in getattr(self, "nodes", []):
            complaints.append(node.stop())
        with contextlib.suppress(TookTooLong):  # what belonged to those that were killed ends a moment later
            wait_until(lambda: not marked(self.mark), 2, "all processes are gone")
        for pid, words in marked(self.mark).items():
            complaints.append(f"process {pid} was left behind: {words}")
        holders = holders_of(self._segments)
        if holders:
            complaints.append(f"segments are still held by the processes {holders}")
        if self.network:
            self.network.close()
            complaints += [f"namespace {name} was left behind" for name in self.network.leftovers()]
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.folder.exists():
            complaints.append(f"the folder {self.folder} was left behind")
        return [one for one in complaints if one]
