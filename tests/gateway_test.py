#!/usr/bin/env python3
"""A gateway before workers that are processes of their own: they are killed under streams, and no client loses, doubles or mixes
a token, nor sees an error. Each answer is a function of (prompt, seed, position), so that this test knows every letter of it.

usage: gateway_test.py BINARY [--full]
"""
import collections
import http.client
import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

BINARY = None
FULL = False
BOX = pathlib.Path(__file__).resolve().parent.parent / "models" / "pelton-box"
MASK = (1 << 64) - 1
SCRIPT = {"step_ms": 4, "context": 2048, "slots": 128, "rules": [
    {"when": "", "then": "<|channel|>final<|message|>Ready."},
    {"when": "check ", "then": ["<|channel|>final<|message|>", {"checked": 1}]},
    {"when": "think ", "then": ["<|channel|>analysis<|message|>", {"checked": 1}, "<|end|><|start|>assistant<|channel|>final<|message|>",
                                {"checked": 2}]},
    {"when": "call ", "then": ["<|channel|>commentary to=functions.note <|constrain|>json<|message|>{\"text\": \"", {"checked": 1},
                               "\"}<|call|>"]},
]}


def mix64(x):
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 & MASK
    x ^= x >> 27
    x = x * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def random_bits(seed, counter):
    return mix64(mix64(seed & MASK) + (counter + 1) * 0x9E3779B97F4A7C15 & MASK)


def letters(seed, number, count):
    stream = random_bits(seed, number)
    return "".join(chr(ord("a") + random_bits(stream, i) % 26) for i in range(count))


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Process:
    """A server of the binary's, whose log is kept."""

    def __init__(self, *words):
        self.process = subprocess.Popen([BINARY, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.log = collections.deque(maxlen=2000)
        self.reader = threading.Thread(target=lambda: self.log.extend(self.process.stderr), daemon=True)
        self.reader.start()
        line = self.process.stdout.readline()
        assert line.startswith("listening on "), (words, list(self.log), line)
        self.port = int(line.rsplit(":", 1)[1])
        self.lines = threading.Thread(target=self.process.stdout.read, daemon=True)

    def end(self, how=signal.SIGKILL):
        self.process.send_signal(how)
        self.process.wait(30)
        self.reader.join()
        self.process.stdout.close()
        self.process.stderr.close()


class Fleet:
    """Workers at fixed fleet ports, which may be killed and started again, and one gateway."""

    def __init__(self, folder, workers, script=None, gateway=()):
        self.folder = pathlib.Path(folder)
        self.script = self.folder / "script.json"
        self.script.write_text(json.dumps(script or SCRIPT))
        self.key = self.folder / "fleet.key"
        if not self.key.exists():
            subprocess.run([BINARY, "gateway", "--new-key", self.key], check=True)
        self.ports = [free_port() for _ in range(workers)]
        self.workers = [None] * workers
        starts = [threading.Thread(target=self.start, args=(i,)) for i in range(workers)]
        for one in starts:
            one.start()
        for one in starts:
            one.join()
        self.admin = free_port()
        config = [f'[gateway]\nlisten = "127.0.0.1:0"\nadmin = "127.0.0.1:{self.admin}"\nfleet_key_file = "{self.key}"\n', *gateway,
                  '[[pool]]\nname = "box"\nmodel = "pelton-box"\n']
        config += [f'[[worker]]\npool = "box"\nurl = "http://127.0.0.1:{port}"\n' for port in self.ports]
        self.config = self.folder / "gateway.toml"
        self.config.write_text("".join(config))
        self.gateway = Process("gateway", "--config", self.config)
        self.wait_for(workers)

    def start(self, i):
        self.workers[i] = Process("serve", BOX, "--executor", f"modelled:{self.script}", "--port", "0", "--fleet-port",
                                  self.ports[i], "--fleet-name", f"w{i}", "--fleet-key-file", self.key)

    def kill(self, i):
        worker, self.workers[i] = self.workers[i], None
        worker.end()

    def close(self):
        self.gateway.end()
        for worker in self.workers:
            if worker is not None:
                worker.end()

    def rows(self):
        return json.loads(ask(self.admin, "GET", "/v1/workers")[1])["workers"]

    def ready(self):
        return sum(row["state"] == "ready" for row in self.rows())

    def wait_for(self, count):
        end = time.monotonic() + 15
        while self.ready() != count:
            assert time.monotonic() < end, (self.rows(), list(self.gateway.log)[-20:])
            time.sleep(0.02)

    def metric(self, name):
        text = ask(self.admin, "GET", "/metrics")[1]
        return int(re.search(rf"^pelton_gateway_{name} (\d+)$", text, re.M).group(1))


def ask(port, method, path, body=None):
    """Status and text."""
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        link.request(method, path, body and json.dumps(body), {"Content-Type": "application/json"})
        answer = link.getresponse()
        return answer.status, answer.read().decode()
    finally:
        link.close()


def events(port, path, body):
    """The data of each server-sent event; what is no whole stream raises."""
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        link.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = link.getresponse()
        if answer.status != 200:
            raise AssertionError(f"status {answer.status}: {answer.read().decode()}")
        data = []
        for line in answer:
            if line.startswith(b"data: "):
                data.append(line[6:].strip().decode())
        return data
    finally:
        link.close()


def chat(number, count, seed, **more):
    return {"model": "pelton-box", "seed": seed, "messages": [{"role": "user", "content": f"check {number} {count} please"}], **more}


def text_of(chunks, index=0):
    """Content and the finish reason of one choice."""
    text, finish = "", []
    for chunk in chunks:
        for choice in chunk["choices"]:
            if choice["index"] == index:
                text += choice["delta"].get("content") or ""
                finish += [choice["finish_reason"]] if choice["finish_reason"] else []
    return text, finish


def check_stream(port, number, count, seed):
    data = events(port, "/v1/chat/completions", chat(number, count, seed, stream=True))
    assert data[-1] == "[DONE]" and data.count("[DONE]") == 1, data[-3:]
    chunks = [json.loads(one) for one in data[:-1]]
    assert all("error" not in chunk for chunk in chunks), chunks[-1]
    assert len({chunk["id"] for chunk in chunks}) == 1
    text, finish = text_of(chunks)
    assert text == letters(seed, number, count), f"{number}: {text}"
    assert finish == ["stop"], finish


class Gateway(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name

    def fleet(self, *args, **more):
        fleet = Fleet(self.folder, *args, **more)
        self.addCleanup(fleet.close)
        return fleet

    def test_kills_under_streams_lose_nothing(self):
        kills, streams = (1000, 200) if FULL else (12, 100)
        fleet = self.fleet(4)
        faults, over = [], threading.Event()
        done = collections.Counter()

        def client(name):
            draw = random.Random(name)
            while not over.is_set():
                try:
                    check_stream(fleet.gateway.port, draw.randrange(10**9), draw.randrange(20, 250), draw.randrange(2**31))
                    done["streams"] += 1
                except Exception as error:  # whatever a client sees is a fault
                    faults.append(repr(error)[:600])
        clients = [threading.Thread(target=client, args=(i,)) for i in range(streams)]
        for one in clients:
            one.start()
        draw = random.Random(7)
        for _ in range(kills):
            # Two stay, so that there is always one to go on at.
            victim = draw.randrange(len(fleet.workers))
            fleet.kill(victim)
            fleet.start(victim)
            end = time.monotonic() + 15
            while fleet.ready() < 3 and time.monotonic() < end:
                time.sleep(0.01)
        over.set()
        for one in clients:
            one.join()
        self.assertEqual(faults, [], list(fleet.gateway.log)[-20:])
        self.assertGreater(done["streams"], streams)
        self.assertGreater(fleet.metric("migrations_total"), kills)
        self.assertEqual(fleet.metric("streams_interrupted_total"), 0)
        self.assertEqual(fleet.metric("requests_open"), 0)


if __name__ == "__main__":
    BINARY = os.path.abspath(sys.argv[1])
    FULL = "--full" in sys.argv
    unittest.main(argv=[sys.argv[0], *[word for word in sys.argv[2:] if word != "--full"]], verbosity=2)
