#!/usr/bin/env python3
"""Damaged models as the shell sees them (exit code 4 and one sentence that names the file), and a
server among hostile clients: whoever else asks it does not notice.

usage: hostile_test.py BINARY
"""
import contextlib
import http.client
import json
import os
import pathlib
import resource
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools" / "chaos"))
import hostile  # noqa: E402  (the requests that tests.chaos draws from)

TINY = ROOT / "testdata" / "golden" / "tiny"
BOX = ROOT / "models" / "pelton-box"
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


class Beside(unittest.TestCase):
    """One who asks a server that others are hostile to."""

    def serve(self, *words, descriptors=None):
        def limit():
            if descriptors is not None:
                resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))

        server = subprocess.Popen([BINARY, "serve", BOX, "--port", "0", *words], preexec_fn=limit,
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        self.addCleanup(server.stdout.close)
        ports = {}
        for name, word in (("http", "listening on"), ("admin", "--admin-port"), ("grpc", "--grpc-port")):
            if name != "http" and word not in words:
                continue
            line = server.stdout.readline().decode()
            ports[name] = int(line.rstrip("/\n").rsplit(":", 1)[1])
        return ports

    def get(self, port, path):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def test_D2_formats_that_take_long_to_compile(self):
        port = self.serve()["http"]
        regex = {"type": "regex", "pattern": "[ab]*a[ab]{11}"}
        tag = {"type": "structural_tag", "format": {"type": "sequence", "elements": [regex] * 500}}
        body = json.dumps({"messages": [{"role": "user", "content": "x"}], "max_tokens": 5,
                           "structured_outputs": {"structural_tag": tag}})
        over = threading.Event()
        said = []

        def attack():
            while not over.is_set():
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
                connection.request("POST", "/v1/chat/completions", body,
                                   {"Content-Type": "application/json"})
                answer = connection.getresponse()
                said.append((answer.status, answer.read().decode()))
                connection.close()

        attackers = [threading.Thread(target=attack) for _ in range(3)]
        for attacker in attackers:
            attacker.start()
        took = []
        while not said or len(took) < 40:
            began = time.monotonic()
            self.assertEqual(self.get(port, "/health")[0], 200)
            took.append(time.monotonic() - began)
            time.sleep(0.05)
        over.set()
        for attacker in attackers:
            attacker.join()
        # One net thread or two that compile make this seconds.
        self.assertLess(sorted(took)[len(took) * 3 // 4], 0.5, took)
        for status, text in said:
            self.assertEqual(status, 400, text)
            self.assertIn("1000 ms", text)
            self.assertEqual(json.loads(text)["error"]["param"], "structured_outputs.structural_tag")

    def test_each_request_that_chaos_draws_from(self):
        """All of them, so that a limit that moved is seen here and not when the dice fall on it."""
        port = self.serve()["http"]
        wrong = []
        for name, data, statuses in hostile.http_rows() + hostile.body_rows():
            with socket.create_connection(("127.0.0.1", port), timeout=60) as link:
                try:
                    link.sendall(data)
                    link.shutdown(socket.SHUT_WR)
                except OSError:
                    pass  # closed before all was read: the answer may be there all the same
                with contextlib.suppress(ConnectionError), link.makefile("rb") as answer:
                    # Blank lines and 100 are what the server says while a slow answer is being made.
                    heads = (line.split()[1] for line in answer if line.startswith(b"HTTP/1.1"))
                    status = next((int(status) for status in heads if status != b"100"), None)
                    if statuses and status is not None and status not in statuses:
                        wrong.append(f"{name} {data[:160]!r} ... {data[-60:]!r}: {status}, not {statuses}")
        self.assertEqual(wrong, [], "\n".join(wrong))

    def hold(self, port, count, words):
        held = []
        for _ in range(count):
            connection = socket.create_connection(("127.0.0.1", port), timeout=20)
            self.addCleanup(connection.close)
            try:
                connection.sendall(words)
            except OSError:
                pass  # it has been closed already
            held.append(connection)
        return held

    def test_E2_idle_grpc_connections(self):
        preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
        for descriptors, count, words in ((1024, 1010, preface), (64, 100, b"")):
            ports = self.serve("--grpc-port", "0", "--admin-port", "0", "--max-connections", "8",
                               "--api-key", "k", descriptors=descriptors)
            held = self.hold(ports["grpc"], count, words)
            time.sleep(1)  # the server has taken what it takes
            for _ in range(3):
                self.assertEqual(self.get(ports["http"], "/health")[0], 200)
                self.assertEqual(self.get(ports["admin"], "/health")[0], 200)
            metrics = self.get(ports["admin"], "/metrics")[1].splitlines()
            open_now = [line for line in metrics if line.startswith("pelton_grpc_connections ")]
            self.assertLessEqual(float(open_now[0].split()[1]), 2)
            for connection in held:
                connection.close()


if __name__ == "__main__":
    BINARY = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
