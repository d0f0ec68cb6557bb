#!/usr/bin/env python3
"""Load tests from end to end: `pelton bench serve`, `sweep`, `compare`, `history`, `throughput` against
`pelton serve` with a scripted model; and, with PELTON_FULL=1, the report in a headless Chromium.

usage: bench_test.py BINARY
"""
import json
import os
import pathlib
import pty
import re
import resource
import select
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from chromium import Chromium
from tiers import full

ROOT = pathlib.Path(__file__).resolve().parent.parent
BINARY = None
SCRIPT = {"step_ms": 2, "context": 4096, "slots": 16,
          "rules": [{"when": "", "then": ["<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
                                          "<|channel|>final<|message|>",
                                          {"text": "on and ", "times": 200}]}]}
# This test's figures are not looked at, so it need not wait for other measurements to end.
ENVIRONMENT = {**os.environ, "PELTON_BENCH_LOCK_HELD": "1"}


def pelton(*words, env=None):
    return subprocess.run([BINARY, *map(str, words)], capture_output=True, timeout=200, check=False,
                          env={**ENVIRONMENT, **(env or {})}, text=True)


class ServerTestCase(unittest.TestCase):
    """One server for all tests of a class."""

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="pelton_bench_"))
        model = cls.folder / "tiny"
        done = pelton("synth", "--like", ROOT / "testdata" / "golden" / "tiny" / "config.json", model)
        assert done.returncode == 0, done.stderr
        script = cls.folder / "script.json"
        script.write_text(json.dumps(SCRIPT))
        cls.server = subprocess.Popen([BINARY, "serve", model, "--port", "0", "--executor", f"modelled:{script}"],
                                      stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        ready, _, _ = select.select([cls.server.stdout], [], [], 60)
        assert ready, "the server did not begin to listen"
        cls.url = cls.server.stdout.readline().split()[-1]

    @classmethod
    def tearDownClass(cls):
        cls.server.send_signal(signal.SIGKILL)
        cls.server.wait(10)
        cls.server.stdout.close()
        shutil.rmtree(cls.folder)

    def serve(self, *words, code=0):
        done = pelton("bench", "serve", "--base-url", self.url, *words)
        self.assertEqual(done.returncode, code, done.stderr)
        return done


class LoadTests(ServerTestCase):
    def test_block_and_file_are_vllms(self):
        done = self.serve("--num-prompts", 12, "--random-input-len", 20, "--random-output-len", 10,
                          "--max-concurrency", 4, "--goodput", "ttft:5000", "e2el:9000", "--metadata", "commit=abc",
                          "--percentile-metrics", "ttft,tpot,itl", "--metric-percentiles", "50,99", "--save-result",
                          "--result-dir", self.folder / "results")
        lines = done.stdout.splitlines()
        self.assertEqual(lines[0], " Serving Benchmark Result ".center(50, "="))
        self.assertEqual(lines[1], f"{'Successful requests:':<40} {12:<10}")
        self.assertIn(f"{'Total generated tokens:':<40} {120:<10}", lines)
        self.assertIn("Time per Output Token (excl. 1st token)".center(50, "-"), lines)
        self.assertTrue(any(re.match(r"P99 ITL \(ms\): +\d+\.\d\d", line) for line in lines))
        self.assertIn("exact to the token", done.stdout)
        files = list((self.folder / "results").iterdir())
        self.assertEqual(len(files), 1)
        self.assertRegex(files[0].name, r"^openai-infqps-concurrency4-tiny-\d{8}-\d{6}\.json$")
        result = json.loads(files[0].read_text())
        self.assertEqual((result["completed"], result["failed"], result["total_output_tokens"]), (12, 0, 120))
        self.assertEqual((result["request_rate"], result["max_concurrency"], result["commit"]), ("inf", 4, "abc"))
        self.assertAlmostEqual(result["request_goodput"], result["request_throughput"])
        self.assertLessEqual(result["max_concurrent_requests"], 4)
        self.assertGreater(result["median_tpot_ms"], 1.5)  # steps take 2 ms

    def test_results_are_added_to_a_file(self):
        words = ("--num-prompts", 2, "--input-len", 9, "--output-len", 3, "--save-result", "--append-result",
                 "--result-dir", self.folder / "added", "--result-filename", "all.json")
        for _ in range(2):
            self.serve(*words)
        lines = (self.folder / "added" / "all.json").read_text().splitlines()
        self.assertEqual([2, 2], [json.loads(line)["completed"] for line in lines])

    def test_a_workload_file_is_what_is_asked(self):
        workload = self.folder / "workload.json"
        workload.write_text(json.dumps({"dataset": "random", "input_tokens": 9, "output_tokens": 4, "count": 5, "rate": "inf",
                                        "concurrency_max": 2}))
        done = self.serve("--workload", workload)
        self.assertIn(f"{'Successful requests:':<40} {5:<10}", done.stdout)
        self.assertIn(f"{'Total generated tokens:':<40} {20:<10}", done.stdout)
        self.assertIn(f"{'Maximum request concurrency:':<40} {2:<10}", done.stdout)
        both = self.serve("--workload", workload, "--num-prompts", 3, code=2)
        self.assertIn("--num-prompts", both.stderr)

    def test_template_arguments_go_into_every_chat(self):
        done = self.serve("--backend", "openai-chat", "--num-prompts", 1, "--input-len", 9, "--output-len", 3,
                          "--chat-template-kwargs", '{"reasoning_effort": "low"}')
        self.assertIn(f"{'Successful requests:':<40} {1:<10}", done.stdout)
        wrong = self.serve("--backend", "openai-chat", "--num-prompts", 1, "--chat-template-kwargs", "[1]", code=2)
        self.assertIn("--chat-template-kwargs", wrong.stderr)
        twice = self.serve("--backend", "openai-chat", "--num-prompts", 1, "--extra-body", '{"chat_template_kwargs": {"a": 1}}',
                           "--chat-template-kwargs", '{"b": 1}', code=2)
        self.assertIn("--extra-body has chat_template_kwargs", twice.stderr)

    def test_every_dialect_that_the_server_speaks(self):
        for backend in ("openai", "vllm", "openai-responses", "openai-chat"):
            done = self.serve("--backend", backend, "--num-prompts", 3, "--input-len", 9, "--output-len", 30)
            self.assertIn(f"{'Total generated tokens:':<40} {90:<10}", done.stdout, backend)
        self.assertIn("Reasoning tokens:", done.stdout)

    def test_embeddings(self):
        done = self.serve("--backend", "openai-embeddings", "--num-prompts", 3, "--input-len", 9)
        self.assertIn(f"{'Successful requests:':<40} {3:<10}", done.stdout)
        self.assertIn(f"{'Total generated tokens:':<40} {0:<10}", done.stdout)

    def test_documents_in_order(self):
        """--backend vllm-rerank: prompts become a query and documents; figures of documents; an answer is checked."""
        result = self.folder / "ranked.json"
        done = self.serve("--backend", "vllm-rerank", "--num-prompts", 3, "--input-len", 40, "--rerank-documents", 4,
                          "--result-filename", result)
        self.assertIn(f"{'Successful requests:':<40} {3:<10}", done.stdout)
        self.assertIn(f"{'Documents per request:':<40} {4:<10}", done.stdout)
        kept = json.loads(result.read_text())
        self.assertEqual((kept["documents_per_request"], kept["completed"], kept["failed"]), (4, 3, 0))
        self.assertGreater(kept["total_input_tokens"], 3 * 40 - 12, "the query is read with each document")
        few = self.serve("--backend", "vllm-rerank", "--num-prompts", 2, "--input-len", 40, "--extra-body",
                         '{"documents": ["a", "b", "c"], "top_n": 2}')
        self.assertIn(f"{'Successful requests:':<40} {2:<10}", few.stdout)
        self.assertIn(f"{'Documents per request:':<40} {3:<10}", few.stdout)

    def test_data_sets(self):
        custom = self.folder / "custom.jsonl"
        custom.write_text('{"prompt": "hello", "output_tokens": 3}\n{"messages": [{"role": "user", "content": "a"}]}\n')
        self.serve("--backend", "openai-chat", "--dataset-name", "custom", "--dataset-path", custom, "--num-prompts", 2,
                   "--ignore-eos", "--custom-output-len", 4)
        trace = self.folder / "trace.jsonl"
        trace.write_text("".join(json.dumps({"timestamp": 100 * i, "input_length": 20, "output_length": 5}) + "\n"
                                 for i in range(4)))
        done = self.serve("--dataset-name", "trace", "--dataset-path", trace, "--trace-speed", 2)
        self.assertIn(f"{'Successful requests:':<40} {4:<10}", done.stdout)
        self.serve("--dataset-name", "prefix_repetition", "--num-prompts", 4, "--prefix-repetition-num-prefixes", 2,
                   "--prefix-repetition-prefix-len", 32, "--prefix-repetition-output-len", 3)
        talk = self.serve("--backend", "openai-chat", "--num-prompts", 2, "--turns", 3, "--input-len", 5,
                          "--output-len", 20)
        self.assertIn(f"{'Successful requests:':<40} {6:<10}", talk.stdout)
        missing = self.serve("--dataset-name", "trace", code=2)
        self.assertIn("--dataset-path", missing.stderr)

    def test_fails_as_told(self):
        few = ("--num-prompts", 2, "--input-len", 5, "--output-len", 3)
        self.assertIn("completed>1", self.serve(*few, "--fail-if", "failed>0", "completed>1", code=1).stderr)
        self.serve(*few, "--fail-if", "failed>0", "p99_ttft_ms>100000")
        self.assertIn("--fail-if", self.serve(*few, "--fail-if", "speed>1", code=2).stderr)
        self.assertIn("no '", self.serve(*few, "--percentile-metrics", "tfft", code=2).stderr)
        self.assertIn("HTTP 404", self.serve(*few, "--model", "nobody", code=2).stderr)
        gone = pelton("bench", "serve", "--base-url", "http://127.0.0.1:1", "--model", "m", *few)
        self.assertEqual(gone.returncode, 1)
        self.assertIn("127.0.0.1:1", gone.stderr)

    def test_history_shows_what_got_worse(self):
        database = self.folder / "bench.db"
        few = ("--num-prompts", 4, "--input-len", 5, "--output-len", 20, "--history", database, "--max-concurrency", 1)
        self.assertIn("first result", self.serve(*few).stdout)
        with sqlite3.connect(database) as kept:
            (text,) = kept.execute("select json from results").fetchone()
            past = json.loads(text)
            past["median_tpot_ms"] /= 4
            kept.execute("update results set json = ?", (json.dumps(past),))
        kept.close()
        worse = self.serve(*few).stdout
        self.assertIn("REGRESSION", worse)
        self.assertRegex(worse, r"TPOT median, ms .* -> ")
        trends = self.folder / "trends.html"
        listed = pelton("bench", "history", database, "--html", trends)
        self.assertIn("TTFT median", trends.read_text())
        self.assertEqual(len(listed.stdout.splitlines()), 3, listed.stderr)

    def test_sweep_and_compare(self):
        results = self.folder / "sweep"
        report = self.folder / "sweep.html"
        done = pelton("bench", "sweep", "--base-url", self.url, "--concurrencies", "1,2,4", "--requests-per-unit", 3,
                      "--input-len", 20, "--output-len", 15, "--save-result", "--result-dir", results, "--html", report)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(done.stdout.splitlines()), 4)
        page = report.read_text()
        self.assertIn("Throughput against concurrency", page)
        self.assertIn("Pareto front", page)
        files = sorted(results.iterdir())
        self.assertEqual(len(files), 3)
        compared = pelton("bench", "compare", *files)
        self.assertEqual(compared.returncode, 0, compared.stderr)
        lines = self.folder / "lines.jsonl"  # as --append-result writes them
        lines.write_text("".join(json.dumps(json.loads(pathlib.Path(file).read_text())) + "\n" for file in files))
        appended = pelton("bench", "compare", lines)
        self.assertEqual((appended.returncode, appended.stdout), (0, compared.stdout), appended.stderr)
        self.assertIn("output tokens/s", compared.stdout)
        broken = self.folder / "broken.json"
        broken.write_text("{}")
        self.assertEqual(pelton("bench", "compare", broken).returncode, 2)

    def test_C2_a_long_test_says_so_first(self):
        process = subprocess.Popen([BINARY, "bench", "serve", "--base-url", self.url, "--input-len", "50",
                                    "--output-len", "200"],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
        said = process.stderr.readline()
        process.kill()
        process.communicate()
        self.assertRegex(said, r"1000 requests: .* one after the other would take \d+m")
        self.assertEqual(self.serve("--num-prompts", 2, "--input-len", 5, "--output-len", 4).stderr, "")
        # 50 conversations a second for two seconds, whatever their turns, and then the pauses of one.
        process = subprocess.Popen([BINARY, "bench", "serve", "--base-url", self.url, "--num-prompts", "100", "--input-len",
                                    "5", "--output-len", "100", "--turns", "6", "--request-rate", "50"],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
        said = process.stderr.readline()
        process.kill()
        process.communicate()
        self.assertRegex(said, r"600 requests: .* at least [2-9](\.\d+)? ?s as they come")

    def test_reading_a_history_makes_none(self):
        missing = self.folder / "nope.db"
        done = pelton("bench", "history", missing)
        self.assertEqual(done.returncode, 1)
        self.assertIn("does not exist", done.stderr)
        self.assertFalse(missing.exists())

    def test_C_a_folder_is_no_history(self):
        done = pelton("bench", "history", self.folder)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn(f"{self.folder} is a folder; name the file", done.stderr)

    def test_throughput_without_a_server(self):
        file = self.folder / "throughput.json"
        done = pelton("bench", "throughput", ROOT / "testdata" / "golden" / "tiny", "--num-prompts", 6, "--input-len", 10,
                      "--output-len", 8, "--max-model-len", 64, "--output-json", file)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"^Throughput: [\d.]+ requests/s, [\d.]+ total tokens/s, [\d.]+ output tokens/s\n")
        numbers = json.loads(file.read_text())
        self.assertEqual((numbers["num_requests"], numbers["total_num_tokens"]), (6, 6 * 18))

    def test_interrupt_reports_what_there_was(self):
        process = subprocess.Popen([BINARY, "bench", "serve", "--base-url", self.url, "--num-prompts", "1000",
                                    "--input-len", "5", "--output-len", "20", "--max-concurrency", "2"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
        time.sleep(2)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 0, err)
        self.assertIn("were not waited for", err)
        self.assertIn("Serving Benchmark Result", out)


    def test_a_terminal_sees_it_run(self):
        master, slave = pty.openpty()
        process = subprocess.Popen([BINARY, "bench", "serve", "--base-url", self.url, "--num-prompts", "30",
                                    "--input-len", "5", "--output-len", "40", "--request-rate", "15"],
                                   stdout=subprocess.DEVNULL, stderr=slave, env={**ENVIRONMENT, "TERM": "xterm"})
        os.close(slave)
        seen = b""
        while True:
            try:
                piece = os.read(master, 65536)
            except OSError:  # the terminal's other end is closed
                break
            if not piece:
                break
            seen += piece
        os.close(master)
        self.assertEqual(process.wait(30), 0, seen)
        text = seen.decode()
        self.assertRegex(text, r"\r +\d+% \d+/30 done  \d+ running  \d+ tok/s  [\d.]+ req/s  .* left")
        self.assertTrue(text.endswith("\r\x1b[K"), "the line is cleared")


class Hostile(unittest.TestCase):
    """E5: servers that claim, flood and never end."""

    def serve(self, answer, pause=0.0):
        """`answer(path) -> (head, piece, times)`; piece is repeated, for ever if times is None."""
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)

        def talk(connection):
            with connection:
                try:
                    asked = b""
                    while b"\r\n\r\n" not in asked:
                        asked += connection.recv(65536)
                    head, piece, times = answer(asked.split()[1].decode())
                    connection.sendall(head)
                    sent = 0
                    while times is None or sent < times:
                        connection.sendall(piece)
                        sent += 1
                        if times is None and len(piece) < 100:
                            time.sleep(0.02)
                        time.sleep(pause)
                except OSError:
                    pass

        def accept():
            while True:
                try:
                    connection = listener.accept()[0]
                except OSError:
                    return
                threading.Thread(target=talk, args=(connection,), daemon=True).start()
        threading.Thread(target=accept, daemon=True).start()
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    MODELS = b'{"data":[{"id":"m"}]}'

    @staticmethod
    def whole(body, status=b"200 OK"):
        return (b"HTTP/1.1 " + status + b"\r\nContent-Type: application/json\r\nContent-Length: " +
                str(len(body)).encode() + b"\r\nConnection: close\r\n\r\n", body, 1)

    STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    ENDLESS = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"

    def bench(self, url, *more, seconds=60):
        return subprocess.run([BINARY, "bench", "serve", "--base-url", url, "--num-prompts", "2", "--input-len", "5",
                               "--output-len", "4", *more], capture_output=True, text=True, timeout=seconds, check=False,
                              env=ENVIRONMENT, preexec_fn=lambda: resource.setrlimit(
                                  resource.RLIMIT_AS, (3 << 30, 3 << 30)))

    def test_E5_hostile_servers_do_no_harm(self):
        huge = b'data: {"choices":[{"text":"a"}],"usage":{"completion_tokens":9223372036854775807}}\n\n'
        chunk = b'data: {"choices":[{"text":"on"}]}\n\n'
        for name, models, answers, said in (
                ("claims", self.whole(self.MODELS), (self.STREAM, huge, 1), "not believed"),
                ("endless models", (self.ENDLESS, b" " * 65536, None), None, "larger than the limit"),
                ("dripping models", (self.ENDLESS, b" ", None), None, "did not end its list of models within"),
                ("endless head", (b"HTTP/1.1 200 OK\r\n", b"A: " + b"b" * 60000 + b"\r\n", None), None, "header|large|limit|127"),
                ("endless event", self.whole(self.MODELS), (self.STREAM, b"data: " + b"x" * 65536, None), "event"),
                ("endless stream", self.whole(self.MODELS), (self.STREAM, chunk * 50, None), "not believed"),
                ("comments", self.whole(self.MODELS), (self.STREAM, b": ping\n\n", None), "--timeout-sec"),
                ("endless body", self.whole(self.MODELS), (self.ENDLESS, b" " * 65536, None), "larger than"),
                ("no model", self.whole(b'{"data":[{"id":"\\u001b[2J"}]}'), None, "cannot be one"),
                ("a length that lies", (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n", b"x", 1), None, "127|length|HTTP")):
            with self.subTest(name):
                url = self.serve(lambda path, m=models, a=answers: m if path.endswith("/models") else a)
                done = self.bench(url, "--timeout-sec", "2")
                self.assertEqual(done.returncode, 1, (done.returncode, done.stderr))  # not wrong usage
                self.assertRegex(done.stderr, said)
                self.assertNotIn("\x1b", done.stdout + done.stderr)

    def test_E5_after_a_good_probe_too(self):
        chunk = b'data: {"choices":[{"text":"on"}],"usage":{"prompt_tokens":5,"completion_tokens":4}}\n\n'
        good = (self.STREAM, chunk + b"data: [DONE]\n\n", 1)
        for name, later, said in (("endless stream", (self.STREAM, b'data: {"choices":[{"text":"on"}]}\n\n' * 50, None), "not believed"),
                                  ("comments", (self.STREAM, b": ping\n\n", None), "--timeout-sec"),
                                  ("endless body", (self.ENDLESS, b" " * 65536, None), "larger than"),
                                  ("drip", (self.ENDLESS, b" ", None), "--timeout-sec")):
            with self.subTest(name):
                asked = []

                def answer(path, later=later, asked=asked):
                    if path.endswith("/models"):
                        return self.whole(self.MODELS)
                    asked.append(path)
                    return good if len(asked) == 1 else later
                # A busy machine needs its time to send what is too large; what waits for an end of time need not wait long.
                done = self.bench(self.serve(answer), "--timeout-sec", "2" if said == "--timeout-sec" else "30")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertRegex(done.stdout, r"Failed requests: +2")
                self.assertIn(said, done.stdout)

    def test_E5_a_slow_first_answer_is_not_silence(self):
        pieces = 40

        def talk(path):
            if path.endswith("/models"):
                return self.whole(self.MODELS)
            return (self.STREAM, b'data: {"choices":[{"text":"on"}]}\n\n', pieces)
        listener = self.serve(talk, pause=0.05)
        done = self.bench(listener, "--timeout-sec", "1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"Successful requests: +2")

    def test_E5_what_the_body_asks_for_is_believed(self):
        piece = json.dumps({"choices": [{"text": "on"}], "usage": {"prompt_tokens": 5, "completion_tokens": 5000}})
        url = self.serve(lambda path: self.whole(self.MODELS) if path.endswith("/models") else
                         (self.STREAM, f"data: {piece}\n\ndata: [DONE]\n\n".encode(), 1))
        self.assertIn("not believed", self.bench(url).stderr)
        for more in ('{"max_tokens":5000}', '{"n":1500}'):
            done = self.bench(url, "--extra-body", more)
            self.assertRegex(done.stdout, r"Successful requests: +2", done.stderr)

    def test_readiness_is_waited_for_without_a_model(self):
        asked = []

        def answer(path):
            asked.append(path)
            if len(asked) < 3:
                return self.whole(b'{"error":{"message":"loading"}}', b"503 Service Unavailable")
            if path.endswith("/models"):
                return self.whole(self.MODELS)
            return (self.STREAM, b'data: {"choices":[{"text":"on"}]}\n\ndata: [DONE]\n\n', 1)
        url = self.serve(answer)
        self.assertEqual(self.bench(url).returncode, 1)
        asked.clear()
        done = self.bench(url, "--ready-check-timeout-sec", "30")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_E5_sigterm_ends_every_wait(self):
        for name, models, answers in (("models", (self.ENDLESS, b" ", None), None),
                                      ("question", self.whole(self.MODELS), (self.STREAM, b": ping\n\n", None))):
            with self.subTest(name):
                url = self.serve(lambda path, m=models, a=answers: m if path.endswith("/models") else a)
                process = subprocess.Popen([BINARY, "bench", "serve", "--base-url", url, "--num-prompts", "2"],
                                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
                time.sleep(1.5)
                process.send_signal(signal.SIGTERM)
                _, err = process.communicate(timeout=20)
                self.assertEqual(process.returncode, 130, err)

    def test_C8_a_refused_key_is_named(self):
        url = self.serve(lambda path: self.whole(b'{"error":{"message":"Incorrect API key"}}', b"401 Unauthorized"))
        for more in ((), ("--model", "m")):
            done = self.bench(url, *more)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("OPENAI_API_KEY", done.stderr)
            self.assertIn("Incorrect API key", done.stderr)
            self.assertNotIn("--model names one", done.stderr)

    def test_E6_files_cannot_steer_the_terminal(self):
        with tempfile.TemporaryDirectory() as folder:
            files = []
            for i in range(2):
                file = pathlib.Path(folder, f"r\x1b]0;title\x07{i}.json")
                file.write_text(json.dumps({"duration": 2, "completed": 4, "model_id": "\x1b[31mred\x9b2J\nx",
                                            "label": "l\x1b[2J", "backend": "\x1b[5m", "max_concurrency": "\x1b[H",
                                            "output_throughput": 1e308, "median_ttft_ms": -1e308}))
                files.append(file)
            page = pathlib.Path(folder, "page.html")
            done = subprocess.run([BINARY, "bench", "compare", *files, "--html", page], capture_output=True, check=False,
                                  timeout=60)
            self.assertEqual(done.returncode, 0, done.stderr)
            for hostile in (b"\x1b", b"\x07", b"\xc2\x9b"):
                self.assertNotIn(hostile, done.stdout)
            pathlib.Path(folder, "bad.json").write_bytes(b'{"a": \x1b[2J')
            done = subprocess.run([BINARY, "bench", "compare", f"{folder}/bad.json", f"{folder}/x\x1b[2J"],
                                  capture_output=True, check=False, timeout=60)
            self.assertNotIn(b"\x1b", done.stderr)


@full
class Report(ServerTestCase):
    LOOK = """(() => {
      const lines = [...document.querySelectorAll('svg path.line')];
      const letters = t => parseFloat(getComputedStyle(t).fontSize) *
        t.ownerSVGElement.getBoundingClientRect().width / t.ownerSVGElement.viewBox.baseVal.width;
      return {figures: document.querySelectorAll('figure').length,
              empty: [...document.querySelectorAll('svg text')].filter(t => t.textContent == 'nothing to show').length,
              lines: lines.filter(l => l.getTotalLength() > 40).length,
              dots: document.querySelectorAll('svg circle').length,
              seen: lines.every(l => getComputedStyle(l).stroke != 'none'),
              smallest: Math.min(...[...document.querySelectorAll('svg text')].map(letters)),
              width: document.documentElement.scrollWidth,
              background: getComputedStyle(document.body).backgroundColor};
    })()"""

    def look_at(self, page, figures, lines, dots):
        profile = self.folder / "profile"
        browser = Chromium(profile)
        try:
            browser.open_page()
            for width, height in ((1280, 900), (390, 844)):
                url = page.as_uri()
                browser.visit(url, width, height)
                seen = browser.evaluate(self.LOOK)
                self.assertEqual((seen["figures"], seen["empty"]), (figures, 0), seen)
                self.assertGreaterEqual(seen["lines"], lines, seen)
                self.assertGreaterEqual(seen["dots"], dots, seen)
                self.assertTrue(seen["seen"], seen)
                self.assertLessEqual(seen["width"], width, "it must not scroll sideways")
                self.assertGreaterEqual(seen["smallest"], 10, "letters too small to read")
                asked = [event["params"]["request"]["url"] for event in browser.events
                         if event.get("method") == "Network.requestWillBeSent"]
                self.assertEqual([one for one in asked if one != url and not one.startswith("data:")], [])
                said = [event for event in browser.events
                        if event.get("method") in ("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled")]
                self.assertEqual(said, [])
        finally:
            browser.close()

    def test_C7_no_column_of_a_plan_is_cut(self):
        page = self.folder / "plan.html"
        done = pelton("plan", "gpt-oss-120b", "--instance", "p4de.24xlarge", "--slo", "itl=30ms", "--rps", 50, "--html", page)
        self.assertEqual(done.returncode, 0, done.stderr)
        browser = Chromium(self.folder / "profile")
        try:
            browser.open_page()
            browser.visit(page.as_uri(), 1280, 900)
            cut = browser.evaluate("[...document.querySelectorAll('table')].filter(t => t.scrollWidth > t.clientWidth).length")
            self.assertEqual(cut, 0)
        finally:
            browser.close()

    def test_one_run_and_a_sweep(self):
        self.assertIsNotNone(shutil.which("chromium"), "tools/install_packages --full")
        one = self.folder / "one.html"
        self.serve("--num-prompts", 40, "--input-len", 20, "--output-len", 60, "--request-rate", 20, "--html", one)
        self.look_at(one, figures=6, lines=6, dots=0)
        many = self.folder / "many.html"
        done = pelton("bench", "sweep", "--base-url", self.url, "--concurrencies", "1,4,16", "--requests-per-unit", 5,
                      "--input-len", 20, "--output-len", 60, "--html", many)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.look_at(many, figures=8, lines=8, dots=6)


if __name__ == "__main__":
    BINARY = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
