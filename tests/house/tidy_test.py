"""Each bad manner is found in a planted file, and a well-behaved file is left alone."""

import unittest
from pathlib import Path

import tidy


def found(name, text):
    return list(tidy.complaints_about(Path(name), text))


class Manners(unittest.TestCase):
    def assert_one(self, complaints, words):
        self.assertEqual(len(complaints), 1, complaints)
        self.assertIn(words, complaints[0])

    def test_a_good_file_is_left_alone(self):
        self.assertEqual(found("proto/a.h", "#pragma once\n\nint x;  // $HOME/x, <gradring/root.h>\n"), [])

    def test_a_long_file_must_give_a_reason(self):
        self.assert_one(found("daemon/a.cc", "int x;\n" * 401), "401 lines")
        self.assert_one(found("daemon/data/a.cc", "int x;\n" * 401), "401 lines")
        self.assertEqual(found("daemon/a.cc", "int x;\n" * 400), [])
        self.assertEqual(found("docs/a.md", "words\n" * 1000), [])

    def test_python_has_narrow_lines(self):
        self.assert_one(found("tools/a.py", "x = 1\n" + "#" * 141 + "\n"), "tools/a.py:2: 141 columns")
        self.assertEqual(found("tools/a.py", "#" * 140 + "\n"), [])

    def test_prose_has_narrow_lines(self):
        wide = "word " * 24 + "x"
        self.assert_one(found("docs/a.md", f"first\n- {wide}\n"), "docs/a.md:2: 123 columns")
        for good in ("word " * 23 + "words", f"| {wide} |", f"    {wide}", f"```\n{wide}\n```", "- [x](" + "x" * 120 + ")"):
            self.assertEqual(found("docs/a.md", good + "\n"), [], good)

    def test_a_header_is_included_once(self):
        self.assert_one(found("proto/a.h", "int x;\n"), "#pragma once")
        self.assertEqual(found("proto/a.h", "#ifndef A_H\n#define A_H\n#endif\n"), [])

    def test_a_path_of_somebodys_machine_is_named_with_its_line(self):
        for line in ("cd /home/eve/gradring", 'open("/Users/eve/x")', "cat /root/.profile", "see /workspace/x"):
            with self.subTest(line=line):
                self.assert_one(found("docs/a.md", f"first\n{line}\n"), "docs/a.md:2:")

    def test_registries_and_unfinished_work_are_named(self):
        self.assert_one(found("tools/a.sh", "curl https://pypi.org/simple\n"), "package registry")
        self.assert_one(found("daemon/a.cc", "// TODO: more\n"), "unfinished")

    def test_wall_clocks_are_named(self):
        for line in ("std::chrono::system_clock::now();", "clock_gettime(CLOCK_REALTIME, &t);", "time(nullptr);"):
            with self.subTest(line=line):
                self.assert_one(found("daemon/control/a.cc", line + "\n"), "clock that can be set")
        self.assertEqual(found("daemon/control/a.cc", "std::chrono::steady_clock::now();\n"), [])

    def test_a_wall_clock_that_is_shown_to_people_has_its_reason(self):
        for name, reason in tidy.MAY_READ_WALL_CLOCK.items():
            self.assertTrue(reason)
            self.assertEqual(found(name, "clock_gettime(CLOCK_REALTIME, &t);\n"), [])

    def test_blanks_and_a_missing_newline_are_named(self):
        self.assert_one(found("a.md", "x \n"), "a.md:1: blanks")
        self.assert_one(found("a.md", "x"), "without a newline")


if __name__ == "__main__":
    unittest.main()
