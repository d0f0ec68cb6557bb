#!/usr/bin/env python3
"""The operator's listener of `pelton serve`: after any load nothing is left; keys, tenants and defaults.

usage: admin_test.py BINARY
"""
import contextlib
import http.client
import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
BINARY = None
TOOLS = [{"type": "function", "function": {"name": "look"}}]


def user(words):
    return {"role": "user", "content": words}


class Admin(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.model = cls.folder.name + "/model"
        subprocess.run([BINARY, "synth", "--like", str(ROOT / "testdata/demo_model.json"), cls.model], check=True,
                       capture_output=True)
        cls.script = cls.write("script.json", json.dumps({"step_ms": 1, "rules": [
            {"when": "", "then": "<|channel|>final<|message|>Short.<|return|>"},
            {"when": "long", "then": ["<|channel|>final<|message|>", {"text": "and on ", "times": 2000}]},
            {"when": "tool", "then": "<|channel|>analysis<|message|>Let me look at that with care.<|end|><|start|>"
                                     "assistant<|channel|>commentary to=functions.look <|constrain|>json<|message|>"
                                     "{  \"at\" :  [1 ,2]  }<|call|>"},
            {"when": "seen", "then": "<|channel|>final<|message|>Done.<|return|>"}]}))

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def write(cls, name, text):
        path = pathlib.Path(cls.folder.name) / name
        path.write_text(text)
        return str(path)

    def serve(self, *flags):
        """A running server: process, port, admin port."""
        server = subprocess.Popen([BINARY, "serve", self.model, "--port", "0", "--admin-port", "0", "--executor",
                                   "modelled:" + self.script, *flags], stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL)

        def end():
            server.kill()
            server.wait()
            server.stdout.close()
        self.addCleanup(end)
        first, second = server.stdout.readline().decode(), server.stdout.readline().decode()
        self.assertRegex(first, r"^listening on http://127\.0\.0\.1:\d+\n$")
        self.assertRegex(second, r"^admin on http://127\.0\.0\.1:\d+\n$")
        return server, int(first.rsplit(":", 1)[1]), int(second.rsplit(":", 1)[1])

    def get(self, port, path):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read()
        connection.close()
        return response.status, body

    def chat(self, port, messages, key=None, **fields):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        headers = {"Authorization": "Bearer " + key} if key else {}
        connection.request("POST", "/v1/chat/completions",
                           json.dumps({"messages": messages, "tools": TOOLS, **fields}), headers)
        response = connection.getresponse()
        body = json.loads(response.read())
        connection.close()
        return response.status, body

    def ledger(self, port):
        status, body = self.get(port, "/debug/ledger")
        self.assertEqual(status, 200)
        return json.loads(body)

    def settled(self, port, like=None):
        """The ledger once it is clean, and holds as many descriptors and threads as `like`; or after 30 s."""
        end = time.monotonic() + 30
        while True:
            now = self.ledger(port)
            same = like is None or (now["process"]["descriptors"] == like["process"]["descriptors"] and
                                    now["process"]["threads"] == like["process"]["threads"])
            if (now["clean"] and same) or time.monotonic() > end:
                return now
            time.sleep(0.02)

    def left_in_the_middle(self, port, dice):
        """A streamed request whose client goes after some bytes, politely or not; or that is nonsense."""
        body = json.dumps({"messages": [user("long")], "stream": dice.random() < 0.7}).encode()
        if dice.random() < 0.2:
            body = body[:-3]
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
        sent = (head + body)[:dice.choice([5, len(head) + 3, 10_000, 10_000, 10_000])]
        with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
            if dice.random() < 0.5:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            client.sendall(sent)
            if len(sent) > len(head) + 3:
                time.sleep(dice.random() * 0.05)
                if dice.random() < 0.5:
                    client.settimeout(0.1)  # one that is not streamed takes longer
                    with contextlib.suppress(TimeoutError):
                        client.recv(100)

    def test_nothing_is_left_of_any_load(self):
        seed = int(os.environ.get("PELTON_SEED", random.SystemRandom().randrange(1 << 30)))
        print(f"PELTON_SEED={seed}")
        _, port, admin = self.serve()
        self.chat(port, [user("x")])
        before = self.settled(admin)
        self.assertTrue(before["clean"])
        self.assertEqual(before["state"], "serving")
        failures, dirty = [], []

        def work(index):
            dice = random.Random(seed + index)
            try:
                for _ in range(40):
                    if dice.random() < 0.7:
                        self.left_in_the_middle(port, dice)
                    else:
                        status, _ = self.chat(port, [user("x")])
                        if status not in (200, 429):
                            failures.append(status)
            except OSError as error:
                failures.append(error)
        workers = [threading.Thread(target=work, args=(index,)) for index in range(6)]
        for worker in workers:
            worker.start()
        while any(worker.is_alive() for worker in workers):
            dirty.append(not self.ledger(admin)["clean"])
            time.sleep(0.02)
        for worker in workers:
            worker.join()
        self.assertEqual(failures, [])
        self.assertTrue(any(dirty), "the load was never seen")
        after = self.settled(admin, before)
        self.assertTrue(after["clean"], after)
        self.assertEqual(after["process"]["descriptors"], before["process"]["descriptors"])
        self.assertEqual(after["process"]["threads"], before["process"]["threads"])
        self.assertEqual(after["engine"]["slots_free"], before["engine"]["slots_free"])
        self.assertEqual(after["engine"]["queue"], {"requests": 0, "tokens": 0})
        requests = after["server"]["requests"]
        self.assertEqual(requests["received"], sum(requests[kind] for kind in (
            "ok", "client_errors", "server_errors", "cancelled")))
        self.assertGreater(requests["cancelled"], 0)
        self.assertEqual(self.chat(port, [user("x")])[0], 200)

    def test_hostile_requests(self):
        _, port, admin = self.serve()
        before = self.settled(admin)
        idle = [socket.create_connection(("127.0.0.1", admin), timeout=30) for _ in range(20)]
        for sent in (b"\0" * 1000, b"GET " + b"/" * 100_000, b"GET /debug/ledger HTTP/9.9\r\n\r\n",
                     b"GET /debug/../metrics HTTP/1.1\r\nHost: localhost\r\n\r\n",
                     b"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n",
                     b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"):
            with socket.create_connection(("127.0.0.1", admin), timeout=30) as client:
                client.sendall(sent)
                answer = client.recv(100)
                self.assertRegex(answer, rb"^HTTP/1\.[01] (4\d\d|505) ")
        self.assertEqual(self.get(admin, "/health")[0], 200)  # beside all these
        for client in idle:
            client.close()
        after = self.settled(admin, before)
        self.assertEqual(after["process"]["descriptors"], before["process"]["descriptors"])
        self.assertEqual(self.get(port, "/debug/ledger")[0], 404)
        self.assertEqual(self.get(admin, "/v1/models")[0], 404)

    def test_metrics_and_tool_loop(self):
        _, port, admin = self.serve()
        asked = [user("tool")]
        _, first = self.chat(port, asked)
        message = first["choices"][0]["message"]
        call = message["tool_calls"][0]
        # As most clients do: without the reasoning, the arguments parsed and written anew.
        call["function"]["arguments"] = json.dumps(json.loads(call["function"]["arguments"]))
        again = asked + [{"role": "assistant", "content": None, "tool_calls": [call]},
                         {"role": "tool", "tool_call_id": call["id"], "content": "seen"}]
        _, second = self.chat(port, again)
        self.assertEqual(second["choices"][0]["message"]["content"], "Done.")
        cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
        self.assertGreater(cached, first["usage"]["total_tokens"] - 18)
        text = self.get(admin, "/metrics")[1].decode()
        values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        labels = '{model_name="model",engine="0"}'
        self.assertEqual(float(values["vllm:prefix_cache_hits_total" + labels]), cached)
        self.assertEqual(float(values["vllm:prompt_tokens_total" + labels]),
                         first["usage"]["prompt_tokens"] + second["usage"]["prompt_tokens"])
        self.assertEqual(values["vllm:time_to_first_token_seconds_count" + labels], "2")
        self.assertEqual(values["pelton_sampled_turn_hits_total"], "1")
        self.assertEqual(self.get(port, "/metrics")[0], 200)

    def test_keys_are_tenants(self):
        keys = self.write("keys", "# ours\nsk-ann ann 2\nsk-bob bob\n")
        _, port, _ = self.serve("--api-key-file", keys)
        asked = [user("x" * 500)]
        self.assertEqual(self.chat(port, asked)[0], 401)
        self.assertEqual(self.chat(port, asked, key="sk-an")[0], 401)

        def cached(key, **fields):
            status, body = self.chat(port, asked, key=key, **fields)
            self.assertEqual(status, 200, body)
            return body["usage"]["prompt_tokens_details"]["cached_tokens"]
        self.assertEqual(cached("sk-ann"), 0)
        self.assertGreater(cached("sk-ann"), 0)
        self.assertEqual(cached("sk-bob"), 0)
        self.assertEqual(cached("sk-ann", cache_salt="mine"), 0)
        self.assertEqual(cached("sk-bob", cache_salt="mine"), 0)
        self.assertGreater(cached("sk-ann", cache_salt="mine"), 0)
        status, body = self.chat(port, asked, key="sk-ann", cache_salt="x" * 1025)
        self.assertEqual((status, body["error"]["param"]), (400, "cache_salt"))
        self.assertIn("1024", body["error"]["message"])

    def test_wrong_configuration(self):
        bad = self.write("bad_keys", "sk-one\nsk-secret ann heavy\n")
        empty = self.write("no_keys", "# none\n")
        for code, word, flags in ((3, b"bad_keys:2", ["--api-key-file", bad]), (3, b"no key", ["--api-key-file", empty]),
                                  (3, b"nowhere", ["--api-key-file", "/nowhere"]),
                                  (2, b"--admin-port", ["--admin-port", "70000"]),
                                  (2, b"--generation-config", ["--generation-config", "perhaps"])):
            done = subprocess.run([BINARY, "serve", self.model, "--port", "0", *flags], capture_output=True,
                                  timeout=60, check=False)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(word, done.stderr)
            self.assertNotIn(b"secret", done.stderr)
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            done = subprocess.run([BINARY, "serve", self.model, "--port", "0", "--admin-port",
                                   str(taken.getsockname()[1])], capture_output=True, timeout=60, check=False)
            self.assertEqual(done.returncode, 6, done.stderr)

    def test_the_operator_sees_the_server_drain(self):
        server, port, admin = self.serve()
        answer = []
        asking = threading.Thread(target=lambda: answer.append(self.chat(port, [user("long")], max_tokens=1500)))
        asking.start()
        while self.ledger(admin)["engine"]["sequences"]["running"] == 0:
            time.sleep(0.01)
        server.send_signal(signal.SIGTERM)
        while self.get(admin, "/ready")[0] != 503:
            time.sleep(0.01)
        self.assertEqual(self.ledger(admin)["state"], "draining")
        self.assertEqual(self.get(admin, "/health")[0], 200)
        asking.join()
        self.assertEqual(answer[0][0], 200)
        self.assertEqual(server.wait(30), 0)


if __name__ == "__main__":
    BINARY = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
