#!/usr/bin/env python3
"""Replicas that come when they are asked for and go when they are not, as processes: a gateway with its autoscaler, one command.
From nothing 40 requests at once start one replica and are all answered; after a quiet second the gateway is at nothing again, and
whatever is killed on the way costs no answer.

usage: autoscale_test.py BINARY [--full] [--cycles]
--cycles: the many cycles to zero and back alone, where PELTON_FULL is set (an hour and a half)
"""
import datetime
import http.client
import json
import os
import pathlib
import random
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import gateway_fixture
from gateway_fixture import BOX, Process, ask, chat, check_stream
from ports import free_port
from tiers import full

FULL = False
SCRIPT = {**gateway_fixture.SCRIPT, "step_ms": 1, "slots": 8}


def alive(pid):
    """Runs, or will be waited for by nobody but us."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


class Scaled:
    """A gateway that scales one pool of the model in the box, from zero to `most` replicas."""

    def __init__(self, folder, most=1, scale="", serve=None, launch="", apart=False, record=None, window=6, more=(), start=1, listen=""):
        self.folder = pathlib.Path(folder)
        self.state = self.folder / "replicas"
        script = self.folder / "script.json"
        script.write_text(json.dumps(SCRIPT))
        self.admin = free_port()
        self.apart = apart
        self.record = record
        self.more = more  # flags of the gateway
        self.scaler = None  # the autoscaler, where it is a process of its own
        self.scaler_port = free_port()
        serve = serve or [str(BOX), "--executor", f"modelled:{script}"]
        self.config = self.folder / "gateway.toml"
        self.config.write_text(f"""[gateway]
listen = "127.0.0.1:0"
admin = "127.0.0.1:{self.admin}"
{listen}

[autoscaler]
state_dir = "{self.state}"
gateways = ["http://127.0.0.1:{self.admin}"]
{f'listen = "127.0.0.1:{self.scaler_port}"' if apart else ""}

[[pool]]
name = "box"
model = "pelton-box"

[pool.scale]
max = {most}
window = {window}
idle_to_zero = 1
{scale}

[pool.launch]
serve = {json.dumps(serve)}
start_seconds = {start}
{launch}
""")
        self.gateway = None
        self.start()

    def start(self):
        record = ["--record-facts", self.record] if self.record else []
        if not self.apart:
            self.gateway = Process("gateway", "--config", self.config, "--with-autoscaler", *record, *self.more)
            return
        self.gateway = Process("gateway", "--config", self.config)
        self.start_scaler(*record)

    def start_scaler(self, *flags):
        self.scaler = Process("autoscale", "--config", self.config, *flags)

    def close(self):
        if self.scaler and self.scaler.process.poll() is None:
            self.scaler.end(signal.SIGTERM)
            assert self.scaler.process.returncode == 0, list(self.scaler.log)[-10:]
        # Replicas of an autoscaler that is gone stay for the next one: the test is the last.
        for pid in self.starts() if self.apart else []:
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
        self.gateway.end(signal.SIGTERM)
        assert self.gateway.process.returncode == 0, list(self.gateway.log)[-10:]

    @property
    def port(self):
        return self.gateway.port

    def log(self, words):
        log = self.scaler.log if self.apart else self.gateway.log
        return [line for line in list(log) if words in line]

    def starts(self):
        """Process ids of all that were started, in their order."""
        return [int(re.search(r"process (\d+)", line).group(1)) for line in self.log("is started, process")]

    def card(self):
        return json.loads(ask(self.port, "GET", "/v1/models/pelton-box")[1])

    def wait_for(self, state, seconds=20):
        self.wait(lambda: self.card()["state"] == state, seconds)

    def wait(self, is_so, seconds=20):
        end = time.monotonic() + seconds
        while not is_so():
            assert time.monotonic() < end, list(self.gateway.log)[-30:]
            time.sleep(0.005)

    def page(self):
        """The pool as its autoscaler has it; before its first decision nothing is there."""
        pools = json.loads(ask(self.admin, "GET", "/v1/autoscaler")[1])["pools"]
        return pools[0] if pools else {"standby": 0, "ready": 0, "reason": "", "desired": 0}

    def metric(self, name):
        text = ask(self.admin, "GET", "/metrics")[1]
        return int(re.search(rf"^pelton_gateway_{re.escape(name)} (\d+)$", text, re.M).group(1))


class Autoscale(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name

    def scaled(self, *args, **more):
        fleet = Scaled(self.folder, *args, **more)
        self.addCleanup(fleet.close)
        return fleet

    def at_once(self, fleet, numbers, run=check_stream):
        """A client for each number, all at the same time; what any of them saw is returned."""
        faults = []

        def client(number):
            try:
                run(fleet.port, number, 40, number)
            except Exception as error:  # whatever a client sees is a fault
                faults.append(f"{number}: {error!r}"[:600])
        threads = [threading.Thread(target=client, args=(number,)) for number in numbers]
        for one in threads:
            one.start()
        return threads, faults

    def test_from_nothing_to_one_and_back(self):
        fleet = self.scaled()
        self.assertEqual(fleet.card()["state"], "cold")
        self.assertEqual(fleet.card()["eta_s"], 1)
        self.assertEqual(ask(fleet.port, "GET", "/ready")[0], 200, "who asks is served, so it is ready")
        self.assertEqual(fleet.starts(), [], "nobody has asked for anything")
        cycles = 1000 if FULL else 1
        for cycle in range(cycles):
            threads, faults = self.at_once(fleet, range(1000 * cycle + 1, 1000 * cycle + 41))
            for one in threads:
                one.join()
            self.assertEqual(faults, [], list(fleet.gateway.log)[-20:])
            self.assertEqual(fleet.page()["starts"], cycle + 1, "one launch for all of them")  # its log is not kept for so long
            # In a thousand cycles on a busy machine the quiet second may be over before we ask.
            self.assertIn(fleet.card()["state"], ("ready", "cold") if FULL else ("ready",))
            fleet.wait_for("cold")
            fleet.wait(lambda: not alive(fleet.starts()[-1]))
        self.assertEqual(fleet.metric("unserved_total"), 0)
        self.assertEqual(fleet.metric("streams_interrupted_total"), 0)
        self.assertEqual(fleet.metric('held_requests{pool="box"}'), 0)
        self.assertGreaterEqual(fleet.metric('held_total{pool="box"}'), 40 * cycles)
        page = json.loads(ask(fleet.admin, "GET", "/v1/autoscaler")[1])["pools"][0]
        self.assertEqual((page["pool"], page["state"], page["desired"], page["starts"], page["lost"]), ("box", "cold", 0, cycles, 0), page)
        self.assertEqual(fleet.metric("requests_open"), 0)

    @full
    def test_machines_of_a_provider_that_is_played(self):
        """Two at most, some time after it was ordered, and taken back amid a stream: another one comes, and nothing is lost."""
        fleet = self.scaled(2, scale="min = 1", launch='kind = "simulated"\nquota = 2\nlead_seconds = 0.2\nlead_p90 = 0.4\n'
                                                     'stock_outs = [{at = 1000, for = 10}]\nreclaim_after = 1.5\nreclaim_notice = 0.2')
        threads, faults = self.at_once(fleet, range(1, 5), lambda port, number, _, seed: check_stream(port, number, 900, seed))
        fleet.wait(lambda: fleet.log("will be taken back"), 40)
        for one in threads:
            one.join()
        self.assertEqual(faults, [], list(fleet.gateway.log)[-20:])
        fleet.wait(lambda: len(fleet.starts()) >= 2)
        self.assertEqual(fleet.metric("unserved_total"), 0)

    @unittest.skipUnless("--full" in sys.argv, "figures: --full")
    def test_figures_of_a_first_request(self):
        """A request to the replica's process, by the log's milliseconds and this machine's clock, and to the first byte of its answer."""
        fleet = self.scaled()

        def logged(words):
            stamp = fleet.log(words)[-1].split()[0]
            return datetime.datetime.fromisoformat(stamp.replace("Z", "+00:00")).timestamp()
        called, sent = [], []
        for number in range(11):
            link = http.client.HTTPConnection("127.0.0.1", fleet.port, timeout=60)
            link.connect()
            begin = time.time()
            link.request("POST", "/v1/chat/completions", json.dumps({**chat(number, 4, number), "stream": True}),
                         {"Content-Type": "application/json"})
            with link.getresponse() as answer:
                answer.read(1)
                first = time.time()
                answer.read()
            link.close()
            fleet.wait(lambda: len(fleet.starts()) > number)
            called.append((logged("is started, process") - begin) * 1e3)
            sent.append((first - begin) * 1e3)
            fleet.wait_for("cold")
            fleet.wait(lambda: not alive(fleet.starts()[-1]))
        print(f"first request at zero to its replica's process: {sorted(called)[5]:.1f} ms (at most {max(called):.1f}); "
              f"to the first byte: {sorted(sent)[5]:.0f} ms ({max(sent):.0f})", file=sys.stderr)
        self.assertEqual(len(fleet.starts()), 11)

    @full
    def test_a_provider_without_stock_keeps_requests_waiting(self):
        fleet = self.scaled(launch='kind = "simulated"\nstock_outs = [{at = 0, for = 5}]')
        threads, faults = self.at_once(fleet, range(1, 5))
        for one in threads:
            one.join()
        self.assertEqual(faults, [], list(fleet.gateway.log)[-20:])
        self.assertEqual(len(fleet.log("cannot be had now: the provider is out of stock")), 1)
        self.assertEqual(len(fleet.starts()), 1)

    def test_one_that_stands_by_is_woken_in_place_of_a_start(self):
        fleet = self.scaled(scale="standby = 1")
        page = fleet.page
        fleet.wait(lambda: page()["standby"] == 1)
        replica = fleet.starts()[0]
        self.assertEqual((fleet.card()["state"], fleet.card()["eta_s"]), ("cold", 0))
        for cycle in range(1, 3):
            threads, faults = self.at_once(fleet, range(100 * cycle, 100 * cycle + 20))
            for one in threads:
                one.join()
            self.assertEqual(faults, [], list(fleet.gateway.log)[-20:])
            self.assertEqual(page()["woken"], cycle)
            fleet.wait(lambda: page()["standby"] == 1)
            self.assertEqual(ask(fleet.admin, "GET", "/metrics")[1].count("\npelton_autoscaler_standby_replicas{pool=\"box\"} 1\n"), 1)
        self.assertEqual(fleet.starts(), [replica], "nothing was started for it")
        self.assertTrue(alive(replica))
        self.assertEqual(fleet.metric("unserved_total"), 0)
        # Killed as it stands by, another one takes its place.
        os.kill(replica, signal.SIGKILL)
        fleet.wait(lambda: len(fleet.starts()) == 2)
        fleet.wait(lambda: page()["standby"] == 1)
        check_stream(fleet.port, 3, 20, 3)

    @full
    def test_one_that_stands_by_is_asked_nothing_while_others_serve(self):
        fleet = self.scaled(2, scale="standby = 1\nmin = 1")
        page = fleet.page
        fleet.wait(lambda: (page()["ready"], page()["standby"]) == (1, 1))
        for number in range(6):
            check_stream(fleet.port, number, 20, number)
        workers = json.loads(ask(fleet.admin, "GET", "/v1/workers")[1])["workers"]
        self.assertEqual(sorted(one["state"] for one in workers), ["draining", "ready"], workers)
        asked = {one["state"]: one["requests"] for one in workers}
        self.assertEqual(asked["draining"], 0, workers)

    @full
    def test_one_that_stands_by_gives_its_kv_memory_back(self):
        """A real model: what its KV cache took is the machine's again, and comes back with requests."""
        fleet = self.scaled(scale="standby = 1", serve=[str(BOX), "--kv-cache-memory", "64MiB", "--max-num-seqs", "4"])
        fleet.wait(lambda: fleet.page()["standby"] == 1)
        replica = fleet.starts()[0]
        log = fleet.state / "box.0.log"

        def anonymous():
            return int(re.search(r"^RssAnon:\s+(\d+) kB", pathlib.Path(f"/proc/{replica}/status").read_text(), re.M).group(1)) << 10

        def answer(number):
            text = " ".join(f"{number} and {i}" for i in range(700))
            status, body = ask(fleet.port, "POST", "/v1/completions", {"model": "pelton-box", "prompt": text, "max_tokens": 4, "seed": 1, "temperature": 0})[:2]
            self.assertEqual(status, 200, body)
            return json.loads(body)

        def given_back():
            return log.read_text(errors="replace").count("KV cache's memory is given back")

        fleet.wait(lambda: given_back() == 1)
        before = anonymous()
        first = answer(0)
        for number in range(1, 5):
            answer(number)
        prompt = first["usage"]["prompt_tokens"]
        self.assertGreater(prompt, 2000)
        served = anonymous()
        self.assertGreater(served, before + (4 << 20), "five prompts in the KV cache")
        fleet.wait(lambda: fleet.page()["standby"] == 1 and given_back() == 2)
        self.assertLess(anonymous(), served - (4 << 20), "it is the machine's again")
        again = answer(0)
        self.assertEqual(again["choices"][0]["text"], first["choices"][0]["text"])
        self.assertEqual((again["usage"].get("prompt_tokens_details") or {}).get("cached_tokens", 0), 0, again)
        self.assertEqual((fleet.page()["woken"], fleet.starts()), (2, [replica]), "woken, nothing was started")

    @full
    def test_a_thousand_requests_within_a_moment_start_one_replica(self):
        """FT-40: one launch, every answer whole. Sockets by hand: a thousand threads would be what is measured."""
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(8192, hard), hard))
        fleet = self.scaled()
        count = 1000
        bodies = [json.dumps({**chat(number, 8, number), "stream": False}).encode() for number in range(count)]
        links = [socket.create_connection(("127.0.0.1", fleet.port), 60) for _ in range(count)]
        begin = time.monotonic()
        for link, body in zip(links, bodies):
            link.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: application/json\r\n"
                         b"Content-Length: %d\r\n\r\n" % len(body) + body)
        sent = time.monotonic() - begin
        answers = []
        for link in links:
            with link, link.makefile("rb") as whole:
                answers.append(whole.read())
        print(f"a thousand requests sent in {sent * 1e3:.0f} ms, all answered after {time.monotonic() - begin:.1f} s", file=sys.stderr)
        self.assertEqual([answer[:200] for answer in answers if not answer.startswith(b"HTTP/1.1 200")], [])
        texts = [json.loads(answer.split(b"\r\n\r\n", 1)[1])["choices"][0]["message"]["content"] for answer in answers]
        self.assertTrue(all(texts))
        self.assertEqual(len(fleet.starts()), 1)
        self.assertEqual(fleet.metric("unserved_total"), 0)

    @full
    def test_requests_at_any_moment_of_many_cycles_are_answered(self):
        """Requests of which many come into the moment in which the last replica goes."""
        fleet = self.scaled()
        draw = random.Random(int(os.environ.get("PELTON_SEED", "20261123")))
        for number in range(1000 if FULL else 4):
            check_stream(fleet.port, number, 20, number)
            time.sleep(draw.uniform(0.8, 3.2))
        self.assertGreater(len(fleet.starts()), 0)
        self.assertEqual(fleet.metric("unserved_total"), 0)

    def test_whatever_is_killed_on_the_way_costs_no_answer(self):
        """The starting replica, and the ready one under its streams."""
        fleet = self.scaled()
        threads, faults = self.at_once(fleet, range(1, 41))
        fleet.wait(lambda: len(fleet.starts()) == 1)
        os.kill(fleet.starts()[0], signal.SIGKILL)
        fleet.wait(lambda: len(fleet.starts()) == 2)
        for one in threads:
            one.join()
        self.assertEqual(faults, [], list(fleet.gateway.log)[-20:])
        self.assertEqual(len(fleet.starts()), 2)
        # Under one long stream: it goes on at the next replica where it was.
        threads, faults = self.at_once(fleet, [77], lambda port, number, _, seed: check_stream(port, number, 900, seed))
        time.sleep(0.3)
        os.kill(fleet.starts()[1], signal.SIGKILL)
        for one in threads:
            one.join()
        self.assertEqual(faults, [], list(fleet.gateway.log)[-20:])
        self.assertEqual(len(fleet.starts()), 3)

    def test_no_replica_is_left_behind(self):
        """The gateway is killed: the next one finds its replica, uses it and stops it."""
        fleet = self.scaled()
        check_stream(fleet.port, 5, 20, 5)
        replica = fleet.starts()[0]
        fleet.gateway.end(signal.SIGKILL)
        self.assertTrue(alive(replica))
        fleet.start()
        fleet.wait(lambda: fleet.log("is found again"))
        check_stream(fleet.port, 6, 20, 6)
        self.assertEqual(fleet.starts(), [], "the one that is there serves")
        fleet.wait_for("cold")
        fleet.wait(lambda: not alive(replica))
        # Stopped as it should be, it takes its replica along.
        check_stream(fleet.port, 7, 20, 7)
        replica = fleet.starts()[0]
        fleet.gateway.end(signal.SIGTERM)
        self.assertFalse(alive(replica))
        fleet.start()

    def test_an_objective_is_kept_by_more_replicas(self):
        """policy = "slo": four streams at a time fit into one replica's eight slots, and its gaps are longer than asked for. Two keep them."""
        script = pathlib.Path(self.folder) / "slow.json"
        script.write_text(json.dumps({**SCRIPT, "step_ms": 4, "us_per_row": 4000}))
        fleet = Scaled(self.folder, most=3, scale='policy = "slo"\nitl = 0.017\nscale_down_delay = 1\n',
                       serve=[str(BOX), "--executor", f"modelled:{script}"])
        self.addCleanup(fleet.close)
        over, raised, kept = threading.Event(), [], []

        def load(number):
            while not over.is_set():
                try:
                    # Whole answers count as streams do.
                    if number % 2:
                        check_stream(fleet.port, number, 30, number)
                    else:
                        assert ask(fleet.port, "POST", "/v1/chat/completions", chat(number, 30, number))[0] == 200
                except Exception as error:
                    raised.append(repr(error)[:500])
                    return
        threads = [threading.Thread(target=load, args=(number,)) for number in range(4)]
        for one in threads:
            one.start()

        try:
            fleet.wait(lambda: (said := fleet.page())["reason"] == "objective" and said["desired"] > 1 and kept.append(said) is None, 60)
            said = kept[0]
        finally:
            over.set()
            for one in threads:
                one.join()
        self.assertEqual(raised, [])
        self.assertIn(said["desired"], (2, 3))
        self.assertGreater(said["terms"]["slo"]["itl_s"], 0)
        self.assertGreaterEqual(said["terms"]["slo"]["output_tokens"], 30, "and those of control")
        self.assertFalse(said["terms"]["slo"]["itl_unattainable"])
        self.assertRegex(ask(fleet.admin, "GET", "/metrics")[1], r'pelton_autoscaler_itl_seconds\{pool="box"\} 0\.')

    def test_an_autoscaler_that_is_a_process_of_its_own(self):
        """From nothing to one and back; it is killed amid a start, and the next one goes on with what is there."""
        fleet = self.scaled(apart=True)
        threads, faults = self.at_once(fleet, range(1, 21))
        for one in threads:
            one.join()
        self.assertEqual(faults, [], list(fleet.gateway.log)[-20:])
        self.assertEqual(len(fleet.starts()), 1)
        fleet.wait_for("cold")
        first = fleet.starts()[0]
        fleet.wait(lambda: not alive(first))

        threads, faults = self.at_once(fleet, range(21, 31))
        fleet.wait(lambda: len(fleet.starts()) == 2)
        second = fleet.starts()[1]
        fleet.scaler.end(signal.SIGKILL)
        fleet.start_scaler()
        for one in threads:
            one.join()
        self.assertEqual(faults, [], list(fleet.gateway.log)[-20:])
        self.assertEqual(len(fleet.log("is found again")), 1)
        self.assertEqual(fleet.starts(), [], "what the last one has started serves")
        # With nobody to decide gateways route on.
        fleet.scaler.end(signal.SIGKILL)
        check_stream(fleet.port, 31, 20, 31)
        self.assertTrue(alive(second))
        fleet.start_scaler()
        page = json.loads(ask(fleet.scaler_port, "GET", "/v1/autoscaler")[1])["pools"][0]
        self.assertEqual((page["pool"], page["desired"]), ("box", 1), page)
        # It may have become idle meanwhile.
        self.assertRegex(ask(fleet.scaler_port, "GET", "/metrics")[1], r'(?m)^pelton_autoscaler_desired_replicas\{pool="box"\} [01]$')
        said = subprocess.run([gateway_fixture.BINARY, "autoscale", "--config", fleet.config, "--explain", "box"], capture_output=True,
                              text=True, timeout=30, check=True).stdout
        self.assertRegex(said, r"^[01] replicas?(, 1 to drain)?: ")  # it may have become idle meanwhile
        self.assertRegex(said, r"(?m)^  backlog_ahead +[0-9.]+$")
        wrong = subprocess.run([gateway_fixture.BINARY, "autoscale", "--config", fleet.config, "--explain", "bix"], capture_output=True,
                               text=True, timeout=30, check=False)
        self.assertIn("there is box", wrong.stderr)
        fleet.wait_for("cold")
        fleet.wait(lambda: not alive(second))
        self.assertEqual(fleet.metric("unserved_total"), 0)

    def test_outdated_replicas_are_said_and_rolled_when_that_is_asked_for(self):
        """The file's `serve` changes: the replica is kept and named; with roll = true another one takes its place, under requests."""
        # The load below is to ask for one replica however slow the machine is: a second one would be what the roll keeps.
        fleet = self.scaled(2, apart=True, scale="min = 1\nconcurrency_target = 50\nbacklog = 600")
        fleet.wait(lambda: fleet.starts() and fleet.card()["state"] == "ready")
        first = fleet.starts()[0]
        self.addCleanup(lambda: alive(first) and os.kill(first, signal.SIGKILL))
        text = fleet.config.read_text()

        def again(config):
            fleet.config.write_text(config)
            fleet.scaler.end(signal.SIGTERM)
            fleet.start_scaler()

        def pool():
            pools = json.loads(ask(fleet.scaler_port, "GET", "/v1/autoscaler")[1])["pools"]
            return pools[0] if pools else {"outdated": None, "ready": 0}
        self.assertEqual(pool()["outdated"], {})
        more = text.replace('"]\nstart_seconds', '", "--max-num-seqs", "9"]\nstart_seconds')
        self.assertNotEqual(more, text)
        again(more)
        fleet.wait(lambda: pool()["outdated"] == {"box-0": "other --max-num-seqs"})
        self.assertTrue(fleet.log("set 'roll = true'"))
        said = subprocess.run([gateway_fixture.BINARY, "autoscale", "--config", fleet.config, "--explain", "box"], capture_output=True, text=True,
                              timeout=30, check=False)
        self.assertIn("box-0 was started otherwise: other --max-num-seqs\n", said.stdout)
        faults, stop = [], threading.Event()

        def client(number):
            while not stop.is_set():
                try:
                    check_stream(fleet.port, number, 20, number)
                except Exception as error:  # whatever a client sees is a fault
                    faults.append(repr(error)[:600])
        clients = [threading.Thread(target=client, args=(number,)) for number in range(1, 4)]
        for one in clients:
            one.start()
        time.sleep(0.5)
        self.assertTrue(alive(first), "it is kept")
        self.assertEqual(fleet.starts(), [], list(fleet.scaler.log)[-20:])
        again(more.replace("start_seconds", "roll = true\nstart_seconds"))
        try:
            fleet.wait(lambda: not alive(first) and pool()["outdated"] == {} and pool()["ready"] == 1)
        finally:
            stop.set()
            for one in clients:
                one.join()
        self.assertEqual(faults, [])
        self.assertEqual(len(fleet.starts()), 1, list(fleet.scaler.log)[-20:])

    def test_an_older_autoscaler_is_obeyed_no_longer(self):
        fleet = self.scaled(apart=True)
        fleet.wait(lambda: "desired_replicas" in ask(fleet.scaler_port, "GET", "/metrics")[1])
        newer = {"epoch": int(time.time() * 1000) + 3_600_000, "launched": [], "draining": [], "pools": []}
        status, text = ask(fleet.admin, "POST", "/v1/autoscaler/exchange", newer)
        self.assertEqual(status, 200, text)
        fleet.scaler.process.wait(30)
        self.assertEqual(fleet.scaler.process.returncode, 8, "pelton-autoscale.service does not start it anew")
        fleet.wait(lambda: fleet.log("a newer autoscaler is obeyed"))
        ask(fleet.admin, "POST", "/v1/autoscaler/exchange", newer)  # it speaks, so an older one is refused
        status, text = ask(fleet.admin, "POST", "/v1/autoscaler/exchange", {**newer, "epoch": 5})
        self.assertEqual((status, json.loads(text)["error"]["code"]), (409, "superseded"), text)
        ahead = int(time.time() * 1000) + 90_000_000
        for epoch in (ahead, (1 << 52) + ahead):
            status, text = ask(fleet.admin, "POST", "/v1/autoscaler/exchange", {**newer, "epoch": epoch})
            self.assertEqual((status, json.loads(text)["error"]["code"]), (400, "invalid_exchange"), text)
            self.assertIn("ahead of", text)
        status, text = ask(fleet.admin, "POST", "/v1/autoscaler/exchange", {"epoch": "now"})
        self.assertEqual((status, json.loads(text)["error"]["code"]), (400, "invalid_exchange"), text)

    def test_advice_starts_nothing(self):
        fleet = self.scaled(apart=True, scale="hold_seconds = 1")
        fleet.scaler.end(signal.SIGTERM)
        fleet.start_scaler("--advise")

        def is_advised():
            status, text = ask(fleet.port, "POST", "/v1/chat/completions", chat(1, 20, 1))
            self.assertEqual(status, 503, text)
            return fleet.log("(advice): 1 replica, 1 to start")
        fleet.wait(is_advised, 60)
        self.assertEqual(fleet.starts(), [])

    def test_recorded_facts_give_the_same_decisions_byte_for_byte(self):
        record = pathlib.Path(self.folder) / "facts.jsonl"
        fleet = self.scaled(record=record)
        check_stream(fleet.port, 5, 20, 5)
        fleet.wait_for("cold")
        lines = record.read_text().splitlines()
        self.assertGreater(len(lines), 3)
        self.assertNotIn("check ", record.read_text(), "numbers only")

        def replay(text):
            copy = pathlib.Path(self.folder) / "copy.jsonl"
            copy.write_text(text)
            return subprocess.run([gateway_fixture.BINARY, "autoscale", "--replay", copy], capture_output=True, text=True, timeout=60,
                                  check=False)
        done = replay("\n".join(lines) + "\n")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.splitlines(), lines[1:])
        # Of one that was killed while it wrote the last line has no end.
        done = replay("\n".join(lines)[:-20])
        self.assertEqual((done.returncode, done.stdout.splitlines()), (0, lines[1:-1]), done.stderr)
        other = [*lines[:2], lines[2].replace('"desired":', '"desired":1'), *lines[3:]]
        done = replay("\n".join(other) + "\n")
        self.assertEqual(done.returncode, 1)
        self.assertIn("copy.jsonl:3: decided otherwise", done.stderr)
        done = replay(lines[1] + "\n")
        self.assertIn("copy.jsonl:1: nothing says under which policy", done.stderr)
        done = replay("")
        self.assertEqual((done.returncode, "holds no decision" in done.stderr), (2, True), done.stderr)
        done = subprocess.run([gateway_fixture.BINARY, "autoscale", "--replay", self.folder], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, "is a folder" in done.stderr), (2, True), done.stderr)

    def test_a_replica_that_cannot_start_is_said_to_all(self):
        fleet = self.scaled(serve=[str(pathlib.Path(self.folder) / "no-such-model")])
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(ask(fleet.port, "POST", "/v1/chat/completions", chat(1, 20, 1))))
                   for _ in range(5)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        for status, text in answers:
            self.assertEqual((status, json.loads(text)["error"]["code"]), (503, "model_start_failed"), text)
        self.assertIn("exit code 4, model not found or unreadable", answers[0][1])
        self.assertNotIn(str(self.folder), answers[0][1], "folders are not clients' business")
        self.assertIn("no-such-model", fleet.page()["last_failure"], "its operators learn what it said")
        said = subprocess.run([gateway_fixture.BINARY, "autoscale", "--explain", "box", "--admin", f"http://127.0.0.1:{fleet.admin}"],
                              capture_output=True, text=True, timeout=30, check=True).stdout
        self.assertRegex(said, "the last start that failed: .*exit code 4.*no-such-model")

    @full
    def test_replicas_are_called_as_their_pool(self):
        """A folder of another name: requests name the pool's model, and find it."""
        folder = pathlib.Path(self.folder) / "pelton-box-v2"
        folder.symlink_to(BOX)
        fleet = self.scaled(serve=[str(folder), "--max-num-seqs", "8"])
        status, text = ask(fleet.port, "POST", "/v1/chat/completions", chat(1, 20, 1))
        self.assertEqual(status, 200, text)
        self.assertEqual((fleet.page()["ready"], len(fleet.starts())), (1, 1))

    @full
    def test_a_replica_of_another_name_has_failed_to_start(self):
        """Its names stand in a file that only it reads."""
        names = pathlib.Path(self.folder) / "serve.toml"
        names.write_text('served-model-name = ["another"]\n')
        fleet = self.scaled(most=3, serve=[str(BOX), "--config", str(names)])
        status, text = ask(fleet.port, "POST", "/v1/chat/completions", chat(1, 20, 1))
        self.assertEqual((status, json.loads(text)["error"]["code"]), (503, "model_start_failed"), text)
        self.assertRegex(text, "it serves as 'another.*and its pool is asked for 'pelton-box'")
        fleet.wait(lambda: fleet.page()["ready"] == 0 and not any(alive(pid) for pid in fleet.starts()))
        self.assertEqual(fleet.page()["failed_starts"], len(fleet.starts()))

    def test_a_wrong_file_is_refused_with_its_line(self):
        config = pathlib.Path(self.folder) / "gateway.toml"
        pool = '[[pool]]\nname = "a"\nmodel = "m"\n'
        for text, said in ((pool + "[pool.scale]\nmaxx = 2\n", ":5: [[pool]]: 'scale' has no key 'maxx'; did you mean 'max'?"),
                           (pool + "[pool.scale]\nmin = 2\n", ":5: [[pool]]: 'scale': 'min' (2) is more than 'max' (1)"),
                           (pool + "[pool.scale]\nwindow = 0\n", ":5: [[pool]]: 'scale': 'window'"),
                           (pool + '[pool.scale]\nhold_keepalive = "white"\n', ":5: [[pool]]: 'scale': 'hold_keepalive' must be events"),
                           (pool + "[pool.scale]\nmax = 2\n", ":4: [[pool]]: pool 'a' has no [pool.launch]"),
                           (pool + '[pool.scale]\n[pool.launch]\nserve = ["m", "--max-num-seq", "8"]\n',
                            ":6: [[pool]]: 'launch': 'serve': pelton serve says: unknown flag '--max-num-seq'; did you mean '--max-num-seqs'?"),
                           (pool + '[pool.scale]\n[pool.launch]\nserve = ["m", "--max-num-seqs", "many"]\n', ":6: [[pool]]: 'launch': 'serve'"),
                           (pool + '[pool.scale]\n[pool.launch]\nserve = ["--max-num-seqs", "8"]\n', "MODEL"),
                           (pool + '[pool.scale]\n[pool.launch]\nserve = ["/x/y", "--served-model-name", "n"]\n',
                            ":6: [[pool]]: 'launch': 'serve' calls its models 'n', and the pool's 'model' is 'm'"),
                           (pool + '[pool.scale]\n[pool.launch]\nserve = ["/x/y", "/x/z"]\n', ":6: [[pool]]: 'launch': 'serve' calls its models '/x/y', '/x/z'"),
                           ('[autoscaler]\nlisten = "127.0.0.1:1"\n' + pool + '[pool.scale]\n[pool.launch]\nserve = ["m"]\n',
                            ":2: [autoscaler]: 'listen' is for pelton autoscale"),
                           (pool + '[pool.scale]\n[pool.launch]\nkind = "slurm"\nserve = ["m"]\n', ":7: [[pool]]: 'launch': batch jobs")):
            config.write_text(text)
            done = subprocess.run([gateway_fixture.BINARY, "gateway", "--config", str(config), "--with-autoscaler"],
                                  capture_output=True, text=True, timeout=30, check=False)
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertIn(said, done.stderr)
            if "'serve'" in said:  # whoever scales: a check says it, and a gateway that is to take it
                done = subprocess.run([gateway_fixture.BINARY, "gateway", "--config", str(config), "--allow-empty", "--check"],
                                      capture_output=True, text=True, timeout=30, check=False)
                self.assertEqual((done.returncode, said in done.stderr), (3, True), done.stderr)
        scaled = pool + '[pool.scale]\n[pool.launch]\nserve = ["m"]\n'
        at = '[autoscaler]\ngateways = ["http://127.0.0.1:1"]\n'
        for text, said, *words in (("[autoscaler]\n" + scaled, ":1: [autoscaler] needs 'gateways'"),
                                   (at + 'lead = "etcd"\n' + scaled, ':3: [autoscaler] lead = "etcd" needs [etcd]'),
                                   (at + 'listen = "0.0.0.0:1"\n' + scaled, ":3: [autoscaler]: 'listen' 0.0.0.0 lets anyone"),
                                   (at + 'keda_listen = "0.0.0.0:1"\n' + scaled, ":3: [autoscaler]: 'keda_listen' 0.0.0.0 lets anyone"),
                                   (at + 'max_gpus = 8\n' + scaled, ":3: [autoscaler]: 'max_gpus' says nothing"),
                                   (at + 'max_gpus = 8\n' + pool + '[pool.scale]\nmin = 5\nmax = 5\ngpus = 2\n[pool.launch]\nserve = ["m"]\n',
                                    ":3: [autoscaler]: 'max_gpus' (8) is less than what 'min' and 'standby' of all pools take (10)"),
                                   (at + scaled.replace("[pool.launch]", "gpus = 1\npriority = 5\n[pool.launch]"),
                                    ":6: [[pool]]: 'scale': 'priority' says nothing without 'max_gpus' of [autoscaler]"),
                                   (at + "max_gpus = 8\n" + scaled.replace("[pool.launch]", "priority = 5\n[pool.launch]"),
                                    ":7: [[pool]]: 'scale': 'priority' says nothing without 'gpus'"),
                                   (at + "max_gpus = 8\n" + scaled.replace("[pool.launch]", "gpus = 1\npriority = 5\n[pool.launch]"), None),
                                   (at + 'listen = "0.0.0.0:1"\n' + scaled, None, "--open")):
            config.write_text(text)
            done = subprocess.run([gateway_fixture.BINARY, "autoscale", "--config", str(config), "--check", *words], capture_output=True, text=True,
                                  timeout=30, check=False)
            self.assertEqual(done.returncode, 3 if said else 0, done.stderr)
            self.assertIn(said or "", done.stderr)
        done = subprocess.run([gateway_fixture.BINARY, "autoscale", "--explain", ""], capture_output=True, text=True, timeout=30, check=False)
        self.assertEqual(done.returncode, 3, "no name is no pool: " + done.stderr)
        fleet = self.scaled()
        right = fleet.config.read_text()
        wrong = right.replace('"]\nstart_seconds', '", "--max-num-seq=8"]\nstart_seconds')
        link = http.client.HTTPConnection("127.0.0.1", fleet.admin, timeout=30)
        for text, status in ((right, 200), (wrong, 400)):
            link.request("PUT", "/v1/config?dry_run=true", text)
            answer = link.getresponse()
            body = answer.read().decode()
            self.assertEqual(answer.status, status, body)
        self.assertIn("did you mean '--max-num-seqs'?", body)


if __name__ == "__main__":
    gateway_fixture.BINARY = os.path.abspath(sys.argv[1])
    CYCLES = "--cycles" in sys.argv
    if CYCLES and not os.environ.get("PELTON_FULL"):
        print("PELTON_FULL=1 opens this")
        sys.exit(77)
    FULL = CYCLES or "--full" in sys.argv
    words = [word for word in sys.argv[2:] if word not in ("--full", "--cycles")]
    if CYCLES:
        words += ["-k", "test_from_nothing_to_one_and_back", "-k", "test_requests_at_any_moment_of_many_cycles_are_answered"]
    unittest.main(argv=[sys.argv[0], *words])
