#!/usr/bin/env python3
"""A gateway before workers of this test's own that end of a request, or are stopped amid an answer: how many workers a request may end, and
what becomes of an answer while the next worker computes what has been said.

usage: gateway_moves_test.py BINARY
"""
import http.client
import json
import os
import pathlib
import sys
import tempfile
import threading
import time
import unittest

import gateway_fixture
import gateway_wire_test as wire
from gateway_fixture import Process, ask, events
from ports import free_port
from gateway_wire_test import BODY_OF, BYTES, CHAT, END, FINISHED, HEAD_STREAM, LAST, MORE, event, first_two, frame, is_streamed, said, sound, tokens

POISON = {"model": "m", "messages": [{"role": "user", "content": "poison"}]}


def is_poison(run):
    return b"poison" in run["frames"][-1][2]


class Moves(unittest.TestCase):
    def workers(self, *answers):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.all = [wire.Worker(f"w{i}", answer) for i, answer in enumerate(answers)]
        for one in self.all:
            self.addCleanup(one.close)
        self.admin = free_port()
        config = pathlib.Path(scratch.name) / "gateway.toml"
        config.write_text(f'[gateway]\nlisten = "127.0.0.1:0"\nadmin = "127.0.0.1:{self.admin}"\nresume_budget = 5\n'
                          '[[pool]]\nname = "p"\nmodel = "m"\n' +
                          "".join(f'[[worker]]\npool = "p"\nurl = "http://127.0.0.1:{one.server_port}"\n' for one in self.all))
        self.gateway = Process("gateway", "--config", config)
        self.addCleanup(self.gateway.end)
        self.wait(lambda: [row["state"] for row in self.rows()] == ["ready"] * len(answers))

    def rows(self):
        return json.loads(ask(self.admin, "GET", "/v1/workers")[1])["workers"]

    def wait(self, what):
        end = time.monotonic() + 20
        while not what() and time.monotonic() < end:
            time.sleep(0.02)
        self.assertTrue(what(), (self.rows(), list(self.gateway.log)[-10:]))

    def metric(self, name):
        text = ask(self.admin, "GET", "/metrics")[1]
        return int(next(line for line in text.splitlines() if line.startswith(f"pelton_gateway_{name} ")).split()[1])

    def ended(self):
        """Workers' starts that ended of the request."""
        return sum(is_poison(run) for one in self.all for run in one.runs)

    def dying(self, answer=lambda run, send: None):
        """Ends of the request, and starts again at once; others it answers, over connections that it keeps."""
        def run(run, send, cut):
            if not is_poison(run):
                return sound(run, send, cut)
            one = next(one for one in self.all if run in one.runs)
            answer(run, send)
            one.incarnation = f"{one.incarnation}+"
            return cut()
        return run

    def check_quarantined(self, answered):
        status, text = answered
        self.assertEqual((status, json.loads(text)["error"]["code"]), (500, "request_quarantined"), list(self.gateway.log)[-20:])

    def test_a_request_that_ends_workers_which_start_again_at_once_ends_two(self):
        """FT-15, in connections that were kept: the next one leads to another start of the worker, and is no answer of the first."""
        self.workers(*[self.dying()] * 4)
        for one in self.all:
            one.keeps = True
        for _ in range(40):
            self.assertEqual(ask(self.gateway.port, "POST", CHAT, BODY_OF)[0], 200)
        self.check_quarantined(ask(self.gateway.port, "POST", CHAT, POISON))
        self.assertEqual(self.ended(), 2)
        self.check_quarantined(ask(self.gateway.port, "POST", CHAT, POISON))
        self.assertEqual(self.ended(), 2)

    def test_two_requests_that_are_alike_end_two_workers(self):
        """FT-15: its client asks twice at once."""
        both = threading.Barrier(2)
        met = []

        def together(run, send):
            if len(met) < 2:
                met.append(run)
                both.wait(20)
        self.workers(*[self.dying(together)] * 4)
        answered = []
        clients = [threading.Thread(target=lambda: answered.append(ask(self.gateway.port, "POST", CHAT, POISON))) for _ in range(2)]
        for one in clients:
            one.start()
        for one in clients:
            one.join()
        for one in answered:
            self.check_quarantined(one)
        self.assertEqual(self.ended(), 2)

    def test_a_request_that_ends_workers_amid_its_answer_ends_two_that_resume_it(self):
        """FT-15: the one that it was begun at said something; those that are to go on end at once."""
        def two_first(run, send):
            if said(run) == 0:
                first_two(send)
        self.workers(*[self.dying(two_first)] * 5)
        data = events(self.gateway.port, CHAT, {**POISON, "stream": True})
        self.assertEqual([json.loads(one)["choices"][0]["delta"]["content"] for one in data[:2]], ["a", "b"])
        self.assertEqual(json.loads(data[-1])["error"]["code"], "stream_interrupted")
        self.assertEqual(self.ended(), 3)

    def stopped(self, go_on):
        """Two workers and a stream at one of them, which is being stopped: it has said two of four tokens and says the rest when `go_on`
        says so. What the other one does is `self.next`. Gives the source, the target and what the client hears."""
        self.next, self.source = sound, None

        def run(run, send, cut):
            one = next(one for one in self.all if run in one.runs)
            if self.source is None:
                self.source = one
                self.target = next(other for other in self.all if other is not one)
            if one is not self.source:
                return self.next(run, send, cut)
            first_two(send)
            return go_on(send, cut)
        self.workers(run, run)
        heard = []

        def client():
            self.link = http.client.HTTPConnection("127.0.0.1", self.gateway.port, timeout=60)
            try:
                self.link.request("POST", CHAT, json.dumps({**BODY_OF, "stream": True}), {"Content-Type": "application/json"})
                for line in self.link.getresponse():
                    if line.startswith(b"data: "):
                        heard.append(line[6:].strip().decode())
            except (OSError, ValueError, http.client.HTTPException, AttributeError):
                heard.append("left")
        self.client = threading.Thread(target=client)
        self.client.start()
        self.wait(lambda: len(heard) == 2)
        return heard

    def check_heard(self, heard):
        self.client.join(20)
        self.assertEqual(heard[-1], "[DONE]", (heard, list(self.gateway.log)[-10:]))
        self.assertEqual("".join(json.loads(one)["choices"][0]["delta"]["content"] for one in heard[:-1]), "abcd")
        self.wait(lambda: self.metric("requests_open") == 0)
        self.assertEqual(self.metric("streams_interrupted_total"), 0)

    def test_the_source_goes_on_until_the_target_has_computed(self):
        over = threading.Event()
        self.addCleanup(over.set)
        computed = threading.Event()
        cut_off = []

        def go_on(send, cut):
            # While the other one computes, one more token.
            self.wait(lambda: len(self.target.runs) == 1)
            send(tokens(2, 102) + frame(BYTES, event("c")))
            computed.set()
            try:
                while not over.wait(0.02):
                    send(frame(BYTES, ""))
            except OSError:
                cut_off.append(True)

        def warm(run, send, cut):
            if len(self.target.runs) == 1:
                computed.wait(20)
            self.wait(lambda: len(heard) == 3)
            return sound(run, send, cut)
        heard = self.stopped(go_on)
        self.next = warm
        self.source.load = {"draining": True}
        self.check_heard(heard)
        self.assertEqual([said(run) for run in self.target.runs], [2, 3])
        self.assertEqual((self.metric("warm_moves_total"), self.metric("warm_tokens_total")), (1, 1))
        self.wait(lambda: cut_off)

    def test_the_source_dies_while_the_target_computes(self):
        """It goes on at the one that was at it."""
        dies, gone = threading.Event(), threading.Event()

        def go_on(send, cut):
            dies.wait(20)
            cut()
            gone.set()

        def warm(run, send, cut):
            if len(self.target.runs) == 1:
                dies.set()
                gone.wait(20)
                self.wait(lambda: len(self.target.runs) == 2)
                return None
            return sound(run, send, cut)
        heard = self.stopped(go_on)
        self.next = warm
        self.source.load = {"draining": True}
        self.check_heard(heard)
        self.assertEqual([said(run) for run in self.target.runs], [2, 2])
        self.assertEqual(self.metric("warm_moves_total"), 0)

    def test_the_target_dies_while_it_computes(self):
        """The source says the rest."""
        rest = threading.Event()

        def go_on(send, cut):
            rest.wait(20)
            send(tokens(2, 102) + frame(BYTES, event("c")) + tokens(3, 103) + frame(FINISHED, END, MORE) + frame(BYTES, event("d")) +
                 frame(BYTES, "data: [DONE]\n\n", LAST))

        def warm(run, send, cut):
            send(HEAD_STREAM[:9])
            cut()
            rest.set()
        heard = self.stopped(go_on)
        self.next = warm
        self.source.load = {"draining": True}
        self.check_heard(heard)
        self.assertEqual(self.metric("drain_moves_total"), 0)

    def test_the_client_leaves_during_a_warm_move(self):
        begun, over, cut_off = threading.Event(), threading.Event(), []
        self.addCleanup(over.set)

        def talk(name, send):
            begun.set()
            try:
                while not over.wait(0.02):
                    send(frame(200, b"", 4))
            except OSError:
                cut_off.append(name)
        heard = self.stopped(lambda send, cut: talk("source", send))
        self.next = lambda run, send, cut: talk("target", send)
        self.source.load = {"draining": True}
        self.wait(lambda: len(self.target.runs) == 1)
        self.link.sock.shutdown(2)
        self.client.join(20)
        self.wait(lambda: sorted(cut_off) == ["source", "target"])
        self.wait(lambda: self.metric("requests_open") == 0)
        self.assertEqual(self.metric("clients_left_total"), 1)


if __name__ == "__main__":
    gateway_fixture.BINARY = os.path.abspath(sys.argv[1])
    unittest.main(argv=[sys.argv[0], *[word for word in sys.argv[2:] if word != "--full"]], verbosity=2)
