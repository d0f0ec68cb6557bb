#!/usr/bin/env python3
"""Puts one server under mixed load for hours and watches it.

usage: soak.py BINARY HOURS

A tiny synthetic model; clients that stream, do not stream, leave in the middle, read slowly, send
nonsense, and ask for too much. Every answer must be well formed and every error the caller's own.
Once a minute the server's memory is noted: after the first tenth of the time it may not grow by more
than 64 MiB. At the end the server must be idle and stop cleanly. Exit code 0 if all that held.
"""
import http.client
import json
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
CLIENTS = 12
GROWTH_MAX = 64 << 20
WORDS = "water jet bucket runner nozzle wheel head flow speed power <|end|> été 水 \U0001F600".split()


class Soak:
    def __init__(self, port, process, seconds):
        self.port, self.process = port, process
        self.end = time.monotonic() + seconds
        self.lock = threading.Lock()
        self.counts, self.errors = {}, []

    def note(self, what):
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + 1

    def wrong(self, text):
        with self.lock:
            self.errors.append(text)

    def running(self):
        return time.monotonic() < self.end and len(self.errors) < 20 and self.process.poll() is None

    def post(self, body, path="/v1/chat/completions"):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        return connection, connection.getresponse()

    def whole(self, rng):
        connection, response = self.post(json.dumps(chat_body(rng)))
        body = response.read()
        connection.close()
        if response.status == 429:
            return "overloaded"
        if response.status != 200:
            self.wrong(f"{response.status}: {body[:300]!r}")
            return "wrong"
        answer = json.loads(body)
        if answer["choices"][0]["finish_reason"] not in ("stop", "length", "tool_calls"):
            self.wrong(f"finish_reason: {body[:300]!r}")
        if answer["usage"]["completion_tokens"] < 1:
            self.wrong(f"no tokens: {body[:300]!r}")
        return "whole"

    def streamed(self, rng, leave=False, slow=False):
        connection, response = self.post(json.dumps({**chat_body(rng), "stream": True}))
        if response.status == 429:
            connection.close()
            return "overloaded"
        if response.status != 200:
            self.wrong(f"{response.status}: {response.read()[:300]!r}")
            connection.close()
            return "wrong"
        done, events = False, 0
        leave_after = rng.randrange(1, 20) if leave else None
        while line := response.readline():
            if line.startswith(b"data: [DONE]"):
                done = True
            elif line.startswith(b"data: "):
                json.loads(line[6:])
                events += 1
            if slow and rng.random() < 0.1:
                time.sleep(0.05)
            if leave_after is not None and events >= leave_after:
                connection.close()
                return "left"
        connection.close()
        if not done:
            self.wrong("a stream ended without [DONE]")
        return "slow" if slow else "streamed"

    def nonsense(self, rng):
        body = rng.choice(["", "{", "[]", "null", '{"messages": 3}', '{"messages": []}', "[" * 10000,
                           '{"messages": [{"role": "king", "content": "x"}]}',
                           json.dumps({**chat_body(rng), "temperature": -1}),
                           json.dumps({**chat_body(rng), "max_completion_tokens": 10**9})])
        connection, response = self.post(body)
        text = response.read()
        connection.close()
        if response.status == 200 or response.status >= 500:
            self.wrong(f"nonsense {body[:60]!r} got {response.status}: {text[:200]!r}")
        else:
            json.loads(text)["error"]["message"]
        return "nonsense"

    def client(self, seed):
        rng = random.Random(seed)
        kinds = [self.whole, self.streamed, lambda r: self.streamed(r, leave=True),
                 lambda r: self.streamed(r, slow=True), self.nonsense]
        while self.running():
            try:
                self.note(rng.choice(kinds)(rng))
            except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
                self.wrong(f"{type(error).__name__}: {error}")

    def resident(self):
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) << 10
        return 0


def chat_body(rng):
    length = int(2 ** rng.uniform(0, 9))
    return {"messages": [{"role": "user", "content": " ".join(rng.choices(WORDS, k=length))}],
            "max_completion_tokens": int(2 ** rng.uniform(0, 8)), "seed": rng.randrange(1 << 30),
            "temperature": rng.choice([0, 0.7, 1]), "reasoning_effort": rng.choice(["low", "high"])}


def watch(soak, seconds):
    started, first = time.monotonic(), None
    while soak.running():
        time.sleep(min(60, max(1, seconds / 20)))
        if soak.process.poll() is not None:
            break
        resident = soak.resident()
        if first is None and time.monotonic() - started > seconds / 10:
            first = resident
        print(f"{time.monotonic() - started:8.0f} s  {resident >> 20} MiB  {soak.counts}", flush=True)
        if first is not None and resident > first + GROWTH_MAX:
            soak.wrong(f"memory grew from {first >> 20} to {resident >> 20} MiB")


def main(binary, hours):
    seconds = hours * 3600
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([binary, "synth", "--like", ROOT / "testdata/demo_model.json", folder + "/model"], check=True)
        process = subprocess.Popen([binary, "serve", folder + "/model", "--port", "0", "--max-model-len", "4K"],
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        port = int(process.stdout.readline().rsplit(":", 1)[1])
        soak = Soak(port, process, seconds)
        seed = random.randrange(1 << 30)
        print(f"seed {seed}")
        threads = [threading.Thread(target=soak.client, args=(seed + i,)) for i in range(CLIENTS)]
        for thread in threads:
            thread.start()
        watch(soak, seconds)
        for thread in threads:
            thread.join()
        if process.poll() is not None:
            soak.wrong(f"the server ended with {process.returncode}")
        else:
            process.send_signal(signal.SIGTERM)
            code = process.wait(60)
            if code != 0:
                soak.wrong(f"the server stopped with {code}")
        print(soak.counts)
        print("\n".join(soak.errors) or "nothing went wrong")
        return bool(soak.errors) or sum(soak.counts.values()) == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], float(sys.argv[2])))
