"""What tests/device/run tries with PyTorch on a machine with a GPU, by tensors of the host: that it runs, and finds faults."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

np = pytest.importorskip("numpy")
pytest.importorskip("torch", reason="needs PyTorch")

HERE = ROOT / "tests/device/pytorch"


@pytest.fixture
def check(request):
    """Runs check.py; (status, what it said)."""
    programs = Path(request.config.getoption("--programs")).resolve()

    def run(*words, environment=None):
        done = subprocess.run([sys.executable, HERE / "check.py", "--programs", programs, *words], timeout=200, check=False, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, **(environment or {})})
        return done.returncode, done.stdout
    return run


@pytest.fixture
def parts(monkeypatch):
    """The modules of check.py can be imported."""
    monkeypatch.syspath_prepend(HERE)


@pytest.mark.parametrize("part, words", [
    ("ops", ["names of horovod: right"]),
    pytest.param("training", ["FSDP2 (at most", "step skipped", "the same"], marks=pytest.mark.long),
    ("latency", ["4 KiB", "gradring, 2 ranks, gpu-sums takes at most 30 us more than kernel"]),
    pytest.param("overlap", ["computing alone", "exchange alone"], marks=pytest.mark.long),
])
def test_a_part_runs(check, part, words):
    status, said = check("--device", "cpu", "--quick", part)
    assert status == 0 and all(word in said for word in [*words, "all that must be right is right"]), said


@pytest.mark.long
def test_speed_is_told_and_drawn(check, tmp_path):
    file = tmp_path / "speed.svg"
    status, said = check("--device", "cpu", "--quick", "--picture", file, "speed")
    assert status == 0 and "3 MiB" in said and "goal: ahead of gloo at" in said and "two nodes" in said, said
    assert file.exists() or file.with_suffix(".json").exists(), said


def test_figures_are_kept_where_nothing_can_be_drawn(parts, monkeypatch, tmp_path):
    import picture

    figures = {"one node": {4: {"gloo": [2.0, 1.0]}, 1 << 20: {"gloo": [3.0, 4.0]}}}
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "matplotlib", None)
        assert "speed.json" in picture.draw(figures, "here", str(tmp_path / "speed.svg"))
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    picture.main(tmp_path / "speed.json", str(tmp_path / "speed.svg"))
    assert "<svg" in (tmp_path / "speed.svg").read_text()


def test_what_cannot_be_tried_is_said(check):
    status, said = check("weather")
    assert status == 2 and "there is no part weather" in said, said
    status, said = check("ops", environment={"CUDA_VISIBLE_DEVICES": ""})
    assert status == 1 and "PyTorch has no GPU here" in said, said


def test_nccl_is_asked_for_its_words(parts, request):
    """There is no GPU for it."""
    import nccl
    from rings import Setting

    setting = Setting(Path(request.config.getoption("--programs")).resolve(), "cpu", quick=True)
    told = nccl.probe(setting, nccl.SOCKETS)
    assert not told.pairs and "refuses two ranks on one GPU: " in told.why and told.environment == nccl.SOCKETS, told
    assert nccl.ask(setting, nccl.PAIR).why == "it is for GPUs"


def test_nccl_that_is_too_old_is_not_asked(parts, monkeypatch):
    import nccl
    import torch
    from rings import Setting

    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)
    monkeypatch.setattr(torch.cuda.nccl, "version", lambda: (2, 28, 9))
    monkeypatch.setattr(nccl, "probe", lambda setting, environment: nccl.Nccl(environment, pairs=True))
    nccl.ask.cache_clear()
    assert nccl.ask(Setting(Path(), "cuda", quick=True), nccl.PAIR).why == "NCCL 2.28.9 takes one rank a GPU"
    assert nccl.ask(Setting(Path(), "cuda", quick=True, nccl="libnccl.so.2"), nccl.PAIR).pairs, "it may be a newer one"
    monkeypatch.setattr(torch.cuda.nccl, "version", lambda: (2, 30, 1))
    assert nccl.ask(Setting(Path("/"), "cuda", quick=True), nccl.PAIR).pairs


def test_ranks_have_all_queues_of_the_gpu(parts):
    """A stream that waits for an op keeps nobody behind it then."""
    import rings

    assert "CUDA_DEVICE_MAX_CONNECTIONS=32" in rings.Rings(rings.Setting(Path(), "cuda", quick=True), [])._environment()


def test_what_fails_with_nccl_is_tried_without(parts):
    import nccl
    from rings import Failed

    tried = []

    def measure(how):
        tried.append(how.pairs)
        if how.pairs or len(tried) > 2:
            raise Failed("kernels wait for one another")
        return "figures"
    assert nccl.or_without(nccl.Nccl(nccl.PAIR, pairs=True), measure) == "figures" and tried == [True, False]
    with pytest.raises(Failed):
        nccl.or_without(nccl.Nccl(nccl.PAIR), measure)


@pytest.mark.long
def test_figures_are_not_lost_with_those_of_nccl(parts, monkeypatch, request):
    """Here it does not even start."""
    import latency
    import nccl
    from rings import Setting

    told = []
    monkeypatch.setattr(latency, "tell", lambda size, taken: told.append(latency.BOTH in taken and latency.NCCL_ALONE not in taken))
    setting = Setting(Path(request.config.getoption("--programs")).resolve(), "cpu", quick=True)
    nccl.or_without(nccl.Nccl(nccl.PAIR, alone=True), lambda how: latency.measure(setting, how))
    assert told == [True, True]


@pytest.fixture
def compare(parts):
    """compare() of training.py: its complaints about one rank that has these weights, and another."""
    import training

    def run(*ranks, digests=("a", "a"), scales=(4, 2)):
        weights = {training.SINGLE: [{"DDP": np.zeros(3)}], "gradring, sums": [{"DDP": np.array(one)} for one in ranks]}
        told = {training.SINGLE: [{"DDP": {"digest": "a", "scales": [4, 2]}}],
                "gradring, sums": [{"DDP": {"digest": digest, "scales": list(scales)}} for digest in digests]}
        return training.compare("DDP", told, weights, gradring=["gradring, sums"])
    return run


def test_faults_of_training_are_found(compare):
    close, far, never = [0, 1e-6, 0], [0, 1e-2, 0], [0, float("nan"), 0]
    assert compare(close, close) == []
    assert len(compare(close, far)) == len(compare(never, close)) == 1
    assert "different weights" in compare(close, close, digests=("a", "b"))[0]
    assert "scaled by" in compare(close, close, scales=(4, 4))[0]


@pytest.mark.long
def test_the_package_is_built_against_a_library_that_is_installed(request, check, tmp_path):
    build = Path(request.config.getoption("--programs")).resolve().parent
    if not (build / "CMakeCache.txt").exists():
        pytest.skip(f"{build} is no folder of a build")
    pytest.importorskip("nanobind", reason="needs nanobind")
    subprocess.run(["cmake", "--install", build, "--component", "client", "--prefix", tmp_path / "there"], check=True, timeout=60,
                   stdout=subprocess.DEVNULL)
    subprocess.run([HERE / "package", tmp_path / "there", sys.executable], check=True, timeout=300)
    moved = (tmp_path / "there").rename(tmp_path / "elsewhere")  # what is built finds the library by where it is from there
    status, said = check("--device", "cpu", "--quick", "latency", environment={"PYTHONPATH": str(moved / "python")})
    assert status == 0 and f"gradring {moved}/python/gradring" in said, said
