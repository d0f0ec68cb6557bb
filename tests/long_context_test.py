#!/usr/bin/env python3
"""As many tokens as the model has positions are taken, prompt and answer together; one more is the client's error.

usage: long_context_test.py BINARY

PELTON_FULL=1 computes all 131 072 positions of the tiny gpt-oss model; without it, only what is refused is asked.
"""
import json
import pathlib
import subprocess
import sys
import unittest
import urllib.error
import urllib.request

from tiers import full

BINARY = None
MODEL = pathlib.Path(__file__).resolve().parent.parent / "testdata/golden/tiny"
CONTEXT = 131072


class LongContext(unittest.TestCase):
    def setUp(self):
        self.process = subprocess.Popen([BINARY, "serve", MODEL, "--port", "0", "--max-model-len", str(CONTEXT),
                                         "--kv-cache-memory", "256MiB"],
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        line = self.process.stdout.readline()
        self.assertTrue(line.startswith("listening on "), line)
        self.url = line.split()[-1]

    def tearDown(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def complete(self, prompt_tokens, answer_tokens):
        """Status and JSON."""
        body = {"prompt": [i * 7919 % 500 for i in range(prompt_tokens)], "max_tokens": answer_tokens, "ignore_eos": True}
        request = urllib.request.Request(f"{self.url}/v1/completions", data=json.dumps(body).encode(),
                                         headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=1800) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def test_one_more_is_refused(self):
        for prompt, answer in ((CONTEXT, 1), (CONTEXT - 9, 10), (CONTEXT + 1, 1)):
            status, answered = self.complete(prompt, answer)
            self.assertEqual(400, status, (prompt, answer, str(answered)[:500]))
            self.assertIn(str(CONTEXT), answered["error"]["message"])

    @full
    def test_all_are_taken(self):
        status, answered = self.complete(CONTEXT - 3, 3)
        self.assertEqual(200, status, str(answered)[:500])
        self.assertEqual(CONTEXT, answered["usage"]["total_tokens"])
        self.assertEqual("length", answered["choices"][0]["finish_reason"])


if __name__ == "__main__":
    BINARY = sys.argv.pop(1)
    unittest.main()
