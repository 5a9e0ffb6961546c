"""Recipes for systems that are not here: as far as they can be checked without them."""

import os
import re
import subprocess

import pytest
from conftest import ROOT, needs

PACKAGING = ROOT / "tools/packaging"
VERSION = re.search(r"project\(gradring VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]


@pytest.fixture(scope="module")
def manifests():
    yaml = pytest.importorskip("yaml", reason="python3-yaml is not installed")
    text = (PACKAGING / "container/kubernetes.yaml").read_text()
    return {one["kind"]: one for one in yaml.safe_load_all(text)}


def test_the_daemon_of_a_pod_is_started_as_it_understands(manifests, tmp_path):
    program = ROOT / "build/bin/gradringd"
    if not program.exists():
        pytest.skip("gradringd is not built")
    [container] = manifests["DaemonSet"]["spec"]["template"]["spec"]["containers"]
    named = {one["name"] for one in container["env"]}
    assert {name for word in container["args"] for name in re.findall(r"\$\((\w+)\)", word)} == named
    words = [word.replace("$(NODE_NAME)", "alpha").replace("$(NODE_IP)", "127.0.0.1") for word in container["args"]]
    done = subprocess.run([program, "--check-config", "--runtime-dir", tmp_path, *words], capture_output=True, text=True,
                          timeout=60, check=False)
    assert done.returncode == 0 and "OK: node alpha" in done.stdout, done
    service = manifests["Service"]
    assert f"dns:{service['metadata']['name']}:{service['spec']['ports'][0]['port']}" in words
    assert service["spec"]["publishNotReadyAddresses"], "a daemon is not ready before it has met others"


def test_a_pod_is_ready_whatever_its_peers_are(manifests, tmp_path):
    [container] = manifests["DaemonSet"]["spec"]["template"]["spec"]["containers"]
    for status, ready in ((0, True), (1, True), (2, False), (3, False)):
        (tmp_path / "gradringctl").write_text(f"#!/bin/sh\nexit {status}\n")
        (tmp_path / "gradringctl").chmod(0o755)
        done = subprocess.run(container["readinessProbe"]["exec"]["command"], check=False, timeout=20, stdout=subprocess.DEVNULL,
                              env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"})
        assert (done.returncode == 0) == ready, status


def test_trainers_and_daemon_share_one_folder_and_nothing_else(manifests):
    pod = manifests["DaemonSet"]["spec"]["template"]["spec"]
    assert not pod.get("hostIPC") and not pod.get("hostPID")
    assert [volume["hostPath"]["path"] for volume in pod["volumes"] if "hostPath" in volume] == ["/run/gradring"]
    assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in pod["tolerations"], "trainers are there"
    [container] = pod["containers"]
    assert container["image"] == f"gradring:{VERSION}"
    assert manifests["Service"]["spec"]["clusterIP"] == "None"
    assert manifests["Service"]["spec"]["selector"] == manifests["DaemonSet"]["spec"]["template"]["metadata"]["labels"]


def test_the_rpm_recipe_is_understood():
    needs("rpmspec")
    spec = PACKAGING / "rpm/gradring.spec"
    said = subprocess.run(["rpmspec", "--query", "--queryformat", "%{NAME} %{VERSION}\n", spec], capture_output=True, text=True,
                          timeout=60, check=False)
    assert said.returncode == 0, said.stderr
    assert said.stdout.split("\n")[:-1] == [f"{name} {VERSION}" for name in ("gradring", "gradring-libs", "gradring-devel")]


def test_the_rpm_recipe_makes_the_user_of_sysusers_d(tmp_path):
    """By commands alone, from wherever it is read: macros of a distribution may be gone, or find no file there."""
    needs("rpmspec")
    parsed = subprocess.run(["rpmspec", "-P", PACKAGING / "rpm/gradring.spec"], capture_output=True, text=True, timeout=60, check=True,
                            cwd=tmp_path).stdout
    script = parsed.split("\n%pre\n", 1)[1].split("\n%post", 1)[0]
    name, comment, home = re.search(r'(?m)^u (\S+) - "(.*)" (\S+)$', (ROOT / "systemd/sysusers.d/gradring.conf").read_text()).groups()
    assert f"groupadd -r {name}" in script and f"-d {home} " in script and f"-c '{comment}' {name}" in script, script
    subprocess.run(["sh", "-n"], input=script, text=True, check=True, timeout=20)
    assert "%" not in script, script


def test_the_rpm_recipe_has_what_is_installed_and_nothing_else():
    """As the lists of the Debian packages, which are built and so known to be complete."""
    listed = (PACKAGING / "rpm/gradring.spec").read_text().split("%files", 1)[1]
    for package in PACKAGING.glob("debian/*.install"):
        for line in package.read_text().split():
            name = line.rstrip("*").rstrip("/").rsplit("/", 1)[-1]
            assert name in listed or line.startswith("usr/share/doc"), f"{line} of {package.name} is not in the spec"
