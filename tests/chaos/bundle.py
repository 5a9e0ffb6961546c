"""Everything that may say why a run failed, in one folder."""

import json
import shutil
import subprocess
from pathlib import Path

COPIED_MAX = 64 << 20  # bytes of one file


def write(folder, cluster, job, trainers, ended, complaints, schedule_done):
    """Asks every daemon everything, and every process where it stands. Returns the folder."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "complaints").write_text("\n".join(complaints) + "\n")
    (folder / "faults").write_text("\n".join(schedule_done) + "\n")
    for node in cluster.nodes:
        for words in (["status"], ["peers"], ["jobs"], ["job", job], ["flight-recorder", "--last", "0"]):
            _keep(folder / f"{node.name}-{words[0]}", node.ctl, *words)
        _process(folder / f"{node.name}-daemon-stack", node.daemon_pid())
        for path in node.runtime_dir.glob("flight-recorder*"):
            _copy(path, folder / f"{node.name}-{path.name}")
    for path in cluster.folder.glob("gradringd-*.err"):  # of all lives
        _copy(path, folder / path.name)
    for one in trainers:
        _process(folder / f"{one.serial}-stack", one.pid)
        _copy(one.path, folder / f"{one.serial}.log")
    for one in ended:
        _copy(one.path, folder / f"{one.serial}-ended.log")
    (folder / "trainers").write_text(json.dumps([vars(one) for one in trainers], default=str, indent=1))
    return folder


def _keep(path, ctl, *words):
    try:
        status, out, err = ctl(*words)
        path.write_text(f"exit status {status}\n{out}{err}")
    except (OSError, subprocess.SubprocessError) as error:
        path.write_text(f"{error}\n")


def _process(path, pid):
    text = ""
    for name in ("status", "wchan", "stack"):
        try:
            text += f"-- {name}\n{Path(f'/proc/{pid}/{name}').read_text()}\n"
        except OSError as error:
            text += f"-- {name}: {error}\n"
    if shutil.which("gdb"):
        try:
            text += subprocess.run(["gdb", "-p", str(pid), "-batch", "-ex", "thread apply all bt"],
                                   capture_output=True, text=True, timeout=60, check=False).stdout
        except subprocess.SubprocessError as error:
            text += f"{error}\n"
    path.write_text(text)


def _copy(source, target):
    try:
        if source.stat().st_size <= COPIED_MAX:
            shutil.copy(source, target)
    except OSError:
        pass  # it was taken away meanwhile
