#!/usr/bin/env python3
"""A gateway before servers of other kinds that answer requests in pairs: fakes that check every field that vLLM and SGLang are sent to exchange
keys and values, fail, expire and forget; and nothing of that from a client.

usage: gateway_pairs_test.py BINARY
"""
import collections
import http.client
import http.server
import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import gateway_fixture
from gateway_fixture import Process, ask, events
from ports import free_port

WORDS = [f" w{i}" for i in range(6)]
CHAT = "/v1/chat/completions"
ASKED = {"do_remote_decode": True, "do_remote_prefill": False, "remote_engine_id": None, "remote_block_ids": None, "remote_host": None,
         "remote_port": None}
MEETING = {"bootstrap_host", "bootstrap_port", "bootstrap_room"}
MET = collections.defaultdict(threading.Event)  # by room: its prompt is computed


class Server(http.server.ThreadingHTTPServer):
    """Says WORDS. What it was asked, and under which id, is kept; `fails`: what it does instead of computing a prompt for others; `meets`: it waits
    for the prompt, as SGLang's decoders do, and says a word each `pace` seconds."""
    daemon_threads = True

    def __init__(self):
        self.asked, self.fails, self.expires, self.given = [], None, None, []
        self.meets, self.pace, self.ended = False, 0, threading.Event()

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def whole(self, status, value):
                body = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self):
                self.whole(200, {"object": "list", "data": [{"id": "m"}]})

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                server = self.server
                server.asked.append((self.path, self.headers["x-request-id"], body))
                if server.fails == "status":
                    return self.whole(500, {"error": {"message": "no"}})
                if isinstance(server.fails, int):
                    return self.whole(server.fails, {"error": {"message": "no", "code": server.fails}})
                if server.fails == "hang":
                    self.connection.settimeout(30)
                    if self.connection.recv(1) == b"":
                        server.ended.set()
                    return None
                room = body.get("bootstrap_room")
                if room is not None and not server.meets:
                    MET[room].set()
                    if server.fails == "late":
                        time.sleep(0.3)
                        return self.whole(500, {"error": {"message": "no"}})
                if server.meets and not MET[room].wait(5):
                    return self.whole(500, {"error": {"message": "nobody came"}})
                if server.fails == "cut":
                    self.close_connection = True
                    return self.connection.close()
                is_chat = self.path == CHAT
                params = body.get("kv_transfer_params") or {}
                if params.get("do_remote_decode"):
                    return self.whole(200, server.hand_off(is_chat))
                if not body.get("stream"):
                    text = "".join(WORDS)
                    choice = {"index": 0, "finish_reason": "stop", **({"message": {"role": "assistant", "content": text}} if is_chat else {"text": text})}
                    return self.whole(200, {"id": "a", "choices": [choice], "usage": {"prompt_tokens": 3, "completion_tokens": 6}})
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Connection", "close")
                self.end_headers()
                self.close_connection = True
                for word in WORDS:
                    choice = {"index": 0, "delta": {"content": word}} if is_chat else {"index": 0, "text": word}
                    self.wfile.write(f"data: {json.dumps({'id': 'a', 'choices': [choice]})}\n\n".encode())
                    time.sleep(server.pace)
                return self.wfile.write(b"data: [DONE]\n\n")
        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def hand_off(self, is_chat):
        params = {"do_remote_prefill": True, "do_remote_decode": False, "remote_engine_id": f"engine-{self.server_port}",
                  "remote_block_ids": [[len(self.given), 7, 8], [9]], "remote_host": "10.1.2.3", "remote_port": 5600,
                  "remote_request_id": f"r{len(self.given)}", "tp_size": 2}
        if self.expires is not None:
            params["remote_blocks_expiry_time"] = time.time() + self.expires
        if isinstance(self.fails, dict):
            params |= self.fails
        self.given.append(params)
        choice = {"index": 0, "finish_reason": "length", **({"message": {"role": "assistant", "content": " w0"}} if is_chat else {"text": " w0"})}
        return {"id": "p", "choices": [choice], "kv_transfer_params": None if self.fails == "none" else params}

    def take(self):
        asked, self.asked = self.asked, []
        return asked

    def handle_error(self, request, client_address):
        pass

    def close(self):
        self.shutdown()
        self.server_close()


class Pairs(unittest.TestCase):
    def start(self, kind, roles, more=""):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.servers = [Server() for _ in roles]
        for one in self.servers:
            self.addCleanup(one.close)
        self.admin = free_port()
        self.config = pathlib.Path(scratch.name) / "gateway.toml"
        self.config.write_text(
            f'[gateway]\nlisten = "127.0.0.1:0"\nadmin = "127.0.0.1:{self.admin}"\nresume_budget = 2\ndrain_seconds = 1\n'
            f'[[pool]]\nname = "p"\nmodel = "m"\nkind = "{kind}"\nsplit = "always"\ncontinue = false\n' +
            "".join(f'[[worker]]\npool = "p"\nurl = "http://127.0.0.1:{one.server_port}"\nrole = "{role}"\n{more if role == "prefill" else ""}'
                    for one, role in zip(self.servers, roles)))
        self.gateway = Process("gateway", "--config", self.config)
        self.addCleanup(self.gateway.end)
        end = time.monotonic() + 20
        while ask(self.gateway.port, "GET", "/ready")[0] != 200 or len(self.ready()) < len(roles):
            self.assertLess(time.monotonic(), end, list(self.gateway.log)[-5:])
            time.sleep(0.02)
        return self.servers

    def ready(self):
        return [row for row in json.loads(ask(self.admin, "GET", "/v1/workers")[1])["workers"] if row["state"] == "ready"]

    def splits(self, outcome):
        line = f'pelton_gateway_splits_total{{outcome="{outcome}"}}'
        return int(next(one for one in ask(self.admin, "GET", "/metrics")[1].splitlines() if one.startswith(line)).split()[1])

    def said(self, path, body):
        if not body.get("stream"):
            status, text = ask(self.gateway.port, "POST", path, {"model": "m", **body})
            self.assertEqual(status, 200, text)
            choice = json.loads(text)["choices"][0]
            return choice["message"]["content"] if path == CHAT else choice["text"]
        data = events(self.gateway.port, path, {"model": "m", **body})
        self.assertEqual(data[-1], "[DONE]", data)
        choices = [json.loads(one)["choices"][0] for one in data[:-1]]
        return "".join((one.get("delta") or {}).get("content", "") + one.get("text", "") for one in choices)

    BODIES = ((CHAT, {"messages": [{"role": "user", "content": "x"}], "max_completion_tokens": 40, "stream": True,
                      "stream_options": {"include_usage": False}, "min_tokens": 3, "seed": 4}),
              (CHAT, {"messages": [{"role": "user", "content": "x"}]}),
              ("/v1/completions", {"prompt": "x", "max_tokens": 40, "stream": True}),
              ("/v1/completions", {"prompt": [1, 2, 3], "max_tokens": 40}))

    def test_vllm(self):
        first, second = self.start("vllm", ("prefill", "decode"))
        for path, body in self.BODIES:
            first.expires = 30
            self.assertEqual(self.said(path, body), "".join(WORDS))
            (to_first, id_first, asked), (to_second, id_second, gone_on) = first.take() + second.take()
            self.assertEqual((to_first, to_second, id_first), (path, path, id_second))
            # The one: one token, unstreamed, kept for another one. All else as its client wrote it.
            self.assertEqual(asked.pop("kv_transfer_params"), ASKED)
            self.assertEqual((asked.pop("max_tokens"), asked.pop("stream")), (1, False))
            changed = {"max_tokens", "max_completion_tokens", "stream", "stream_options", "min_tokens"}
            if "max_completion_tokens" in body:
                self.assertEqual(asked.pop("max_completion_tokens"), 1)
            self.assertEqual(asked, {"model": "m"} | {key: value for key, value in body.items() if key not in changed})
            # The other one: what the one gave, and the client's fields unchanged.
            self.assertEqual(gone_on.pop("kv_transfer_params"), first.given[-1])
            self.assertEqual(gone_on, {"model": "m"} | body)
        self.assertEqual(self.splits("handed_over"), len(self.BODIES))

    def test_vllm_what_fails_is_computed_where_it_is_said(self):
        """KV-11, KV-14: a first one that fails, forgets, says half of it, or keeps it no longer."""
        first, second = self.start("vllm", ("prefill", "decode"))
        bad = ("status", "cut", "none", {"remote_engine_id": None}, {"remote_block_ids": []}, {"remote_port": 70000}, {"remote_host": 3},
               {"do_remote_prefill": False}, "expired")
        for number, fails in enumerate(bad):
            first.fails, first.expires = (None, 0.5) if fails == "expired" else (fails, 30)
            path, body = self.BODIES[number % len(self.BODIES)]
            self.assertEqual(self.said(path, body), "".join(WORDS), fails)
            self.assertLessEqual(len(first.take()), 2)
            gone_on = [one[2] for one in second.take()]
            self.assertEqual(gone_on, [{"model": "m"} | body], fails)
        self.assertEqual(self.splits("handed_over"), 0)

    def test_vllm_what_is_not_split_goes_whole(self):
        """KV-12, KV-16."""
        first, second = self.start("vllm", ("prefill", "decode"))
        for path, body in (("/v1/completions", {"prompt": ["a b c", "d"]}), ("/v1/completions", {"prompt": [[1, 2], [3]]}),
                           ("/v1/completions", {"prompt": "x", "n": 2}), ("/v1/completions", {"prompt": "x", "max_tokens": 1}),
                           ("/v1/completions", {"prompt": "x", "max_tokens": 0}), ("/v1/completions", {"prompt": "x", "echo": True}),
                           (CHAT, {"messages": [{"role": "user", "content": "x"}], "max_completion_tokens": 1})):
            self.assertEqual(self.said(path, body), "".join(WORDS))
            self.assertEqual([one[2] for one in second.take()], [{"model": "m"} | body])
            self.assertEqual(first.take(), [])

    def test_sglang(self):
        first, second = self.start("sglang", ("prefill", "decode"), "bootstrap_port = 8123\n")
        rooms = set()
        for path, body in self.BODIES:
            self.assertEqual(self.said(path, body), "".join(WORDS))
            end = time.monotonic() + 5
            while not first.asked and time.monotonic() < end:
                time.sleep(0.01)
            (to_first, id_first, one), (to_second, id_second, other) = first.take() + second.take()
            self.assertEqual((to_first, to_second, id_first), (path, path, id_second))
            self.assertEqual(one, other)
            self.assertEqual((one["bootstrap_host"], one["bootstrap_port"]), ("127.0.0.1", 8123))
            self.assertTrue(0 <= one["bootstrap_room"] < 1 << 63)
            rooms.add(one["bootstrap_room"])
            self.assertEqual({key: value for key, value in one.items() if key not in MEETING}, {"model": "m"} | body)
        self.assertEqual(len(rooms), len(self.BODIES))

    def refused(self, path, body):
        status, text = ask(self.gateway.port, "POST", path, {"model": "m", **body})
        return status, json.loads(text)["error"].get("code")

    def check_unblamed(self, count):
        self.assertEqual(len(self.ready()), count)
        self.assertEqual([row["failures"] for row in self.ready()], [0] * count)

    def test_sglang_another_pair_where_the_first_one_fails(self):
        first, second, third = self.start("sglang", ("prefill", "decode", "prefill"), "bootstrap_port = 8123\n")
        first.fails, second.meets = "status", True
        for number in range(8):  # whichever of them is asked first
            path, body = self.BODIES[number % len(self.BODIES)]
            self.assertEqual(self.said(path, body), "".join(WORDS))
        failed, rooms = first.take(), [one[2]["bootstrap_room"] for one in second.take()]
        self.assertGreater(len(failed), 0, "it was never asked")
        self.assertEqual(self.splits("failed"), len(failed))
        self.assertEqual(len(third.take()), 8)
        self.assertEqual(len(set(rooms)), 8 + len(failed), "one meeting for each pair")

    def test_sglang_a_late_failure_cuts_no_answer(self):
        first, second = self.start("sglang", ("prefill", "decode"), "bootstrap_port = 8123\n")
        first.fails, second.meets, second.pace = "late", True, 0.12
        for path, body in self.BODIES:
            self.assertEqual(self.said(path, body), "".join(WORDS))
        self.assertEqual(len(second.take()), len(self.BODIES), "asked once each")

    def test_what_is_wrong_with_a_request_is_no_servers_fault(self):
        for kind, more in (("vllm", ""), ("sglang", "bootstrap_port = 8123\n")):
            first, second = self.start(kind, ("prefill", "decode"), more)
            first.fails, second.meets = 400, kind == "sglang"
            for number in range(8):  # more than eject a server
                path, body = self.BODIES[number % len(self.BODIES)]
                self.assertEqual(self.refused(path, body), (400, 400), kind)
            self.check_unblamed(2)
            first.fails = 429
            for number in range(8):
                path, body = self.BODIES[number % len(self.BODIES)]
                if kind == "vllm":  # computed where it is said
                    self.assertEqual(self.said(path, body), "".join(WORDS))
                else:
                    self.assertEqual(self.refused(path, body), (429, 429))
            self.check_unblamed(2)
            first.fails = None
            self.assertEqual(self.said(*self.BODIES[0]), "".join(WORDS))

    def test_who_is_full_is_passed_over(self):
        for kind, more in (("vllm", ""), ("sglang", "bootstrap_port = 8123\n")):
            first, second, third = self.start(kind, ("prefill", "decode", "prefill"), more)
            first.fails, second.meets = 429, kind == "sglang"
            for number in range(8):
                path, body = self.BODIES[number % len(self.BODIES)]
                self.assertEqual(self.said(path, body), "".join(WORDS), kind)
            self.assertGreater(len(first.take()), 0, "it was never asked")
            self.assertEqual(len(third.take()), 8)
            self.check_unblamed(3)

    def test_vllm_a_first_one_that_hangs(self):
        """It ends with its client, and with the gateway, as the second one does."""
        first, _ = self.start("vllm", ("prefill", "decode"))
        first.fails = "hang"
        path, body = self.BODIES[1]

        def begin():
            first.ended.clear()
            link = http.client.HTTPConnection("127.0.0.1", self.gateway.port, timeout=30)
            link.request("POST", path, json.dumps({"model": "m", **body}), {"Content-Type": "application/json"})
            end = time.monotonic() + 10
            while not first.asked:
                self.assertLess(time.monotonic(), end)
                time.sleep(0.01)
            first.take()
            return link
        begin().close()
        self.assertTrue(first.ended.wait(10), "its client has left")
        link = begin()
        self.gateway.process.send_signal(signal.SIGTERM)
        answer = link.getresponse()
        self.assertEqual((answer.status, json.loads(answer.read())["error"]["code"]), (503, "gateway_stopped"))
        link.close()
        self.assertTrue(first.ended.wait(10), "the gateway ends")
        self.assertEqual(self.gateway.process.wait(10), 0)

    def test_clients_say_nothing_of_it(self):
        """KV-10, KV-13."""
        first, second = self.start("vllm", ("prefill", "decode"))
        for field in ({"kv_transfer_params": {"do_remote_prefill": True, "remote_host": "evil", "remote_port": 1}}, {"bootstrap_host": "evil"},
                      {"bootstrap_port": 1}, {"bootstrap_room": 7}, {"bootstrap_host": ["a", "b"]},
                      {"kv_transfer_params": {}}, {"bootstrap_host": ""}, {"bootstrap_host": []}):
            status, text = ask(self.gateway.port, "POST", CHAT, {"model": "m", "messages": [{"role": "user", "content": "x"}], **field})
            self.assertEqual((status, json.loads(text)["error"]["param"]), (400, next(iter(field))), text)
        self.assertEqual(first.take() + second.take(), [])
        for field in ({"kv_transfer_params": None}, {"metadata": {"bootstrap_host": "mine"}}):
            self.said(CHAT, {"messages": [{"role": "user", "content": "x"}], **field})

    def test_config(self):
        self.start("vllm", ("prefill", "decode"))
        text = self.config.read_text()

        def check(old, new):
            self.config.write_text(text.replace(old, new))
            return subprocess.run([gateway_fixture.BINARY, "gateway", "--config", self.config, "--check"], capture_output=True, text=True, timeout=60,
                                  check=False)
        self.assertEqual(check("none", "none").returncode, 0)
        for old, new, why in (('"always"', '"auto"', "off or always"), ('split = "always"\n', "", "role"), ('"prefill"', '"cook"', "role"),
                              ('role = "prefill"\n', 'role = "prefill"\nbootstrap_port = 1\n', "sglang"),
                              ('kind = "vllm"', 'kind = "openai"', "vllm and sglang"), ('"always"\n', '"always"\nhandoff = "first"\n', "our own")):
            run = check(old, new)
            self.assertNotEqual(run.returncode, 0, new)
            self.assertIn(why, run.stderr)


if __name__ == "__main__":
    gateway_fixture.BINARY = sys.argv[1]
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
