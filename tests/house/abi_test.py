"""A header that breaks programs does not pass; one that only grows does."""

import shutil
import tempfile
import unittest
from pathlib import Path

import abi

GOOD = """#include <stddef.h>
enum gradring_kind { GRADRING_A = 1, GRADRING_B = 2 };
typedef struct gradring_thing { size_t size; int rank; const char* name; } gradring_thing;
int gradring_open(const gradring_thing* thing, enum gradring_kind kind);
void gradring_close(void);
"""


@unittest.skipUnless(shutil.which("abidw"), "abidw is not installed")
class Interfaces(unittest.TestCase):
    def of(self, text):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "one.h"
            path.write_text(text)
            return abi.interface(path)

    def complaints(self, before, after):
        self.assertIn(before, GOOD)
        return list(abi.compare(self.of(GOOD), self.of(GOOD.replace(before, after))))

    def test_all_of_it_is_seen(self):
        self.assertEqual(self.of(GOOD), [
            "gradring_close: void ()", "gradring_kind GRADRING_A: 1", "gradring_kind GRADRING_B: 2",
            "gradring_open: int (const gradring_thing*, gradring_kind)", "gradring_thing.name: const char* at 16",
            "gradring_thing.rank: int at 8", "gradring_thing.size: unsigned long int at 0"])

    def test_growing_passes(self):
        self.assertEqual(self.complaints("const char* name;", "const char* name; int more;"), [])
        self.assertEqual(self.complaints("GRADRING_B = 2", "GRADRING_B = 2, GRADRING_C = 3"), [])
        self.assertEqual(self.complaints("void gradring_close(void);", "void gradring_close(void); void gradring_new(void);"), [])

    def test_a_function_that_is_gone_is_found(self):
        self.assertIn("gradring_close (void ()) is gone", self.complaints("void gradring_close(void);", "")[0])

    def test_another_parameter_is_found(self):
        self.assertIn("gradring_close was void ()", self.complaints("close(void)", "close(int)")[0])

    def test_a_member_that_moved_is_found(self):
        self.assertIn("gradring_thing.rank was int at 8 and is int at 12", self.complaints("int rank", "int more; int rank")[0])

    def test_another_value_is_found(self):
        self.assertIn("GRADRING_B was 2 and is 3", self.complaints("GRADRING_B = 2", "GRADRING_B = 3")[0])


if __name__ == "__main__":
    unittest.main()
