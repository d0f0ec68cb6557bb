#!/usr/bin/env python3
"""pelton ps, stop, list and rm, and fetching that is forbidden.

usage: processes_test.py BINARY
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
BOX = ROOT / "models" / "pelton-box"
BINARY = None


def pelton(*words, env=None):
    return subprocess.run([BINARY, *map(str, words)], capture_output=True, text=True, timeout=120, check=False,
                          env={**os.environ, **(env or {})})


class Processes(unittest.TestCase):
    def start(self, *words):
        process = subprocess.Popen([BINARY, "serve", BOX, "--port", "0", *map(str, words)], stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL, text=True)

        def end():
            process.kill()
            process.wait(30)
            process.stdout.close()
        self.addCleanup(end)
        self.port = int(process.stdout.readline().rsplit(":", 1)[1])
        return process

    def running(self):
        return {one["pid"]: one for one in json.loads(pelton("ps", "--json").stdout)}

    def test_a_server_is_listed_and_stopped_by_its_models_name(self):
        name = f"mine-{os.getpid()}"
        server = self.start("--served-model-name", name, "other")
        seen = self.running()[server.pid]
        self.assertEqual([name], seen["models"])
        self.assertEqual(f"http://127.0.0.1:{self.port}", seen["url"])
        self.assertIn(self.port, seen["ports"])
        self.assertGreater(seen["memory_bytes"], 1 << 20)
        self.assertRegex(pelton("ps").stdout, rf"(?m)^{server.pid} .*{name}$")
        wrong = pelton("stop", "no-such-model")
        self.assertEqual(4, wrong.returncode, wrong.stderr)
        self.assertIn("no-such-model", wrong.stderr)
        done = pelton("stop", name)
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertEqual(0, server.wait(30))
        self.assertNotIn(server.pid, self.running())

    def ask(self, path, body=None):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}",
                                         None if body is None else json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.loads(answer.read())

    def test_one_that_sleeps_gives_its_memory_back_and_says_how_long_it_took_to_wake(self):
        name = f"mine-{os.getpid()}"
        server = self.start("--served-model-name", name, "--enable-sleep-mode", "--sleep-after", "1h",
                            "--kv-cache-memory", "64MiB")
        question = {"messages": [{"role": "user", "content": "What is 12 + 30?"}], "seed": 7, "max_tokens": 40}
        words = self.ask("/v1/chat/completions", question)["choices"][0]["message"]
        awake = self.running()[server.pid]
        self.assertEqual([""], awake["states"])
        self.ask("/sleep", {})
        asleep = self.running()[server.pid]
        self.assertEqual(([name], ["asleep"]), (asleep["models"], asleep["states"]))
        self.assertLess(asleep["memory_bytes"], awake["memory_bytes"])
        self.assertEqual(words, self.ask("/v1/chat/completions", question)["choices"][0]["message"])
        self.assertRegex(self.running()[server.pid]["states"][0], "^cold start [0-9.]+ m?s$")
        self.assertRegex(pelton("ps").stdout, rf"(?m)^{server.pid} .*{name} \(cold start [0-9.]+ m?s\)$")
        self.ask("/v1/chat/completions", {**question, "keep_alive": 0})
        for _ in range(1000):
            if self.ask("/is_sleeping")["is_sleeping"]:
                break
            time.sleep(0.01)
        self.assertTrue(self.ask("/is_sleeping")["is_sleeping"])

    def test_one_that_asks_for_a_key_is_stopped_by_its_url(self):
        server = self.start("--api-key", "sesame", "second")
        seen = self.running()[server.pid]
        self.assertEqual([], seen["models"])
        self.assertIn("asks for a key", pelton("ps").stdout)
        words = pathlib.Path(f"/proc/{server.pid}/cmdline").read_text()
        for secret in ("sesame", "second"):
            self.assertNotIn(secret, words)
        self.assertEqual(0, pelton("stop", seen["url"] + "/").returncode)
        self.assertEqual(0, server.wait(30))

    def test_kept_models_are_listed_and_removed(self):
        with tempfile.TemporaryDirectory() as hub:
            snapshot = pathlib.Path(hub, "models--mine--small", "snapshots", "abc")
            snapshot.mkdir(parents=True)
            (snapshot / "config.json").write_text("{}")
            env = {"HF_HUB_CACHE": hub}
            self.assertIn("mine/small", pelton("list", env=env).stdout)
            self.assertEqual(pelton("cache", "list", env=env).stdout, pelton("list", env=env).stdout)
            removed = pelton("rm", "mine/small", env=env)
            self.assertEqual(0, removed.returncode, removed.stderr)
            self.assertNotIn("mine/small", pelton("list", env=env).stdout)
            self.assertNotEqual(0, pelton("rm", "mine/small", env=env).returncode)

    def test_offline_nothing_is_fetched(self):
        with tempfile.TemporaryDirectory() as hub:
            # An endpoint that nobody listens at: who asked it would say so.
            env = {"HF_HUB_CACHE": hub, "HF_ENDPOINT": "http://127.0.0.1:9"}
            for words, more in ((("--offline",), {}), ((), {"HF_HUB_OFFLINE": "1"})):
                done = pelton("serve", "mine/small", "--port", "0", *words, env={**env, **more})
                self.assertEqual(4, done.returncode, done.stderr)
                self.assertNotIn("127.0.0.1:9", done.stderr)
                self.assertIn("mine/small", done.stderr)


if __name__ == "__main__":
    BINARY = sys.argv.pop(1)
    unittest.main()
