"""What tests of the gateway have in common: workers and a gateway as processes, clients of every kind, and what their answers must
be. Each answer is a function of (prompt, seed, position), so that a test knows every letter of it.
"""
import base64
import collections
import http.client
import http.server
import json
import os
import pathlib
import re
import signal
import socket
import struct
import subprocess
import threading
import time

from ports import free_port

BINARY = None
BOX = pathlib.Path(__file__).resolve().parent.parent / "models" / "pelton-box"
MASK = (1 << 64) - 1
SCRIPT = {"abort_on": "poison", "step_ms": 4, "context": 2048, "slots": 128, "rules": [
    {"when": "", "then": "<|channel|>final<|message|>Ready."},
    {"when": "check ", "then": ["<|channel|>final<|message|>", {"checked": 1}]},
    {"when": "think ", "then": ["<|channel|>analysis<|message|>", {"checked": 1}, "<|end|><|start|>assistant<|channel|>final<|message|>",
                                {"checked": 2}]},
    {"when": "json ", "then": ["<|channel|>final<|message|>{\"a\":\"", {"checked": 1}, "\"}"]},
    {"when": "call ", "then": ["<|channel|>commentary to=functions.note <|constrain|>json<|message|>{\"text\": \"", {"checked": 1},
                               "\"}<|call|>"]},
]}


def mix64(x):
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 & MASK
    x ^= x >> 27
    x = x * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def random_bits(seed, counter):
    return mix64(mix64(seed & MASK) + (counter + 1) * 0x9E3779B97F4A7C15 & MASK)


def letters(seed, number, count):
    stream = random_bits(seed, number)
    return "".join(chr(ord("a") + random_bits(stream, i) % 26) for i in range(count))


class Process:
    """A server of the binary's, whose log is kept."""

    def __init__(self, *words, env=None):
        self.process = subprocess.Popen([BINARY, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        env={**os.environ, **(env or {})})
        self.log = collections.deque(maxlen=2000)
        self.reader = threading.Thread(target=lambda: self.log.extend(self.process.stderr), daemon=True)
        self.reader.start()
        line = self.process.stdout.readline()
        assert line.startswith("listening on "), (words, list(self.log), line)
        self.port = int(line.rsplit(":", 1)[1])

    def fleet_line(self):
        """Where it listens for gateways, as it prints it."""
        for line in self.process.stdout:
            if line.startswith("fleet on "):
                return line.strip()
        raise AssertionError(list(self.log))

    def end(self, how=signal.SIGKILL):
        self.process.send_signal(how)
        self.process.wait(30)
        self.reader.join()
        self.process.stdout.close()
        self.process.stderr.close()


class Fleet:
    """Workers at fixed fleet ports, which may be killed and started again, and one gateway."""
    gateway_env = None

    def __init__(self, folder, workers, script=None, gateway=(), serve=(), pool="", record=()):
        self.folder = pathlib.Path(folder)
        self.script = self.folder / "script.json"
        self.script.write_text(json.dumps(script or SCRIPT))
        self.key = self.folder / "fleet.key"
        self.flags = serve
        if not self.key.exists():
            subprocess.run([BINARY, "gateway", "--new-key", self.key], check=True)
        self.launch(workers)
        self.admin = free_port()
        self.head = "".join([f'[gateway]\nlisten = "127.0.0.1:0"\nadmin = "127.0.0.1:{self.admin}"\n'
                             f'fleet_key_file = "{self.key}"\n', *gateway, '[[pool]]\nname = "box"\nmodel = "pelton-box"\n', pool])
        self.config = self.folder / "gateway.toml"
        self.configure(self.ports)
        self.gateway = Process("gateway", "--config", self.config, *record, env=self.gateway_env)
        self.wait_for(workers)

    def launch(self, workers):
        self.ports = [free_port() for _ in range(workers)]
        self.workers = [None] * workers
        starts = [threading.Thread(target=self.start, args=(i,)) for i in range(workers)]
        for one in starts:
            one.start()
        for one in starts:
            one.join()

    def start(self, i):
        flags = [str(flag).replace("{i}", str(i)) for flag in self.flags or ("--executor", f"modelled:{self.script}")]
        self.workers[i] = Process("serve", BOX, *flags, "--port", "0", "--fleet-port", self.ports[i], "--fleet-name", f"w{i}",
                                  "--fleet-key-file", self.key)

    def configure(self, ports, more=""):
        """The file with workers at these ports, replaced at once."""
        workers = [f'[[worker]]\npool = "box"\nurl = "http://127.0.0.1:{port}"\n' for port in ports]
        fresh = self.folder / "gateway.new"
        fresh.write_text(self.head + "".join(workers) + more)
        fresh.rename(self.config)

    def kill(self, i):
        worker, self.workers[i] = self.workers[i], None
        worker.end()

    def close(self):
        self.gateway.end()
        for worker in self.workers:
            if worker is not None:
                worker.end()

    def rows(self):
        return json.loads(ask(self.admin, "GET", "/v1/workers")[1])["workers"]

    def ready(self):
        return sum(row["state"] == "ready" for row in self.rows())

    def wait_for(self, count):
        end = time.monotonic() + 15
        while self.ready() != count:
            assert time.monotonic() < end, (self.rows(), list(self.gateway.log)[-20:])
            time.sleep(0.02)

    def metric(self, name, **labels):
        """The sum of those that have these labels."""
        text = ask(self.admin, "GET", "/metrics")[1]
        assert re.search(rf"^# TYPE pelton_gateway_{name.removesuffix('_count')} ", text, re.M), name
        samples = re.findall(rf"^pelton_gateway_{name}(?:{{(.*)}})? (\S+)$", text, re.M)
        return int(sum(float(value) for have, value in samples if all(f'{key}="{one}"' in have for key, one in labels.items())))

    def begun(self):
        """Requests of clients so far."""
        return self.metric("requests_open") + self.metric("requests_total")


class Replicas(Fleet):
    """Workers of scripted answers in one process, of whom faults can be asked, and one gateway."""

    def launch(self, workers):
        process = Process("serve", BOX, "--executor", f"modelled:{self.script}", "--replicas", workers, "--port", "0", "--admin-port", "0",
                          "--fleet-port", "0", "--fleet-name", "w", "--fleet-key-file", self.key, *self.flags)
        self.workers = [process]
        self.ports, self.admins = [], []
        while len(self.ports) < workers:
            line = process.process.stdout.readline()
            assert line, list(process.log)
            port = int(line.rsplit(":", 1)[1])
            if line.startswith("admin on "):
                self.admins.append(port)
            if line.startswith("fleet on "):
                self.ports.append(port)

    def fault(self, i, **faults):
        status, text = ask(self.admins[i], "POST", "/admin/faults", {"hang": False, **faults})
        assert status == 200, text

    def row(self, i):
        return next(row for row in self.rows() if row["name"] == f"w-{i}")


def ask(port, method, path, body=None, **headers):
    """Status and text."""
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        link.request(method, path, body and json.dumps(body), {"Content-Type": "application/json", **headers})
        answer = link.getresponse()
        return answer.status, answer.read().decode()
    finally:
        link.close()


def figure(port, name, **labels):
    """Of a server's own metrics, the sum of those that have these labels."""
    found = re.findall(r"^%s(?:\{(.*)\})? (\S+)$" % re.escape(name), ask(port, "GET", "/metrics")[1], re.M)
    return sum(float(value) for text, value in found if all(f'{label}="{wanted}"' in text for label, wanted in labels.items()))


def events(port, path, body):
    """The data of each server-sent event; what is no whole stream raises."""
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        link.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = link.getresponse()
        if answer.status != 200:
            raise AssertionError(f"status {answer.status}: {answer.read().decode()}")
        data = []
        for line in answer:
            if line.startswith(b"data: "):
                data.append(line[6:].strip().decode())
        return data
    finally:
        link.close()


class Socket:
    """A WebSocket client of few words."""

    def __init__(self, port, path="/v1/responses", **headers):
        self.link = socket.create_connection(("127.0.0.1", port), timeout=60)
        lines = [f"GET {path} HTTP/1.1", "Host: 127.0.0.1", "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13",
                 "Sec-WebSocket-Key: " + base64.b64encode(os.urandom(16)).decode(), *[f"{name}: {value}" for name, value in headers.items()]]
        self.link.sendall("\r\n".join(lines).encode() + b"\r\n\r\n")
        self.file = self.link.makefile("rb")
        self.status = int(self.file.readline().split()[1])
        while self.file.readline() not in (b"\r\n", b""):
            pass

    def say(self, value):
        data, mask = json.dumps(value).encode(), os.urandom(4)
        size = struct.pack(">B", 0x80 | len(data)) if len(data) < 126 else struct.pack(">BH", 0x80 | 126, len(data))
        self.link.sendall(b"\x81" + size + mask + bytes(byte ^ mask[i % 4] for i, byte in enumerate(data)))

    def hear(self, on_ping=lambda: None):
        """The next message; a number: it has been closed with it. Pings are answered."""
        first, size = self.file.read(2)
        if size >= 126:
            size = int.from_bytes(self.file.read(2 if size == 126 else 8), "big")
        data = self.file.read(size)
        if first & 15 == 8:
            return int.from_bytes(data[:2], "big")
        if first & 15 == 9:
            self.link.sendall(b"\x8a" + struct.pack(">B", 0x80 | len(data)) + bytes(4) + data)
            on_ping()
        return json.loads(data) if first & 15 == 1 else self.hear(on_ping)

    def response(self, on_ping=lambda: None, **body):
        """All events of one."""
        self.say({"type": "response.create", "model": "pelton-box", **body})
        heard = []
        while not heard or not isinstance(heard[-1], int) and heard[-1]["type"] not in ("response.completed", "response.incomplete", "error"):
            heard.append(self.hear(on_ping))
        return heard

    def close(self):
        self.file.close()
        self.link.close()


def chat(number, count, seed, **more):
    return {"model": "pelton-box", "seed": seed, "messages": [{"role": "user", "content": f"check {number} {count} please"}], **more}


def text_of(chunks, index=0):
    """Content and the finish reason of one choice."""
    text, finish = "", []
    for chunk in chunks:
        for choice in chunk["choices"]:
            if choice["index"] == index:
                text += choice["delta"].get("content") or ""
                finish += [choice["finish_reason"]] if choice["finish_reason"] else []
    return text, finish


def check_stream(port, number, count, seed):
    data = events(port, "/v1/chat/completions", chat(number, count, seed, stream=True))
    assert data[-1] == "[DONE]" and data.count("[DONE]") == 1, data[-3:]
    chunks = [json.loads(one) for one in data[:-1]]
    assert all("error" not in chunk for chunk in chunks), chunks[-1]
    assert len({chunk["id"] for chunk in chunks}) == 1
    text, finish = text_of(chunks)
    assert text == letters(seed, number, count), f"{number}: {text}"
    assert finish == ["stop"], finish


def without(value, *names):
    """The same without what differs from request to request."""
    if isinstance(value, dict):
        return {key: without(one, *names) for key, one in value.items() if key not in names}
    return [without(one, *names) for one in value] if isinstance(value, list) else value


def chat_kind(body):
    """A streamed chat as (per choice: reasoning, content, call arguments, log-probabilities, finish), usage."""
    def run(port):
        data = events(port, "/v1/chat/completions", {**body, "stream": True, "stream_options": {"include_usage": True}})
        assert data[-1] == "[DONE]" and data.count("[DONE]") == 1, data[-2:]
        chunks = [json.loads(one) for one in data[:-1]]
        assert all("error" not in one for one in chunks), chunks[-1]
        answer = collections.defaultdict(lambda: collections.defaultdict(list))
        for choice in (choice for chunk in chunks for choice in chunk["choices"]):
            one, delta = answer[choice["index"]], choice["delta"]
            for name in ("reasoning_content", "content"):
                one[name].append(delta.get(name) or "")
            for call in delta.get("tool_calls") or []:
                one["arguments"].append(call["function"].get("arguments") or "")
                one["ids"] += [call["id"]] if call.get("id") else []
            one["logprobs"] += (choice["logprobs"] or {}).get("content") or []
            one["finish"] += [choice["finish_reason"]] if choice["finish_reason"] else []
        joined = {index: {name: "".join(values) if name in ("reasoning_content", "content", "arguments") else
                          len(values) if name == "ids" else values for name, values in one.items()}
                  for index, one in answer.items()}
        return joined, without(chunks[-1]["usage"], "prompt_tokens_details")
    return run


def whole_kind(path, body):
    def run(port):
        status, text = ask(port, "POST", path, body)
        assert status == 200, (status, text)
        return without(json.loads(text), "id", "created", "prompt_tokens_details", "created_at", "completed_at", "input_tokens_details")
    return run


def completion_kind(body):
    def run(port):
        data = events(port, "/v1/completions", {**body, "stream": True})
        assert data[-1] == "[DONE]", data[-1]
        texts, finish = collections.defaultdict(str), {}
        for choice in (choice for one in data[:-1] for choice in json.loads(one)["choices"]):
            texts[choice["index"]] += choice["text"]
            if choice["finish_reason"]:
                assert choice["index"] not in finish
                finish[choice["index"]] = choice["finish_reason"]
        return texts, finish
    return run


def response_kind(body):
    def run(port):
        data = [json.loads(one) for one in events(port, "/v1/responses", {**body, "stream": True}) if one != "[DONE]"]
        numbers = [one["sequence_number"] for one in data]
        assert all(a < b for a, b in zip(numbers, numbers[1:])), numbers
        assert data[-1]["type"] == "response.completed", data[-1]
        assert len({one["response"]["id"] for one in data if "response" in one}) == 1
        text = "".join(one["delta"] for one in data if one["type"] == "response.output_text.delta")
        done = [one["text"] for one in data if one["type"] == "response.output_text.done"]
        assert done == [text], (done, text)
        return text, data[-1]["response"]["usage"]["output_tokens"]
    return run


def message_kind(body):
    def run(port):
        data = [json.loads(one) for one in events(port, "/v1/messages", {**body, "stream": True})]
        kinds = [one["type"] for one in data]
        assert kinds[0] == "message_start" and kinds[-1] == "message_stop" and kinds.count("message_stop") == 1, kinds
        return "".join(one["delta"].get("text", "") for one in data if one["type"] == "content_block_delta"), [
            one["delta"]["stop_reason"] for one in data if one["type"] == "message_delta"]
    return run


class Foreign(http.server.ThreadingHTTPServer):
    """A server that speaks OpenAI's API and is no Pelton; `mode` says how its answers go wrong."""
    daemon_threads = True

    def __init__(self, model):
        self.mode, self.asked, self.headers_seen = "good", 0, []

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

            def do_GET(self):
                self.whole(200, json.dumps({"object": "list", "data": [{"id": model}]}).encode())

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                server = self.server
                server.asked += 1
                server.headers_seen.append(dict(self.headers))
                if server.mode == "busy":
                    return self.whole(503, b'{"error":{"message":"full"}}')
                if server.mode == "wrong":
                    return self.whole(404, b'{"error":{"message":"no such thing"}}')
                if server.mode == "silent":
                    self.close_connection = True
                    return None
                if not body.get("stream"):
                    return self.whole(200, b'{"choices":[' if server.mode == "half" else json.dumps(body).encode())
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Connection", "close")
                self.end_headers()
                for i in range(3):
                    self.wfile.write(f'data: {{"choices":[{{"delta":{{"content":"{i}"}}}}]}}\n\n'.encode())
                    if server.mode == "cut":
                        self.wfile.write(b'data: {"cho')
                        break
                else:
                    self.wfile.write(b"data: [DONE]\n\n" + (b"data: more\n\n" if server.mode == "chatty" else b""))
                self.close_connection = True
                return None
        super().__init__(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.serve_forever, daemon=True)
        self.thread.start()

    def close(self):
        self.shutdown()
        self.server_close()


TOOL = {"type": "function", "function": {"name": "note", "parameters": {
    "type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}}}
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}
COUNT = 180
HALF = letters(3, 52, COUNT)[100:106]  # a stop string, of which the first half comes earlier too


def said(words, **more):
    return {"model": "pelton-box", "seed": 3, "messages": [{"role": "user", "content": f"{words} {COUNT} please"}], **more}


KINDS = {
    "n = 4 with log-probabilities": chat_kind(said("check 51", n=4, logprobs=True, top_logprobs=2)),
    "stop string": chat_kind(said("check 52", stop=[HALF])),
    "reasoning": chat_kind(said("think 53", frequency_penalty=0.5, repetition_penalty=1.1)),
    "tool call": chat_kind(said("call 54", tools=[TOOL])),
    "JSON schema": chat_kind(said("json 55", response_format={
        "type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": SCHEMA}})),
    "length": chat_kind(said("check 56", max_tokens=90)),
    "whole": whole_kind("/v1/chat/completions", said("check 57", n=2, logprobs=True)),
    "whole call": whole_kind("/v1/chat/completions", {**said("call 58", tools=[TOOL]), "tool_choice": "auto"}),
    "completions": completion_kind({"model": "pelton-box", "prompt": ["check 59 150 ", "check 60 100 "], "n": 2, "seed": 5,
                                    "max_tokens": 140}),
    "responses": response_kind({"model": "pelton-box", "seed": 3, "input": f"check 61 {COUNT} please"}),
    "whole response": whole_kind("/v1/responses", {"model": "pelton-box", "seed": 3, "input": f"check 62 {COUNT} please"}),
    "messages": message_kind({"model": "pelton-box", "max_tokens": 500, "seed": 3,
                              "messages": [{"role": "user", "content": f"check 63 {COUNT} please"}]}),
}


