#!/usr/bin/env python3
"""What clients get while no replica is there: streams are kept alive by what their readers ignore, whole answers where that is asked for, sound
and who does not want to wait are not; what is wrong in any case starts nothing.

usage: autoscale_held_test.py BINARY
"""
import http.client
import json
import os
import pathlib
import socket
import sys
import tempfile
import time
import unittest

import gateway_fixture
from autoscale_test import Scaled
from gateway_fixture import Socket, ask, chat, letters
from ports import free_port
from tiers import full


class Held(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name

    def scaled(self, *args, **more):
        fleet = Scaled(self.folder, *args, **more)
        self.addCleanup(fleet.close)
        return fleet

    def test_who_does_not_want_to_wait_learns_when(self):
        fleet = self.scaled()
        link = http.client.HTTPConnection("127.0.0.1", fleet.port, timeout=30)
        link.request("POST", "/v1/chat/completions", json.dumps(chat(1, 20, 1)), {"x-pelton-cold-start": "never"})
        refused = link.getresponse()
        self.assertEqual((refused.status, json.loads(refused.read())["error"]["param"]), (400, "x-pelton-cold-start"))
        for name in ("x-request-timeout-ms", "x-request-deadline-ms"):
            link.request("POST", "/v1/chat/completions", json.dumps(chat(1, 20, 1)), {name: "soon"})
            refused = link.getresponse()
            self.assertEqual((refused.status, json.loads(refused.read())["error"]["param"]), (400, name))
        self.assertEqual(fleet.starts(), [], "what is refused starts nothing")
        link.request("POST", "/v1/chat/completions", json.dumps(chat(1, 20, 1)), {"x-pelton-cold-start": "fail"})
        answer = link.getresponse()
        body = json.loads(answer.read())
        self.assertEqual((answer.status, body["error"]["code"], answer.headers["Retry-After"]), (503, "model_starting", "1"), body)
        fleet.wait_for("ready")  # it has been asked for all the same
        for _ in range(100):  # the scaler may know a moment before the requests' side does
            link.request("POST", "/v1/chat/completions", json.dumps(chat(1, 20, 1)), {"x-pelton-cold-start": "fail"})
            answer = link.getresponse()
            body = answer.read()
            if answer.status != 503:
                break
            time.sleep(0.1)
        self.assertEqual((answer.status, answer.headers["x-pelton-held-ms"]), (200, None), body)
        link.close()
        status, text = ask(fleet.port, "GET", "/v1/models")
        self.assertEqual((status, json.loads(text)["data"][0]["state"]), (200, "ready"))

    def test_a_stream_that_is_held_is_kept_alive(self):
        fleet = self.scaled(scale="hold_keepalive_seconds = 0.05")
        link = http.client.HTTPConnection("127.0.0.1", fleet.port, timeout=30)
        link.request("POST", "/v1/chat/completions", json.dumps(chat(9, 20, 9, stream=True)))
        answer = link.getresponse()
        self.assertEqual(answer.status, 200)
        text = answer.read().decode()
        self.assertTrue(text.startswith(": "), text[:200])
        self.assertTrue(text.endswith("data: [DONE]\n\n"), text[-200:])
        said = "".join(json.loads(line[6:])["choices"][0]["delta"].get("content") or ""
                       for line in text.split("\n") if line.startswith("data: {") and json.loads(line[6:])["choices"])
        self.assertEqual(said, letters(9, 9, 20))
        self.assertIn('"role":"assistant"', text, "nothing of the answer is left out")
        fleet.wait_for("cold")
        # What the replica refuses is an event then, as the head has gone.
        link.request("POST", "/v1/chat/completions", json.dumps({**chat(9, 20, 9, stream=True), "temperature": "hot"}))
        text = link.getresponse().read().decode()
        self.assertIn('"param":"temperature"', text)
        link.close()

    @full
    def test_a_stream_that_is_no_stream_of_events_has_no_comments(self):
        """Ollama's readers parse each line as JSON, and who hears sound would hear comments."""
        fleet = self.scaled(scale="hold_keepalive_seconds = 0.05")
        link = http.client.HTTPConnection("127.0.0.1", fleet.port, timeout=30)

        def lines(path, asked):
            fleet.wait_for("cold")
            link.request("POST", path, json.dumps({"model": "pelton-box", **asked}), {"Content-Type": "application/json"})
            answer = link.getresponse()
            self.assertEqual((answer.status, answer.headers["Content-Type"]), (200, "application/x-ndjson"))
            text = answer.read().decode()
            self.assertTrue(text.startswith(" "), "blanks, which a reader of JSON ignores: " + text[:200])
            return [json.loads(line) for line in text.splitlines()]
        messages = chat(9, 20, 9)["messages"]
        said = lines("/api/chat", {"messages": messages, "stream": True, "options": {"num_predict": 20}})
        self.assertEqual((said[0]["message"]["role"], said[-1]["done"]), ("assistant", True), said)
        said = lines("/api/generate", {"prompt": "Hello", "options": {"num_predict": 20}})  # a stream where nothing is said of it
        self.assertGreater(len(said), 1)
        self.assertTrue(said[-1]["done"], said)
        said = lines("/api/chat", {"messages": messages, "stream": True, "options": {"temperature": "hot"}})
        self.assertEqual([list(one) for one in said], [["error"]], said)
        fleet.wait_for("cold")
        link.request("POST", "/v1/audio/speech", json.dumps({"model": "pelton-box", "input": "Hello", "voice": "a", "stream": True}))
        answer = link.getresponse()
        text = answer.read().decode()
        self.assertGreaterEqual(answer.status, 400, "a status is its replica's: " + text)
        self.assertIn("error", json.loads(text))
        link.close()

    def test_a_whole_answer_that_is_held_is_kept_alive_where_that_is_asked_for(self):
        fleet = self.scaled(scale='hold_keepalive_seconds = 0.05\nhold_keepalive = "whitespace"')
        link = http.client.HTTPConnection("127.0.0.1", fleet.port, timeout=30)

        def held(asked):
            link.request("POST", "/v1/chat/completions", json.dumps(asked), {"Content-Type": "application/json"})
            answer = link.getresponse()
            self.assertEqual((answer.status, answer.headers["Content-Type"]), (200, "application/json"))
            text = answer.read().decode()
            self.assertTrue(text.startswith(" "), text[:200])
            return json.loads(text)
        said = held(chat(9, 20, 9))
        self.assertEqual(said["choices"][0]["message"]["content"], letters(9, 9, 20))
        # With a replica there the status is its own again.
        link.request("POST", "/v1/chat/completions", json.dumps({**chat(9, 20, 9), "temperature": "hot"}))
        answer = link.getresponse()
        self.assertEqual((answer.status, answer.read()[:1]), (400, b"{"))
        fleet.wait_for("cold")
        self.assertEqual(held({**chat(9, 20, 9), "temperature": "hot"})["error"]["param"], "temperature")
        fleet.wait_for("cold")
        link.request("POST", "/v1/chat/completions", json.dumps(chat(9, 20, 9, stream=True)))
        text = link.getresponse().read().decode()
        self.assertTrue(text.startswith(": ") and text.endswith("data: [DONE]\n\n"), "streams have comments all the same")
        link.close()

    @full
    def test_a_start_that_fails_stands_in_the_body_of_a_whole_answer_that_was_kept_alive(self):
        fleet = self.scaled(scale='hold_keepalive_seconds = 0.05\nhold_keepalive = "whitespace"', launch='kind = "simulated"\nlead_seconds = 0.5',
                            serve=[str(pathlib.Path(self.folder) / "no-such-model")])
        status, text = ask(fleet.port, "POST", "/v1/chat/completions", chat(1, 20, 1))
        self.assertEqual((status, text[:1]), (200, " "), text)
        self.assertEqual(json.loads(text)["error"]["code"], "model_start_failed", text)

    @full
    def test_a_wait_that_is_over_stands_in_the_body_of_a_whole_answer_that_was_kept_alive(self):
        fleet = self.scaled(scale='hold_keepalive_seconds = 0.05\nhold_keepalive = "whitespace"\nhold_seconds = 1', start=0.1,
                            launch='kind = "simulated"\nlead_seconds = 1000')
        status, text = ask(fleet.port, "POST", "/v1/messages", {**chat(1, 20, 1), "max_tokens": 20})
        self.assertEqual((status, text[:1], json.loads(text)["type"]), (200, " ", "error"), text)

    def test_a_response_over_a_websocket_that_is_held_is_kept_alive_by_pings(self):
        fleet = self.scaled(scale="hold_keepalive_seconds = 0.05", launch='kind = "simulated"\nlead_seconds = 1.5')
        link = Socket(fleet.port)
        self.addCleanup(link.close)
        self.assertEqual(link.status, 101)
        states = []  # at each ping
        heard = link.response(on_ping=lambda: states.append(fleet.card()["state"]), input="check 9 20 please", seed=9)
        self.assertGreater(len(states), 2)
        self.assertNotEqual(states[0], "ready", "pings come before the replica does")
        self.assertEqual(heard[0]["type"], "response.created", "and no message, which its reader would take for the answer's: " + str(heard[0]))
        self.assertEqual(heard[-1]["type"], "response.completed", heard[-1])
        self.assertEqual(heard[-1]["response"]["output"][-1]["content"][0]["text"], letters(9, 9, 20))
        # With a replica there is nothing to be kept alive.
        states.clear()
        again = link.response(on_ping=lambda: states.append("pinged"), input="check 9 20 please", seed=9)
        self.assertEqual((again[-1]["type"], states), ("response.completed", []))

    def test_a_call_over_grpc_that_is_held_hears_that_it_has_been_taken_up(self):
        """Frames by hand: initial metadata come while there is no replica, the answer and its status once there is one."""
        port = free_port()
        fleet = self.scaled(scale="hold_keepalive_seconds = 0.05", launch='kind = "simulated"\nlead_seconds = 1.5',
                            listen=f'grpc_listen = "127.0.0.1:{port}"')

        def text(number, value):
            value = value.encode()
            return bytes([number << 3 | 2, len(value)]) + value

        def frame(kind, flags, stream, payload):
            return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload

        def header(name, value):
            return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
        message = text(1, "pelton-box") + text(2, "Hello")
        head = b"".join(header(*one) for one in ((":method", "POST"), (":scheme", "http"), (":path", "/pelton.v1.Inference/Generate"),
                                                 (":authority", "localhost"), ("te", "trailers"), ("content-type", "application/grpc")))
        with socket.create_connection(("127.0.0.1", port), timeout=30) as link:
            link.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"") + frame(1, 4, 1, head) +
                         frame(0, 1, 1, b"\0" + len(message).to_bytes(4, "big") + message))
            stream = link.makefile("rb")
            kinds = []
            while True:
                raw = stream.read(9)
                kind, flags = raw[3], raw[4]
                stream.read(int.from_bytes(raw[:3], "big"))
                if kind == 4 and not flags & 1:
                    link.sendall(frame(4, 1, 0, b""))
                if kind not in (0, 1) or raw[8] != 1:
                    continue
                kinds.append(kind)
                if len(kinds) == 1:
                    self.assertEqual((kind, flags & 1), (1, 0), "initial metadata")
                    self.assertNotEqual(fleet.card()["state"], "ready", "which come before the replica does")
                if flags & 1:
                    break
        self.assertIn(0, kinds, "an answer")
        self.assertEqual((kinds[0], kinds[-1]), (1, 1))


if __name__ == "__main__":
    gateway_fixture.BINARY = os.path.abspath(sys.argv[1])
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
