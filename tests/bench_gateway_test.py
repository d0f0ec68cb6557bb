#!/usr/bin/env python3
"""pelton bench gateway: a gateway of its own before sinks of its own. Every answer is whole, also those whose sink is killed; timings are
nobody's business here.

usage: bench_gateway_test.py BINARY
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from ports import free_port

BINARY = None
BOX = pathlib.Path(__file__).resolve().parent.parent / "models" / "pelton-box"
SMALL = ["--request-rate", "100", "--duration", "0.3", "--runs", "2", "--streams", "12", "--output-len", "40", "--token-interval", "5",
         "--max-concurrency", "4"]


class BenchGateway(unittest.TestCase):
    def run_bench(self, *words):
        return subprocess.run([BINARY, "bench", "gateway", *map(str, words)], capture_output=True, text=True, timeout=120, check=False,
                              env={**os.environ, "PELTON_BENCH_LOCK_HELD": "1"})

    def measure(self, *words):
        done = self.run_bench(*SMALL, *words, "--json", "-")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def check(self, figures):
        for way in figures["first_byte"]:
            self.assertEqual((way["answered"], way["failed"]), (60, 0), way)
            self.assertTrue(0 < way["p50_ms"] <= way["p99_ms"] <= way["p999_ms"], way)
        self.assertGreaterEqual(figures["requests"]["answered"], 4)
        self.assertEqual(figures["requests"]["failed"], 0)
        streams = figures["streams"]
        self.assertEqual((streams["answered"], streams["failed"], streams["token_frames"]), (12, 0, 12 * 40))
        moved = figures["moved"]
        self.assertEqual((moved["answered"], moved["failed"]), (12, 0))
        self.assertGreater(moved["of_the_killed"], 0, "both sinks have some")
        self.assertEqual(moved["count"], moved["of_the_killed"])

    def test_each_answer_is_whole(self):
        figures = self.measure()
        self.check(figures)
        self.assertEqual([way["way"] for way in figures["first_byte"]], ["direct", "gateway"])
        direct, through = figures["first_byte"]
        self.assertEqual([one["way"] for one in figures["added"]], ["gateway"])
        self.assertAlmostEqual(figures["added"][0]["p50_ms"], through["p50_ms"] - direct["p50_ms"], 6)

    def test_prompts_are_named_and_others_are_measured_beside(self):
        port = free_port()
        figures = self.measure("--tokenizer", BOX, "--distinct-prompts", "--prompt-size", "2KiB", "--direct-port", port,
                               "--beside", f"http://127.0.0.1:{port}")
        self.check(figures)
        self.assertEqual([way["way"] for way in figures["first_byte"]], ["direct", "gateway", f"http://127.0.0.1:{port}"])
        self.assertEqual(len(figures["added"]), 2)

    def test_in_words_and_what_is_wrong(self):
        with tempfile.TemporaryDirectory() as folder:
            done = self.run_bench(*SMALL, "--json", pathlib.Path(folder) / "figures.json")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.check(json.loads((pathlib.Path(folder) / "figures.json").read_text()))
        for words in ("added by gateway", "per CPU second", "a sink is killed under 12 streams"):
            self.assertIn(words, done.stdout)
        for words, what in ((["--beside", "nonsense"], "--beside"), (["--output-len", "1"], "--output-len")):
            done = self.run_bench(*SMALL, *words)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(what, done.stderr)
        done = self.run_bench(*SMALL, "--tokenizer", "/nowhere")
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn("/nowhere", done.stderr)


if __name__ == "__main__":
    BINARY = os.path.abspath(sys.argv[1])
    unittest.main(argv=[sys.argv[0], *[word for word in sys.argv[2:] if word != "--full"]], verbosity=2)
