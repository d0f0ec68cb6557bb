#!/usr/bin/env python3
"""serve's flags for memory, batching, queue and policy do what they say, and plan foretells it.

usage: serve_flags_test.py BINARY
"""
import http.client
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request

from tiers import full

ROOT = pathlib.Path(__file__).resolve().parent.parent
BINARY = None


def pelton(*words, env=None):
    return subprocess.run([BINARY, *map(str, words)], capture_output=True, env={**os.environ, **(env or {})},
                          timeout=200, check=False)


class Server:
    """A running server, its port and what it logs."""

    def __init__(self, test, *flags, env=None):
        self.log = []
        self.process = subprocess.Popen([BINARY, "serve", *map(str, flags), "--port", "0"], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, env={**os.environ, **(env or {})}, text=True)
        reader = threading.Thread(target=lambda: self.log.extend(iter(self.process.stderr.readline, "")))
        reader.start()

        def end():
            self.process.kill()
            self.process.wait()
            reader.join()
            self.process.stdout.close()
            self.process.stderr.close()
        test.addCleanup(end)
        self.port = self.read_port(test, "listening on ")
        self.admin_port = self.read_port(test, "admin on ") if "--admin-port" in flags else None

    def read_port(self, test, words):
        line = self.process.stdout.readline()
        test.assertTrue(line.startswith(words), line + "".join(self.log))
        return int(line.rsplit(":", 1)[1])

    def metric(self, name):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin_port}/metrics", timeout=30) as page:
            text = page.read().decode()
        found = re.search(rf"(?m)^{name} (\S+)$", text)
        assert found, f"no {name} in {text}"
        return float(found[1])

    def line(self, word):
        """The log line of that kind; it is written before the server listens."""
        for _ in range(100):
            for line in self.log:
                if f" {word}: " in line:
                    return line
            time.sleep(0.02)
        raise AssertionError(f"no {word} line in {self.log}")

    def logged(self, pattern):
        """A match in the log, which is read by a thread that may be behind."""
        for _ in range(500):
            found = re.search(pattern, "".join(self.log))
            if found:
                return found
            time.sleep(0.02)
        raise AssertionError(f"no {pattern} in {self.log}")

    def open(self, path, body):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data=json.dumps(body).encode(),
                                         headers={"Content-Type": "application/json"})
        return urllib.request.urlopen(request, timeout=120)

    def complete(self, prompt, **fields):
        with self.open("/v1/completions", {"prompt": prompt, "max_tokens": 1, "temperature": 0, **fields}) as answer:
            return json.loads(answer.read())

    def chat(self, messages, **fields):
        with self.open("/v1/chat/completions",
                       {"messages": messages, "max_tokens": 1, "temperature": 0, **fields}) as answer:
            return json.loads(answer.read())


def cached(answer):
    return (answer["usage"].get("prompt_tokens_details") or {}).get("cached_tokens", 0)


class Endless:
    """An answer that is being written until it is closed, and how many tokens of it have come."""

    def __init__(self, test, server, tokens=60_000):
        self.count = 0
        self.answer = server.open("/v1/completions", {"prompt": [7, 8, 9], "max_tokens": tokens, "ignore_eos": True,
                                                      "temperature": 0, "logprobs": 0, "stream": True})
        self.thread = threading.Thread(target=self.read)
        self.thread.start()
        test.addCleanup(self.close)
        deadline = time.time() + 60
        while self.count == 0 and time.time() < deadline:
            time.sleep(0.002)
        test.assertGreater(self.count, 0)

    def read(self):
        try:
            for line in self.answer:  # under load an event holds more than one token
                if line.startswith(b"data: {"):
                    self.count += len(json.loads(line[6:])["choices"][0]["logprobs"]["tokens"])
        except (OSError, ValueError, AttributeError, http.client.HTTPException):
            pass

    def close(self):
        try:
            self.answer.fp.raw._sock.shutdown(2)  # wakes the reader
        except (OSError, AttributeError):
            pass
        self.thread.join()
        self.answer.close()


class Flags(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.model = cls.folder.name + "/model"
        done = pelton("synth", "--like", ROOT / "testdata/demo_model.json", cls.model)
        assert done.returncode == 0, done.stderr

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def serve(self, *flags, env=None):
        return Server(self, self.model, "--threads", 1, *flags, env=env)

    def plan(self, *flags, env=None):
        done = pelton("plan", self.model, "--memory", "--json", "--threads", 1, *flags, env=env)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def write(self, name, text):
        path = pathlib.Path(self.folder.name) / name
        path.write_text(text)
        return path

    def refused(self, code, *flags):
        done = pelton("serve", self.model, "--port", 0, *flags)
        self.assertEqual(done.returncode, code, f"{flags}: {done.stderr}")
        return done.stderr.decode()

    # Memory.

    def test_plan_foretells_what_serve_allocates_to_the_byte(self):
        for flags in (["--kv-cache-memory", "64MiB"],
                      ["--memory-utilization", "0.4", "--max-num-seqs", 3, "--max-model-len", "2K"],
                      ["--kv-cache-memory", "10MB", "--swap-space", "3MB", "--kv-cache-dtype", "bf16"],
                      ["--kv-cache-memory", "10MB", "--kv-cache-dtype", "int8", "--max-num-batched-tokens", 77],
                      ["--kv-cache-memory", "9MB", "--kv-cache-dtype", "fp8", "--no-enable-prefix-caching"],
                      ["--kv-cache-memory", "9MB", "--kernels", "reference", "--block-size", "32"]):
            numbers = self.plan(*flags)
            server = self.serve(*flags, "--log-level", "debug")
            line = server.line("memory, exactly")
            self.assertRegex(server.line("memory"), r"memory: \S+ [KMG]iB of \S+ GiB: weights \S+ [KM]iB, ")
            for key in ("weights", "workspace", "kv_allocated", "kv_formula", "swap", "total", "max_sequences"):
                found = re.search(rf"\b{key} (\d+)", line)
                self.assertTrue(found, line)
                self.assertEqual(int(found[1]), numbers[key], f"{key} with {flags}")

    def test_utilization_is_a_share_for_everything(self):
        small, large = self.plan("--memory-utilization", "0.2"), self.plan("--gpu-memory-utilization", "0.4")
        for numbers, share in ((small, 0.2), (large, 0.4)):
            self.assertLessEqual(numbers["total"], share * numbers["memory"])
        self.assertGreaterEqual(large["kv_allocated"], small["kv_allocated"])
        by_environment = self.plan(env={"PELTON_GPU_MEMORY_UTILIZATION": "0.2"})
        self.assertEqual(by_environment, small)
        both = self.refused(2, "--memory-utilization", 0.5, "--kv-cache-memory", "1GiB")
        self.assertIn("--kv-cache-memory and --memory-utilization", both)

    def test_A3_more_memory_than_there_is_is_refused_with_both_numbers(self):
        for flag in ("--kv-cache-memory", "--swap-space"):
            self.assertRegex(self.refused(5, flag, "3TiB"), flag + r" asks for \S+ GiB of \S+ GiB of memory.*at most \S+ GiB")
            done = pelton("plan", self.model, "--memory", flag, "3TiB")
            self.assertEqual(done.returncode, 5, done)
            self.assertRegex(done.stderr.decode(), flag + r" asks for \S+ GiB of \S+ GiB of memory")

    def test_flags_change_the_plan(self):
        base = ["--kv-cache-memory", "64MiB"]
        plain = self.plan(*base)
        self.assertGreater(self.plan(*base, "--max-num-batched-tokens", 1024)["workspace"], plain["workspace"])
        self.assertLess(self.plan(*base, "--max-num-seqs", 2)["kv_allocated_detail"]["window_blocks_live"],
                        plain["kv_allocated_detail"]["window_blocks_live"])
        self.assertEqual(self.plan(*base, "--max-model-len", "1K")["max_model_len"], 1024)
        self.assertGreater(self.plan(*base, "--kv-cache-dtype", "int8")["kv_tokens"], 1.8 * plain["kv_tokens"])
        self.assertGreater(self.plan(*base, "--no-prefix-caching")["kv_tokens"], plain["kv_tokens"])
        self.assertGreater(self.plan(*base, "--swap-space", "8MiB")["swap"], 0)

    def test_plan_of_a_shape_without_files(self):
        numbers = json.loads(pelton("plan", "gpt-oss-20b", "--memory", "--json", "--kv-cache-memory", "1GiB").stdout)
        self.assertEqual(numbers["kv_formula_detail"], {"per_token": 24 * 1024, "per_sequence": 3 << 20})
        text = pelton("plan", "gpt-oss-20b", "--memory", "--kv-cache-memory", "1GiB").stdout.decode()
        for word in ("weights", "working memory", "KV cache", "24.0 KiB a token", "#"):
            self.assertIn(word, text)

    def test_what_cannot_be_is_refused(self):
        if self.plan()["workspace_detail"]["kernels"] > 0:  # fast kernels
            self.assertIn("--block-size 32", self.refused(2, "--block-size", 32))
        self.assertIn("--block-size is one of", self.refused(2, "--block-size", 17))
        self.assertIn("--kv-cache-dtype is one of", self.refused(2, "--kv-cache-dtype", "fp4"))
        self.assertIn("--max-model-len", self.refused(5, "--max-model-len", "64K", "--kv-cache-memory", "5MB"))
        self.refused(2, "--memory-utilization", 1.5)
        self.refused(2, "--enable-prefix-caching", "--no-enable-prefix-caching")
        self.refused(2, "--steps-in-flight", 3)
        self.refused(2, "--scheduling-policy", "lottery")

    # The engine.

    def test_weights_of_the_cpu_are_refused_on_a_gpu(self):
        for weights in ("int8", "auto"):
            self.assertIn(f"--weights {weights}", self.refused(2, "--device", "cuda", "--weights", weights))

    def test_engine_line(self):
        line = self.serve("--max-num-seqs", 3, "--max-num-batched-tokens", 99, "--max-num-queued-reqs", 5,
                          "--max-num-queued-tokens", "3k", "--steps-in-flight", 1, "--scheduling-policy",
                          "decode-first", "--no-enable-prefix-caching").line("engine")
        self.assertIn("3 slots, 99 tokens a step, 64 of prompts beside decodes, decode-first, 1 in flight; queue of "
                      "5 requests and 3000 tokens; prefix cache off", line)
        self.assertIn("prefill-first, 2 in flight; queue of 1024 requests", self.serve().line("engine"))

    def test_prefix_cache_on_and_off(self):
        prompt = list(range(100, 400))
        for flags, found in ((["--enable-prefix-caching"], 288), (["--no-enable-prefix-caching"], 0)):
            server = self.serve(*flags)
            self.assertEqual(cached(server.complete(prompt)), 0)
            self.assertEqual(cached(server.complete(prompt)), found)

    def test_slots(self):
        server = self.serve("--max-num-seqs", 1, "--max-model-len", "64K")
        first = Endless(self, server)
        done = []
        second = threading.Thread(target=lambda: done.append(server.complete([1, 2, 3])))
        second.start()
        time.sleep(0.5)
        self.assertEqual(done, [])  # there is one slot
        first.close()
        second.join(60)
        self.assertEqual(len(done), 1)

    def test_queue_bounds(self):
        server = self.serve("--max-num-seqs", 1, "--max-num-queued-reqs", 2, "--max-num-queued-tokens", 1000,
                            "--max-model-len", "64K")
        first = Endless(self, server)
        waiting = []

        def wait(prompt):
            waiting.append(threading.Thread(target=server.complete, args=(prompt,)))
            waiting[-1].start()
            time.sleep(0.3)

        def expect_refusal(prompt, word):
            with self.assertRaises(urllib.error.HTTPError) as refused:
                server.complete(prompt)
            self.assertEqual(refused.exception.code, 429)
            self.assertTrue(refused.exception.headers["Retry-After"])
            self.assertIn(word, refused.exception.read().decode())
        wait([1] * 700)
        expect_refusal([5] * 700, "1000")
        wait([2])
        expect_refusal([9], "2")
        first.close()
        for thread in waiting:
            thread.join(60)

    def test_a_request_that_can_never_fit_is_refused_at_once_with_both_numbers(self):
        server = self.serve("--max-model-len", "4K", "--max-num-seqs", 1)
        Endless(self, server, tokens=4000)  # the only slot is taken: a refusal does not wait for it
        start = time.time()
        for path, body in (("/v1/completions", {"prompt": [5] * 5000, "max_tokens": 10}),
                           ("/v1/completions", {"prompt": [5] * 10, "max_tokens": 5000}),
                           ("/v1/chat/completions",
                            {"messages": [{"role": "user", "content": "a b " * 5000}], "max_tokens": 10})):
            with self.assertRaises(urllib.error.HTTPError) as refused:
                server.open(path, body)
            self.assertEqual(refused.exception.code, 400)
            error = json.loads(refused.exception.read())["error"]
            self.assertEqual(error["code"], "context_length_exceeded")
            self.assertIn("4096", error["message"])
            self.assertRegex(error["message"].replace("4096", ""), r"\b(5000|[0-9]{5})\b")
        self.assertLess(time.time() - start, 10)

    def test_stored_responses_outlive_the_server(self):
        with tempfile.TemporaryDirectory() as folder:
            store = "sqlite:" + folder + "/responses.db"
            flags = ("--max-model-len", "1K", "--kv-cache-memory", "8MiB", "--response-store", store)
            server = self.serve(*flags)
            with server.open("/v1/responses", {"input": "hi", "max_output_tokens": 4}) as answer:
                made = json.loads(answer.read())
            done = pelton("serve", self.model, "--port", 0, *flags)
            self.assertEqual(done.returncode, 3, done.stderr)  # one server at a time
            server.process.kill()
            server.process.wait()
            server = self.serve(*flags)
            with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/v1/responses/{made['id']}") as answer:
                self.assertEqual(json.loads(answer.read()), made)
            with server.open("/v1/responses", {"input": "more", "max_output_tokens": 4,
                                               "previous_response_id": made["id"]}) as answer:
                self.assertGreater(json.loads(answer.read())["usage"]["input_tokens"], made["usage"]["input_tokens"])
        done = pelton("serve", self.model, "--port", 0, "--response-store", "redis")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn(b"sqlite:FILE", done.stderr)

    def test_B6_reasoning_outlives_the_server_with_a_key_file(self):
        script = self.write("thinks.json", json.dumps({"rules": [{"when": "", "then":
            "<|channel|>analysis<|message|>A thought.<|end|><|start|>assistant<|channel|>final<|message|>Yes.<|return|>"}]}))
        key = self.write("reasoning.key", "k" * 64 + "\n")
        flags = ("--max-model-len", "1K", "--executor", f"modelled:{script}")
        ask = lambda server, items: server.open("/v1/responses", {
            "input": items, "store": False, "include": ["reasoning.encrypted_content"]})

        def sends_back(*more):
            """The warning that a second server has of the first one's reasoning."""
            server = self.serve(*flags, *more)
            with ask(server, "hi") as answer:
                output = json.loads(answer.read())["output"]
            self.assertTrue(output[0]["encrypted_content"].startswith("pelton1."), output)
            server.process.kill()
            server.process.wait()
            items = [{"role": "user", "content": "hi"}, output[0] | {"content": []}, {"role": "user", "content": "and?"}]
            with ask(self.serve(*flags, *more), items) as answer:
                return answer.headers["x-pelton-warning"]

        self.assertIsNone(sends_back("--reasoning-key-file", key))
        self.assertIn("encrypted with another key", sends_back())
        self.assertIn("at least 32", self.refused(3, "--reasoning-key-file", self.write("short.key", "short")))
        self.assertIn("/nowhere.key", self.refused(3, "--reasoning-key-file", "/nowhere.key"))

    def test_swap_space_saves_what_was_computed(self):
        # 96 blocks for four conversations that grow to 38 each.
        for swap, kind in (("0", "recompute"), ("8MiB", "swap")):
            server = self.serve("--admin-port", "0", "--max-model-len", "1K", "--max-num-seqs", 4,
                                "--max-num-batched-tokens", 64, "--kv-cache-memory", 4096 * (96 + 44),
                                "--no-enable-prefix-caching", "--swap-space", swap)
            asking = [threading.Thread(target=server.complete, args=([i + 1] * 100,),
                                       kwargs={"max_tokens": 500, "ignore_eos": True}) for i in range(4)]
            for thread in asking:
                thread.start()
            for thread in asking:
                thread.join(100)
            self.assertGreater(server.metric(rf'pelton_preemptions_total\{{[^}}]*kind="{kind}"[^}}]*\}}'), 0)

    def tokens_while_a_prompt_is_computed(self, *flags):
        server = self.serve("--max-model-len", "64K", "--kv-cache-memory", "256MiB", *flags)
        running = Endless(self, server)

        def tokens_during(prompt):
            before = running.count
            server.complete(prompt)
            time.sleep(0.05)  # the reader's
            return running.count - before

        # What the other gets anyway while a request is on its way, however fast it is.
        anyway = statistics.median(tokens_during([i]) for i in range(3))
        return tokens_during([(i * 37) % 4000 for i in range(6000)]), anyway

    @full
    def test_prompts_beside_decodes(self):
        # 12 steps of 512, 1500 of 4, 3000 of 2; while they run, the other gets as many tokens.
        few, anyway = self.tokens_while_a_prompt_is_computed()
        decode_first, _ = self.tokens_while_a_prompt_is_computed("--scheduling-policy", "decode-first",
                                                              "--prompt-tokens-beside-decodes", 4)
        bounded, _ = self.tokens_while_a_prompt_is_computed("--prompt-tokens-beside-decodes", 2)
        self.assertLess(few - anyway, 1000)  # 12, and what came while 6000 numbers were read
        self.assertGreater(decode_first, 1400)
        self.assertGreater(bounded, 2900)

    # Pinned prefixes.

    def test_a_pinned_chat_is_found_by_the_first_request(self):
        system = {"role": "system", "content": "You are a wheel. " * 30}
        file = self.write("pin.json", json.dumps([system]))
        server = self.serve("--pin-prefix", file, "--current-date", "2026-01-02")
        pinned = int(server.logged(r"pinned (\d+) tokens of " + re.escape(str(file)))[1])
        self.assertGreater(pinned, 64)
        self.assertEqual(cached(server.chat([system, {"role": "user", "content": "Turn."}])), pinned)
        # Much else in between does not drive it out.
        small = self.serve("--pin-prefix", file, "--current-date", "2026-01-02", "--max-model-len", 4096,
                           "--kv-cache-memory", "5MB", "--max-num-seqs", 2)
        for i in range(20):
            small.complete([i + 1] * 3000)
        self.assertEqual(cached(small.chat([system, {"role": "user", "content": "Turn."}])), pinned)

    @full
    def test_a_pinned_text_is_found_by_a_completion(self):
        text = "Water falls on the wheel and the wheel turns. " * 20
        server = self.serve("--pin-prefix", self.write("pin.txt", text))
        self.assertGreater(cached(server.complete(text + "Why?")), 64)

    def test_wrong_pins_name_the_file(self):
        for code, name, text, word in ((3, "a.json", "{", "a.json"), (3, "b.json", '{"messages": 3}', "b.json"),
                                       (3, "c.txt", "", "c.txt"), (3, "d.txt", "hi", "less than a block"),
                                       (5, "e.txt", "wheel " * 3000, "e.txt")):
            error = self.refused(code, "--max-model-len", "1K", "--pin-prefix", self.write(name, text))
            self.assertIn(word, error)
        self.assertIn("/nowhere.json", self.refused(3, "--pin-prefix", "/nowhere.json"))
        self.assertIn("no effect with --enable-prefix-caching false", self.refused(2, "--pin-prefix", "x", "--no-enable-prefix-caching"))


if __name__ == "__main__":
    BINARY = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
