#!/usr/bin/env python3
"""The C++ client against the model in the box: its answers are curl's, streams are the whole answers, chains run, what is
refused is said, a stream that the caller ends frees the server; and against servers that are broken.

usage: cpp_client_test.py PELTON PELTON_CLIENT_EXAMPLE
"""
import json
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request

import chains_test

CLIENT = None
QUESTION = "What is a Pelton wheel?"
CHAIN = '''name = "short"
input = {question = "string"}
output = {text = "${answer.text}", stream_from = "answer"}
[[step]]
name = "answer"
use = "model:*"
with = {prompt = "${input.question}", max_tokens = 20, temperature = 0}
'''


def client(url, *words):
    return subprocess.run([CLIENT, url, *words], capture_output=True, text=True, timeout=120, check=False)


class Scripted:
    """Answers each connection with the next of `answers`, bytes; the last one for ever."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection:
                got = b""
                while b"\r\n\r\n" not in got:
                    got += connection.recv(65536)
                self.asked.append(got)
                connection.sendall(self.answers[0] if len(self.answers) == 1 else self.answers.pop(0))

    def close(self):
        self.listener.close()


def answer(status, body, *headers):
    head = "\r\n".join([f"HTTP/1.1 {status}", "Connection: close", *headers])
    return f"{head}\r\n\r\n{body}".encode()


WHOLE = answer("200 OK", json.dumps({"choices": [{"message": {"content": "Hello."}, "finish_reason": "stop"}]}))


class CppClient(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        folder = pathlib.Path(cls.folder.name)
        (folder / "chains").mkdir()
        (folder / "chains" / "short.toml").write_text(CHAIN, encoding="utf-8")
        cls.server = chains_test.Server(folder, "--chains", folder / "chains")
        cls.addClassCleanup(cls.server.close)

    def scripted(self, *answers):
        server = Scripted(*answers)
        self.addCleanup(server.close)
        return server

    def test_an_answer_is_the_servers(self):
        status, text = self.server.ask("POST", "/v1/chat/completions",
                                       {"messages": [{"role": "user", "content": QUESTION}], "temperature": 0})
        self.assertEqual(status, 200)
        expected = json.loads(text)["choices"][0]["message"]["content"]
        self.assertGreater(len(expected), 20)
        whole = client(self.server.url, "chat", QUESTION)
        self.assertEqual(whole.stdout, expected + "\n", whole.stderr)
        streamed = client(self.server.url, "stream", QUESTION)
        self.assertEqual(streamed.stdout, expected + "\n", streamed.stderr)
        self.assertEqual(streamed.stderr, whole.stderr)  # as many tokens, and why it ended
        self.assertIn("stop", whole.stderr)
        self.assertIn("pelton-box", client(self.server.url, "models").stdout)

    def test_a_chain(self):
        whole = client(self.server.url, "chain", "short", json.dumps({"question": QUESTION}))
        self.assertTrue(json.loads(whole.stdout)["text"], whole.stderr)
        events = client(self.server.url, "events", "short", json.dumps({"question": QUESTION}))
        self.assertEqual(events.stdout, whole.stdout)
        self.assertIn("step.started", events.stderr)
        self.assertIn("run.done", events.stderr)
        for name, given, said in (("none", "{}", "status 404"), ("short", "{}", "status 400"), ("short", "[]", "no JSON object"),
                                  ("short", "{", "no JSON"), ("a/../b", "{}", "status 400"), ("a b", "{}", "status 404")):
            refused = client(self.server.url, "chain", name, given)
            self.assertEqual((refused.returncode, said in refused.stderr), (1, True), (name, given, refused.stderr))

    def test_a_stream_that_the_caller_ends(self):
        ended = client(self.server.url, "--stop-after", "2", "stream", QUESTION)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertIn("ended here", ended.stderr)
        for _ in range(100):
            with urllib.request.urlopen(self.server.admin + "/metrics", timeout=10) as metrics:
                running = [line.split()[-1] for line in metrics.read().decode().splitlines()
                           if line.startswith("vllm:num_requests_running")]
            if running and all(float(one) == 0 for one in running):
                return
            time.sleep(0.05)
        self.fail(f"still running: {running}")

    def test_what_is_refused_for_now_is_tried_again(self):
        later = answer("429 Too Many Requests", '{"error": {"message": "later", "code": "rate_limit_exceeded"}}', "Retry-After: 0")
        server = self.scripted(later, answer("503 Service Unavailable", "starting", "Retry-After: 0"), WHOLE)
        self.assertEqual(client(server.url, "chat", "Hi").stdout, "Hello.\n")
        self.assertEqual(len(server.asked), 3)
        self.assertIn(b"x-request-timeout-ms: ", server.asked[0])
        server = self.scripted(later)
        given_up = client(server.url, "--retries", "1", "chat", "Hi")
        self.assertEqual(given_up.returncode, 1)
        self.assertIn("status 429, code 'rate_limit_exceeded'", given_up.stderr)
        self.assertEqual(len(server.asked), 2)
        # A wait beyond the deadline is none.
        begun = time.monotonic()
        server = self.scripted(answer("503 Service Unavailable", "", "Retry-After: 3600"))
        self.assertEqual(client(server.url, "--timeout-ms", "5000", "chat", "Hi").returncode, 1)
        self.assertLess(time.monotonic() - begun, 4)

    def test_what_is_no_answer_is_said(self):
        piece = 'data: {"choices": [{"delta": {"content": "Hel"}}]}\n\n'
        for body, said in (("<html>", "no JSON"), ("{}", "no choice"), ('{"choices": 7}', "no choice"),
                           ('{"choices": [{"message": {"content": 7}}]}', "")):
            got = client(self.scripted(answer("200 OK", body)).url, "chat", "Hi")
            self.assertEqual(got.returncode, 1 if said else 0, body)
            self.assertIn(said, got.stderr)
        for body, said in ((piece, "broke off"), (piece + "data: {\n\n", "no JSON"),
                           (piece + 'data: {"error": {"message": "lost", "code": "worker_lost"}}\n\n', "code 'worker_lost'"),
                           ('data: {"choices": [{"delta": {"tool_calls": [{"index": 99999999}]}}]}\n\n', "index that is none")):
            got = client(self.scripted(answer("200 OK", body)).url, "stream", "Hi")
            self.assertEqual(got.returncode, 1, body)
            self.assertIn(said, got.stderr)
        # Whatever pieces and line ends the events have.
        for text in ("data: {}\r\n\r\ndata:{\"choices\": [{\"delta\":\r\ndata: {\"content\": \"Hello.\"}}]}\r\n\r\n: note\n\ndata: [DONE]\n\n",
                     "data: {\"choices\": [{\"delta\": {\"content\": \"Hello.\"}}]}\r\rdata: [DONE]\r\r"):
            self.assertEqual(client(self.scripted(answer("200 OK", text)).url, "stream", "Hi").stdout, "Hello.\n")

    def test_nobody_is_there(self):
        with socket.create_server(("127.0.0.1", 0)) as one:
            port = one.getsockname()[1]
        got = client(f"http://127.0.0.1:{port}", "--retries", "0", "chat", "Hi")
        self.assertEqual(got.returncode, 1)
        self.assertIn("status 0", got.stderr)
        self.assertIn("http", client("ftp://x", "models").stderr)
        silent = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(silent.close)
        begun = time.monotonic()
        got = client(f"http://127.0.0.1:{silent.getsockname()[1]}", "--timeout-ms", "500", "models")
        self.assertEqual(got.returncode, 1)
        self.assertLess(time.monotonic() - begun, 10)


if __name__ == "__main__":
    CLIENT = sys.argv.pop(2)
    chains_test.BINARY = sys.argv.pop(1)
    unittest.main(verbosity=2)
