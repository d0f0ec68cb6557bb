#!/usr/bin/env python3
"""A gateway that scales the two roles of one split pool, with real processes of the model in the box: both from nothing as one, those that
compute prompts by prompts, those that go on by answers, both away again; and under PELTON_FULL all of it together with one that is killed.

usage: autoscale_split_test.py BINARY
"""
import concurrent.futures
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import autoscale_test
import gateway_fixture
from autoscale_test import alive
from gateway_fixture import BOX, Process, ask
from ports import free_port

FULL = bool(os.environ.get("PELTON_FULL"))
SERVE = [str(BOX), "--threads", "1", "--device", "cpu", "--current-date", "2026-11-28", "--max-model-len", "768", "--max-num-seqs", "2",
         "--kv-cache-memory", "16MiB", "--swap-space", "16MiB"]


class Roles(autoscale_test.Scaled):
    """Of one pool, from zero to `most` of each."""

    def __init__(self, folder, most=2, scale=""):  # pylint: disable=super-init-not-called
        self.folder = pathlib.Path(folder)
        self.admin, self.apart, self.record, self.scaler = free_port(), False, None, None
        key = self.folder / "fleet.key"
        subprocess.run([gateway_fixture.BINARY, "gateway", "--new-key", key], check=True)
        self.config = self.folder / "gateway.toml"
        self.config.write_text(f"""[gateway]
listen = "127.0.0.1:0"
admin = "127.0.0.1:{self.admin}"
fleet_key_file = "{key}"

[autoscaler]
state_dir = "{self.folder / 'replicas'}"

[[pool]]
name = "box"
model = "pelton-box"
tokenizer = "{BOX}"
split = "always"

[pool.scale]
max = {most}
policy = "slo"
ttft = 0.02
itl = 0.5
window = 6
idle_to_zero = 1
{scale}

[pool.launch]
serve = {json.dumps(SERVE)}
start_seconds = 1
""")
        self.start()

    def pools(self):
        """By role, as the autoscaler has them."""
        return {pool["pool"]: pool for pool in json.loads(ask(self.admin, "GET", "/v1/autoscaler")[1])["pools"]}

    def ready(self, role):
        return self.pools().get({"decode": "box", "prefill": "box:prefill"}[role], {}).get("ready", 0)

    def roles(self):
        return sorted(row["role"] for row in json.loads(ask(self.admin, "GET", "/v1/workers")[1])["workers"] if row["state"] == "ready")

    def splits(self, outcome):
        return self.metric(f'splits_total{{outcome="{outcome}"}}')


def body(number, tokens, output):
    draw = random.Random(number)
    return {"model": "pelton-box", "prompt": [draw.randrange(300, 900) for _ in range(tokens)], "max_tokens": output, "temperature": 0,
            "ignore_eos": True}


def said(port, asked):
    status, text = ask(port, "POST", "/v1/completions", asked)
    assert status == 200, (status, text)
    return json.loads(text)["choices"][0]["text"]


class SplitPools(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name

    def roles(self, *args, **more):
        fleet = Roles(self.folder, *args, **more)
        self.addCleanup(fleet.close)
        return fleet

    def test_both_from_nothing_by_what_each_does_and_back(self):
        fleet = self.roles()
        self.assertEqual(fleet.starts(), [], "nobody has asked for anything")
        first = said(fleet.port, body(0, 500, 8))
        self.assertEqual(len(first) > 0, True)
        fleet.wait(lambda: fleet.roles() == ["decode", "prefill"])
        self.assertEqual(len(fleet.starts()), 2, "one of each")
        # Long prompts and short answers: who computes prompts becomes more, who goes on does not.
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            numbers = iter(range(1, 100_000))
            running = set()
            end = time.monotonic() + 20
            while fleet.ready("prefill") < 2:
                self.assertLess(time.monotonic(), end, (fleet.pools(), list(fleet.gateway.log)[-20:]))
                running = {one for one in running if not one.done() or one.result() is None}
                while len(running) < 4:
                    running.add(pool.submit(said, fleet.port, body(next(numbers), 500, 8)))
                time.sleep(0.02)
            for one in running:
                one.result()
        self.assertEqual((fleet.ready("decode"), fleet.roles()), (1, ["decode", "prefill", "prefill"]), fleet.pools())
        self.assertGreater(fleet.splits("handed_over") + fleet.splits("ended"), 10)
        self.assertEqual(said(fleet.port, body(0, 500, 8)), first)
        # Nobody asks any more: both go, as one.
        fleet.wait(lambda: not any(alive(pid) for pid in fleet.starts()))
        self.assertEqual([pool["desired"] for pool in fleet.pools().values()], [0, 0])
        self.assertEqual(fleet.metric("unserved_total"), 0)
        self.assertEqual(said(fleet.port, body(0, 500, 8)), first, "and come again")

    @unittest.skipUnless(FULL, "minutes: PELTON_FULL")
    def test_all_together(self):
        """A load that grows, transfers, both roles moving, and one of each killed: nothing is lost, and all is to the byte what one says."""
        flags = [*SERVE[1:], "--port", "0"]
        alone = Process("serve", BOX, *flags)
        asked = [body(number, 100 + 37 * (number % 11), 8 + 24 * (number % 3)) for number in range(40)]
        try:
            known = [said(alone.port, one) for one in asked]
        finally:
            alone.end()
        fleet = self.roles(3, scale="min = 1")
        killed = []
        for clients, seconds in ((1, 10), (4, 15), (8, 20), (2, 15)):
            end = time.monotonic() + seconds

            def client(number, end=end):
                draw = random.Random(number)
                while time.monotonic() < end:
                    one = draw.randrange(len(asked))
                    self.assertEqual(said(fleet.port, asked[one]), known[one], one)
            with concurrent.futures.ThreadPoolExecutor(clients) as pool:
                running = [pool.submit(client, number) for number in range(clients)]
                if clients == 8:
                    time.sleep(5)
                    for pid in [pid for pid in fleet.starts() if alive(pid)][:2]:
                        os.kill(pid, signal.SIGKILL)
                        killed.append(pid)
                        time.sleep(5)
                for one in running:
                    one.result()
        self.assertEqual(len(killed), 2)
        self.assertEqual((fleet.metric("unserved_total"), fleet.metric("streams_interrupted_total")), (0, 0))
        self.assertGreater(fleet.splits("handed_over"), 50)
        self.assertGreater(fleet.pools()["box:prefill"]["starts"], 1)


if __name__ == "__main__":
    gateway_fixture.BINARY = sys.argv[1]
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
