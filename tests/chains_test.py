#!/usr/bin/env python3
"""Chains on the model in the box: the three of chains/ answer, whole and as events, by the server and by `pelton chain
run`; a client that leaves leaves nothing behind; the caller's limits hold for what a chain asks; a server that dies amid
a chain is an error that names the step; files that are wrong end the start with their line.

usage: chains_test.py BINARY
"""
import http.client
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock

import gateway_fixture

ROOT = pathlib.Path(__file__).resolve().parent.parent
BOX = ROOT / "models" / "pelton-box"
BINARY = None
PASSAGES = ["A Pelton wheel is a water turbine: a jet of water turns it.", "Lester Pelton was an American inventor.",
            "A cat sleeps most of the day.", "Bread is made of flour and water."]
SLOW = {"step_ms": 5, "slots": 16, "blocks": 4000, "context": 8192, "rules": [
    {"when": "", "then": "<|channel|>final<|message|>Hi.<|return|>"},
    {"when": "count for ", "then": ["<|channel|>final<|message|>", {"counted": 1}, "<|return|>"]}]}


class Server:
    """One `pelton serve`, with its ports."""

    def __init__(self, folder, *flags, model=BOX):
        self.log = open(folder / "log", "a", encoding="utf-8")
        self.process = subprocess.Popen([BINARY, "serve", model, "--port", "0", "--admin-port", "0", *map(str, flags)],
                                        stdout=subprocess.PIPE, stderr=self.log, text=True)
        lines = [self.process.stdout.readline() for _ in range(2)]
        self.url, self.admin = (line.split()[-1] for line in lines)

    def connection(self, url=None):
        return http.client.HTTPConnection((url or self.url).split("//")[1], timeout=120)

    def ask(self, method, path, body=None, url=None, key=None):
        connection = self.connection(url)
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
        connection.request(method, path, body=None if body is None else json.dumps(body), headers=headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, text

    def close(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait(30)
        self.process.stdout.close()
        self.log.close()


def events_of(text):
    """[(name, data)] of server-sent events."""
    events = []
    for block in text.strip().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
        events.append((fields.get("event", ""), fields["data"]))
    return events


class Chains(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory(prefix="pelton_chains_")
        cls.folder = pathlib.Path(cls.temporary.name)
        cls.server = Server(cls.folder, "--chains", ROOT / "chains")

    @classmethod
    def tearDownClass(cls):
        cls.server.close()
        cls.temporary.cleanup()

    def start(self, *flags, model=BOX):
        server = Server(self.folder, *flags, model=model)
        self.addCleanup(server.close)
        return server

    def run_chain(self, name, value, **more):
        status, text = self.server.ask("POST", f"/v1/chains/{name}", {"input": value, **more})
        self.assertEqual(status, 200, text)
        return text

    def clean(self, server):
        for _ in range(200):
            ledger = json.loads(server.ask("GET", "/debug/ledger", url=server.admin)[1])
            if ledger["clean"]:
                return
            time.sleep(0.05)
        self.fail(f"something is left: {ledger}")

    def test_it_finds_passages_and_answers_from_them(self):
        run = json.loads(self.run_chain("retrieve", {"question": "What is a Pelton wheel?", "passages": PASSAGES, "keep": 3}))
        self.assertEqual(len(run["output"]["passages"]), 3)
        self.assertLessEqual(set(run["output"]["passages"]), set(PASSAGES))
        self.assertTrue(run["output"]["text"])
        self.assertEqual([step["name"] for step in run["steps"]], ["asked", "embedded", "near", "best", "context", "answer"])
        self.assertGreater(run["usage"]["prompt_tokens"], 0)

    def test_it_drafts_and_revises(self):
        output = json.loads(self.run_chain("revise", {"question": "What is a Pelton wheel?"}))["output"]
        self.assertIn("turbine", output["draft"])
        self.assertTrue(output["text"] and output["criticism"])
        self.assertEqual(output["revised"], not output["criticism"].startswith("fine"))

    def test_it_asks_every_piece(self):
        questions = [f"What is {10 + i} plus {20 + i}? " for i in range(12)]
        output = json.loads(self.run_chain("long_document", {"document": "".join(questions), "task": "Answer", "piece_characters": 22}))["output"]
        self.assertGreaterEqual(output["pieces"], 12)
        self.assertGreaterEqual(len(output["text"].splitlines()), 12)

    def test_events_say_what_the_whole_answer_says(self):
        value = {"question": "What is a Pelton wheel?", "passages": PASSAGES}
        events = events_of(self.run_chain("retrieve", value, stream=True))
        self.assertEqual(events[-1], ("", "[DONE]"))
        names = [name for name, _ in events]
        self.assertEqual(names.count("step.started"), 6)
        self.assertEqual(names.count("step.done"), 6)
        done = json.loads(events[-2][1])
        text = "".join(json.loads(data)["text"] for name, data in events if name == "output.delta")
        self.assertGreater(names.count("output.delta"), 1)
        self.assertEqual(text, done["output"]["text"])
        self.assertEqual(done["output"], json.loads(self.run_chain("retrieve", value))["output"])

    def test_the_command_line_says_the_same(self):
        value = {"question": "What is a Pelton wheel?", "passages": PASSAGES}
        whole = json.loads(self.run_chain("retrieve", value))["output"]
        file = self.folder / "input.json"
        file.write_text(json.dumps(value))
        words = [BINARY, "chain", "run", ROOT / "chains" / "retrieve.toml", "--input", f"@{file}", "--url", self.server.url]
        for more, expected in (([], whole), (["--json"], whole)):
            done = subprocess.run([*words, *more], capture_output=True, text=True, timeout=120, check=True)
            said = json.loads(done.stdout)
            self.assertEqual(said.get("output", said), expected)
        done = subprocess.run([*words, "--stream"], capture_output=True, text=True, timeout=120, check=True)
        self.assertEqual(done.stdout, whole["text"] + "\n")

    def test_a_chain_is_a_model_of_chats(self):
        names = [one["id"] for one in json.loads(self.server.ask("GET", "/v1/models")[1])["data"]]
        self.assertIn("chain:revise", names)
        self.assertNotIn("chain:retrieve", names)
        chat = {"model": "chain:revise", "temperature": 1, "messages": [{"role": "system", "content": "x"}, {"role": "user", "content": "What is a Pelton wheel?"}]}
        status, text = self.server.ask("POST", "/v1/chat/completions", chat)
        self.assertEqual(status, 200, text)
        answer = json.loads(text)
        expected = json.loads(self.run_chain("revise", {"question": "What is a Pelton wheel?"}))
        self.assertEqual((answer["object"], answer["model"]), ("chat.completion", "chain:revise"))
        self.assertEqual(answer["choices"][0]["message"]["content"], expected["output"]["text"])
        self.assertEqual(answer["usage"]["prompt_tokens"], expected["usage"]["prompt_tokens"])
        status, text = self.server.ask("POST", "/v1/chat/completions", {**chat, "stream": True, "stream_options": {"include_usage": True}})
        self.assertEqual(status, 200, text)
        chunks = [json.loads(data) for _, data in events_of(text)[:-1]]
        self.assertEqual("".join(c["delta"].get("content") or "" for chunk in chunks for c in chunk["choices"]), expected["output"]["text"])
        self.assertEqual(chunks[-1]["usage"]["total_tokens"], expected["usage"]["total_tokens"])
        for model, code in (("chain:nothing", 404), ("chain:retrieve", 400)):
            self.assertEqual(self.server.ask("POST", "/v1/chat/completions", {**chat, "model": model})[0], code)

    def test_what_is_wrong_is_said(self):
        status, text = self.server.ask("POST", "/v1/chains/retreive", {"input": {}})
        self.assertEqual((status, "did you mean 'retrieve'" in text), (404, True), text)
        status, text = self.server.ask("POST", "/v1/chains/retrieve", {"input": {"question": 1, "passages": []}})
        self.assertEqual((status, "'input.question' must be string" in text), (400, True), text)
        status, text = self.server.ask("POST", "/v1/chains/retrieve", {"input": {"question": "x", "passages": []}})
        self.assertEqual((status, "step 'embedded'" in text), (400, True), text)
        listed = json.loads(self.server.ask("GET", "/v1/chains")[1])["data"]
        self.assertEqual([one["id"] for one in listed], ["long_document", "retrieve", "revise"])
        self.assertEqual(listed[1]["input"]["passages"], "[string]")

    def test_a_wrong_file_ends_the_start(self):
        chains = self.folder / "wrong"
        chains.mkdir()
        (chains / "a.toml").write_text('name = "a"\noutput = {t = "${b.text}"}\n[[step]]\nname = "b"\nuse = "exec:ls"\n')
        done = subprocess.run([BINARY, "serve", BOX, "--port", "0", "--chains", chains], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("a.toml:5: step 'b': 'use' exec: steps are not run", done.stderr)
        (chains / "a.toml").write_text('name = "a"\noutput = {t = "${b.status}"}\n[[step]]\nname = "b"\nuse = "http:http://h/x"\n')
        done = subprocess.run([BINARY, "serve", BOX, "--port", "0", "--chains", chains], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("asks h:80, and no host is allowed", done.stderr)

    def slow_server(self, *flags):
        script = self.folder / "slow.json"
        script.write_text(json.dumps(SLOW))
        return self.start("--chains", ROOT / "chains", "--executor", f"modelled:{script}", *flags)

    LONG = {"document": "".join(f"count for {i} 2000 0 . " for i in range(40)), "task": "do", "piece_characters": 30}

    def test_a_client_that_leaves_leaves_nothing(self):
        server = self.slow_server()
        connection = server.connection()
        connection.request("POST", "/v1/chains/long_document", json.dumps({"input": self.LONG, "stream": True}), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        while b"step.started" not in (line := answer.readline()) or b"event" not in line:
            self.assertTrue(line)
        running = json.loads(server.ask("GET", "/debug/ledger", url=server.admin)[1])
        self.assertFalse(running["clean"])
        answer.close()
        connection.close()
        self.clean(server)

    def test_the_callers_limits_hold(self):
        keys = self.folder / "keys"
        keys.write_text("one tenant 1 concurrent=1\nmany other 1 concurrent=100\n")
        server = self.start("--chains", ROOT / "chains", "--api-key-file", keys)
        chain = {"input": {"question": "What is a Pelton wheel?", "passages": PASSAGES}}
        self.assertEqual(server.ask("POST", "/v1/chains/retrieve", chain)[0], 401)
        status, text = server.ask("POST", "/v1/chains/retrieve", chain, key="many")
        self.assertEqual(status, 200, text)
        # The first two steps run side by side, which this key may not.
        status, text = server.ask("POST", "/v1/chains/retrieve", chain, key="one")
        self.assertEqual((status, "answered 429" in text), (429, True), text)

    def test_a_deadline_holds_for_all_of_it(self):
        server = self.slow_server()
        status, text = server.ask("POST", "/v1/chains/long_document", {"input": self.LONG, "timeout": 0.3})
        self.assertEqual((status, "chain_deadline" in text), (408, True), text)
        self.clean(server)

    def test_a_server_that_dies_is_an_error_that_names_the_step(self):
        server = self.slow_server()
        process = subprocess.Popen([BINARY, "chain", "run", ROOT / "chains" / "long_document.toml", "--url", server.url,
                                    "--input", json.dumps(self.LONG)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while json.loads(server.ask("GET", "/debug/ledger", url=server.admin)[1])["clean"]:
            time.sleep(0.01)
        server.close()
        _, said = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 1, said)
        self.assertIn("step 'answers', piece", said)

    def test_behind_a_gateway_a_worker_that_dies_is_not_seen(self):
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.dict(os.environ, {"PELTON_CHAINS": str(ROOT / "chains")}):
            fleet = gateway_fixture.Fleet(folder, 3, script=SLOW)
            self.addCleanup(fleet.close)
            body = json.dumps({"input": {**self.LONG, "document": self.LONG["document"].replace("2000", "100")}})

            def run():
                connection = http.client.HTTPConnection("127.0.0.1", fleet.gateway.port, timeout=120)
                connection.request("POST", "/v1/chains/long_document", body, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                said = answer.status, json.loads(answer.read())
                connection.close()
                return said
            expected = run()
            self.assertEqual(expected[0], 200, expected[1])
            results = []
            client = threading.Thread(target=lambda: results.append(run()))
            client.start()
            while not any(row["running"] for row in fleet.rows()):
                time.sleep(0.01)
            fleet.kill(0)
            client.join()
            self.assertEqual(results[0][0], 200, results[0][1])
            self.assertEqual(results[0][1]["output"], expected[1]["output"])

    def test_any_model_is_the_one_that_several_pools_have(self):
        other = '[[pool]]\nname = "other"\nmodel = "MODEL"\n[[route]]\nmodel = "pelton-box"\nto = [{pool = "box", weight = 1}]\n'
        for model, status in (("pelton-box", 200), ("another", 404)):
            with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.dict(os.environ, {"PELTON_CHAINS": str(ROOT / "chains")}):
                fleet = gateway_fixture.Fleet(folder, 1, script=SLOW, pool=other.replace("MODEL", model))
                self.addCleanup(fleet.close)
                connection = http.client.HTTPConnection("127.0.0.1", fleet.gateway.port, timeout=120)
                connection.request("POST", "/v1/chains/revise", json.dumps({"input": {"question": "Why?"}}), {"Content-Type": "application/json"})
                answer = connection.getresponse()
                said = answer.read().decode()
                connection.close()
                self.assertEqual(answer.status, status, said)

    def test_a_gateway_that_is_being_stopped_begins_no_run(self):
        """Whose request was on its way when the gateway was stopped is answered 503: a run would be cut amid its requests."""
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.dict(os.environ, {"PELTON_CHAINS": str(ROOT / "chains")}):
            fleet = gateway_fixture.Fleet(folder, 1, script=SLOW)
            self.addCleanup(fleet.close)
            body = json.dumps({"input": self.LONG}).encode()
            with socket.create_connection(("127.0.0.1", fleet.gateway.port), timeout=60) as link:
                link.sendall(b"POST /v1/chains/long_document HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                             % len(body) + body[:100])
                time.sleep(0.3)
                fleet.gateway.process.terminate()
                end = time.monotonic() + 30
                while time.monotonic() < end:  # it takes no more connections
                    try:
                        socket.create_connection(("127.0.0.1", fleet.gateway.port), timeout=5).close()
                    except OSError:
                        break
                    time.sleep(0.05)
                link.sendall(body[100:])
                answer = b"".join(iter(lambda: link.recv(65536), b"")).decode()
            self.assertTrue(answer.startswith("HTTP/1.1 503 "), answer[:300])
            self.assertIn('"draining"', answer[:2000])
            self.assertRegex(answer[:2000], "(?i)retry-after: 1")


if __name__ == "__main__":
    BINARY = pathlib.Path(sys.argv.pop(1)).resolve()
    gateway_fixture.BINARY = BINARY
    unittest.main(verbosity=2)
