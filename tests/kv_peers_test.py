#!/usr/bin/env python3
"""Keys and values that travel between workers behind a gateway: whatever is fetched, refused, cut off or killed, the model in the box says
what it says alone; hits come from peers, are counted, and never are another tenant's.

usage: kv_peers_test.py BINARY
"""
import concurrent.futures
import json
import pathlib
import random
import signal
import sys
import tempfile
import threading
import time
import unittest

import gateway_fixture
from gateway_fixture import BOX, Fleet, Process, ask
from ports import free_port
from same_times import check_alike
from tiers import FULL, full

CHAT = "/v1/chat/completions"
SCHEMA = {"type": "object", "properties": {"words": {"type": "array", "items": {"type": "string", "maxLength": 8}, "maxItems": 3}},
          "required": ["words"], "additionalProperties": False}
WAYS = ({"temperature": 0}, {"temperature": 1.1, "seed": 7, "top_p": 0.95}, {"temperature": 0, "logprobs": True, "top_logprobs": 2},
        {"temperature": 0.8, "seed": 3, "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}})
PROMPTS = 500 if FULL else 16
COMMON = ("--threads", "1", "--device", "cpu", "--current-date", "2026-11-28", "--max-model-len", "768", "--max-num-seqs", "2")
PEER = ("--kv-cache-memory", "16MiB", "--swap-space", "16MiB", "--kv-port", "0")


def body(number):
    draw = random.Random(number)
    words = " ".join(draw.choice(("apple", "river", "seven", "cloud", "stone", "paper")) for _ in range(200))
    return {"model": "pelton-box", "messages": [{"role": "user", "content": f"Canary {number}. {words}"}], "max_completion_tokens": 16,
            **WAYS[number % len(WAYS)]}


LONG = {"model": "pelton-box", "prompt": "river", "max_tokens": 300, "ignore_eos": True}


def hold(port, stop):
    """Keeps one of a worker's places taken, past its gateway."""
    while not stop.is_set():
        ask(port, "POST", "/v1/completions", LONG)


class PeerFleet(Fleet):
    """Workers that fetch from each other, each with an admin port."""

    def start(self, i):
        self.admins = getattr(self, "admins", {})
        self.admins[i] = free_port()
        self.workers[i] = Process("serve", BOX, *COMMON, *self.flags_of(i), "--port", "0", "--fleet-port", self.ports[i], "--fleet-name",
                                  f"w{i}", "--fleet-key-file", self.key, "--admin-port", self.admins[i])

    def flags_of(self, _):
        return self.flags

    def figure(self, i, name, **labels):
        """Of a worker's own metrics."""
        return gateway_fixture.figure(self.workers[i].port, name, **labels)

    def only(self, i):
        """New requests go to this worker alone; the others stay, and serve what they have."""
        for other in range(len(self.workers)):
            status, text = ask(self.admin, "POST", f"/v1/workers/w{other}/{'undrain' if other == i else 'drain'}")
            assert status == 200, text
        end = time.monotonic() + 15
        while next(row["state"] for row in self.rows() if row["name"] == f"w{i}") != "ready":
            assert time.monotonic() < end, self.rows()
            time.sleep(0.02)

    def wait_until_announced(self, i):
        """What this worker has is known to the gateway."""
        last, quiet = None, 0
        while quiet < 5:
            now = json.loads(ask(self.admin, "GET", f"/v1/index?name=w{i}")[1])["blocks"]
            quiet = quiet + 1 if now == last and now > 0 else 0
            last = now
            time.sleep(0.05)


class MixedFleet(PeerFleet):
    """The first worker is two ranks, which exchange no blocks (docs/parallel.md); the others are one process each and do."""

    def flags_of(self, i):
        return PEER if i > 0 else ("--kv-cache-memory", "16MiB", "--tensor-parallel-size", "2")


class Peers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        alone = Process("serve", BOX, *COMMON, "--kv-cache-memory", "16MiB", "--port", "0")
        try:
            cls.alone = [cls.answer(alone.port, number)[0] for number in range(PROMPTS)]
        finally:
            alone.end()

    @staticmethod
    def answer(port, number, key=None):
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        status, text = ask(port, "POST", CHAT, body(number), **headers)
        assert status == 200, text
        reply = json.loads(text)
        details = reply["usage"]["prompt_tokens_details"]
        return json.dumps(reply["choices"]), details["cached_tokens"], details.get("cached_tokens_details", {}).get("peer", 0)

    def fleet(self, workers=2, gateway=(), serve=PEER):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        fleet = PeerFleet(scratch.name, workers, serve=serve, gateway=gateway, pool=f'tokenizer = "{BOX}"\n')
        self.addCleanup(fleet.close)
        return fleet

    def wait(self, what, why):
        end = time.monotonic() + 30
        while not what():
            self.assertLess(time.monotonic(), end, why)
            time.sleep(0.02)

    def check_clean(self, fleet, i):
        self.wait(lambda: json.loads(ask(fleet.admins[i], "GET", "/debug/ledger")[1])["clean"],
                  f"w{i}: {ask(fleet.admins[i], 'GET', '/debug/ledger')[1]}")

    def test_what_one_worker_computed_another_fetches(self):
        fleet = self.fleet()
        fleet.only(0)
        for number in range(PROMPTS):
            self.assertEqual(self.answer(fleet.gateway.port, number)[0], self.alone[number], number)
        fleet.wait_until_announced(0)
        fleet.only(1)
        peer = 0
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for number, (said, _, fetched) in enumerate(pool.map(lambda n: self.answer(fleet.gateway.port, n), range(PROMPTS))):
                self.assertEqual(said, self.alone[number], number)
                peer += fetched
        self.assertGreater(peer, 200, list(fleet.workers[1].log)[-10:])
        self.assertEqual(fleet.figure(1, "pelton_prefix_cache_hits_total", tier="peer"), peer)
        fetched = fleet.figure(1, "pelton_kv_peer_blocks_total", kind="fetched")
        self.assertGreater(fetched, 20)
        self.assertEqual(fleet.figure(0, "pelton_kv_peer_blocks_total", kind="sent"), fetched)
        self.assertEqual(fleet.figure(0, "pelton_kv_peer_bytes_total", kind="sent"), fleet.figure(1, "pelton_kv_peer_bytes_total", kind="fetched"))
        for kind in ("refused", "corrupt", "failed"):
            self.assertEqual(fleet.figure(1, "pelton_kv_peer_fetches_total", kind=kind), 0, list(fleet.workers[1].log)[-10:])
        self.assertEqual(fleet.figure(0, "pelton_kv_peer_refused_total"), 0)
        for i in range(2):
            self.check_clean(fleet, i)

    def test_ranks_of_the_same_fleet_are_neither_source_nor_receiver(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        fleet = MixedFleet(scratch.name, 3, pool=f'tokenizer = "{BOX}"\n')
        self.addCleanup(fleet.close)
        asked = range(len(WAYS))

        def begun():
            return [fleet.figure(i, "pelton_kv_peer_fetches_total", kind="begun") for i in (1, 2)]
        for worker, fetches in ((0, False), (1, False), (2, True)):
            fleet.only(worker)
            before, fetched = begun(), 0
            for number in asked:
                said, _, peer = self.answer(fleet.gateway.port, number)
                self.assertEqual(said, self.alone[number], (worker, number))
                fetched += peer
            self.assertEqual(fetched > 0, fetches, worker)
            if not fetches:
                self.assertEqual(begun(), before, worker)
            fleet.wait_until_announced(worker)
        for i in range(3):
            self.check_clean(fleet, i)

    def test_a_source_that_is_stopped_or_killed_costs_no_answer(self):
        fleet = self.fleet()
        rounds = 10 if FULL else 1
        for number in range(rounds):
            for how in (signal.SIGSTOP, signal.SIGKILL):
                fleet.only(0)
                asked = range(8)
                for one in asked:
                    self.assertEqual(self.answer(fleet.gateway.port, one)[0], self.alone[one])
                fleet.wait_until_announced(0)
                self.assertEqual(ask(fleet.workers[1].port, "POST", "/reset_prefix_cache")[0], 200)
                fleet.only(1)
                with concurrent.futures.ThreadPoolExecutor(4) as pool:
                    answers = [pool.submit(self.answer, fleet.gateway.port, one) for one in asked]
                    time.sleep(0.01 * number)
                    fleet.workers[0].process.send_signal(how)
                    self.assertEqual([one.result()[0] for one in answers], [self.alone[one] for one in asked], (number, how))
                self.check_clean(fleet, 1)
                if how == signal.SIGSTOP:
                    fleet.workers[0].process.send_signal(signal.SIGCONT)
                    self.check_clean(fleet, 0)
                else:
                    fleet.kill(0)
                    fleet.start(0)
                self.wait(lambda: all(row["state"] in ("ready", "draining") for row in fleet.rows()), fleet.rows())

    def test_a_receiver_that_is_killed_leaves_nothing_at_the_source(self):
        fleet = self.fleet()
        fleet.only(0)
        for number in range(8):
            self.answer(fleet.gateway.port, number)
        fleet.wait_until_announced(0)
        fleet.only(1)
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            answers = [pool.submit(self.answer, fleet.gateway.port, one) for one in range(8)]
            time.sleep(0.03)
            ask(fleet.admin, "POST", "/v1/workers/w0/undrain")
            fleet.kill(1)
            self.assertEqual([one.result()[0] for one in answers], self.alone[:8])
        self.check_clean(fleet, 0)

    def test_another_tenant_finds_nothing(self):
        """TN-02 to 05 where blocks travel."""
        keys = pathlib.Path(tempfile.mkdtemp(prefix="pelton_peers_")) / "keys"
        keys.write_text("key-a a\nkey-b b\n")
        fleet = self.fleet(gateway=(f'keys_file = "{keys}"\n',))
        fleet.only(0)
        for number in range(6):
            self.assertEqual(self.answer(fleet.gateway.port, number, "key-a")[0], self.alone[number])
        fleet.wait_until_announced(0)
        fleet.only(1)
        for number in range(6):
            said, cached, peer = self.answer(fleet.gateway.port, number, "key-b")
            self.assertEqual((said, cached if number == 0 else 0, peer), (self.alone[number], 0, 0))
        self.assertEqual(fleet.figure(1, "pelton_kv_peer_fetches_total", kind="begun"), 0)
        self.assertGreater(sum(self.answer(fleet.gateway.port, number, "key-a")[2] for number in range(6)), 0)

    @full
    def test_a_stranger_does_not_see_by_time_what_a_peer_has(self):
        keys = pathlib.Path(tempfile.mkdtemp(prefix="pelton_peers_")) / "keys"
        keys.write_text("key-a a\nkey-b b\n")
        fleet = self.fleet(gateway=(f'keys_file = "{keys}"\n',))
        numbers = list(range(200 if FULL else 24))
        fleet.only(0)
        for number in numbers:
            self.answer(fleet.gateway.port, number, "key-a")
        fleet.wait_until_announced(0)
        fleet.only(1)
        for number in range(len(WAYS)):
            self.answer(fleet.gateway.port, 9_000 + number, "key-b")
        check_alike(lambda number: self.assertEqual(self.answer(fleet.gateway.port, number, "key-b")[2], 0), numbers,
                    [number + 4_000 for number in numbers])  # asked in the same ways
        self.assertGreater(sum(self.answer(fleet.gateway.port, number, "key-a")[2] for number in numbers[-6:]), 0)

    def test_erasing_a_tenant_reaches_every_worker(self):
        """Its blocks on the device, on the host and at peers are not found any more, within 5 s; another one's are."""
        keys = pathlib.Path(tempfile.mkdtemp(prefix="pelton_peers_")) / "keys"
        keys.write_text("key-a a\nkey-b b\n")
        fleet = self.fleet(gateway=(f'keys_file = "{keys}"\n',))
        for i in (0, 1):
            fleet.only(i)
            for key in ("key-a", "key-b"):
                self.assertEqual(self.answer(fleet.gateway.port, 0, key)[0], self.alone[0])
            fleet.wait_until_announced(i)
        self.assertGreater(self.answer(fleet.gateway.port, 0, "key-a")[1], 64)
        begun = time.monotonic()
        run = gateway_fixture.subprocess.run([gateway_fixture.BINARY, "fleet", "erase", "--tenant", "a", "--admin", f"http://127.0.0.1:{fleet.admin}"],
                                             capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertLess(time.monotonic() - begun, 5)
        time.sleep(0.2)  # what is gone is announced
        for i in (0, 1):
            fleet.only(i)
            said, cached, peer = self.answer(fleet.gateway.port, 0, "key-b")
            self.assertEqual((said, cached > 64), (self.alone[0], True))
            if i == 0:
                self.assertEqual(self.answer(fleet.gateway.port, 0, "key-a"), (self.alone[0], 0, 0))
        # A worker that does not answer is reported, and those that do have done it.
        fleet.workers[0].process.send_signal(signal.SIGSTOP)
        try:
            run = gateway_fixture.subprocess.Popen([gateway_fixture.BINARY, "fleet", "erase", "--admin", f"http://127.0.0.1:{fleet.admin}"])
            time.sleep(0.5)
            fleet.rows()
            self.assertIsNone(run.poll(), "others' admin requests waited for it")
            self.assertNotEqual(run.wait(60), 0)
        finally:
            fleet.workers[0].process.send_signal(signal.SIGCONT)
        self.assertEqual(self.answer(fleet.gateway.port, 0, "key-b")[1], 0)
        # Of what it does not know nothing is erased.
        self.assertGreater(self.answer(fleet.gateway.port, 0, "key-b")[1], 64)
        for port, path in ((fleet.admin, "/v1/reset_prefix_cache"), (fleet.workers[0].port, "/reset_prefix_cache"),
                           (fleet.workers[1].port, "/reset_prefix_cache")):
            status, text = ask(port, "POST", path + "?tennant=a")
            self.assertEqual((status, json.loads(text)["error"]["param"]), (400, "tennant"), path)
        self.assertGreater(self.answer(fleet.gateway.port, 0, "key-b")[1], 64)

    def measure_fetches(self, fleet, turn):
        """The second worker computes prompts, and fetches others from the first one, which has number 7 as well: how the gateway would
        choose for that, and what it knows of the second one."""
        fresh = range(1_000 + 20 * turn, 1_006 + 20 * turn)
        for number in fresh:
            ask(fleet.workers[1].port, "POST", CHAT, body(number + 10))
        fleet.only(0)
        for number in fresh:
            self.answer(fleet.gateway.port, number)
        self.assertEqual(self.answer(fleet.gateway.port, 7)[0], self.alone[7])
        fleet.wait_until_announced(0)
        fleet.only(1)
        for number in fresh:
            self.answer(fleet.gateway.port, number)
        ask(fleet.admin, "POST", "/v1/workers/w0/undrain")
        self.wait(lambda: fleet.ready() == 2, fleet.rows())
        decision = json.loads(ask(fleet.admin, "POST", "/v1/explain", body(7))[1])
        return decision, next(one for one in decision["candidates"] if one["name"] == "w1")

    def test_a_hot_prefix_is_copied_where_its_holder_is_busy(self):
        """GW-12: once what fetching takes has been measured, a worker is priced by what it would fetch; the same prefix is asked for by many at
        once and fetched once."""
        fleet = self.fleet()
        with concurrent.futures.ThreadPoolExecutor(3) as pool:  # what its steps take is known then
            list(pool.map(lambda _: ask(fleet.workers[1].port, "POST", "/v1/completions", LONG), range(6)))
        # On a busy machine the first times say more of the others than of fetching and computing: then there are more of them.
        for turn in range(10):
            decision, cold = self.measure_fetches(fleet, turn)
            computing = (decision["prompt_tokens"] - cold["hit_tokens"]) * cold["costs"]["prefill_token_s"]
            if cold["fetch_tokens"] > 0:
                break
        self.assertGreater(fleet.metric("prefix_copy_tokens_total"), 0, list(fleet.workers[1].log)[-10:])
        self.assertGreater(cold["fetch_tokens"], 200, decision)
        self.assertLess(cold["terms"]["fetch_s"], 0.8 * computing, decision)
        stop = threading.Event()  # its holder's places are taken past this gateway
        busy = [threading.Thread(target=hold, args=(fleet.workers[0].port, stop)) for _ in range(6)]
        for one in busy:
            one.start()
        self.wait(lambda: fleet.rows()[0]["waiting"] > 1, fleet.rows())
        copies = fleet.metric("prefix_copies_total")
        kinds = ("begun", "slower_than_computing")
        before = [fleet.figure(1, "pelton_kv_peer_fetches_total", kind=kind) for kind in kinds]
        with concurrent.futures.ThreadPoolExecutor(24) as pool:
            said = list(pool.map(lambda _: self.answer(fleet.gateway.port, 7)[0], range(24)))
        stop.set()
        for one in busy:
            one.join()
        self.assertEqual(set(said), {self.alone[7]})
        self.assertGreater(fleet.metric("prefix_copies_total"), copies, decision)
        begun, declined = (fleet.figure(1, "pelton_kv_peer_fetches_total", kind=kind) - was for kind, was in zip(kinds, before))
        self.assertLessEqual(begun, 1)
        self.assertGreater(begun + declined, 0)  # the worker measures anew what computing takes, and may find it quicker
        for i in range(2):
            self.check_clean(fleet, i)

    def test_what_travels_is_never_taken_from_a_client(self):
        """KV-10."""
        fleet = self.fleet(1)
        for field in ({"kv_transfer_params": {"do_remote_decode": True}}, {"bootstrap_host": "h"}, {"bootstrap_host": "h", "bootstrap_port": 1},
                      {"kv_transfer_params": {}}, {"bootstrap_host": ""}):
            for port in (fleet.gateway.port, fleet.workers[0].port):
                status, text = ask(port, "POST", CHAT, {**body(0), **field})
                self.assertEqual(status, 400, (field, text))
                self.assertIn(json.loads(text)["error"]["param"], field)
        names = {"x-prefiller-host-port": "127.0.0.1:1", "x-kv-cache-source-host-port": "127.0.0.1:1", "x-data-parallel-host-port": "127.0.0.1:1"}
        status, text = ask(fleet.gateway.port, "POST", CHAT, body(0), **names)
        self.assertEqual((status, json.dumps(json.loads(text)["choices"])), (200, self.alone[0]))
        self.assertEqual(fleet.figure(0, "pelton_kv_peer_fetches_total", kind="begun"), 0)

    def test_flags_that_make_no_sense_are_refused(self):
        key = pathlib.Path(tempfile.mkdtemp(prefix="pelton_peers_")) / "key"
        gateway_fixture.subprocess.run([gateway_fixture.BINARY, "gateway", "--new-key", key], check=True)

        def refused(*flags):
            run = gateway_fixture.subprocess.run([gateway_fixture.BINARY, "serve", BOX, *COMMON, "--port", "0", *map(str, flags)],
                                                 capture_output=True, text=True, timeout=60, check=False)
            self.assertNotEqual(run.returncode, 0)
            return run.stderr
        self.assertIn("--swap-space", refused("--fleet-port", 0, "--fleet-key-file", key, "--kv-port", 0))
        self.assertIn("--fleet-key-file", refused("--swap-space", "4MiB", "--fleet-port", 0, "--kv-port", 0))
        self.assertIn("65535", refused("--swap-space", "4MiB", "--fleet-port", 0, "--fleet-key-file", key, "--kv-port", 65536))
        with gateway_fixture.socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            self.assertIn("nothing can listen there", refused("--swap-space", "4MiB", "--fleet-port", 0, "--fleet-key-file", key, "--kv-port", port))


if __name__ == "__main__":
    gateway_fixture.BINARY = sys.argv[1]
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
