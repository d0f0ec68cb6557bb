#!/usr/bin/env python3
"""Two models of two families in one process: each answers by its name as it does alone, one that cannot be loaded, or for
which no memory is left, does not keep the other from being served, and models come and go while others are served.

usage: several_models_test.py BINARY
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request

from tiers import full

BINARY = None
BOX = pathlib.Path(__file__).resolve().parent.parent / "models" / "pelton-box"
FLAGS = ("--port", "0", "--max-model-len", "512", "--max-num-seqs", "4")


class Served:
    def __init__(self, test, *words):
        flags = [] if "--kv-cache-memory" in words else ["--kv-cache-memory", "64MiB"]
        self.process = subprocess.Popen([BINARY, "serve", *map(str, words), *FLAGS, *flags], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        self.log = []
        reader = threading.Thread(target=lambda: self.log.extend(self.process.stderr), daemon=True)
        reader.start()

        def end():
            self.process.kill()
            self.process.wait()
            reader.join()
            self.process.stdout.close()
            self.process.stderr.close()
        test.addCleanup(end)
        line = self.process.stdout.readline()
        if not line:
            self.process.wait(20)
            reader.join()
        test.assertTrue(line.startswith("listening on "), self.log)
        self.port = int(line.rsplit(":", 1)[1])
        if "--admin-port" in words:
            self.admin_port = int(self.process.stdout.readline().rsplit(":", 1)[1])

    def logged(self, text):
        end = time.monotonic() + 20
        while not any(text in line for line in list(self.log)) and time.monotonic() < end:
            time.sleep(0.05)
        return any(text in line for line in list(self.log))

    def fetch(self, path, body=None, method=None, port=None, content_type="application/json"):
        """Status and text."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{port or self.port}{path}", data=data, method=method,
                                         headers={"Content-Type": content_type} if data else {})
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def admin(self, method, path, body=None, **more):
        """Status and JSON."""
        status, text = self.fetch(path, body, method, self.admin_port, **more)
        return status, json.loads(text)

    def load(self, **body):
        return self.admin("POST", "/admin/models", body)

    def memory_left(self):
        return self.admin("GET", "/admin/models")[1]["memory"]["left_bytes"]

    def resident_bytes(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024

    def tokens(self, model, prompt):
        status, text = self.fetch("/v1/completions", {"model": model, "prompt": prompt, "max_tokens": 24, "temperature": 0,
                                                      "ignore_eos": True, "return_token_ids": True})
        assert status == 200, text
        return json.loads(text)["choices"][0]["token_ids"]


class SeveralModels(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.qwen = pathlib.Path(cls.scratch.name) / "qwen3"
        subprocess.run([BINARY, "synth", "--like", "qwen3-0.6b", "--layers", "1", cls.qwen], check=True,
                       capture_output=True, timeout=200)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def test_each_answers_as_it_does_alone_also_at_the_same_time(self):
        prompts = ["Hello", "The wheel turns", "One two three"]
        alone = {}
        for name, folder in (("pelton-box", BOX), ("qwen3", self.qwen)):
            served = Served(self, folder)
            alone[name] = [served.tokens(name, prompt) for prompt in prompts]
            served.process.kill()
        guessing = Served(self, BOX, self.qwen, "--speculative-config", '{"method":"suffix","adaptive":false}')
        served = Served(self, BOX, self.qwen, "--alias", f"gpt={BOX}")
        for name in alone:  # whose lines a load writes
            for line in ("model: ", "chat format: ", "memory: "):
                self.assertTrue(served.logged(f" {name}: {line}"), served.log)
        for one in (served, guessing):
            got = {}

            def ask(name):
                got[name] = [one.tokens(name, prompt) for prompt in prompts]
            threads = [threading.Thread(target=ask, args=(name,)) for name in alone]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(alone, got)
        for name in alone:
            drafted = re.search(r'^vllm:spec_decode_num_draft_tokens_total\{.*model_name="%s".*\} (\S+)$' % name, guessing.fetch("/metrics")[1], re.M)
            self.assertGreater(float(drafted[1]), 0)

        cards = [card["id"] for card in json.loads(served.fetch("/v1/models")[1])["data"]]
        self.assertTrue({"pelton-box", "gpt", "qwen3"} <= set(cards), cards)
        chat = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}
        for name, mark in (("gpt", "<|start|>"), ("qwen3", "<|im_start|>")):
            status, rendered = served.fetch("/v1/chat/completions/render", {**chat, "model": name})
            self.assertEqual(200, status, rendered)
            self.assertIn(mark, rendered)
            self.assertEqual(200, served.fetch("/v1/chat/completions", {**chat, "model": name})[0])
        status, text = served.fetch("/v1/chat/completions", {**chat, "model": "nobody"})
        self.assertEqual((404, "model_not_found"), (status, json.loads(text)["error"]["code"]))
        status, text = served.fetch("/v1/chat/completions", chat)
        self.assertEqual(400, status)
        self.assertRegex(text, "pelton-box.*qwen3")
        page = served.fetch("/metrics")[1]
        if shutil.which("promtool"):  # Debian's prometheus; each family may stand once only
            checked = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, text=True)
            self.assertNotIn("error while linting", checked.stderr + checked.stdout)
        families = re.findall(r"^# TYPE (\S+)", page, re.M)
        self.assertEqual(sorted(set(families)), sorted(families))
        for name, answers in (("pelton-box", 4), ("qwen3", 4)):
            found = re.findall(rf'vllm:request_success_total{{model_name="{name}".*}} (\d+)', page)
            self.assertEqual(answers, sum(map(int, found)), name)
        self.assertEqual(200, served.fetch("/ready")[0])
        self.assertEqual(2, len(json.loads(served.fetch("/server_info")[1])["models"]))
        served.process.terminate()
        self.assertEqual(0, served.process.wait(60))

    def test_one_that_cannot_be_loaded_disturbs_no_other(self):
        with tempfile.TemporaryDirectory() as empty:
            served = Served(self, empty, BOX)
            self.assertEqual(200, served.fetch("/ready")[0])
            cards = [card["id"] for card in json.loads(served.fetch("/v1/models")[1])["data"]]
            self.assertIn("pelton-box", cards)
            self.assertIn("is not served", "".join(served.log))
            name = pathlib.Path(empty).name
            status, text = served.fetch("/v1/completions", {"model": name, "prompt": "x"})
            self.assertEqual(503, status)
            self.assertRegex(text, "could not be loaded: .*config.json")
            status, text = served.fetch("/v1/completions", {"prompt": "x"})
            self.assertEqual((400, "model_missing"), (status, json.loads(text)["error"]["code"]))
            self.assertIn("'pelton-box'", text)

    def test_what_does_not_fit_is_refused_with_both_numbers(self):
        memory = re.search(r"of ([0-9.]+) GiB", "".join(self.memory_line()))
        self.assertIsNotNone(memory)
        much = str(int(float(memory[1]) * 0.6)) + "GiB"
        served = Served(self, BOX, self.qwen, "--kv-cache-memory", much)
        refusal = []
        for _ in range(200):  # it answers as soon as one model does
            refusal = [line for line in list(served.log) if "is not served" in line]
            if refusal:
                break
            time.sleep(0.05)
        self.assertEqual(1, len(refusal), served.log)
        self.assertRegex(refusal[0], r"'qwen3' is not served: --kv-cache-memory asks for [0-9.]+ GiB .*"
                                     r"[0-9.]+ GiB of [0-9.]+ GiB are left \('pelton-box' has [0-9.]+ GiB\)")
        self.assertTrue(served.tokens("pelton-box", "Hello"))

    def memory_line(self):
        served = Served(self, BOX)
        served.process.terminate()
        served.process.wait(60)
        return served.log

    def test_names_are_checked_before_anything_is_loaded(self):
        for words, what in (((BOX, BOX), "is given twice"),
                            ((BOX, self.qwen, "--alias", f"qwen3={BOX}"), "is called 'qwen3' already"),
                            ((BOX, self.qwen, "--served-model-name", "x"), "--alias"),
                            ((BOX, "--alias", "x"), "NAME=MODEL"),
                            ((BOX, "--alias", "x=nobody"), "nobody")):
            done = subprocess.run([BINARY, "serve", *map(str, words), "--port", "0"], capture_output=True, text=True,
                                  timeout=60, check=False)
            self.assertNotEqual(0, done.returncode, words)
            self.assertIn(what, done.stderr)


class Stream(threading.Thread):
    """A streamed completion of so many tokens: how many tokens came, and whether it ended as it should."""

    def __init__(self, served, model, tokens):
        super().__init__()
        self.begun = threading.Event()
        self.text, self.count = "", 0
        body = {"model": model, "prompt": "On and on", "max_tokens": tokens, "temperature": 0, "ignore_eos": True,
                "stream": True, "stream_options": {"include_usage": True}}
        self.request = urllib.request.Request(f"http://127.0.0.1:{served.port}/v1/completions",
                                              data=json.dumps(body).encode(), headers={"Content-Type": "application/json"})
        self.start()

    def run(self):
        with urllib.request.urlopen(self.request, timeout=120) as answer:
            for line in answer:
                self.text += line.decode()
                self.begun.set()
        for line in self.text.splitlines():
            if line.startswith("data: {"):
                self.count = (json.loads(line[6:]).get("usage") or {}).get("completion_tokens", self.count)


class ComingAndGoing(unittest.TestCase):
    """POST and DELETE /admin/models."""

    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.qwen = pathlib.Path(cls.scratch.name) / "qwen3"
        subprocess.run([BINARY, "synth", "--like", "qwen3-0.6b", "--layers", "1", cls.qwen], check=True,
                       capture_output=True, timeout=200)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def serve(self, *words):
        return Served(self, BOX, "--admin-port", "0", *words)

    def ledger(self, served):
        for _ in range(200):
            ledger = served.admin("GET", "/debug/ledger")[1]
            if ledger["clean"]:
                break
            time.sleep(0.05)
        return ledger

    def test_unloaded_under_load(self):
        served = self.serve()
        prompts = ["Hello", "The wheel turns", "One two three"]
        alone = [served.tokens("pelton-box", prompt) for prompt in prompts]
        left, resident = served.memory_left(), served.resident_bytes()
        status, model = served.load(model=str(self.qwen), name="guest", aliases=["visitor"], max_model_len=256)
        self.assertEqual((200, "serving", ["visitor"]), (status, model.get("state"), model.get("aliases")), model)
        self.assertEqual(left - model["memory_bytes"], served.memory_left())
        info = {one["model"]["id"]: one["model"] for one in json.loads(served.fetch("/server_info")[1])["models"]}
        self.assertEqual((256, 512), (info["guest"]["context_max"], info["pelton-box"]["context_max"]))
        guests = served.tokens("visitor", "Hello")
        grown = served.resident_bytes() - resident

        stream = Stream(served, "guest", 200)
        self.assertTrue(stream.begun.wait(60))
        gone = []
        unload = threading.Thread(target=lambda: gone.append(served.admin("DELETE", "/admin/models/guest")))
        unload.start()
        beside = [served.tokens("pelton-box", prompt) for prompt in prompts]
        while stream.is_alive() and served.admin("GET", "/admin/models/guest")[1].get("state") == "serving":
            time.sleep(0.01)
        self.assertEqual(404, served.fetch("/v1/completions", {"model": "guest", "prompt": "x"})[0])
        unload.join()
        stream.join()
        self.assertEqual([(200, {"name": "guest", "state": "unloaded"})], gone)
        self.assertIn("data: [DONE]", stream.text)
        self.assertNotIn("error", stream.text)
        self.assertEqual(200, stream.count)
        self.assertEqual(alone, beside)
        self.assertTrue(self.ledger(served)["clean"])
        self.assertEqual(left, served.memory_left())
        self.assertLess(served.resident_bytes() - resident, grown / 4, "its memory has been given back")
        self.assertEqual(404, served.admin("DELETE", "/admin/models/guest")[0])

        self.assertEqual(200, served.load(model=str(self.qwen), name="guest")[0])
        self.assertEqual(guests, served.tokens("guest", "Hello"))
        self.assertEqual(alone, [served.tokens("pelton-box", prompt) for prompt in prompts])
        served.process.terminate()
        self.assertEqual(0, served.process.wait(60))

    def test_answers_that_take_too_long_are_ended_with_a_word(self):
        served = self.serve()
        self.assertEqual(200, served.load(model=str(self.qwen))[0])
        stream = Stream(served, "qwen3", 250)
        self.assertTrue(stream.begun.wait(60))
        self.assertEqual(200, served.admin("DELETE", "/admin/models/qwen3?drain_seconds=0")[0])
        stream.join()
        if stream.count < 250:
            self.assertIn("is being unloaded", stream.text)
        self.assertTrue(self.ledger(served)["clean"])

    def test_a_load_that_fails_midway_leaves_nothing(self):
        broken = pathlib.Path(self.scratch.name) / "broken"
        shutil.copytree(self.qwen, broken)
        weights = next(broken.glob("*.safetensors"))
        with open(weights, "r+b") as file:
            file.truncate(weights.stat().st_size // 2)
        served = self.serve()
        left = served.memory_left()
        before = served.tokens("pelton-box", "Hello")
        status, refused = served.load(model=str(broken))
        self.assertEqual((400, "bad_checkpoint"), (status, refused["error"]["code"]), refused)
        self.assertEqual(left, served.memory_left())
        self.assertEqual("failed", served.admin("GET", "/admin/models/broken")[1]["state"])
        status, text = served.fetch("/v1/completions", {"model": "broken", "prompt": "x"})
        self.assertEqual(503, status)
        self.assertIn(json.loads(text)["error"]["message"].split("could not be loaded: ")[1], refused["error"]["message"])
        self.assertEqual(before, served.tokens("pelton-box", "Hello"))
        self.assertEqual(200, served.fetch("/ready")[0])
        self.assertEqual(200, served.load(model=str(self.qwen), name="broken")[0], "its name is free")
        status, refused = served.load(model=str(broken / "nothing"))
        self.assertEqual((404, "model_not_found"), (status, refused["error"]["code"]))
        self.assertEqual(200, served.admin("DELETE", f"/admin/models/{broken / 'nothing'}")[0])

    def test_no_memory_is_refused_with_both_numbers(self):
        served = self.serve()
        budget = served.admin("GET", "/admin/models")[1]["memory"]["budget_bytes"]
        left = served.memory_left()
        status, refused = served.load(model=str(self.qwen), kv_cache_memory=int(budget * 0.99))
        self.assertEqual((507, "insufficient_memory"), (status, refused["error"]["code"]), refused)
        self.assertRegex(refused["error"]["message"],
                         r"asks for [0-9.]+ GiB .*[0-9.]+ GiB of [0-9.]+ GiB are left \('pelton-box' has [0-9.]+ [GM]iB\)")
        self.assertEqual(left, served.memory_left())
        self.assertTrue(served.tokens("pelton-box", "Hello"))

    @full
    def test_loads_at_once(self):
        served = self.serve()
        answers = {}

        def load(key, name):
            answers[key] = served.load(model=str(self.qwen), name=name, kv_cache_memory="16MiB")
        threads = [threading.Thread(target=load, args=one) for one in (("a", "a"), ("b", "b"), ("b again", "b"))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(200, answers["a"][0], answers)
        self.assertEqual([200, 409], sorted([answers["b"][0], answers["b again"][0]]), answers)
        self.assertEqual(served.tokens("a", "Hello"), served.tokens("b", "Hello"))

    def test_the_last_one_goes_and_comes_back(self):
        served = self.serve()
        chat = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}
        self.assertEqual(200, served.load(model=str(self.qwen))[0])
        self.assertEqual(200, served.fetch("/v1/chat/completions", chat)[0], "which the model of the start answers")
        self.assertEqual(200, served.admin("DELETE", "/admin/models/pelton-box")[0])
        status, text = served.fetch("/v1/chat/completions", chat)
        self.assertEqual((400, "model_missing"), (status, json.loads(text)["error"]["code"]))
        self.assertEqual(200, served.admin("DELETE", "/admin/models/qwen3")[0])
        self.assertEqual((503, 200), (served.fetch("/ready")[0], served.fetch("/health")[0]))
        self.assertEqual(503, served.fetch("/v1/chat/completions", chat)[0])
        self.assertEqual("empty", self.ledger(served)["state"])
        self.assertEqual(200, served.load(model=str(BOX))[0])
        self.assertEqual(200, served.fetch("/v1/chat/completions", chat)[0])
        self.assertEqual(200, served.fetch("/ready")[0])

    def test_what_may_be_asked(self):
        served = self.serve()
        for body, field in (({}, "model"), ({"model": str(self.qwen), "max_model_len": 0}, "max_model_len"),
                            ({"model": str(self.qwen), "max_model_length": 9}, "max_model_length"),
                            ({"model": str(self.qwen), "threads": 2}, "threads"),
                            ({"model": str(self.qwen), "kv_cache_dtype": "f8"}, "kv_cache_dtype"),
                            ({"model": str(self.qwen), "name": "a\nb"}, "name")):
            status, refused = served.load(**body)
            self.assertEqual((400, field), (status, refused["error"]["param"]), refused)
        for field, value, code in (("chat_template", "/nope", "bad_file"), ("tokenizer", "/etc/passwd", "bad_checkpoint"),
                                   ("executor", "modelled:/etc/passwd", "bad_file"), ("pin_prefix", "/nope", "bad_file"),
                                   ("name", "", "invalid_value"), ("max_model_len", "many", "invalid_value"),
                                   ("context_length", 10_000_000, "invalid_value")):
            status, refused = served.load(**{"model": str(self.qwen), "name": "wrong", field: value})
            self.assertEqual((400, field, code), (status, refused["error"]["param"], refused["error"]["code"]), refused)
            self.assertNotIn("--max-model-len", refused["error"]["message"])
            if code == "invalid_value":
                self.assertIn(f"'{field}'", refused["error"]["message"])
            served.admin("DELETE", "/admin/models/wrong")
        for field in ("port", "api_key", "threads", "admin-port", "log_json", "step_log"):
            status, refused = served.load(model=str(self.qwen), **{field: "1"})
            self.assertEqual((400, field), (status, refused["error"]["param"]), refused)
            self.assertIn("belongs to the whole server, not to one model: give --" + field.replace("_", "-"),
                          refused["error"]["message"])
        for field, ours in (("served_model_name", "name"), ("alias", "aliases")):
            self.assertIn(f"'{field}' is the field '{ours}' here",
                          served.load(model=str(self.qwen), **{field: "x"})[1]["error"]["message"])
        status, refused = served.load(model=str(self.qwen), **{"max_model_len": 64, "context-length": 64})
        self.assertEqual((400, "context-length"), (status, refused["error"]["param"]), refused)
        self.assertIn("the same as 'max_model_len'", refused["error"]["message"])
        status, loaded = served.load(model=str(self.qwen), name="other-names", **{
            "context-length": 64, "kv-cache-memory": "16MiB", "no_enable_prefix_caching": True})
        self.assertEqual(200, status, loaded)
        self.assertEqual(200, served.admin("DELETE", "/admin/models/other-names")[0])
        # Found when it is loaded: wrong all the same, and nobody's fault but the request's.
        for options in ({"pin_prefix": "/nowhere"}, {"pin_prefix": "/tmp"}, {"max_model_len": 10_000_000},
                        {"kv_cache_memory": "16MiB", "memory_utilization": 0.5}, {"executor": "modelled:/nowhere"},
                        {"pin_prefix": str(BOX / "config.json"), "enable_prefix_caching": False}):
            status, refused = served.load(model=str(self.qwen), name="wrong", **options)
            self.assertEqual(400, status, (options, refused))
            served.admin("DELETE", "/admin/models/wrong")
        status, _ = served.admin("POST", "/admin/models", {"model": str(self.qwen)}, content_type="text/plain")
        self.assertEqual(415, status, "which a page in a browser could send")
        self.assertEqual(405, served.admin("DELETE", "/admin/models")[0])
        self.assertEqual(400, served.admin("DELETE", "/admin/models/pelton-box?drain_seconds=-1")[0])
        status, now = served.load(model=str(self.qwen), name="later", wait=False)
        self.assertEqual((202, "loading"), (status, now["state"]))
        for _ in range(600):
            if served.admin("GET", "/admin/models/later")[1]["state"] == "serving":
                break
            time.sleep(0.05)
        self.assertTrue(served.tokens("later", "Hello"))
        self.assertIn(served.admin("DELETE", "/admin/models/later?wait=false")[0], (200, 202))


if __name__ == "__main__":
    BINARY = sys.argv.pop(1)
    unittest.main()
