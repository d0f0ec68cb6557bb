#!/usr/bin/env python3
"""pelton quickstart fleet: it scales from zero and back, its console answers meanwhile, and nothing is left however it ends.

usage: quickstart_test.py BINARY
"""
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request

from tiers import FULL, full

BINARY = None


def processes_with(variable):
    """Those of the binary that have it in their environment, which children get from whoever starts them."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(folder / "exe") == os.path.realpath(BINARY) and variable.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            pass
    return found


class Show:
    """One that runs, whose lines are kept as they come."""

    def __init__(self, scratch, *words):
        self.process = subprocess.Popen([BINARY, "quickstart", "fleet", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        env={**os.environ, "TMPDIR": scratch}, cwd=scratch)
        self.lines = []
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.lines.append(line)

    def wait_for(self, pattern):
        end = time.monotonic() + 120
        while time.monotonic() < end:
            for line in list(self.lines):
                if found := re.search(pattern, line):
                    return found
            if self.process.poll() is not None and not self.reader.is_alive():
                break
            time.sleep(0.05)
        raise AssertionError(f"no '{pattern}' in {self.lines}")

    def end(self):
        code = self.process.wait(120)
        self.reader.join()
        said = self.process.stderr.read()
        self.process.stdout.close()
        self.process.stderr.close()
        return code, said


class Quickstart(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.addCleanup(self.scratch.cleanup)

    def expect_nothing_is_left(self):
        self.assertEqual(os.listdir(self.scratch.name), [])
        self.assertEqual(processes_with(f"TMPDIR={self.scratch.name}"), [])

    def test_it_scales_from_zero_and_back(self):
        show = Show(self.scratch.name, "--seconds", "6")
        with urllib.request.urlopen(show.wait_for(r"^chat +(http://\S+)$")[1], timeout=30) as answer:
            self.assertIn(b"<title>Pelton</title>", answer.read())
        admin = show.wait_for(r"^console +(http://\S+)/console ")[1]
        with urllib.request.urlopen(admin + "/console/config.json", timeout=30) as answer:
            self.assertIn(b'"pages":["fleet","scaling","requests","routing","health","configuration"]', answer.read())
        self.assertEqual(len(os.listdir(self.scratch.name)), 1)
        show.wait_for("[23] ready")
        self.assertGreaterEqual(len(processes_with(f"TMPDIR={self.scratch.name}")), 4, "this one, the gateway and replicas")
        code, said = show.end()
        self.assertEqual(code, 0, said + "".join(show.lines))
        text = "".join(show.lines)
        self.assertRegex(text, r"0 ready, 0 wanted(?s:.*)it was held for [1-9]\d* ms(?s:.*)the load is over: [1-9]\d* answered, 0 failed(?s:.*)0 ready, 0 wanted(?s:.*)nothing is left")
        self.assertRegex(text, "[23] ready, [23] wanted")
        self.expect_nothing_is_left()

    def test_an_interrupt_cleans_up_as_well(self):
        for how in (signal.SIGINT, signal.SIGTERM) if FULL else (signal.SIGINT,):
            show = Show(self.scratch.name, "--seconds", "60")
            show.wait_for("requests at a time")
            show.process.send_signal(how)
            self.assertEqual(show.end()[0], 130)
            self.expect_nothing_is_left()

    def test_two_interrupts_clean_up_as_one_does(self):
        show = Show(self.scratch.name, "--seconds", "60")
        show.wait_for("requests at a time")
        for pause_s in (0.05, 0.3, 0):
            show.process.send_signal(signal.SIGINT)
            time.sleep(pause_s)
        self.assertEqual(show.end()[0], 130)
        self.expect_nothing_is_left()

    @full
    def test_it_stays_if_it_is_asked_to(self):
        show = Show(self.scratch.name, "--seconds", "1", "--stay")
        api = show.wait_for(r"^API +(http://\S+/v1)")[1]
        show.wait_for("it stays until Ctrl-C")
        with urllib.request.urlopen(api + "/models", timeout=30) as answer:
            self.assertIn(b'"box"', answer.read())
        show.process.send_signal(signal.SIGINT)
        self.assertEqual(show.end()[0], 0)
        self.expect_nothing_is_left()

    def test_a_model_that_is_not_there_is_refused_with_the_reason(self):
        code, said = Show(self.scratch.name, "nowhere/to/be/found").end()
        self.assertNotEqual(code, 0)
        self.assertRegex(said, "nowhere/to/be/found")
        self.expect_nothing_is_left()


if __name__ == "__main__":
    BINARY = os.path.abspath(sys.argv[1])
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
