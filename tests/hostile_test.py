#!/usr/bin/env python3
"""Damaged models as the shell sees them: exit code 4 and one sentence that names the file.

usage: hostile_test.py BINARY
"""
import http.client
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
TINY = ROOT / "testdata" / "golden" / "tiny"
BINARY = None


def pelton(*words):
    return subprocess.run([BINARY, *map(str, words)], capture_output=True, timeout=60, check=False)


class Hostile(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.model = pathlib.Path(folder.name) / "model"
        shutil.copytree(TINY, self.model)

    def expect_4(self, file, *words):
        start = time.monotonic()
        done = pelton(*words)
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertLess(time.monotonic() - start, 10)  # a second, on a machine of its own
        self.assertIn(str(file).encode(), done.stderr)
        self.assertEqual(done.stderr.count(b"\n"), 1, done.stderr)
        self.assertEqual(done.stdout, b"")

    def test_safetensors(self):
        weights = self.model / "model.safetensors"
        good = weights.read_bytes()
        for bad in (b"", b"1234567", bytes(8), b"\xff" * 8 + good[8:], good[:-1], good + b"x",
                    struct.pack("<Q", 3) + b"{}", good[:8] + b"[" + good[9:]):
            weights.write_bytes(bad)
            self.expect_4(weights, "inspect", self.model)
            self.expect_4(weights, "serve", self.model, "--port", 0)
        weights.unlink()
        os.mkfifo(weights)
        self.expect_4(weights, "inspect", self.model)

    def test_config(self):
        config = self.model / "config.json"
        good = json.loads(config.read_text())
        for change in ({"hidden_size": 2**31}, {"num_hidden_layers": 0}, {"architectures": []},
                       {"eos_token_id": [512]}, {"sliding_window": -1}):
            config.write_text(json.dumps({**good, **change}))
            self.expect_4(config, "inspect", self.model)
        config.write_text("[" * 100_000)
        self.expect_4(config, "inspect", self.model)

    def test_gguf(self):
        file = self.model / "x.gguf"
        front = b"GGUF" + struct.pack("<I", 3)
        for bad in (b"", b"FUGG", front, front + struct.pack("<QQ", 2**63, 0),
                    front + struct.pack("<QQ", 0, 2**63), b"GGUF" + struct.pack(">I", 3) + bytes(16)):
            file.write_bytes(bad)
            self.expect_4(file, "inspect", file)

    def test_tokenizer(self):
        file = self.model / "tokenizer.json"
        for bad in (b"{", b"{}", b'{"model":' + b"[" * 100_000):
            file.write_bytes(bad)
            self.expect_4(file, "serve", self.model, "--port", 0)
        ranks = self.model / "x.tiktoken"
        ranks.write_text("YQ== 0\nY!== 1\n")
        self.expect_4(ranks, "tokenize", ranks, "--text", "a")

    def test_a_file_cut_while_it_is_served(self):  # ST-23
        model = self.model.parent / "made"
        done = pelton("synth", "--like", ROOT / "testdata/demo_model.json", "--layers", 1, model)
        self.assertEqual(done.returncode, 0, done.stderr)
        weights = model / "model.safetensors"
        with subprocess.Popen([BINARY, "serve", model, "--port", "0"], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE) as server:
            self.addCleanup(server.kill)
            url = server.stdout.readline().decode().split()[-1]
            os.truncate(weights, 4096)
            body = json.dumps({"prompt": "hello", "max_tokens": 4}).encode()
            request = urllib.request.Request(url + "/v1/completions", body,
                                             {"Content-Type": "application/json"})
            try:
                urllib.request.urlopen(request, timeout=30).read()
                self.fail("an answer from weights that are gone")
            except (ConnectionError, http.client.HTTPException):
                pass
            finally:
                if server.poll() is None:
                    time.sleep(1)
                server.kill()
            self.assertEqual(server.wait(), 4)
            self.assertIn(f"{weights}: became unreadable".encode(), server.stderr.read())


if __name__ == "__main__":
    BINARY = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
