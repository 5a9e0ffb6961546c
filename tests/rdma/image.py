"""The guests' kernel and file system, made of Debian packages and of the programs under test.

The kernel comes from its package, unpacked and never installed. All else is copied from this host, which the programs
were built for, into an initramfs: nothing of a guest is on a disk, and what it leaves behind is gone with it.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROGRAMS = ("gradringd", "gradringctl", "gradring-perf", "gradring-digits", "gradring-e2e-trainer", "conformance_test",
            "conformance_endings_test", "conformance_peer")
TOOLS = ("rdma", "ibv_devinfo", "setpriv")
# Read by name, and so on no list that ldd prints.
READ_BY_NAME = ("/etc/libibverbs.d/rxe.driver", "/etc/services", "/etc/protocols")
OPENED_BY_NAME = ("libibverbs/librxe-rdmav*.so", "ucx/libuct_ib.so*", "ucx/libuct_rdmacm.so*", "ucx/libuct_cma.so*",
                  "libnss_files.so.2", "libgcc_s.so.1")
MODULES = ("virtio_pci", "virtio_net", "virtio_console", "9p", "9pnet_virtio", "crc32_generic", "rdma_rxe", "ib_uverbs",
           "rdma_ucm")


class CannotBuild(Exception):
    """Something that an image needs is not here; says what, for people."""


def output(*command, cwd=None):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300, check=False,
                          cwd=cwd)
    if done.returncode != 0:
        raise CannotBuild(f"{' '.join(map(str, command))}: exit status {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def missing_tools():
    """Debian packages that would have to be installed."""
    needs = {"qemu-system-x86_64": "qemu-system-x86", "rdma": "iproute2", "ibv_devinfo": "ibverbs-utils",
             "cpio": "cpio", "busybox": "busybox-static", "modprobe": "kmod"}
    return sorted({package for tool, package in needs.items() if not shutil.which(tool)})


def kernel(folder):
    """Folder of an unpacked kernel package: that which linux-image-amd64 stands for."""
    name = re.search(r"Depends: (linux-image-\S+)", output("apt-cache", "depends", "linux-image-amd64"))
    if not name:
        raise CannotBuild("apt-cache knows no linux-image-amd64: apt-get update, on Debian 12")
    there = folder / name[1]
    if not there.exists():
        fetched = folder / "fetched"
        shutil.rmtree(fetched, ignore_errors=True)
        fetched.mkdir(parents=True)
        output("apt-get", "download", "-o", "APT::Sandbox::User=root", name[1], cwd=fetched)
        output("dpkg-deb", "-x", next(fetched.glob("*.deb")), fetched / "unpacked")
        output("depmod", "-b", fetched / "unpacked", name[1].removeprefix("linux-image-"))
        (fetched / "unpacked").rename(there)
        shutil.rmtree(fetched)
    return there


def libraries_of(files):
    found = set()
    for line in output("ldd", *files).splitlines():
        path = re.search(r"(/\S+) \(0x", line)
        if path:
            found.add(path[1])
        elif "not found" in line:
            raise CannotBuild(f"a library that the guests need is not here: {line.strip()}")
    return sorted(found)


def modules_of(unpacked, version):
    """Files of the modules in the order in which they can be loaded."""
    listed = []
    for name in MODULES:
        shown = output("modprobe", "-d", unpacked, "-S", version, "--show-depends", name)
        for path in re.findall(r"^insmod (\S+)", shown, re.M):
            if path not in listed:
                listed.append(path)
    return listed


def put(source, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(os.path.realpath(source), target)


def fill(root, unpacked, version, programs):
    for name in ("dev", "proc", "sys", "tmp", "run", "host", "usr/bin", "usr/lib", "modules", "root", "var/lib"):
        (root / name).mkdir(parents=True)
    for link, target in (("bin", "usr/bin"), ("sbin", "usr/bin"), ("lib", "usr/lib"), ("lib64", "usr/lib")):
        (root / link).symlink_to(target)
    (root / "usr/sbin").symlink_to("bin")
    binaries = [programs / name for name in PROGRAMS] + [Path(shutil.which(name)) for name in TOOLS]
    libraries = Path(f"/usr/lib/{os.uname().machine}-linux-gnu")
    plugins = [path for pattern in OPENED_BY_NAME for path in libraries.glob(pattern)]
    for path in binaries:
        put(path, root / "usr/bin" / path.name)
    for path in plugins:
        put(path, root / str(path).lstrip("/"))
    for path in libraries_of([*binaries, *plugins]):
        # Libraries of this build are found through the programs' own search path, all others by the loader.
        where = path if re.match(r"/(usr/)?lib(64)?/", path) else f"/usr/lib/{Path(path).name}"
        put(path, root / where.lstrip("/"))
    for path in READ_BY_NAME:
        if Path(path).exists():
            put(path, root / path.lstrip("/"))
    # conformance_test starts its peer by the path that it was built at.
    built = root / str(Path(programs).resolve()).lstrip("/")
    built.parent.mkdir(parents=True, exist_ok=True)
    built.symlink_to("/usr/bin")
    put(shutil.which("busybox"), root / "usr/bin/busybox")
    (root / "usr/bin/sh").symlink_to("busybox")
    (root / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\nnogroup:x:65534:\n")
    order = modules_of(unpacked, version)
    for path in order:
        put(path, root / "modules" / Path(path).name)
    (root / "modules/order").write_text("".join(f"{Path(path).name}\n" for path in order))
    put(programs.parent / "share/gradring/examples/digits.csv", root / "usr/share/digits.csv")
    put(HERE / "init", root / "init")
    (root / "init").chmod(0o755)


def fingerprint(paths):
    """Changes with whatever goes into an image."""
    seen = hashlib.sha256()
    for path in paths:
        status = os.stat(path)
        seen.update(f"{path} {status.st_size} {status.st_mtime_ns}\n".encode())
    return seen.hexdigest()


def build(folder, programs):
    """(kernel, initramfs), made anew when a program or a script of the guests changed."""
    missing = missing_tools()
    if missing:
        raise CannotBuild(f"needs {' '.join(missing)}: apt-get install {' '.join(missing)}")
    lacking = [name for name in PROGRAMS if not (programs / name).exists()]
    if lacking:
        raise CannotBuild(f"{programs} has no {', '.join(lacking)}: build them first")
    folder.mkdir(parents=True, exist_ok=True)
    unpacked = kernel(folder)
    version = unpacked.name.removeprefix("linux-image-")
    state = {"of": fingerprint([*(programs / name for name in PROGRAMS), HERE / "init", HERE / "image.py", unpacked])}
    initramfs, noted = folder / "initramfs", folder / "initramfs.json"
    if not (initramfs.exists() and noted.exists() and json.loads(noted.read_text()) == state):
        noted.unlink(missing_ok=True)
        root = folder / "root"
        shutil.rmtree(root, ignore_errors=True)
        fill(root, unpacked, version, programs)
        with open(initramfs, "wb") as out:
            names = sorted(str(path.relative_to(root)) for path in root.rglob("*"))
            subprocess.run(["cpio", "--quiet", "-o", "-H", "newc", "-R", "0:0"], input="\n".join(names).encode(),
                           cwd=root, stdout=out, check=True, timeout=120)
        shutil.rmtree(root)
        noted.write_text(json.dumps(state))
    return unpacked / "boot" / f"vmlinuz-{version}", initramfs
