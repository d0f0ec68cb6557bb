#!/usr/bin/env python3
"""A gateway before servers of others' that show what they can: with keys and TLS, and answers that go on at the next one where that is
possible to the letter, or end in one error.

usage: gateway_foreign_test.py BINARY
"""
import http.server
import json
import os
import pathlib
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock

import gateway_fixture
from gateway_fixture import BOX, Process, ask, events
from ports import free_port
from tiers import full
from vllm_publisher import Publisher

WORDS = [f" w{i}" for i in range(12)]  # what each of them says, greedily, behind any prompt; a token each


class Foreign(http.server.ThreadingHTTPServer):
    """Says WORDS from where its prompt ends. `able`: of "chat", "text", "tokens"; `cut`: ends amid its answer after so many words."""
    daemon_threads = True

    def __init__(self, able, metrics="", key=None, tls=None):
        self.able, self.metrics, self.key, self.cut, self.asked, self.refused, self.running = able, metrics, key, None, [], 0, 0
        self.cut_once = ()

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def whole(self, status, body, kind="application/json"):
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def may(self):
                if self.server.key is None or self.headers.get("Authorization") == f"Bearer {self.server.key}":
                    return True
                self.server.refused += 1
                self.whole(401, b'{"error":{"message":"no key"}}')
                return False

            def do_GET(self):
                if self.path == "/metrics":
                    return self.whole(200, self.server.metrics.encode(), "text/plain")
                if self.may():
                    self.whole(200, json.dumps({"object": "list", "data": [{"id": "m"}]}).encode())
                return None

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if not self.may():
                    return None
                server, is_chat = self.server, self.path == "/v1/chat/completions"
                begun, ids = self.begun(body, is_chat)
                if begun is None:
                    return self.whole(400, b'{"error":{"message":"not so"}}')
                most = body.get("max_tokens") or 99
                words = WORDS[begun:begun + most]
                if not body.get("stream"):
                    text = "".join(words[:1])
                    choice = {"message": {"content": text}} if is_chat else {"text": text}
                    if ids is not None:
                        choice |= {"prompt_token_ids": ids, "token_ids": [100]}
                    return self.whole(200, json.dumps({"choices": [choice]}).encode())
                server.asked.append(body)
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Connection", "close")
                self.end_headers()
                self.close_connection = True
                return self.stream(body, is_chat, words, begun, ids)

            def begun(self, body, is_chat):
                """How many words its prompt holds already, and the prompt's token ids where they are asked for; None: it cannot."""
                able = self.server.able
                if is_chat:
                    last = body["messages"][-1]
                    if last["role"] != "assistant":
                        return 0, None
                    return (last["content"].count(" w"), None) if "chat" in able and body.get("continue_final_message") else (None, None)
                if isinstance(body["prompt"], list):
                    if "tokens" not in able:
                        return None, None
                    return sum(one >= 100 for one in body["prompt"]), body["prompt"]
                if "text" not in able:
                    return None, None
                wants = "tokens" in able and body.get("return_token_ids")
                return body["prompt"].count(" w"), [7, 8, 9] if wants else None

            def stream(self, body, is_chat, words, begun, ids):
                def say(value):
                    self.wfile.write(f"data: {json.dumps(value)}\n\n".encode())
                name = {"id": f"id-{id(self)}", "created": 1, "model": "m"}
                cut = self.server.cut
                for one in self.server.cut_once:  # whoever is asked first is cut, nobody else
                    one.cut, one.cut_once = None, ()
                for i, word in enumerate(words):
                    if cut is not None and i == cut:
                        self.wfile.write(b'data: {"half')
                        return
                    choice = {"index": 0, "delta": {"content": word}} if is_chat else {"index": 0, "text": word}
                    if ids is not None:
                        choice |= {"token_ids": [100 + begun + i]} | ({"prompt_token_ids": ids} if i == 0 else {})
                    say({**name, "choices": [choice]})
                say({**name, "choices": [{"index": 0, **({"delta": {}} if is_chat else {"text": ""}), "finish_reason": "stop"}]})
                if (body.get("stream_options") or {}).get("include_usage"):
                    say({**name, "choices": [], "usage": {"prompt_tokens": 3 + begun, "completion_tokens": len(words),
                                                          "total_tokens": 3 + begun + len(words)}})
                self.wfile.write(b"data: [DONE]\n\n")
        super().__init__(("127.0.0.1", 0), Handler)
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            self.socket = context.wrap_socket(self.socket, server_side=True)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request, client_address):
        pass

    def close(self):
        self.shutdown()
        self.server_close()


class Vllm(http.server.ThreadingHTTPServer):
    """Answers completions of token ids, and keeps and publishes blocks of sixteen of them."""
    daemon_threads = True
    BLOCK = 16

    def __init__(self, host, ports, form):
        self.lock, self.blocks, self.asked, self.cached = threading.Lock(), {}, 0, 0
        self.publisher = Publisher(host, *ports, form)

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def whole(self, value):
                body = json.dumps(value).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self):
                self.whole({"object": "list", "data": [{"id": "m"}]})

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                cached = self.server.compute(body["prompt"]) if isinstance(body.get("prompt"), list) else 0
                self.whole({"choices": [{"index": 0, "text": " ok", "finish_reason": "stop"}],
                            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": cached}}})
        super().__init__((host, 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def compute(self, prompt):
        """How many of its tokens were there; the others are from now on."""
        with self.lock:
            self.asked += 1
            parent, cached, fresh, first = None, 0, [], None
            for at in range(0, len(prompt) - self.BLOCK + 1, self.BLOCK):
                tokens = tuple(prompt[at:at + self.BLOCK])
                known = self.blocks.get((parent, tokens))
                if known is not None and not fresh:
                    cached += self.BLOCK
                name = known if known is not None else hash((parent, tokens)) & ((1 << 63) - 1)
                if known is None:
                    first = parent if not fresh else first
                    fresh.append((name, tokens))
                    self.blocks[(parent, tokens)] = name
                parent = name
            if fresh:
                self.publisher.say(("BlockStored", {
                    "block_hashes": [name for name, _ in fresh], "parent_block_hash": first, "token_ids": [one for _, tokens in fresh for one in tokens],
                    "block_size": self.BLOCK, "lora_id": None, "medium": "GPU"}))
            self.cached += cached
            # As long as computing takes: a gateway weighs what a hit saves by the times that it has seen.
            time.sleep((len(prompt) - cached) * 1e-4)
            return cached

    def clear(self):
        with self.lock:
            self.blocks.clear()
            self.publisher.say(("AllBlocksCleared", {}))

    def close(self):
        self.shutdown()
        self.server_close()
        self.publisher.close()


class ForeignWorkers(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def start(self, servers, kind, more="", scheme="http", gateway=""):
        for one in servers:
            self.addCleanup(one.close)
        self.admin = free_port()
        config = self.folder / "gateway.toml"
        config.write_text(f'[gateway]\nlisten = "127.0.0.1:0"\nadmin = "127.0.0.1:{self.admin}"\nresume_budget = 2\n{gateway}'
                          f'[[pool]]\nname = "p"\nmodel = "m"\nkind = "{kind}"\n{more}' +
                          "".join(f'[[worker]]\npool = "p"\nurl = "{scheme}://localhost:{one.server_port}"\n' for one in servers))
        self.gateway = Process("gateway", "--config", config)
        self.addCleanup(self.gateway.end)
        self.wait(lambda: ask(self.gateway.port, "GET", "/ready")[0] == 200)

    def rows(self):
        return json.loads(ask(self.admin, "GET", "/v1/workers")[1])["workers"]

    def wait(self, what):
        end = time.monotonic() + 20
        while not what() and time.monotonic() < end:
            time.sleep(0.05)
        self.assertTrue(what(), (self.rows(), list(self.gateway.log)[-10:]))

    def levels(self, *levels):
        self.wait(lambda: [row["level"] for row in self.rows()] == list(levels))

    def ask_stream(self, path, body):
        """Texts, whatever else was said, and the ids."""
        data = events(self.gateway.port, path, {"model": "m", "stream": True, **body})
        chunks = [json.loads(one) for one in data if one != "[DONE]"]
        text = "".join((choice.get("delta") or {}).get("content", "") + choice.get("text", "")
                       for chunk in chunks for choice in chunk.get("choices", []))
        return text, data, chunks

    def check_moved(self, path, body, servers, after):
        """Whichever is asked first is cut after so many words; the other one goes on."""
        for one in servers:
            one.asked.clear()
            one.cut = after
            one.cut_once = servers
        text, data, chunks = self.ask_stream(path, {**body, "stream_options": {"include_usage": True}})
        self.assertEqual(text, "".join(WORDS), (data, list(self.gateway.log)[-5:]))
        self.assertEqual((data[-1], data.count("[DONE]")), ("[DONE]", 1))
        self.assertEqual(len({chunk["id"] for chunk in chunks if "id" in chunk}), 1, "one answer's name")
        self.assertEqual(chunks[-1]["usage"], {"prompt_tokens": 3, "completion_tokens": 12, "total_tokens": 15})
        self.assertNotIn("token_ids", json.dumps(chunks))
        return [one.asked[-1] for one in servers if one.asked]

    def test_text_goes_on_to_the_letter(self):
        """L2 by tokens, L1 by text, L0 by the last message; each as it was seen in a probe."""
        servers = [Foreign({"chat", "text", "tokens"}) for _ in range(2)]
        self.start(servers, "vllm")
        self.levels("L2", "L2")
        for after in (1, 5, 11):
            asked = self.check_moved("/v1/completions", {"prompt": "Count", "max_tokens": 40}, servers, after)
            by_tokens = next(one for one in asked if isinstance(one["prompt"], list))
            self.assertEqual(by_tokens["prompt"], [7, 8, 9, *range(100, 100 + after)])
            self.assertEqual(by_tokens["max_tokens"], 40 - after)
            asked = self.check_moved("/v1/chat/completions", {"messages": [{"role": "user", "content": "Count"}]}, servers, after)
            self.assertTrue(any(one.get("continue_final_message") for one in asked))
        self.assertEqual(self.metric("streams_interrupted_total"), 0)

    @full
    def test_text_alone(self):
        servers = [Foreign({"text"}) for _ in range(2)]
        self.start(servers, "sglang")
        self.levels("L1", "L1")
        self.check_moved("/v1/completions", {"prompt": "Count"}, servers, 4)
        # Nobody shows that it goes on with a chat: one error, and no end.
        for one in servers:
            one.cut = 4
        text, data, chunks = self.ask_stream("/v1/chat/completions", {"messages": [{"role": "user", "content": "Count"}]})
        self.assertEqual((text, chunks[-1]["error"]["code"]), ("".join(WORDS[:4]), "stream_interrupted"))
        self.assertNotIn("[DONE]", data)
        self.assertEqual(sum("error" in chunk for chunk in chunks), 1)

    def metric(self, name):
        text = ask(self.admin, "GET", "/metrics")[1]
        return int(next(line for line in text.splitlines() if line.startswith(f"pelton_gateway_{name} ")).split()[1])

    def test_what_is_not_to_go_on_ends_in_one_error(self):
        servers = [Foreign({"chat", "text", "tokens"}) for _ in range(2)]
        self.start(servers, "vllm", "continue = false\n")
        self.levels("opaque", "opaque")
        for one in servers:
            one.cut = 3
        text, data, chunks = self.ask_stream("/v1/completions", {"prompt": "Count"})
        self.assertEqual((text, chunks[-1]["error"]["code"]), ("".join(WORDS[:3]), "stream_interrupted"))
        self.assertNotIn("[DONE]", data)

    def test_a_tool_call_does_not_go_on(self):
        """What the first server knows of it is nobody else's."""
        servers = [Foreign({"chat", "text"}) for _ in range(2)]
        self.start(servers, "vllm")
        self.levels("L1", "L1")
        for one in servers:
            one.cut = 3
        _, data, chunks = self.ask_stream("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}],
                                                                  "tools": [{"type": "function", "function": {"name": "f"}}]})
        self.assertEqual(chunks[-1]["error"]["code"], "stream_interrupted")
        self.assertNotIn("[DONE]", data)

    def test_load_is_read_where_it_is_said(self):
        busy = 'vllm:num_requests_running{model="m"} 60\nvllm:num_requests_waiting 9\nvllm:kv_cache_usage_perc 0.9\n'
        servers = [Foreign({"chat"}, busy), Foreign({"chat"}, 'vllm:num_requests_running 0\n')]
        self.start(servers, "vllm")
        self.wait(lambda: [(row["running"], row["waiting"], row["kv_used"]) for row in self.rows()] == [(60, 9, 0.9), (0, 0, 0)])
        for _ in range(6):
            self.assertEqual(self.ask_stream("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]})[1][-1], "[DONE]")
        self.assertEqual([len(one.asked) for one in servers], [0, 6])

    def test_answers_that_are_none(self):
        """GW-07: a page of HTML, half a JSON text, a way elsewhere, the pool's own key refused: 502, a few attempts, and nobody in quarantine."""
        server = Foreign({"chat"})
        self.start([server], "openai")
        answers = ((200, b"<html>busy</html>", "text/html"), (200, b'{"half":', "Application/JSON"), (302, b"", "text/plain"),
                   (401, b'{"error":{"message":"no key"}}', "application/json"))
        body = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
        for answer in answers:
            asked = []

            def wrong(handler, answer=answer, asked=asked):
                handler.rfile.read(int(handler.headers["Content-Length"]))
                asked.append(1)
                handler.whole(*answer)
            with self.subTest(answer), unittest.mock.patch.object(server.RequestHandlerClass, "do_POST", wrong):
                status, text = ask(self.gateway.port, "POST", "/v1/chat/completions", body)
                self.assertEqual((status, json.loads(text)["error"]["code"]), (502, "worker_failed"), list(self.gateway.log)[-5:])
                self.assertLessEqual(len(asked), 4)
        ask(self.admin, "POST", f"/v1/workers/{self.rows()[0]['name']}/restore")
        self.assertEqual(ask(self.gateway.port, "POST", "/v1/chat/completions", body)[0], 200, "the same body")

    def test_keys_and_certificates(self):
        """Its own key and not the client's; whom its certificate's authority does not name it does not speak to."""
        cert, key = self.folder / "cert.pem", self.folder / "key.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out", cert,
                        "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"], check=True, capture_output=True)
        secret = self.folder / "secret"
        secret.write_text("upstream-key\n")
        keys = self.folder / "keys"
        keys.write_text("client-key acme\n")
        server = Foreign({"chat"}, key="upstream-key", tls=(cert, key))
        self.start([server], "vllm", f'ca_file = "{cert}"\napi_key_file = "{secret}"\n', "https", f'keys_file = "{keys}"\n')
        status, text = ask(self.gateway.port, "POST", "/v1/chat/completions",
                           {"model": "m", "messages": [{"role": "user", "content": "x"}]}, Authorization="Bearer client-key")
        self.assertEqual((status, json.loads(text)["choices"][0]["message"]["content"]), (200, WORDS[0]))
        self.levels("L0")
        self.assertEqual(server.refused, 0)
        printed = subprocess.run([gateway_fixture.BINARY, "gateway", "--config", self.folder / "gateway.toml", "--print-config"],
                                 capture_output=True, text=True, timeout=30, check=True).stdout
        self.assertNotIn("upstream-key", printed + "".join(self.gateway.log))
        self.assertIn("https://localhost", printed)
        # Another authority: nothing is said to it.
        other = self.folder / "other.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", self.folder / "k",
                        "-out", other, "-days", "2", "-subj", "/CN=x"], check=True, capture_output=True)
        config = self.folder / "gateway.toml"
        text = config.read_text().replace(str(cert), str(other)).replace(f'admin = "127.0.0.1:{self.admin}"\n', "")
        config = self.folder / "other.toml"
        config.write_text(text)
        stranger = Process("gateway", "--config", config)
        self.addCleanup(stranger.end)
        time.sleep(1)
        self.assertEqual(ask(stranger.port, "GET", "/ready")[0], 503)


    def test_prompts_go_where_vllms_events_say_they_are_known(self):
        """In both forms; what was missed is asked for again."""
        ports = (free_port(), free_port())
        servers = [Vllm(f"127.0.0.{i + 1}", ports, form) for i, form in enumerate(("map", "array", "map"))]
        for one in servers:
            self.addCleanup(one.close)
        self.admin = free_port()
        config = self.folder / "gateway.toml"
        config.write_text(f'[gateway]\nlisten = "127.0.0.1:0"\nadmin = "127.0.0.1:{self.admin}"\n'
                          f'[[pool]]\nname = "p"\nmodel = "m"\nkind = "vllm"\ncontinue = false\ntokenizer = "{BOX}"\n'
                          f'kv_events_port = {ports[0]}\nkv_replay_port = {ports[1]}\n' +
                          "".join(f'[[worker]]\npool = "p"\nurl = "http://127.0.0.{i + 1}:{one.server_port}"\n' for i, one in enumerate(servers)))
        self.gateway = Process("gateway", "--config", config)
        self.addCleanup(self.gateway.end)
        self.wait(lambda: ask(self.gateway.port, "GET", "/ready")[0] == 200)
        self.wait(lambda: all(one.publisher.links for one in servers))
        # Each one has said something, and is heard: only then is it known how long its blocks are.
        for one in servers:
            one.compute([9] * 32)
        self.wait(lambda: self.metric("index_names") > 0)

        def prompt(conversation, turns):
            return [1000 + conversation] * 64 + [i * 7 % 3000 for i in range(turns * 160)]

        def ask_all(turns):
            found = 0
            for conversation in range(12):
                status, text = ask(self.gateway.port, "POST", "/v1/completions", {"model": "m", "prompt": prompt(conversation, turns), "max_tokens": 1})
                self.assertEqual(status, 200, text)
                found += json.loads(text)["usage"]["prompt_tokens_details"]["cached_tokens"]
            return found
        ask_all(1)
        names = 2 + 12 * (64 + 160) // 16
        self.wait(lambda: self.metric("index_names") >= names)
        servers[1].publisher.dropped = {servers[1].publisher.next}  # and the next one shows that it is missing
        found = ideal = 0
        for turns in range(2, 6):
            found += ask_all(turns)
            ideal += 12 * (64 + (turns - 1) * 160)
            names += 12 * 160 // 16
            for one in servers:
                one.compute([turns] * 16)
            names += 1
            self.wait(lambda: self.metric("index_names") >= names)
        self.assertGreaterEqual(found, 0.9 * ideal)
        self.assertGreater(sorted(one.asked for one in servers)[1], 4 + 1, "not all at one")
        self.assertGreaterEqual(servers[1].publisher.replays, 1)
        self.assertGreater(self.metric("kv_events_batches_total"), 12)
        self.assertEqual(self.metric('kv_events_resets_total{reason="gap"}'), 0, "what was missed was said again")
        # What it has let go is not looked for there.
        for one in servers:
            one.clear()
        self.wait(lambda: self.metric("index_names") == 0)
        # Nor what was said where nobody listens any more.
        for one in servers:
            one.compute([9] * 32)
        self.wait(lambda: self.metric("index_names") > 0)
        # A gap that nobody fills.
        publisher = servers[0].publisher
        publisher.dropped.add(publisher.next)
        servers[0].compute([8] * 32)
        publisher.batches.clear()
        servers[0].compute([7] * 32)
        self.wait(lambda: self.metric('kv_events_resets_total{reason="gap"}') == 1)
        config.write_text("".join(line + "\n" for line in config.read_text().splitlines() if not line.startswith("kv_")))
        self.wait(lambda: self.metric("index_names") == 0)


    @full
    def test_our_own_events_are_read_as_vllms(self):
        """serve --kv-events-endpoint, in both forms: a gateway that takes the worker for one of vLLM's sends prompts where they are known;
        what a salt hides is not said."""
        script = self.folder / "script.json"
        script.write_text(json.dumps(gateway_fixture.SCRIPT))
        for form in ("map", "array"):
            one = Process("serve", BOX, "--executor", f"modelled:{script}", "--port", "0", "--kv-events-endpoint", "tcp://127.0.0.1:*",
                          "--kv-events-form", form)
            self.addCleanup(one.end)
            line = next(line for line in one.process.stdout if line.startswith("KV events on "))
            self.admin = free_port()
            config = self.folder / f"{form}.toml"
            config.write_text(f'[gateway]\nlisten = "127.0.0.1:0"\nadmin = "127.0.0.1:{self.admin}"\n[[pool]]\nname = "p"\nmodel = "pelton-box"\n'
                              f'kind = "vllm"\ncontinue = false\ntokenizer = "{BOX}"\nkv_events_port = {line.strip().rsplit(":", 1)[1]}\n'
                              f'[[worker]]\npool = "p"\nurl = "http://127.0.0.1:{one.port}"\n')
            self.gateway = Process("gateway", "--config", config)
            self.addCleanup(self.gateway.end)
            self.wait(lambda: ask(self.gateway.port, "GET", "/ready")[0] == 200)

            def post(prompt, **more):
                status, text = ask(self.gateway.port, "POST", "/v1/completions", {"model": "pelton-box", "prompt": prompt, "max_tokens": 20, **more})
                self.assertEqual(status, 200, text)
                return text

            def expected(prompt):
                decision = json.loads(ask(self.admin, "POST", "/v1/explain?path=/v1/completions", {"model": "pelton-box", "prompt": prompt})[1])
                return max(one["hit_tokens"] for one in decision["candidates"])
            prompt = [9 + i % 100 for i in range(200)]
            # Who begins to listen hears from then on: the first prompt may have been too early.
            self.wait(lambda: post([int(time.monotonic() * 1e3) % 3000 + 5] * 40) and self.metric("index_names") > 0)
            post(prompt)
            self.wait(lambda: expected(prompt) >= 176)
            self.assertGreater(self.metric("kv_events_batches_total"), 0)
            self.assertEqual(self.metric('kv_events_resets_total{reason="unreadable"}'), 0)
            # A second conversation under a salt: computed, kept, and not said.
            names = self.metric("index_names")
            post([1000 + i for i in range(200)], cache_salt="pepper")
            time.sleep(0.3)
            self.assertEqual(self.metric("index_names"), names)

    def test_what_cannot_be_published_is_refused(self):
        for words, what in ((["tcp://127.0.0.1"], "tcp://127.0.0.1:5557"), (["http://127.0.0.1:5557"], "tcp://127.0.0.1:5557"),
                            (["tcp://256.0.0.1:5557"], "kv-events-endpoint"), (["tcp://127.0.0.1:*", "--replicas", "2"], "one replica")):
            script = self.folder / "script.json"
            script.write_text(json.dumps(gateway_fixture.SCRIPT))
            done = subprocess.run([gateway_fixture.BINARY, "serve", BOX, "--port", "0", "--executor", f"modelled:{script}", "--kv-events-endpoint", *words],
                                  capture_output=True, text=True, timeout=30, check=False)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(what, done.stderr)


if __name__ == "__main__":
    gateway_fixture.BINARY = os.path.abspath(sys.argv[1])
    unittest.main(argv=[sys.argv[0], *[word for word in sys.argv[2:] if word != "--full"]], verbosity=2)
