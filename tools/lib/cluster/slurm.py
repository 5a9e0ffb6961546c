"""Slurm over the nodes of a cluster: one slurmd in each namespace, under a host name of its own, and a slurmctld."""

import shutil
import signal

from .process import Process, marked, run, wait_until

PROGRAMS = ("slurmctld", "slurmd", "srun", "salloc", "scancel", "sinfo")
CPUS = 4

# Without cgroups, munge and accounting: what is needed of it is that it starts processes and tells them their place.
CONFIGURATION = """
ClusterName=gradring
SlurmctldHost={first}({host})
AuthType=auth/none
CredType=cred/none
SlurmUser=root
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdPidFile={folder}/%n.pid
SlurmdSpoolDir={folder}/%n
SlurmdLogFile={folder}/%n.log
TmpFS={folder}/%n
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_interval=1
ReturnToService=2
KillWait=2
MailProg=/bin/true
PartitionName=all Nodes=ALL Default=YES
"""


def why_no_slurm():
    """None if Slurm can be used here, else the reason in words."""
    lacking = [name for name in PROGRAMS if shutil.which(name) is None]
    return f"there is no {', '.join(lacking)} (Debian's slurmctld, slurmd and slurm-client)" if lacking else None


class Slurm:
    """The controller is on the first node. To be stopped before the cluster is closed."""

    def __init__(self, cluster):
        self._cluster = cluster
        self._folder = cluster.folder / "slurm"
        (self._folder / "state").mkdir(parents=True)
        self._conf = self._folder / "slurm.conf"
        hosts = [node.address.rpartition(":")[0] for node in cluster.nodes]
        text = CONFIGURATION.format(first=cluster.nodes[0].name, host=hosts[0], folder=self._folder)
        for node, host in zip(cluster.nodes, hosts):
            (self._folder / node.name).mkdir()
            text += f"NodeName={node.name} NodeAddr={host} CPUs={CPUS}\n"
        self._conf.write_text(text)
        # slurmd insists on a plugin, which does nothing here; the choice by itself would look for mounted cgroups.
        (self._folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        self._daemons = [self._start("slurmctld", cluster.nodes[0]),
                         *(self._start("slurmd", node) for node in cluster.nodes)]
        self.wait_idle()

    def _start(self, program, node):
        return self.process(f"{program}-{node.name}", [program, "-D"], node)

    def process(self, name, command, node=None, **environment):
        """A process that finds Slurm, on the first node unless another is said."""
        node = node or self._cluster.nodes[0]
        process = Process(name, [*node.as_host(), *command], self._cluster.folder, self._cluster.mark,
                                  {"SLURM_CONF": str(self._conf), **environment}, node.prefix)
        self._cluster.processes.append(process)
        return process

    def cancel_all(self):
        self.ask("scancel", "--user=root")
        self.wait_idle()

    def stop(self):
        """Ends all jobs, the daemons, and the processes of theirs that outlive them for a moment."""
        self.cancel_all()
        for daemon in self._daemons:
            daemon.signal(signal.SIGTERM)
        for daemon in self._daemons:
            daemon.wait(20)
        wait_until(lambda: not any("slurm" in words.split()[0] for words in marked(self._cluster.mark).values() if words),
                   20, "all processes of Slurm have ended")

    def wait_idle(self):
        wait_until(self._is_idle, 30, "all nodes of Slurm are idle")

    def _is_idle(self):
        try:
            return self.ask("sinfo", "--noheader", "--format=%t %D").split() == ["idle", str(len(self._cluster.nodes))]
        except OSError:
            return False  # no controller yet

    def ask(self, *words):
        return run(*self._cluster.nodes[0].prefix, "env", f"SLURM_CONF={self._conf}", *words)
