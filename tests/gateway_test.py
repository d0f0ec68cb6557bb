#!/ usr / bin / env python3
"""A gateway before workers that are processes of their own: they are killed under streams, and no client loses, doubles or mixes
a token, nor sees an error. Each answer is a function of (prompt, seed, position), so that this test knows every letter of it.

usage: gateway_test.py BINARY [--full]
"""
import collections
import http.client
import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

BINARY = None
FULL = False
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


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Process:
    """A server of the binary's, whose log is kept."""

    def __init__(self, *words):
        self.process = subprocess.Popen([BINARY, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
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

    def __init__(self, folder, workers, script=None, gateway=(), serve=()):
        self.folder = pathlib.Path(folder)
        self.script = self.folder / "script.json"
        self.script.write_text(json.dumps(script or SCRIPT))
        self.key = self.folder / "fleet.key"
        self.flags = serve
        if not self.key.exists():
            subprocess.run([BINARY, "gateway", "--new-key", self.key], check=True)
        self.ports = [free_port() for _ in range(workers)]
        self.workers = [None] * workers
        starts = [threading.Thread(target=self.start, args=(i,)) for i in range(workers)]
        for one in starts:
            one.start()
        for one in starts:
            one.join()
        self.admin = free_port()
        self.head = "".join([f'[gateway]\nlisten = "127.0.0.1:0"\nadmin = "127.0.0.1:{self.admin}"\n'
                             f'fleet_key_file = "{self.key}"\n', *gateway, '[[pool]]\nname = "box"\nmodel = "pelton-box"\n'])
        self.config = self.folder / "gateway.toml"
        self.configure(self.ports)
        self.gateway = Process("gateway", "--config", self.config)
        self.wait_for(workers)

    def start(self, i):
        flags = self.flags or ("--executor", f"modelled:{self.script}")
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

    def metric(self, name):
        text = ask(self.admin, "GET", "/metrics")[1]
        return int(re.search(rf"^pelton_gateway_{name} (\d+)$", text, re.M).group(1))


def ask(port, method, path, body=None):
    """Status and text."""
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        link.request(method, path, body and json.dumps(body), {"Content-Type": "application/json"})
        answer = link.getresponse()
        return answer.status, answer.read().decode()
    finally:
        link.close()


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
        texts, finish = collections.defaultdict(str), {
}
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


class Gateway(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name

    def fleet(self, *args, **more):
        fleet = Fleet(self.folder, *args, **more)
        self.addCleanup(fleet.close)
        return fleet

    def test_kills_under_streams_lose_nothing(self):
        kills, streams = (1000, 200) if FULL else (12, 100)
        fleet = self.fleet(4)
        faults, over = [], threading.Event()
        done = collections.Counter()

        def client(name):
            draw = random.Random(name)
            while not over.is_set():
                try:
                    check_stream(fleet.gateway.port, draw.randrange(10**9), draw.randrange(20, 250), draw.randrange(2**31))
                    done["streams"] += 1
                except Exception as error:  # whatever a client sees is a fault
                    faults.append(repr(error)[:600])
        clients = [threading.Thread(target=client, args=(i,)) for i in range(streams)]
        for one in clients:
            one.start()
        draw = random.Random(7)
        for _ in range(kills):
#Two stay, so that there is always one to go on at.
            victim = draw.randrange(len(fleet.workers))
            fleet.kill(victim)
            fleet.start(victim)
            end = time.monotonic() + 15
            while fleet.ready() < 3 and time.monotonic() < end:
                time.sleep(0.01)
        over.set()
        for one in clients:
            one.join()
        self.assertEqual(faults, [], list(fleet.gateway.log)[-20:])
        self.assertGreater(done["streams"], streams)
        self.assertGreater(fleet.metric("migrations_total"), kills)
        self.assertEqual(fleet.metric("streams_interrupted_total"), 0)
        self.assertEqual(fleet.metric("requests_open"), 0)

    def test_every_kind_of_answer_moves(self):
        """FT-11: each is, after a kill amid it, what it is undisturbed."""
        fleet = self.fleet(3)
        undisturbed, moved, faults = {}, {}, []

        def ask_all(answers):
            def run(name):
                try:
                    answers[name] = KINDS[name](fleet.gateway.port)
                except Exception as error:
                    faults.append(f"{name}: {error!r}"[:900])
            threads = [threading.Thread(target=run, args=(name,)) for name in KINDS]
            for one in threads:
                one.start()
            return threads
        for one in ask_all(undisturbed):
            one.join()
        self.assertEqual(faults, [])
        threads = ask_all(moved)
        for victim in (0, 1):
            time.sleep(0.35)
            fleet.kill(victim)
        fleet.start(0)
        for one in threads:
            one.join()
        self.assertEqual(faults, [], list(fleet.gateway.log)[-20:])
        for name, answer in undisturbed.items():
            self.assertEqual(moved[name], answer, name)
        self.assertGreater(fleet.metric("migrations_total"), 0)

    def test_a_prompt_with_sampled_turns_is_the_same_elsewhere(self):
        """What the first worker knows of past turns goes with the request: letters are sampled one by one, and would be written
        as longer tokens by a worker that has not sampled them."""
        fleet = self.fleet(2)
        first = said("check 81")
        whole = json.loads(ask(fleet.gateway.port, "POST", "/v1/chat/completions", first)[1])["choices"][0]["message"]["content"]
        home = max(fleet.rows(), key=lambda row: row["requests"])["name"]
        other = "w1" if home == "w0" else "w0"
        ask(fleet.admin, "POST", f"/v1/workers/{other}/drain")
        follow = {**first, "messages": first["messages"] + [{"role": "assistant", "content": whole},
                                                            {"role": "user", "content": f"check 82 {COUNT} please"}]}
        undisturbed = chat_kind(follow)(fleet.gateway.port)
        moved = []
        thread = threading.Thread(target=lambda: moved.append(chat_kind(follow)(fleet.gateway.port)))
        thread.start()
        time.sleep(0.3)
        ask(fleet.admin, "POST", f"/v1/workers/{other}/undrain")
        fleet.kill(int(home[1]))
        thread.join()
        self.assertEqual(moved, [undisturbed])
        fresh = chat_kind(follow)(fleet.gateway.port)[1]["prompt_tokens"]
        self.assertLess(fresh, undisturbed[1]["prompt_tokens"], "the test is to see a difference")

    def stream(self, fleet, number, count):
        """A stream in a thread, which gives what it raised."""
        raised = []

        def run():
            try:
                check_stream(fleet.gateway.port, number, count, number)
            except Exception as error:
                raised.append(repr(error)[:900])
        thread = threading.Thread(target=run)
        thread.start()
        return thread, raised

    def test_a_worker_that_stands_still_is_left_and_not_heard_again(self):
        """FT-12, FT-20: stopped, not dead; what it says when it goes on is nobody's."""
        fleet = self.fleet(2)
        streams = [self.stream(fleet, number, 200) for number in range(100, 120)]
        time.sleep(0.3)
        fleet.workers[0].process.send_signal(signal.SIGSTOP)
        try:
            fleet.wait_for(1)
            for thread, raised in streams:
                thread.join()
                self.assertEqual(raised, [])
        finally:
            fleet.workers[0].process.send_signal(signal.SIGCONT)
        fleet.wait_for(2)
        more = [self.stream(fleet, number, 50) for number in range(200, 210)]
        for thread, raised in more:
            thread.join()
            self.assertEqual(raised, [])

    def test_a_keys_file_that_it_cannot_keep_is_refused(self):
        for text, said in (("", "holds no key"), ("secret tenant rpm=2\n", "rpm=, tpm= and concurrent=")):
            with tempfile.TemporaryDirectory() as folder:
                keys = pathlib.Path(folder) / "keys"
                keys.write_text(text)
                config = pathlib.Path(folder) / "gateway.toml"
                config.write_text(f'[gateway]\nlisten = "127.0.0.1:0"\nkeys_file = "{keys}"\n'
                                  '[[pool]]\nname = "a"\nmodel = "m"\n')
                done = subprocess.run([BINARY, "gateway", "--config", str(config), "--allow-empty", "--check"],
                                      capture_output=True, text=True, timeout=30, check=False)
                self.assertEqual(done.returncode, 3, done.stderr)
                self.assertIn(said, done.stderr)

    def test_a_worker_that_is_stopped_leaves_its_streams_to_others(self):
        """FT-22: SIGTERM; what is running goes on elsewhere, and nothing new comes."""
        fleet = self.fleet(2, serve=("--drain-seconds", "0", "--executor", f"modelled:{self.folder}/script.json"))
        streams = [self.stream(fleet, number, 200) for number in range(100, 120)]
        time.sleep(0.3)
        worker, fleet.workers[0] = fleet.workers[0], None
        worker.end(signal.SIGTERM)
        self.assertEqual(worker.process.returncode, 0, list(worker.log)[-5:])
        streams += [self.stream(fleet, number, 50) for number in range(200, 205)]
        for thread, raised in streams:
            thread.join()
            self.assertEqual(raised, [], list(fleet.gateway.log)[-20:])

    def test_without_a_worker_there_is_one_error_and_it_recovers(self):
        """FT-14."""
        fleet = self.fleet(1, gateway=("resume_budget = 0.5\n",))
        raised = []

        def run():
            raised.extend(events(fleet.gateway.port, "/v1/chat/completions", chat(1, 250, 1, stream=True)))
        thread = threading.Thread(target=run)
        thread.start()
        time.sleep(0.3)
        fleet.kill(0)
        thread.join()
        self.assertEqual(json.loads(raised[-1])["error"]["code"], "stream_interrupted")
        self.assertNotIn("[DONE]", raised)
        status, text = ask(fleet.gateway.port, "POST", "/v1/chat/completions", chat(1, 5, 1))
        self.assertEqual((status, json.loads(text)["error"]["code"]), (503, "no_worker"))
        self.assertEqual(ask(fleet.gateway.port, "GET", "/ready")[0], 503)
        fleet.start(0)
        fleet.wait_for(1)
        check_stream(fleet.gateway.port, 7, 20, 7)

    def test_a_request_that_ends_workers_ends_two(self):
        """FT-15."""
        fleet = self.fleet(4)
        status, text = ask(fleet.gateway.port, "POST", "/v1/chat/completions",
                           {"model": "pelton-box", "messages": [{"role": "user", "content": "poison"}]})
        self.assertEqual((status, json.loads(text)["error"]["code"]), (500, "request_quarantined"))
        fleet.wait_for(2)
#Its client tries again : no further worker ends of it.
        for _ in range(3):
            status, text = ask(fleet.gateway.port, "POST", "/v1/chat/completions",
                               {"model": "pelton-box", "messages": [{"role": "user", "content": "poison"}]})
            self.assertEqual((status, json.loads(text)["error"]["code"]), (500, "request_quarantined"))
        self.assertEqual(fleet.ready(), 2)
        check_stream(fleet.gateway.port, 7, 20, 7)

    def test_a_models_text_is_that_of_the_undisturbed_run(self):
        """FT-10: the model in the box computes; greedy and drawn, with penalties and a grammar."""
        fleet = self.fleet(3, serve=("--kv-cache-memory", "64MiB", "--threads", "1", "--max-num-seqs", "32"))
        prompts = ["Hello", "The wheel turns", "One two three", "A river", "Tell me of", "My name is", "In the morning", "Water"]
        bodies = [{"model": "pelton-box", "prompt": text, "max_tokens": 160, "seed": seed, "ignore_eos": True,
                   **({"temperature": 0} if seed % 3 == 0 else {"temperature": 1, "frequency_penalty": 0.4,
                                                               "repetition_penalty": 1.1, "logprobs": 2})}
                  for seed, text in enumerate(prompts * (40 if FULL else 2))]
        bodies += [{**one, "structured_outputs": {"regex": "[a-z ]{100,150}"}, "ignore_eos": False} for one in bodies[:4]]

        def texts(between=lambda: None):
            answers = [None] * len(bodies)

            def run(i):
                try:
                    answers[i] = completion_kind(bodies[i])(fleet.gateway.port)
                except Exception as error:
                    answers[i] = repr(error)[:500]
            threads = [threading.Thread(target=run, args=(i,)) for i in range(len(bodies))]
            for one in threads:
                one.start()
            between()
            for one in threads:
                one.join()
            return answers

        def kill_two():
            while fleet.metric("requests_total") < len(bodies):
                time.sleep(0.01)
            for victim in (0, 1):
                fleet.kill(victim)
                time.sleep(0.2)
        self.assertEqual(texts(kill_two), texts())
        self.assertGreater(fleet.metric("migrations_total") + fleet.metric("retries_total"), 0)

    def test_an_operator_drains_and_ejects(self):
        fleet = self.fleet(2)
        self.assertEqual(ask(fleet.admin, "POST", "/v1/workers/w0/drain")[0], 200)
        self.assertEqual(json.loads(ask(fleet.admin, "GET", "/v1/workers/w0")[1])["state"], "draining")
        for number in range(5):
            check_stream(fleet.gateway.port, number, 5, 1)
        self.assertEqual({row["name"]: row["requests"] for row in fleet.rows()}, {"w0": 0, "w1": 5})
        ask(fleet.admin, "POST", "/v1/workers/w0/undrain")
        ask(fleet.admin, "POST", "/v1/workers/w1/eject")
        check_stream(fleet.gateway.port, 9, 5, 1)
        self.assertEqual({row["name"]: row["requests"] for row in fleet.rows()}, {"w0": 1, "w1": 5})
        self.assertEqual(ask(fleet.admin, "POST", "/v1/workers/w1/restore")[0], 200)
        self.assertEqual(fleet.ready(), 2)
        self.assertEqual(ask(fleet.admin, "POST", "/v1/workers/nobody/drain")[0], 404)
        self.assertEqual(ask(fleet.admin, "GET", "/v1/workers/w1/drain")[0], 405)
#GW - 18 : none of it on the clients' listener.
        for path in ("/v1/workers", "/metrics"):
            self.assertEqual(ask(fleet.gateway.port, "GET", path)[0], 404, path)

    def test_a_worker_of_the_wrong_model_gets_nothing(self):
        """GW-05."""
        fleet = self.fleet(1, gateway=("resume_budget = 0.2\n",),
                           serve=("--executor", f"modelled:{self.folder}/script.json", "--served-model-name", "other"))
        status, text = ask(fleet.gateway.port, "POST", "/v1/chat/completions", chat(1, 5, 1))
        self.assertEqual((status, json.loads(text)["error"]["code"]), (503, "no_worker"))
        self.assertEqual(fleet.rows()[0]["requests"], 0)
        self.assertEqual(ask(fleet.gateway.port, "GET", "/ready")[0], 503)
        self.assertIn("its pool's model 'pelton-box' is none of its own: other", fleet.rows()[0]["reason"])
        self.assertIn("is none of its own", "".join(fleet.gateway.log))

    def verb(self, fleet, *words):
        done = subprocess.run([BINARY, "fleet", *words, "--admin", f"http://127.0.0.1:{fleet.admin}"], capture_output=True, text=True,
                              timeout=30, check=False)
        return done.returncode, done.stdout, done.stderr

    def test_why_a_worker_does_not_join_is_said(self):
        fleet = self.fleet(1)
        nobody = free_port()
        other = self.folder + "/other.key"
        subprocess.run([BINARY, "gateway", "--new-key", other], check=True)
        stranger = Process("serve", BOX, "--executor", f"modelled:{fleet.script}", "--port", "0", "--fleet-port", free_port(),
                           "--fleet-name", "stranger", "--fleet-key-file", other)
        self.addCleanup(stranger.end)
        theirs = int(stranger.fleet_line().rsplit(":", 1)[1])
        fleet.configure([*fleet.ports, nobody, theirs, stranger.port])
        fleet.gateway.process.send_signal(signal.SIGHUP)
        wanted = {nobody: "cannot connect to", theirs: "no TLS with", stranger.port: "no TLS with"}

        def reasons():
            return {int(row["address"].rsplit(":", 1)[1]): row["reason"] for row in fleet.rows()
                    }
        end = time.monotonic() + 15
        while not all(text in reasons().get(port, "") for port, text in wanted.items()) and time.monotonic() < end:
            time.sleep(0.05)
        for port, text in wanted.items():
            self.assertIn(text, reasons()[port])
            line = f"worker 127.0.0.1:{port} is joining: {text}"
            while line not in "".join(fleet.gateway.log) and time.monotonic() < end:
                time.sleep(0.05)
            self.assertIn(line, "".join(fleet.gateway.log))
        self.assertEqual(reasons()[fleet.ports[0]], "")
        code, out, _ = self.verb(fleet, "ls")
        self.assertEqual(code, 0)
        self.assertIn("cannot connect to", out)
        code, out, _ = self.verb(fleet, "show", f"127.0.0.1:{nobody}")
        self.assertIn("cannot connect to", json.loads(out)["reason"])
        for words in (("show", "nope"), ("drain", "nope")):
            code, _, err = self.verb(fleet, *words)
            self.assertEqual(code, 2)
            self.assertIn("no worker is named 'nope'; `pelton fleet ls` lists them", err)

    def test_the_file_is_read_anew(self):
        """GW-01, GW-02, FT-24: on SIGHUP and when it has changed; what is wrong changes nothing; no stream minds."""
        fleet = self.fleet(2)
        over = threading.Event()

        def hang_up():
            while not over.is_set():
                fleet.gateway.process.send_signal(signal.SIGHUP)
                time.sleep(0.1)
        reloads = threading.Thread(target=hang_up)
        reloads.start()
        streams = [self.stream(fleet, number, 150) for number in range(300, 320)]
        for thread, raised in streams:
            thread.join()
            self.assertEqual(raised, [])
        over.set()
        reloads.join()
        self.assertGreater(fleet.metric("config_reloads_total"), 3)
        self.assertEqual(fleet.metric("migrations_total") + fleet.metric("retries_total"), 0)

        def wait(what):
            end = time.monotonic() + 15
            while not what() and time.monotonic() < end:
                time.sleep(0.05)
            self.assertTrue(what(), list(fleet.gateway.log)[-5:])
        refused = fleet.metric("config_reloads_refused_total")
        for text, words in ((fleet.head + "oops = 3\n", "has no key 'oops'"), (fleet.head, "there is no [[worker]]")):
            fleet.config.write_text(text)
            refused += 1
            wait(lambda: fleet.metric("config_reloads_refused_total") >= refused)
            wait(lambda: words in "".join(fleet.gateway.log))
        self.assertEqual(fleet.ready(), 2)
        check_stream(fleet.gateway.port, 7, 20, 7)
#One is taken out while it answers : that answer ends there, and nothing else comes.
        thread, raised = self.stream(fleet, 400, 200)
        wait(lambda: sum(row["requests"] for row in fleet.rows()) > 21)
        fleet.configure(fleet.ports[:1])
        wait(lambda: len(fleet.rows()) == 1)
        thread.join()
        self.assertEqual(raised, [])
        fleet.configure(fleet.ports)
        fleet.wait_for(2)

    def test_a_pause_of_everything_ejects_nobody(self):
        """FT-51."""
        fleet = self.fleet(2)
        streams = [self.stream(fleet, number, 200) for number in range(500, 510)]
        time.sleep(0.3)
        everybody = [fleet.gateway.process, *[worker.process for worker in fleet.workers]]
        for one in everybody:
            one.send_signal(signal.SIGSTOP)
        time.sleep(10 if FULL else 4)
        for one in everybody:
            one.send_signal(signal.SIGCONT)
        for thread, raised in streams:
            thread.join()
            self.assertEqual(raised, [])
        fleet.wait_for(2)
        log = "".join(fleet.gateway.log)
        for word in ("is down", "is ejected", "attempt 1"):
            self.assertNotIn(word, log)

    def test_listening_beyond_this_machine_must_be_meant(self):
        file = pathlib.Path(self.folder) / "open.toml"
        for text, words in (('listen = "0.0.0.0:0"\n', ":2: [gateway]: 'listen' 0.0.0.0 lets anyone"),
                            ('admin = "0.0.0.0:0"\n', ":2: [gateway]: 'admin' 0.0.0.0 lets anyone")):
            file.write_text("[gateway]\n" + text)
            check = [BINARY, "gateway", "--config", file, "--allow-empty", "--check"]
            done = subprocess.run(check, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 3)
            self.assertIn(words, done.stderr)
            self.assertEqual(subprocess.run([*check, "--open"], check=False, capture_output=True).returncode, 0)

    def test_a_wrong_file_is_refused_with_its_line(self):
        file = pathlib.Path(self.folder) / "wrong.toml"
        file.write_text("[gateway]\nlistn = 3\n")
        done = subprocess.run([BINARY, "gateway", "--config", file, "--check"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 3)
        self.assertIn(f"{file}:2: [gateway] has no key 'listn'", done.stderr)


if __name__ == "__main__":
    BINARY = os.path.abspath(sys.argv[1])
    FULL = "--full" in sys.argv
    unittest.main(argv=[sys.argv[0], *[word for word in sys.argv[2:] if word != "--full"]], verbosity=2)
