"""A broken link, a promise without a proof and an unexplained library are found."""

import tempfile
import unittest
from pathlib import Path

import docs


class Documents(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.plant("docs/failure-contract.md", "")
        self.plant("docs/dependencies.md", "")
        self.plant("cmake/dependencies.cmake", "")
        self.plant("tests/core/op_test.cc", "TEST(Op, EndsOnce) {}\nTEST_F(Ring,\n       IsFixed) {}\n")
        self.plant("tests/e2e/test_death.py", "def test_of_a_trainer():\n    pass\n")

    def plant(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def assert_one(self, words):
        found = docs.check(self.root)
        self.assertEqual(len(found), 1, found)
        self.assertIn(words, found[0])

    def test_a_link_that_leads_nowhere(self):
        self.plant("README.md", "[a](docs/dependencies.md) [b](https://example.org)\n[c](docs/no.md)\n")
        self.assert_one("README.md:2: the link to docs/no.md")

    def test_a_heading_that_is_not_there(self):
        self.plant("docs/a.md", "# Keys, and such\n[a](#keys-and-such) [b](../README.md#first)\n")
        self.plant("README.md", "# First\n\n[c](docs/a.md#locks)\n")
        self.assert_one("README.md:3: docs/a.md has no heading for #locks")

    def test_a_promise_with_its_tests(self):
        self.plant("docs/failure-contract.md",
                   "| ends | **holds** (test: `Op.EndsOnce`, `tests/e2e/test_death.py::test_of_a_trainer`) |\n"
                   "| fixed | **holds** (test: `Ring.IsFixed`) |\n"
                   "| later | **not yet** |\n")
        self.assertEqual(docs.check(self.root), [])

    def test_a_promise_without_a_test(self):
        self.plant("docs/failure-contract.md", "| `Op.EndsOnce` | **holds** |\n")
        self.assert_one("names no test")

    def test_a_promise_whose_test_is_gone(self):
        self.plant("docs/failure-contract.md", "| x | **in part** (test: `Op.EndsTwice`) |\n")
        self.assert_one("no test Op.EndsTwice")
        self.plant("docs/failure-contract.md",
                   "| x | **holds** (test: `tests/e2e/test_death.py::test_of_a`) |\n")
        self.assert_one("no test tests/e2e/test_death.py::test_of_a")

    def test_a_test_that_a_page_names(self):
        self.plant("docs/faq.md", "`tests/e2e/test_death.py::test_of_a_trainer` `tests/e2e/test_death.py`\n")
        self.assertEqual(docs.check(self.root), [])
        self.plant("docs/faq.md", "It holds.\n`tests/e2e/test_death.py::test_of_b`\n")
        self.assert_one("docs/faq.md:2: there is no test tests/e2e/test_death.py::test_of_b")
        self.plant("docs/faq.md", "`tests/e2e/test_life.py`\n")
        self.assert_one("docs/faq.md:1: there is no test tests/e2e/test_life.py")

    def test_a_command_that_is_none(self):
        self.plant("tools/list.py", "")
        (self.root / "tools/chaos").touch(mode=0o755)
        self.plant("docs/a.md", "    tools/chaos --hours 1\n`python3 tools/list.py .` as `tools/list.py` says\n")
        self.assertEqual(docs.check(self.root), [])
        self.plant("docs/b.md", "it is made by `tools/list.py --wheel W`\n")
        self.assert_one("docs/b.md:1: tools/list.py may not be executed; write python3 in front of it")
        self.plant("docs/b.md", "    tools/lost     # finds it\n")
        self.assert_one("docs/b.md:1: there is no tools/lost to run")

    def test_a_library_that_nobody_explains(self):
        self.plant("cmake/dependencies.cmake", "find_package(Threads)\nfind_package(Boost 1.74)\n")
        self.assert_one("Boost")


if __name__ == "__main__":
    unittest.main()
