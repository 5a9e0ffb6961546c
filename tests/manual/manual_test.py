#!/usr/bin/env python3
"""The manual pages and completions that the build has made, as people meet them: rendered by man, and completed by bash.

usage: manual_test.py FOLDER PROGRAM...      FOLDER: what tools/manual/generate.py wrote, of these programs
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools/manual"))

import helptext  # noqa: E402  (found by the line above)

MADE, PROGRAMS = Path(), {}
PAGES = {"gradringd.8": "gradringd", "gradringd.conf.5": "gradringd", "gradringctl.1": "gradringctl", "gradring-run.1": "gradring-run",
         "gradring-perf.1": "gradring-perf"}
# A daemon that knows two jobs and two peers; the name of one job is what a shell must not run.
JOBS = ["llama", "$(touch run-by-completion)"]
NODES = ["beta:7300", "beta:7400"]
STUB = f"""#!/usr/bin/env python3
import sys, json
jobs, peers = {[{"name": job} for job in JOBS]!r}, {[{"node": node} for node in NODES]!r}
print(json.dumps({{"jobs": jobs}} if sys.argv[-1] == "jobs" else {{"peers": peers}}, indent=2))
open("asked", "a").write(" ".join(sys.argv[1:]) + "\\n")
"""


def needs(program):
    return unittest.skipUnless(shutil.which(program), f"{program} is not installed")


def rendered(page):
    done = subprocess.run(["man", "--warnings", "-l", str(page)], capture_output=True, text=True, timeout=60, check=True,
                          env={**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "400", "MANPAGER": "cat", "MAN_KEEP_FORMATTING": ""})
    return done.stdout, done.stderr


class ManualPages(unittest.TestCase):
    @needs("man")
    def test_they_render_without_a_warning_and_name_every_option(self):
        for name, program in PAGES.items():
            with self.subTest(name):
                text, warnings = rendered(MADE / "man" / name)
                self.assertEqual(warnings, "")
                told = helptext.ask(program, PROGRAMS[program])
                dashes = "" if name.endswith(".5") else "--"
                group = [one for heading, of in told.groups.items() for one in of if dashes or heading.startswith("Settings")]
                self.assertGreater(len(group), 4)
                for option in group:
                    self.assertRegex(text, rf"(?m)^ +{dashes}{option.name}\b")
                for command in told.commands:
                    self.assertRegex(text, rf"(?m)^ +{command.name} {re.escape(command.arguments)}")
                self.assertNotIn("@", text.replace("@VERSION", "@"))

    @needs("mandoc")
    def test_mandoc_finds_nothing_either(self):
        for name in PAGES:
            done = subprocess.run(["mandoc", "-Tlint", "-W", "warning", MADE / "man" / name], capture_output=True, text=True,
                                  timeout=60, check=False)
            self.assertEqual(done.stdout + done.stderr, "")


class Completion(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        stub = self.folder / "gradringctl"
        stub.write_text(STUB)
        stub.chmod(0o755)
        (self.folder / "notes.txt").touch()
        (self.folder / "state").mkdir()

    def complete(self, line):
        """What bash offers where the cursor stands at the end of the line."""
        program = line.split()[0]
        script = f"""
source {MADE / "bash" / program}
COMP_LINE=$1 COMP_POINT=${{#1}}
read -r _ _ entry _ <<<"$(complete -p {program})"
"$entry"
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
        done = subprocess.run(["bash", "--norc", "-c", script, "bash", line], capture_output=True, text=True, timeout=60, check=False,
                              cwd=self.folder, env={**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}"})
        self.assertEqual(done.stderr, "", line)
        return done.stdout.split("\n")[:-1] if done.stdout.strip() else []

    def test_commands_and_their_options(self):
        told = helptext.ask("gradringctl", PROGRAMS["gradringctl"])
        self.assertEqual(self.complete("gradringctl "), [command.name for command in told.commands])
        self.assertEqual(self.complete("gradringctl to"), ["topology", "top"])
        self.assertIn("--svg", self.complete("gradringctl topology --"))
        self.assertNotIn("--svg", self.complete("gradringctl jobs --"))
        self.assertEqual(self.complete("gradringctl --runtime-dir /tmp --json trace "), ["start", "stop", "dump"])
        self.assertEqual(self.complete("gradringctl --js"), ["--json"])

    def test_jobs_and_nodes_of_the_live_daemon(self):
        self.assertEqual(self.complete("gradringctl job ll"), ["llama"])
        self.assertEqual(self.complete("gradringctl --runtime-dir /run/other job "), ["llama", r"\$\(touch\ run-by-completion\)"])
        self.assertFalse((self.folder / "run-by-completion").exists())
        self.assertEqual((self.folder / "asked").read_text().splitlines()[-1], "--runtime-dir /run/other --json jobs")
        self.assertEqual(self.complete("gradringctl --node be"), NODES)
        # bash puts these behind the colon that is there.
        self.assertEqual(self.complete("gradringctl --node beta:74"), ["7400"])
        self.assertEqual(self.complete("gradringctl --node=be"), NODES)
        self.assertEqual(self.complete("gradringctl job llama "), [])

    def test_no_daemon_offers_nothing_and_complains_of_nothing(self):
        (self.folder / "gradringctl").write_text("#!/bin/sh\necho 'no gradringd' >&2; exit 3\n")
        self.assertEqual(self.complete("gradringctl job "), [])

    def test_values(self):
        self.assertEqual(self.complete("gradring-perf all"), ["allreduce", "allgather", "alltoall"])
        self.assertEqual(self.complete("gradring-perf allreduce --dtype bf"), ["bfloat16"])
        self.assertEqual(self.complete("gradring-perf --wire="), ["native", "fp16", "bf16", "int8"])
        self.assertEqual(self.complete("gradring-perf --iters "), [], "nobody can guess that")
        self.assertEqual(self.complete("gradringd --log-level w"), ["warning"])
        self.assertEqual(self.complete("gradringd --checksum "), ["on", "off"])
        self.assertEqual(self.complete("gradringd --config no"), ["notes.txt"])
        self.assertEqual(self.complete("gradringd --runtime-dir "), ["state"])

    def test_words_that_are_offered_are_good(self):
        options = ("checksum", "verify", "deterministic", "completion", "log-level")
        offered = {option: self.complete(f"gradringd --{option} ") for option in options}
        for option, words in offered.items():
            self.assertGreater(len(words), 1, option)
            for word in words:
                done = subprocess.run([PROGRAMS["gradringd"], "--check-config", f"--{option}={word}", "--config=/dev/null"], timeout=60,
                                      capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, 0, done.stderr)

    def test_behind_the_command_of_a_launcher_nothing_is_the_launchers(self):
        self.assertIn("-np", self.complete("gradring-run -"))
        self.assertNotIn("--autotune", self.complete("gradring-run --"), "it does nothing")
        self.assertIn("gradringctl", self.complete("gradring-run -np 2 gradringc"))
        self.assertEqual(self.complete("gradring-run -np 2 gradringctl --runtime"), [])
        self.assertEqual(self.complete("gradring-run -np 2 python3 no"), ["notes.txt"])

    def test_other_shells_can_read_theirs(self):
        for shell, pattern in (("zsh", "_*"), ("fish", "*.fish")):
            if not shutil.which(shell):
                continue
            files = sorted((MADE / shell).glob(pattern))
            self.assertEqual(len(files), 4)
            for file in files:
                done = subprocess.run([shell, "-n", file], capture_output=True, text=True, timeout=60, check=False)
                self.assertEqual((done.returncode, done.stderr), (0, ""), file)


class Help(unittest.TestCase):
    def test_options_of_commands(self):
        """Also where what stands for a value is one."""
        [told] = helptext.parse("p", "usage: p\n\nCommands\n  top [--since 10m] [--size 80x24] [--all]  also --last N\n").commands
        self.assertEqual(told.options, [("--since", "10m"), ("--size", "80x24"), ("--all", ""), ("--last", "N")])

    def test_what_is_no_option_is_refused(self):
        with self.assertRaises(ValueError):
            helptext.parse("p", "usage: p\n\nOptions:\n  --good  yes\n  --Bad   no\n")

    def test_options_in_columns(self):
        told = helptext.parse("p", "usage: p WORD\nWhat it does.\n\nOptions:\n  --rsh CMD (=ssh) starts it\n"
                                   "  -n [ --np ] N    how many; also -np\n                   of them [7]\n\nThe end.\n")
        self.assertEqual([(one.flags, one.value, one.default, one.help) for one in told.options],
                         [(["--rsh"], "CMD", "ssh", "starts it"), (["--np", "-n", "-np"], "N", "7", "how many; also -np of them")])
        self.assertEqual((told.usage, told.introduction, told.ending), ("p WORD", ["What it does.", ""], ["The end.", ""]))


if __name__ == "__main__":
    MADE = Path(sys.argv[1])
    PROGRAMS = {Path(path).name: path for path in sys.argv[2:]}
    unittest.main(argv=sys.argv[:1])
