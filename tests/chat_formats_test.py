#!/usr/bin/env python3
"""A model of another family is served with its own chat format, and one without a tokenizer by token ids.

usage: chat_formats_test.py BINARY
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import urllib.error
import urllib.request

BINARY = None


class Served:
    def __init__(self, test, folder):
        self.process = subprocess.Popen([BINARY, "serve", folder, "--port", "0", "--max-model-len", "512"],
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

        def end():
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()
        test.addCleanup(end)
        line = self.process.stdout.readline()
        test.assertTrue(line.startswith("listening on "), line)
        self.port = int(line.rsplit(":", 1)[1])

    def post(self, path, body):
        """Status and JSON."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data=json.dumps(body).encode(),
                                         headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)


CHAT = {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello"}],
        "max_tokens": 5}


class ChatFormats(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.scratch.name) / "qwen3"
        subprocess.run([BINARY, "synth", "--like", "qwen3-0.6b", "--layers", "1", cls.folder], check=True,
                       capture_output=True, timeout=200)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def test_the_vocabulary_chooses_chatml(self):
        served = Served(self, self.folder)
        status, rendered = served.post("/v1/chat/completions/render", CHAT)
        self.assertEqual(200, status, rendered)
        self.assertIn("<|im_start|>system\\nBe brief.<|im_end|>\\n<|im_start|>user\\nhello<|im_end|>\\n"
                      "<|im_start|>assistant\\n", json.dumps(rendered, ensure_ascii=False))
        status, answer = served.post("/v1/chat/completions", CHAT)
        self.assertEqual(200, status, answer)
        self.assertIn(answer["choices"][0]["finish_reason"], ("length", "stop"))
        self.assertGreater(answer["usage"]["completion_tokens"], 0)
        status, answer = served.post("/v1/responses", {"input": "hello", "max_output_tokens": 5})
        self.assertEqual(200, status, answer)

    def test_without_a_tokenizer_token_ids_are_answered(self):
        tokenizer = self.folder / "tokenizer.json"
        text = tokenizer.read_bytes()
        tokenizer.unlink()
        try:
            served = Served(self, self.folder)
            status, answer = served.post("/v1/completions",
                                         {"prompt": [1, 2, 3], "max_tokens": 4, "return_token_ids": True})
            self.assertEqual(200, status, answer)
            self.assertEqual(4, len(answer["choices"][0]["token_ids"]), answer)
            for path, body in (("/v1/completions", {"prompt": "hello"}), ("/v1/chat/completions", CHAT),
                               ("/tokenize", {"prompt": "hello"})):
                status, answer = served.post(path, body)
                self.assertEqual(400, status, answer)
                self.assertIn("no tokenizer", json.dumps(answer))
        finally:
            tokenizer.write_bytes(text)


if __name__ == "__main__":
    BINARY = sys.argv.pop(1)
    unittest.main()
