"""tools/compare, with a measurement that stands for itself: where it is called and what it refuses. And tools/scaling."""

import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Compare(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.here = Path(folder.name).resolve()

    def compare(self, measurement):
        """tools/compare with that for a measurement, called from elsewhere; what is installed is noted."""
        source = self.here / "source"
        (source / "tools/lib/compare").mkdir(parents=True)
        (source / "build/bin").mkdir(parents=True)
        for name in ("tools/compare", "tools/lib/shell.sh"):
            shutil.copy(ROOT / name, source / name)
        for name in ("build/bin/gradringd", "tools/install-dependencies"):
            (source / name).write_text(f"#!/bin/sh\ntouch {self.here}/installed\n")
            (source / name).chmod(0o755)
        (source / "tools/lib/compare/__init__.py").touch()
        (source / "tools/lib/compare/__main__.py").write_text(measurement)
        (self.here / "compare.py").write_text("raise SystemExit('not that one')\n")
        return subprocess.run([source / "tools/compare"], cwd=self.here, text=True, capture_output=True, timeout=60, check=False)

    def test_relative_paths_begin_where_the_caller_is(self):
        done = self.compare("import pathlib, sys\n'--judge' in sys.argv or print(pathlib.Path.cwd())\n")
        self.assertEqual((done.stdout, done.stderr), (f"{self.here}\n", ""))
        self.assertTrue((self.here / "installed").exists())

    def test_nothing_is_installed_for_what_cannot_be_measured(self):
        done = self.compare("import sys\n'--judge' in sys.argv and sys.exit('no such thing')\n")
        self.assertEqual((done.returncode, done.stderr), (1, "no such thing\n"))
        self.assertFalse((self.here / "installed").exists())

    def test_it_knows_whom_it_is_asked_for(self):
        done = subprocess.run(["/usr/bin/python3", "-B", ROOT / "tools/lib/compare", "--only", "gradring,nobody"], cwd=self.here,
                              text=True, capture_output=True, timeout=60, check=False)
        if "needs network namespaces" in done.stderr:
            self.skipTest(done.stderr)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "there is no nobody; known: .*gradring, gradring-bf16")


class Scaling(unittest.TestCase):
    def test_what_is_asked_for_is_judged_before_anything_is_built(self):
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder).resolve() / "source"
            shutil.copytree(ROOT / "tools/lib", source / "tools/lib", ignore=shutil.ignore_patterns("__pycache__"))
            shutil.copy(ROOT / "tools/scaling", source / "tools/scaling")
            (source / "CMakePresets.json").write_text("no preset: nothing can be built\n")
            (source / "docs").mkdir()
            (source / "docs/scaling.md").touch()
            for words, complaint in ((["--agian"], "unrecognized arguments: --agian"), (["--page", "no.md"], "there is no page no.md"),
                                     (["--again"], "nothing was predicted yet")):
                done = subprocess.run([source / "tools/scaling", *words], cwd=folder, text=True, capture_output=True, timeout=60,
                                      check=False)
                self.assertIn(complaint, done.stderr)
                self.assertNotIn("configuring", done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
