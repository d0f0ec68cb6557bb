#!/usr/bin/env python3
"""Words of requests and answers, and keys, stay in the server's memory: TN-10 and TN-11 of the hostile traffic.

A real server writes all it ever writes (log, access log, traces, step log, response store), is asked on every
endpoint with words found nowhere else, for better and for worse, and is then aborted in the middle of an answer.
None of these words may stand in anything it has left, but for what the response store was asked to keep.

usage: privacy_test.py BINARY
"""
import asyncio
import base64
import getpass
import http.client
import http.server
import json
import os
import pathlib
import re
import resource
import secrets
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools" / "chaos"))
import wire  # noqa: E402: frames of HTTP/2 by hand
BINARY = None
# A GPU's driver is a library that is looked for when it is asked for.
# And `pelton gateway --with-autoscaler` starts replicas of this very program (launch/), `--tensor-parallel-size` ranks of it (parallel/),
# an autoscaler with batch jobs sbatch, squeue and scancel. `--tool-server NAME=stdio:PROGRAM` starts what the operator has named (mcp/).
ALLOWED_IMPORTS = {"dlopen", "fork", "execv", "execve", "posix_spawn", "posix_spawnp"} | {
    f"posix_spawn{what}" for what in ("attr_init", "attr_destroy", "attr_setflags", "attr_setpgroup", "attr_setsigdefault", "attr_setsigmask", "_file_actions_init",
                                      "_file_actions_destroy", "_file_actions_adddup2", "_file_actions_addclosefrom_np", "_file_actions_addopen")}
# The only object files that may start a program. The sandbox is of `pelton eval --run-code`; no server has one. The
# sound reader starts this very program, confined, and that one ffmpeg, where sound is of a foreign kind.
STARTING = {"local_launcher.cc.o", "child_program.cc.o", "group.cc.o", "sandbox.cc.o", "processes.cc.o",
            "sound_reader.cc.o", "sound_child.cc.o"}


class Collector(http.server.BaseHTTPRequestHandler):
    bodies = []

    def do_POST(self):
        Collector.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


class Canaries:
    """Words found nowhere else, and what each was used for."""

    def __init__(self):
        self.used = {}

    def __call__(self, where):
        word = "kanari" + secrets.token_hex(12)
        self.used[word] = where
        return word

    def found_in(self, data):
        text = bytes(data)
        hits = []
        for word, where in self.used.items():
            forms = [word.encode(), word.encode("utf-16-le"), word.upper().encode()]
            # As base64 it may begin at any of three offsets.
            forms += [base64.b64encode(b"x" * pad + word.encode())[4:-4] for pad in range(3)]
            if any(form in text for form in forms):
                hits.append(f"{where}: {word}")
        return hits


def flags_known():
    return subprocess.run([BINARY, "serve", "--help"], capture_output=True, check=True).stdout.decode()


class Privacy(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.inputs = self.folder / "inputs"  # ours, not looked at afterwards
        self.left = self.folder / "left"      # all that the server may write to
        for path in (self.inputs, self.left, self.left / "home", self.left / "state"):
            path.mkdir()
        self.canary = Canaries()
        self.key, self.other_key = self.canary("key"), self.canary("other key")
        self.answer = self.canary("answer")
        self.reasoning = self.canary("reasoning")
        final = f"<|channel|>analysis<|message|>{self.reasoning}<|end|><|start|>assistant<|channel|>final<|message|>"
        (self.inputs / "script.json").write_text(json.dumps({"step_ms": 1, "rules": [
            {"when": "", "then": final + self.answer + "<|return|>"},
            {"when": "endless", "then": [final, {"text": self.answer + " ", "times": 500}]},
            {"when": "call a tool", "then": "<|channel|>commentary to=functions.look <|constrain|>json<|message|>"
                                            f"{{\"at\":\"{self.answer}\"}}<|call|>"}]}))
        (self.inputs / "keys").write_text(f"{self.key} wheel 1 rpm=100000\n{self.other_key} jet 1 rpm=1\n")
        subprocess.run([BINARY, "synth", "--like", str(ROOT / "testdata/demo_model.json"), str(self.inputs / "model")],
                       check=True, capture_output=True)
        self.collector = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
        threading.Thread(target=self.collector.serve_forever, daemon=True).start()
        self.addCleanup(self.collector.server_close)
        self.addCleanup(self.collector.shutdown)
        self.seen = []  # what the operator's pages said
        self.statuses = []
        self.errors = []  # as clients read them

    def serve(self, *more):
        known = flags_known()
        loud = [flag for name, flags in (("--log-level", ["--log-level", "debug"]),
                                         ("--log-json", ["--log-json"])) if name in known for flag in flags]
        home = str(self.left / "home")
        # All that the system would allow: the server forbids itself core dumps.
        cores = resource.getrlimit(resource.RLIMIT_CORE)[1] if "--allow-core-dumps" in known else 0
        with open(self.left / "stdout", "wb") as out, open(self.left / "stderr", "wb") as err:
            self.server = subprocess.Popen(
                [BINARY, "serve", str(self.inputs / "model"), "--port", "0", "--admin-port", "0", "--grpc-port",
                 "0", "--executor", f"modelled:{self.inputs}/script.json", "--api-key-file", str(self.inputs / "keys"),
                 "--response-store", f"sqlite:{self.left}/state/responses.db", "--access-log", "json",
                 "--access-log-file", str(self.left / "access.log"), "--otlp-endpoint",
                 f"http://127.0.0.1:{self.collector.server_address[1]}", "--max-num-queued-reqs", "64", *loud, *more],
                stdout=out, stderr=err, cwd=self.left,
                env={"PATH": os.environ["PATH"], "HOME": home, "XDG_CACHE_HOME": home, "TMPDIR": home},
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (cores, cores)))

        def end():
            self.server.kill()
            self.server.wait()
        self.addCleanup(end)
        for _ in range(600):
            lines = (self.left / "stdout").read_text().splitlines()
            if len(lines) >= 3 or self.server.poll() is not None:
                break
            time.sleep(0.05)
        self.assertGreaterEqual(len(lines), 3, (self.left / "stderr").read_text())
        self.port, self.admin, self.grpc = (int(line.rsplit(":", 1)[1]) for line in lines[:3])

    def ask(self, method, path, body=None, key=None, headers=()):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        sent = {"Authorization": "Bearer " + (key or self.key), "Content-Type": "application/json", **dict(headers)}
        connection.request(method, path, json.dumps(body) if isinstance(body, (dict, list)) else body, sent)
        response = connection.getresponse()
        text = response.read()
        connection.close()
        self.statuses.append(response.status)
        if response.status >= 400:
            self.errors.append(text.decode("utf-8", "replace"))
        return response.status, text

    def words(self, where, extra=""):
        """A chat request with a word of its own in everything that takes words."""
        c = lambda part: self.canary(f"{part} of {where}")
        return {"messages": [{"role": "system", "content": c("system")}, {"role": "developer", "content": c("developer")},
                             {"role": "user", "content": f"{extra} {c('user')}", "name": c("name")[:24]},
                             {"role": "assistant", "content": c("past answer"), "reasoning_content": c("past thought")},
                             {"role": "user", "content": f"{extra} {c('question')}"}],
                "tools": [{"type": "function", "function": {"name": "look", "description": c("tool"), "parameters": {
                    "type": "object", "properties": {c("property"): {"type": "string"}}}}}],
                "user": c("user field"), "cache_salt": c("salt"), "stop": [c("stop")],
                "metadata": {"tag": c("metadata")}}

    def abandon(self, path, body):
        """Leaves amid a stream."""
        text = json.dumps({**body, "stream": True}).encode()
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as client:
            client.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self.key}\r\n"
                           f"Content-Length: {len(text)}\r\n\r\n".encode() + text)
            client.recv(2000)

    def over_websocket(self):
        body = {"type": "response.create", "input": self.canary("websocket input"), "store": False,
                "instructions": self.canary("websocket instructions")}
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as client:
            client.sendall(f"GET /v1/responses HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self.key}\r\n"
                           "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                           "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode())
            self.assertIn(b" 101 ", client.recv(4000))
            for message in (json.dumps(body), "{" + self.canary("broken websocket message")):
                data = message.encode()
                size = bytes([0x80 | len(data)]) if len(data) < 126 else struct.pack("!BH", 0x80 | 126, len(data))
                client.sendall(b"\x81" + size + b"\0\0\0\0" + data)
                got = b""
                while b"response.completed" not in got and b'"error"' not in got:
                    piece = client.recv(65536)
                    self.assertTrue(piece, got)
                    got += piece

    def call(self, method, message, key=None, leave_after=None):
        """Over gRPC: its status, and what it was answered; or None, where we leave after some messages."""
        async def made():
            link = await wire.Connection.open(self.grpc)
            call, answer = wire.GrpcCall(link), b""
            await call.start(method, message, metadata=[
                ("authorization", "Bearer " + (key or self.key)), ("x-request-id", "grpc-1"),
                ("x-custom", self.canary("metadata over gRPC"))])
            count = 0
            async for one in call.messages():
                answer += one
                count += 1
                if count == leave_after:
                    link.close(reset=True)
                    return None, answer
            link.close()
            if call.status != 0:
                self.errors.append(call.message)
            return call.status, answer
        return asyncio.run(asyncio.wait_for(made(), 60))

    def chat_over_grpc(self, where, extra=""):
        """A GenerateRequest with a word of its own in everything that takes words."""
        field, c = wire.field, lambda part: self.canary(f"{part} of {where} over gRPC")
        messages = [field(1, role) + field(2, f"{extra} {c(role)}") + more for role, more in (
            ("system", b""), ("user", field(3, c("name")[:24])), ("assistant", field(4, c("past thought"))),
            ("user", b""))]
        tool = field(1, "look") + field(2, c("tool")) + field(3, json.dumps({
            "type": "object", "properties": {c("property"): {"type": "string"}}}))
        chat = b"".join(field(1, one) for one in messages) + field(2, tool)
        return (field(4, chat) + field(5, field(10, 2000) + field(12, c("stop"))) + field(7, c("user field")) +
                field(8, c("salt")))

    def over_grpc(self):
        field, c = wire.field, self.canary
        status, answer = self.call("Generate", self.chat_over_grpc("chat"))
        self.assertEqual(status, 0)
        self.assertIn(self.answer[:3].encode(), answer)
        self.assertEqual(self.call("Generate", self.chat_over_grpc("a tool", "call a tool"))[0], 0)
        self.assertEqual(self.call("Generate", field(2, c("text over gRPC")) + field(5, field(10, 40)))[0], 0)
        schema = json.dumps({"type": "object", "properties": {c("schema over gRPC"): {"const": c("const over gRPC")}}})
        self.call("Generate", self.chat_over_grpc("schema") + field(9, field(1, "json_schema") + field(2, "s") +
                                                                     field(4, schema)))
        self.assertEqual(self.call("Tokenize", field(2, c("tokenize over gRPC")))[0], 0)
        self.assertEqual(self.call("Embed", field(2, field(1, c("embedded over gRPC"))) + field(6, c("user")) +
                                   field(7, c("salt")))[0], 0)

    def over_grpc_for_the_worse(self):
        field, c = wire.field, self.canary
        invalid, unauthenticated, not_found = 3, 16, 5
        for where, message, status in (
                ("model", field(1, c("no model over gRPC")) + field(2, "x"), not_found),
                ("role", field(4, field(1, field(1, c("no role over gRPC")) + field(2, c("content")))), invalid),
                ("regex", field(2, "x") + field(10, field(2, "(" + c("bad regex over gRPC"))), invalid),
                ("schema", field(2, "x") + field(10, field(1, "{" + c("bad schema over gRPC"))), invalid),
                ("bytes", b"\x12\x7f" + c("broken message").encode(), invalid)):
            self.assertEqual(self.call("Generate", message)[0], status, where)
        for method in ("Generate", "Tokenize", "Embed"):
            text = field(2, c("stranger over gRPC"))
            message = field(2, field(1, c("stranger over gRPC"))) if method == "Embed" else text
            self.assertEqual(self.call(method, message, key=c("wrong key over gRPC"))[0], unauthenticated)
        self.assertEqual(self.call("Generate", self.chat_over_grpc("abandoned", "endless"), leave_after=3)[0], None)

    def ask_for_the_better(self):
        for stream in (False, True):
            status, text = self.ask("POST", "/v1/chat/completions", {**self.words("chat"), "stream": stream})
            self.assertEqual(status, 200, text)
            self.assertIn(self.answer.encode() if not stream else self.answer[:3].encode(), text)
            schema = {"type": "object", "properties": {self.canary("schema"): {"const": self.canary("const")}}}
            self.ask("POST", "/v1/chat/completions", {
                **self.words("schema"), "stream": stream, "max_tokens": 20,
                "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}})
            self.assertEqual(self.ask("POST", "/v1/completions", {
                "prompt": self.canary("completion"), "stream": stream, "max_tokens": 40})[0], 200)
            # The script says what this does not allow: the engine fails.
            self.ask("POST", "/v1/completions", {
                "prompt": self.canary("failing"), "stream": stream, "max_tokens": 40,
                "structured_outputs": {"regex": self.canary("regex") + "a*"}})
            self.assertEqual(self.ask("POST", "/v1/messages", {
                "model": "model", "max_tokens": 100, "stream": stream, "system": self.canary("anthropic system"),
                "messages": [{"role": "user", "content": self.canary("anthropic")}]})[0], 200)
            self.assertEqual(self.ask("POST", "/v1/responses", {
                "input": self.canary("unstored input"), "instructions": self.canary("unstored instructions"),
                "stream": stream, "store": False})[0], 200)
        self.ask("POST", "/v1/chat/completions", self.words("tool call", "call a tool"))
        for path, fields in (("/v1/embeddings", ("input",)), ("/v1/rerank", ("query", "documents")),
                             ("/v1/score", ("text_1", "text_2"))):
            self.assertEqual(self.ask("POST", path, {field: self.canary(path) for field in fields})[0], 200)
        self.assertEqual(self.ask("POST", "/tokenize", {"prompt": self.canary("tokenize")})[0], 200)
        self.assertEqual(self.ask("POST", "/v2/embed", {"texts": [self.canary("embed")]})[0], 200)
        # Stop strings are refused where only tokens are rendered.
        rendered = self.words("render")
        self.assertEqual(self.ask("POST", "/v1/chat/completions/render", rendered)[0], 400)
        del rendered["stop"]
        self.assertEqual(self.ask("POST", "/v1/chat/completions/render", rendered)[0], 200)
        self.assertEqual(self.ask("POST", "/v1/chat/completions/input_tokens", self.words("count"))[0], 200)
        self.assertEqual(self.ask("POST", "/v1/completions/render", {"prompt": self.canary("render")})[0], 200)
        self.assertEqual(self.ask("POST", "/v1/messages/count_tokens", {
            "messages": [{"role": "user", "content": self.canary("count")}]})[0], 200)
        self.assertEqual(self.ask("POST", "/v1/responses/input_tokens", {"input": self.canary("count")})[0], 200)
        self.assertEqual(self.ask("POST", "/invocations", {"prompt": self.canary("invocation"), "max_tokens": 2})[0], 200)
        self.over_websocket()
        self.over_grpc()

    def ask_for_the_worse(self):
        chat = "/v1/chat/completions"
        for where, change in (("role", {"messages": [{"role": self.canary("role"), "content": "x"}]}),
                              ("model", {"model": self.canary("model")}),
                              ("type", {"temperature": self.canary("temperature")}),
                              ("schema", {"response_format": {"type": "json_schema", "json_schema": {
                                  "name": "s", "schema": {"type": self.canary("schema type")}}}}),
                              ("regex", {"structured_outputs": {"regex": "(" + self.canary("bad regex")}}),
                              ("grammar", {"structured_outputs": {"grammar": "root ::= " + self.canary("bad grammar")}}),
                              ("tool choice", {"tool_choice": {"type": "function",
                                                               "function": {"name": self.canary("no tool")}}})):
            self.assertIn(self.ask("POST", chat, {**self.words(where), **change})[0], (400, 404), where)
        for path in (chat, "/v1/completions", "/v1/messages", "/v1/responses", "/v1/embeddings", "/tokenize"):
            self.assertEqual(self.ask("POST", path, '{"a": "' + self.canary("broken body"))[0], 400)
            self.assertEqual(self.ask("POST", path, self.words("stranger"), key=self.canary("wrong key"))[0], 401)
        self.assertEqual(self.ask("GET", f"/v1/models?api_key={self.canary('key in a query')}")[0], 200)
        self.assertEqual(self.ask("POST", chat, self.words("long", "x " * 400_000))[0], 400)
        self.assertEqual(self.ask("POST", chat, {**self.words("deadline", "endless"), "timeout": 0.05})[0], 408)
        self.assertIn(429, [self.ask("POST", chat, self.words("limited"), key=self.other_key)[0] for _ in range(3)])
        for path in (chat, "/v1/completions", "/v1/messages", "/v1/responses"):
            self.abandon(path, {**self.words("abandoned", "endless"), "prompt": "endless " + self.canary("left"),
                                "input": "endless " + self.canary("left"), "max_tokens": 2000, "store": False})
        self.over_grpc_for_the_worse()
        self.ask("POST", chat, b"\x16\x03" + self.canary("bytes").encode())
        self.ask("POST", chat, b"x", headers=[("Content-Encoding", "gzip"), ("X-Custom", self.canary("a header"))])

    def look(self, where, data):
        self.assertEqual(self.canary.found_in(data), [], where)

    def look_at_what_is_told(self):
        for path in ("/metrics", "/health", "/debug/ledger", "/ready"):
            connection = http.client.HTTPConnection("127.0.0.1", self.admin, timeout=60)
            connection.request("GET", path)
            self.look(path, connection.getresponse().read())
            connection.close()
        for path in ("/metrics", "/server_info", "/version", "/v1/models"):
            status, text = self.ask("GET", path)
            self.assertEqual(status, 200)
            self.look(path, text)
        self.look("the command line", pathlib.Path(f"/proc/{self.server.pid}/cmdline").read_bytes())
        for task in pathlib.Path(f"/proc/{self.server.pid}/task").iterdir():
            self.look("a thread's name", (task / "comm").read_bytes())

    def look_at_what_is_left(self, *, stored=()):
        files = [path for path in self.left.rglob("*") if path.is_file()]
        for path in files:
            if path.name not in stored:
                self.look(path.name, path.read_bytes())
        self.look("traces", b"".join(Collector.bodies))
        return {path.name for path in files}

    def test_TN_01_nothing_but_loopback_and_no_other_programs(self):
        self.serve()
        own = {os.readlink(link) for link in pathlib.Path(f"/proc/{self.server.pid}/fd").iterdir() if link.is_symlink()}
        listening = []
        for table, here in (("tcp", "0100007F"), ("tcp6", "0000000000000000FFFF00000100007F")):
            for line in pathlib.Path(f"/proc/{self.server.pid}/net/{table}").read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == "0A" and f"socket:[{words[9]}]" in own:  # listens, and is ours
                    listening.append(words[1].split(":")[0] == here)
        self.assertEqual(listening, [True] * 3, "three listeners, all on 127.0.0.1")
        if shutil.which("nm"):
            imports = subprocess.run(["nm", "-D", "--undefined-only", BINARY], capture_output=True, check=True).stdout
            names = {line.split()[-1].split("@")[0] for line in imports.decode().splitlines()}
            self.assertIn("socket", names, "this test would find it")
            runs = {name for name in names if re.match(r"(system|popen|exec|posix_spawn|v?fork|dlm?open)", name)}
            self.assertLessEqual(runs, ALLOWED_IMPORTS)
            self.only_the_launcher_starts_programs()
        children = pathlib.Path(f"/proc/{self.server.pid}/task/{self.server.pid}/children")
        if children.exists():
            self.assertEqual(children.read_text().split(), [], "a server starts nothing")

    def only_the_launcher_starts_programs(self):
        archives = sorted(pathlib.Path(BINARY).parent.glob("src/*/*.a"))
        if not archives:
            return  # an installed program
        starting = set()
        for archive in archives:
            found = subprocess.run(["nm", "-A", "--undefined-only", archive], capture_output=True, check=True).stdout
            for line in found.decode().splitlines():
                if re.fullmatch(r"(system|popen|exec\w+|posix_spawnp?|v?fork)", line.split()[-1]):
                    starting.add(line.split(":")[1])
        self.assertEqual(starting, STARTING)

    def test_TN_10_TN_11_no_word_of_anybody_is_left(self):
        self.serve()
        self.ask_for_the_better()
        self.ask_for_the_worse()
        self.look_at_what_is_told()
        self.assertTrue({200, 400, 401, 404, 408, 429, 500} <= set(self.statuses), set(self.statuses))
        # What runs when it is aborted.
        threading.Thread(target=lambda: self.abandon("/v1/chat/completions", self.words("aborted", "endless")),
                         daemon=True).start()
        time.sleep(0.5)
        self.server.send_signal(signal.SIGABRT)
        self.assertEqual(self.server.wait(60), -signal.SIGABRT)
        left = self.look_at_what_is_left()
        self.assertTrue({"access.log", "stderr", "responses.db"} <= left, left)
        self.assertGreater((self.left / "access.log").stat().st_size, 5000)
        self.assertGreater(len(Collector.bodies), 0, "no trace came")
        self.assertFalse([name for name in left if name.startswith("core")], "a core dump")

    def test_a_key_among_the_arguments_is_not_seen_by_ps(self):
        for form in (lambda key: ["--api-key", key], lambda key: ["--api-key=" + key],
                     lambda key: ["--admin-api-key", key], lambda key: ["--admin-api-key=" + key]):
            key = self.canary("flag")
            server = subprocess.Popen([BINARY, "serve", str(self.inputs / "model"), "--port", "0", "--executor",
                                       f"modelled:{self.inputs}/script.json", *form(key)], stdout=subprocess.PIPE,
                                      stderr=subprocess.DEVNULL, cwd=self.left)
            try:
                self.port = int(server.stdout.readline().decode().rsplit(":", 1)[1])
                self.look("the command line", pathlib.Path(f"/proc/{server.pid}/cmdline").read_bytes())
                self.assertEqual(self.ask("GET", "/v1/models", key=key)[0], 200)
                self.assertEqual(self.ask("GET", "/v1/models", key="x" * len(key))[0], 401)
            finally:
                server.kill()
                server.wait()
                server.stdout.close()

    def test_TN_12_errors_tell_nothing_of_the_machine(self):
        self.serve()
        self.ask_for_the_worse()
        self.assertGreater(len(self.errors), 20)
        secret = [r"0x[0-9a-fA-F]{5,}", r"/(home|root|tmp|usr|etc|proc|work|var)/", re.escape(str(self.folder)),
                  r"\.(cc|h|cpp):\d+", r"std::", r"pelton::", r"terminate called", r"backtrace", r"\berrno\b",
                  re.escape(getpass.getuser()) + "@"]
        for error in self.errors:
            for pattern in secret:
                self.assertNotRegex(error, pattern)

    def test_TN_13_labels_are_a_fixed_set(self):
        self.serve()

        def series():
            connection = http.client.HTTPConnection("127.0.0.1", self.admin, timeout=60)
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
            connection.close()
            return {line.rsplit(" ", 1)[0] for line in text.splitlines() if line and line[0] != "#"}

        def wander(number):
            self.ask("GET", f"/nowhere/{number}")
            self.ask("GET", f"/v1/models/m{number}")
            self.ask("GET", f"/v1/responses/resp_{number}")
            self.ask("POST", "/v1/completions", {"prompt": "x", "max_tokens": 1, "model": f"m{number}"})
            self.ask("POST", "/v1/completions", {"prompt": "x", "max_tokens": 1, "user": f"u{number}",
                                                 "cache_salt": f"s{number}", "request_id": f"r{number}"})
            self.ask(f"METHOD{number}", "/v1/models")
            self.ask("GET", "/health", headers=[("x-request-id", f"id{number}"), ("Host", f"host{number}")])
        wander(0)
        before = series()
        for number in range(1, 20):
            wander(number)
        self.assertEqual(series() - before, set())

    def test_what_is_stored_stands_in_the_store_alone_until_it_is_deleted(self):
        self.serve()
        body = {"input": self.canary("stored input"), "instructions": self.canary("stored instructions")}
        status, text = self.ask("POST", "/v1/responses", body)
        self.assertEqual(status, 200)
        name = json.loads(text)["id"]
        self.look_at_what_is_left(stored=("responses.db", "responses.db-wal"))
        stored = b"".join(path.read_bytes() for path in (self.left / "state").iterdir())
        self.assertIn(body["input"].encode(), stored, "this test would find it")
        self.assertEqual(self.ask("DELETE", "/v1/responses/" + name)[0], 200)
        self.look_at_what_is_left()

    def upload(self, content):
        form = (f'--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--b\r\nContent-Disposition: form-data; '
                f'name="file"; filename="{self.canary("file name")}"\r\n\r\n{content}\r\n--b--\r\n')
        status, text = self.ask("POST", "/v1/files", form, headers=[("Content-Type", "multipart/form-data; boundary=b")])
        self.assertEqual(status, 200, text)
        return json.loads(text)["id"]

    def pelton(self, *words):
        return subprocess.run([BINARY, *map(str, words)], capture_output=True, text=True, timeout=60, check=False)

    def test_what_is_stored_encrypted_stands_nowhere_and_goes_with_its_key(self):
        secret, other = self.inputs / "store.key", self.inputs / "other.key"
        secret.write_text("5" * 64 + "\n")
        other.write_text("6" * 64 + "\n")
        store = self.left / "state/responses.db"
        encrypted = ("--batches", str(self.left / "batches"), "--store-key-file")
        self.serve(*encrypted, str(secret))
        status, text = self.ask("POST", "/v1/responses", {"input": self.canary("stored input")})
        self.assertEqual(status, 200)
        name = "/v1/responses/" + json.loads(text)["id"]
        line = json.dumps({"custom_id": "1", "method": "POST", "url": "/v1/responses",
                           "body": {"model": "model", "input": self.canary("uploaded")}})
        file = "/v1/files/" + self.upload(line)
        self.assertEqual(self.ask("POST", "/v1/responses", {"input": self.canary("the other's")}, key=self.other_key)[0], 200)
        self.server.kill()  # amid whatever it was at
        self.server.wait()
        left = self.look_at_what_is_left()
        self.assertTrue({"responses.db", "responses.db.keys", "batches.keys", file.rsplit("/", 1)[1]} <= left, left)
        keys = pathlib.Path(f"{store}.keys")
        kept = keys.read_bytes()
        for flags in ((), ("--store-key-file", other), ("--store-key-file", self.inputs / "none")):
            refused = self.pelton("serve", self.inputs / "model", "--port", "0", "--executor", f"modelled:{self.inputs}/script.json",
                                  "--response-store", f"sqlite:{store}", *flags)
            self.assertEqual(refused.returncode, 3, refused.stderr)
            self.assertIn("store-key-file" if flags[-1:] != (self.inputs / "none",) else "none", refused.stderr)
        self.assertEqual(keys.read_bytes(), kept)
        self.serve(*encrypted, str(secret))
        self.assertEqual(self.ask("GET", name)[0], 200)
        self.assertEqual(self.ask("GET", file + "/content"), (200, line.encode()))
        self.assertEqual(self.ask("GET", name, key=self.other_key)[0], 404)
        self.assertEqual(self.ask("DELETE", name)[0], 200)
        self.server.terminate()
        self.server.wait(60)
        self.assertEqual(self.pelton("store", "ls", store).stdout, "jet: 1 entries, encrypted with a key of its own\n")
        self.assertEqual(self.pelton("store", "erase", store, "--tenant", "jet").stdout, "1 entries erased\n")
        self.assertEqual(self.pelton("store", "erase", self.left / "batches", "--tenant", "wheel").stdout, "1 entries erased\n")
        self.assertEqual(self.pelton("store", "ls", store).stdout + self.pelton("store", "ls", self.left / "batches").stdout, "")
        self.assertFalse(list((self.left / "batches/files").iterdir()))
        self.look_at_what_is_left()


if __name__ == "__main__":
    BINARY = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
