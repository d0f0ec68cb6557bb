#!/usr/bin/env python3
"""LoRA adapters served: which tokens they answer with, several in one batch, loaded and unloaded while
serving, what is refused. On golden tiny, whose tokens `pelton logits --lora` foretells.

usage: lora_serve_test.py BINARY
"""
import array
import json
import os
import pathlib
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.error
import urllib.request

import lora_test
from lora_test import TINY, on_q, on_down, write_adapter
from tiers import FULL

BINARY = None
BOX = lora_test.ROOT / "models" / "pelton-box"
PROMPT = json.loads((TINY / "tokens.json").read_text())
PROMPT = (PROMPT["prompt"] if isinstance(PROMPT, dict) else PROMPT)[:24]
ON_DOWN = {"target_modules": [], "target_parameters": ["mlp.experts.down_proj"]}


def strong_q(seed):
    tensors = {}
    for layer in (0, 1):
        for part, rows in (("q", 128), ("o", 128)):
            module = f"layers.{layer}.self_attn.{part}_proj"
            tensors[f"{module}.lora_A"] = lora_test.numbers([2, 128], 0.5, seed + layer)
            tensors[f"{module}.lora_B"] = lora_test.numbers([rows, 2], 0.5, seed + layer + 31)
    return tensors


class Served(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def start(self, *flags, models=None, env=None):
        self.log = open(self.root / "log", "w+", encoding="utf-8")
        self.addCleanup(self.log.close)
        self.process = subprocess.Popen([BINARY, "serve", *(models or (TINY, "--served-model-name", "base")), "--port", "0",
                                         "--kv-cache-memory", "64MiB", "--max-model-len", "512", "--threads", "1",
                                         *map(str, flags)], stdout=subprocess.PIPE, stderr=self.log, text=True,
                                        env=env)

        def end():
            self.process.kill()
            self.process.wait(30)
            self.process.stdout.close()
        self.addCleanup(end)
        line = self.process.stdout.readline()
        self.assertTrue(line.startswith("listening on "), line + (self.root / "log").read_text())
        self.port = int(line.rsplit(":", 1)[1])

    def http(self, path, body=None, key=None):
        """Status and text."""
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}",
                                         None if body is None else json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def tokens(self, model, prompt=None, count=6):
        status, text = self.http("/v1/completions", {"model": model, "prompt": prompt or PROMPT, "max_tokens": count,
                                                     "temperature": 0, "ignore_eos": True,
                                                     "return_token_ids": True})
        self.assertEqual(status, 200, text)
        answer = json.loads(text)
        self.assertEqual(answer["model"], model)
        return answer["choices"][0]["token_ids"]

    def foretold(self, prompt, count, *flags):
        """What is greedily generated, by the logits of `pelton logits`."""
        tokens = list(prompt)
        for _ in range(count):
            ids, out = self.root / "ids.json", self.root / "out.npy"
            ids.write_text(json.dumps(tokens))
            subprocess.run([BINARY, "logits", TINY, "--tokens", ids, "--out", out, "--threads", "1", "--positions",
                            f"{len(tokens) - 1}:", *map(str, flags)], check=True, capture_output=True, timeout=120)
            data = out.read_bytes()
            start = 10 + struct.unpack("<H", data[8:10])[0]
            row = array.array("f", data[start:])
            tokens.append(max(range(len(row)), key=row.__getitem__))
        return tokens[len(prompt):]

    def test_a_request_names_an_adapter_and_gets_its_tokens(self):
        one = write_adapter(self.root / "one", strong_q(1))
        two = write_adapter(self.root / "two", on_down(), **ON_DOWN)
        named = json.dumps({"name": "two", "path": str(two), "base_model_name": "base"})
        self.start("--enable-lora", "--lora-modules", f"one={one}", named, "--max-loras", "2")
        base = self.tokens("base")
        self.assertEqual(base, self.foretold(PROMPT, 6))
        under_one = self.tokens("one")
        self.assertEqual(under_one, self.foretold(PROMPT, 6, "--lora", one))
        self.assertNotEqual(under_one, base)
        self.assertEqual(self.tokens("two"), self.foretold(PROMPT, 6, "--lora", two))

        # All three beside each other, again and again.
        wanted = {name: self.tokens(name, count=24) for name in ("base", "one", "two")}
        wrong = []

        def ask(name):
            for _ in range(4):
                got = self.tokens(name, count=24)
                if got != wanted[name]:
                    wrong.append((name, got))
        threads = [threading.Thread(target=ask, args=(name,)) for name in ("base", "one", "two", "one", "base")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

        listed = {card["id"]: card for card in json.loads(self.http("/v1/models")[1])["data"]}
        self.assertEqual(set(listed), {"base", "one", "two"})
        self.assertIsNone(listed["base"]["parent"])
        self.assertEqual((listed["one"]["parent"], listed["one"]["root"]), ("base", str(one)))
        self.assertEqual(json.loads(self.http("/v1/models/two")[1])["parent"], "base")
        status, text = self.http("/v1/completions", {"model": "three", "prompt": PROMPT})
        self.assertEqual((status, json.loads(text)["error"]["code"]), (404, "model_not_found"))
        status, text = self.http("/v1/embeddings", {"model": "one", "input": PROMPT})
        of_one = json.loads(text)["data"][0]["embedding"]
        of_base = json.loads(self.http("/v1/embeddings", {"model": "base", "input": PROMPT})[1])["data"][0]["embedding"]
        self.assertEqual(status, 200)
        self.assertNotEqual(of_one, of_base)
        metrics = self.http("/metrics")[1]
        self.assertRegex(metrics, r'vllm:lora_requests_info\{.*max_lora="2",running_lora_adapters="",'
                                  r'waiting_lora_adapters=""\} [0-9.e+]+')
        self.assertRegex(metrics, r'pelton_lora_requests_total\{.*adapter="two"\} \d')
        self.assertRegex(metrics, r'pelton_lora_loads_total\{[^}]*\} 2\n')

    def test_adapters_of_a_folder_are_loaded_when_they_are_asked_for(self):
        many = self.root / "many"
        for seed in range(5):
            write_adapter(many / f"a{seed}", strong_q(seed + 1))
        write_adapter(many / "bad", strong_q(1), use_dora=True)
        self.start("--enable-lora", "--lora-folder", many, "--max-loras", "2", "--lora-loads-per-second", "0")
        listed = [card["id"] for card in json.loads(self.http("/v1/models")[1])["data"]]
        self.assertEqual(listed, ["base", "a0", "a1", "a2", "a3", "a4", "bad"])
        wanted = {f"a{seed}": self.tokens(f"a{seed}") for seed in range(5)}  # two are in memory at a time
        self.assertGreater(len(set(map(tuple, wanted.values()))), 1)
        wrong = []

        def ask(first):
            for i in range(10):
                name = f"a{(first + i * 3) % 5}"
                if self.tokens(name) != wanted[name]:
                    wrong.append(name)
        threads = [threading.Thread(target=ask, args=(first,)) for first in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])
        metrics = self.http("/metrics")[1]
        self.assertRegex(metrics, r"pelton_lora_adapters_resident\{[^}]*\} [12]\n")
        self.assertGreater(float(re.search(r"pelton_lora_evictions_total\{[^}]*\} (\S+)", metrics)[1]), 2)
        status, text = self.http("/v1/completions", {"model": "bad", "prompt": PROMPT})
        self.assertEqual(status, 400)
        self.assertIn("use_dora", text)
        for name in ("../many/a0", "..", ""):
            status, _ = self.http("/v1/completions", {"model": name or "/", "prompt": PROMPT})
            self.assertEqual(status, 404)
        # One that comes later is found, and so are other numbers under a name.
        write_adapter(many / "late", strong_q(2))
        self.assertEqual(self.tokens("late"), wanted["a1"])

    def test_loading_and_unloading_while_serving(self):
        many = self.root / "many"
        write_adapter(many / "x", strong_q(1))
        write_adapter(many / "y", strong_q(2))
        write_adapter(many / "down", on_down(), **ON_DOWN)
        write_adapter(many / "base", strong_q(1))  # the model's own name
        write_adapter(self.root / "elsewhere", strong_q(1))
        (many / "out").symlink_to(self.root / "elsewhere")
        self.start("--enable-lora", "--lora-folder", many, "--allow-runtime-lora-updating")
        listed = [card["id"] for card in json.loads(self.http("/v1/models")[1])["data"]]
        self.assertEqual(listed, ["base", "down", "x", "y"])
        self.assertIn("'base' is not served", (self.root / "log").read_text())
        load, unload = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"
        of_x, of_y = self.tokens("x"), self.tokens("y")
        self.assertNotEqual(of_x, of_y)
        status, text = self.http(load, {"lora_name": "sql", "lora_path": str(many / "x")})
        self.assertEqual((status, text), (200, "Success: LoRA adapter 'sql' added successfully."))
        self.assertEqual(self.tokens("sql"), of_x)
        status, text = self.http(load, {"lora_name": "sql", "lora_path": str(many / "y")})
        self.assertEqual((status, json.loads(text)["error"]["param"]), (400, "lora_name"))
        # The same name with other numbers: nothing of the old ones is found in the cache.
        status, _ = self.http(load, {"lora_name": "sql", "lora_path": str(many / "y"), "load_inplace": True,
                                     "pinned": True})
        self.assertEqual(status, 200)
        self.assertEqual(self.tokens("sql"), of_y)
        status, text = self.http(unload, {"lora_name": "sql"})
        self.assertEqual((status, text), (200, "Success: LoRA adapter 'sql' removed successfully."))
        self.assertEqual(self.http("/v1/completions", {"model": "sql", "prompt": PROMPT})[0], 404)
        self.assertEqual(self.http(unload, {"lora_name": "sql"})[0], 404)
        for body, status, param in (
                ({"lora_name": "n", "lora_path": str(self.root / "elsewhere")}, 400, "lora_path"),
                ({"lora_name": "n", "lora_path": str(many / ".." / "elsewhere")}, 400, "lora_path"),
                ({"lora_name": "n", "lora_path": str(many / "nothing")}, 404, "lora_path"),
                ({"lora_name": "n", "lora_path": "/etc"}, 400, "lora_path"),
                ({"lora_name": "../x", "lora_path": str(many / "x")}, 400, "lora_name"),
                ({"lora_name": "", "lora_path": str(many / "x")}, 400, "lora_name"),
                ({"lora_name": "base", "lora_path": str(many / "x")}, 400, "lora_name"),
                ({"lora_name": "n" * 1000, "lora_path": str(many / "x")}, 400, "lora_name"),
                ({"lora_name": "n"}, 400, "lora_path"),
                ({"lora_name": "n", "lora_path": str(many / "out")}, 400, "lora_path"),
                ({"lora_name": "n", "lora_path": str(many / "x"), "is_3d_lora_weight": True}, 400, "is_3d_lora_weight"),
                ({"lora_name": "n", "lora_path": str(many / "down"), "is_3d_lora_weight": False}, 400, "is_3d_lora_weight"),
                ({"lora_name": "n", "lora_path": str(many / "x"), "lora_slot": 1}, 400, "lora_slot")):
            got, text = self.http(load, body)
            self.assertEqual((got, json.loads(text)["error"]["param"]), (status, param), (body, text))
        self.assertEqual(self.http(load, {"lora_name": "n", "lora_path": str(many / "down"), "is_3d_lora_weight": True})[0], 200)
        # One of a folder that was unloaded is not found again until it is loaded by name.
        self.assertEqual(self.http(unload, {"lora_name": "y"})[0], 200)
        self.assertEqual(self.http("/v1/completions", {"model": "y", "prompt": PROMPT})[0], 404)
        self.assertEqual(self.http(load, {"lora_name": "y", "lora_path": str(many / "y")})[0], 200)
        self.assertEqual(self.tokens("y"), of_y)
        # A file that is cut short is refused, and the server lives.
        shutil.copytree(many / "x", many / "cut")
        whole = (many / "cut" / "adapter_model.safetensors").read_bytes()
        (many / "cut" / "adapter_model.safetensors").write_bytes(whole[:len(whole) // 2])
        self.assertEqual(self.http(load, {"lora_name": "cut", "lora_path": str(many / "cut")})[0], 400)
        self.assertEqual(self.tokens("x"), of_x)

        # Loaded, replaced and unloaded in a loop beside streams of the same names.
        wrong, ending = [], threading.Event()

        def ask():
            while not ending.is_set():
                status, text = self.http("/v1/completions", {
                    "model": "loop", "prompt": PROMPT, "max_tokens": 6, "temperature": 0, "ignore_eos": True,
                    "return_token_ids": True})
                if status == 404:
                    continue
                if status != 200 or json.loads(text)["choices"][0]["token_ids"] not in (of_x, of_y):
                    wrong.append(text)
        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for i in range(10):
            self.assertEqual(self.http(load, {"lora_name": "loop", "lora_path": str(many / "x")})[0], 200)
            self.assertEqual(self.http(load, {"lora_name": "loop", "lora_path": str(many / "y"),
                                              "load_inplace": True})[0], 200)
            self.assertEqual(self.http(unload, {"lora_name": "loop"})[0], 200)
        ending.set()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])
        self.assertRegex(self.http("/metrics")[1], r"pelton_lora_adapters_active\{[^}]*\} 0\n")

    def test_streams_while_adapters_come_and_go(self):
        """Loaded, replaced, unloaded and pushed out under streams: each is a version's answer, or a 404. PELTON_FULL: 50 streams."""
        streams, rounds = (50, 60) if FULL else (12, 8)
        many = self.root / "many"
        for seed in range(3):
            write_adapter(many / f"v{seed}", strong_q(seed + 1))
        self.start("--enable-lora", "--lora-folder", many, "--allow-runtime-lora-updating", "--max-loras", "2",
                   "--lora-loads-per-second", "0", "--max-num-seqs", "16")
        load, unload = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"
        versions = [self.tokens(f"v{seed}", count=16) for seed in range(3)]
        self.assertEqual(len(set(map(tuple, versions))), 3)
        wrong, answered, ending = [], [], threading.Event()

        def stream(number):
            name = ("loop", "v0", "other")[number % 3]
            body = {"model": name, "prompt": PROMPT, "max_tokens": 16, "temperature": 0, "ignore_eos": True, "stream": True,
                    "return_token_ids": True}
            while not ending.is_set():
                status, text = self.http("/v1/completions", body)
                if status == 404 and name != "v0":
                    continue
                chunks = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
                tokens = [token for chunk in chunks for choice in chunk.get("choices", ()) for token in choice.get("token_ids") or ()]
                if status != 200 or tokens not in (versions[:1] if name == "v0" else versions):
                    wrong.append((name, status, text[-400:]))
                answered.append(name)
        threads = [threading.Thread(target=stream, args=(number,)) for number in range(streams)]
        for thread in threads:
            thread.start()
        for i in range(rounds):
            for name in ("loop", "other"):
                self.assertEqual(self.http(load, {"lora_name": name, "lora_path": str(many / f"v{i % 3}")})[0], 200)
            for name in ("loop", "other"):
                self.assertEqual(self.http(load, {"lora_name": name, "lora_path": str(many / f"v{(i + 1) % 3}"), "load_inplace": True})[0], 200)
                self.assertEqual(self.http(unload, {"lora_name": name})[0], 200)
        ending.set()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong[:3], [])
        self.assertEqual(set(answered), {"loop", "v0", "other"})
        metrics = self.http("/metrics")[1]
        for gauge in ("adapters_active", "requests_waiting"):
            self.assertRegex(metrics, r"pelton_lora_%s\{[^}]*\} 0\n" % gauge)
        self.assertGreater(float(re.search(r"pelton_lora_evictions_total\{[^}]*\} (\S+)", metrics)[1]), 0)

    def test_a_folder_belongs_to_one_of_several_models(self):
        of_tiny, of_box = self.root / "of_tiny", self.root / "of_box"
        adapter = write_adapter(of_tiny / "fortiny", strong_q(1))
        subprocess.run([BINARY, "synth", "--like", BOX / "config.json", "--lora", "attention", "--lora-rank", "2", of_box / "forbox"],
                       check=True, capture_output=True, timeout=60)
        shutil.copytree(of_box / "forbox", of_tiny / "astray")
        self.start("--enable-lora", "--lora-folder", f"tiny={of_tiny}", f"pelton-box={of_box}", "--allow-runtime-lora-updating",
                   models=(TINY, BOX))
        cards = json.loads(self.http("/v1/models")[1])["data"]
        self.assertEqual([(card["id"], card["parent"]) for card in cards if card["parent"]],
                         [("astray", "tiny"), ("fortiny", "tiny"), ("forbox", "pelton-box")])
        self.assertEqual(self.tokens("fortiny"), self.foretold(PROMPT, 6, "--lora", adapter))
        self.tokens("forbox", [5, 6, 7])
        status, text = self.http("/v1/completions", {"model": "astray", "prompt": PROMPT})
        self.assertEqual(status, 400)
        self.assertIn("the base has no layer", text)
        # By name, too: only from the model's own folder, and into the model that is said.
        load, unload = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"
        for base, status in (("pelton-box", 400), ("tiny", 200), (None, 400)):
            body = {"lora_name": "again", "lora_path": str(adapter), **({"base_model_name": base} if base else {})}
            self.assertEqual(self.http(load, body)[0], status, base)
        for name, status in (("again", 200), ("again", 404), ("forbox", 200), ("forbox", 404)):
            self.assertEqual(self.http(unload, {"lora_name": name})[0], status, name)
        self.assertEqual(self.http("/v1/completions", {"model": "forbox", "prompt": [5]})[0], 404)

        def refused(word, *folders):
            done = subprocess.run([BINARY, "serve", TINY, BOX, "--port", "0", "--enable-lora", "--lora-folder", *folders], capture_output=True,
                                  text=True, timeout=120, check=False)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(word, done.stderr)
        refused("MODEL=DIR says whose", str(of_tiny))
        refused("are those of 'tiny'", f"tiny={of_tiny}", f"pelton-box={of_tiny}/.")

    def test_an_activated_one_finds_the_models_past(self):
        """The conversation so far is in the cache, and a prompt that does not invoke it is the model's."""
        adapter = write_adapter(self.root / "activated", strong_q(1), alora_invocation_tokens=[500, 501])
        self.start("--enable-lora", "--lora-modules", f"activated={adapter}")
        past = (PROMPT * 6)[:128]

        def ask(model, prompt):
            status, text = self.http("/v1/completions", {"model": model, "prompt": prompt, "max_tokens": 6, "temperature": 0, "ignore_eos": True,
                                                         "return_token_ids": True})
            self.assertEqual(status, 200, text)
            answer = json.loads(text)
            details = answer["usage"].get("prompt_tokens_details") or {}
            return answer["choices"][0]["token_ids"], details.get("cached_tokens", 0)
        base, _ = ask("base", past)
        invoked, cached = ask("activated", past + [500, 501, 7])
        self.assertGreaterEqual(cached, 112)
        self.assertEqual(invoked, self.foretold(past + [500, 501, 7], 6, "--lora", adapter))
        self.assertNotEqual(invoked, ask("base", past + [500, 501, 7])[0])
        self.assertEqual(ask("activated", past)[0], base)

        def embedding(model, prompt):
            status, text = self.http("/v1/embeddings", {"model": model, "input": prompt})
            self.assertEqual(status, 200, text)
            return json.loads(text)["data"][0]["embedding"]
        self.assertEqual(embedding("activated", past), embedding("base", past))
        self.assertNotEqual(embedding("activated", past + [500, 501]), embedding("base", past + [500, 501]))

    def test_a_folder_that_is_gone_is_a_404(self):
        many = self.root / "many"
        for name in ("late", "stays"):
            write_adapter(many / name, strong_q(1 if name == "late" else 2))
        self.start("--enable-lora", "--lora-folder", many, "--max-loras", "1")
        self.tokens("late")
        (many / "late").rename(self.root / "away")
        self.tokens("late")  # it is in memory
        self.tokens("stays")
        status, text = self.http("/v1/completions", {"model": "late", "prompt": PROMPT})
        self.assertEqual((status, json.loads(text)["error"]["code"]), (404, "model_not_found"))
        self.assertEqual([card["id"] for card in json.loads(self.http("/v1/models")[1])["data"]], ["base", "stays"])
        (self.root / "away").rename(many / "late")
        self.tokens("late")

    def test_what_is_said_of_adapters(self):
        many = self.root / "many"
        write_adapter(many / "plain", strong_q(1))
        card = write_adapter(many / "carded", strong_q(2)) / "README.md"
        card.write_text("---\nlicense: mit\n---\n# Its own\n")
        self.start("--enable-lora", "--lora-folder", many, "--max-lora-rank", "4", "--lora-targets", "attention", "--enable-sleep-mode")
        answer = json.loads(self.http("/v1/model_cards/carded")[1])
        self.assertEqual((answer["id"], answer["license"]["id"], answer["card"]), ("carded", "mit", "# Its own\n"))
        self.assertEqual(self.http("/v1/model_cards/plain")[0], 404)
        info = json.loads(self.http("/server_info")[1])
        self.assertEqual({key: info["limits"][key] for key in ("loras_max", "cpu_loras_max", "lora_rank_max")},
                         {"loras_max": 8, "cpu_loras_max": 8, "lora_rank_max": 4})
        self.assertEqual({key: info["runtime"][key] for key in ("lora_targets", "lora_folders", "lora_updating")},
                         {"lora_targets": "attention", "lora_folders": str(many), "lora_updating": "off"})
        self.tokens("plain")
        self.assertEqual(self.http("/sleep", {})[0], 200)
        self.assertRegex(self.http("/metrics")[1], r"pelton_lora_loads_total\{[^}]*\} 1\n")

    def test_loading_stays_within_the_plan(self):
        """The most that is held, by the kernel's count: a place and a tile, and while one is replaced a second place."""
        many, place = self.root / "many", 0
        for seed in ("1", "2"):
            subprocess.run([BINARY, "synth", "--like", BOX / "config.json", "--lora", "all", "--lora-rank", "256", "--seed", seed, many / seed],
                           check=True, capture_output=True, timeout=120)
            place = (many / seed / "adapter_model.safetensors").stat().st_size
        self.assertGreater(place, 16 << 20)
        self.start("--enable-lora", "--max-loras", "1", "--max-lora-rank", "256", "--lora-folder", many, "--allow-runtime-lora-updating",
                   models=(BOX, "--served-model-name", "base"))

        def memory(field):
            status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
            return int(re.search(field + r":\s+(\d+) kB", status)[1]) << 10

        def peak(**more):
            pathlib.Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")
            status, text = self.http("/v1/load_lora_adapter", {"lora_name": "x", **more})
            self.assertEqual(status, 200, text)
            return memory("VmHWM")
        self.http("/v1/models")
        before, slack = memory("VmRSS"), 5 << 20  # the tile, the header, the connection
        self.assertLess(peak(lora_path=str(many / "1")) - before, place + slack)
        for i in range(4):
            self.assertLess(peak(lora_path=str(many / "21"[i % 2]), load_inplace=True) - before, 2 * place + slack)

    def test_a_model_that_sleeps_keeps_its_adapters_names(self):
        many = self.root / "many"
        write_adapter(many / "x", strong_q(1))
        write_adapter(many / "y", strong_q(2))
        self.start("--enable-lora", "--lora-folder", many, "--lora-modules", f"one={many / 'y'}", "--enable-sleep-mode",
                   "--access-log", "json", env={**os.environ, "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True"})
        self.assertEqual(self.http("/v1/load_lora_adapter", {"lora_name": "two", "lora_path": str(many / "x"),
                                                             "pinned": True})[0], 200)
        wanted = {name: self.tokens(name) for name in ("one", "two", "x")}
        for _ in range(2):
            self.assertEqual(self.http("/sleep", {})[0], 200)
            listed = {card["id"]: card for card in json.loads(self.http("/v1/models")[1])["data"]}
            self.assertEqual(listed["two"]["parent"], "base")
            # Loaded while it sleeps: it is checked, and waits for the model.
            status, text = self.http("/v1/load_lora_adapter", {"lora_name": "late", "lora_path": str(many / "x"),
                                                               "load_inplace": True})
            self.assertEqual(status, 200, text)
            self.assertEqual(json.loads(self.http("/is_sleeping")[1]), {"is_sleeping": True})
            self.assertEqual(self.tokens("late"), wanted["x"])
            self.assertEqual({name: self.tokens(name) for name in wanted}, wanted)
        self.assertEqual(self.tokens("base"), self.foretold(PROMPT, 6))
        lines = [json.loads(line) for line in (self.root / "log").read_text().splitlines() if line.startswith("{")]
        of_two = [line["adapter"] for line in lines if line.get("model") == "two"]
        self.assertRegex(self.http("/metrics")[1], r'pelton_lora_requests_total\{[^}]*adapter="two"[^}]*\} 3\n')
        of_x = [line["adapter"] for line in lines if line.get("model") == "x"]
        self.assertEqual(len(set(of_two + of_x)), 1)  # the digest: two names of one adapter
        self.assertEqual(len(of_two[0]), 64)

    def test_a_pipe_in_the_folder_holds_up_nobody(self):
        """LR-10: opened for reading it would wait for a writer, with the registry's lock held."""
        write_adapter(self.root / "folder" / "good", strong_q(1))
        pipe = write_adapter(self.root / "folder" / "pipe", strong_q(2))
        (pipe / "adapter_model.safetensors").unlink()
        os.mkfifo(pipe / "adapter_model.safetensors")
        self.start("--enable-lora", "--lora-folder", self.root / "folder")
        status, text = self.http("/v1/completions", {"model": "pipe", "prompt": PROMPT, "max_tokens": 2})
        self.assertGreaterEqual(status, 400, text)
        self.assertEqual(self.tokens("good"), self.foretold(PROMPT, 6, "--lora", self.root / "folder" / "good"))

    def test_LR_03_no_adapter_is_sent_within_a_request(self):
        """Folders of the server are all that is loaded; what else a body has is refused by its name, or for its size."""
        many = self.root / "many"
        write_adapter(many / "x", strong_q(1))
        self.start("--enable-lora", "--lora-folder", many, "--allow-runtime-lora-updating")
        for field, value in (("lora_tensors", "AAAA"), ("lora_data", "not base64!"), ("adapter_config", {"r": 2})):
            status, text = self.http("/v1/load_lora_adapter", {"lora_name": "n", "lora_path": str(many / "x"), field: value})
            self.assertEqual((status, json.loads(text)["error"]["param"]), (400, field), text)
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as sent:
            sent.sendall(f"POST /v1/load_lora_adapter HTTP/1.1\r\nHost: x\r\nContent-Length: {3 << 30}\r\n\r\n".encode())
            self.assertIn(b" 413 ", sent.recv(100))
        self.tokens("x")

    def test_who_may_load_and_unload(self):
        many = self.root / "many"
        write_adapter(many / "x", strong_q(1))
        self.start("--enable-lora", "--lora-folder", many, "--allow-runtime-lora-updating", "--api-key", "client",
                   "--admin-api-key", "operator")
        body = {"lora_name": "sql", "lora_path": str(many / "x")}
        self.assertEqual(self.http("/v1/load_lora_adapter", body)[0], 401)
        status, text = self.http("/v1/load_lora_adapter", body, key="client")
        self.assertEqual((status, json.loads(text)["error"]["code"]), (403, "admin_key_required"))
        self.assertEqual(self.http("/v1/load_lora_adapter", body, key="operator")[0], 200)
        self.assertEqual(self.http("/v1/completions", {"model": "sql", "prompt": PROMPT, "max_tokens": 1}, key="client")[0],
                         200)
        self.assertEqual(self.http("/v1/unload_lora_adapter", {"lora_name": "sql"}, key="client")[0], 403)
        self.assertEqual(self.http("/v1/unload_lora_adapter", {"lora_name": "sql"}, key="operator")[0], 200)

    def test_what_is_refused(self):
        good = write_adapter(self.root / "good", on_q())

        def refused(word, *flags):
            done = subprocess.run([BINARY, "serve", TINY, "--port", "0", "--kv-cache-memory", "64MiB", *map(str, flags)],
                                  capture_output=True, text=True, timeout=120, check=False)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(word, done.stderr)
        refused("--enable-lora", "--lora-modules", f"a={good}")
        refused("adapter_config.json", "--enable-lora", "--lora-modules", f"a={self.root / 'nothing'}")
        refused("--lora-modules", "--enable-lora", "--lora-modules", "nonsense")
        refused("'.' or '..'", "--enable-lora", "--lora-modules", f"../x={good}")
        refused("the model's own name", "--enable-lora", "--served-model-name", "base", "--lora-modules", f"base={good}")
        refused("--max-lora-rank", "--enable-lora", "--lora-modules", f"a={good}", "--max-lora-rank", "1")
        refused("--lora-targets", "--enable-lora", "--lora-modules", f"a={good}", "--lora-targets", "experts")
        refused("base_model_name", "--enable-lora", "--lora-modules", json.dumps({"name": "a", "path": str(good), "base_model_name": "x"}))
        refused("--max-cpu-loras", "--enable-lora", "--max-loras", "4", "--max-cpu-loras", "2")
        self.start("--enable-lora", "--lora-modules", f"a={good}")
        self.assertEqual(self.http("/v1/load_lora_adapter", {"lora_name": "b", "lora_path": str(good)})[0], 403)
        self.assertEqual(self.http("/v1/unload_lora_adapter", {"lora_name": "a"})[0], 403)


if __name__ == "__main__":
    BINARY = sys.argv.pop(1)
    unittest.main(verbosity=2)
