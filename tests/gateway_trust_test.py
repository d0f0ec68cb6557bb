#!/usr/bin/env python3
"""Whether a worker is what its pool takes it for: other weights under one name, announcements that its answers do not bear out, first
tokens that come late. And what a gateway says of all that: metrics, limits, the index.

usage: gateway_trust_test.py BINARY
"""
import itertools
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import gateway_fixture
import gateway_wire_test
from gateway_fixture import BOX, Fleet, Process, Replicas, ask, chat, check_stream, events
from ports import free_port
from tiers import full

CHAT = "/v1/chat/completions"


class Trust(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def wait(self, what, said=lambda: ""):
        end = time.monotonic() + 20
        while not what() and time.monotonic() < end:
            time.sleep(0.02)
        self.assertTrue(what(), said())

    def replicas(self, *args, **more):
        fleet = Replicas(self.folder, *args, **more)
        self.addCleanup(fleet.close)
        return fleet

    def verb(self, fleet, *words):
        done = subprocess.run([gateway_fixture.BINARY, "fleet", *map(str, words), "--admin", f"http://127.0.0.1:{fleet.admin}"],
                              capture_output=True, text=True, timeout=30, check=True)
        return done.stdout

    def other_weights(self):
        """The box model with one tensor's numbers halved, which is another model of the same name."""
        folder = self.folder / "other" / "pelton-box"
        shutil.copytree(BOX, folder)
        file = folder / "model.safetensors"
        data = bytearray(file.read_bytes())
        size = struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:8 + size])
        name = next(name for name, one in header.items() if name.endswith("norm.weight") and one["dtype"] == "BF16")
        begin, end = (8 + size + at for at in header[name]["data_offsets"])
        for at in range(begin, end, 2):
            bits = struct.unpack_from("<H", data, at)[0]
            if bits & 0x7F80 > 0x80:
                struct.pack_into("<H", data, at, bits - 0x80)
        file.write_bytes(data)
        return folder

    def test_GW_05_a_worker_with_other_weights_gets_nothing(self):
        """It joins under its pool's model name; nothing is sent to it, no answer moves there, and who looks sees why."""
        fleet = Fleet(self.folder, 1, gateway=("resume_budget = 1\n",), serve=("--kv-cache-memory", "16MiB"))
        self.addCleanup(fleet.close)
        port = free_port()

        def serve(model):
            return Process("serve", model, "--kv-cache-memory", "16MiB", "--port", "0", "--fleet-port", port, "--fleet-name", "other",
                           "--fleet-key-file", fleet.key)
        stranger = serve(self.other_weights())
        self.addCleanup(stranger.end)
        fleet.configure([*fleet.ports, port])

        def row(name):
            return next((row for row in fleet.rows() if row["name"] == name), {"state": "unknown"})
        self.wait(lambda: row("other")["state"] == "unverified", fleet.rows)
        mine, theirs = row("w0")["fingerprint"], row("other")["fingerprint"]
        self.assertRegex(mine, "^[0-9a-f]{32}$")
        self.assertNotEqual(mine, theirs)
        self.assertIn(f"fingerprint {theirs[:12]}, most workers' {mine[:12]}", row("other")["reason"])
        self.assertRegex(self.verb(fleet, "ls"), "other .*unverified .*its weights, tokenizer, template or settings are not its pool's")
        self.assertEqual(fleet.metric("workers", state="unverified"), 1)
        self.wait(lambda: "worker other is unverified: its weights" in "".join(fleet.gateway.log), lambda: fleet.gateway.log)
        body = {"model": "pelton-box", "messages": [{"role": "user", "content": "Say something."}], "max_tokens": 40, "temperature": 0}
        texts = {ask(fleet.gateway.port, "POST", CHAT, body)[0] for _ in range(8)}
        self.assertEqual((texts, row("other")["requests"]), ({200}, 0))
        # An answer that has begun ends rather than go on in other words.
        heard = []
        long = {**body, "max_tokens": 1500, "ignore_eos": True, "stream": True}
        reader = threading.Thread(target=lambda: heard.extend(events(fleet.gateway.port, CHAT, long)))
        reader.start()
        self.wait(lambda: row("w0")["running"] == 1)
        time.sleep(0.3)
        fleet.kill(0)
        reader.join()
        self.assertIn("stream_interrupted", heard[-1])
        self.assertEqual(row("other")["requests"], 0)
        self.assertEqual(ask(fleet.gateway.port, "POST", CHAT, body)[0], 503, "the first one may come back: nobody takes its place")
        # Two when it is tried once more where it was, before that is known to be gone.
        self.assertIn(fleet.metric("migrations_total", kind="cold", result="failed"), (1, 2))
        # It has been taken out for good: what is left is the pool.
        fleet.configure([port])
        self.wait(lambda: row("other")["state"] == "ready", fleet.rows)
        self.assertEqual(ask(fleet.gateway.port, "POST", CHAT, body)[0], 200)
        # What is configured goes before what came first.
        fleet.head += f'fingerprint = "{mine}"\n'
        fleet.configure([port])
        self.wait(lambda: row("other")["state"] == "unverified", fleet.rows)
        self.assertIn(f"configured {mine[:12]}", row("other")["reason"])
        stranger.end()
        proper = serve(BOX)
        self.addCleanup(proper.end)
        self.wait(lambda: row("other")["state"] == "ready", fleet.rows)
        self.assertEqual(row("other")["fingerprint"], mine, "wherever its files lie and whenever it was started")

    def test_a_new_version_takes_over_when_the_old_one_is_stopped(self):
        """FT-23: while workers of the first fingerprint are there the next one waits; once those are being stopped it is the pool's."""
        sound, Worker = gateway_wire_test.sound, gateway_wire_test.Worker
        old, new = Worker("old", sound), Worker("new", sound)
        for one, digit in ((old, "a"), (new, "b")):
            self.addCleanup(one.close)
            one.record["fingerprints"] = {"m": digit * 32}
        admin = free_port()
        config = self.folder / "gateway.toml"

        def configure(*workers):
            fresh = self.folder / "fresh.toml"
            fresh.write_text(f'[gateway]\nlisten = "127.0.0.1:0"\nadmin = "127.0.0.1:{admin}"\nresume_budget = 1\n[[pool]]\nname = "p"\nmodel = "m"\n' +
                             "".join(f'[[worker]]\npool = "p"\nurl = "http://127.0.0.1:{one.server_port}"\n' for one in workers))
            fresh.rename(config)
        configure(old)
        gateway = Process("gateway", "--config", config)
        self.addCleanup(gateway.end)

        def states():
            return {row["name"]: row["state"] for row in json.loads(ask(admin, "GET", "/v1/workers")[1])["workers"]}

        def ask_some():
            before = len(old.runs), len(new.runs)
            for _ in range(8):
                self.assertEqual(ask(gateway.port, "POST", CHAT, gateway_wire_test.BODY_OF)[0], 200)
            return len(old.runs) - before[0], len(new.runs) - before[1]
        self.wait(lambda: states() == {"old": "ready"})
        configure(old, new)
        self.wait(lambda: states() == {"old": "ready", "new": "unverified"}, states)
        self.assertEqual(ask_some(), (8, 0))
        old.load = {"draining": True, "ready": False}
        self.wait(lambda: states() == {"old": "draining", "new": "ready"}, states)
        self.assertEqual(ask_some(), (0, 8))
        # The old version comes back: now that one waits.
        old.incarnation, old.load = "old-2", {}
        self.wait(lambda: states() == {"old": "unverified", "new": "ready"}, states)
        self.assertEqual(ask_some(), (0, 8))
        # Who says nothing of what it computes with is taken as it is, but goes on with nobody's answer.
        del old.record["fingerprints"]
        old.incarnation = "old-3"
        self.wait(lambda: states() == {"old": "ready", "new": "ready"}, states)

        def two_of_four(run, send, cut):
            gateway_wire_test.first_two(send)
            cut()
        new.answer, before = two_of_four, len(new.runs)
        while len(new.runs) == before:
            data = events(gateway.port, CHAT, {**gateway_wire_test.BODY_OF, "stream": True})
        self.assertEqual(len(new.runs) - before > 0 and "stream_interrupted" in data[-1], True, data)

    def test_announcements_that_answers_do_not_bear_out_are_passed_over(self):
        """F 6.4: more than a fifth of fifty answers find other blocks than were announced; a test with events on makes them believed again."""
        fleet = self.replicas(1, pool=f'tokenizer = "{BOX}"\n')

        def stories(text):
            """One after the other: when a prompt comes again, what was on its way to the worker, and counted as held, is so no longer."""
            return itertools.cycle([{"model": "pelton-box", "messages": [{"role": "user", "content": f"{number}. " + text * 20}]}
                                    for number in range(8)])
        bodies = stories("The miller counts his sacks by the river. ")

        def index():
            return json.loads(ask(fleet.admin, "GET", "/v1/index?name=w")[1])

        def requests(count):
            for _ in range(count):
                self.assertEqual(ask(fleet.gateway.port, "POST", CHAT, next(bodies))[0], 200)
                time.sleep(0.06)

        def until_doubted(count):
            end = time.monotonic() + 20
            while index()["believed"] and time.monotonic() < end:
                requests(1)
            self.assertFalse(index()["believed"], index())
        self.assertEqual((index()["names_agree"], index()["believed"], index()["blocks"]), (True, True, 0))
        fleet.fault(0, drop_events=1)
        requests(45)
        self.assertTrue(index()["believed"], "fifty are asked for")
        self.assertGreater(index()["wrong_of_last_50"], 30)
        fleet.fault(0)
        until_doubted(10)
        self.assertEqual(fleet.metric("names_doubted_total"), 1)
        self.assertIn("what it announces is passed over", "".join(fleet.gateway.log))
        self.wait(lambda: index()["believed"], lambda: list(fleet.gateway.log)[-5:])
        self.assertIn("a test of its blocks' names has passed: 3 of 3 announced", "".join(fleet.gateway.log))
        self.assertGreater(index()["blocks"], 0)
        # As long as nothing is announced the test fails, and load alone decides.
        fleet.fault(0, drop_events=1)
        bodies = stories("Another story, of a baker and his oven. ")
        requests(50)
        until_doubted(10)
        self.wait(lambda: "a test of its blocks' names has failed: 0 of 3 announced" in "".join(fleet.gateway.log),
                  lambda: list(fleet.gateway.log)[-5:])
        self.assertEqual((index()["believed"], fleet.rows()[0]["names_agree"], fleet.rows()[0]["state"]), (False, False, "ready"))
        check_stream(fleet.gateway.port, 1, 20, 1)
        self.assertEqual(ask(fleet.admin, "GET", "/v1/index?name=nobody")[0], 404)
        self.assertEqual(ask(fleet.admin, "GET", "/v1/index")[0], 400)

    @full
    def test_FT_13_a_worker_whose_first_tokens_come_late_is_ejected(self):
        """Ten times slower from one moment on: what it was sent by then comes late, and it gets no more for a while. No client minds. (Later its
        own reports say how slow it is, and so it would be priced.)"""
        fleet = self.replicas(3, script={**gateway_fixture.SCRIPT, "step_ms": 100})
        over, raised, numbers = threading.Event(), [], iter(range(10**6))
        self.addCleanup(over.set)

        def load():
            while not over.is_set() and not raised:
                try:
                    check_stream(fleet.gateway.port, number := next(numbers), 2, number)
                except Exception as error:
                    raised.append(repr(error)[:600])
        threads = [threading.Thread(target=load) for _ in range(90)]
        for one in threads:
            one.start()
        self.wait(lambda: all(fleet.row(i)["requests"] > 60 for i in range(3)))
        self.assertEqual(fleet.ready(), 3)
        time.sleep(10)  # younger ones are not judged
        fleet.fault(1, slow=10)
        self.wait(lambda: fleet.metric("ejections_total", reason="slow_first_token") > 0, lambda: (fleet.rows(), list(fleet.gateway.log)[-5:]))
        over.set()
        for one in threads:
            one.join()
        self.assertEqual(raised, [])
        self.assertRegex("".join(fleet.gateway.log) + json.dumps(fleet.rows()),
                         r"its first tokens come \d+\.\d times as late as the others' of its pool, of its last 20 requests")
        self.assertEqual([fleet.row(i)["state"] for i in (0, 2)], ["ready", "ready"])
        self.assertEqual(fleet.metric("ejections_total", reason="failure_share"), 0)

    def test_what_a_gateway_says_of_itself(self):
        """F 15, F 17: figures by label, limits and what is left of them."""
        keys = self.folder / "keys"
        keys.write_text("key-a acme rpm=600 tpm=100000 concurrent=7\nkey-b other rpm=5\nkey-c third\n")
        fleet = self.replicas(2, gateway=(f'keys_file = "{keys}"\n',))

        def post(key, **more):
            return ask(fleet.gateway.port, "POST", CHAT, {**chat(1, 5, 1), **more}, Authorization=f"Bearer {key}")[0]
        self.assertEqual([post("key-a") for _ in range(4)], [200] * 4)
        self.assertEqual(post("key-a", temperature=-1), 400)
        self.assertEqual(fleet.metric("requests_total", pool="box", code_class="2xx", outcome="ok"), 4)
        self.assertEqual(fleet.metric("requests_total", pool="box", code_class="4xx", outcome="client_error"), 1)
        self.assertEqual(fleet.metric("requests_total"), 5)
        self.assertGreaterEqual(fleet.metric("decision_seconds_count"), 5)
        self.assertEqual(fleet.metric("added_seconds_count"), 5)
        self.assertEqual(fleet.metric("retry_budget"), 10)
        fleet.fault(0, errors=1)
        others = itertools.count()  # so that both workers are asked: one prompt stays with one of them
        self.wait(lambda: post("key-c", messages=[{"role": "user", "content": f"check {next(others) % 40} 5 please"}]) == 200 and fleet.metric("retries_total") > 0)
        self.assertEqual(fleet.metric("retries_total"), fleet.metric("retries_total", reason="refused"))
        self.assertLess(fleet.metric("retry_budget"), 10)
        young = re.compile(r'^pelton_gateway_report_age_seconds\{pool="box",worker="w-[01]"\} 0', re.M)
        self.wait(lambda: len(young.findall(ask(fleet.admin, "GET", "/metrics")[1])) == 2)
        self.assertGreater(fleet.metric("index_bytes"), 1 << 20)
        ask(fleet.admin, "POST", "/v1/workers/w-0/eject")
        self.wait(lambda: fleet.metric("ejections_total", reason="operator") == 1)
        # Nobody takes it: it waits, and is counted.
        for i in (0, 1):
            ask(fleet.admin, "POST", f"/v1/workers/w-{i}/drain")
        waiting = threading.Thread(target=lambda: post("key-c"))
        waiting.start()
        self.wait(lambda: fleet.metric("queue_requests") == 1)
        ask(fleet.admin, "POST", "/v1/workers/w-1/undrain")
        waiting.join()
        self.assertEqual((fleet.metric("queue_requests"), fleet.metric("queue_seconds_count")), (0, 1))
        # Limits.
        answer = json.loads(ask(fleet.admin, "GET", "/v1/limits")[1])
        self.assertEqual((answer["gateways"], answer["not_shown"], [one["tenant"] for one in answer["limits"]]), (1, 0, ["acme", "other"]))
        acme, other = answer["limits"]
        self.assertEqual(acme["concurrent_requests"], {"limit": 7, "here": 7, "left": 7})
        self.assertEqual((acme["requests_per_minute"]["limit"], acme["requests_per_minute"]["here"]), (600, 600))
        self.assertIn(acme["requests_per_minute"]["left"], range(595, 601))
        self.assertLessEqual(acme["tokens_per_minute"]["left"], 100000)
        self.assertEqual(other["requests_per_minute"], {"limit": 5, "here": 5, "left": 5})
        self.assertNotIn("key-a", json.dumps(answer))
        self.assertEqual([one["tenant"] for one in json.loads(ask(fleet.admin, "GET", "/v1/limits?tenant=other")[1])["limits"]], ["other"])
        self.assertRegex(self.verb(fleet, "limits"), r"acme +[0-9a-f]{12} requests_per_minute +600 +600 +\d+\n")
        self.assertEqual(ask(fleet.gateway.port, "GET", "/v1/limits", Authorization="Bearer key-a")[0], 404, "GW-18")
        self.assertEqual(ask(fleet.admin, "POST", "/v1/limits")[0], 405)


if __name__ == "__main__":
    gateway_fixture.BINARY = os.path.abspath(sys.argv[1])
    unittest.main(argv=[sys.argv[0], *[word for word in sys.argv[2:] if word != "--full"]], verbosity=2)
