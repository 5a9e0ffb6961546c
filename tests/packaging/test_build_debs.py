"""What tools/packaging/build-debs does around the build, which stands here for itself: what it touches and what it calls itself."""

import os
import shutil
import subprocess

import pytest
from conftest import ROOT

BUILD = """#!/bin/sh
for package in gradringd libgradring0; do
  touch ../${package}_0.1.0_amd64.deb ../${package}-dbgsym_0.1.0_amd64.deb
done
"""


@pytest.fixture
def source(tmp_path):
    """The scripts alone, in a folder of their own, beside programs that build nothing and complain of nothing."""
    tree = tmp_path / "source"
    for folder in ("tools/lib", "tools/packaging"):
        shutil.copytree(ROOT / folder, tree / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "CMakeLists.txt", tree)
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, text in (("dpkg-buildpackage", BUILD), ("dh", "#!/bin/sh\n"), ("lintian", "#!/bin/sh\n")):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    return tree


def build(source, *words, cwd, **environment):
    paths = f"{source.parent / 'programs'}:{os.environ['PATH']}"
    subprocess.run([source / "tools/packaging/build-debs", *words], check=True, cwd=cwd, timeout=60,
                   env={**os.environ, "PATH": paths, **environment})


def test_it_replaces_its_own_packages_and_nothing_else(source, tmp_path):
    out = tmp_path / "out"
    (out / "debug").mkdir(parents=True)
    for name in ("gradringd_0.0.9_amd64.deb", "debug/gradringd-dbgsym_0.0.9_amd64.deb", "another_1_all.deb", "debug/notes", "letter"):
        (out / name).touch()
    build(source, out, cwd=tmp_path)
    build(source, out, cwd=tmp_path)
    assert {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()} == {
        "gradringd_0.1.0_amd64.deb", "libgradring0_0.1.0_amd64.deb", "debug/gradringd-dbgsym_0.1.0_amd64.deb",
        "debug/libgradring0-dbgsym_0.1.0_amd64.deb", "another_1_all.deb", "debug/notes", "letter"}


def test_a_folder_is_named_from_where_the_caller_is(source, tmp_path):
    build(source, "out", cwd=tmp_path)
    assert (tmp_path / "out/gradringd_0.1.0_amd64.deb").is_file() and not (source / "out").exists()


def test_a_maintainer_may_have_any_name(source, tmp_path):
    build(source, cwd=tmp_path, DEBFULLNAME=r"R&D / Nodes \1", DEBEMAIL="nodes@example.org")
    control = (source / "build/packages/deb/gradring-0.1.0/debian/control").read_text()
    assert r"Maintainer: R&D / Nodes \1 <nodes@example.org>" in control
