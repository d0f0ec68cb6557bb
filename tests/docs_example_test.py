#!/usr/bin/env python3
"""Compiles the examples in docs/: a block of C++ whose first line names its file, `// src/ROOM/FILE.cc: ...`.

usage: docs_example_test.py BUILD_DIR

Each is checked as the compiler checks the other files of that room (compile_commands.json), without making anything.
"""
import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = None
EXAMPLE = re.compile(r"^```cpp\n(// src/(\w+)/\w+\.cc\b.*?)^```$", re.M | re.S)


def examples():
    """(page, room, code) of each example."""
    return [(page.name, match[2], match[1]) for page in sorted((ROOT / "docs").glob("*.md"))
            for match in EXAMPLE.finditer(page.read_text())]


def complaints(room, code):
    """What the compiler says of a file of the room; empty: nothing."""
    commands = json.loads((BUILD / "compile_commands.json").read_text())
    # A file of the room, or a batch of them (cmake/batches.py).
    folders = (ROOT / "src" / room, BUILD / "src" / room / "batches")
    like = next(c for c in commands
                if pathlib.Path(c["file"]).parent in folders and not c["file"].endswith("_test.cc"))
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "example.cc"
        file.write_text(code)
        words = shlex.split(like["command"])
        out = words.index("-o")
        words[out:out + 2] = ["-fsyntax-only"]
        words[words.index(like["file"])] = str(file)
        done = subprocess.run(words, cwd=like["directory"], capture_output=True, text=True, timeout=300, check=False)
        return done.stderr if done.returncode else ""


class DocsExamples(unittest.TestCase):
    def test_each_compiles(self):
        found = examples()
        self.assertIn("add_an_endpoint.md", {page for page, _, _ in found})
        for page, room, code in found:
            self.assertEqual("", complaints(room, code), page)

    def test_what_does_not_compile_is_seen(self):
        page, room, code = next(one for one in examples() if one[0] == "add_an_endpoint.md")
        changed = code.replace(".vocab_size", ".vocabulary_size")
        self.assertNotEqual(code, changed, page)
        self.assertIn("vocabulary_size", complaints(room, changed))


if __name__ == "__main__":
    BUILD = pathlib.Path(sys.argv.pop(1))
    unittest.main()
