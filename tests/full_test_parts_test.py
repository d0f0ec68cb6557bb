#!/usr/bin/env python3
"""The parts of tools/full_test: together they run every entry that ctest knows, none twice; each room and each of its fuzz targets is in one.

usage: full_test_parts_test.py BUILD
"""
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = None


def parts():
    """Of each part: its entries' regular expression, "" for one that has none."""
    printed = subprocess.run([ROOT / "tools/full_test", "--list"], check=True, capture_output=True, text=True).stdout
    return {part: selection for part, _, selection in (line.partition(" ") for line in printed.splitlines())}


def known_entries():
    # What ctest is asked for in a run of ctest would have the outer one's settings.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CTEST_")}
    shown = subprocess.run(["ctest", "--test-dir", BUILD, "--show-only=json-v1"], check=True, capture_output=True, text=True, env=environment)
    return [test["name"] for test in json.loads(shown.stdout)["tests"]]


class Parts(unittest.TestCase):
    def runs(self, part, entry):
        """As run_tests does: -R, and -E of the clients."""
        found = re.search(parts_of_all[part], entry) is not None
        return not found if part.endswith(".clients") else found

    def check(self, stage, entries):
        of_stage = [part for part in parts_of_all if part.startswith(stage + ".")]
        self.assertGreater(len(of_stage), 3)
        counts = collections.Counter()
        for entry in entries:
            having = [part for part in of_stage if self.runs(part, entry)]
            self.assertEqual(len(having), 1, f"{entry}: {having}")
            counts[having[0]] += 1
        for part in of_stage:
            self.assertGreater(counts[part], 0, part)

    def test_every_entry_is_in_one_part(self):
        entries = known_entries()
        self.assertGreater(len(entries), 100)
        for stage in ("release", "asan", "tsan"):
            self.check(stage, entries)

    def test_every_room_s_entries_run_ten_times(self):
        rooms = {path.relative_to(ROOT).parts[1] for path in ROOT.glob("src/**/*_test.cc")} - {"console"}
        self.check("properties", [f"{room}.Suite" for room in rooms])

    def test_every_fuzz_target_is_in_one_part(self):
        rooms = {path.relative_to(ROOT).parts[1] for path in ROOT.glob("src/**/*_fuzz.cc")}
        self.assertGreater(len(rooms), 10)
        self.check("fuzz", [f"{room}.any_fuzz" for room in rooms])

    def test_an_unknown_stage_is_said(self):
        run = subprocess.run([ROOT / "tools/full_test", "asan.nowhere"], capture_output=True, text=True)
        self.assertEqual(run.returncode, 2)
        self.assertIn("no stage 'asan.nowhere'", run.stderr)


if __name__ == "__main__":
    BUILD = sys.argv[1]
    parts_of_all = parts()
    unittest.main(argv=sys.argv[:1], verbosity=2)
