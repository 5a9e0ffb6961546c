"""The service on a host that systemd has booted: start, watchdog, restart under a job, stop, and what the journal says."""

import json
import re

import pytest
from booted import Host
from cluster import wait_until
from conftest import ROOT, needs
from roots import Root

UNIT = "gradringd"
CONF = "etc/gradring/gradringd.conf"


@pytest.fixture(scope="module")
def host(installed, tmp_path_factory):
    needs("systemd-nspawn", "nsenter")
    with Root(installed, tmp_path_factory.mktemp("booted") / "root", mounts=False) as root, Host(root) as up:
        yield up


@pytest.fixture(autouse=True)
def as_installed(host):
    """Each test begins with the configuration of the package and a daemon that was just started."""
    conf = host.root.path / CONF
    before = conf.read_text()
    host.run("systemctl", "reset-failed", UNIT, check=False)
    host.run("systemctl", "restart", UNIT)
    yield
    conf.write_text(before)


def configure(host, **settings):
    with open(host.root.path / CONF, "a", encoding="utf-8") as conf:
        conf.writelines(f"{name.replace('_', '-')} = {value}\n" for name, value in settings.items())
    host.run("systemctl", "restart", UNIT)


def message_ids():
    """Those that docs/operate.md promises, by name."""
    return dict(re.findall(r"(?m)^\| ([a-z ]+) \| `([0-9a-f]{32})` \|", (ROOT / "docs/operate.md").read_text()))


def pid_of(host):
    return int(host.show(UNIT, "MainPID"))


def long_job(host, *more):
    """A job of two ranks that runs until it is stopped, once it does."""
    def running():
        asked = host.run("gradringctl", "jobs", "--json", check=False)
        jobs = json.loads(asked.stdout)["jobs"] if asked.stdout else []
        return {one["incarnation"] for one in jobs if one["state"] == "running"}

    others = running()  # one that has just been killed may be among them
    job = host.start("gradring-perf", "allreduce", "--ranks", "2", "--min", "1M", "--max", "1M", "--iters", "1000000", *more)
    wait_until(lambda: running() - others and job.poll() is None, 30, "the job runs")
    return job


def end(host, job, status=None):
    host.run("pkill", "-TERM", "-x", "gradring-perf", check=False)
    said, _ = job.communicate(timeout=60)
    assert status is None or job.returncode == status, said
    return said


def test_the_service_runs_as_soon_as_the_package_is_there(host):
    assert host.show(UNIT, "ActiveState") == "active" and host.show(UNIT, "SubState") == "running"
    assert host.show(UNIT, "Type") == "notify"
    assert host.show(UNIT, "StatusText").startswith("node gradring-host:7300, listening at 127.0.0.1:7300")
    assert host.run("systemctl", "is-enabled", UNIT).stdout.strip() == "enabled"
    uid = host.run("id", "-u", "gradring").stdout.strip()
    assert host.run("stat", "-c", "%u", f"/proc/{pid_of(host)}").stdout.strip() == uid
    table = host.run("gradring-perf", "allreduce", "--ranks", "2", "--max", "4M", "--check").stdout
    assert re.findall(r"(?m)^ +\d+ +\d+ +float32 +sum .* 0$", table), table


def test_nothing_is_complained_of_when_it_starts(host):
    said = host.journal("--unit", UNIT, "--priority", "warning", "--boot")
    ours = [entry["MESSAGE"] for entry in said if "watchdog" not in str(entry["MESSAGE"]).lower()]
    # The limits of a build host may be below those that the unit asks for; systemd says nothing of it.
    assert not [one for one in ours if "DeviceAllow" in one or "Unknown" in one], ours


def test_a_daemon_that_hangs_is_started_again(host):
    old = pid_of(host)
    restarts = int(host.show(UNIT, "NRestarts"))
    host.run("kill", "-STOP", old)
    wait_until(lambda: pid_of(host) not in (0, old) and host.show(UNIT, "SubState") == "running", 90, "another daemon runs")
    assert int(host.show(UNIT, "NRestarts")) == restarts + 1
    assert "watchdog" in host.run("journalctl", "--unit", UNIT, "--no-pager").stdout.lower()
    host.run("gradring-perf", "allreduce", "--ranks", "2", "--max", "64K", "--check")


@pytest.mark.parametrize("how", [("systemctl", "restart", UNIT), ("systemctl", "kill", "--signal=KILL", UNIT),
                                 ("systemctl", "kill", "--signal=USR1", UNIT)])
def test_a_job_outlives_the_daemon_with_a_restart_grace(host, how):
    configure(host, restart_grace="20s")
    old = pid_of(host)
    job = long_job(host)
    # Two sockets, the node's record, the job's, and segments.
    wait_until(lambda: int(host.show(UNIT, "NFileDescriptorStore")) > 4, 20, "systemd holds what the next daemon needs")
    host.run(*how)
    wait_until(lambda: pid_of(host) not in (0, old) and host.show(UNIT, "SubState") == "running", 30, "another daemon runs")
    took_over = f"_PID={pid_of(host)}"
    wait_until(lambda: [one for one in host.journal(took_over) if "took over 2 sessions and 1 jobs" in one["MESSAGE"]], 30,
               "the next daemon has the job")
    assert job.poll() is None, job.communicate()
    wait_until(lambda: "perf" in host.run("gradringctl", "jobs").stdout, 20, "the job runs on")
    end(host, job)


def test_a_restart_without_a_grace_drains(host):
    configure(host, drain_timeout="2s")
    job = long_job(host)
    host.run("systemctl", "restart", UNIT)
    said = end(host, job)
    assert "drained" in said or "told to stop" in said, said


def test_stop_drains_and_tells_the_trainers(host):
    configure(host, drain_timeout="2s")
    job = long_job(host)
    host.run("systemctl", "stop", UNIT)
    said = end(host, job)
    assert "drained" in said or "told to stop" in said, said
    assert host.show(UNIT, "Result") == "success" and host.show(UNIT, "ActiveState") == "inactive"
    assert int(host.show(UNIT, "NFileDescriptorStore")) == 0


def test_keys_are_made_as_the_page_says(host):
    """The commands of docs/security.md, typed in as root: the service can read its key, and nobody else can."""
    page = (ROOT / "docs/security.md").read_text().split("## Keys", 1)[1].split("# NODE", 1)[0]
    *make, gather = re.findall(r"(?m)^    (\S.*)$", page)
    folder = host.root.path / "etc/gradring"
    try:
        for command in (*make, make[0].replace("--name a", "--name b").replace("10.0.0.1", "10.0.0.2"), f"cd /etc/gradring && {gather}",
                        "ip address add 10.0.0.1/32 dev lo"):
            host.run("sh", "-c", command)
        configure(host, node="a", listen="10.0.0.1:7300", key="/etc/gradring/a.key", allowed_keys="/etc/gradring/allowed-keys")
        assert host.show(UNIT, "StatusText").startswith("node a, listening at 10.0.0.1:7300")
        assert host.run("stat", "-c", "%U %a", "/etc/gradring/a.key").stdout.split() == ["gradring", "600"]
    finally:
        for name in ("a.key", "a.pub", "b.key", "b.pub", "allowed-keys"):
            (folder / name).unlink(missing_ok=True)


def test_the_journal_has_stable_ids(host):
    """One peer, a job that loses a trainer, a limit, a drain: each has its id, priority and fields."""
    ids = message_ids()
    configure(host, drain_timeout="2s", sessions_per_uid="2", peer="127.0.0.1:7411")
    since = host.run("date", "+%s").stdout.strip()
    other = host.start("gradringd", "--node", "other", "--runtime-dir", "/tmp/other", "--listen", "127.0.0.1:7411",
                       "--peer", "127.0.0.1:7300")

    def of(what):
        return host.journal(f"MESSAGE_ID={ids[what]}", f"--since=@{since}")

    wait_until(lambda: of("peer up"), 20, "the peer is noticed")
    host.run("pkill", "-KILL", "-f", "gradringd --node other")
    other.communicate(timeout=20)
    wait_until(lambda: of("peer lost"), 20, "its death is noticed")
    job = long_job(host)
    host.run("gradring-perf", "allreduce", "--ranks", "1", check=False)
    host.run("pkill", "-KILL", "-n", "-x", "gradring-perf")
    job.communicate(timeout=60)
    job = long_job(host)
    host.run("systemctl", "stop", UNIT)
    end(host, job)

    assert of("peer up")[0]["GRADRING_PEER"] == "other" and of("peer lost")[0]["PRIORITY"] == "4"
    told = {"ready", "job formed", "job failed", "peer up", "peer lost", "trainer died", "draining", "limit hit"}
    assert told <= set(ids)
    host.run("systemctl", "start", UNIT)
    for what in told:
        entries = of(what)
        assert entries, f"no entry for {what}: {[one['MESSAGE'] for one in host.journal('--unit', UNIT)][-20:]}"
        assert entries[-1]["SYSLOG_IDENTIFIER"] == "gradringd" and entries[-1]["_SYSTEMD_UNIT"] == f"{UNIT}.service"
    assert of("job formed")[-1]["GRADRING_JOB"] == of("job failed")[-1]["GRADRING_JOB"]
    assert "sessions-per-uid" in of("limit hit")[-1]["MESSAGE"]
    explained = host.run("journalctl", "--catalog", "--no-pager", f"MESSAGE_ID={ids['trainer died']}").stdout
    assert "gradringctl flight-recorder" in explained, explained


def test_an_upgrade_leaves_the_running_daemon_alone(host, debs):
    old = pid_of(host)
    [deb] = debs.glob("gradringd_*.deb")
    inside = host.root.path / "var" / deb.name
    inside.write_bytes(deb.read_bytes())
    done = host.run("dpkg", "-i", f"/var/{deb.name}", seconds=120)
    assert pid_of(host) == old and host.show(UNIT, "SubState") == "running"
    assert "not starting" not in done.stdout + done.stderr, "nothing is asked for that is refused"


def test_an_upgrade_leaves_a_stopped_daemon_stopped(host, debs):
    """As after a drain; one that failed is started, as the new program may be what it needed."""
    [deb] = debs.glob("gradringd_*.deb")
    host.run("systemctl", "stop", UNIT)
    host.run("dpkg", "-i", f"/var/{deb.name}", seconds=120)
    assert host.show(UNIT, "ActiveState") == "inactive"
    assert host.run("systemctl", "is-enabled", UNIT).stdout.strip() == "enabled"
    host.run("systemctl", "start", UNIT)
    conf = host.root.path / CONF
    good = conf.read_text()
    conf.write_text(f"{good}slots = none\n")
    host.run("systemctl", "restart", UNIT, check=False)
    assert host.show(UNIT, "ActiveState") == "failed"
    conf.write_text(good)
    host.run("dpkg", "-i", f"/var/{deb.name}", seconds=120)
    wait_until(lambda: host.show(UNIT, "SubState") == "running", 30, "it runs")


def test_removal_stops_it(host, debs):
    host.run("dpkg", "--remove", "gradringd", seconds=120)
    assert host.run("pgrep", "-x", "gradringd", check=False).returncode == 1
    [deb] = debs.glob("gradringd_*.deb")
    host.run("dpkg", "-i", f"/var/{deb.name}", seconds=120)
    wait_until(lambda: host.show(UNIT, "SubState") == "running", 30, "it runs once it is installed again")


def test_a_purge_leaves_another_daemon_alone(host, debs):
    """One of a container, or of the tarball, which serves where the service did."""
    [deb] = debs.glob("gradringd_*.deb")
    host.run("cp", "/usr/bin/gradringd", "/var/another")
    host.run("systemctl", "stop", UNIT)
    another = host.start("/var/another", "--config", "/dev/null")
    try:
        wait_until(lambda: host.run("gradringctl", "status", check=False).returncode == 0, 20, "it serves")
        host.run("dpkg", "--purge", "gradringd", seconds=120)
        assert host.run("gradringctl", "status").stdout
    finally:
        host.run("pkill", "-TERM", "-x", "another", check=False)
        another.communicate(timeout=30)
    host.run("dpkg", "-i", f"/var/{deb.name}", seconds=120)
    wait_until(lambda: host.show(UNIT, "SubState") == "running", 30, "the service runs once it is installed again")
