#!/usr/bin/env python3
"""pelton pull and pelton cache as a user meets them: a hub on the loopback, kill -9, exit codes.

usage: pull_test.py BINARY
"""
import hashlib
import http.server
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
TINY = ROOT / "testdata" / "golden" / "tiny"
BOX = ROOT / "models" / "pelton-box"
MODEL = "someone/tiny"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
BINARY = None


class Hub(http.server.ThreadingHTTPServer):
    """One model of the given files. `rate`: bytes a second of each answer; None: as fast as can be."""
    daemon_threads = True

    def __init__(self, files, rate=None):
        super().__init__(("127.0.0.1", 0), Answer)
        self.files, self.rate, self.sent, self.private = files, rate, 0, False
        self.model, self.asked = MODEL, []
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request, client_address):
        pass  # a killed client


class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        step = len(body) if not self.server.rate else max(1, self.server.rate // 20)
        for begin in range(0, len(body), max(step, 1)):
            self.wfile.write(body[begin:begin + step])
            self.server.sent += len(body[begin:begin + step])
            if self.server.rate:
                time.sleep(0.05)

    def do_GET(self):
        files = self.server.files
        self.server.asked.append(self.path)
        if self.server.private and self.headers.get("Authorization") != "Bearer hf_good":
            return self.reply(401, X_Error_Code="RepoNotFound")
        model = self.server.model
        if self.path == f"/api/models/{model}/revision/main?blobs=true":
            siblings = [{"rfilename": name, "size": len(data),
                         "lfs": {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}}
                        for name, data in files.items()]
            return self.reply(200, json.dumps({"sha": COMMIT, "siblings": siblings}).encode())
        name = self.path.removeprefix(f"/{model}/resolve/{COMMIT}/")
        if name not in files:
            return self.reply(404)
        data = files[name]
        tag = {"ETag": f'"{hashlib.sha256(data).hexdigest()}"'}
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if not wanted:
            return self.reply(200, data, **tag)
        first, last = int(wanted[1]), min(int(wanted[2]), len(data) - 1)
        return self.reply(206, data[first:last + 1], Content_Range=f"bytes {first}-{last}/{len(data)}", **tag)

    do_HEAD = do_GET


class Pull(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.cache = pathlib.Path(self.folder.name) / "hub"

    def environment(self, **more):
        plain = {name: value for name, value in os.environ.items()
                 if not name.startswith("HF_") and "proxy" not in name.lower()}
        return {**plain, "HF_HUB_CACHE": str(self.cache), "HOME": self.folder.name, **more}

    def pelton(self, *words, **environment):
        return subprocess.run([BINARY, *map(str, words)], capture_output=True, timeout=120, check=False,
                              env=self.environment(**environment))

    def hub(self, files, rate=None):
        hub = Hub(files, rate)
        self.addCleanup(hub.server_close)
        self.addCleanup(hub.shutdown)
        return hub

    def expect(self, code, done):
        self.assertEqual(done.returncode, code, done.stderr.decode(errors="replace"))
        return done

    def test_a_pulled_model_is_found_listed_and_purged(self):
        hub = self.hub({name: (TINY / name).read_bytes()
                        for name in ("config.json", "generation_config.json", "model.safetensors")})
        done = self.expect(0, self.pelton("pull", MODEL, "--endpoint", hub.url))
        self.assertTrue(done.stdout.decode().strip().endswith(COMMIT))
        self.assertNotIn(b"\x1b", done.stderr)
        self.expect(0, self.pelton("inspect", MODEL))
        sent = hub.sent
        self.expect(0, self.pelton("pull", MODEL, HF_ENDPOINT=hub.url))
        self.assertLess(hub.sent - sent, 2000)  # the list alone

        listed = json.loads(self.expect(0, self.pelton("cache", "list", "--json")).stdout)
        self.assertEqual([(one["model"], one["files"]) for one in listed], [(MODEL, 3)])
        self.assertIn(MODEL.encode(), self.pelton("cache", "list").stdout)
        self.expect(2, self.pelton("cache", "purge"))
        self.expect(2, self.pelton("cache", "purge", MODEL, "--all"))
        self.expect(4, self.pelton("cache", "purge", "someone/other"))
        self.expect(0, self.pelton("cache", "purge", MODEL))
        self.assertEqual([path for path in self.cache.rglob("*") if not path.is_dir()], [])
        self.expect(4, self.pelton("inspect", MODEL))
        self.expect(0, self.pelton("cache", "purge", "--all"))

    def test_a_pulled_model_is_packed_where_asked(self):
        hub = self.hub(self.tiny_files())
        out = pathlib.Path(self.folder.name) / "packed"
        done = self.expect(0, self.pelton("pull", MODEL, "--endpoint", hub.url, "--pack", out, "--weights", "int8"))
        self.assertEqual(done.stdout.decode().strip(), str(out))
        self.assertIn(b"attention int8", done.stderr)
        self.expect(0, self.pelton("inspect", out))
        sent = hub.sent
        done = self.expect(2, self.pelton("pull", MODEL, "--endpoint", hub.url, "--pack", out))
        self.assertIn(b"is there already", done.stderr)
        self.assertEqual(hub.sent, sent)  # nothing is fetched in vain
        # What it costs is kept for who starts the model without packing it.
        self.assertEqual(len(list(pathlib.Path(self.folder.name).glob(".cache/pelton/measured/*-int8.json"))), 1)

    def tiny_files(self):
        return {name: (TINY / name).read_bytes() for name in ("config.json", "generation_config.json", "model.safetensors")}

    def test_A11_serve_fetches_a_hub_id_first(self):
        hub = self.hub({name: (BOX / name).read_bytes()
                        for name in ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json")})
        # A short name is the hub's (A12).
        hub.model = "openai/gpt-oss-20b"
        command = [BINARY, "serve", "gpt-oss-20b", "--port", "0"]
        for start in ("first", "second"):
            with subprocess.Popen(command, env=self.environment(HF_ENDPOINT=hub.url), stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True) as server:
                line = server.stdout.readline()
                if line.startswith("listening on "):
                    port = int(line.rsplit(":", 1)[1])
                    with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=30) as page:
                        names = page.read().decode()
                server.terminate()
                log = server.communicate(timeout=60)[1]
            self.assertTrue(line.startswith("listening on "), log)
            self.assertIn('"gpt-oss-20b"', names)
            self.assertEqual("openai/gpt-oss-20b is not on this machine: fetching it" in log, start == "first", log)
        self.expect(0, self.pelton("inspect", "gpt-oss-20b"))
        self.expect(0, self.pelton("cache", "purge", "gpt-oss-20b"))
        self.expect(0, self.pelton("pull", "gpt-oss-20b", HF_ENDPOINT=hub.url))
        self.expect(0, self.pelton("tokenize", "gpt-oss-20b", "--text", "x"))

    def test_A11_what_cannot_be_fetched(self):
        hub = self.hub(self.tiny_files())
        # The hub has no such model: not worth another start (exit 4, as the unit knows).
        done = self.expect(4, self.pelton("serve", "someone/other", "--port", "0", HF_ENDPOINT=hub.url))
        self.assertIn(b"cannot be fetched", done.stderr)
        self.assertIn("RestartPreventExitStatus=2 3 4 5", (ROOT / "packaging/pelton.service").read_text())
        # Not asked for: offline, a folder that is mistyped, a path.
        for model, more in ((MODEL, {"HF_HUB_OFFLINE": "1"}), ("./someone/tiny", {}), ("/no/tiny", {})):
            asked = len(hub.asked)
            self.expect(4, self.pelton("serve", model, "--port", "0", HF_ENDPOINT=hub.url, **more))
            self.assertEqual(len(hub.asked), asked, model)

    def test_A10_a_stop_while_it_fetches_ends_with_0(self):
        hub = self.hub({"model.safetensors": random.Random(5).randbytes(24 << 20), "config.json": b"{}"}, rate=1 << 20)
        with subprocess.Popen([BINARY, "serve", MODEL, "--port", "0"], env=self.environment(HF_ENDPOINT=hub.url),
                              stderr=subprocess.PIPE, text=True) as server:
            while "fetching it" not in server.stderr.readline():
                pass
            time.sleep(0.5)
            server.terminate()
            log = server.stderr.read()
            self.assertEqual(server.wait(60), 0, log)
        self.assertIn("stopped while the model was being loaded", log)

    def test_a_killed_pull_continues(self):
        weights = random.Random(5).randbytes(24 << 20)
        hub = self.hub({"model.safetensors": weights, "config.json": b"{}"}, rate=4 << 20)
        command = [BINARY, "pull", MODEL, "--endpoint", hub.url, "--connections", "3"]
        blobs = self.cache / "models--someone--tiny" / "blobs"
        kills = 0
        for target in (4 << 20, 10 << 20, 16 << 20):
            with subprocess.Popen(command, env=self.environment(), stderr=subprocess.DEVNULL,
                                  stdout=subprocess.DEVNULL) as running:
                deadline = time.monotonic() + 60
                while hub.sent < target and running.poll() is None and time.monotonic() < deadline:
                    time.sleep(0.02)
                running.kill()
                kills += running.wait() == -9
        self.assertEqual(kills, 3)
        self.assertTrue(list(blobs.glob("*.incomplete")))
        self.assertFalse((self.cache / "models--someone--tiny" / "refs").exists())
        hub.rate = None
        time.sleep(0.5)  # answers to the dead end
        sent = hub.sent
        done = self.expect(0, self.pelton(*command[1:]))
        self.assertLess(hub.sent - sent, 16 << 20)
        got = pathlib.Path(done.stdout.decode().strip()) / "model.safetensors"
        self.assertEqual(got.read_bytes(), weights)
        self.assertFalse(list(blobs.glob("*pelton*")))
        self.assertTrue(got.is_symlink())

    def test_ctrl_c_is_130_and_keeps_what_came(self):
        hub = self.hub({"model.safetensors": bytes(16 << 20)}, rate=1 << 20)
        with subprocess.Popen([BINARY, "pull", MODEL, "--endpoint", hub.url], env=self.environment(),
                              stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as running:
            while hub.sent < 2 << 20 and running.poll() is None:
                time.sleep(0.02)
            running.send_signal(2)
            self.assertIn(b"continues", running.stderr.read())
            self.assertEqual(running.wait(30), 130)

    def test_a_token_opens_a_private_model(self):
        hub = self.hub({"config.json": b"{}"})
        hub.private = True
        done = self.expect(4, self.pelton("pull", MODEL, "--endpoint", hub.url))
        self.assertIn(b"HF_TOKEN", done.stderr)
        done = self.expect(4, self.pelton("pull", MODEL, "--endpoint", hub.url, HF_TOKEN="hf_wrong"))
        self.assertNotIn(b"hf_wrong", done.stderr)
        self.expect(0, self.pelton("pull", MODEL, "--endpoint", hub.url, HF_TOKEN="hf_good"))

    def test_C10_without_a_network_it_says_so_at_once_and_ends(self):
        begin = time.monotonic()
        with subprocess.Popen([BINARY, "pull", MODEL, "--endpoint", "http://127.0.0.1:1"], env=self.environment(),
                              stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as running:
            first = running.stderr.readline()
            self.assertRegex(first, r"127\.0\.0\.1:1.*trying again in .* \(2 of 4\)")
            self.assertLess(time.monotonic() - begin, 20)
            rest = running.stderr.read()
            self.assertEqual(running.wait(60), 1)
        self.assertIn("(3 of 4)", rest)
        self.assertIn("is there a network", rest)
        self.assertLess(time.monotonic() - begin, 40)

    def test_wrong_uses(self):
        hub = self.hub({"config.json": b"{}"})
        self.expect(2, self.pelton("pull", "../x", "--endpoint", hub.url))
        self.expect(2, self.pelton("pull", MODEL, "--endpoint", "nowhere"))
        self.expect(4, self.pelton("pull", "someone/other", "--endpoint", hub.url))
        self.expect(1, self.pelton("pull", MODEL, "--endpoint", hub.url, HF_HUB_OFFLINE="1"))


if __name__ == "__main__":
    BINARY = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
