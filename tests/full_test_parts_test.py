#!/usr/bin/env python3
"""The parts of tools/full_test: together they run every entry that ctest knows, none twice; each room and each of its fuzz targets is in one.

usage: full_test_parts_test.py BUILD
"""
import collections
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
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


class Runs(unittest.TestCase):
    """The script itself in a tree of its own, where what it calls only writes down how it was called."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tree = pathlib.Path(folder.name) / "tree"
        self.calls = pathlib.Path(folder.name) / "calls"
        for file in ("src/kv/kv_test.cc", "src/kv/block_fuzz.cc", "src/gateway/wire_test.cc", "src/cuda/cuda_test.cc", "src/console/console_test.cc"):
            (self.tree / file).parent.mkdir(parents=True, exist_ok=True)
            (self.tree / file).touch()
        (self.tree / ".gitignore").write_text("/build/\n")
        for name in ("tools/build", "tools/fuzz_all", "tools/install_packages", "programs/ctest"):
            script = self.tree / name
            script.parent.mkdir(exist_ok=True)
            script.write_text(f'#!/bin/sh\necho {script.name} "$@" >>{self.calls}\n[ ! -e {self.calls}.{script.name}_fails ]\n')
            script.chmod(0o755)
        shutil.copy(ROOT / "tools/full_test", self.tree / "tools/full_test")
        self.git("init", "-q")
        self.commit()

    def git(self, *words):
        subprocess.run(["git", "-c", "user.name=test", "-c", "user.email=test@localhost", *words], cwd=self.tree, check=True)

    def commit(self):
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "a change")

    def run_parts(self, *words, **environment):
        """(status, what was called), without the packages."""
        self.calls.write_text("")
        path = f"{self.tree / 'programs'}:{os.environ['PATH']}"
        run = subprocess.run(["tools/full_test", *words], cwd=self.tree, capture_output=True, text=True,
                             env={**os.environ, **environment, "PATH": path})
        return run.returncode, [line for line in self.calls.read_text().splitlines() if not line.startswith("install_packages")]

    def test_a_part_builds_what_it_runs(self):
        status, calls = self.run_parts("asan.foundation")
        self.assertEqual(status, 0)
        self.assertEqual(calls[0], "build asan kv_test kv_block_fuzz")
        self.assertIn("-R ^(access|", calls[1])
        self.assertEqual(len(calls), 2)
        self.assertEqual(self.run_parts("tsan.fleet")[1][0], "build tsan gateway_test")
        self.assertEqual(self.run_parts("fuzz.server"), (0, ["fuzz_all server"]))

    def test_the_clients_part_runs_what_no_other_does(self):
        status, calls = self.run_parts("release.clients")
        self.assertEqual(status, 0)
        self.assertNotIn(" -R ", calls[1])
        self.assertRegex(calls[1], r"-E \^\(.*\bgateway\b.*\|\^tests\[.\]\[a-z\]$")

    def test_resume_runs_what_has_not_passed_on_this_commit(self):
        (self.calls.parent / "calls.fuzz_all_fails").touch()
        self.assertEqual(self.run_parts("properties.server", "fuzz.server")[0], 1)
        (self.calls.parent / "calls.fuzz_all_fails").unlink()
        self.assertEqual(self.run_parts("--resume", "properties.server", "fuzz.server"), (0, ["fuzz_all server"]))
        self.assertEqual(self.run_parts("--resume", "properties.server", "fuzz.server"), (0, []))
        self.commit()
        self.assertEqual(len(self.run_parts("--resume", "properties.server", "fuzz.server")[1]), 3)
        (self.tree / "src/kv/new_test.cc").touch()  # not committed: nothing is skipped
        self.assertEqual(len(self.run_parts("--resume", "properties.server", "fuzz.server")[1]), 3)

    def test_results_can_lie_outside_of_the_tree(self):
        kept = str(self.tree.parent / "kept")
        self.assertEqual(self.run_parts("fuzz.text", PELTON_FULL_RESULTS=kept)[0], 0)
        shutil.rmtree(self.tree / "build")
        self.assertEqual(self.run_parts("--resume", "fuzz.text", PELTON_FULL_RESULTS=kept), (0, []))


if __name__ == "__main__":
    BUILD = sys.argv[1]
    parts_of_all = parts()
    unittest.main(argv=sys.argv[:1], verbosity=2)
