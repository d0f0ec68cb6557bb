#!/usr/bin/env python3
"""What lies between workers that exchange keys and values: links that crawl, clocks that jump, decoders that have no place left, a prefix that
a hundred ask for at once, and erasing while it crosses. Every answer is to the byte what one worker says alone.

usage: kv_links_test.py BINARY [WALL_CLOCK_JUMPS]
"""
import concurrent.futures
import json
import os
import random
import select
import socket
import sys
import threading
import time
import unittest

import gateway_fixture
import kv_split_test as split
from gateway_fixture import BOX, Process, ask
from kv_peers_test import CHAT, COMMON, hold
from kv_split_test import choices
from ports import free_port
from tiers import FULL, full

NEAR, FAR = "127.0.0.1", "127.0.0.2"  # where a worker listens, and where others reach it
JUMPS = None


def body(number, **more):
    return split.body(number, max_completion_tokens=24, **more)


def longer(number):
    """So that it is not over before it is handed over."""
    return split.body(number, max_completion_tokens=240)


class Link:
    """TCP from FAR to NEAR at one port. After `at_once` bytes what comes back crawls at so many bytes a second; none: it does not. With
    `spoils`, what draws, some bit of each piece that comes back is another; greetings and other small ones stay."""

    def __init__(self, port):
        self.port, self.rate, self.at_once, self.spoils, self.passed, self.open = port, None, 0, None, 0, []
        self.listener = socket.create_server((FAR, port))
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
                far = socket.create_connection((NEAR, self.port))
            except OSError:
                return
            for one in (near, far):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.open += [near, far]
            threading.Thread(target=self.pump, args=(near, far, False), daemon=True).start()
            threading.Thread(target=self.pump, args=(far, near, True), daemon=True).start()

    def pump(self, source, sink, comes_back):
        passed = 0
        try:
            while True:
                if not select.select([source], [], [], 0.05)[0]:
                    continue
                rate = self.rate if comes_back else None
                data = source.recv(4096 if rate else 65536)
                if not data:
                    break
                passed += len(data)
                if comes_back:
                    self.passed += len(data)
                    if self.spoils and len(data) > 1000:
                        at = self.spoils.randrange(len(data))
                        data = data[:at] + bytes((data[at] ^ 1 << self.spoils.randrange(8),)) + data[at + 1:]
                if rate and passed > self.at_once:
                    time.sleep(len(data) / rate)
                sink.sendall(data)
        except (OSError, ValueError):
            pass
        for one in (source, sink):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        self.listener.close()
        for one in self.open:
            one.close()


class LinkedFleet(split.SplitFleet):
    """Worker 0 is reached through links that a test slows down; `more` has flags, `envs` what the processes have in their environment."""
    more = {}
    envs = {}

    def launch(self, workers):
        self.kv_ports = [free_port() for _ in range(workers)]
        self.link = Link(self.kv_ports[0])
        super().launch(workers)
        self.fleet_link = Link(self.ports[0])

    def start(self, i):
        self.admins = getattr(self, "admins", {})
        self.admins[i] = free_port()
        flags = list(self.flags)
        flags[flags.index("--kv-port") + 1] = self.kv_ports[i]
        self.workers[i] = Process("serve", BOX, *COMMON, *flags, "--port", "0", "--fleet-port", self.ports[i], "--fleet-name", f"w{i}",
                                  "--fleet-key-file", self.key, "--admin-port", self.admins[i], "--fleet-role", self.roles[i],
                                  *self.more.get(i, ()), env=self.envs.get(i))

    def configure(self, ports, more=""):
        workers = [f'[[worker]]\npool = "box"\nurl = "http://{NEAR if i else FAR}:{port}"\n' for i, port in enumerate(ports)]
        self.config.write_text(self.head + "".join(workers) + more)

    def close(self):
        super().close()
        self.link.close()
        self.fleet_link.close()


class Links(split.Split):
    """Its fleets, but none of its tests."""

    @classmethod
    def setUpClass(cls):
        alone = Process("serve", BOX, *COMMON, "--kv-cache-memory", "16MiB", "--port", "0")
        try:
            cls.alone = [choices(alone.port, body(number)) for number in range(12)]
            cls.longer = [choices(alone.port, longer(number)) for number in range(10)]
        finally:
            alone.end()

    def linked(self, roles, pool="", **more):
        scratch = split.tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        fleet = type("Linked", (LinkedFleet,), {"roles": roles, **more})(scratch.name, len(roles), serve=split.PEER,
                                                                          pool=f'tokenizer = "{BOX}"\n{pool}')
        self.addCleanup(fleet.close)
        return fleet

    def asked(self, fleet, number):
        """What it says, what it found of its prompt, and of that from peers."""
        status, text = ask(fleet.gateway.port, "POST", CHAT, body(number))
        self.assertEqual(status, 200, text)
        answer = json.loads(text)
        details = answer["usage"]["prompt_tokens_details"]
        return json.dumps(answer["choices"]), details["cached_tokens"], details.get("cached_tokens_details", {}).get("peer", 0)

    @full
    def test_a_link_of_a_megabyte_a_second_in_mid_transfer(self):
        """The decoder gives up and computes. With a hand-over at once the client waits for it, so for no longer than computing takes."""
        for handoff in ("warm", "first"):
            fleet = self.linked(("prefill", "decode"), f'split = "always"\nhandoff = "{handoff}"\n')
            self.assertEqual(choices(fleet.gateway.port, longer(0)), self.longer[0])  # what computing and fetching take is measured
            whole = fleet.link.passed
            self.assertGreater(whole, 100_000, "the prompt's blocks did not come through this link")
            fleet.link.at_once, fleet.link.rate = whole // 4, 1_000_000
            begun = time.monotonic()
            for number in range(1, 10 if FULL else 4):
                self.assertEqual(choices(fleet.gateway.port, longer(number)), self.longer[number], (handoff, number))
            # A hang would be one of seconds; how long it takes is in docs/performance.md.
            self.assertLess(time.monotonic() - begun, 10, handoff)
            late = fleet.figure(1, "pelton_kv_peer_fetches_total", kind="late")
            if handoff == "warm":  # or the first one had said all by then
                self.assertGreater(late + fleet.splits("ended"), 0)
            else:
                self.assertGreater(late, 0, list(fleet.workers[1].log)[-10:])
                self.assertGreater(fleet.metric("split_recomputed_tokens_total"), 0)
            for i in range(2):
                self.check_clean(fleet, i)

    def test_blocks_that_are_damaged_on_the_way_are_computed(self):
        """FT-30, KV-19: whatever is damaged is counted, and computed."""
        seed = int(os.environ.get("PELTON_SEED", 0)) or random.randrange(1, 1 << 32)
        for handoff in split.HANDOFFS:
            with self.subTest(handoff=handoff, PELTON_SEED=seed):
                fleet = self.linked(("prefill", "decode"), f'split = "always"\nhandoff = "{handoff}"\n')
                self.assertEqual(choices(fleet.gateway.port, longer(0)), self.longer[0])
                self.assertGreater(fleet.link.passed, 100_000, "the prompt's blocks did not come through this link")
                fleet.link.spoils = random.Random(seed)
                for number in range(1, 10 if FULL else 4):
                    self.assertEqual(choices(fleet.gateway.port, longer(number)), self.longer[number], number)
                counted = {kind: fleet.figure(1, "pelton_kv_peer_fetches_total", kind=kind) for kind in ("corrupt", "failed", "left_alone")}
                self.assertGreater(counted["corrupt"], 0, counted)
                if handoff == "first":
                    self.assertGreater(fleet.metric("split_recomputed_tokens_total"), 0, counted)
                for i in range(2):
                    self.check_clean(fleet, i)

    def test_erasing_while_a_prefix_crosses(self):
        """It does not wait for the link, nothing that lands after it is found, and the request that fetched is answered."""
        fleet = self.linked(("both", "both"))
        fleet.only(0)
        self.assertEqual(self.asked(fleet, 0)[0], self.alone[0])
        fleet.wait_until_announced(0)
        fleet.only(1)
        fleet.link.rate = 100_000
        stop = threading.Event()  # while others have its places the request waits, and so does its fetch
        busy = [threading.Thread(target=hold, args=(fleet.workers[1].port, stop)) for _ in range(4)]
        for one in busy:
            one.start()
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            answer = pool.submit(self.asked, fleet, 0)
            self.wait(lambda: fleet.link.passed > 8_000, lambda: "nothing crosses")
            begun = time.monotonic()
            status, text = ask(fleet.admin, "POST", "/v1/reset_prefix_cache")
            stop.set()
            self.assertEqual(status, 200, text)
            self.assertLess(time.monotonic() - begun, 5)
            said, _, peer = answer.result()
        for one in busy:
            one.join()
        self.assertEqual((said, peer), (self.alone[0], 0))
        fleet.link.rate = None
        for i in range(2):
            self.check_clean(fleet, i)
            # What that request computed itself after it may be found again; not what it had asked for.
            self.assertEqual(ask(fleet.workers[i].port, "POST", "/reset_prefix_cache")[0], 200)
        self.assertEqual(self.asked(fleet, 0), (self.alone[0], 0, 0))

    def test_a_hundred_ask_for_one_prefix_at_once(self):
        """One fetch, a hundred hits."""
        fleet = self.linked(("both", "both"))
        fleet.only(0)
        for number in range(6):
            self.assertEqual(self.asked(fleet, number)[0], self.alone[number])
        fleet.wait_until_announced(0)
        fleet.only(1)
        kinds = ("begun", "late", "slower_than_computing")
        fetched = 0
        for number in range(6):
            before = [fleet.figure(1, "pelton_kv_peer_fetches_total", kind=kind) for kind in kinds]
            with concurrent.futures.ThreadPoolExecutor(100) as pool:
                answers = list(pool.map(lambda _: self.asked(fleet, number), range(100)))
            self.assertEqual({said for said, _, _ in answers}, {self.alone[number]})
            begun, late, declined = (fleet.figure(1, "pelton_kv_peer_fetches_total", kind=kind) - was for kind, was in zip(kinds, before))
            self.assertLessEqual(begun, 1)
            if late or declined:  # on a machine that does other things as well it may compute
                continue
            self.assertEqual(begun, 1)
            self.assertGreater(min(cached for _, cached, _ in answers), 200)
            fetched += 1
            break
        self.assertEqual(fetched, 1)
        for i in range(2):
            self.check_clean(fleet, i)

    @full
    def test_decoders_that_are_full_when_the_hand_over_comes(self):
        """Others take their places past this gateway: an answer that finds none stays where it began, after another decoder was tried once."""
        one = ("--max-num-seqs", "1", "--max-num-queued-reqs", "1")
        fleet = self.linked(("prefill", "decode", "decode"), 'split = "always"\n', more={0: ("--max-num-seqs", "8"), 1: one, 2: one})
        stop = threading.Event()
        busy = [threading.Thread(target=hold, args=(fleet.workers[1 + i % 2].port, stop)) for i in range(10)]
        for one in busy:
            one.start()
        try:
            with concurrent.futures.ThreadPoolExecutor(6) as pool:
                said = list(pool.map(lambda number: choices(fleet.gateway.port, longer(number)), range(6)))
        finally:
            stop.set()
            for one in busy:
                one.join()
        self.assertEqual(said, self.longer[:6])
        outcomes = {one: fleet.splits(one) for one in ("handed_over", "ended", "no_decoder", "failed")}
        self.assertEqual(sum(outcomes.values()), 6, outcomes)
        self.assertGreater(outcomes["failed"], 0, outcomes)  # both were tried
        for i in range(3):
            self.check_clean(fleet, i)

    @full
    def test_a_clock_that_jumps(self):
        """Tickets that seem to be over, or not to have begun, are refused and what they are for is computed; of the gateway's clock and the
        source's."""
        if JUMPS is None:
            self.skipTest("nothing to make clocks jump with")
        for where in ({"gateway_env": {"LD_PRELOAD": JUMPS}}, {"envs": {0: {"LD_PRELOAD": JUMPS}}}):
            fleet = self.linked(("prefill", "decode"), 'split = "always"\n', **where)
            end = time.monotonic() + 60
            number = 0
            # One of five times it is right.
            while fleet.figure(0, "pelton_kv_peer_refused_total") == 0 or number < 4:
                self.assertLess(time.monotonic(), end, where)
                self.assertEqual(choices(fleet.gateway.port, body(number % 12)), self.alone[number % 12], (where, number))
                number += 1
            for i in range(2):
                self.check_clean(fleet, i)


for name in dir(split.Split):
    if name.startswith("test_"):
        setattr(Links, name, None)


if __name__ == "__main__":
    gateway_fixture.BINARY = sys.argv.pop(1)
    if len(sys.argv) > 1 and sys.argv[1].endswith(".so"):
        JUMPS = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
