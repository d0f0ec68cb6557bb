#!/usr/bin/env python3
"""Lines that start vLLM and SGLang, word for word behind `pelton serve`: each works, or says which word cannot and why.

usage: pasted_commands_test.py BINARY
"""
import http.client
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import unittest
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
BOX = ROOT / "models" / "pelton-box"
BINARY = None

# Words, and what is refused; an empty text: nothing is.
LINES = [
    ("openai/gpt-oss-120b --tensor-parallel-size 8 --max-model-len 4096 --swap-space 16 --disable-log-requests "
     "--gpu-memory-utilization 0.8 --download-dir /tmp/models", ""),
    ("openai/gpt-oss-120b --pipeline-parallel-size 2", "--pipeline-parallel-size 2"),
    ("openai/gpt-oss-120b --tp 8 --enable-expert-parallel", ""),
    ("openai/gpt-oss-120b --tp 8 --ep-size 8", "--ep-size 8"),
    ("openai/gpt-oss-120b --tensor-parallel-size 1 --max-model-len 4096 --swap-space 16 --disable-log-requests "
     "--gpu-memory-utilization 0.8 --download-dir /tmp/models", ""),
    ("--model openai/gpt-oss-120b --tp 8 --download-dir /tmp/models", ""),
    ("--model-path openai/gpt-oss-20b --port 30000", ""),
    # vLLM's recipe for gpt-oss.
    ("openai/gpt-oss-20b", ""),
    ("openai/gpt-oss-120b --async-scheduling", ""),
    ("openai/gpt-oss-120b --tensor-parallel-size 2 --async-scheduling", ""),
    ("openai/gpt-oss-20b --tool-call-parser openai --enable-auto-tool-choice", ""),
    ("openai/gpt-oss-20b --tool-call-parser openai --enable-auto-tool-choice --reasoning-parser openai_gptoss "
     "--max-num-batched-tokens 8192 --max-num-seqs 64 --trust-remote-code --enforce-eager", ""),
    ("openai/gpt-oss-120b --tool-server python=http://127.0.0.1:8001/mcp", ""),
    ("openai/gpt-oss-20b --served-model-name gpt-oss gpt-4o --uvicorn-log-level warning --seed 42 --max-logprobs 10", ""),
    ("openai/gpt-oss-20b --speculative-algorithm EAGLE3", "--speculative-algorithm"),
    ("openai/gpt-oss-20b --uds /tmp/s.sock", ""),
    ("openai/gpt-oss-20b --enable-sleep-mode --tokenizer openai/gpt-oss-120b", ""),
    ("openai/gpt-oss-20b --root-path /models/one --ssl-certfile c.pem --ssl-keyfile k.pem", ""),
    ("openai/gpt-oss-20b --generation-config vllm --kv-cache-dtype fp8_e4m3 --scheduling-policy priority", ""),
    ("openai/gpt-oss-20b --quantization awq", "--quantization awq"),
    ("openai/gpt-oss-20b --api-key one two --served-model-name a b", ""),
    ("--served-model-name a --model openai/gpt-oss-20b", ""),
    ("openai/gpt-oss-20b --cuda-graph-sizes 1 2 4 8 --swap-space 0.5 -O3", ""),
    ("openai/gpt-oss-20b --revision 1a2b3c", ""),
    ("openai/gpt-oss-20b --revision main --dtype auto --load-format auto", ""),
    ("--model-path openai/gpt-oss-20b --mem-fraction-static 0.8 --context-length 8192 --chunked-prefill-size 4096 "
     "--max-running-requests 32 --disable-radix-cache --disable-cuda-graph --attention-backend triton --random-seed 7", ""),
]


def serve(*words, env=None):
    return subprocess.run([BINARY, "serve", *map(str, words)], capture_output=True, text=True, timeout=60, check=False,
                          env={**os.environ, **(env or {})})


class PastedCommands(unittest.TestCase):
    def test_each_line_works_or_names_the_word(self):
        for line, refused in LINES:
            with self.subTest(line):
                result = serve(*line.split(), "--print-config")
                if refused:
                    self.assertEqual(result.returncode, 2, result.stderr)
                    self.assertIn(f"{refused} is not supported", result.stderr)
                    self.assertRegex(result.stderr, r": \S.{10,}")
                else:
                    self.assertEqual(result.returncode, 0, result.stderr)

    def test_a_word_too_many_is_no_model_and_is_not_shown(self):
        for words in (("--enforce-eager", "sesame"), ("--pipeline-parallel-size", "1", "sesame")):
            result = serve(BOX, *words, "--port", "0")
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn(words[0], result.stderr)
            self.assertNotIn("sesame", result.stderr)
        config = serve("--served-model-name", "a", "--model", "openai/gpt-oss-20b", "--print-config").stdout
        self.assertRegex(config, r'(?m)^model = \["openai/gpt-oss-20b"\]')
        self.assertRegex(config, r'(?m)^served-model-name = \["a"\]')

    def test_each_of_several_keys_opens(self):
        port = self.start(BOX, "--api-key", "one", "two")
        for key, status in (("one", 200), ("two", 200), ("one two", 401), ("three", 401)):
            request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/models", headers={"Authorization": f"Bearer {key}"})
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    self.assertEqual(answer.status, status)
            except urllib.error.HTTPError as error:
                self.assertEqual(error.code, status)
                error.close()
        self.assertNotIn("two", self.log)

    def test_packed_in_memory_it_answers_as_from_files(self):
        with tempfile.TemporaryDirectory() as cache:
            answers = []
            for more in ((), ("--weights-cache", cache), ("--weights-cache", cache)):
                port = self.start(BOX, "--weights", "int8", "--seed", "7", *more)
                answers.append(self.ask(port, "/v1/completions", "pelton-box"))
                self.end()
            self.assertEqual(1, len(set(answers)), answers)
            listed = subprocess.run([BINARY, "cache", "list", "--weights-cache", cache], capture_output=True, text=True,
                                    timeout=60, check=True).stdout
            self.assertIn("packed from", listed)
            subprocess.run([BINARY, "cache", "purge", "--packed", "--all", "--weights-cache", cache], capture_output=True,
                           timeout=60, check=True)
            self.assertFalse([path for path in pathlib.Path(cache).iterdir() if path.is_dir()])

    def test_variables_of_sagemakers_containers(self):
        options = {"OPTION_MODEL_ID": "openai/gpt-oss-20b", "OPTION_ROLLING_BATCH": "vllm", "OPTION_TENSOR_PARALLEL_DEGREE": "max",
                   "OPTION_MAX_ROLLING_BATCH_SIZE": "8", "OPTION_MAX_INPUT_LEN": "1024", "OPTION_MAX_OUTPUT_LEN": "512",
                   "OPTION_MAX_MODEL_LEN": "4096", "OPTION_DTYPE": "bf16"}
        result = serve("--print-config", env=options)
        self.assertEqual(result.returncode, 0, result.stderr)
        for line in (r'max-num-seqs = 8 ', r'max-model-len = "?4096\b', r'model = \["openai/gpt-oss-20b"\]'):
            self.assertRegex(result.stdout, f"(?m)^{line}")
        refused = serve("--print-config", env={**options, "OPTION_TENSOR_PARALLEL_DEGREE": "8"})
        self.assertEqual(refused.returncode, 3, refused.stderr)
        self.assertIn("$OPTION_TENSOR_PARALLEL_DEGREE 8 is not supported", refused.stderr)

    def test_a_variable_that_nobody_reads_is_named(self):
        self.start(BOX, env={"OPTION_MAX_MODEL_LENGHT": "4096"})
        self.assertIn("$OPTION_MAX_MODEL_LENGHT is not known, and changes nothing", self.log)

    def test_a_unix_socket_in_place_of_a_port(self):
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/serve.sock"
            process = subprocess.Popen([BINARY, "serve", BOX, "--uds", path], stdout=subprocess.PIPE,
                                       stderr=subprocess.DEVNULL, text=True)
            self.addCleanup(process.stdout.close)
            self.addCleanup(process.wait, 60)
            self.addCleanup(process.terminate)
            self.assertEqual(f"listening on unix:{path}\n", process.stdout.readline())
            connection = http.client.HTTPConnection("any.example")
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.connect(path)
            body = json.dumps({"prompt": "Once", "max_tokens": 30, "stream": True})
            connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
            with connection.getresponse() as answer:
                self.assertEqual(200, answer.status)
                self.assertTrue(answer.read().endswith(b"data: [DONE]\n\n"))
            connection.close()
            second = serve(BOX, "--uds", path)
            self.assertEqual(6, second.returncode, second.stderr)
            self.assertIn("is in use by another program", second.stderr)
            process.terminate()
            self.assertEqual(0, process.wait(60))
            self.assertFalse(os.path.exists(path))
            pathlib.Path(path).write_text("a file")
            refused = serve(BOX, "--uds", path)
            self.assertEqual(2, refused.returncode, refused.stderr)
            self.assertIn("something else", refused.stderr)

    def test_another_tokenizer_is_used_where_it_fits(self):
        answers = []
        for words in ((), ("--tokenizer", BOX), ("--tokenizer-path", BOX / "tokenizer.json")):
            port = self.start(BOX, "--seed", "7", *words)
            answers.append(self.ask(port, "/v1/completions", "pelton-box"))
            self.end()
        self.assertEqual(1, len(set(answers)), answers)
        for place, words in ((ROOT, "there is no tokenizer.json"), ("/no/such/place", "there is no folder")):
            refused = serve(BOX, "--tokenizer", place, "--port", "0")
            self.assertEqual(2, refused.returncode, refused.stderr)
            self.assertIn("--tokenizer", refused.stderr)
            self.assertIn(words, refused.stderr)

    def test_a_revision_of_a_hub_id(self):
        with tempfile.TemporaryDirectory() as hub:
            model = pathlib.Path(hub, "models--mine--box")
            commit = "0123456789abcdef0123456789abcdef01234567"
            (model / "refs" / "refs").mkdir(parents=True)
            (model / "snapshots").mkdir()
            (model / "snapshots" / commit).symlink_to(BOX)
            (model / "refs" / "v1").write_text(commit)
            env = {"HF_HUB_CACHE": hub, "HF_HUB_OFFLINE": "1"}
            for revision in ("v1", commit):
                port = self.start("mine/box", "--revision", revision, env=env)
                self.assertTrue(self.ask(port, "/v1/completions", "mine/box"))
                self.end()
            for words, said in (((), "pelton pull mine/box"), (("--revision", "v2"), "pelton pull mine/box --revision v2"),
                                (("--revision", "../v1"), "a branch, a tag or a commit")):
                refused = serve("mine/box", *words, "--port", "0", env=env)
                self.assertNotEqual(0, refused.returncode)
                self.assertIn(said, refused.stderr)
            refused = serve(BOX, "--revision", "v1", "--port", "0")
            self.assertEqual(2, refused.returncode, refused.stderr)

    def test_what_has_no_meaning_is_noted(self):
        port = self.start(BOX, "--enforce-eager", "--trust-remote-code")
        self.assertTrue(port)
        notes = [line for line in self.log.splitlines() if "note: " in line]
        self.assertEqual(len(notes), 2, self.log)
        self.assertIn("--enforce-eager changes nothing here: ", notes[0])

    def test_sizes_of_the_swap_space(self):
        for text, shown in (("16", "16"), ("16GiB", "16GiB"), ("0", "0")):
            result = serve(BOX, "--swap-space", text, "--print-config")
            self.assertRegex(result.stdout, rf'(?m)^swap-space = "?{shown}\b')
        plans = [subprocess.run([BINARY, "plan", BOX, "--memory", "--json", "--swap-space", text],
                                capture_output=True, text=True, timeout=60, check=False).stdout for text in ("1", "1GiB")]
        self.assertEqual(*plans)
        self.assertTrue(plans[0])
        small = serve(BOX, "--swap-space", "16B", "--port", "0")
        self.assertNotEqual(small.returncode, 0)
        small = serve(BOX, "--swap-space", "512K", "--port", "0")
        self.assertEqual(small.returncode, 2, small.stderr)
        self.assertIn("less than 1 MiB", small.stderr)

    def test_names_root_path_and_seed_are_obeyed(self):
        with tempfile.TemporaryDirectory() as folder:
            words = ("--model", BOX, "--served-model-name", "one", "two", "--root-path", "/box", "--seed", "42",
                     "--download-dir", folder)
            answers = []
            for _ in range(2):
                port = self.start(*words)
                answers.append([self.ask(port, path, "two") for path in ("/v1/completions", "/box/v1/completions")])
            self.assertEqual(answers[0], answers[1])

    def ask(self, port, path, model):
        body = f'{{"model": "{model}", "prompt": "Once", "max_tokens": 12, "temperature": 1.5}}'
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body.encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return re.search(rb'"text":"(.*?)","logprobs"', answer.read())[1]

    def start(self, *words, env=None):
        process = subprocess.Popen([BINARY, "serve", *map(str, words), "--port", "0"], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})})

        def end():
            process.terminate()
            process.wait(60)
            process.stdout.close()
            process.stderr.close()
        self.end = lambda: process.poll() is None and (process.terminate(), process.wait(60))
        self.addCleanup(end)
        line = process.stdout.readline()
        self.log = ""
        if not line.startswith("listening on "):
            self.fail(process.stderr.read())
        os.set_blocking(process.stderr.fileno(), False)
        self.log = process.stderr.read() or ""
        return int(line.rsplit(":", 1)[1])


if __name__ == "__main__":
    BINARY = sys.argv.pop(1)
    unittest.main()
