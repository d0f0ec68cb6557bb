#!/usr/bin/env python3
"""plan, calibrate and simulate as a user meets them; plan's numbers are those that serve logs, to the byte.

usage: plan_test.py BINARY
"""
import ctypes
import json
import math
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
import urllib.request

from tiers import full
from whisper_model import write_model

ROOT = pathlib.Path(__file__).resolve().parent.parent
BINARY = None


def pelton(*words, code=0):
    done = subprocess.run([BINARY, *map(str, words)], capture_output=True, timeout=200, check=False)
    assert done.returncode == code, (words, done.returncode, done.stderr.decode(), done.stdout.decode()[-500:])
    return done.stdout.decode() if code == 0 else done.stderr.decode()


def planned_types():
    """Values of model_type that are counted and not computed; there may be none."""
    listed = re.search(r"\bkPlannedTypes\b([^;]*);", (ROOT / "src/families/registry.cc").read_text())
    assert listed, "src/families/registry.cc lists no kPlannedTypes"
    return re.findall(r'"(\w+)"', listed[1])


def start_up_numbers(model, *flags):
    """What serve logs before it listens."""
    process = subprocess.Popen([BINARY, "serve", model, "--port", "0", "--log-level", "debug", *flags], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline().startswith("listening on ")
        process.terminate()
        log = process.communicate(timeout=60)[1]
    finally:
        process.kill()
    line = next(line for line in log.splitlines() if " memory, exactly: " in line)
    names = ("weights", "workspace", "kv_allocated", "kv_formula", "swap", "total", "max_sequences")
    return {name: int(re.search(rf"\b{name} (\d+)", line)[1]) for name in names}


class ToTheByte(unittest.TestCase):
    def compare(self, model, *flags):
        plan = json.loads(pelton("plan", model, "--memory", "--json", *flags))
        engine = start_up_numbers(model, *flags)
        for name, value in engine.items():
            self.assertEqual(plan[name], value, f"{model} {flags}: {name}")

    def test_box_model(self):
        for flags in ([], ["--kv-cache-memory", "64MiB"], ["--kv-cache-memory", "96MiB", "--max-num-seqs", "5"],
                      ["--kv-cache-memory", "64MiB", "--kv-cache-dtype", "int8", "--swap-space", "8MiB"],
                      ["--kv-cache-memory", "64MiB", "--weights", "int8"]):
            self.compare(str(ROOT / "models/pelton-box"), *flags)

    def test_dense_models_in_bytes(self):
        for like in ("qwen3", "llama3"):
            with tempfile.TemporaryDirectory() as folder:
                pelton("synth", "--like", ROOT / "testdata/golden" / like / "config.json", folder + "/model")
                self.compare(folder + "/model", "--kv-cache-memory", "32MiB", "--weights", "int8")

    def test_golden_models(self):
        for name in ("tiny", "mid"):
            with tempfile.TemporaryDirectory() as folder:
                pelton("synth", "--like", ROOT / "testdata/golden" / name / "config.json", folder + "/model")
                self.compare(folder + "/model", "--kv-cache-memory", "32MiB")

    @full
    def test_layers_of_20b(self):
        with tempfile.TemporaryDirectory(dir="/tmp") as folder:
            pelton("synth", "--like", "gpt-oss-20b", "--layers", "2", folder + "/model")
            self.compare(folder + "/model", "--kv-cache-memory", "1GiB")


def lock_nothing():
    """In a child before exec: neither a limit nor the right to pass over it."""
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0))
    if os.geteuid() == 0:
        drop, ipc_lock = 24, 14  # PR_CAPBSET_DROP, CAP_IPC_LOCK
        assert ctypes.CDLL(None, use_errno=True).prctl(drop, ipc_lock, 0, 0, 0) == 0


def may_lock(size):
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    return os.geteuid() == 0 or limit == resource.RLIM_INFINITY or limit >= size


class LoadMode(unittest.TestCase):
    MODEL = ROOT / "models/pelton-box"
    FLAGS = ("--kv-cache-memory", "32MiB", "--device", "cpu")

    def serve(self, mode, before=None):
        """What /server_info says while it serves, what is locked then, and the log."""
        process = subprocess.Popen([BINARY, "serve", self.MODEL, "--port", "0", "--load-mode", mode, *self.FLAGS],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=before)
        try:
            line = process.stdout.readline()
            if not line:
                return None, 0, process.communicate(timeout=60)[1]
            with urllib.request.urlopen(line.split()[-1] + "/server_info", timeout=30) as answer:
                runtime = json.load(answer)["runtime"]
            status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
            locked = int(re.search(r"VmLck:\s*(\d+) kB", status)[1]) << 10
            process.terminate()
            return runtime, locked, process.communicate(timeout=60)[1]
        finally:
            process.kill()
            process.wait()

    def plan(self, mode, before=None):
        done = subprocess.run([BINARY, "plan", self.MODEL, "--memory", "--json", "--load-mode", mode,
                               "--kv-cache-memory", "32MiB"], capture_output=True, timeout=60, check=True,
                              preexec_fn=before)
        return json.loads(done.stdout)

    def test_what_is_allowed_is_locked_and_nothing_else(self):
        size = (self.MODEL / "model.safetensors").stat().st_size
        if not may_lock(size):
            self.skipTest(f"{size} bytes may not be locked here")
        for asked, taken in (("auto", "lock"), ("lock", "lock"), ("mmap", "mmap"), ("read", "read")):
            runtime, locked, log = self.serve(asked)
            self.assertEqual(runtime["load_mode"], taken, log)
            self.assertEqual(locked >= size, taken == "lock", (asked, locked))
            self.assertIn(f"load mode {taken}", log)
            self.assertEqual(self.plan(asked)["load_mode"], taken)

    def test_where_nothing_may_be_locked(self):
        runtime, locked, log = self.serve("auto", lock_nothing)
        self.assertEqual((runtime["load_mode"], locked), ("mmap", 0))
        for text in (runtime["load_mode_reason"], log, self.plan("auto", lock_nothing)["load_mode_reason"]):
            self.assertIn("ulimit -l", text)
        runtime, _, log = self.serve("lock", lock_nothing)
        self.assertIsNone(runtime, "it serves all the same")
        self.assertIn("may not be locked into memory", log)


class OtherWeightsAndDevices(unittest.TestCase):
    def test_memory_of_a_gpu_that_is_not_here(self):
        of_gpu = json.loads(pelton("plan", "gpt-oss-20b", "--device", "cuda", "--device-memory", "24GiB", "--json"))
        self.assertGreater(of_gpu["weights"], 12 << 30)
        self.assertGreater(of_gpu["kv_allocated"], 1 << 30)
        self.assertLessEqual(of_gpu["total"], 24 << 30)
        text = pelton("plan", "gpt-oss-120b", "--device", "cuda", "--device-memory", "24GiB", code=5)
        self.assertRegex(text, r"weights take \d+ bytes and working memory \d+, of \d+")

    def test_what_cannot_be(self):
        cuda = ("--device", "cuda", "--device-memory", "80GiB")
        self.assertIn("--weights int8", pelton("plan", "gpt-oss-20b", *cuda, "--weights", "int8", code=2))
        self.assertIn("no device computes", pelton("plan", "llama-3.1-8b", *cuda, code=4))
        self.assertIn("--device cuda", pelton("plan", "gpt-oss-20b", "--device-memory", "80GiB", code=2))
        self.assertIn("is not packed", pelton("plan", "mixtral-8x7b", "--weights", "int8", code=4))

    def test_12_bits_and_8(self):
        weights = {name: json.loads(pelton("plan", "llama-3.1-8b", "--json", "--weights", name))["weights"]
                   for name in ("mapped", "shipped", "int8")}
        self.assertLess(weights["int8"], weights["shipped"])
        self.assertLess(weights["shipped"], 0.82 * weights["mapped"])


class Plan(unittest.TestCase):
    def test_other_hardware(self):
        plan = json.loads(pelton("plan", "gpt-oss-120b", "--gpu", "h100", "--json", "--max-num-batched-tokens", 2048))
        kv = plan["memory"]["kv_bytes"]["value"]
        self.assertTrue(5.3e9 < kv < 5.6e9, kv)
        self.assertEqual(plan["memory"]["kv_token_bytes"]["value"], 36 << 10)
        self.assertEqual(plan["memory"]["kv_sequence_bytes"]["value"], 4.5 * (1 << 20))

    def test_closed_form(self):
        plan = json.loads(pelton("plan", "llama-3.1-405b", "--gpu", "h200", "--devices", 8, "--json"))
        book = {row[""]: row["closed_form"] for row in plan["closed_form"]["formulas"]}
        self.assertEqual(book["parameters"], 810e9)
        self.assertEqual(book["KV cache"], 15.75 * 2**30)
        self.assertEqual(book["attention activations"], 5 * 2**30)
        self.assertEqual(book["feed-forward activations"], 8.5 * 2**30)
        self.assertEqual(book["token ids"], 64 << 10)

    def test_capacity_and_its_page(self):
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder, "plan.html")
            text = pelton("plan", "--model", "gpt-oss-120b", "--instance", "p4de.24xlarge", "--slo", "ttft=500ms,itl=30ms",
                          "--workload", "conversation", "--rps", 50, "--max-num-seqs", 256, "--explain", "--html", page)
            self.assertIn("copies", text)
            self.assertIn("a million output tokens", text)
            self.assertIn("= allowed - together", text)
            self.assertRegex(text, "EP8|TP8")
            self.assertIn("<h2>Capacity", page.read_text())
            self.assertNotIn("http", page.read_text())

    def run_plan(self, *words, columns=None):
        env = {**os.environ, **({"COLUMNS": str(columns)} if columns else {})}
        return subprocess.run([BINARY, "plan", *map(str, words)], capture_output=True, text=True, timeout=100, check=False,
                              env=env)

    def test_A4_says_first_what_serve_cannot_run(self):
        for words in (("--gpu", "h100", "--devices", 8, "--layout", "tp8"),
                      ("--instance", "p4de.24xlarge", "--slo", "itl=30ms", "--rps", 50), ("--gpu", "h100")):
            first = self.run_plan("gpt-oss-120b", *words).stdout.splitlines()[0]
            self.assertIn("nothing that `pelton serve` can run yet", first)
        said = json.loads(self.run_plan("gpt-oss-120b", "--gpu", "h100", "--json").stdout)
        self.assertIn("can run yet", said["headline"][0])
        done = pelton("simulate", "gpt-oss-20b", "--gpu", "h100", "--num-prompts", 2)
        self.assertIn("can run yet", done.splitlines()[0])

    def test_ranks_are_forecast_where_there_are_several_devices(self):
        words = ("gpt-oss-20b", "--gpu", "cpu-zen4-2", "--workload", "conversation", "--num-prompts", 20)
        text = " ".join(self.run_plan(*words, "--devices", 2).stdout.split())
        self.assertIn("Forecast, measured nowhere", text)
        self.assertRegex(text, r"2 ranks over shm: (TP|EP) (at|from) \d+.* answers at once; 2 ranks over 10 GbE: (TP|EP) ")
        self.assertNotIn("computes on one device", text)
        ranks = json.loads(self.run_plan(*words, "--devices", 2, "--json").stdout)["ranks"]
        self.assertEqual(ranks["tp_exchanges"]["value"], 97)
        self.assertEqual(ranks["ep_exchanges"]["value"], 73)
        self.assertEqual(ranks["tp_token_bytes"]["value"], 2052096)
        self.assertEqual([(row["form"], row["over"]) for row in ranks["exchanges"]],
                         [(form, link) for form in ("TP2", "EP2") for link in ("shm", "10 GbE")])
        self.assertNotIn("ranks", json.loads(self.run_plan(*words, "--json").stdout))
        (memory,) = ranks["rank_memory"]
        whole = json.loads(self.run_plan(*words, "--json").stdout)["memory"]
        weights = [whole[name]["value"] for name in ("experts", "attention", "embedding", "head", "norms_and_routers")]
        self.assertTrue(sum(weights) / 2 < memory["weights"] < 0.7 * sum(weights), (memory, weights))  # embedding and head are whole
        self.assertEqual(memory["a token of context"], whole["kv_token_bytes"]["value"] / 2)
        self.assertEqual(memory["left for KV"], memory["allowed"] - memory["together"])

    def test_what_each_rank_holds_is_of_files_here(self):
        text = self.run_plan(ROOT / "models" / "pelton-box", "--tensor-parallel-size", 2, "--kv-cache-memory", "16MiB").stdout
        self.assertRegex(text, r"rank 0 +weights \d.*\n  rank 1 +weights \d")
        for words, said in ((("gpt-oss-20b",), "is counted in a model's files"),
                            ((ROOT / "models" / "pelton-box", "--weights", "int8"), "not packed yet"),
                            (("gpt-oss-20b", "--gpu", "l4"), "has no effect with --gpu")):
            done = self.run_plan(*words, "--tensor-parallel-size", 2)
            self.assertIn(said, done.stderr)
            self.assertNotEqual(done.returncode, 0)
        self.assertIn("processors share a model out as ranks, which --devices",
                      self.run_plan("gpt-oss-20b", "--gpu", "cpu-zen4-2", "--devices", 2, "--layout", "ep2").stderr)

    def test_A5_an_instance_has_its_own_fit(self):
        plan = self.run_plan("gpt-oss-120b", "--instance", "p4de.24xlarge", "--slo", "itl=30ms", "--rps", 50).stdout
        self.assertRegex(" ".join(plan.split()), r"120 % of its bandwidth, 12 % of its bf16 rate, 6\.5 ms a step")
        self.assertRegex(plan, r"a copy's requests +[\d.]+/s \([\d.]+/s to [\d.]+/s\)")
        self.assertRegex(plan, r"a million output tokens +\$[\d.]+ \(\$[\d.]+ to \$[\d.]+\)")
        shared = self.run_plan("gpt-oss-120b", "--gpu", "a100-80", "--slo", "itl=90ms", "--rps", 5).stdout
        self.assertIn("60 % of its bandwidth", " ".join(shared.split()))

    def test_A6_the_best_batch_is_searched_and_its_limit_named(self):
        load = ("gpt-oss-120b", "--instance", "p5.48xlarge", "--slo", "itl=30ms", "--rps", 50)
        best = json.loads(self.run_plan(*load, "--json").stdout)["capacity"]
        capped = json.loads(self.run_plan(*load, "--json", "--max-num-seqs", 16).stdout)["capacity"]
        self.assertLess(best["copies"]["value"] * 3, capped["copies"]["value"])
        self.assertTrue(all(row["limited by"] == "--max-num-seqs 16" for row in capped["layouts"]
                            if row["answers at once"] == 16), capped["layouts"])
        for row in best["layouts"]:
            if row["answers at once"] != "no":
                self.assertRegex(row["limited by"], "memory|between tokens|first token|step time|--max-num")
                self.assertNotEqual(row["limited by"], "--max-num-seqs 16")
        said = " ".join(self.run_plan(*load).stdout.split())
        self.assertRegex(said, r"runs with --max-num-seqs \d+ --max-num-batched-tokens \d+; .* is what keeps it from more")

    def test_A8_too_large_here_says_by_how_much(self):
        done = self.run_plan(ROOT / "testdata/golden/tiny", "--memory")
        self.assertEqual(done.returncode, 0, done.stderr)
        memory = json.loads(self.run_plan("gpt-oss-20b", "--memory", "--json").stdout or "{}").get("memory", 0)
        if memory > 150 << 30:
            self.skipTest("everything fits here")
        done = self.run_plan("gpt-oss-120b", "--memory")
        if memory > 64 << 30:
            self.assertEqual(done.returncode, 0)
            return
        self.assertEqual(done.returncode, 5)
        self.assertRegex(done.stderr, r"the weights take [\d.]+ GiB and working memory [\d.]+ GiB, of [\d.]+ GiB of memory: "
                                      r"short by [\d.]+ GiB")
        self.assertRegex(done.stderr, "would fit here|this machine is too small for gpt-oss-20b and for gpt-oss-120b")
        self.assertNotIn("16 tokens", done.stderr)

    def test_A3_a_flag_that_asks_for_too_much_is_not_the_models_fault(self):
        done = self.run_plan(ROOT / "models/pelton-box", "--memory", "--kv-cache-memory", "100TiB")
        self.assertEqual(done.returncode, 5)
        self.assertRegex(done.stderr, r"--kv-cache-memory asks for [\d.]+ GiB of [\d.]+ GiB of memory.*at most [\d.]+ GiB")
        self.assertNotIn("gpt-oss", done.stderr)  # this machine holds what was asked about

    def test_A8_what_is_known_of_this_machine_is_said(self):
        # Published shapes of families that serve runs.
        for model in ("deepseek-v3", "llama-3.1-405b"):
            self.assertRegex(pelton("plan", model, "--memory", code=5), r"the weights take [\d.]+ GiB")
        with tempfile.TemporaryDirectory() as folder:
            config = pathlib.Path(folder, "config.json")
            shape = json.loads((ROOT / "src/cost_model/data/models/llama-3.1-8b.json").read_bytes())
            for planned in planned_types():
                shape |= {"model_type": planned, "architectures": ["PlannedForCausalLM"]}
                config.write_text(json.dumps(shape))
                said = pelton("plan", config, code=4)
                self.assertIn("PlannedForCausalLM", said)
                self.assertIn("--gpu or --instance", said)

    def capacity(self, *words):
        return json.loads(self.run_plan("gpt-oss-120b", "--gpu", "h100", *words, "--json").stdout)["capacity"]

    def test_A7_a_layout_is_the_one_that_is_judged(self):
        load = ("--devices", 8, "--slo", "itl=30ms", "--rps", 50)
        self.assertGreater(len(self.capacity(*load)["layouts"]), 3)
        for layout in ("tp8", "ep4", "1"):
            rows = self.capacity(*load, "--layout", layout)["layouts"]
            self.assertEqual([row["layout"] for row in rows], ["one device" if layout == "1" else layout.upper()])
        text = self.run_plan("gpt-oss-120b", "--gpu", "h100", *load, "--layout", "tp8").stdout
        self.assertRegex(" ".join(text.split()), r"\d+ cop(y|ies) of TP8")
        self.assertNotIn("EP2", text.split("Memory of one")[0])

    def test_a_layout_has_its_devices(self):
        for verb in ("plan", "simulate"):
            said = pelton(verb, "gpt-oss-120b", "--gpu", "h100", "--devices", 2, "--layout", "tp4", code=2)
            self.assertIn("--layout tp4 takes 4 devices, more than --devices 2", said)
            with unittest.mock.patch.dict(os.environ, {"PELTON_LAYOUT": "tp4", "PELTON_DEVICES": "2"}):
                said = pelton(verb, "gpt-oss-120b", "--gpu", "h100", code=3)
                self.assertIn("$PELTON_LAYOUT: layout tp4 takes 4 devices, more than $PELTON_DEVICES 2", said)
                said = pelton(verb, "gpt-oss-120b", "--gpu", "h100", "--layout", "ep4", code=2)
                self.assertIn("--layout ep4 takes 4 devices, more than $PELTON_DEVICES 2", said)
            said = pelton(verb, "gpt-oss-120b", "--instance", "p4de.24xlarge", "--layout", "ep16", code=2)
            self.assertRegex(said, r"--layout ep16 takes 16 devices, more than the 8 of p4de")
        pelton("plan", "gpt-oss-120b", "--gpu", "h100", "--layout", "tp4")  # as many devices as it takes

    def test_A13_each_turn_is_a_request(self):
        with tempfile.TemporaryDirectory() as folder:
            def demand(turns):
                load = pathlib.Path(folder, f"{turns}.json")
                load.write_text(json.dumps({"input_tokens": 50, "output_tokens": 400, "turns": turns, "count": 200, "rate": 6}))
                capacity = self.capacity("--workload", load, "--max-num-seqs", 16)
                share = pelton("simulate", "gpt-oss-120b", "--gpu", "h100", "--workload", load, "--num-prompts", 20)
                return capacity, int(re.search(r"load (\d+) % of what", " ".join(share.split()))[1])
            (once, once_load), (four, four_load) = demand(1), demand(4)
            used = [one["copies"]["value"] * one["utilization"]["value"] for one in (once, four)]
            self.assertGreater(used[1], 3.9 * used[0])
            self.assertGreater(four_load, 3.9 * once_load)
            self.assertLess(four_load, 8 * once_load)

    def test_a_refusal_contradicts_nothing(self):
        text = " ".join(self.run_plan("gpt-oss-120b", "--gpu", "h100", "--slo", "itl=1us").stdout.split())
        self.assertRegex(text, r"one device does not meet the objectives: a lone stream's tokens come every [\d.]+ ms at best")
        self.assertEqual(len(set(re.findall(r"stream's tokens come every ([\d.]+) ms|([\d.]+) ms between a lone", text))), 1)

    def test_C_objectives_that_no_layout_meets_end_with_5(self):
        words = ("gpt-oss-120b", "--gpu", "h100", "--rps", 5, "--slo")
        for slo, code in (("itl=1us", 5), ("itl=100ms", 0)):
            done = self.run_plan(*words, slo)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertEqual("does not meet the objectives" in done.stderr, code == 5, done.stderr)
            report = json.loads(self.run_plan(*words, slo, "--json").stdout)
            self.assertEqual((report["fits"], report["meets_objectives"]), (True, code == 0))
        self.assertNotIn("meets_objectives", json.loads(self.run_plan("gpt-oss-120b", "--gpu", "h100", "--json").stdout))

    def test_the_page_plays_what_it_plans(self):
        page = (ROOT / "docs/plan_and_simulate.md").read_text().split("```sh run\n")[1].split("```")[0].replace("\\\n", "")
        lines = [line.split("#")[0].split()[1:] for line in page.strip().splitlines()]
        plan, simulate = (next(line for line in lines if line[0] == verb and "--workload" in line)
                          for verb in ("plan", "simulate"))
        answer = " ".join(pelton(*plan).split())
        copies, layout, sequences, tokens = re.search(
            r"(\d+) copies of (\w+), .* runs with --max-num-seqs (\d+) --max-num-batched-tokens (\d+)", answer).groups()
        said = dict(zip(simulate[2::2], simulate[3::2]))
        self.assertEqual((said["--replicas"], said["--layout"].upper(), said["--max-num-seqs"],
                          said["--max-num-batched-tokens"]), (copies, layout, sequences, tokens))

    def test_C6_what_does_not_fit_ends_with_5_and_the_answer_is_first(self):
        done = self.run_plan("gpt-oss-120b", "--gpu", "l4")
        self.assertEqual(done.returncode, 5)
        self.assertRegex(done.stdout.splitlines()[1], r"does not fit on one NVIDIA L4.* 4 of them hold it \(--devices 4\)")
        self.assertIn("4 of them hold it", done.stderr)
        fits = self.run_plan("gpt-oss-120b", "--gpu", "l4", "--devices", 4)
        self.assertEqual(fits.returncode, 0, fits.stderr)
        self.assertIn("fits on TP4", fits.stdout.splitlines()[1])
        self.assertFalse(json.loads(self.run_plan("gpt-oss-120b", "--gpu", "l4", "--json").stdout)["fits"])

    def test_C7_tables_fit_the_terminal(self):
        for columns in (60, 80, 120):
            for words in (("gpt-oss-120b", "--instance", "p4de.24xlarge", "--slo", "itl=30ms", "--rps", 50, "--explain"),
                          ("--published",), ("gpt-oss-20b", "--gpu", "h100")):
                text = self.run_plan(*words, columns=columns).stdout
                wide = [line for line in text.splitlines() if len(line) > columns]
                self.assertEqual(wide, [], f"{columns} columns, {words}")

    def test_refusals_name_what_is_wrong(self):
        self.assertIn("h100", pelton("plan", "gpt-oss-20b", "--gpu", "h1000", code=2))
        self.assertIn("p4de", pelton("plan", "gpt-oss-20b", "--instance", "x1", code=2))
        self.assertIn("cannot compute in fp4", pelton("plan", "gpt-oss-20b", "--gpu", "h100", "--compute", "fp4",
                                                      "--slo", "itl=50ms", code=2))
        self.assertIn("tp8", pelton("plan", "gpt-oss-20b", "--gpu", "h100", "--layout", "x8", code=2))
        self.assertIn("is no unit", pelton("plan", "gpt-oss-20b", "--gpu", "h100", "--slo", "itl=5h", code=2))
        self.assertIn("MODEL", pelton("plan", code=2))


class Speech(unittest.TestCase):
    """Of models that turn sound into text."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="pelton_plan_speech_")
        cls.addClassCleanup(cls.folder.cleanup)
        cls.model = write_model(pathlib.Path(cls.folder.name, "whisper"))

    def plan(self, *words):
        return json.loads(pelton("plan", self.model, "--json", *words))

    @staticmethod
    def value(plan, section, name):
        return plan[section][name]["value"]

    def test_files_live_sound_and_replicas(self):
        plan = self.plan("--gpu", "cpu-zen4-2", "--audio-seconds", 90, "--audio-hours", 1e6, "--live-streams", 1e5, "--headroom", 0, "--price", 2)
        hours = self.value(plan, "speed", "audio_hours")
        self.assertAlmostEqual(hours * self.value(plan, "speed", "batch_factor"), 1)
        self.assertAlmostEqual(self.value(plan, "speed", "real_time_factor") * 90, self.value(plan, "speed", "file_s"))
        self.assertEqual(self.value(plan, "replicas", "for_files"), math.ceil(1e6 / hours))
        streams = self.value(plan, "speed", "live_streams")
        self.assertEqual(self.value(plan, "replicas", "for_live"), math.ceil(1e5 / streams))
        machines = self.value(plan, "replicas", "machines")
        self.assertEqual(machines, math.ceil(1e6 / hours) + math.ceil(1e5 / streams))
        self.assertEqual(self.value(plan, "replicas", "cost_per_hour"), 2 * machines)
        here = self.plan("--audio-seconds", 90)
        self.assertEqual(here["modelled"]["speed"]["file_s"], plan["speed"]["file_s"])  # what stands in for this machine

    def test_more_text_takes_longer_and_a_batch_less(self):
        few, many = (self.value(self.plan("--gpu", "l4", "--audio-tokens-per-second", tokens), "speed", "file_s") for tokens in (2, 6))
        self.assertGreater(many, 1.5 * few)
        alone, together = (self.value(self.plan("--gpu", "l4", "--transcription-batch", batch), "speed", "batch_factor") for batch in (1, 8))
        self.assertLess(together, alone)

    def test_what_cannot_be(self):
        refusal = pelton("plan", self.model, "--gpu", "l4", "--live-streams", 2, "--live-delay", 0.5, code=5)
        self.assertIn("No live stream's text comes within 0.5 s", refusal)
        self.assertIn("--audio-hours has no effect with --memory", pelton("plan", self.model, "--memory", "--audio-hours", 3, code=2))
        self.assertIn("--audio-hours is of speech models", pelton("plan", "gpt-oss-20b", "--audio-hours", 3, code=2))
        self.assertIn("without --slo", pelton("plan", self.model, "--gpu", "l4", "--slo", "ttft=1s", code=2))
        self.assertIn("--calibration is of models whose steps are tokens",
                      pelton("plan", self.model, "--gpu", "l4", "--audio-hours", 1, "--calibration", "none.json", code=4))


class SimulatedSpeech(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="pelton_simulate_speech_")
        cls.addClassCleanup(cls.folder.cleanup)
        cls.model = write_model(pathlib.Path(cls.folder.name, "whisper"))

    def play(self, *words):
        return json.loads(pelton("simulate", self.model, "--gpu", "cpu-zen4-2", "--json", "-", *words))

    def test_as_many_hours_as_are_planned(self):
        """Where as many files are there as a batch has, the replica is always busy, and hears what plan says that it does in an hour."""
        words = ("--audio-seconds", 600, "--audio-tokens-per-second", 3)
        played = self.play(*words, "--num-prompts", 40, "--max-concurrency", 4)
        self.assertAlmostEqual(played["utilisation"], 1)
        self.assertEqual(played["batch_windows_mean"], 4)
        planned = json.loads(pelton("plan", self.model, "--gpu", "cpu-zen4-2", "--json", *words))["speed"]
        self.assertAlmostEqual(played["audio_hours_per_hour"] / planned["audio_hours"]["value"], 1, delta=0.02)
        alone = self.play(*words, "--num-prompts", 3, "--max-concurrency", 1)
        self.assertAlmostEqual(alone["real_time_factor"]["mean"] / planned["real_time_factor"]["value"], 1)
        self.assertAlmostEqual(alone["first_text_s"]["p50"] / planned["first_text_s"]["value"], 1)

    def test_more_replicas_wait_less_and_one_seed_is_one_run(self):
        words = ("--num-prompts", 60, "--request-rate", 300, "--random-range-ratio", 0.5, "--max-num-transcriptions", 4096)
        one, again, four = self.play(*words), self.play(*words), self.play(*words, "--replicas", 4)
        self.assertEqual(one, again)
        self.assertNotEqual(one["text_s"], self.play(*words, "--seed", 5)["text_s"])
        self.assertLess(four["queue_s"]["mean"], one["queue_s"]["mean"])
        self.assertEqual((one["files"], one["refused"]), (60, 0))
        self.assertEqual(self.play("--num-prompts", 70)["refused"], 6)  # 64 may wait

    def test_what_cannot_be(self):
        text = pelton("simulate", self.model, "--num-prompts", 3)
        self.assertIn("modelled, not measured", text)
        self.assertIn("Seconds for a second of sound", text)
        for words, said in ((("--audio-seconds", 2000), "--max-audio-seconds 1500 are read"), (("--replicas", 0), "--replicas 0"),
                            (("--router", "cost"), "without --router"), (("--request-rate", -1), "request-rate")):
            self.assertIn(said, pelton("simulate", self.model, "--num-prompts", 3, *words, code=2))
        self.assertIn("is of speech models", pelton("simulate", "gpt-oss-20b", "--gpu", "h100", "--audio-seconds", 3, code=2))


class Encoders(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="pelton_plan_encoder_")
        cls.addClassCleanup(cls.folder.cleanup)
        cls.model = pathlib.Path(cls.folder.name, "bert.json")
        cls.model.write_text(json.dumps({
            "model_type": "bert", "architectures": ["BertModel"], "hidden_size": 384, "num_hidden_layers": 12, "num_attention_heads": 12,
            "intermediate_size": 1536, "vocab_size": 30522, "max_position_embeddings": 512, "type_vocab_size": 2, "layer_norm_eps": 1e-12,
            "hidden_act": "gelu", "position_embedding_type": "absolute", "torch_dtype": "float16", "pad_token_id": 0}))

    def test_a_step_is_what_serve_would_choose(self):
        """A sixteenth of the device's memory, to 16384 tokens and no fewer than the longest text; or what the flag says."""
        big = json.loads(pelton("plan", self.model, "--gpu", "h100", "--json"))
        self.assertIn("a step of 16384 tokens", big["headline"][1])
        self.assertTrue(big["memory"]["activations"]["formula"].startswith("16384 tokens"))
        said = json.loads(pelton("plan", self.model, "--gpu", "h100", "--json", "--max-num-batched-tokens", 2048))
        self.assertIn("a step of 2048 tokens", said["headline"][1])
        with tempfile.TemporaryDirectory() as folder:
            small = pathlib.Path(folder, "small.json")
            device = json.loads((ROOT / "src/cost_model/data/hardware/cpu-zen4-2.json").read_text())
            device["figures"]["memory_bytes"] = 16 * 4 * (7 * 384 + 1536) * 700
            small.write_text(json.dumps(device))
            self.assertIn("a step of 700 tokens", json.loads(pelton("plan", self.model, "--gpu", small, "--json"))["headline"][1])

    def test_a_simulated_text_is_computed_in_one_step(self):
        said = pelton("simulate", self.model, "--gpu", "h100", "--input-len", 300, "--max-num-batched-tokens", 512, "--num-prompts", 10)
        self.assertIn("with 1.0 of 1024 sequences", said)  # cut, there would be 2.5 in each of 6 steps
        self.assertIn("10 steps (0 failed)", said)
        short = pelton("simulate", self.model, "--gpu", "h100", "--input-len", 16, "--num-prompts", 1000)
        self.assertIn("with 1000.0 of 2048 sequences", short)
        refused = pelton("simulate", self.model, "--gpu", "h100", "--input-len", 300, "--max-num-batched-tokens", 256, "--num-prompts", 3)
        self.assertIn("are more than the context of 256", refused)


class Simulate(unittest.TestCase):
    def test_A13_busy_is_not_load(self):
        with tempfile.TemporaryDirectory() as folder:
            # 1 ms a step of one answer, whatever the machine: 20 tokens are 20 ms, so 10 requests a second are little.
            steps = pathlib.Path(folder, "steps.jsonl")
            steps.write_text("".join(json.dumps({"ns": 1_000_000 + 10_000 * rows, "rows": [50, 1, 1] * rows}) + "\n"
                                     for rows in range(1, 17) for _ in range(4)))
            out = pathlib.Path(folder, "calibration.json")
            model = ROOT / "models/pelton-box"
            pelton("calibrate", model, "--step-log", steps, "--out", out)
            load = ["simulate", model, "--calibration", out, "--input-len", 8, "--output-len", 20, "--num-prompts", 400]
            light = " ".join(pelton(*load, "--request-rate", 20).split())
            heavy = " ".join(pelton(*load, "--request-rate", 300).split())
            share = [int(re.search(r"load (\d+) % of what it can answer", text)[1]) for text in (light, heavy)]
            self.assertLess(share[0], 20)
            self.assertGreater(share[1], 10 * share[0])
            self.assertRegex(heavy, r"a step was running [\d.]+ % of the time, with [\d.]+ of 16 sequences")
            self.assertIn("all that could be asked at once", pelton(*load))

    def test_one_seed_replays_one_run(self):
        with tempfile.TemporaryDirectory() as folder:
            faults = pathlib.Path(folder, "faults.json")
            faults.write_text('[{"kind":"crash","replica":1,"at_s":3,"until_s":6},{"kind":"slow","replica":0,"at_s":1,"until_s":9,"factor":2}]')
            command = ["simulate", "gpt-oss-120b", "--gpu", "h100", "--replicas", 3, "--request-rate", 20, "--num-prompts",
                       200, "--input-len", 300, "--output-len", 50, "--faults", faults, "--json", "-"]
            one, two = (pelton(*command, "--seed", 5) for _ in range(2))
            self.assertEqual(one, two)
            self.assertNotEqual(one, pelton(*command, "--seed", 6))
            result = json.loads(one)
            self.assertEqual(result["completed"] + result["failed"], 200)

    def test_this_machine_with_a_calibration(self):
        with tempfile.TemporaryDirectory() as folder:
            steps = pathlib.Path(folder, "steps.jsonl")
            lines = []
            for rows in range(1, 9):
                for context in (50, 400, 900):
                    decodes = [n for _ in range(rows) for n in (context, 1, 1)]
                    lines.append({"ns": 1_000_000 + 250_000 * rows, "rows": decodes})
            steps.write_text("".join(json.dumps(line) + "\n" for line in lines))
            out = pathlib.Path(folder, "calibration.json")
            model = ROOT / "models/pelton-box"
            table = pelton("calibrate", model, "--step-log", steps)  # A13
            self.assertRegex(table, r"bandwidth +[\d.]+ GB/s, [\d.]+ times the figure of cpu-zen4-2, which stands in")
            self.assertIn("% of the hardware's figure", pelton("calibrate", model, "--step-log", steps, "--gpu", "cpu-zen4-2"))
            self.assertIn("half of the steps", pelton("calibrate", model, "--step-log", steps, "--out", out))
            result = json.loads(pelton("simulate", model, "--calibration", out, "--max-concurrency", 4, "--num-prompts", 12,
                                       "--input-len", 20, "--output-len", 40, "--json", "-"))
            # Four answers at a time: 2 ms between tokens, as the steps said.
            self.assertAlmostEqual(result["median_tpot_ms"], 2, delta=0.2)
            steps.write_text(json.dumps(lines[0]))
            self.assertIn("too few", pelton("calibrate", model, "--step-log", steps, code=2))

    def test_what_a_request_costs_around_its_steps_is_measured(self):
        model = ROOT / "models/pelton-box"
        with tempfile.TemporaryDirectory() as folder:
            steps, result, out = (pathlib.Path(folder, name) for name in ("steps.jsonl", "one.json", "calibration.json"))
            server = subprocess.Popen([BINARY, "serve", model, "--port", "0", "--step-log", steps,
                                       "--no-enable-prefix-caching"],
                                      stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            try:
                port = server.stdout.readline().strip().rsplit(":", 1)[1]
                load = ["bench", "serve", "--port", port, "--dataset-name", "random", "--tokenizer", model, "--num-prompts", 12,
                        "--random-input-len", 40, "--random-output-len", 6, "--max-concurrency", 1, "--save-result",
                        "--result-filename", result]
                pelton(*load, "--save-detailed")
            finally:
                server.terminate()
                server.wait(60)
                server.stdout.close()
            calibrate = ["calibrate", model, "--step-log", steps, "--idle-result", result, "--out", out]
            pelton(*calibrate)
            overhead = json.loads(out.read_text())["overhead"]
            seen = json.loads(result.read_text())
            # In, a step, out: together what the client saw.
            prompts = [step["ns"] * 1e-9 for step in map(json.loads, steps.read_text().splitlines())
                       if step["rows"][1] > 1 and step["after_pause"]][-12:]
            around = sum(seen["ttfts"]) / 12 - sum(prompts) / 12
            self.assertAlmostEqual(overhead["in_s"] + overhead["out_s"], around, delta=0.02 * sum(seen["ttfts"]) / 12)
            self.assertGreater(overhead["in_s"], 5e-6)
            self.assertGreater(overhead["out_s"], 1e-6)
            # Without the requests' own times nothing is guessed.
            del seen["ttfts"]
            result.write_text(json.dumps(seen))
            self.assertIn("--save-detailed", pelton(*calibrate, code=2))


if __name__ == "__main__":
    BINARY = sys.argv.pop(1)
    unittest.main()
