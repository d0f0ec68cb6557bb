#!/usr/bin/env python3
"""Formats that are hard to follow, beside somebody who asks for none: rows D1, D3 and D7 of what was found from outside.

Three clients ask for nothing but formats whose rules can read one text in many ways. A witness's stream goes on beside
them, no answer is a 5xx or an error of the server's, and what is told of a format that cannot be followed is its own error.

usage: format_load_test.py BINARY [--model FOLDER] [--seconds N]

A run draws some of the formats (PELTON_SEED=N repeats it); with PELTON_FULL it takes them all.
With --seconds the gaps are measured for so long beside each kind of attack, and printed; the limits of a test, which
share their machine, are far wider than what should be seen there.
"""
import argparse
import http.client
import json
import os
import pathlib
import random
import socket
import subprocess
import sys
import threading
import time
import unittest

from tiers import FULL

ROOT = pathlib.Path(__file__).resolve().parent.parent
ARGS = None
SEED = int(os.environ.get("PELTON_SEED") or random.randrange(1 << 31))
RANDOM = random.Random(SEED)
SEEDS = range(4) if FULL else range(1)
GAP_MAX_S = 2.5  # between two tokens of the witness; it was 18.5 s

GRAMMARS = {
    "D1": 'root ::= w "ZZQ!"\nw ::= [a-z ] | [a-z ] w [a-z ] | [a-z ] w w',
    "D7": 'root ::= s{200,400}\ns ::= "a" s "a" | "a" s | s2\ns2 ::= [a-z]* | "b" s "b" | "(" root ")"',
    "sums": 'root ::= e\ne ::= e " " e | e e e | [a-z]+',
    "words": "root ::= (a | b | c)*\na ::= [a-m ]+\nb ::= [g-z ]+ b?\nc ::= a b a | b a c?",
    "doubled": "root ::= w\nw ::= [a-z ] | w w | w w w",
    "nullable": 'root ::= x x x x x x x x\nx ::= y*\ny ::= z? z? z? | "a" x "b"\nz ::= [a-z]* | " " x',
    "bytes": 'root ::= (x | y)* "end"\nx ::= [^0-9] x? | y y\ny ::= [^A-Z] [^a-c]? x?',
}


def nested(depth):
    """Objects that are alike to their last member, in each other."""
    schema = {"type": "string"}
    for level in range(depth):
        schema = {"anyOf": [{"type": "object", "properties": {"a": schema, "k": {"const": str(kind + level)}},
                             "required": ["a", "k"], "additionalProperties": False} for kind in range(4)]}
    return schema


SCHEMAS = {
    "unique integers": {"type": "array", "uniqueItems": True, "minItems": 3,
                        "items": {"type": "integer", "minimum": 0, "maximum": 2}},
    "unique enum": {"type": "array", "uniqueItems": True, "minItems": 8, "items": {"enum": list(range(12))}},
    "unique tenths": {"type": "array", "uniqueItems": True, "minItems": 9,
                      "items": {"type": "number", "minimum": 0, "maximum": 1, "multipleOf": 0.1}},
    "unique mixed": {"type": "array", "uniqueItems": True, "minItems": 6,
                     "items": {"enum": [0, 1, 1.5, "a", "b", None, True]}},
    "nested": nested(4),
}
IMPOSSIBLE = [
    {"type": "array", "uniqueItems": True, "minItems": 3, "items": {"enum": [1, 2]}},
    {"type": "array", "uniqueItems": True, "minItems": 4, "items": {"type": "integer", "minimum": 0, "maximum": 2}},
    {"type": "array", "uniqueItems": True, "minItems": 3, "items": {"enum": [1, 1.0, 2]}},
    {"type": "array", "uniqueItems": True, "minItems": 2, "prefixItems": [{"const": 5}, {"const": 5.0}]},
]


def drawn(formats, most):
    """`most` of them by the run's seed, or all."""
    names = list(formats)
    if not FULL:
        names = RANDOM.sample(names, min(most, len(names)))
    return {name: formats[name] for name in names}


class Server:
    def __init__(self, model):
        self.process = subprocess.Popen([ARGS.binary, "serve", model, "--port", "0"], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE)
        url = self.process.stdout.readline().decode().split()[-1]
        threading.Thread(target=self.process.stderr.read, daemon=True).start()
        self.address = url.removeprefix("http://")

    def stop(self):
        self.process.terminate()
        self.process.wait(60)

    def connect(self):
        return http.client.HTTPConnection(self.address, timeout=300)

    def post(self, path, body, connection=None):
        """Status and body."""
        connection = connection or self.connect()
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        reply = connection.getresponse()
        text = reply.read().decode()
        connection.close()
        return reply.status, text

    def gaps(self, tokens):
        """How long a stream's tokens kept its reader waiting, each."""
        connection = self.connect()
        body = {"prompt": "The witness says:", "max_tokens": tokens, "ignore_eos": True, "stream": True,
                "temperature": 0}
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        reply = connection.getresponse()
        assert reply.status == 200, reply.read()
        last, gaps, text = None, [], []
        for line in reply:
            if not line.startswith(b"data: {"):
                continue
            now = time.monotonic()
            if last is not None:
                gaps.append(now - last)
            last = now
            text.append(json.loads(line[6:])["choices"][0]["text"])
        connection.close()
        return gaps, "".join(text)


def completion(format_, seed, stream):
    return {"prompt": "x", "max_tokens": 2000, "temperature": 1, "seed": seed, "stream": stream,
            "structured_outputs": format_}


class Attack:
    """Three clients that ask for a format again and again, one of them streaming."""

    def __init__(self, server, format_):
        self.server, self.format, self.stopping = server, format_, False
        self.replies = []
        self.connections = {}
        self.threads = [threading.Thread(target=self.run, args=(i,)) for i in range(3)]
        for thread in self.threads:
            thread.start()

    def run(self, number):
        seed = number
        while not self.stopping:
            seed += 10
            self.connections[number] = connection = self.server.connect()
            try:
                self.replies.append(self.server.post("/v1/completions", completion(self.format, seed, number == 2),
                                                     connection))
            except (OSError, http.client.HTTPException, AttributeError) as error:
                if not self.stopping:  # it does not hang up by itself
                    self.replies.append((599, repr(error)))
                return

    def stop(self):
        """Hangs up: nobody waits for the rest of the answers."""
        self.stopping = True
        for connection in self.connections.values():
            if connection.sock is not None:
                try:
                    connection.sock.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
        for thread in self.threads:
            thread.join()


class FormatLoad(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(ARGS.model)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def check(self, status, text):
        self.assertIn(status, (200, 400), text[:300])
        self.assertNotIn('"server_error"', text, text[-300:])
        self.assertNotIn('"internal_error"', text, text[-300:])

    def witness(self, name, format_):
        _, alone = self.server.gaps(48)
        attack = Attack(self.server, format_)
        try:
            time.sleep(0.3)
            end = time.monotonic() + ARGS.seconds
            gaps = []
            while not gaps or time.monotonic() < end:
                more, beside = self.server.gaps(48)
                gaps += more
                self.assertEqual(beside, alone)
        finally:
            attack.stop()
        gaps.sort()
        print(f"{name}: {len(gaps)} gaps beside three, p50 {gaps[len(gaps) // 2] * 1e3:.1f} ms, "
              f"p99 {gaps[len(gaps) * 99 // 100] * 1e3:.1f} ms, largest {gaps[-1] * 1e3:.1f} ms; "
              f"{len(attack.replies)} replies {sorted({status for status, _ in attack.replies})}", file=sys.stderr)
        for status, text in attack.replies:
            self.check(status, text)
        self.assertLess(gaps[-1], GAP_MAX_S, name)

    def test_D1_a_witness_beside_ambiguous_grammars(self):
        gaps = sorted(self.server.gaps(48)[0])
        print(f"alone: largest gap {gaps[-1] * 1e3:.1f} ms", file=sys.stderr)
        for name, grammar in drawn(GRAMMARS, 2).items():
            with self.subTest(name):
                self.witness(name, {"grammar": grammar})

    def test_D1_a_witness_beside_schemas(self):
        for name, schema in drawn(SCHEMAS, 1).items():
            with self.subTest(name):
                self.witness(name, {"json": schema})

    def test_D3_unique_numbers_end(self):
        for name, schema in SCHEMAS.items():
            if not name.startswith("unique"):
                continue
            for seed in SEEDS:
                with self.subTest(name, seed=seed):
                    body = {**completion({"json": schema}, seed, False), "temperature": 1.5, "max_tokens": 600}
                    status, text = self.server.post("/v1/completions", body)
                    self.assertEqual(status, 200, text)
                    choice = json.loads(text)["choices"][0]
                    if choice["finish_reason"] == "length":
                        continue
                    items = json.loads(choice["text"])
                    self.assertGreaterEqual(len(items), schema["minItems"])
                    # As JSON has it: 5.0 is 5, but true is not 1.
                    distinct = {(isinstance(item, (bool, str)), item) for item in items}
                    self.assertEqual(len(distinct), len(items), items)

    def test_D3_what_no_array_satisfies_is_a_400(self):
        for schema in IMPOSSIBLE:
            status, text = self.server.post("/v1/completions", completion({"json": schema}, 1, False))
            self.assertEqual(status, 400, text)

    def test_D7_no_5xx(self):
        for name, grammar in drawn(GRAMMARS, 3).items():
            for seed in SEEDS:
                with self.subTest(name, seed=seed):
                    body = {**completion({"grammar": grammar}, seed, False), "max_tokens": 300}
                    self.check(*self.server.post("/v1/completions", body))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("binary", type=lambda path: str(pathlib.Path(path).resolve()))
    parser.add_argument("--model", default=str(ROOT / "models" / "pelton-box"))
    parser.add_argument("--seconds", type=float, default=0)
    ARGS, rest = parser.parse_known_args()
    print(f"PELTON_SEED={SEED}", file=sys.stderr)
    unittest.main(argv=[sys.argv[0], *rest])
