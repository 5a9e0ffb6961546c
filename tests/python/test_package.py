"""The package as pip installs it, and the part of it that is written in C++."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import gradring
from gradring import _native

# Of the C and C++ runtime, which every machine with Python has.
RUNTIME = ("linux-vdso", "ld-linux", "libc.so", "libm.so", "libpthread", "libdl", "librt", "libresolv", "libstdc++",
           "libgcc_s")
CHECKS = 13


def test_needs_nothing_of_the_machine():
    """No UCX, CUDA or MPI, and no ZeroMQ or protobuf but its own."""
    folder = Path(_native.__file__).parent
    lines = subprocess.run(["ldd", _native.__file__], capture_output=True, text=True, check=True).stdout.splitlines()
    strangers = [line.strip() for line in lines if str(folder) not in line
                 and not any(name in line for name in RUNTIME)]
    assert not strangers
    assert not [line for line in lines if "not found" in line]


def test_has_the_licence_of_every_library_in_it():
    folder = Path(_native.__file__).parent
    licences = [path.name for path in folder.glob("licences/*") if path.stat().st_size]
    names = [path.name.partition(".so")[0].replace("_", "-") for path in folder.glob("lib*.so*") if "gradring" not in path.name]
    package = {"libz": "zlib"}
    assert not [name for name in names if not any(one.startswith(package.get(name, name)) for one in licences)]


def test_is_the_version_of_the_project():
    root = Path(__file__).resolve().parents[2]
    assert f"project(gradring VERSION {gradring.__version__} " in (root / "CMakeLists.txt").read_text(encoding="utf-8")


def test_needs_no_torch():
    code = "import sys, gradring; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("front_end", ["", "torch", "jax", "keras", "tensorflow"])
def test_type_checkers_find_the_names_of(front_end):
    """They read what is written, and run nothing."""
    tree = ast.parse((Path(gradring.__file__).parent / front_end / "__init__.py").read_text(encoding="utf-8"))
    imported = [name.name for node in tree.body if isinstance(node, ast.ImportFrom) for name in node.names]
    assert "*" in imported
    listed = next(node.value for node in tree.body if isinstance(node, ast.Assign) and node.targets[0].id == "__all__")
    assert all(isinstance(one, ast.Constant) for one in listed.elts)


def test_says_what_a_function_of_a_script_needs(tmp_path):
    """Before ranks are started, which would not find it."""
    script = tmp_path / "script.py"
    script.write_text("import sys\nsys.modules['cloudpickle'] = None\nimport gradring\ndef train(): pass\ngradring.run(train)\n")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, timeout=60,
                          env={**os.environ, "GRADRING_RUN": "/bin/false"})
    assert "ValueError: gradring: train is a function of the script itself" in done.stderr, done.stderr
    assert "pip install cloudpickle" in done.stderr


def test_a_notebook_may_install_that_and_go_on(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import sys, types\nsys.modules['cloudpickle'] = None\nimport gradring\ndef train(): pass\n"
                      "try: gradring.run(train)\nexcept ValueError: pass\nelse: raise AssertionError\n"
                      "sys.modules['cloudpickle'] = types.SimpleNamespace(dumps=lambda what: b'all of it')\ngradring.run(train)\n")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, timeout=60,
                          env={**os.environ, "GRADRING_RUN": "/bin/false"})
    assert "RuntimeError: gradring: the function did not end on all ranks" in done.stderr, done.stderr


@pytest.mark.parametrize("program", ["gone", "/etc/passwd"])
def test_says_which_variable_names_no_launcher(program, monkeypatch):
    monkeypatch.setenv("GRADRING_RUN", program)
    with pytest.raises(FileNotFoundError, match=f"GRADRING_RUN names {program}"):
        gradring.run(len, ((),))


def test_says_that_the_launcher_has_said_why(monkeypatch):
    """It may have refused what it was told, and started no rank."""
    monkeypatch.setenv("GRADRING_RUN", "/bin/false")
    with pytest.raises(RuntimeError, match="gradring-run ended with 1, and its output, above, says why"):
        gradring.run(len, ((),))


@pytest.mark.parametrize("odd, said", [({"env": {"THREADS": 4}}, "env has 4 as THREADS, and a variable is text: say '4'"),
                                       ({"env": {"": "4"}}, "env has '', which is no name of a variable"),
                                       ({"np": 2, "num_proc": 3}, "np is 2 and num_proc 3")])
def test_says_which_argument_of_run_is_odd(odd, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        gradring.run(len, ((),), **odd)


def test_says_what_to_do_where_there_is_no_daemon(tmp_path):
    try:
        _native.open(rank=0, size=1, job="nobody", runtime_dir=str(tmp_path))
    except gradring.GradringError as error:
        assert error.code == gradring.Code.UNAVAILABLE and "start the daemon" in str(error)
    else:
        raise AssertionError("there is no daemon")
    with pytest.raises(TypeError):
        _native.open(runtime_directory=str(tmp_path))


def test_the_native_part(ring):
    for said in ring.run("native"):
        assert len(said) == CHECKS
