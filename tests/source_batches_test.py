#!/usr/bin/env python3
"""cmake/batches.py: which sources are compiled together, and that names of their own stay so."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "cmake" / "batches.py"


class Batches(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="pelton_batches_")
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "room").mkdir()

    def write(self, name, body, unnamed=""):
        (self.root / "room" / name).write_text(f"namespace room {{\nnamespace {{\n\n{unnamed}\n}}  // namespace\n\n{body}\n}}  // namespace room\n")

    def batches(self, most=8):
        """The names in each file that is to be compiled."""
        files = sorted(str(path) for path in (self.root / "room").glob("*.cc"))
        done = subprocess.run([sys.executable, SCRIPT, self.root, self.root / "out", str(most), *files], capture_output=True,
                              text=True, check=True)
        made = []
        for path in map(pathlib.Path, done.stdout.split()):
            if path.parent.name == "room":
                made.append([path.name])
            else:
                made.append([line.split("/")[1].rstrip('"') for line in path.read_text().splitlines() if line.startswith("#include")])
        return sorted(made)

    def compiles(self):
        for batch in (self.root / "out").glob("*.cc"):
            done = subprocess.run(["c++", "-std=c++20", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I", self.root, batch],
                                  capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr + batch.read_text())

    def test_no_more_than_so_many(self):
        for letter in "abcde":
            self.write(f"{letter}.cc", f"int {letter}() {{ return 1; }}")
        self.assertEqual(self.batches(2), [["a.cc", "b.cc"], ["c.cc", "d.cc"], ["e.cc"]])
        self.compiles()

    def test_names_of_their_own_part_files(self):
        for kind in ("int most() {\n  return 1;\n}", "class Most {};", "using Most = int;\n", "static int most() { return 1; }",
                     "#define MOST 1\n"):
            with self.subTest(kind):
                self.write("a.cc", "int a() { return 1; }", kind)
                self.write("b.cc", "int b() { return 2; }")
                self.write("c.cc", "int c() { return 3; }", kind.replace("1", "2").replace("int;", "long;"))
                self.assertEqual(self.batches(), [["a.cc", "b.cc"], ["c.cc"]])

    def test_a_name_for_all_is_no_other_files_own(self):
        self.write("a.cc", "int most() { return 1; }")
        self.write("b.cc", "int b() { return most(); }", "int most() { return 2; }\n")
        self.assertEqual(self.batches(), [["a.cc"], ["b.cc"]])

    def test_the_same_taken_from_elsewhere_parts_nobody(self):
        for letter in "ab":
            self.write(f"{letter}.cc", f"string {letter}() {{ return {{}}; }}", "using std::string;\n")
            text = (self.root / "room" / f"{letter}.cc").read_text()
            (self.root / "room" / f"{letter}.cc").write_text("#include <string>\n" + text)
        self.assertEqual(self.batches(), [["a.cc", "b.cc"]])
        self.compiles()

    def test_constants_are_called_otherwise_unless_a_header_knows_them(self):
        for number, letter in enumerate("abc"):
            self.write(f"{letter}.cc", f"int {letter}() {{ return kMost; }}", f"constexpr int kMost = {number};\n")
        self.assertEqual(self.batches(), [["a.cc", "b.cc", "c.cc"]])
        self.compiles()
        (self.root / "room" / "room.h").write_text("// How many: kMost.\n")
        self.assertEqual(self.batches(), [["a.cc"], ["b.cc"], ["c.cc"]])

    def test_who_has_a_headers_name_stays_alone(self):
        (self.root / "room" / "room.h").write_text("namespace room {\nstruct Plan;\n}  // namespace room\n")
        self.write("a.cc", "int a() { return 1; }", "struct Plan {};\n")
        self.write("b.cc", "int b() { return 1; }")
        self.write("c.cc", "int c() { return 1; }")
        self.assertEqual(self.batches(), [["a.cc"], ["b.cc", "c.cc"]])

    def test_a_batch_that_is_as_it_was_is_not_written(self):
        self.write("a.cc", "int a() { return 1; }")
        self.write("b.cc", "int b() { return 1; }")
        self.batches()
        batch = next((self.root / "out").glob("*.cc"))
        before = batch.stat().st_mtime_ns
        self.batches()
        self.assertEqual(batch.stat().st_mtime_ns, before)


if __name__ == "__main__":
    unittest.main()
