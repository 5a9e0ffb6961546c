"""What the tests of packages share: the built packages, and roots to install them into. All of it needs root."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILT = ROOT / "build/packages"
sys.path.insert(0, str(ROOT / "tools/lib"))

import roots  # noqa: E402  (beside this file)


def pytest_addoption(parser):
    parser.addoption("--debs", help="folder of the built packages; default: they are built")
    parser.addoption("--tarball", help="the built tarball; default: it is built")


def needs(*programs):
    if os.geteuid() != 0:
        pytest.skip("needs root: roots are made, mounted and entered")
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed (tools/install-dependencies --full)")


@pytest.fixture(scope="session")
def debs(request):
    """The folder of the packages."""
    given = request.config.getoption("--debs")
    if given:
        return Path(given).resolve()
    needs("dpkg-buildpackage", "dh", "lintian")
    subprocess.run([ROOT / "tools/packaging/build-debs"], check=True, timeout=3600)
    return BUILT / "debs"


@pytest.fixture(scope="session")
def base():
    needs("mmdebstrap")
    return roots.base(BUILT)


@pytest.fixture
def root(base, tmp_path):
    with roots.Root(base, tmp_path / "root") as made:
        made.keep_downloads_in(BUILT / "archives")
        yield made


@pytest.fixture(scope="session")
def installed(base, debs, tmp_path_factory):
    """A tar of a root with the packages in it, whose services were never started."""
    folder = tmp_path_factory.mktemp("installed")
    with roots.Root(base, folder / "root") as made:
        made.keep_downloads_in(BUILT / "archives")
        made.mount("debs", "--bind", debs)
        made.run("apt-get", "update")
        made.run("sh", "-c", "cd /debs && apt-get install -y ./*.deb", seconds=900)
        tar = folder / "installed.tar"
        made.pack(tar)
    return tar
