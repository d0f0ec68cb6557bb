#!/usr/bin/env python3
"""Two models of two families in one process: each answers by its name as it does alone, and one that cannot be loaded, or for
which no memory is left, does not keep the other from being served.

usage: several_models_test.py BINARY
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.error
import urllib.request

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

    def fetch(self, path, body=None):
        """Status and text."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data=data,
                                         headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

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
        served = Served(self, BOX, self.qwen, "--alias", f"gpt={BOX}")
        got = {}

        def ask(name):
            got[name] = [served.tokens(name, prompt) for prompt in prompts]
        threads = [threading.Thread(target=ask, args=(name,)) for name in alone]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(alone, got)

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

    def test_what_does_not_fit_is_refused_with_both_numbers(self):
        memory = re.search(r"of ([0-9.]+) GiB", "".join(self.memory_line()))
        self.assertIsNotNone(memory)
        much = str(int(float(memory[1]) * 0.6)) + "GiB"
        served = Served(self, BOX, self.qwen, "--kv-cache-memory", much)
        refusal = [line for line in served.log if "is not served" in line]
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
        for words, what in (((BOX, BOX), "is there already"),
                            ((BOX, self.qwen, "--served-model-name", "x"), "--alias"),
                            ((BOX, "--alias", "x"), "NAME=MODEL"),
                            ((BOX, "--alias", "x=nobody"), "nobody")):
            done = subprocess.run([BINARY, "serve", *map(str, words), "--port", "0"], capture_output=True, text=True,
                                  timeout=60, check=False)
            self.assertNotEqual(0, done.returncode, words)
            self.assertIn(what, done.stderr)


if __name__ == "__main__":
    BINARY = sys.argv.pop(1)
    unittest.main()
