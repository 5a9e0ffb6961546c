"""Two guests with RDMA devices, booted once for all tests of this folder."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import guest as virtual  # noqa: E402  (found by the line above)
import image  # noqa: E402
import ring as rings  # noqa: E402

FIGURES = []


def pytest_addoption(parser):
    root = HERE.parents[1]
    parser.addoption("--programs", default=str(root / "build/bin"), help="folder of the built programs")
    parser.addoption("--must-run", action="store_true", help="fail where something that the guests need is missing")
    parser.addoption("--work", default=str(root / "build/rdma"), help="folder of images and outputs")


def pytest_terminal_summary(terminalreporter):
    if FIGURES:
        terminalreporter.section("figures")
        for line in FIGURES:
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def figure():
    """Notes a measured figure for the end of the run."""
    return FIGURES.append


@pytest.fixture(scope="session")
def guests(request, tmp_path_factory):
    try:
        work, programs = (Path(request.config.getoption(option)).resolve() for option in ("--work", "--programs"))
        made = image.build(work, programs)
    except image.CannotBuild as reason:
        (pytest.fail if request.config.getoption("--must-run") else pytest.skip)(f"no guests: {reason}")
    pair = virtual.pair(tmp_path_factory.mktemp("g"), made)
    try:
        for node, guest in enumerate(pair):
            rings.prepare(guest, node)
        yield pair
    finally:
        for guest in pair:
            guest.close()


@pytest.fixture
def make_ring(guests):
    """Rings of a test's own; each must end well, unless the test took that upon itself."""
    made = []

    def make(**options):
        made.append(rings.Ring(guests, **options))
        return made[-1]

    yield make
    for ring in made:
        statuses = ring.close()
        assert all(status in (0, 137) for status in statuses), [daemon.last_words() for daemon in ring.daemons]


@pytest.fixture
def keep(request):
    """Keeps an output for people, in the folder of images."""
    folder = Path(request.config.getoption("--work")) / "outputs"
    folder.mkdir(parents=True, exist_ok=True)
    return lambda name, text: (folder / name).write_text(text)
