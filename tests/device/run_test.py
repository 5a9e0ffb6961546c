"""tests/device/run chooses its parts, and keeps its time, with programs that pose as those it runs."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

RUN = Path(__file__).with_name("run")
PROGRAMS = ("device_fold_test", "daemon_live_gpu_test", "gradring-gpu-check", "gradring-gpu-speed", "gradring-gpu-questions")


def script(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


class Parts(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = Path(self.folder.name)
        self.bin = self.root / "bundle/bin"
        self.bin.mkdir(parents=True)
        for name in PROGRAMS:
            script(self.bin / name, f"echo ran {name}")
        self.machine = self.root / "machine"
        self.machine.mkdir()
        script(self.machine / "nvidia-smi", 'case $1 in --list-gpus) echo "GPU 0: one";; *) echo "one, 580";; esac')

    def run_it(self, *words, python="/usr/bin/false", **environment):
        done = subprocess.run([RUN, "--programs", self.bin, "--python", python, *words], text=True, timeout=60, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env={**os.environ, "PATH": f"{self.machine}:/usr/bin:/bin", **environment})
        return done.returncode, done.stdout

    def test_all_are_run_and_one_that_fails_fails_it(self):
        script(self.bin / "gradring-gpu-speed", "exit 3")
        status, said = self.run_it()
        self.assertEqual(status, 1)
        for name in set(PROGRAMS) - {"gradring-gpu-speed"}:
            self.assertIn(f"ran {name}", said)
        self.assertRegex(said, r"Speed, beside the floor .* FAILED \(exit status 3\)")
        self.assertRegex(said, r"Questions  .* passed")

    def test_one_part_alone(self):
        status, said = self.run_it("--only", "questions")
        self.assertEqual((status, said.count("ran ")), (0, 1), said)
        self.assertIn("ran gradring-gpu-questions", said)

    def test_a_line_behind_each_part_and_all_of_them_at_the_end(self):
        said = self.run_it("--only", "fold,questions")[1]
        self.assertRegex(said, r"ran device_fold_test\n-- The fold: .* passed\n\n== Questions\nran .*\n-- Questions .* passed\n"
                               r"\nThe fold: .* passed\nQuestions .* passed\n$")

    def test_what_does_not_end_is_ended_and_what_is_late_left_out(self):
        script(self.bin / "device_fold_test", "exec sleep 40")
        status, said = self.run_it("--only", "fold,ops", "--within", "6")
        self.assertEqual(status, 1)
        self.assertRegex(said, "FAILED: did not end within [56] s")
        self.assertRegex(said, "left out: there was no time left of 6 s")

    def test_of_what_does_not_end_its_processes_are_told(self):
        script(self.bin / "device_fold_test", "sleep 40")
        script(self.machine / "cuda-gdb", 'echo "Thread 1 of $2"; echo "#0 in a wait"')
        said = self.run_it("--only", "fold", "--within", "6")[1]
        self.assertRegex(said, r"these are at work:\n *(\d+) .* /bin/sh .*/device_fold_test --gtest_brief=1\n"
                               r" *\d+ .* sleep 40\n +\1\nThread 1 of \1\n#0 in a wait\n")

    def test_what_it_is_told_goes_to_those_that_take_it(self):
        for name in ("gradring-gpu-check", "gradring-gpu-speed"):
            script(self.bin / name, 'echo "ran $0 $*"')
        said = self.run_it("--only", "check,speed", "--quick", "--max-mib", "64")[1]
        self.assertRegex(said, "gradring-gpu-speed --quick\n")
        self.assertRegex(said, "gradring-gpu-check --quick --max-mib 64\n")

    def test_under_the_sanitizer_calls_that_may_fail_and_other_users_are_left_out(self):
        script(self.machine / "compute-sanitizer", 'echo "under it: $*"')
        said = self.run_it("--only", "sanitizer")[1]
        self.assertRegex(said, "under it: --error-exitcode 1 .*/device_fold_test ")
        self.assertRegex(said, "under it: .*--report-api-errors no .*/gradring-gpu-check --quick --one-user\n")

    def test_why_there_is_no_pytorch_is_said(self):
        script(self.machine / "python", 'echo "ImportError: no such file: libcudart" >&2; exit 1')
        said = self.run_it("--only", "latency", python=self.machine / "python")[1]
        self.assertIn("has no PyTorch with a GPU (ImportError: no such file: libcudart)", said)

    def test_pytorch_is_tried_with_the_package_and_what_is_needed_else(self):
        (self.root / "bundle/lib/cmake/gradring").mkdir(parents=True)
        script(self.machine / "cmake", "")
        script(self.machine / "python", 'case $1 in -?) ;; *) echo "with $PYTHONPATH: $*";; esac')
        status, said = self.run_it("--only", "latency", "--quick", python=self.machine / "python", PYTHONPATH="/elsewhere")
        self.assertEqual(status, 0, said)
        self.assertRegex(said, f"with {self.root}/bundle/python:/elsewhere: .*/check.py --programs {self.bin} --quick latency\n")

    def test_a_part_that_there_is_not(self):
        status, said = self.run_it("--only", "ops,weather")
        self.assertNotEqual(status, 0)
        self.assertIn("there is no part 'weather'", said)


if __name__ == "__main__":
    unittest.main()
