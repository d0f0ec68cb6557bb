#!/usr/bin/env python3
"""Proves that tools/check_rooms.py sees what it should: a test of the test."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

CHECK = pathlib.Path(__file__).parent.parent / "tools" / "check_rooms.py"
ROOMS = "base:\nkv: base\nengine: base kv\n<boost/json>: base\n"


def check(files, rooms=ROOMS):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / "rooms.txt").write_text(rooms)
        for name, text in files.items():
            file = root / "src" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        done = subprocess.run([sys.executable, CHECK, root / "src", root / "rooms.txt"],
                              capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr


class RoomsCheck(unittest.TestCase):
    def test_right_includes(self):
        code, text = check({"kv/a.h": '#include "base/b.h"\n', "base/b.cc": "#include <boost/json.hpp>\n"})
        self.assertEqual(code, 0, text)

    def test_upwards(self):
        code, text = check({"kv/a.h": '#include "engine/b.h"\n'})
        self.assertEqual(code, 1)
        self.assertIn("kv may not include engine", text)

    def test_foreign_library(self):
        code, text = check({"kv/a.h": "#include <boost/json.hpp>\n"})
        self.assertEqual(code, 1)
        self.assertIn("lives only in: base", text)

    def test_short_path_and_unknown_room(self):
        self.assertEqual(check({"kv/a.h": '#include "b.h"\n'})[0], 1)
        self.assertEqual(check({"attic/a.h": ""})[0], 1)

    def test_cycle_in_the_file_itself(self):
        self.assertEqual(check({}, "base: kv\nkv: base\n")[0], 1)

    def test_a_name_that_stands_twice(self):
        for again in ("kv: base", "<boost/json>: kv", "<boost/json>: base"):
            code, text = check({}, ROOMS + again + "\n")
            self.assertEqual(code, 1, again)
            self.assertIn(f"'{again.split(':')[0]}' stands twice", text)


if __name__ == "__main__":
    unittest.main()
