"""The Debian packages: installed by the five commands of docs/install.md where no systemd runs, used, removed, purged."""

import re
import subprocess

from cluster import TookTooLong, wait_until
from conftest import ROOT

PACKAGES = {"gradringd", "gradring-tools", "libgradring0", "libgradring-dev"}
# apt's conffile of ours, and what installing anything at all leaves: users keep their entries.
STAYS = re.compile(r"^(etc/(passwd|group|shadow|gshadow|subuid|subgid)-?|etc/ld\.so\.cache|etc/apt/.*|root(/.*)?|debs)$")


def five_commands():
    """Those of docs/install.md, as they stand there."""
    text = (ROOT / "docs/install.md").read_text().split("## In five commands", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"(?m)^    (\S.*)$", text)


class Typist:
    """Types commands into a shell inside the root, one after another, as a person does who reads what it says."""

    def __init__(self, root, log):
        self._log = log
        self._out = open(log, "wb")
        self._shell = subprocess.Popen(root.command("bash", "-c", "cd /debs && exec bash"), stdin=subprocess.PIPE,
                                       stdout=self._out, stderr=subprocess.STDOUT)

    def said(self):
        return self._log.read_text(errors="replace")

    def type(self, line, until, seconds):
        before = len(self.said())
        self._shell.stdin.write(f"{line}\n".encode())
        self._shell.stdin.flush()
        try:
            wait_until(lambda: until(self.said()[before:]), seconds, line)
        except TookTooLong as error:
            raise AssertionError(f"{error}; it said:\n{self.said()[before:]}") from None
        return self.said()[before:]

    def run(self, line, seconds):
        """To its end, which must be a good one."""
        said = self.type(f"{line}\necho \"[exit status $?]\"", lambda text: "[exit status " in text, seconds)
        assert "[exit status 0]" in said, f"{line}:\n{said}"
        return said

    def close(self):
        self._shell.stdin.close()
        status = self._shell.wait(30)
        self._out.close()
        return status


def left_alone_by_needrestart(root, unit):
    """As it reads what packages tell it, and asks that."""
    script = """
        our %nrconf = (override_rc => {});
        eval do { local(@ARGV, $/) = "/etc/needrestart/conf.d/gradringd.conf"; <> };
        die $@ if $@;
        for my $words (keys %{$nrconf{override_rc}}) { print "not $words" if $ARGV[0] =~ /$words/ && !$nrconf{override_rc}{$words} }
    """
    return root.run("perl", "-e", script, unit).stdout.startswith("not ")


def test_from_packages_to_a_measurement_in_five_commands(root, debs, tmp_path):
    commands = five_commands()
    assert len(commands) == 5, commands
    root.mount("debs", "--bind", debs)
    root.run("apt-get", "update")
    before = root.files()
    packages = set(root.run("dpkg-query", "-W", "-f=${Package}\n").stdout.split())

    typist = Typist(root, tmp_path / "typed.log")
    try:
        typist.run(commands[0], 900)
        for daemon in commands[1:3]:
            typist.type(daemon, lambda text: " is ready: " in text, 30)
        wait_until(lambda: typist.said().count(" is up (gradringd ") == 2, 30, "the daemons meet")
        assert re.search(r"(?m)^b .* up ", typist.run(commands[3], 20)), typist.said()
        table = re.findall(r"(?m)^ +\d+ +\d+ +float32 +sum .* (\S+)$", typist.run(commands[4], 120))
        assert table and set(table) == {"0"}, typist.said()
        typist.run("kill %1 %2; wait %1 %2", 30)
    finally:
        typist.close()

    assert left_alone_by_needrestart(root, "gradringd.service") and not left_alone_by_needrestart(root, "cron.service")
    # Nobody is told to come back by files that are there without systemd having run.
    assert root.run("systemctl", "is-enabled", "gradringd").stdout.strip() == "enabled"
    assert root.run("getent", "passwd", "gradring").stdout.startswith("gradring:")
    assert root.run("stat", "-c", "%U %a", "/run/gradring").stdout.split() == ["gradring", "755"]
    (root.path / "var/lib/gradring").mkdir(exist_ok=True)  # systemd would have made it
    (root.path / "var/lib/gradring/tuning").write_text("")

    new = set(root.run("dpkg-query", "-W", "-f=${Package}\n").stdout.split()) - packages
    assert PACKAGES <= new
    root.run("apt-get", "remove", "-y", *PACKAGES)
    assert (root.path / "etc/gradring/gradringd.conf").exists() and not (root.path / "usr/bin/gradringd").exists()
    root.run("dpkg", "--purge", *new)
    left = {path for path in root.files() - before if not STAYS.match(path)}
    assert left == set(), f"left behind: {sorted(left)[:20]}"
    assert not (root.path / "run/gradring").exists()


def test_programs_build_against_the_dev_package(root, debs):
    root.mount("debs", "--bind", debs)
    root.run("apt-get", "update")
    root.run("sh", "-c", "cd /debs && apt-get install -y --no-install-recommends gcc libc6-dev pkgconf ./libgradring*.deb", seconds=900)
    (root.path / "tmp/one.c").write_text((ROOT / "tests/client/c11_program.c").read_text())
    root.run("sh", "-c", "gcc -std=c11 /tmp/one.c -o /tmp/one $(pkg-config --cflags --libs gradring) && /tmp/one")


def test_the_library_needs_no_more_than_it_should(debs):
    [deb] = debs.glob("libgradring0_*.deb")
    depends = subprocess.run(["dpkg-deb", "-f", deb, "Depends"], check=True, capture_output=True, text=True, timeout=20).stdout
    needed = {word.split()[0] for word in depends.split(", ")}
    assert needed == {"libc6", "libgcc-s1", "libprotobuf32", "libstdc++6", "libzmq5"}, depends


def files_of(deb):
    said = subprocess.run(["dpkg-deb", "--fsys-tarfile", deb], check=True, capture_output=True, timeout=60).stdout
    names = subprocess.run(["tar", "-t"], input=said, check=True, capture_output=True, timeout=60).stdout.decode()
    return {name.removeprefix("./") for name in names.splitlines()}


def test_pages_that_are_named_are_there(debs):
    """By the configuration, which is installed, and by one another."""
    [deb] = debs.glob("gradringd_*.deb")
    there = {name.removeprefix("usr/share/doc/gradringd/") for name in files_of(deb)}
    pages = {page.name: page.read_text() for page in (ROOT / "docs").glob("*.md") if page.name in there}
    named = set(re.findall(r"docs/([a-z-]+\.md)", (ROOT / "systemd/gradringd.conf").read_text()))
    named |= {name for text in pages.values() for name in re.findall(r"\]\(([a-z-]+\.md)", text)}
    assert named and named <= there, sorted(named - there)


def test_every_package_has_the_notice(debs):
    for deb in debs.glob("*.deb"):
        assert f"usr/share/doc/{deb.name.split('_')[0]}/NOTICE" in files_of(deb), deb.name
