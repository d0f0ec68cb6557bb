#!/usr/bin/env python3
"""A gateway before workers that speak the fleet's protocol wrongly: half frames, gaps, answers without an end or with more behind it, loads
that no worker can have. Each fault is one worker's, and another one is sound: no client sees any of it.

usage: gateway_wire_test.py BINARY
"""
import http.server
import json
import os
import pathlib
import socket
import struct
import sys
import tempfile
import threading
import time
import unittest

import gateway_fixture
from gateway_fixture import Process, ask, events
from ports import free_port

RUN, BODY, TOKENS, FINISHED, HEAD, BYTES, ERROR, RECORD, LOAD, BLOCKS = 1, 2, 16, 17, 32, 33, 34, 48, 49, 50
MORE, LAST, OPTIONAL = 1, 2, 4
CHAT = "/v1/chat/completions"


def frame(kind, payload=b"", flags=0, choice=0):
    payload = payload if isinstance(payload, bytes) else json.dumps(payload).encode() if not isinstance(payload, str) else payload.encode()
    return struct.pack("<IBBH", len(payload), kind, flags, choice) + payload


def tokens(first, *ids):
    return frame(TOKENS, struct.pack("<IB", first, 0) + b"".join(struct.pack("<I", one) for one in ids), MORE)


def event(text):
    return f'data: {{"choices":[{{"index":0,"delta":{{"content":"{text}"}}}}]}}\n\n'


HEAD_WHOLE = frame(HEAD, {"status": 200, "headers": [["Content-Type", "application/json"]], "streamed": False}, MORE)
HEAD_STREAM = frame(HEAD, {"status": 200, "headers": [["Content-Type", "text/event-stream"]], "streamed": True}, MORE)
END = {"reason": "stop", "prompt_tokens": 3, "cached_tokens": 0, "output_tokens": 4}


class Worker(http.server.ThreadingHTTPServer):
    """A worker of this test's own: `answer(run, send, cut)` says what becomes of a request."""
    daemon_threads = True

    def __init__(self, name, answer):
        self.answer, self.runs, self.incarnation, self.load, self.more = answer, [], f"{name}-1", {}, b""
        self.keeps = False  # connections, for further requests
        self.record = {"protocol": 1, "name": name, "models": ["m"], "slots": 8, "context_tokens": 2048}

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def begin(self):
                self.send_response(200)
                self.send_header("Content-Type", "application/x-pelton-frames")
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()

            def chunk(self, data):
                self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
                self.wfile.flush()

            def do_GET(self):
                server, beat = self.server, 0
                mine = server.incarnation
                self.begin()
                try:
                    self.chunk(frame(RECORD, {**server.record, "incarnation": mine}))
                    while server.incarnation == mine:
                        beat += 1
                        load = {"progress": beat, "ready": True, **server.load}
                        self.chunk(frame(LOAD, json.dumps(load)) + server.more)
                        time.sleep(0.05)
                except OSError:
                    pass
                self.close_connection = True

            def do_POST(self):
                body, run = self.rfile.read(int(self.headers["Content-Length"])), {"frames": []}
                while body:
                    size, kind, flags, choice = struct.unpack("<IBBH", body[:8])
                    run["frames"].append((kind, choice, body[8:8 + size]))
                    body = body[8 + size:]
                run["envelope"] = json.loads(run["frames"][0][2])
                server = self.server
                self.close_connection = not server.keeps
                if run["envelope"]["incarnation"] != server.incarnation:
                    self.send_response(409)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                self.begin()

                def cut():
                    # Closed it would stay open for what still writes to it, and the answer end as a whole one does.
                    self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    self.connection.shutdown(socket.SHUT_RDWR)
                    self.connection.close()
                try:
                    if run["envelope"]["path"] == "/v1/models":
                        self.chunk(HEAD_WHOLE + frame(BYTES, {"object": "list", "data": [{"id": "m"}]}, LAST))
                    else:
                        server.runs.append(run)
                        server.answer(run, self.chunk, cut)
                    self.wfile.write(b"0\r\n\r\n")
                except (OSError, ValueError):
                    pass
        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request, client_address):
        pass

    def close(self):
        self.incarnation = "gone"
        self.shutdown()
        self.server_close()


def is_streamed(run):
    return b'"stream": true' in run["frames"][-1][2]


def said(run):
    """Tokens that came with the request."""
    return sum((len(payload) - 5) // 4 for kind, _, payload in run["frames"] if kind == TOKENS)


def sound(run, send, cut):
    """Four tokens, a, b, c, d; it goes on from whatever was said."""
    if not is_streamed(run):
        return send(HEAD_WHOLE + frame(BYTES, {"answer": "abcd"}, LAST))
    out = HEAD_STREAM
    for i in range(said(run), 4):
        out += tokens(i, 100 + i) + (frame(FINISHED, END, MORE) if i == 3 else b"") + frame(BYTES, event("abcd"[i]))
    return send(out + frame(BYTES, "data: [DONE]\n\n", LAST))


def first_two(send):
    send(HEAD_STREAM + b"".join(tokens(i, 100 + i) + frame(BYTES, event("abcd"[i])) for i in range(2)))


def half_a_frame_then_reset(run, send, cut):
    send(HEAD_STREAM[:11] if is_streamed(run) else HEAD_WHOLE[:5])
    cut()


def half_a_frame_amid_an_answer(run, send, cut):
    first_two(send)
    send((tokens(2, 102) + frame(BYTES, event("c")))[:-3])
    cut()


def an_answer_without_its_end(run, send, cut):
    send(HEAD_WHOLE + frame(BYTES, '{"answer": "ab')) if not is_streamed(run) else first_two(send)


def the_end_is_lost_after_the_last_token(run, send, cut):
    """All has been said but that it is over."""
    first_two(send)
    send(tokens(2, 102) + frame(BYTES, event("c")) + tokens(3, 103) + frame(FINISHED, END, MORE) + frame(BYTES, event("d")))
    cut()


def a_gap_in_its_tokens(run, send, cut):
    first_two(send)
    send(tokens(3, 103) + frame(BYTES, event("d")) + frame(BYTES, "data: [DONE]\n\n", LAST))


def tokens_said_twice(run, send, cut):
    first_two(send)
    send(tokens(1, 101) + frame(BYTES, event("b")))


def a_frame_of_no_type(run, send, cut):
    send(frame(99, b"?") + HEAD_WHOLE + frame(BYTES, '{"answer": "wrong"}', LAST))


def a_frame_without_bounds(run, send, cut):
    send(struct.pack("<IBBH", 0xFFFFFFFF, HEAD, 0, 0) + b"x" * 1000)


def a_head_that_is_none(run, send, cut):
    send(frame(HEAD, '{"status": NaN', MORE) + frame(BYTES, '{"answer": "wrong"}', LAST))


def a_status_that_is_none(run, send, cut):
    send(frame(HEAD, {"status": 99, "headers": [], "streamed": False}, MORE) + frame(BYTES, '{"answer": "wrong"}', LAST))


def two_heads(run, send, cut):
    send(HEAD_STREAM if is_streamed(run) else HEAD_WHOLE)
    send(HEAD_WHOLE + frame(BYTES, '{"answer": "wrong"}', LAST))


def nothing_at_all(run, send, cut):
    pass


FAULTS = [half_a_frame_then_reset, half_a_frame_amid_an_answer, an_answer_without_its_end, the_end_is_lost_after_the_last_token,
          a_gap_in_its_tokens, tokens_said_twice, a_frame_of_no_type, a_frame_without_bounds, a_head_that_is_none, a_status_that_is_none,
          two_heads, nothing_at_all]
STREAMED_ONLY = {half_a_frame_amid_an_answer, the_end_is_lost_after_the_last_token, a_gap_in_its_tokens, tokens_said_twice}
BODY_OF = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}


class Wire(unittest.TestCase):
    def workers(self, *answers):
        """Sound or not, in this order, before one gateway."""
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.all = [Worker(f"w{i}", answer) for i, answer in enumerate(answers)]
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
        end = time.monotonic() + 15
        while not what() and time.monotonic() < end:
            time.sleep(0.02)
        self.assertTrue(what(), (self.rows(), list(self.gateway.log)[-10:]))

    def restore(self):
        for row in self.rows():
            ask(self.admin, "POST", f"/v1/workers/{row['name']}/restore")

    def check_whole(self):
        status, text = ask(self.gateway.port, "POST", CHAT, BODY_OF)
        self.assertEqual((status, json.loads(text)), (200, {"answer": "abcd"}), list(self.gateway.log)[-5:])

    def check_stream(self):
        data = events(self.gateway.port, CHAT, {**BODY_OF, "stream": True})
        text = "".join(json.loads(one)["choices"][0]["delta"]["content"] for one in data[:-1])
        self.assertEqual((text, data[-1]), ("abcd", "[DONE]"), list(self.gateway.log)[-5:])

    def until(self, worker, check):
        """Checks until the worker has been asked; which one is asked is drawn."""
        before, end = len(worker.runs), time.monotonic() + 20
        while len(worker.runs) == before and time.monotonic() < end:
            self.restore()
            check()
        self.assertGreater(len(worker.runs), before)

    def test_what_a_worker_says_wrongly_nobody_sees(self):
        """GW-07, GW-08: each fault, in an answer that is streamed and in one that is not."""
        self.workers(sound, sound)
        bad = self.all[0]
        for fault in FAULTS:
            with self.subTest(fault.__name__):
                bad.answer = fault
                if fault not in STREAMED_ONLY:
                    self.until(bad, self.check_whole)
                self.until(bad, self.check_stream)
                # Clients ask again: what has been answered is under no suspicion.
                bad.answer = sound
                self.restore()
                self.check_whole()
        self.assertNotIn("request_quarantined", "".join(self.gateway.log))

    def test_one_that_answers_wrongly_alone_is_asked_a_few_times(self):
        """GW-07, GW-16: it lives, so it is not waited for as a lost one is; a further attempt or two, and its client knows."""
        def reset(run, send, cut):
            cut()
        for fault in (half_a_frame_then_reset, an_answer_without_its_end, nothing_at_all, reset):
            with self.subTest(fault.__name__):
                self.workers(fault)
                begun = time.monotonic()
                status, text = ask(self.gateway.port, "POST", CHAT, BODY_OF)
                self.assertEqual((status, json.loads(text)["error"]["code"]), (502, "worker_failed"), list(self.gateway.log)[-5:])
                self.assertLess(time.monotonic() - begun, 4)
                self.assertLessEqual(len(self.all[0].runs), 4)

    def test_what_is_not_implemented_is_nobodys_fault(self):
        """A 501 is passed on: no second worker is asked, none is blamed, nothing is taken of the retry budget."""
        def cannot(run, send, cut):
            send(frame(HEAD, {"status": 501, "headers": [], "streamed": False}, MORE) + frame(BYTES, '{"error": {"message": "no"}}', LAST))
        self.workers(cannot, cannot)
        for _ in range(12):
            self.assertEqual(ask(self.gateway.port, "POST", CHAT, BODY_OF)[0], 501)
        self.assertEqual(sum(len(one.runs) for one in self.all), 12)
        self.assertEqual([row["state"] for row in self.rows()], ["ready", "ready"])

    def test_an_end_that_claims_more_than_was_said(self):
        """One wrong count is not what its client has used."""
        def liar(run, send, cut):
            first_two(send)
            send(frame(FINISHED, {**END, "output_tokens": 2147483647, "prompt_tokens": 2147483647}, MORE) + frame(BYTES, "data: [DONE]\n\n", LAST))
        self.workers(liar)
        events(self.gateway.port, CHAT, {**BODY_OF, "stream": True})
        page = ask(self.admin, "GET", "/metrics")[1]
        said = [float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith("vllm:generation_tokens_total")]
        self.assertEqual(len(said), 1, page)
        self.assertLess(said[0], 100)
        prompts = [float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith("vllm:prompt_tokens_total")]
        self.assertEqual(prompts, [float(1 << 20)])

    def test_what_comes_behind_an_answer_is_nobodys(self):
        def chatty(run, send, cut):
            sound(run, send, cut)
            send(frame(BYTES, event("more"), LAST) + frame(BYTES, event("and more")))
        self.workers(chatty)
        for _ in range(5):
            self.check_whole()
            self.check_stream()

    def test_an_optional_frame_is_skipped(self):
        def newer(run, send, cut):
            send(frame(200, b"of a later version", OPTIONAL))
            sound(run, send, cut)
        self.workers(newer)
        self.check_whole()
        self.check_stream()

    def test_loads_that_cannot_be_harm_nobody(self):
        """GW-06: NaN, -1, 10^18, text; and reports that are no reports."""
        self.workers(sound, sound)
        liar = self.all[0]
        for value in (-1, 1e18, -1e300, "many", None, [1], {"a": 1}, True):
            liar.load = {name: value for name in ("running", "waiting", "waiting_tokens", "wait_s", "context_tokens", "kv_used", "costs", "dispatch")}
            time.sleep(0.15)
            for _ in range(3):
                self.check_whole()
            self.assertEqual([row["state"] for row in self.rows()], ["ready", "ready"], value)
        liar.load = {"kv_used": float("nan")}  # no JSON: its watch is broken, and opened again
        self.wait(lambda: next(row for row in self.rows() if row["name"] == "w0")["state"] in ("suspect", "down"))
        for _ in range(5):
            self.check_whole()
        liar.load = {}
        self.wait(lambda: [row["state"] for row in self.rows()] == ["ready", "ready"])

    def test_events_that_are_none_break_the_watch_only(self):
        """GW-10."""
        self.workers(sound, sound)
        self.all[0].more = frame(BLOCKS, b"\xff" * 7)
        self.wait(lambda: "its watch:" in next(row for row in self.rows() if row["name"] == "w0")["reason"])
        for _ in range(5):
            self.check_whole()
        self.all[0].more = b""
        self.wait(lambda: [row["state"] for row in self.rows()] == ["ready", "ready"])

    def test_a_worker_that_starts_anew_at_once_is_another_one(self):
        """Within 100 ms, under the same name and address: what was meant for the old one the new one does not take (FT-20)."""
        self.workers(sound, sound)
        restarted = self.all[0]
        for number in range(2, 6):
            restarted.incarnation = f"w0-{number}"
            for _ in range(5):
                self.check_whole()
                self.check_stream()
            self.wait(lambda: next(row for row in self.rows() if row["name"] == "w0")["incarnation"] == restarted.incarnation)
            self.wait(lambda: [row["state"] for row in self.rows()] == ["ready", "ready"])

    def test_two_workers_of_one_name_are_two(self):
        self.workers(sound, sound)
        self.all[1].record["name"] = "w0"
        self.all[1].incarnation = "other"
        # Each is commanded by a name of its own.
        self.wait(lambda: [row["incarnation"] for row in self.rows()][1] == "other")
        self.wait(lambda: [row["state"] for row in self.rows()] == ["ready"] * 2)
        self.assertEqual([row["name"] for row in self.rows()], ["w0", "w1"])  # as it was called before
        for _ in range(40):
            self.check_whole()
        self.assertGreater(min(len(one.runs) for one in self.all), 0)

    def test_internal_headers_of_clients_reach_nobody(self):
        """GW-09: what only a gateway or a worker may say is taken off."""
        self.workers(sound)
        names = ("x-internal-tenant", "x-kv-transfer", "x-prefiller-host-port", "x-data-parallel-host-port", "x-pelton-salt", "Authorization",
                 "x-gateway-destination-endpoint", "Cookie", "x-fleet-name", "Connection")
        ask(self.gateway.port, "POST", CHAT, BODY_OF, **{name: "evil" for name in names if name != "Connection"},
            traceparent="0" * 2000, tracestate="a=1", **{"x-mine": "kept"})
        passed = {name.lower(): value for name, value in self.all[0].runs[-1]["envelope"]["headers"]}
        self.assertEqual(set(passed) & {name.lower() for name in names}, set())
        self.assertNotIn("traceparent", passed)
        self.assertEqual((passed["x-mine"], passed["tracestate"]), ("kept", "a=1"))
        self.assertEqual(self.all[0].runs[-1]["envelope"]["tenant"], "")


if __name__ == "__main__":
    gateway_fixture.BINARY = os.path.abspath(sys.argv[1])
    unittest.main(argv=[sys.argv[0], *[word for word in sys.argv[2:] if word != "--full"]], verbosity=2)
