#!/usr/bin/env python3
"""A stream whose gateway is lost is gone on with at another one: of the same fleet, and of another region. No letter is missing or doubled,
wherever it was cut; and nobody goes on with another tenant's.

usage: resume_test.py BINARY
"""
import http.client
import json
import sys
import tempfile
import threading
import time
import unittest

import gateway_fixture
from gateway_fixture import ask, chat, letters, text_of
from regions_fixture import Links, Region, wait

CHAT = "/v1/chat/completions"
SCRIPT = {**gateway_fixture.SCRIPT, "step_ms": 10}


class Stream:
    """One that its client may go on with: the events that count, and where it is behind them."""

    def __init__(self, port, path, body, key="sk-ann", name=None, resume="1", last=None):
        self.link = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}", "x-pelton-resume": resume}
        headers.update({"x-request-id": name} if name else {}, **({"Last-Event-ID": last} if last else {}))
        self.link.request("POST", path, json.dumps(body), headers)
        self.answer = self.link.getresponse()
        self.status = self.answer.status
        self.name, self.ticket = self.answer.getheader("x-request-id"), self.answer.getheader("x-pelton-resume")
        self.last, self.data, self.ended = last, [], False

    def read(self, count=None):
        """So many pieces more, or all; a piece is what comes up to an id, and is taken when that has come."""
        taken, block = [], []
        while count is None or count > 0:
            line = self.answer.readline()
            if not line:
                break
            if line.startswith(b"data: "):
                block.append(line[6:].strip().decode())
            elif line.startswith(b"id: "):
                self.last = line[4:].strip().decode()
                taken, block = taken + block, []
                count = None if count is None else count - 1
        self.ended = bool(taken) and taken[-1] == "[DONE]"
        self.data += taken
        return taken

    def error(self):
        return json.loads(self.answer.read())["error"]["code"]

    def close(self):
        self.link.close()


def chunks(data):
    return [json.loads(one) for one in data if one != "[DONE]"]


class Resume(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        links = Links()
        cls.addClassCleanup(links.close)
        cls.eu, cls.us = cls.regions = [Region(scratch.name, name, (2,), script=SCRIPT) for name in ("eu", "us")]
        for region, other in (cls.regions, cls.regions[::-1]):
            cls.addClassCleanup(region.close)
            region.knows(other, links, 0.001)
        for region in cls.regions:
            region.start()
        for region, other in (cls.regions, cls.regions[::-1]):
            wait(lambda region=region, other=other: region.is_whole() and region.sees(other), 60)

    def whole(self, body, path=CHAT):
        stream = Stream(self.eu.ports[0], path, body)
        stream.read()
        stream.close()
        return stream.data

    def cut(self, body, pieces, ports, path=CHAT):
        """Cut behind so many pieces, and gone on with at the second port: both halves."""
        first = Stream(ports[0], path, body)
        self.assertEqual(first.status, 200)
        first.read(pieces)
        self.assertFalse(first.ended)
        first.close()
        rest = Stream(ports[1], path, body, name=first.name, resume=first.ticket, last=first.last)
        self.assertEqual(rest.status, 200, rest.status if rest.status == 200 else rest.answer.read())
        self.assertEqual((rest.name, rest.ticket), (first.name, first.ticket))
        rest.read()
        rest.close()
        return first.data, rest.data

    def test_no_letter_is_missing_wherever_it_is_cut(self):
        body = chat(5, 30, 7, stream=True, stream_options={"include_usage": True})
        whole = self.whole(body)
        for pieces in (1, 2, 3, 10, 25):
            for ports in (self.eu.ports, (self.eu.ports[0], self.us.ports[1])):
                had, rest = self.cut(body, pieces, ports)
                with self.subTest(pieces=pieces, ports=ports):
                    self.assertEqual((rest[-1], (had + rest).count("[DONE]")), ("[DONE]", 1))
                    both = chunks(had + rest)
                    self.assertEqual(text_of(both), (letters(7, 5, 30), ["stop"]))
                    for field in ("id", "created"):
                        self.assertEqual(len({one[field] for one in both}), 1)
                    self.assertEqual(sum("role" in choice["delta"] for one in both for choice in one["choices"]), 1)
                    self.assertEqual(both[-1]["usage"]["completion_tokens"], chunks(whole)[-1]["usage"]["completion_tokens"])

    def test_what_is_drawn_and_other_kinds(self):
        """Without a seed of its own; several choices with log-probabilities, that end at other times; completions and messages."""
        body = chat(6, 60, 7, stream=True, n=3, logprobs=True, top_logprobs=2)
        def of(data, index):
            scores = [token for one in chunks(data) for choice in one["choices"] if choice["index"] == index and choice.get("logprobs")
                      for token in choice["logprobs"]["content"]]
            return text_of(chunks(data), index), scores
        whole = self.whole(body)
        self.assertGreater(len(of(whole, 2)[1]), 50)
        for pieces in (5, 20, 50):
            had, rest = self.cut(body, pieces, self.eu.ports)
            for index in range(3):
                self.assertEqual(of(had + rest, index), of(whole, index), (pieces, index))
        body = {"model": "pelton-box", "prompt": "check 59 40 ", "seed": 5, "max_tokens": 40, "stream": True}
        whole = "".join(choice["text"] for one in chunks(self.whole(body, "/v1/completions")) for choice in one["choices"])
        had, rest = self.cut(body, 12, self.eu.ports, "/v1/completions")
        self.assertEqual("".join(choice["text"] for one in chunks(had + rest) for choice in one["choices"]), whole)
        body = {**chat(63, 40, 3, stream=True), "max_tokens": 500}
        had, rest = self.cut(body, 12, self.eu.ports, "/v1/messages")
        pieces = [one["delta"].get("text", "") for one in chunks(had + rest) if one["type"] == "content_block_delta"]
        self.assertEqual("".join(pieces), letters(3, 63, 40))
        # Which letters depends on the seed that the lost gateway drew.
        body = {key: value for key, value in chat(8, 40, 0, stream=True).items() if key != "seed"}
        had, rest = self.cut(body, 15, self.eu.ports)
        text, finish = text_of(chunks(had + rest))
        self.assertEqual((len(text), finish), (40, ["stop"]))

    def test_its_gateway_is_killed(self):
        body = chat(9, 200, 7, stream=True)
        first = Stream(self.eu.ports[1], CHAT, body)
        first.read(50)
        self.eu.kill_gateway(1)
        try:
            first.read()
        except (OSError, http.client.HTTPException):
            pass
        self.assertFalse(first.ended)
        rest = Stream(self.eu.ports[0], CHAT, body, name=first.name, resume=first.ticket, last=first.last)
        rest.read()
        self.assertEqual(text_of(chunks(first.data + rest.data)), (letters(7, 9, 200), ["stop"]))
        for stream in (first, rest):
            stream.close()
        self.eu.start_gateway(1)
        wait(lambda: self.eu.is_whole() and self.us.sees(self.eu), 60)

    def test_what_another_region_answers(self):
        """The ticket is of whoever computes it, and holds in all regions."""
        body = chat(10, 40, 7, stream=True)
        first = Stream(self.eu.ports[0], CHAT, body, key="sk-us")  # tied to the other one
        self.assertEqual(first.status, 200)
        first.read(12)
        first.close()
        for port in (self.eu.ports[1], self.us.ports[0]):
            rest = Stream(port, CHAT, body, key="sk-us", name=first.name, resume=first.ticket, last=first.last)
            rest.read()
            rest.close()
            self.assertEqual(text_of(chunks(first.data + rest.data)), (letters(7, 10, 40), ["stop"]))

    def test_nobody_elses(self):
        body = chat(11, 60, 7, stream=True)
        first = Stream(self.eu.ports[0], CHAT, body)
        first.read(20)
        first.close()
        good = {"key": "sk-ann", "name": first.name, "resume": first.ticket, "last": first.last}
        tokens, digest = first.last.split("-")
        another = f"{int(tokens) - 1}-{digest}"
        begun = sum(row["requests"] for row in self.eu.rows(1))
        for change, asked in (({"key": "sk-eu"}, body), ({"name": "req_other"}, body), ({}, chat(12, 60, 7, stream=True)),
                              ({"resume": "1-2-3"}, body), ({"last": "x"}, body), ({"last": None}, body)):
            stream = Stream(self.eu.ports[1], CHAT, asked, **{**good, **change})
            self.assertEqual((stream.status, stream.error()), (409, "cannot_resume"), change)
            stream.close()
        self.assertEqual(sum(row["requests"] for row in self.eu.rows(1)), begun)  # nothing was computed for them
        # A place that the answer does not come by, and one beyond its end.
        for last in (another, f"9999-{digest}"):
            stream = Stream(self.eu.ports[1], CHAT, body, **{**good, "last": last})
            self.assertEqual((stream.status, stream.error()), (409, "cannot_resume"), last)
            stream.close()
        rest = Stream(self.eu.ports[1], CHAT, body, **good)
        rest.read()
        rest.close()
        self.assertEqual(text_of(chunks(first.data + rest.data)), (letters(7, 11, 60), ["stop"]))
        wait(lambda: all(row["running"] == 0 for row in self.eu.rows(1) if row["kind"] != "region"))

    def test_a_worker_is_lost_on_the_way_back(self):
        """What is said again survives that as any answer does."""
        body = chat(13, 400, 7, stream=True)
        first = Stream(self.us.ports[0], CHAT, body)
        first.read(300)
        first.close()
        rest = []
        more = {"name": first.name, "resume": first.ticket, "last": first.last}
        thread = threading.Thread(target=lambda: rest.append(Stream(self.us.ports[1], CHAT, body, **more)))
        thread.start()
        time.sleep(1)  # of the three seconds that it takes
        busy = max((row for row in self.us.rows(1) if row["kind"] != "region"), key=lambda row: row["running"])
        ask(self.us.places[0]["admin"][int(busy["name"].rsplit("-", 1)[1])], "POST", "/admin/faults", {"hang": True})
        thread.join()
        rest[0].read()
        ask(self.us.places[0]["admin"][int(busy["name"].rsplit("-", 1)[1])], "POST", "/admin/faults", {"hang": False})
        self.assertEqual(text_of(chunks(first.data + rest[0].data)), (letters(7, 13, 400), ["stop"]))
        rest[0].close()

    def test_who_asks_for_none_gets_none(self):
        for resume in ("", "1"):
            body = chat(14, 5, 7, stream=not resume)
            link = http.client.HTTPConnection("127.0.0.1", self.eu.ports[0], timeout=60)
            link.request("POST", CHAT, json.dumps(body), {"Content-Type": "application/json", "Authorization": "Bearer sk-ann",
                                                          **({"x-pelton-resume": resume} if resume else {})})
            answer = link.getresponse()
            self.assertIsNone(answer.getheader("x-pelton-resume"))  # a stream that was not asked for it, and what is no stream
            self.assertNotIn(b"\nid:", answer.read())
            link.close()


if __name__ == "__main__":
    gateway_fixture.BINARY = sys.argv.pop(1)
    unittest.main(verbosity=2)
