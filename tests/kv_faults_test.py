#!/usr/bin/env python3
"""What may happen to a split request while it is one: whoever dies, is full, forgets, changes its role or loses its gateway, every answer is to
the byte what one worker says, and nothing stays held.

usage: kv_faults_test.py BINARY
"""
import concurrent.futures
import http.client
import json
import signal
import sys
import threading
import time
import unittest

import gateway_fixture
import kv_split_test as split
from gateway_fixture import Process, ask
from kv_peers_test import CHAT, COMMON
from kv_split_test import body, choices
from tiers import FULL, full

ROUNDS = 10 if FULL else 1


class Faults(split.Split):
    """Its fleets, but none of its tests."""

    @classmethod
    def setUpClass(cls):
        alone = Process("serve", gateway_fixture.BOX, *COMMON, "--kv-cache-memory", "16MiB", "--port", "0")
        try:
            cls.alone = [choices(alone.port, body(number)) for number in range(10)]
        finally:
            alone.end()

    def many(self, fleet, meanwhile, numbers=range(8)):
        """Asks for all of these at once and says what came, `meanwhile` happening."""
        with concurrent.futures.ThreadPoolExecutor(len(numbers)) as pool:
            answers = [pool.submit(choices, fleet.gateway.port, body(number)) for number in numbers]
            meanwhile()
            return [one.result() for one in answers]

    def stream(self, port, number, begun):
        """The text of one that is streamed; `begun` hears of its first words."""
        link = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        link.request("POST", CHAT, json.dumps(body(number, stream=True)), {"Content-Type": "application/json"})
        text, answer = "", link.getresponse()
        for line in answer:
            if not line.startswith(b"data: {"):
                continue
            for choice in json.loads(line[6:]).get("choices", []):
                text += choice["delta"].get("content") or ""
            if text:
                begun.set()
        link.close()
        return text

    def test_p_and_d_both_die(self):
        """Of what they have said nothing is lost, and the third one goes on."""
        fleet = self.fleet(("prefill", "decode", "both"), 'split = "always"\n')
        known = [json.loads(one)[0]["message"]["content"] for one in self.alone]
        for number in range(ROUNDS):
            begun = [threading.Event(), threading.Event()]
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                answers = [pool.submit(self.stream, fleet.gateway.port, i, begun[i]) for i in range(2)]
                for one in begun:
                    self.assertTrue(one.wait(20))
                time.sleep(0.01 * number)
                fleet.kill(0)
                fleet.kill(1)
                self.assertEqual([one.result() for one in answers], known[:2], list(fleet.gateway.log)[-10:])
            for i in (0, 1):
                fleet.start(i)
            self.wait(lambda: fleet.ready() == 3, fleet.rows)
        for i in range(3):
            self.check_clean(fleet, i)

    def test_the_gateway_dies_in_a_split(self):
        """Nobody is left to say who goes on: both let go of all that they held for it."""
        fleet = self.fleet(("prefill", "decode"), 'split = "always"\n')
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = [pool.submit(self.any_answer, fleet.gateway.port, number) for number in range(8)]
            time.sleep(0.15)
            fleet.gateway.process.send_signal(signal.SIGKILL)
            begun = time.monotonic()
            for one in answers:
                one.result()
        for i in range(2):
            self.check_clean(fleet, i)
        self.assertLess(time.monotonic() - begun, 5, "held for longer than pins are")
        for i in range(2):
            self.assertEqual(choices(fleet.workers[i].port, body(0)), self.alone[0])

    @staticmethod
    def any_answer(port, number):
        try:
            return choices(port, body(number))
        except (OSError, AssertionError, ValueError, Exception):  # pylint: disable=broad-except
            return None

    @full
    def test_all_is_forgotten_in_a_split(self):
        """Erasing is not held up by what is on its way, and what comes of it is not listed."""
        fleet = self.fleet(("prefill", "decode"), 'split = "always"\n')

        def forget():
            for _ in range(20):
                time.sleep(0.02)
                for i in range(2):
                    self.assertEqual(ask(fleet.workers[i].port, "POST", "/reset_prefix_cache")[0], 200)
        for _ in range(ROUNDS):
            self.assertEqual(self.many(fleet, forget), self.alone[:8])
        for i in range(2):
            self.check_clean(fleet, i)
            ask(fleet.workers[i].port, "POST", "/reset_prefix_cache")
        # None of it is found again, at either.
        for i in range(2):
            status, text = ask(fleet.workers[i].port, "POST", CHAT, body(1, max_completion_tokens=2))
            self.assertEqual((status, json.loads(text)["usage"]["prompt_tokens_details"]["cached_tokens"]), (200, 0))

    @full
    def test_roles_change_under_load(self):
        fleet = self.fleet(("prefill", "decode", "both"), 'split = "always"\n')

        def change():
            for i, role in ((2, "decode"), (1, "prefill"), (0, "decode"), (1, "both"), (0, "prefill")):
                self.assertEqual(ask(fleet.admin, "POST", f"/v1/workers/w{i}/role?role={role}")[0], 200)
                time.sleep(0.05)
        for _ in range(ROUNDS):
            self.assertEqual(self.many(fleet, change), self.alone[:8])
            self.wait(lambda: [row["role"] for row in fleet.rows()] == ["prefill", "both", "decode"], fleet.rows)
        for i in range(3):
            self.check_clean(fleet, i)

    @full
    def test_a_decoder_that_is_full_when_the_hand_over_comes(self):
        """The first one goes on talking, and another decoder is tried."""
        fleet = self.fleet(("prefill", "decode", "decode"), 'split = "always"\n')
        for full in ((1,), (1, 2)):
            stop = threading.Event()
            busy = [threading.Thread(target=self.hold, args=(fleet.workers[i].port, stop)) for i in full for _ in range(2)]
            for one in busy:
                one.start()
            time.sleep(0.2)
            try:
                with concurrent.futures.ThreadPoolExecutor(2) as pool:
                    said = list(pool.map(lambda number: choices(fleet.gateway.port, body(number)), range(4)))
            finally:
                stop.set()
                for one in busy:
                    one.join()
            self.assertEqual(said, self.alone[:4], full)
        for i in range(3):
            self.check_clean(fleet, i)

    @staticmethod
    def hold(port, stop):
        """Keeps one of a worker's places taken, past its gateway."""
        while not stop.is_set():
            ask(port, "POST", "/v1/completions", {"model": "pelton-box", "prompt": "river", "max_tokens": 200, "ignore_eos": True})

    def test_adapters_are_split_as_the_model_itself(self):
        """KV-21: the keys and values of an adapter are under names of its own."""
        flags = (*split.PEER, "--served-model-name", "pelton-box", "--enable-lora", "--lora-modules", f"query={gateway_fixture.BOX}/query")
        draw = split.random.Random(3)
        prompt = [draw.randrange(300, 900) for _ in range(300)]

        def said(port, model):
            status, text = ask(port, "POST", "/v1/completions", {"model": model, "prompt": prompt, "max_tokens": 40, "temperature": 0,
                                                                "ignore_eos": True})
            self.assertEqual(status, 200, text)
            return json.loads(text)["choices"][0]["text"]
        alone = Process("serve", gateway_fixture.BOX, *COMMON, *flags[:2], *flags[-5:], "--port", "0")
        try:
            known = {name: said(alone.port, name) for name in ("pelton-box", "query")}
        finally:
            alone.end()
        self.assertNotEqual(known["pelton-box"], known["query"])
        fleet = self.fleet(("prefill", "decode"), 'split = "always"\n', serve=flags)
        for name in ("pelton-box", "query", "pelton-box", "query"):
            self.assertEqual(said(fleet.gateway.port, name), known[name], (name, list(fleet.gateway.log)[-5:]))
        self.assertEqual(fleet.splits("handed_over") + fleet.splits("ended"), 4, list(fleet.gateway.log)[-10:])
        self.assertGreater(fleet.figure(1, "pelton_kv_peer_blocks_total", kind="fetched"), 20)
        for i in range(2):
            self.check_clean(fleet, i)


for name in dir(split.Split):
    if name.startswith("test_"):
        setattr(Faults, name, None)


if __name__ == "__main__":
    gateway_fixture.BINARY = sys.argv[1]
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
