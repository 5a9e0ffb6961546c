"""The tarball: unpacked by a user without root, moved, and run where none of its libraries is installed."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cluster import TookTooLong, wait_until
from conftest import BUILT, ROOT, needs

# What the node has itself; docs/install.md says so.
OF_THE_NODE = re.compile(r"^(ld-linux.*|lib(c|m|dl|rt|pthread|resolv|gcc_s|stdc\+\+)\.so.*)$")
MOVED = "/srv/moved to another place"
AS_A_USER = ("setpriv", "--reuid", "1000", "--regid", "1000", "--clear-groups", "--")
RING = """
cd "$1"/gradring-*/bin
./gradringd --node a --runtime-dir /tmp/ring-0 --listen 127.0.0.1:7321 --peer 127.0.0.1:7322 & a=$!
./gradringd --node b --runtime-dir /tmp/ring-1 --listen 127.0.0.1:7322 --peer 127.0.0.1:7321 & b=$!
until ./gradringctl --runtime-dir /tmp/ring-0 peers | grep -q "^b .* up " && [ -S /tmp/ring-1/attach.sock ]; do sleep 0.1; done
for n in 0 1; do
  RANK=$n WORLD_SIZE=2 GRADRING_JOB=first ./gradring-perf allreduce --max 4M --check --runtime-dir /tmp/ring-$n &
  ranks="$ranks $!"
done
for rank in $ranks; do wait $rank; done
echo "LIBRARIES OF $a"
sed -n 's:^[^/]*\\(/.*\\.so.*\\)$:\\1:p' /proc/$a/maps | sort -u
kill $a $b
wait $a && wait $b
echo ENDED WELL
"""


@pytest.fixture(scope="module")
def tarball(request):
    given = request.config.getoption("--tarball")
    if given:
        return Path(given).resolve()
    needs("patchelf", "xz")
    subprocess.run([ROOT / "tools/packaging/build-tarball"], check=True, timeout=3600)
    [built] = BUILT.glob("gradring-*.tar.xz")
    return built


@pytest.fixture(scope="module")
def unpacked(tarball, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tarball")
    subprocess.run(["tar", "-xJf", tarball, "-C", folder], check=True, timeout=120)
    [top] = folder.iterdir()
    return top


def test_it_runs_where_nothing_of_it_is_installed(root, unpacked, tmp_path):
    (root.path / "opt/first").mkdir(parents=True)
    subprocess.run(["cp", "-a", unpacked, root.path / "opt/first"], check=True, timeout=60)
    (root.path / "opt/first").rename(root.path / MOVED[1:])
    assert not list((root.path / "usr/lib").rglob("libucp.so*")) and not list((root.path / "usr/lib").rglob("libzmq.so*"))
    log = tmp_path / "ring.log"
    with open(log, "wb") as out, subprocess.Popen(root.command(*AS_A_USER, "sh", "-e", "-c", RING, "ring", MOVED),
                                                  stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT) as ring:
        try:
            wait_until(lambda: ring.poll() is not None, 120, "the ring ends")
        except TookTooLong as error:
            subprocess.run(root.command("sh", "-c", "pkill -KILL -u 1000"), check=False, timeout=20)
            raise AssertionError(f"{error}; it said:\n{log.read_text()}") from None
    said = log.read_text()
    assert ring.returncode == 0 and "ENDED WELL" in said, said
    table = re.findall(r"(?m)^ +\d+ +\d+ +float32 +sum .* (\S+)$", said)
    assert table and set(table) == {"0"}, said
    loaded = [Path(line) for line in said.split("LIBRARIES OF")[1].splitlines() if line.startswith("/")]
    strangers = [path for path in loaded if not str(path).startswith(MOVED) and not OF_THE_NODE.match(path.name)]
    assert strangers == [], strangers
    assert any(path.parent.name == "ucx" and path.name.startswith("libuct_cma") for path in loaded), loaded


def test_everything_in_it_is_told_with_its_licence(unpacked):
    told = json.loads((unpacked / "gradring.spdx.json").read_text())
    comments = " ".join(package.get("comment", "") for package in told["packages"])
    bundled = [path.relative_to(unpacked) for path in unpacked.rglob("lib*.so*")
               if not path.is_symlink() and not path.name.startswith("libgradring")]
    assert len(bundled) > 20
    assert [str(path) for path in bundled if f"{path} (sha256 " not in comments] == []
    for package in told["packages"][1:]:
        assert package["licenseDeclared"] and (unpacked / "share/doc/gradring/licences" / package["name"]).is_file(), package
    defined = {one["licenseId"] for one in told["hasExtractedLicensingInfos"]}
    used = {word for package in told["packages"] for word in re.findall(r"LicenseRef-[A-Za-z0-9.-]+", package["licenseDeclared"])}
    assert used == defined


def told_in_the_notice(unpacked):
    """{Debian source package: (licence, what it is in)}."""
    text = (unpacked / "NOTICE").read_text()
    rows = re.findall(r"(?m)^    (\S+) +(\S.*?)  +(tarball(?:, wheel)?)$", text)
    return {name: (licence, held) for name, licence, held in rows}


def sources_of(unpacked):
    """{file name: Debian source package} of what is bundled, by the list in the tarball."""
    told = json.loads((unpacked / "gradring.spdx.json").read_text())
    return {Path(file).name: package["sourceInfo"].removeprefix("Debian source package ") for package in told["packages"][1:]
            for file in re.findall(r"(\S+) \(sha256 ", package["comment"])}


def test_the_notice_names_every_library_in_it(unpacked):
    notice = told_in_the_notice(unpacked)
    assert set(notice) == set(sources_of(unpacked).values())
    assert all(licence for licence, _ in notice.values())


def test_the_notice_names_every_library_in_the_wheel(unpacked):
    """The wheel has what libgradring needs, but for the runtime of C and C++ (client/python/CMakeLists.txt)."""
    [library] = (path for path in unpacked.glob("lib/libgradring.so*") if not path.is_symlink())
    said = subprocess.run(["ldd", library], check=True, capture_output=True, text=True, timeout=60).stdout
    needed = {name for name in re.findall(r"(?m)^\s+(\S+) => ", said) if not OF_THE_NODE.match(name)}
    sources = sources_of(unpacked)
    assert {sources[name] for name in needed} == \
        {name for name, (_, held) in told_in_the_notice(unpacked).items() if "wheel" in held}


def test_the_driver_s_own_are_not_in_it(unpacked):
    names = [path.name for path in unpacked.rglob("*.so*")]
    drivers = re.compile(r"lib(c|stdc\+\+)\.so|lib(cu(da|dart|file|blas|dnn)|nccl|nvidia|nvrtc|ibverbs|rdmacm|mlx)")
    assert not [name for name in names if drivers.match(name)], names


def test_what_comes_with_a_driver_is_known_as_such():
    """Where they are installed, as they are not where the tarball is built."""
    sys.path.insert(0, str(ROOT / "tools/packaging"))
    import bundle  # noqa: PLC0415  (found by the line above)
    for name in ("libcuda.so.1", "libcudart.so.12", "libcufile.so.0", "libnccl.so.2", "libnvidia-ml.so.1",
                 "libnvidia-fatbinaryloader.so.450", "libnvrtc.so.12", "libibverbs.so.1", "libmlx5.so.1", "libstdc++.so.6", "libc.so.6"):
        assert bundle.OF_THE_NODE.match(name), name
    for name in ("libcurl.so.4", "libcap.so.2", "libcivetweb.so.1", "libzmq.so.5"):
        assert not bundle.OF_THE_NODE.match(name), name
