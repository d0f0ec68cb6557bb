#!/usr/bin/env python3
"""The adapter in the box as a user meets it: it has learnt a task that the model has not, and answers in the company of the model and of
other adapters, guessed at or not, from the prefix cache's tiers or not, as it does alone.

usage: lora_box_test.py PELTON MODEL_FOLDER      The questions are held out: training never saw them.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request

PELTON, MODEL = sys.argv[1], pathlib.Path(sys.argv[2])
ADAPTER = MODEL / "query"
QUESTIONS = {
    "I need to know the city of the people named Clara.": {"table": "person", "get": "city", "test": "name = Clara"},
    "Tell me how many orders with a price over 54 there are.": {"table": "order", "get": "number", "test": "price > 54"},
    "Give me the guests in room 206.": {"table": "guest", "test": "room = 206"},
    "Tell me the day of all events in Berlin.": {"table": "event", "get": "day", "test": "city = Berlin"},
    "I want to know the age of the people who work as a nurse.": {"table": "person", "get": "age", "test": "job = nurse"},
    "Could you give me the price of the orders for lamps?": {"table": "order", "get": "price", "test": "item = lamps"},
    "I want the events on Friday.": {"table": "event", "test": "day = Friday"},
    "Show me the name of all guests with under 9 nights.": {"table": "guest", "get": "name", "test": "nights < 9"},
    "I need to know the number of people older than 41.": {"table": "person", "get": "number", "test": "age > 41"},
    "Can you give me the quantity of the orders under 30 dollars?": {"table": "order", "get": "quantity", "test": "price < 30"}}
BENCH_ENVIRONMENT = {**os.environ, "PELTON_BENCH_LOCK_HELD": "1"}  # no timings, so it waits for nobody's
EAGLE3 = {"method": "eagle3", "model": str(MODEL / "eagle3"), "num_speculative_tokens": 3, "adaptive": False}
GUESSES = ({"method": "suffix", "adaptive": False}, {"method": "suffix_shared", "adaptive": False},
           {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 1},
           {"method": "lookahead", "num_speculative_tokens": 4, "adaptive": False},
           {**EAGLE3, "method": "draft_model", "model": str(MODEL / "draft")}, EAGLE3, {**EAGLE3, "method": "auto"},
           {**EAGLE3, "method": "medusa", "model": str(MODEL / "medusa")})


class Server:
    """Three models: "base", "query" and "noise", an adapter of random numbers."""

    def __init__(self, noise, *flags, wants=("base", "query", "noise"), env=None):
        self.env = env
        modules = [f"{name}={path}" for name, path in (("query", ADAPTER), ("noise", noise)) if name in wants]
        self.command = [PELTON, "serve", MODEL, "--served-model-name", "base", "--port", "0", "--threads", "1", "--device", "cpu",
                        "--current-date", "2026-11-21", *(["--enable-lora", "--lora-modules", *modules] if modules else []), *flags]

    def __enter__(self):
        self.process = subprocess.Popen([*map(str, self.command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        env=self.env)
        line = self.process.stdout.readline()
        if not line.startswith("listening on "):
            raise RuntimeError("the server did not start: " + line + self.process.communicate()[1])
        self.url = line.split()[2]
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
        self.process.communicate(timeout=60)

    def post(self, path, body):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.read().decode()

    def ask(self, model, text, **more):
        return json.loads(self.post("/v1/chat/completions", {"model": model, "messages": [{"role": "user", "content": text}],
                                                             "temperature": 0, "max_completion_tokens": 80, **more}))

    def choices(self, asked):
        """As text, of (model, text, more), several at once."""
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            return [json.dumps(reply["choices"]) for reply in pool.map(lambda one: self.ask(one[0], one[1], **one[2]), asked)]

    def metric(self, name, **labels):
        with urllib.request.urlopen(self.url + "/metrics", timeout=60) as reply:
            found = re.findall(r"^%s\{(.*)\} (\S+)$" % re.escape(name), reply.read().decode(), re.M)
        return sum(float(value) for text, value in found if all(f'{label}="{wanted}"' in text for label, wanted in labels.items()))


class BoxAdapter(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="pelton_lora_box_"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.noise = cls.folder / "noise"
        subprocess.run([PELTON, "synth", "--like", MODEL / "config.json", "--lora", "all", "--lora-rank", "4", cls.noise], check=True,
                       capture_output=True, timeout=60)
        ways = ({}, {"temperature": 1, "seed": 7}, {"temperature": 0.8, "seed": 2, "logprobs": True, "top_logprobs": 2})
        cls.asked = [(model, text, ways[i % len(ways)]) for i, text in enumerate(QUESTIONS) for model in ("base", "query", "noise")]
        cls.alone = {}
        with Server(cls.noise) as server:
            for model, text, more in cls.asked:
                cls.alone[model, text] = json.dumps(server.ask(model, text, **more)["choices"])

    def expect_the_same(self, server, where):
        answers = server.choices(self.asked)
        for (model, text, _), answer in zip(self.asked, answers):
            self.assertEqual(answer, self.alone[model, text], (where, model, text))

    def test_it_has_learnt_what_the_model_has_not(self):
        with Server(self.noise, wants=("base", "query")) as server:
            right = dict.fromkeys(("base", "query"), 0)
            for text, query in QUESTIONS.items():
                for model in right:
                    choice = server.ask(model, text)["choices"][0]
                    try:
                        right[model] += json.loads(choice["message"]["content"] or "") == query
                    except ValueError:
                        pass
            self.assertGreaterEqual(right["query"], 9)
            self.assertLessEqual(right["base"], 1)
            # What the model was taught is still there.
            answer = server.ask("query", "What do you get for 39 + 57?", max_completion_tokens=200)["choices"][0]["message"]["content"]
            self.assertEqual(answer, "39 + 57 = 96")

    def test_three_models_in_one_batch(self):
        with Server(self.noise) as server:
            self.expect_the_same(server, "a batch")
            self.assertEqual(server.metric("pelton_lora_adapters_active"), 0)

    def test_guesses_change_no_answer(self):
        for config in GUESSES:
            with self.subTest(config["method"]), Server(self.noise, "--speculative-config", json.dumps(config)) as server:
                for _ in range(2):  # the second time there are answers to guess from
                    self.expect_the_same(server, config["method"])
                self.assertGreater(server.metric("vllm:spec_decode_num_draft_tokens_total"), 0)

    def test_vllms_documented_lines(self):
        folder = self.folder / "documented"
        shutil.copytree(ADAPTER, folder / "sql-lora-adapter")
        env = {**os.environ, "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True"}
        modules = json.dumps({"name": "sql-lora", "path": str(ADAPTER), "base_model_name": "base"})
        with Server(self.noise, "--enable-lora", "--lora-modules", modules, "--lora-folder", folder, wants=(), env=env) as server:
            def curl(line):
                done = subprocess.run(["bash", "-c", line.replace("http://localhost:8000", server.url).replace("/path/to", str(folder))],
                                      capture_output=True, text=True, timeout=60, check=True)
                return done.stdout
            cards = {card["id"]: card for card in json.loads(curl("curl -s http://localhost:8000/v1/models"))["data"]}
            self.assertEqual((cards["sql-lora"]["parent"], cards["sql-lora"]["root"]), ("base", str(ADAPTER)))
            ask = """curl -s http://localhost:8000/v1/completions \\
                -H "Content-Type: application/json" \\
                -d '{"model": "NAME", "prompt": "San Francisco is a", "max_tokens": 7, "temperature": 0}'"""
            wanted = json.loads(curl(ask.replace("NAME", "sql-lora")))
            self.assertEqual(wanted["model"], "sql-lora")
            load = """curl -s -X POST http://localhost:8000/v1/load_lora_adapter \\
                -H "Content-Type: application/json" \\
                -d '{"lora_name": "sql_adapter", "lora_path": "/path/to/sql-lora-adapter"}'"""
            self.assertEqual(curl(load), "Success: LoRA adapter 'sql_adapter' added successfully.")
            self.assertEqual(json.loads(curl(ask.replace("NAME", "sql_adapter")))["choices"], wanted["choices"])
            self.assertEqual(curl(load.replace('adapter"}', 'adapter", "load_inplace": true}')),
                             "Success: LoRA adapter 'sql_adapter' added successfully.")
            unload = """curl -s -X POST http://localhost:8000/v1/unload_lora_adapter \\
                -H "Content-Type: application/json" \\
                -d '{"lora_name": "sql_adapter"}'"""
            self.assertEqual(curl(unload), "Success: LoRA adapter 'sql_adapter' removed successfully.")
            self.assertEqual(json.loads(curl(ask.replace("NAME", "sql_adapter")))["error"]["code"], "model_not_found")

    def test_bench_mixes_adapters(self):
        with Server(self.noise) as server:
            for assignment in ("round-robin", "random"):
                before = {name: server.metric("pelton_lora_requests_total", adapter=name) for name in ("query", "noise")}
                done = subprocess.run([PELTON, "bench", "serve", "--base-url", server.url, "--lora-modules", "query", "noise",
                                       "--lora-assignment", assignment, "--num-prompts", "12", "--input-len", "8", "--output-len", "4"],
                                      capture_output=True, text=True, timeout=120, check=False, env=BENCH_ENVIRONMENT)
                self.assertEqual(done.returncode, 0, done.stderr)
                asked = {name: server.metric("pelton_lora_requests_total", adapter=name) - before[name] for name in before}
                self.assertGreaterEqual(sum(asked.values()), 12)  # and one that tries the server
                self.assertGreaterEqual(min(asked.values()), 6 if assignment == "round-robin" else 1, asked)
            before = server.metric("pelton_lora_requests_total", adapter="noise")
            done = subprocess.run([PELTON, "bench", "serve", "--base-url", server.url, "--lora-modules", "query", "noise", "--lora-skew", "10",
                                   "--num-prompts", "12", "--input-len", "8", "--output-len", "4"],
                                  capture_output=True, text=True, timeout=120, check=False, env=BENCH_ENVIRONMENT)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertLessEqual(server.metric("pelton_lora_requests_total", adapter="noise") - before, 2)  # of a thousand one
        for mix in ("same", "distinct"):
            done = subprocess.run([PELTON, "bench", "latency", MODEL, "--threads", "1", "--batch-size", "2", "--input-len", "16",
                                   "--output-len", "4", "--lora-modules", f"a={ADAPTER}", f"b={self.noise}", "--lora-mix", mix, "--runs", "1", "--buffer-size", "1MiB"],
                                  capture_output=True, text=True, timeout=120, check=False, env=BENCH_ENVIRONMENT)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("adapter", done.stdout)

    TIERS = ("--max-model-len", "768", "--kv-cache-memory", "1MiB", "--max-num-seqs", "2", "--swap-space", "1MiB")

    def test_tiers_share_no_block_between_adapters(self):
        """The device holds few prompts, the host some more, the disk all; the next start finds them there, each by its adapter."""
        disk, key = self.folder / "disk", self.folder / "key"
        disk.mkdir()
        key.write_text("k" * 40 + "\n")
        flags = (*self.TIERS, "--kv-disk", disk, "--kv-disk-size", "64MiB", "--kv-disk-write", "all", "--kv-disk-key-file", key)
        words = " ".join(["apple river seven cloud stone paper"] * 25)
        asked = [(name, f"Canary {i}. {words}. How many orders are there?", {"max_completion_tokens": 12})
                 for i in range(6) for name in ("base", "query", "noise")]
        with Server(self.noise) as server:
            wanted = server.choices(asked)

        def until_found_in(server, tier):
            """Which blocks are loaded is a matter of what that takes: so small a model computes fast. So not in every round."""
            for _ in range(30):
                self.assertEqual(server.choices(asked), wanted)
                self.assertEqual(server.choices(asked[::-1]), wanted[::-1])  # those that were last are near
                if server.metric("pelton_prefix_cache_hits_total", tier=tier) > 0:
                    return
            self.fail(f"nothing was found in {tier}")
        with Server(self.noise, *flags) as server:
            until_found_in(server, "host")
            _, text, more = asked[1]
            of_one = [text.replace("Canary", f"Sparrow {i}") for i in range(12)]  # asked of one adapter alone
            for text in of_one:
                server.ask("query", text, **more)
            before = -1
            while before != (before := server.metric("pelton_kv_disk_blocks_total", kind="written")) or before == 0:
                time.sleep(0.3)
        with Server(self.noise, *flags) as server:
            def cached(name):
                return [server.ask(name, text, **more)["usage"]["prompt_tokens_details"]["cached_tokens"] for text in of_one]
            # What one has written no other finds: but for the beginning that all prompts share.
            self.assertLess(max(cached("base") + cached("noise")), 100)
            until_found_in(server, "disk")

    def test_a_kill_while_one_is_loaded_leaves_nothing_behind(self):
        """The files stay as they are, and the next start serves them."""
        many = self.folder / "many"
        for i in range(8):
            shutil.copytree(self.noise if i % 2 else ADAPTER, many / f"a{i}")
        before = {path: path.read_bytes() for path in many.rglob("*") if path.is_file()}
        flags = ("--enable-lora", "--lora-folder", many, "--max-loras", "1", "--lora-loads-per-second", "0",
                 "--allow-runtime-lora-updating")
        text = next(iter(QUESTIONS))

        def ask(server, i):
            try:
                server.ask(f"a{i % 8}", text)
            except (OSError, urllib.error.URLError):
                pass
        for delay_s in (0.02, 0.05, 0.1):
            with Server(self.noise, *flags, wants=()) as server:
                threads = [threading.Thread(target=ask, args=(server, i)) for i in range(16)]
                for thread in threads:
                    thread.start()
                time.sleep(delay_s)
                server.process.send_signal(signal.SIGKILL)
                server.process.wait(30)
                for thread in threads:
                    thread.join()
        self.assertEqual({path: path.read_bytes() for path in many.rglob("*") if path.is_file()}, before)
        with Server(self.noise, *flags, wants=()) as server:
            self.assertEqual(json.dumps(server.ask("a0", text)["choices"]), self.alone["query", text])

    def test_files_that_change_under_a_server_change_no_answer_that_runs(self):
        """Replaced, cut short and removed while its requests run: what is in memory is answered with, and what is then read is refused."""
        folder = self.folder / "changing"
        shutil.copytree(ADAPTER, folder / "one")
        file = folder / "one" / "adapter_model.safetensors"
        whole = file.read_bytes()
        text = next(iter(QUESTIONS))
        with Server(self.noise, "--enable-lora", "--lora-folder", folder, "--allow-runtime-lora-updating", wants=()) as server:
            wanted = self.alone["query", text]
            self.assertEqual(json.dumps(server.ask("one", text)["choices"]), wanted)
            wrong, ending = [], threading.Event()

            def go_on():
                while not ending.is_set():
                    got = json.dumps(server.ask("one", text)["choices"])
                    if got != wanted:
                        wrong.append(got)
            threads = [threading.Thread(target=go_on) for _ in range(3)]
            for thread in threads:
                thread.start()
            for content in (whole[:len(whole) // 2], b"", whole[:8], (self.noise / file.name).read_bytes()[:-2], b"\xff" * 200):
                file.write_bytes(content)
                with self.assertRaises(urllib.error.HTTPError) as refused:
                    server.post("/v1/load_lora_adapter", {"lora_name": "one", "lora_path": str(file.parent), "load_inplace": True})
                refused.exception.read()
                self.assertEqual(refused.exception.code, 400)
            file.unlink()
            with self.assertRaises(urllib.error.HTTPError) as refused:
                server.post("/v1/load_lora_adapter", {"lora_name": "one", "lora_path": str(file.parent), "load_inplace": True})
            refused.exception.close()
            ending.set()
            for thread in threads:
                thread.join()
            self.assertEqual(wrong, [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
