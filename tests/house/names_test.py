"""Names that would meet where files are compiled together are found, and those that would not are left alone."""

import tempfile
import unittest
from pathlib import Path

import names


def in_file(*lines):
    return "\n".join(["namespace gradring::daemon {", "namespace {", *lines, "}  // namespace", "}  // namespace gradring::daemon", ""])


class Names(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.plant("daemon/CMakeLists.txt", "add_library(parts STATIC\n  a.cc\n  b.cc)  # c.cc\n")

    def plant(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def complaints(self, a, b):
        self.plant("daemon/a.cc", a)
        self.plant("daemon/b.cc", b)
        return names.check(self.root)

    def assert_complains(self, a, b, name, line=3):
        found = self.complaints(a, b)
        self.assertEqual(len(found), 1, found)
        self.assertIn(f"daemon/b.cc:{line}: {name} is in daemon/a.cc:3, too", found[0])

    def test_a_constant_of_two_files_is_found(self):
        for one in ("constexpr size_t kMax = 4;", "constexpr int kMax{4};", "const char* const kMax[] = {", "int kMax;",
                    "constexpr std::array<std::string_view, 2> kMax = {", "enum class kMax { kOne };"):
            with self.subTest(one=one):
                self.assert_complains(in_file("constexpr size_t kMax = 5;"), in_file(one), "kMax")

    def test_a_type_of_two_files_is_found(self):
        self.assert_complains(in_file("struct Part {", "  int x = 0;", "};"), in_file("class Part final : public Whole {", "};"), "Part")

    def test_a_function_with_the_same_parameters_is_found(self):
        one = in_file("std::string words_of(const Part& part, size_t most = 4) {", "  return f(part);", "}")
        for other in ("std::string words_of(const Part& p, size_t) {", "Text words_of(const Part&,\n              size_t n) {",
                      "static Text words_of(\n    const Part& part, size_t n = 3) {"):
            with self.subTest(other=other):
                self.assert_complains(one, in_file(other, "}"), "words_of")
        self.assertEqual(self.complaints(one, in_file("std::string words_of(const Whole& whole, size_t most) {", "}")), [])

    def test_a_template_is_found(self):
        lines = ["template <typename List>", "size_t count_of(const List& list) {", "  return list.size();", "}"]
        self.plant("daemon/a.cc", in_file(*lines))
        self.plant("daemon/b.cc", in_file(*lines))
        self.assertEqual(len(names.check(self.root)), 1)

    def test_a_name_of_all_that_another_file_has_for_itself_is_found(self):
        for_all = "namespace gradring::daemon {\n\nint size_of(Part part) { return 1; }\n}  // namespace gradring::daemon\n"
        self.assert_complains(for_all, in_file("int size_of(Part part) { return 2; }"), "size_of")

    def test_a_name_of_a_header_that_another_file_includes_is_found(self):
        self.plant("daemon/wire/w.h", "namespace gradring::daemon {\ninline constexpr size_t kMax = 3;\n}  // namespace gradring::daemon\n")
        self.plant("daemon/v.h", '#include "daemon/wire/w.h"\n')
        found = self.complaints('#include "daemon/v.h"\n', in_file("constexpr size_t kMax = 4;"))
        self.assertEqual(len(found), 1, found)
        self.assertIn("daemon/b.cc:3: kMax is in daemon/wire/w.h:2, too", found[0])
        self.assertEqual(self.complaints("", in_file("constexpr size_t kMax = 4;")), [])

    def test_a_list_of_sources_and_a_program_of_tests_are_looked_into(self):
        for text in ("set(sources\n  ${CMAKE_CURRENT_SOURCE_DIR}/a.cc\n  ${CMAKE_CURRENT_SOURCE_DIR}/b.cc)\n",
                     "gradring_add_test(x_test a.cc b.cc LIBS $<TARGET_FILE:x> parts)\n"):
            with self.subTest(text=text):
                self.plant("daemon/CMakeLists.txt", text)
                self.assert_complains(in_file("int x = 1;"), in_file("int x = 1;"), "x")

    def test_files_that_are_compiled_alone_are_left_alone(self):
        for text in ("add_library(one a.cc)\nadd_library(other b.cc)\n",
                     "set_source_files_properties(b.cc PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)\nadd_library(parts a.cc b.cc)\n",
                     "add_library(parts a.cc b.cc)\nset_target_properties(parts PROPERTIES UNITY_BUILD OFF)\n"):
            with self.subTest(text=text):
                self.plant("daemon/CMakeLists.txt", text)
                self.assertEqual(self.complaints(in_file("int x = 1;"), in_file("int x = 1;")), [])

    def test_what_does_not_meet_is_left_alone(self):
        a = in_file("constexpr int kMost = 1;", "using Anchor = Picture::Anchor;", "int f(int x) {", "  int kLocal = 3;", "}")
        for b in (a.replace("gradring::daemon", "gradring::client"),
                  in_file("using Anchor = Picture::Anchor;", "struct Other {", "  static constexpr int kMost = 2;", "};"),
                  in_file("int f(double x) {", "  constexpr int kMost = 2;", "}", "int kLocal = 3;"),
                  in_file("class kMost;", "using core::kMost;", "void Whole::kMost() {", "}", "// int kMost = 1;"),
                  in_file('const char* const kText = R"(', "int kMost = 2;", ')";'), "int x;\n"):
            with self.subTest(b=b):
                self.assertEqual(self.complaints(a, b), [])

    def test_lines_are_counted_in_texts_that_span_some(self):
        self.assert_complains(in_file("int x = 1;"), in_file('const char* const kText = R"(', "words", ')";', "int x = 2;"), "x", line=6)

    def test_cases_of_googletest_have_names_of_their_own(self):
        self.assertEqual(self.complaints(in_file("TEST(Pass, Sums) {", "}"), in_file("TEST(Pass, Sums) {", "}")), [])


if __name__ == "__main__":
    unittest.main()
