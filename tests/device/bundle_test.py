"""tests/device/bundle and the folder that it is given, with a build that stands for itself."""

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

CMAKE = """case $1 in
  --preset) mkdir -p build-cuda/bin ;;
  --build) for word in "$@"; do case $word in *grad*|*_test) echo "$word" >"build-cuda/bin/$word" ;; esac; done ;;
  --install) mkdir -p "$6/lib/cmake" "$6/include" && touch "$6/lib/libgradring.so" ;;
esac"""


def script(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


class Bundle(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.here = Path(folder.name)
        self.source = self.here / "source"
        for name in ("tests/device/bundle", "tools/lib/shell.sh"):
            (self.source / name).parent.mkdir(parents=True)
            shutil.copy(ROOT / name, self.source / name)
        (self.source / "tools/packaging").mkdir()
        (self.source / "tools/packaging/bundle.py").touch()
        self.programs = self.here / "programs"
        self.programs.mkdir()
        script(self.programs / "cmake", CMAKE)
        for name in ("patchelf", "nvcc", "strip"):
            script(self.programs / name, "")

    def bundle(self, *words):
        return subprocess.run([self.source / "tests/device/bundle", *words], cwd=self.here, text=True, timeout=60, check=False,
                              env={**os.environ, "PATH": f"{self.programs}:/usr/bin:/bin"}, capture_output=True)

    def test_it_replaces_an_earlier_one_and_nothing_else(self):
        out = self.here / "out"
        self.assertEqual(self.bundle("out").returncode, 0, "from where the caller is")
        (out / "letter").touch()
        (out / "bin/gone").touch()
        done = self.bundle("out")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue((out / "letter").exists() and (out / "bin/gradringd").exists())
        self.assertFalse((out / "bin/gone").exists() or (self.source / "out").exists())

    def test_it_keeps_its_hands_off_a_folder_of_others(self):
        for name in ("letter", "bin/gradringd"):
            out = self.here / name.replace("/", "-")
            (out / name).parent.mkdir(parents=True)
            (out / name).touch()
            done = self.bundle(out.name)
            self.assertEqual(done.returncode, 1, done)
            self.assertIn(f"{out} holds something else", done.stderr)
            self.assertTrue((out / name).exists())


if __name__ == "__main__":
    unittest.main()
