#!/usr/bin/env python3
"""Autoscalers that scale the two roles of one split pool, with real processes of the model in the box: both from nothing as one, those that
compute prompts by prompts, those that go on by answers, both away again; all of it together while one of each role is killed; a new leader
that goes on from what the old one knew of both. Under PELTON_FULL all of it together is a minute's load.

usage: autoscale_split_test.py BINARY
"""
import concurrent.futures
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import autoscale_test
import gateway_fixture
from autoscale_launchers_test import Scaler
from autoscale_test import alive
from gateway_fixture import BOX, Process, ask
from kubernetes_workload import WorkloadApi
from ports import free_port
from tiers import FULL, full

SERVE = [str(BOX), "--threads", "1", "--device", "cpu", "--current-date", "2026-11-28", "--max-model-len", "768", "--max-num-seqs", "4",
         "--kv-cache-memory", "16MiB", "--swap-space", "16MiB"]


class Roles(autoscale_test.Scaled):
    """One pool of two roles, from zero to `most` of each."""

    def __init__(self, folder, most=2, scale="", autoscaler="", more="", with_autoscaler=True, record=None, ttft=0.02, itl=0.004):  # pylint: disable=super-init-not-called
        self.folder = pathlib.Path(folder)
        self.admin, self.apart, self.record, self.scaler = free_port(), not with_autoscaler, record, None
        key = self.folder / "fleet.key"
        subprocess.run([gateway_fixture.BINARY, "gateway", "--new-key", key], check=True)
        self.config = self.folder / "gateway.toml"
        self.config.write_text(f"""[gateway]
listen = "127.0.0.1:0"
admin = "127.0.0.1:{self.admin}"
fleet_key_file = "{key}"

[autoscaler]
state_dir = "{self.folder / 'replicas'}"
gateways = ["http://127.0.0.1:{self.admin}"]
{autoscaler}

[[pool]]
name = "box"
model = "pelton-box"
tokenizer = "{BOX}"
split = "always"

[pool.scale]
max = {most}
policy = "slo"
ttft = {ttft}
itl = {itl}
window = 6
idle_to_zero = 1
{scale}

[pool.launch]
serve = {json.dumps(SERVE)}
start_seconds = 1
{more}
""")
        self.more = []  # flags
        self.start()

    def start_scaler(self, *flags):
        self.scaler = None  # the test's own

    def starts(self):
        return [] if self.apart else super().starts()

    def pools(self):
        """By role, as the autoscaler has them."""
        pools = json.loads(ask(self.admin, "GET", "/v1/autoscaler")[1])["pools"]
        return {pool["role"]: pool for pool in pools}

    def ready(self, role):
        return self.pools().get(role, {}).get("ready", 0)

    def roles(self):
        return sorted(row["role"] for row in json.loads(ask(self.admin, "GET", "/v1/workers")[1])["workers"] if row["state"] == "ready")

    def pids(self, role):
        """Of its replicas that run: the log forgets its first lines."""
        found = []
        for one in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = one.read_text(errors="replace").split("\0")
            except OSError:
                continue
            if "--fleet-role" in words and words[words.index("--fleet-role") + 1] == role and any(str(self.folder) in word for word in words):
                found.append(int(one.parent.name))
        return sorted(found)

    def splits(self, outcome):
        return self.metric(f'splits_total{{outcome="{outcome}"}}')

    def by_role(self, name):
        text = ask(self.admin, "GET", "/metrics")[1]
        return {role: float(value) for role, value in
                re.findall(rf'^pelton_autoscaler_{name}{{pool="box",role="(\w+)"}} (\S+)$', text, re.M)}


def body(number, tokens, output):
    draw = random.Random(number)
    return {"model": "pelton-box", "prompt": [draw.randrange(300, 900) for _ in range(tokens)], "max_tokens": output, "temperature": 0,
            "ignore_eos": True}


def said(port, asked):
    status, text = ask(port, "POST", "/v1/completions", asked)
    assert status == 200, (status, text)
    return json.loads(text)["choices"][0]["text"]


def said_alone(asked):
    """By one server that nothing disturbs."""
    alone = Process("serve", BOX, *SERVE[1:], "--port", "0")
    try:
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            return list(pool.map(lambda one: said(alone.port, one), asked))
    finally:
        alone.end()


class Clients:
    """So many at a time that ask what has a known answer, until they are to end."""

    def __init__(self, port, asked, known):
        self.port, self.asked, self.known = port, asked, known
        self.ended, self.wrong, self.threads, self.over = 0, [], [], threading.Event()
        self.lock = threading.Lock()

    def add(self, count):
        for _ in range(count):
            self.threads.append(threading.Thread(target=self.run, args=(len(self.threads),)))
            self.threads[-1].start()

    def run(self, seed):
        draw = random.Random(seed)
        while not self.over.is_set():
            one = draw.randrange(len(self.asked))
            try:
                # A salt of its own: that prompt was never computed before.
                text = said(self.port, {**self.asked[one], "cache_salt": f"{seed}-{draw.getrandbits(64)}"})
                wrong = None if text == self.known[one] else (one, text, self.known[one])
            except Exception as error:  # pylint: disable=broad-except
                wrong = (one, repr(error))
            with self.lock:
                self.ended += 1
                if wrong:
                    self.wrong.append(wrong)

    def end(self):
        self.over.set()
        for thread in self.threads:
            thread.join()


class SplitPools(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def roles(self, *args, **more):
        fleet = Roles(self.folder, *args, **more)
        self.addCleanup(fleet.close)
        return fleet

    def clients(self, fleet, asked, known):
        clients = Clients(fleet.port, asked, known)
        self.addCleanup(clients.end)
        return clients

    def replay(self, record):
        done = subprocess.run([gateway_fixture.BINARY, "autoscale", "--replay", record], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def test_both_from_nothing_by_what_each_does_and_back(self):
        record = self.folder / "facts.jsonl"
        fleet = self.roles(record=record)
        self.assertEqual(fleet.starts(), [], "nobody has asked for anything")
        first = said(fleet.port, body(0, 500, 8))
        self.assertEqual(len(first) > 0, True)
        fleet.wait(lambda: fleet.roles() == ["decode", "prefill"])
        self.assertEqual((len(fleet.pids("decode")), len(fleet.pids("prefill"))), (1, 1), "one of each")
        # Long prompts and short answers: who computes prompts becomes more.
        clients = self.clients(fleet, [body(0, 500, 8)], [first])
        clients.asked = [body(number, 500, 8) for number in range(1, 200)]
        clients.known = said_alone(clients.asked)
        clients.add(4)
        fleet.wait(lambda: fleet.ready("prefill") == 2)
        explained = subprocess.run([gateway_fixture.BINARY, "autoscale", "--admin", f"http://127.0.0.1:{fleet.admin}", "--explain", "box"],
                                   capture_output=True, text=True, timeout=30, check=True).stdout
        self.assertRegex(explained, r"(?s)^decode: .*prefill_needed .*\nprefill: ")
        needed = fleet.by_role("needed_replicas")
        clients.end()
        self.assertEqual(clients.wrong, [])
        self.assertGreaterEqual(needed["prefill"], 2)
        self.assertGreater(fleet.splits("handed_over") + fleet.splits("ended"), 10)
        # Nobody asks any more: both go, as one.
        fleet.wait(lambda: not any(alive(pid) for pid in fleet.starts()))
        self.assertEqual(fleet.by_role("desired_replicas"), {"decode": 0, "prefill": 0})
        self.assertEqual(fleet.metric("unserved_total"), 0)
        self.assertEqual(said(fleet.port, body(0, 500, 8)), first, "and come again")
        self.assertEqual(self.replay(record).stdout.splitlines(), [line for line in record.read_text().splitlines() if '"begins"' not in line])

    def test_all_together(self):
        """A load that grows, transfers, both roles moving, and one of each killed: nothing is lost, and all is to the byte what one says."""
        asked = [body(number, 100 + 37 * (number % 11), 8 + 24 * (number % 3)) for number in range(40)]
        known = said_alone(asked)
        # Two of each at least, on whatever it runs, and objectives that no machine meets under this load.
        fleet = self.roles(3, scale="min = 2\nprefill_min = 2", ttft=0.001, itl=0.0001)
        fleet.wait(lambda: fleet.roles() == ["decode"] * 2 + ["prefill"] * 2)
        clients = self.clients(fleet, asked, known)
        growth = ((1, 10), (3, 15), (4, 20), (2, 15)) if FULL else ((2, 1), (4, 1))
        for more, seconds in growth:
            clients.add(more)
            time.sleep(seconds)
        fleet.wait(lambda: fleet.ready("prefill") >= 2 and fleet.ready("decode") >= 2, 60 if FULL else 20)
        for role in ("prefill", "decode"):
            os.kill(fleet.pids(role)[0], signal.SIGKILL)
            before = clients.ended
            fleet.wait(lambda before=before: clients.ended > before + (100 if FULL else 10), 60)
        fleet.wait(lambda: fleet.pools()["prefill"]["starts"] >= 3 and fleet.pools()["decode"]["starts"] >= 3, 60)
        clients.end()
        self.assertEqual(clients.wrong, [], f"of {clients.ended}")
        self.assertEqual((fleet.metric("unserved_total"), fleet.metric("streams_interrupted_total")), (0, 0))
        self.assertGreater(fleet.splits("handed_over"), 50 if FULL else 5)
        self.assertEqual(fleet.pools()["prefill"]["lost"] + fleet.pools()["decode"]["lost"], 2)

    @full
    def test_a_new_leader_goes_on_from_what_the_old_one_knew_of_both_roles(self):
        api = WorkloadApi("secret", lambda address: None)
        self.addCleanup(api.close)
        token = self.folder / "token"
        token.write_text("secret")
        fleet = self.roles(2, scale="min = 1\nscale_down_delay = 60", with_autoscaler=False,
                           autoscaler='lead = "kubernetes"\nlease = "ml/box-autoscaler"\nlease_seconds = 3',
                           more=f'[kubernetes]\napi = "http://127.0.0.1:{api.server_port}"\ntoken_file = "{token}"')
        record = self.folder / "facts.jsonl"
        first = Scaler(fleet.config)
        fleet.wait(lambda: first.said("leads, epoch"))
        second = Scaler(fleet.config, "--record-facts", record)
        pids = []
        self.addCleanup(lambda: [os.kill(pid, signal.SIGKILL) for pid in pids if alive(pid)])
        self.addCleanup(lambda: (first.end(signal.SIGTERM), second.end(signal.SIGTERM)))

        def started(scaler):
            return [int(line.split("process ")[1].split(",")[0]) for line in scaler.said("is started, process")]
        fleet.wait(lambda: fleet.roles() == ["decode", "prefill"])
        pids += started(first)
        asked = [body(number, 500, 8) for number in range(40)]
        clients = self.clients(fleet, asked, said_alone(asked))
        clients.add(4)
        fleet.wait(lambda: fleet.roles().count("prefill") == 2)
        maps = len(api.writes)
        fleet.wait(lambda: sum(1 for method, path, _ in api.writes[maps:] if "configmaps" in path) >= 2)  # what it knows of both is handed over
        pids += [pid for pid in started(first) if pid not in pids]
        clients.end()
        roles = fleet.roles()
        first.end(signal.SIGKILL)
        fleet.wait(lambda: second.said("leads, epoch"))
        fleet.wait(lambda: len(second.said("is decided on with what was remembered")) == 2)
        # Nobody asks any more: without what was remembered nothing would keep those that were needed lately.
        time.sleep(3)
        self.assertEqual((fleet.roles(), second.said("is started, process")), (roles, []))
        self.assertEqual(clients.wrong, [], f"of {clients.ended}")
        second.end(signal.SIGTERM)
        self.assertRegex(self.replay(record).stderr, "[1-9][0-9]* decisions, each as it was recorded")

    def test_knobs_of_both_roles_are_played_and_recommended(self):
        config, load = self.folder / "gateway.toml", self.folder / "load.json"
        key, out, facts = self.folder / "fleet.key", self.folder / "out.toml", self.folder / "facts.jsonl"
        subprocess.run([gateway_fixture.BINARY, "gateway", "--new-key", key], check=True)
        load.write_text('{"input_tokens": 4000, "output_tokens": 40, "count": 120, "rate": 2, "seed": 3}')
        config.write_text(f"""[gateway]
fleet_key_file = "{key}"
[autoscaler]
gateways = ["http://127.0.0.1:1"]
[[pool]]
name = "main"
model = "m"
tokenizer = "{BOX}"
split = "always"
[pool.scale]
min = 1
max = 4
policy = "slo"
ttft = 1
itl = 0.05
window = 10
[pool.launch]
serve = ["m"]
start_seconds = 5
""")
        flags = ["gpt-oss-20b", "--gpu", "l4", "--max-num-seqs", "8", "--workload", load, "--scale-config", config, "--router", "cost",
                 "--swap-space", "8GiB", "--kv-link-bandwidth", "25GB", "--split", "always"]

        def run(*words):
            return subprocess.run([gateway_fixture.BINARY, *words], capture_output=True, text=True, timeout=60, check=False)
        done = run("autoscale", "recommend", *flags, "--vary", "prefill_max=1,4", "--late-share", "1", "--late-seconds", "3", "--out", out)
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = {line.split()[0]: line.split() for line in done.stdout.splitlines() if line.startswith("prefill_max=")}
        self.assertEqual(set(rows), {"prefill_max=1", "prefill_max=4"})
        self.assertLess(float(rows["prefill_max=4"][1]), float(rows["prefill_max=1"][1]), "fewer late with more of them")
        self.assertLess(float(rows["prefill_max=1"][3]), float(rows["prefill_max=4"][3]), "and they cost hours")
        self.assertIn("prefill_max = ", out.read_text())
        self.assertEqual(run("autoscale", "--config", out, "--check").returncode, 0)
        done = run("simulate", *flags, "--record-facts", facts)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn('"prefill_needed"', facts.read_text())
        self.replay(facts)
        done = run("simulate", *flags[:-2])
        self.assertIn("replicas of two roles need requests that are split", done.stderr)

    def test_a_wrong_file_is_refused_with_its_line(self):
        key = self.folder / "fleet.key"
        subprocess.run([gateway_fixture.BINARY, "gateway", "--new-key", key], check=True)
        config = self.folder / "gateway.toml"
        head = (f'[gateway]\nfleet_key_file = "{key}"\n[autoscaler]\ngateways = ["http://127.0.0.1:1"]\n[[pool]]\nname = "a"\nmodel = "m"\n'
                f'tokenizer = "{BOX}"\n')
        scale = '[pool.scale]\nmax = 4\npolicy = "slo"\nttft = 1\nitl = 0.1\n'
        launch = '[pool.launch]\nserve = ["m"]\n'
        for text, words in ((head + 'split = "auto"\n' + scale + "prefil_min = 1\n" + launch, ":15: [[pool]]: 'scale' has no key 'prefil_min'; did you mean 'prefill_min'?"),
                            (head + 'split = "auto"\n' + scale + "prefill_min = 9\n" + launch, ":15: [[pool]]: 'scale': 'prefill_min' (9) is more than 'prefill_max' (4"),
                            (head + 'split = "auto"\n' + scale + "prefill_max = 0\n" + launch, ":15: [[pool]]: 'scale': 'prefill_max'"),
                            (head + 'split = "auto"\n' + scale + "prefill_min = 1.5\n" + launch, ":15: [[pool]]: 'scale': 'prefill_min'"),
                            (head + scale + "prefill_min = 2\n" + launch, "'split' is missing: 'prefill_min'"),
                            (head + 'split = "auto"\n' + scale.replace("itl = 0.1\n", "") + launch, "'split' of a pool whose replicas come and go wants policy"),
                            (head + 'split = "auto"\n' + scale + "gpus = 1\nmax_gpus = 1\n" + launch, "allow 1 replicas, and 2 are the least")):
            config.write_text(text)
            done = subprocess.run([gateway_fixture.BINARY, "autoscale", "--config", config, "--check"], capture_output=True, text=True, timeout=30,
                                  check=False)
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertIn(words, done.stderr)


if __name__ == "__main__":
    gateway_fixture.BINARY = os.path.abspath(sys.argv[1])
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
