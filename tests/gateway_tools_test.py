#!/usr/bin/env python3
"""Responses through a gateway whose worker runs tools for the model: whole, streamed and over a WebSocket; and that a tool which was called is
never called a second time, whatever becomes of that worker.

usage: gateway_tools_test.py BINARY
"""
import http.server
import json
import os
import pathlib
import signal
import sys
import tempfile
import threading
import time
import unittest

import gateway_fixture
from gateway_fixture import Fleet, Socket, ask, events

SCRIPT = {"step_ms": 4, "context": 4096, "slots": 8, "rules": [
    {"when": "", "then": "<|channel|>final<|message|>Plain."},
    {"when": "compute", "then": "<|channel|>analysis<|message|>I shall run it.<|end|><|start|>assistant<|channel|>analysis to=python code"
                                "<|message|>print(6*7)<|call|>"},
    {"when": "it printed", "then": "<|channel|>final<|message|>It is 42."}]}
TOOLS = [{"type": "code_interpreter", "container": {"type": "auto"}}]


class ToolServer(http.server.ThreadingHTTPServer):
    """Of the Model Context Protocol, as far as it is spoken here. A call is answered when the test lets it."""
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), ToolHandler)
        self.calls = 0
        self.may_answer = threading.Event()
        self.may_answer.set()
        threading.Thread(target=self.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server_port}/mcp"

    def handle_error(self, *_):
        """A worker that was killed hears no answer."""


class ToolHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, body=None, **headers):
        data = json.dumps(body).encode() if body else b""
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    def do_DELETE(self):
        self.answer(200)

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "id" not in asked:
            return self.answer(202)
        if asked["method"] == "initialize":
            result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "test", "version": "1"}}
        elif asked["method"] == "tools/list":
            result = {"tools": [{"name": "python", "inputSchema": {"type": "object"}}]}
        else:
            self.server.calls += 1
            self.server.may_answer.wait(30)
            result = {"content": [{"type": "text", "text": "it printed 42"}]}
        self.answer(200, {"jsonrpc": "2.0", "id": asked["id"], "result": result}, Content_Type="application/json", Mcp_Session_Id="s")

    def log_message(self, *_):
        pass


class Tools(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.tools = ToolServer()
        self.addCleanup(self.tools.server_close)
        self.addCleanup(self.tools.shutdown)
        self.addCleanup(self.tools.may_answer.set)
        flags = ("--executor", f"modelled:{scratch.name}/script.json", "--tool-server", f"python={self.tools.url}")
        self.fleet = Fleet(pathlib.Path(scratch.name), 2, script=SCRIPT, serve=flags, gateway=("resume_budget = 2\n",))
        self.addCleanup(self.fleet.close)
        self.port = self.fleet.gateway.port

    def body(self, **more):
        return {"model": "pelton-box", "input": "compute", "tools": TOOLS, **more}

    def check(self, response):
        self.assertEqual(response["status"], "completed")
        self.assertEqual([item["type"] for item in response["output"]], ["reasoning", "code_interpreter_call", "message"])
        self.assertEqual(response["output"][2]["content"][0]["text"], "It is 42.")

    def beside(self, run):
        """What comes of a request whose tool is being called now, and the worker that has it."""
        came = []

        def ask_it():
            try:
                came.append(run())
            except Exception as error:  # the test looks at it
                came.append(error)
        asked = {row["name"]: row["requests"] for row in self.fleet.rows()}
        before, thread = self.tools.calls, threading.Thread(target=ask_it)
        self.tools.may_answer.clear()
        thread.start()
        end = time.monotonic() + 20
        while self.tools.calls == before:
            self.assertLess(time.monotonic(), end, str(came)[-500:])
            time.sleep(0.01)
        number = next(int(row["name"][1:]) for row in self.fleet.rows() if row["requests"] > asked[row["name"]])
        return came, thread, number

    def test_whole_streamed_and_over_a_socket(self):
        status, text = ask(self.port, "POST", "/v1/responses", self.body())
        self.assertEqual(status, 200, text)
        self.check(json.loads(text))
        streamed = [json.loads(data) for data in events(self.port, "/v1/responses", self.body(stream=True))]
        self.check(streamed[-1]["response"])
        self.assertIn("response.code_interpreter_call.completed", [event["type"] for event in streamed])
        self.assertEqual([event["sequence_number"] for event in streamed], list(range(len(streamed))))
        link = Socket(self.port)
        heard = link.response(input="compute", tools=TOOLS)
        link.close()
        self.check(heard[-1]["response"])
        self.assertEqual(self.tools.calls, 3)

    def test_a_worker_that_dies_amid_a_call_ends_its_response(self):
        came, thread, number = self.beside(lambda: events(self.port, "/v1/responses", self.body(stream=True)))
        self.fleet.kill(number)
        thread.join(30)
        last = json.loads(came[0][-1])
        self.assertEqual((last["type"], last["code"]), ("error", "stream_interrupted"), last)
        self.assertEqual(self.tools.calls, 1)
        self.fleet.start(number)
        self.fleet.wait_for(2)
        came, thread, number = self.beside(lambda: ask(self.port, "POST", "/v1/responses", self.body()))
        self.fleet.kill(number)
        thread.join(30)
        status, text = came[0]
        self.assertEqual((status, json.loads(text)["error"]["code"]), (502, "worker_failed"), text)
        self.assertEqual(self.tools.calls, 2)

    def test_a_worker_that_is_stopped_ends_it_itself(self):
        came, thread, number = self.beside(lambda: events(self.port, "/v1/responses", self.body(stream=True)))
        self.fleet.workers[number].process.send_signal(signal.SIGTERM)
        end = time.monotonic() + 20
        while self.fleet.ready() == 2:
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)
        time.sleep(0.5)  # a gateway looks for another one every 50 ms
        self.tools.may_answer.set()
        thread.join(30)
        last = json.loads(came[0][-1])
        self.assertEqual(last["type"], "response.completed", (last, list(self.fleet.gateway.log)[-5:]))
        self.check(last["response"])
        self.assertEqual(self.tools.calls, 1)


if __name__ == "__main__":
    gateway_fixture.BINARY = os.path.abspath(sys.argv[1])
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
