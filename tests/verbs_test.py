#!/usr/bin/env python3
"""The binary as its users meet it: help, exit codes, tokenize, synth, inspect, generate, logits.

usage: verbs_test.py BINARY
"""
import fcntl
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request

from tiers import FULL, full

ROOT = pathlib.Path(__file__).resolve().parent.parent
RANKS = ROOT / "testdata" / "tokenizer" / "o200k_base.tiktoken"
TINY = ROOT / "testdata" / "golden" / "tiny"
VERBS = ["serve", "chat", "generate", "logits", "tokenize", "inspect", "pack", "plan", "synth", "bench latency",
         "bench prefix", "bench bandwidth", "bench serve", "bench throughput", "bench compare",
         "bench sweep", "bench history", "bench gateway", "bench kv", "bench speech",
         "bench transcribe", "pull", "cache list", "cache purge", "list", "rm", "ps", "stop"]
BINARY = None


def pelton(*words, stdin=b"", env=None):
    return subprocess.run([BINARY, *map(str, words)], input=stdin, capture_output=True,
                          env={**os.environ, **(env or {})}, timeout=200, check=False)


def read_npy(file):
    """Shape and floats of a float32 .npy file, without numpy."""
    data = pathlib.Path(file).read_bytes()
    assert data[:6] == b"\x93NUMPY"
    length = struct.unpack("<H", data[8:10])[0]
    header = eval(data[10:10 + length].decode(), {"__builtins__": {}})  # a Python dict literal
    assert header["descr"] == "<f4" and not header["fortran_order"]
    values = struct.unpack(f"<{(len(data) - 10 - length) // 4}f", data[10 + length:])
    return header["shape"], values


class Verbs(unittest.TestCase):
    def expect(self, code, done):
        self.assertEqual(done.returncode, code, done.stderr.decode(errors="replace"))
        return done

    def test_A29_a_variable_that_nobody_reads_is_named(self):
        done = self.expect(0, pelton("completion", "bash", env={"PELTON_MAX_CONNECTION": "secret"}))
        self.assertEqual(done.stderr.decode(), "pelton: warning: $PELTON_MAX_CONNECTION is not known, and changes "
                                               "nothing; did you mean $PELTON_MAX_CONNECTIONS?\n")
        self.assertEqual(self.expect(0, pelton("completion", "bash", env={"PELTON_MAX_CONNECTIONS": "9"})).stderr, b"")

    def test_A29_a_file_without_a_model_says_what_it_wants(self):
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write("port = 0\nmodel = []\n")
            file.flush()
            done = self.expect(3, pelton("serve", "--config", file.name))
            self.assertIn(f"{file.name}:2: the list 'model' is empty; it wants at least one text", done.stderr.decode())

    def test_D11_the_program_leaks_nothing(self):
        """Under LeakSanitizer alone, which needs no other build; its exit code is 23."""
        library = subprocess.run(["gcc", "-print-file-name=liblsan.so"], capture_output=True, text=True, check=False)
        library = library.stdout.strip()
        if not os.path.isabs(library) or b"__asan_init" in pathlib.Path(BINARY).read_bytes():
            self.skipTest("no LeakSanitizer to load, or built in")
        env = {**os.environ, "LD_PRELOAD": library}
        for words in (["completion", "bash"], ["completion", "zsh"], ["manual"], ["manual", "serve"], ["--help"],
                      ["serve", "--print-config"], ["inspect", TINY]):
            done = subprocess.run([BINARY, *words], capture_output=True, timeout=60, check=False, env=env)
            if b"LeakSanitizer has encountered a fatal error" in done.stderr:
                self.skipTest("LeakSanitizer cannot stop threads here")
            self.assertEqual(done.returncode, 0, (words, done.stderr.decode()[-500:]))

    def test_pack(self):
        with tempfile.TemporaryDirectory() as folder:
            ids = pathlib.Path(folder, "ids.json")
            tokens = json.loads((TINY / "tokens.json").read_text())
            ids.write_text(json.dumps(tokens["prompt"]))
            out = pathlib.Path(folder, "packed")
            for weights in ("shipped", "int8") if FULL else ("int8",):
                done = self.expect(0, pelton("pack", TINY, out, "--weights", weights, "--details"))
                self.assertIn(b"relative error", done.stderr)
                # C4: a verdict in a line that can be read; figures when they are asked for.
                brief = pathlib.Path(folder, "brief")
                done = self.expect(0, pelton("pack", TINY, brief, "--weights", weights))
                shutil.rmtree(brief)
                self.assertNotIn(b"relative error", done.stderr)
                for line in done.stderr.decode().splitlines():
                    self.assertLess(len(line), 250 + len(str(brief)), line)
                self.assertIn(b"sound", self.expect(0, pelton("verify", out)).stdout)
                npy = pathlib.Path(folder, "logits.npy")
                self.expect(0, pelton("logits", out, "--tokens", ids, "--out", npy))
                shape, values = read_npy(npy)
                best = max(range(shape[1]), key=lambda i: values[(shape[0] - 1) * shape[1] + i])
                self.assertEqual(best, tokens["continuation"][0])
                self.assertIn(b"is there already", self.expect(2, pelton("pack", TINY, out)).stderr)
                self.assertIn(b"is packed already",
                              self.expect(2, pelton("pack", out, str(out) + "2")).stderr)
                self.assertEqual(sorted(p.name for p in out.iterdir()),
                                 ["config.json", "generation_config.json", "model.safetensors"])
                shutil.rmtree(out)
            self.assertEqual(sorted(p.name for p in pathlib.Path(folder).iterdir()),
                             ["ids.json", "logits.npy"])

    @full
    def test_pack_touches_nothing_of_others(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "mine.partial").mkdir()
            (root / "mine.partial" / "thesis.txt").write_text("ten years")
            both = [subprocess.Popen([BINARY, "pack", TINY, root / "mine"], stdout=subprocess.DEVNULL,
                                     stderr=subprocess.DEVNULL) for _ in range(2)]
            codes = sorted(process.wait(timeout=100) for process in both)
            self.assertEqual(codes, [0, 2])  # one of them found it there
            self.assertIn(b"sound", self.expect(0, pelton("verify", root / "mine")).stdout)
            self.assertEqual((root / "mine.partial" / "thesis.txt").read_text(), "ten years")
            self.assertEqual(sorted(p.name for p in root.iterdir()), ["mine", "mine.partial"])

    def test_pack_refuses_a_model_that_computes_nan(self):
        with tempfile.TemporaryDirectory() as folder:
            broken = pathlib.Path(folder, "broken")
            shutil.copytree(TINY, broken)
            file = broken / "model.safetensors"
            data = bytearray(file.read_bytes())
            length = struct.unpack("<Q", data[:8])[0]
            begin = json.loads(data[8:8 + length])["model.norm.weight"]["data_offsets"][0]
            data[8 + length + begin:8 + length + begin + 2] = b"\xc0\x7f"  # NaN in bf16
            file.write_bytes(data)
            done = self.expect(4, pelton("pack", broken, pathlib.Path(folder, "out")))
            self.assertIn(b"computes NaN", done.stderr)
            self.assertEqual([p.name for p in pathlib.Path(folder).iterdir()], ["broken"])

    def test_version_and_help(self):
        self.assertRegex(self.expect(0, pelton("--version")).stdout.decode(), r"^pelton \d+\.\d+\.\d+\n$")
        text = self.expect(0, pelton("--help")).stdout.decode()
        for verb in VERBS:
            self.assertIn(f"\n  {verb} ", text)
            own = self.expect(0, pelton(*verb.split(), "--help")).stdout.decode()
            self.assertIn("usage: pelton " + verb, own)
            self.assertIn("Examples", own)
            self.assertTrue(all(len(line) <= 100 for line in own.splitlines()), own)

    def test_C10_what_people_try_first(self):
        version = self.expect(0, pelton("--version")).stdout
        for words in (["-v"], ["version"], ["-V"]):
            self.assertEqual(self.expect(0, pelton(*words)).stdout, version)
        for group, verb in (("bench", b"bench serve"), ("cache", b"cache purge")):
            for words in ([group, "--help"], [group, "-h"], ["help", group]):
                self.assertIn(verb, self.expect(0, pelton(*words)).stdout)
            self.assertIn(verb, self.expect(2, pelton(group)).stderr)
        self.assertIn(b"give the MODEL itself", self.expect(2, pelton("generate", "--model", "x")).stderr)
        self.assertRegex(pelton("--help").stdout, rb"Exit codes\n[^E]*\b7 ")
        for columns in (40, 60, 80):
            for words in ([], ["bench", "serve"], ["plan"], ["serve"], ["chat"]):
                text = pelton(*words, "--help", env={"COLUMNS": str(columns)}).stdout.decode()
                for line in text.splitlines():  # a single word may be longer
                    self.assertTrue(len(line) <= columns or " " not in line.strip(), line)

    def test_A7_a_zero_is_a_zero(self):
        for zero in ("0", "0.0", "0.00"):
            done = pelton("generate", ROOT / "models" / "pelton-box", "--prompt", "x", "--temperature", zero, "--seed", "1",
                          "--max-tokens", "1")
            self.assertEqual(done.returncode, 2)
            self.assertIn(b"--seed has no effect with --temperature 0", done.stderr)

    def test_C10_generate_reads_what_it_is_given(self):
        box = ROOT / "models" / "pelton-box"
        flags = ["--max-tokens", "12", "--kv-cache-memory", "32MiB"]
        said = self.expect(0, pelton("generate", box, "--prompt", "What is a Pelton wheel?", *flags))
        self.assertNotIn(b"<|", said.stdout)
        self.assertIn(b"pelton chat", said.stderr)
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "prompt.txt")
            file.write_text("What is a Pelton wheel?\n")
            for words, stdin in ((["--file", file], b""), ([], file.read_bytes()), (["--file", "-"], file.read_bytes())):
                done = self.expect(0, pelton("generate", box, *words, *flags, stdin=stdin))
                self.assertEqual(done.stdout, said.stdout)
            self.expect(2, pelton("generate", box, "--file", file, "--prompt", "x"))
        self.assertIn(b"prompt is empty", self.expect(2, pelton("generate", box)).stderr)
        # The first example of its help, on a model whose context is short.
        done = self.expect(0, pelton("bench", "prefix", box, "--runs", "1", "--kv-cache-memory", "64MiB",
                                     env={"PELTON_BENCH_LOCK_HELD": "1"}))
        self.assertEqual(len(done.stdout.splitlines()), 3)

    def test_readme_names_the_verbs(self):
        text = (ROOT / "README.md").read_text()
        listed = pelton("--help").stdout.decode().split("\nVerbs\n")[1].split("\n\n")[0]
        verbs = {match.strip() for match in re.findall(r"(?m)^  ((?:[a-z][a-z-]* )+)", listed)}
        for verb in verbs:
            self.assertRegex(text, f"`(pelton )?{verb}[ `]")
        for named in re.findall(r"\| `pelton ((?:[a-z][a-z-]* ?)+)", text):
            self.assertIn(" ".join(named.split()), verbs)
        for verb, flag in re.findall(r"pelton ([a-z]+)[^\n`|]* (--[a-z-]+)", text):
            self.assertIn(flag, pelton(verb, "--help").stdout.decode())

    def test_usage_errors_are_2(self):
        for words in ([], ["fly"], ["serve"], ["generate", TINY, "--max-tokns", "3"],
                      ["generate", TINY, "--max-tokens", "many"], ["bench"], ["bench", "latency"],
                      ["inspect", TINY, TINY], ["generate", TINY, "--max-tokens", "3"],
                      ["tokenize", RANKS, "--text", "a", "--file", "b"]):
            done = self.expect(2, pelton(*words))
            self.assertEqual(done.stdout, b"")
            self.assertTrue(done.stderr.startswith(b"pelton: "))
        self.assertIn(b"did you mean '--max-tokens'?", pelton("generate", "m", "--max-tokns").stderr)

    def test_of_two_tenants_none_is_erased(self):
        for words in (["kv", "erase", "nowhere", "--kv-disk-key-file", "key"], ["store", "erase", "nowhere"], ["fleet", "erase", "--admin", "http://127.0.0.1:1"]):
            done = self.expect(2, pelton(*words, "--tenant", "a", "--tenant=b"))
            self.assertIn(b"--tenant is given twice: give one", done.stderr, words)

    def test_missing_model_is_4(self):
        for words in (["inspect"], ["serve"], ["chat"], ["generate", "--prompt", "x"],
                      ["tokenize", "--text", "x"], ["logits", "--tokens", TINY / "tokens.json", "--out", "/dev/null"]):
            done = self.expect(4, pelton(words[0], "/nowhere/at/all", *words[1:]))
            self.assertIn(b"/nowhere/at/all", done.stderr)
        with tempfile.TemporaryDirectory() as cache:
            done = self.expect(4, pelton("serve", "openai/gpt-oss-20b", env={"HF_HUB_CACHE": cache, "HF_HUB_OFFLINE": "1"}))
            self.assertIn(b"openai/gpt-oss-20b", done.stderr)

    def test_damaged_model_is_4(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            for file in ("config.json", "generation_config.json"):
                (folder / file).write_bytes((TINY / file).read_bytes())
            weights = (TINY / "model.safetensors").read_bytes()
            (folder / "model.safetensors").write_bytes(weights[:len(weights) // 2])
            done = self.expect(4, pelton("inspect", folder))
            self.assertIn(b"model.safetensors", done.stderr)
            (folder / "config.json").write_text('{"architectures": ["LlamaForCausalLM"], "model_type": "llama"}')
            done = self.expect(4, pelton("inspect", folder))
            self.assertIn(b"config.json", done.stderr)

    def test_tokenize_vectors(self):
        vectors = json.loads((ROOT / "testdata/tokenizer/vectors.json").read_text())
        self.assertGreaterEqual(len(vectors), 121)
        for vector in vectors[::20]:  # all of them are tested in the room; here the way in and out
            text = vector["text"].encode()
            done = self.expect(0, pelton("tokenize", RANKS, "--file", "-", "--ids", stdin=text))
            self.assertEqual(json.loads(done.stdout), vector["ids"])
            back = self.expect(0, pelton("tokenize", RANKS, "--decode", stdin=done.stdout))
            self.assertEqual(back.stdout, text)

    def test_tokenize_special(self):
        plain = json.loads(pelton("tokenize", RANKS, "--text", "<|start|>", "--ids").stdout)
        special = json.loads(pelton("tokenize", RANKS, "--text", "<|start|>", "--ids", "--special").stdout)
        self.assertGreater(len(plain), 1)
        self.assertEqual(special, [200006])
        self.expect(2, pelton("tokenize", RANKS, "--decode", "--text", "[1, -2]"))
        self.expect(2, pelton("tokenize", RANKS, "--decode", "--text", "[1,"))
        self.expect(1, pelton("tokenize", RANKS, "--file", "/nowhere"))

    def test_inspect(self):
        done = self.expect(0, pelton("inspect", TINY, "--json"))
        self.assertIsInstance(json.loads(done.stdout), dict)
        text = self.expect(0, pelton("inspect", TINY)).stdout.decode()
        self.assertNotIn("\x1b", text)

    def test_generate_golden_tokens(self):
        tokens = json.loads((TINY / "tokens.json").read_text())
        with tempfile.TemporaryDirectory() as folder:
            ids = pathlib.Path(folder) / "ids.json"
            ids.write_text(json.dumps(tokens["prompt"]))
            done = self.expect(0, pelton("generate", TINY, "--tokens", ids, "--max-tokens", 64,
                                         "--temperature", 0, "--kernels", "reference", "--ids"))
            self.assertEqual(json.loads(done.stdout), tokens["continuation"][:64])

    def test_logits_golden(self):
        shape, exact = read_npy(TINY / "logits_exact.npy")
        positions = json.loads((TINY / "tokens.json").read_text())["logit_positions"]
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "logits.npy"
            hidden = pathlib.Path(folder) / "hidden.npy"
            self.expect(0, pelton("logits", TINY, "--tokens", TINY / "tokens.json", "--out", out,
                                  "--kernels", "reference", "--chunk", 7, "--hidden", hidden))
            got_shape, got = read_npy(out)
            self.assertEqual(got_shape[1], shape[1])
            for row, position in enumerate(positions):
                want = exact[row * shape[1]:(row + 1) * shape[1]]
                have = got[position * shape[1]:(position + 1) * shape[1]]
                error = sum((a - b) ** 2 for a, b in zip(want, have)) / sum(a * a for a in want)
                self.assertLess(error ** 0.5, 1e-4, f"position {position}")
            self.assertEqual(read_npy(hidden)[0][0], 1 + 2 * 2)
            self.expect(0, pelton("logits", TINY, "--tokens", TINY / "tokens.json", "--out", out,
                                  "--positions", "3:5", "--threads", 1))
            self.assertEqual(read_npy(out)[0], (2, shape[1]))


    def test_logits_refuses_what_cannot_be(self):
        with tempfile.TemporaryDirectory() as folder:
            ids, out = pathlib.Path(folder) / "ids.json", pathlib.Path(folder) / "out.npy"
            for text, flags, word in (("[1, 2, 512]", [], "512"), ("[]", [], "no token ids"), ("{}", [], "array"),
                                      ("[1.5]", [], "element 0"), ("[-1]", [], "element 0"), ("[1", [], "ids.json"),
                                      ("[1, 2]", ["--positions", "1:3"], "--positions"),
                                      ("[1, 2]", ["--positions", "1"], "--positions"),
                                      ("[1, 2]", ["--positions", "2:1"], "--positions"),
                                      ("[1, 2]", ["--kernels", "warp"], "--kernels"),
                                      ("[1, 2]", ["--chunk", 0], "--chunk")):
                ids.write_text(text)
                done = self.expect(2, pelton("logits", TINY, "--tokens", ids, "--out", out, *flags))
                self.assertIn(word, done.stderr.decode())
                self.assertFalse(out.exists())
            ids.write_text("[1, 2]")
            self.expect(1, pelton("logits", TINY, "--tokens", ids, "--out", folder + "/no/such/folder.npy"))

    def test_bench_latency(self):
        done = self.expect(0, pelton("bench", "latency", TINY, "--batch-size", 2, "--input-len", 20,
                                     "--output-len", 4, "--depth", 600, "--runs", 2, "--json", "-"))
        numbers = json.loads(done.stdout)
        for key in ("prefill_tok_s", "decode_tok_s", "bytes_per_token", "bytes_per_step", "bandwidth_probe", "share",
                    "share_of_median_step", "step_ms_p50", "peak_rss"):
            self.assertGreater(numbers[key], 0, key)
        self.assertLessEqual(numbers["step_ms_p50"], numbers["step_ms_p90"])
        self.assertLessEqual(numbers["step_ms_p90"], numbers["step_ms_max"])
        # The mean step, of two sequences.
        self.assertLess(2e3 / numbers["decode_tok_s"], 1.001 * numbers["step_ms_max"])
        # Two sequences share all weights but their experts'.
        self.assertGreater(numbers["bytes_per_step"], numbers["bytes_per_token"])
        self.assertLess(numbers["bytes_per_step"], 2 * numbers["bytes_per_token"])
        self.assertLess(numbers["peak_rss"], 1 << 30)  # the probe's buffer is not the model's
        self.assertLessEqual(numbers["bandwidth_probe_min"], numbers["bandwidth_probe"])
        self.assertLessEqual(numbers["bandwidth_probe"], numbers["bandwidth_probe_max"])
        self.expect(2, pelton("bench", "latency", TINY, "--depth", "1M"))

    def test_bench_bandwidth(self):
        # Within tools/alone, which holds the lock already.
        done = subprocess.run([ROOT / "tools" / "alone", BINARY, "bench", "bandwidth", "--buffer-size", "256MiB",
                               "--runs", "3", "--json", "-"], capture_output=True, timeout=200, check=True)
        numbers = json.loads(done.stdout)
        self.assertEqual(numbers["buffer_bytes"], 256 << 20)
        for way in numbers["ways"]:
            self.assertGreater(way["min"], 1e8)
            self.assertLess(way["max"], 1e13)  # faster than any memory: nothing was read
            self.assertLessEqual(way["min"], way["median"])

    def test_bench_exchange(self):
        for transport in ("shm", "tcp"):
            for ranks in (2, 3) if FULL else (3,):
                done = subprocess.run([ROOT / "tools" / "alone", BINARY, "bench", "exchange", "--transport", transport, "--ranks", str(ranks),
                                       "--rounds", "50", "--json", "-"], capture_output=True, timeout=200, check=True)
                numbers = json.loads(done.stdout)
                self.assertEqual((numbers["transport"], numbers["ranks"]), (transport, ranks))
                self.assertEqual([one["bytes"] for one in numbers["exchanges"]], [1024 << 2 * i for i in range(6)])
                for one in numbers["exchanges"]:
                    self.assertGreater(one["median_us"], 0.01)  # less and nothing was exchanged
                    self.assertLessEqual(one["median_us"], one["p99_us"])
            # Of a size that is no page's, as a layer's columns are.
            odd = subprocess.run([ROOT / "tools" / "alone", BINARY, "bench", "exchange", "--transport", transport, "--bytes", "46081",
                                  "--rounds", "20", "--json", "-"], capture_output=True, timeout=200, check=True)
            self.assertEqual([one["bytes"] for one in json.loads(odd.stdout)["exchanges"]], [46081])
        self.expect(2, pelton("bench", "exchange", "--transport", "mpi"))
        self.expect(2, pelton("bench", "exchange", "--bytes", "2", "--ranks", "3"))

    def test_one_measurement_at_a_time(self):
        with open("/tmp/pelton-bench.lock", "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            second = subprocess.Popen([BINARY, "bench", "bandwidth", "--buffer-size", "64MiB", "--runs", "1"],
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            self.assertIn(b"waiting", second.stderr.readline())
            self.assertIsNone(second.poll())
        out, _ = second.communicate(timeout=200)
        self.assertEqual(second.returncode, 0)
        self.assertIn(b"1 stream", out)

    def test_bench_prefix(self):
        done = self.expect(0, pelton("bench", "prefix", TINY, "--input-len", 600, "--shared", "0,520,568,600",
                                     "--runs", 1, "--json", "-", "--max-model-len", "1K"))
        numbers = json.loads(done.stdout)
        computed = {row["shared"]: row["computed"] for row in numbers["rows"]}
        # Up to the last prefix checkpoint before the parting, at least; near the prompt's end, to the block.
        self.assertEqual(computed[0], 600)
        self.assertLessEqual(computed[520], 600 - 512)
        self.assertLessEqual(computed[568], 600 - 560)
        self.assertLessEqual(computed[600], 600 - 592)
        self.assertGreater(numbers["ttft_cold_s"], 0)
        self.expect(2, pelton("bench", "prefix", TINY, "--input-len", 600, "--shared", "601"))
        self.expect(2, pelton("bench", "prefix", TINY, "--shared", "5,,6"))


class Serve(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.model = cls.folder.name + "/model"
        done = pelton("synth", "--like", ROOT / "testdata/demo_model.json", cls.model)
        assert done.returncode == 0, done.stderr
        cls.script = cls.folder.name + "/script.json"
        pathlib.Path(cls.script).write_text(json.dumps({"step_ms": 20, "rules": [
            {"when": "", "then": ["<|channel|>final<|message|>", {"text": "and on ", "times": 50}]}]}))

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def serve(self, *flags, env=None):
        """A running server and its port."""
        server = subprocess.Popen([BINARY, "serve", self.model, "--port", "0", *flags], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, env={**os.environ, **(env or {})})

        def end():
            server.kill()
            server.wait()
            server.stdout.close()
            server.stderr.close()
        self.addCleanup(end)
        line = server.stdout.readline().decode()
        self.assertRegex(line, r"^listening on http://127\.0\.0\.1:\d+\n$")
        return server, int(line.rsplit(":", 1)[1])

    def ask(self, port, path="/v1/chat/completions", body=None, headers=None):
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Content-Type": "application/json", **(headers or {})},
                                         data=json.dumps(body).encode() if body else None)
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.loads(response.read())

    def test_generate_interrupted_is_130(self):
        with subprocess.Popen([BINARY, "generate", self.model, "--prompt", "x", "--max-tokens", "100",
                               "--executor", "modelled:" + self.script],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
            self.assertTrue(running.stdout.read(1))  # it has begun to answer
            running.send_signal(signal.SIGINT)
            self.assertEqual(running.wait(10), 130)

    def test_address_in_use_is_6(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            done = pelton("serve", self.model, "--port", taken.getsockname()[1])
            self.assertEqual(done.returncode, 6, done.stderr)
            self.assertIn(str(taken.getsockname()[1]).encode(), done.stderr)

    def test_wrong_configuration(self):
        script = pathlib.Path(self.folder.name) / "wrong.json"
        script.write_text('{"rules": 3}')
        for code, flags in ((3, ["--executor", f"modelled:{script}"]), (3, ["--executor", "modelled:/nowhere"]),
                            (2, ["--executor", "warp"]), (2, ["--current-date", "tomorrow"]),
                            (2, ["--port", "70000"]), (5, ["--kv-cache-memory", "1KiB"])):
            done = pelton("serve", self.model, "--port", 0, *flags)
            self.assertEqual(done.returncode, code, f"{flags}: {done.stderr}")

    def test_running_answer_ends_before_the_server(self):
        server, port = self.serve("--executor", "modelled:" + self.script)
        body = {"messages": [{"role": "user", "content": "x"}]}
        answer = {}
        asking = threading.Thread(target=lambda: answer.update(self.ask(port, body=body)))
        asking.start()
        time.sleep(0.3)  # 150 steps of 20 ms: well in the middle
        server.send_signal(signal.SIGTERM)
        asking.join()
        self.assertEqual(answer["choices"][0]["message"]["content"], "and on " * 50)
        self.assertEqual(server.wait(30), 0)

    def test_names_key_and_date(self):
        _, port = self.serve("--served-model-name", "wheel", "--current-date", "2020-01-02", "--log-json",
                             env={"PELTON_API_KEY": "secret"})
        with self.assertRaises(urllib.error.HTTPError) as refused:
            self.ask(port, "/v1/models")
        self.assertEqual(refused.exception.code, 401)
        refused.exception.close()
        models = self.ask(port, "/v1/models", headers={"Authorization": "Bearer secret"})
        self.assertEqual([model["id"] for model in models["data"]], ["wheel"])

    def test_second_interrupt_ends_at_once(self):
        server, port = self.serve("--executor", "modelled:" + self.script)
        body = {"messages": [{"role": "user", "content": "x"}]}
        asking = threading.Thread(target=lambda: self.assertRaises(OSError, self.ask, port, body=body))
        asking.start()
        time.sleep(0.3)
        server.send_signal(signal.SIGINT)
        time.sleep(0.2)
        server.send_signal(signal.SIGINT)
        self.assertEqual(server.wait(10), 130)
        asking.join()


if __name__ == "__main__":
    BINARY = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
