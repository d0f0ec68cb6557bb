#!/usr/bin/env python3
"""LoRA adapters behind a gateway: two workers that compute, twenty adapters, four places at each. Requests are sent where theirs is in
memory; a worker that unloads one, or dies, loses no answer.

usage: lora_gateway_test.py BINARY
"""
import collections
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import gateway_fixture
from gateway_fixture import Process, ask
from ports import free_port
from lora_serve_test import PROMPT, TINY, strong_q, write_adapter
from tiers import FULL, full

PLACES = 4
ADAPTERS = [f"a{i}" for i in range(20)]
# The first is asked for most: Zipf, exponent 1.
SHARES = [1 / (i + 1) for i in range(len(ADAPTERS))]


LOADS_PER_SECOND = 20
ASKED = 300


# Of draws as few as these the spread is as wide as what is looked for: more at length.
ASKED_AT_ONCE = 1200 if FULL else 300


def predicted_share(seed, load_ms, router="cost", asked=ASKED, concurrency=1):
    """What `pelton simulate` says that such a fleet finds in memory."""
    done = subprocess.run([gateway_fixture.BINARY, "simulate", TINY, "--router", router, "--replicas", "2", "--adapters", str(len(ADAPTERS)),
                           "--max-loras", str(PLACES), "--lora-loads-per-second", str(LOADS_PER_SECOND), "--adapter-load-ms", str(load_ms),
                           "--num-prompts", str(asked), "--request-rate", "inf", "--max-concurrency", str(concurrency), "--input-len", str(len(PROMPT)),
                           "--output-len", "2", "--threads", "1", "--kv-cache-memory", "64MiB", "--max-model-len", "512",
                           "--seed", str(seed)], capture_output=True, text=True, timeout=60, check=True)
    return float(re.search(r"adapters found in memory ([0-9.]+) %", done.stdout)[1]) / 100


class LoraFleet(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        folder = pathlib.Path(scratch.name)
        many = folder / "many"
        for seed, name in enumerate(ADAPTERS):
            write_adapter(many / name, strong_q(seed + 1))
        cls.many = many
        key = folder / "fleet.key"
        subprocess.run([gateway_fixture.BINARY, "gateway", "--new-key", key], check=True)
        ports = [free_port(), free_port()]
        cls.workers = []
        for i, port in enumerate(ports):
            worker = Process("serve", TINY, "--served-model-name", "base", "--port", "0", "--kv-cache-memory", "64MiB",
                             "--max-model-len", "512", "--threads", "1", "--fleet-port", port, "--fleet-name", f"w{i}",
                             "--fleet-key-file", key, "--enable-lora", "--lora-folder", many, "--max-loras", PLACES,
                             "--lora-loads-per-second", LOADS_PER_SECOND, "--allow-runtime-lora-updating")
            cls.workers.append(worker)
            cls.addClassCleanup(lambda one=worker: one.process.poll() is None and one.end())
        cls.admin = free_port()
        config = folder / "gateway.toml"
        config.write_text(f'[gateway]\nlisten = "127.0.0.1:0"\nadmin = "127.0.0.1:{cls.admin}"\nfleet_key_file = "{key}"\n'
                          '[[pool]]\nname = "p"\nmodel = "base"\n' +
                          "".join(f'[[worker]]\npool = "p"\nurl = "http://127.0.0.1:{port}"\n' for port in ports))
        cls.gateway = Process("gateway", "--config", config)
        cls.addClassCleanup(cls.gateway.end)
        end = time.monotonic() + 60
        while sum(row["state"] == "ready" for row in json.loads(ask(cls.admin, "GET", "/v1/workers")[1])["workers"]) != 2:
            assert time.monotonic() < end, list(cls.gateway.log)[-20:]
            time.sleep(0.02)

    def tokens(self, port, model, count=2, prompt=PROMPT):
        status, text = ask(port, "POST", "/v1/completions", {"model": model, "prompt": prompt, "max_tokens": count, "temperature": 0,
                                                             "ignore_eos": True, "return_token_ids": True})
        self.assertEqual(status, 200, text)
        answer = json.loads(text)
        self.assertEqual(answer["model"], model)
        return answer["choices"][0]["token_ids"]

    def sum_of(self, name):
        """Of both workers."""
        return sum(float(re.search(rf"^pelton_lora_{name}_total\{{[^}}]*\}} (\S+)$", ask(worker.port, "GET", "/metrics")[1], re.M)[1])
                   for worker in self.workers)

    def hits_and_misses(self):
        return int(self.sum_of("hits")), int(self.sum_of("misses"))

    def requests_of(self, name):
        """At each worker."""
        found = (re.search(rf'^pelton_lora_requests_total\{{[^}}]*adapter="{name}"[^}}]*\}} (\S+)$',
                           ask(worker.port, "GET", "/metrics")[1], re.M) for worker in self.workers)
        return [int(float(one[1])) if one else 0 for one in found]

    def test_1_requests_find_theirs_in_memory(self):
        cards = {card["id"]: card for card in json.loads(ask(self.gateway.port, "GET", "/v1/models")[1])["data"]}
        self.assertEqual(set(cards), {"base", *ADAPTERS})
        self.assertEqual(cards["a7"]["parent"], "base")
        self.assertEqual(self.tokens(self.gateway.port, "base"), self.tokens(self.workers[0].port, "base"))
        for name in ("a17", "a18", "a19"):  # at both workers; the hot ones are at none yet
            first, other = (self.tokens(worker.port, name) for worker in self.workers)
            self.assertEqual([self.tokens(self.gateway.port, name), other], [first, first])
        self.assertEqual(ask(self.gateway.port, "POST", "/v1/completions", {"model": "a99", "prompt": PROMPT})[0], 404)
        self.assertEqual(ask(self.gateway.port, "POST", "/v1/unload_lora_adapter", {"lora_name": "a0"})[0], 403)

        asked = random.Random(7).choices(ADAPTERS, SHARES, k=ASKED)
        before, of_first = self.hits_and_misses(), self.requests_of("a0")
        for name in asked:
            self.tokens(self.gateway.port, name)
        hits, misses = (after - first for after, first in zip(self.hits_and_misses(), before))
        self.assertEqual(hits + misses, len(asked))
        # Each seed draws other requests, as this test has drawn its own: their spread, and five points.
        load_ms = 1e3 * self.sum_of("load_seconds") / self.sum_of("loads")
        predicted = [predicted_share(seed, load_ms) for seed in range(6)]
        self.assertGreaterEqual(hits / len(asked), min(predicted) - 0.05, predicted)
        self.assertLessEqual(hits / len(asked), max(predicted) + 0.05, predicted)
        # Sent in turn, fewer would find theirs.
        in_turn = [predicted_share(seed, load_ms, "round-robin") for seed in range(3)]
        self.assertGreater(hits / len(asked), sum(in_turn) / len(in_turn), in_turn)
        self.assertEqual(sum(self.requests_of("a0")) - sum(of_first), asked.count("a0"))
        explained = json.loads(ask(self.admin, "POST", "/v1/explain?path=/v1/completions", {"model": asked[-1], "prompt": PROMPT})[1])
        self.assertEqual(min(one["terms"]["adapter_s"] for one in explained["candidates"]), 0, explained)
        metrics = ask(self.admin, "GET", "/metrics")[1]
        counts = {name: int(re.search(rf"^pelton_gateway_adapter_{name}_total (\d+)$", metrics, re.M)[1])
                  for name in ("requests", "resident")}
        self.assertGreaterEqual(counts["requests"], len(asked))
        self.assertGreater(counts["resident"], len(asked) // 3)

    @full
    def test_1b_and_so_do_four_at_a_time(self):
        asked = random.Random(3).choices(ADAPTERS, SHARES, k=ASKED_AT_ONCE)
        before, loaded = self.hits_and_misses(), (self.sum_of("load_seconds"), self.sum_of("loads"))
        left, lock = iter(asked), threading.Lock()
        failed = []

        def ask_on():
            while True:
                with lock:
                    name = next(left, None)
                if name is None:
                    return
                try:
                    self.tokens(self.gateway.port, name)
                except AssertionError as error:
                    failed.append(str(error))
        threads = [threading.Thread(target=ask_on) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failed, [])
        hits, misses = (after - first for after, first in zip(self.hits_and_misses(), before))
        self.assertEqual(hits + misses, len(asked))
        load_ms = 1e3 * (self.sum_of("load_seconds") - loaded[0]) / (self.sum_of("loads") - loaded[1])
        predicted = [predicted_share(seed, load_ms, asked=len(asked), concurrency=4) for seed in range(4)]
        self.assertGreaterEqual(hits / len(asked), min(predicted) - 0.05, predicted)
        self.assertLessEqual(hits / len(asked), max(predicted) + 0.05, predicted)

    def test_2_one_that_a_worker_unloads_is_answered_by_the_other(self):
        wanted = self.tokens(self.workers[1].port, "a5")
        got, ending = [], threading.Event()

        def go_on():
            while not ending.is_set():
                got.append(ask(self.gateway.port, "POST", "/v1/completions", {"model": "a5", "prompt": PROMPT, "max_tokens": 2,
                                                                               "temperature": 0, "ignore_eos": True,
                                                                               "return_token_ids": True}))
        threads = [threading.Thread(target=go_on) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(5):
            self.assertEqual(ask(self.workers[0].port, "POST", "/v1/unload_lora_adapter", {"lora_name": "a5"})[0], 200)
            time.sleep(0.15)
            status, text = ask(self.workers[0].port, "POST", "/v1/load_lora_adapter",
                               {"lora_name": "a5", "lora_path": self.path_of("a5")})
            self.assertEqual(status, 200, text)
            time.sleep(0.15)
        ending.set()
        for thread in threads:
            thread.join()
        self.assertGreater(len(got), 10)
        for status, text in got:
            self.assertEqual(status, 200, text)
            self.assertEqual(json.loads(text)["choices"][0]["token_ids"], wanted)

    def path_of(self, name):
        return json.loads(ask(self.workers[0].port, "GET", "/v1/models/a1")[1])["root"].replace("/a1", f"/{name}")

    def test_3_a_worker_that_dies_loses_no_answer(self):
        names = ADAPTERS[:8]
        wanted = {name: self.tokens(self.workers[1].port, name, count=120) for name in names}
        # Of one name both workers have another version, as while it is replaced: an answer ends under the weights that it began with.
        status, text = ask(self.workers[0].port, "POST", "/v1/load_lora_adapter",
                           {"lora_name": "a9", "lora_path": self.path_of("a10"), "load_inplace": True})
        self.assertEqual(status, 200, text)
        versions = [self.tokens(worker.port, "a9", count=120) for worker in self.workers]
        self.assertNotEqual(*versions)
        # Activated ones: of the prompt one has the invocation, and the other's is in the answer alone, where it means nothing.
        base = self.tokens(self.workers[1].port, "base", count=120)
        for name, invocation in (("invoked", PROMPT[8:10]), ("uninvoked", base[2:4])):
            write_adapter(self.many / name, strong_q(1), alora_invocation_tokens=invocation)
            for worker in self.workers:
                status, text = ask(worker.port, "POST", "/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(self.many / name), "load_inplace": True})
                self.assertEqual(status, 200, text)
            wanted[name] = self.tokens(self.workers[1].port, name, count=120)
        self.assertEqual(wanted["uninvoked"], base)
        self.assertNotIn(wanted["invoked"], (base, wanted["a0"]))
        names = [*names, "invoked", "uninvoked"]
        end = time.monotonic() + 20
        while time.monotonic() < end and not {"invoked", "uninvoked"} <= {
                card["id"] for card in json.loads(ask(self.gateway.port, "GET", "/v1/models")[1])["data"]}:
            time.sleep(0.05)
        time.sleep(1)  # and of the other worker, which has just heard the same
        wrong, answers = [], []

        def answer(name):
            try:
                got = self.tokens(self.gateway.port, name, count=120)
            except AssertionError as error:
                got = str(error)
            answers.append(name)
            if got != wanted[name]:
                wrong.append((name, got))

        def answer_replaced():
            status, text = ask(self.gateway.port, "POST", "/v1/completions", {"model": "a9", "prompt": PROMPT, "max_tokens": 120,
                                                                               "temperature": 0, "ignore_eos": True,
                                                                               "return_token_ids": True})
            ended.append(status)
            if status == 200 and json.loads(text)["choices"][0]["token_ids"] not in versions:
                wrong.append(("a9", text))
        ended = []
        threads = [threading.Thread(target=answer, args=(name,)) for name in names]
        threads += [threading.Thread(target=answer_replaced) for _ in range(6)]
        for thread in threads:
            thread.start()
        time.sleep(0.1)
        self.workers[0].end()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])
        # The worker that is left and has another version is asked at most twice by each.
        lacking = collections.Counter(re.search(r"request (\S+) attempt", line)[1] for line in list(self.gateway.log)
                                      if "it lacks the adapter" in line)
        self.assertLessEqual(max(lacking.values(), default=0), 2, lacking)
        self.assertEqual(len(answers), len(names))
        self.assertEqual(len(ended), 6)


if __name__ == "__main__":
    gateway_fixture.BINARY = sys.argv.pop(1)
    unittest.main(verbosity=2)
