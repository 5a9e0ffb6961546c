"""A schema may grow; one whose field was taken away or given another type does not pass."""

import shutil
import tempfile
import unittest
from pathlib import Path

import schema

GOOD = """syntax = "proto3"; package p;
enum E { ZERO = 0; ONE = 1; }
message M { uint32 a = 1; repeated string b = 2; E e = 3; message N { M m = 1; } oneof body { N n = 4; bool c = 5; } }
"""


@unittest.skipUnless(shutil.which("protoc"), "protoc is not installed")
class Schemas(unittest.TestCase):
    def of(self, text):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "one.proto").write_text(text)
            return schema.schema(Path(folder))

    def complaints(self, changed):
        return list(schema.compare(self.of(GOOD), self.of(changed)))

    def test_all_kinds_are_seen(self):
        self.assertEqual(self.of(GOOD), [
            ".p.E 0: value", ".p.E 1: value", ".p.M 1: uint32", ".p.M 2: repeated string", ".p.M 3: enum .p.E",
            ".p.M 4: message .p.M.N of a oneof", ".p.M 5: bool of a oneof", ".p.M.N 1: message .p.M"])

    def test_the_same_passes_and_names_do_not_matter(self):
        self.assertEqual(self.complaints(GOOD.replace("uint32 a", "uint32 renamed")), [])

    def test_additions_pass(self):
        self.assertEqual(self.complaints(GOOD.replace("uint32 a = 1;", "uint32 a = 1; bytes more = 9;").replace(
            "ONE = 1;", "ONE = 1; TWO = 2;")), [])

    def test_a_field_that_is_gone_is_found(self):
        self.assertIn("number 1 (uint32) is gone", self.complaints(GOOD.replace("uint32 a = 1;", ""))[0])

    def test_another_number_is_found(self):
        self.assertIn("number 1 (uint32) is gone", self.complaints(GOOD.replace("a = 1", "a = 7"))[0])

    def test_another_type_is_found(self):
        self.assertIn("was uint32 and is uint64", self.complaints(GOOD.replace("uint32 a", "uint64 a"))[0])

    def test_one_that_is_no_longer_repeated_is_found(self):
        self.assertIn("was repeated string and is string", self.complaints(GOOD.replace("repeated ", ""))[0])

    def test_a_value_that_is_gone_is_found(self):
        self.assertIn("number 1 (value) is gone", self.complaints(GOOD.replace("ONE = 1;", ""))[0])


if __name__ == "__main__":
    unittest.main()
