#!/usr/bin/env python3
"""A gateway before workers that misbehave as they are asked to (POST /admin/faults): they hang, are slow, refuse, lie about their load,
keep silent about their prefix cache. No client notices.

usage: gateway_faults_test.py BINARY
"""
import http.client
import json
import os
import random
import sys
import tempfile
import threading
import time
import unittest

import gateway_fixture
from gateway_fixture import BOX, Replicas, ask, chat, check_stream
from tiers import full


class Faults(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name

    def fleet(self, *args, **more):
        fleet = Replicas(self.folder, *args, **more)
        self.addCleanup(fleet.close)
        return fleet

    def streams(self, fleet, numbers, count):
        """Streams at once; what they raised comes from the function that waits for them."""
        raised = []

        def run(number):
            try:
                check_stream(fleet.gateway.port, number, count, number)
            except Exception as error:
                raised.append(repr(error)[:900])
        threads = [threading.Thread(target=run, args=(number,)) for number in numbers]
        for one in threads:
            one.start()

        def wait():
            for one in threads:
                one.join()
            return raised
        return wait

    def wait(self, fleet, what):
        end = time.monotonic() + 20
        while not what() and time.monotonic() < end:
            time.sleep(0.02)
        self.assertTrue(what(), (fleet.rows(), list(fleet.gateway.log)[-10:]))

    def test_replicas_are_workers_of_their_own(self):
        fleet = self.fleet(4)
        self.assertEqual(len({row["incarnation"] for row in fleet.rows()}), 4)
        self.assertEqual([row["name"] for row in fleet.rows()], ["w-0", "w-1", "w-2", "w-3"])
        self.assertEqual(self.streams(fleet, range(40), 60)(), [])
        self.assertEqual(sum(row["requests"] for row in fleet.rows()), 40)
        for row in fleet.rows():
            self.assertGreater(row["requests"], 0, row["name"])
        for port in fleet.admins:
            ledger = json.loads(ask(port, "GET", "/debug/ledger")[1])
            self.assertEqual(ledger["requests"]["running"] if "requests" in ledger else 0, 0, ledger)
        # What is no fault is refused with its name.
        status, text = ask(fleet.admins[0], "POST", "/admin/faults", {"hung": True})
        self.assertEqual((status, json.loads(text)["error"]["param"]), (400, "hung"))
        self.assertEqual(ask(fleet.admins[0], "DELETE", "/admin/faults")[0], 405)
        fleet.fault(1, slow=3)
        self.assertEqual(json.loads(ask(fleet.admins[1], "GET", "/admin/faults")[1])["slow"], 3)
        self.assertEqual(json.loads(ask(fleet.admins[0], "GET", "/admin/faults")[1])["slow"], 1)

    def test_a_worker_whose_step_does_not_end_is_left(self):
        """FT-12: its HTTP answers; what it has begun goes on elsewhere, and when it goes on nobody hears it."""
        fleet = self.fleet(2)
        streams = self.streams(fleet, range(20), 600)
        self.wait(fleet, lambda: fleet.row(0)["running"] > 2)
        fleet.fault(0, hang=True)
        self.assertEqual(streams(), [])
        self.assertEqual(fleet.row(0)["state"], "down")
        self.assertIn("no progress", fleet.row(0)["reason"])
        self.assertGreater(fleet.metric("migrations_total"), 2)
        fleet.fault(0)
        fleet.wait_for(2)
        self.assertEqual(self.streams(fleet, range(50, 60), 20)(), [])

    def test_a_worker_that_refuses_some_requests_is_retried(self):
        """FT-13: a fifth of its answers are errors; no client sees one."""
        fleet = self.fleet(4)
        fleet.fault(2, errors=0.2)
        for i in range(80):
            status, text = ask(fleet.gateway.port, "POST", "/v1/chat/completions", chat(i, 3, 1))
            self.assertEqual(status, 200, text)
        self.assertEqual(fleet.metric("unserved_total"), 0)
        # All of them are, and nobody else is there: what the retry budget does not cover is seen, until it is ejected.
        fleet.fault(2, errors=1)
        for i in (0, 1, 3):
            self.assertEqual(ask(fleet.admin, "POST", f"/v1/workers/w-{i}/drain")[0], 200)
        end = time.monotonic() + 30
        while fleet.row(2)["state"] != "ejected" and time.monotonic() < end:
            self.assertIn(ask(fleet.gateway.port, "POST", "/v1/chat/completions", chat(1, 3, 1), **{"x-request-timeout-ms": "500"})[0], (408, 500))
        self.assertRegex(fleet.row(2)["reason"], "failures in a row|in ten seconds")
        for i in (0, 1, 3):
            self.assertEqual(ask(fleet.admin, "POST", f"/v1/workers/w-{i}/undrain")[0], 200)
        self.wait(fleet, lambda: fleet.ready() == 3)
        self.assertEqual(self.streams(fleet, range(20), 10)(), [])
        fleet.fault(2)
        ask(fleet.admin, "POST", "/v1/workers/w-2/restore")
        fleet.wait_for(4)

    @full
    def test_a_worker_that_announces_nothing_is_only_slower(self):
        """FT-32: half of the events are lost, and then all of them."""
        fleet = self.fleet(2, pool=f'tokenizer = "{BOX}"\n')
        long = "A wheel turns by the river and the miller counts his sacks. " * 30
        for share in (0.5, 1):
            for i in range(2):
                fleet.fault(i, drop_events=share)
            for turn in range(12):
                body = {"model": "pelton-box", "messages": [{"role": "user", "content": f"Story {turn % 3}. {long}"}]}
                status, text = ask(fleet.gateway.port, "POST", "/v1/chat/completions", body)
                self.assertEqual(status, 200, text)
                self.assertEqual(json.loads(text)["choices"][0]["message"]["content"], "Ready.")
        self.assertEqual(fleet.metric("prompts_named_total"), 24)
        self.assertEqual(self.streams(fleet, range(10), 40)(), [])

    def test_a_worker_that_lies_about_its_load_harms_nobody(self):
        """GW-06: -1, 10^18 and always 0."""
        fleet = self.fleet(3)
        for number in (-1, 1e18, 0):
            fleet.fault(1, lie_load=number)
            time.sleep(0.3)  # it is heard every 100 ms
            self.assertEqual(self.streams(fleet, range(24), 60)(), [], number)
            self.wait(fleet, lambda: fleet.ready() == 3)
        # Always 0: at first it draws all there is, and then it is priced by what it does. How soon that shows depends on the machine.
        shares = []
        while not shares or (shares[-1] >= 32 and len(shares) < 15):
            before = fleet.row(1)["requests"]
            self.assertEqual(self.streams(fleet, range(40), 60)(), [])
            shares.append(fleet.row(1)["requests"] - before)
        self.assertLess(shares[-1], 32, shares)
        self.assertEqual(fleet.metric("streams_interrupted_total") + fleet.metric("unserved_total"), 0)


    def test_the_odd_one_out_is_ejected(self):
        """FT-13: it fails a fifth of its requests and the others none: it gets no more, the log says why, and no client has seen it."""
        fleet = self.fleet(3)
        fleet.fault(0, errors=0.2)
        over, raised, numbers = threading.Event(), [], iter(range(10**6))

        def load():
            while not over.is_set():
                try:
                    check_stream(fleet.gateway.port, number := next(numbers), 60, number)
                except Exception as error:
                    raised.append(repr(error)[:600])
        # So many at once that all workers have some.
        threads = [threading.Thread(target=load) for _ in range(24)]
        for one in threads:
            one.start()
        self.wait(fleet, lambda: fleet.row(0)["state"] == "ejected")
        over.set()
        for one in threads:
            one.join()
        self.assertEqual(raised, [])
        self.assertRegex(fleet.row(0)["reason"], "in ten seconds|in a row")
        self.assertEqual([fleet.row(i)["state"] for i in (1, 2)], ["ready", "ready"])

    def test_in_panic_the_ejected_are_tried(self):
        """FT-13: most of the pool takes no requests; then who was ejected for its failures is better than nobody, before its time is over."""
        fleet = self.fleet(3)
        fleet.fault(0, errors=1)
        for i in (1, 2):
            self.assertEqual(ask(fleet.admin, "POST", f"/v1/workers/w-{i}/drain")[0], 200)
        end = time.monotonic() + 30
        while fleet.row(0)["state"] != "ejected" and time.monotonic() < end:
            ask(fleet.gateway.port, "POST", "/v1/chat/completions", chat(1, 3, 1), **{"x-request-timeout-ms": "500"})
        fleet.fault(0)
        before = fleet.row(0)["requests"]
        statuses = []

        def post(number):
            statuses.append(ask(fleet.gateway.port, "POST", "/v1/chat/completions", chat(number, 30, 1), **{"x-request-timeout-ms": "2500"})[0])
        # Several on their way at once: the first that is served ends the ejection, whatever was sent behind it.
        threads = [threading.Thread(target=post, args=(number,)) for number in range(6)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        self.assertEqual(statuses, [200] * 6)
        self.assertEqual(fleet.row(0)["requests"] - before, 6)
        self.assertEqual(fleet.row(0)["state"], "ready")

    @full
    def test_FT_60_faults_in_any_order(self):
        """Whatever a seed draws, one worker after the other and several at once: no client sees any of it, and all is back to zero."""
        seed = int(os.environ.get("PELTON_SEED", "0")) or random.randrange(1, 10**6)
        print(f"PELTON_SEED={seed}", flush=True)
        fleet = self.fleet(4)
        for run in range(100):
            draw = random.Random(seed + run)
            over, raised, numbers = threading.Event(), [], iter(range(10**9))
            self.addCleanup(over.set)

            def load(over=over, raised=raised, numbers=numbers):
                while not over.is_set() and not raised:
                    number = next(numbers)
                    try:
                        check_stream(fleet.gateway.port, number, 20 + number % 150, number)
                    except Exception as error:
                        raised.append(repr(error)[:600])
            threads = [threading.Thread(target=load) for _ in range(16)]
            for one in threads:
                one.start()
            # Two are sound at each moment, so that there is always one to go on at.
            for _ in range(6):
                for bad in draw.sample(range(4), draw.choice((1, 2, 2))):
                    faults = draw.choice(({"hang": True}, {"slow": draw.choice((3, 30))}, {"errors": draw.uniform(0, 0.3)}, {"drop_events": draw.random()},
                                          {"lie_load": draw.choice((-1, 0, 1e18))}, {"slow": 20, "lie_load": 0}, {"errors": 0.2, "slow": 5}))
                    fleet.fault(bad, **faults)
                    command = draw.choice(("", "", "drain", "eject"))
                    if command:
                        self.assertEqual(ask(fleet.admin, "POST", f"/v1/workers/w-{bad}/{command}")[0], 200)
                time.sleep(draw.uniform(0.1, 0.7))
                for i in range(4):
                    fleet.fault(i)
                    for command in ("undrain", "restore"):
                        ask(fleet.admin, "POST", f"/v1/workers/w-{i}/{command}")
                fleet.wait_for(4)
            over.set()
            for one in threads:
                one.join()
            self.assertEqual(raised, [], seed + run)
            self.assertEqual((fleet.metric("requests_open"), fleet.metric("queue_requests")), (0, 0), seed + run)
            self.assertEqual(fleet.metric("streams_interrupted_total") + fleet.metric("unserved_total"), 0, seed + run)
        self.wait(fleet, lambda: all(row["running"] == 0 for row in fleet.rows()))

    @full
    def test_a_trial_whose_client_leaves_is_made_again(self):
        """The only worker is ejected; its time is over, and whoever would show that it is well again goes away."""
        fleet = self.fleet(2)
        self.assertEqual(ask(fleet.admin, "POST", "/v1/workers/w-1/drain")[0], 200)
        self.assertEqual(ask(fleet.admin, "POST", "/v1/workers/w-0/eject")[0], 200)
        self.assertEqual(fleet.row(0)["reason"], "by an operator")
        time.sleep(5.2)
        link = http.client.HTTPConnection("127.0.0.1", fleet.gateway.port, timeout=30)
        link.request("POST", "/v1/chat/completions", json.dumps(chat(1, 900, 1, stream=True)), {"Content-Type": "application/json"})
        self.wait(fleet, lambda: fleet.row(0)["requests"] == 1)
        link.sock.close()
        link.close()
        self.wait(fleet, lambda: fleet.row(0)["running"] == 0)
        check_stream(fleet.gateway.port, 2, 20, 2)
        self.assertEqual(fleet.row(0)["state"], "ready")


if __name__ == "__main__":
    gateway_fixture.BINARY = os.path.abspath(sys.argv[1])
    unittest.main(argv=[sys.argv[0], *[word for word in sys.argv[2:] if word != "--full"]], verbosity=2)
