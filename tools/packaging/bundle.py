"""Puts the shared libraries that programs need beside them, so that the folder may lie anywhere.

usage: bundle.py PREFIX        has bin/ and lib/; writes lib/*, lib/ucx/*, and prints each file with its Debian package

What a node must have itself is never copied: the C and C++ runtime, because the kernel's and every plugin's must be the same
in a process; RDMA's user space, which goes with the driver; CUDA and NCCL, whose licence and driver are NVIDIA's.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

OF_THE_NODE = re.compile(r"^(ld-linux.*|lib(c|m|dl|rt|pthread|resolv|util|nsl|gcc_s|stdc\+\+|anl)\.so.*"
                         r"|lib(ibverbs|rdmacm|mlx[45]|efa|mana|nl-.*)\.so.*|lib(cuda|cudart|cufile|nccl|nvidia-.*|nvrtc.*)\.so.*)$")
# Modules that UCX loads by itself, from the folder ucx beside it: shared memory of processes, and RDMA, which is passed
# over where the node has no RDMA user space.
UCX_MODULES = ("libuct_cma", "libuct_ib", "libuct_rdmacm")


def run(*command):
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True, timeout=60).stdout


def needed_by(file):
    """{name: path} of everything that is loaded with it."""
    said = run("ldd", file)
    found = dict(re.findall(r"(?m)^\s+(\S+) => (/\S+)", said))
    lost = [name for name in re.findall(r"(?m)^\s+(\S+) => not found", said) if not OF_THE_NODE.match(name)]
    if lost:
        sys.exit(f"bundle.py: {file} needs {', '.join(lost)}, which are not installed here")
    return {name: Path(path) for name, path in found.items() if not OF_THE_NODE.match(name)}


def packages_of(files):
    """{file: the Debian package that it came with}; with a merged /usr packages know it by one of two names."""
    names = {file: {str(file.resolve()), re.sub(r"^/usr/lib/", "/lib/", str(file.resolve()))} for file in files}
    said = subprocess.run(["dpkg-query", "-S", *sorted(set().union(*names.values()))], capture_output=True, text=True,
                          timeout=300, check=False).stdout
    owners = {path: package for package, path in re.findall(r"(?m)^(\S+): (/.*)$", said)}
    found = {file: owners[name] for file in files for name in names[file] if name in owners}
    if lost := sorted(str(file) for file in files if file not in found):
        sys.exit(f"bundle.py: {', '.join(lost)} belong to no package: what they are and how they are licensed cannot be told")
    return found


def is_elf(file):
    with open(file, "rb") as content:
        return content.read(4) == b"\x7fELF"


def copy(source, target, rpath):
    shutil.copy(source.resolve(), target)
    target.chmod(0o644)
    run("patchelf", "--set-rpath", rpath, target)


def main(prefix):
    lib, modules = prefix / "lib", prefix / "lib/ucx"
    own = [file for folder in (prefix / "bin", lib) for file in folder.iterdir()
           if file.is_file() and not file.is_symlink() and is_elf(file)]
    ours = {file.name for file in lib.iterdir()}
    wanted, sources = {}, {}
    for file in own:
        wanted.update({name: path for name, path in needed_by(file).items() if name not in ours})
    # The folder that UCX itself came from.
    home = wanted["libucs.so.0"].parent / "ucx"
    modules.mkdir()
    for module in UCX_MODULES:
        source = next(iter(sorted(home.glob(f"{module}.so.?"))), None)
        if source is None:
            continue
        copy(source, modules / source.name, "$ORIGIN:$ORIGIN/..")  # one of them needs another
        (modules / f"{module}.so").symlink_to(source.name)
        sources[f"lib/ucx/{source.name}"] = source
        wanted.update({name: path for name, path in needed_by(source).items() if not name.startswith(UCX_MODULES)})
    for name, path in sorted(wanted.items()):
        copy(path, lib / name, "$ORIGIN")
        sources[f"lib/{name}"] = path
    owners = packages_of(sources.values())
    print("\n".join(f"{file} {owners[source]}" for file, source in sorted(sources.items())))


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
