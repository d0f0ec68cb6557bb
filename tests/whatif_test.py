#!/usr/bin/env python3
"""A fleet that is scaled, in virtual time, as a user meets it: scenarios, recorded facts, other knobs.

usage: whatif_test.py BINARY
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib
import unittest

from tiers import FULL, full

ROOT = pathlib.Path(__file__).resolve().parent.parent
BINARY = None
FLEET = ["simulate", "gpt-oss-20b", "--gpu", "l4", "--max-num-seqs", "8", "--input-len", "50", "--output-len", "60", "--start-seconds", "10"]


def pelton(*words, code=0, out=False):
    done = subprocess.run([BINARY, *map(str, words)], capture_output=True, timeout=1800 if FULL else 200, check=False, text=True)
    assert done.returncode == code, (words, done.returncode, done.stderr, done.stdout[-500:])
    return done.stdout if code == 0 or out else done.stderr


class ScaledFleet(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.kept = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.kept.name)
        cls.facts = cls.folder / "facts.jsonl"
        cls.text = pelton(*FLEET, "--autoscale", "concurrency", "--max-replicas", 6, "--request-rate", 9, "--num-prompts", 900,
                          "--scale-down-delay", 30, "--record-facts", cls.facts, "--html", cls.folder / "fleet.html", "--json",
                          cls.folder / "fleet.json")

    @classmethod
    def tearDownClass(cls):
        cls.kept.cleanup()

    def test_what_was_late_and_each_step_with_its_reason_is_said(self):
        self.assertRegex(self.text, r"late \(first token after 2 s\) \d+\.\d+ %, lost 0, left 0; 0 starts failed")
        self.assertRegex(self.text, r"\d s  \d replicas?, \d to start: [a-z ]+ \(flow")
        result = json.loads((self.folder / "fleet.json").read_text())
        steps = result["fleet"]["steps"]
        self.assertEqual(sum(step["started"] for step in steps), result["fleet"]["figures"]["started"])
        self.assertEqual(result["completed"], 900)
        page = (self.folder / "fleet.html").read_text()
        self.assertIn("Replica-hours so far", page)
        self.assertIsNone(re.search(r"(?:src|href)=\"(?!data:)", page))

    def test_recorded_facts_are_decided_again_by_the_autoscaler_itself(self):
        said = pelton("autoscale", "--replay", self.facts)
        lines = self.facts.read_text().splitlines()
        self.assertEqual(said.splitlines(), lines[1:])
        self.assertGreater(len(lines), 30)

    def test_one_seed_is_one_run(self):
        again = self.folder / "again.jsonl"
        pelton(*FLEET, "--autoscale", "concurrency", "--max-replicas", 6, "--request-rate", 9, "--num-prompts", 900,
               "--scale-down-delay", 30, "--record-facts", again)
        self.assertEqual(again.read_bytes(), self.facts.read_bytes())

    def test_whatif_shows_the_hour_and_others_side_by_side(self):
        runs = json.loads(pelton("whatif", "--facts", self.facts, "--set", "pool.simulated.max=1", "--set", "scale_down_delay=120",
                                 "--html", self.folder / "whatif.html", "--json", "-"))["runs"]
        self.assertEqual([run["name"] for run in runs], ["recorded", "played", "pool.simulated.max=1, scale_down_delay=120"])
        recorded, played, other = (run["figures"] for run in runs)
        figures = json.loads((self.folder / "fleet.json").read_text())["fleet"]["figures"]
        self.assertAlmostEqual(recorded["replica_hours"] / figures["replica_hours"], 1, delta=0.05)
        self.assertAlmostEqual(played["replica_hours"] / recorded["replica_hours"], 1, delta=0.15)
        self.assertEqual([recorded[figure] for figure in ("late", "lost", "left", "used_hours")], [None] * 4, "no facts say so")
        self.assertRegex(pelton("whatif", "--facts", self.facts), r"(?m)^recorded +\d+( +-){6} ")
        self.assertEqual(other["most"], 1)
        self.assertGreater(other["held_mean_s"], played["held_mean_s"])
        self.assertIn("What if: pool simulated", (self.folder / "whatif.html").read_text())
        self.assertIn("late: first token after 2 s", pelton("whatif", "--facts", self.facts))
        self.assertEqual(pelton("whatif", "--facts", self.facts, "--last", "1m"), pelton("whatif", "--facts", self.facts, "--last", 60))
        for wrong in ("soon", "-1h", "0", "1h2", "nan"):
            self.assertIn("--last", pelton("whatif", "--facts", self.facts, f"--last={wrong}", code=2))

    def test_runs_of_all_kinds_are_compared(self):
        """Single runs, several seeds, years and what-ifs, with the figures that their files have."""
        words = ["simulate", "gpt-oss-20b", "--gpu", "l4", "--max-num-seqs", 16, "--num-prompts", 60, "--input-len", 100, "--output-len", 40]
        hours = {}
        for name, rate in (("quiet", 1), ("busy", 4)):
            kept = self.folder / f"{name}.json"
            pelton(*words, "--request-rate", rate, "--seeds", 3, "--json", kept)
            hours[name] = json.loads(kept.read_text())["figures"]
        said = pelton("bench", "compare", self.folder / "quiet.json", self.folder / "busy.json")
        self.assertRegex(said, r"quiet +busy")
        tokens, late = ([hours[name][figure]["mean"] for name in ("quiet", "busy")] for figure in ("output tokens/s", "late, %"))
        self.assertRegex(said, rf"output tokens/s +{tokens[0]:.2f} +{tokens[1]:.2f} ")
        self.assertRegex(said, rf"late, % +{late[0]:.2f} +{late[1]:.2f}")
        ttft = hours["quiet"]["TTFT p50, s"]["mean"]
        self.assertRegex(said, rf"TTFT median, ms +{1000 * ttft:.2f} ")

        year = self.folder / "year.json"
        pelton("simulate", "--scenario", "two-zones-year", "--days", 1, "--seeds", 2, "--json", year)
        said = pelton("bench", "compare", year, year)
        self.assertRegex(said, rf"replica-hours +{json.loads(year.read_text())['figures']['replica_hours']:.2f} ")

        other = self.folder / "whatif.json"
        pelton("whatif", "--facts", self.facts, "--set", "max=2", "--json", other)
        said = pelton("bench", "compare", other)
        self.assertRegex(said, r"whatif recorded +whatif played +whatif max=2")
        late = [run["figures"]["late"] for run in json.loads(other.read_text())["runs"]]
        self.assertRegex(said, rf"late requests +- +{late[1]}\.00 +{late[2]}\.00")

    def test_keys_may_stand_in_any_order(self):
        """Recorded was max = 6: a least of 7 is sound beside a most of 9 only."""
        orders = [["min=7", "max=9"], ["max=9", "min=7"]]
        runs = [json.loads(pelton("whatif", "--facts", self.facts, *(f"--set={one}" for one in order), "--json", "-"))["runs"][2]
                for order in orders]
        self.assertEqual([run["name"] for run in runs], [", ".join(order) for order in orders])
        self.assertEqual(runs[0]["figures"], runs[1]["figures"])
        self.assertGreaterEqual(runs[0]["figures"]["most"], 7)
        self.assertIn("'min' (7) is more than 'max' (6)", pelton("whatif", "--facts", self.facts, "--set=min=7", code=2))
        last = json.loads(pelton("whatif", "--facts", self.facts, "--set=max=3", "--set=max=4", "--json", "-"))["runs"][2]
        self.assertEqual(last["figures"]["most"], 4, "of one key the last counts")

    def test_facts_are_a_load(self):
        result = json.loads(pelton(*FLEET, "--autoscale", "concurrency", "--facts", self.facts, "--json", "-"))
        # Those behind the last decision are in no fact.
        self.assertTrue(880 <= result["completed"] <= 900, result["completed"])

    def test_a_pools_own_file_is_played(self):
        (self.folder / "gateway.toml").write_text('[[pool]]\nname = "a"\nmodel = "m"\n[pool.scale]\nmin = 2\nmax = 3\n'
                                                  '[pool.launch]\nserve = ["m"]\nstart_seconds = 4\n')
        words = ["simulate", "gpt-oss-20b", "--gpu", "l4", "--num-prompts", 300, "--request-rate", 3, "--output-len", 30, "--scale-config",
                 self.folder / "gateway.toml"]
        figures = json.loads(pelton(*words, "--json", "-"))["fleet"]["figures"]
        self.assertGreaterEqual(figures["most"], 2)
        self.assertIn("no pool 'b'", pelton(*words, "--pool", "b", code=2))

    def test_scenarios(self):
        names = [line.split()[0] for line in pelton("simulate", "--list").splitlines()]
        self.assertLessEqual({"gb200-nvl72", "aws-p4de", "aws-g6", "start-times", "scale-down-delay", "spike", "chat-day",
                              "mooncake-conversation"}, set(names))
        said = pelton("simulate", "--scenario", "spike", "--num-prompts", 300)
        for words in ("Source: none", "Published: nothing", "scaling steps:"):
            self.assertIn(words, said)
        said = pelton("simulate", "--scenario", "start-times", "--num-prompts", 100)
        self.assertRegex(said, r"(?m)^--start-seconds +requests")
        self.assertRegex(said, r"(?m)^1200 +100 ")
        # A value of the sweep's flag is one run.
        self.assertIn("scaling steps:", pelton("simulate", "--scenario", "start-times", "--num-prompts", 100, "--start-seconds", 5))
        said = pelton("simulate", "--scenario", "gb200-nvl72", "--replicas", 1, "--num-prompts", 512)
        self.assertRegex(said, r"output_throughput: published 1.5e\+06, played [\d.e+]+; published over played \d+ %")

    def test_ten_replicas_that_are_asked_alike_find_twice_as_much(self):
        load = self.folder / "alike.json"
        load.write_text(json.dumps({"dataset": "prefix_repetition", "prefix_count": 60, "prefix_tokens": 1500, "suffix_tokens": 100,
                                    "output_tokens": 40, "count": 600, "rate": 6, "seed": 3}))
        found = {}
        for router in ("round-robin", "cost"):
            said = pelton("simulate", "gpt-oss-20b", "--gpu", "l4", "--replicas", 10, "--max-num-seqs", 8, "--router", router, "--workload", load)
            found[router] = float(re.search(r"prompts found in the cache ([\d.]+) %", said)[1])
        self.assertGreaterEqual(found["cost"], 2 * found["round-robin"], found)

    @full
    def test_the_rack_and_the_trace_are_played_whole(self):
        """72 GPUs, and a load of the size of Mooncake's: everybody is answered, and the implied efficiency is the one that is printed."""
        rack = json.loads(pelton("simulate", "--scenario", "gb200-nvl72", "--json", "-"))
        self.assertEqual((rack["completed"], rack["failed"]), (36864, 0))
        published = float(re.search(r"(\d+) % of the roofline with a copy", (ROOT / "docs/plan_and_simulate.md").read_text())[1]) / 100
        self.assertGreaterEqual(1.5e6 / rack["output_throughput"], 0.9 * published)
        self.assertLess(1.5e6 / rack["output_throughput"], 1)
        trace = json.loads(pelton("simulate", "--scenario", "mooncake-conversation", "--json", "-"))
        self.assertEqual((trace["completed"], trace["failed"]), (12031, 0))
        self.assertAlmostEqual(trace["total_input_tokens"] / 145e6, 1, delta=0.01)
        self.assertAlmostEqual(trace["total_output_tokens"] / 4.1e6, 1, delta=0.02)

    @full
    def test_halving_of_2000_points_finds_the_best(self):
        words = ["tune", "gpt-oss-20b", "--gpu", "l4", "--request-rate", 6, "--num-prompts", 1200, "--input-len", 300, "--output-len", 100,
                 "--random-range-ratio", 0.5, "--objectives", "ttft:3000,tpot:80", "--fidelity", "fluid", "--vary",
                 "max-num-seqs=" + ",".join(map(str, (1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 64, 96, 128))), "--vary",
                 "max-num-batched-tokens=128,192,256,384,512,768,1024,1536,2048,4096", "--vary", "prompt-tokens-beside-decodes=0,32,64,128,256",
                 "--vary", "replicas=2,3"]
        every = json.loads(pelton(*words, "--json", "-"))
        self.assertEqual(len(every), 2000)
        said = pelton(*words, "--search", "halving")
        self.assertLessEqual(float(re.search(r"([\d.]+) % of the work of all", said)[1]), 10)
        some = json.loads(pelton(*words, "--search", "halving", "--json", "-"))
        best = [max(one["per_replica"] for one in points if one["keeps"]) for points in (every, some)]
        self.assertGreaterEqual(best[1], 0.97 * best[0])

    def test_tune_writes_what_serve_reads(self):
        out = self.folder / "serve.toml"
        words = ["tune", "gpt-oss-20b", "--gpu", "l4", "--request-rate", 2, "--num-prompts", 60, "--input-len", 100, "--output-len", 40,
                 "--vary", "max-num-seqs=1,8,16", "--vary", "kv-cache-dtype=auto,int8"]
        points = json.loads(pelton(*words, "--objectives", "ttft:2000", "--out", out, "--json", "-"))
        self.assertEqual(len(points), 6)
        kept = [point for point in points if point["keeps"]]
        self.assertTrue(0 < len(kept) < 6, points)
        best = max(kept, key=lambda point: point["per_replica"])
        self.assertEqual(tomllib.loads(out.read_text()), {"max-num-seqs": int(best["settings"]["max-num-seqs"]),
                                                          "kv-cache-dtype": best["settings"]["kv-cache-dtype"]})
        shown = pelton("serve", ROOT / "models/pelton-box", "--config", out, "--print-config")
        self.assertRegex(shown, rf'(?m)^max-num-seqs = {best["settings"]["max-num-seqs"]}\b')
        self.assertIn("none is within the objectives", pelton(*words, "--objectives", "ttft:0.001", code=5, out=True))
        self.assertEqual(len(json.loads(pelton(*words, "--objectives", "ttft:0.001", "--json", "-", code=5, out=True))), 6)
        for vary, said in (("max-num-seqs", "is not like"), ("max-num-sequs=3", "did you mean"), ("max-num-seqs=0", "max-num-seqs"),
                           ("max-num-seqs=" + ",".join(map(str, range(1, 10002))), "more than 10000")):
            self.assertIn(said, pelton("tune", "gpt-oss-20b", "--gpu", "l4", "--num-prompts", 2, "--vary", vary, code=2))

    def test_tune_by_halving_finds_what_all_of_it_finds(self):
        words = ["tune", "gpt-oss-20b", "--gpu", "l4", "--request-rate", 1.5, "--num-prompts", 400, "--input-len", 200, "--output-len", 100,
                 "--vary", "max-num-seqs=1,2,3,4,6,8,12,16", "--vary", "max-num-batched-tokens=64,128,256,512,1024,2048", "--vary",
                 "prompt-tokens-beside-decodes=0,32,128", "--objectives", "ttft:4000 tpot:80", "--fidelity", "fluid"]
        page = self.folder / "fronts.html"
        every = json.loads(pelton(*words, "--json", "-"))
        some = json.loads(pelton(*words, "--search", "halving", "--html", page, "--json", "-"))
        best = [max(one["per_replica"] for one in points if one["keeps"]) for points in (every, some)]
        self.assertGreaterEqual(best[1], 0.97 * best[0])
        self.assertLess(len(some), len(every) / 3)
        text = page.read_text()
        self.assertIn("Tokens/s of a replica over TTFT p90, ms", text)
        self.assertIn("Tokens/s of a replica over TPOT p90, ms", text)
        self.assertIsNone(re.search(r"(?:src|href)=\"(?!data:)", text))

    def test_tune_gives_the_gain_an_interval_and_ablates(self):
        load = ["tune", "gpt-oss-20b", "--gpu", "l4", "--request-rate", 2, "--num-prompts", 60, "--input-len", 100, "--output-len", 40]
        said = pelton(*load, "--vary", "max-num-seqs=1,16", "--seeds", 3, "--max-num-batched-tokens", 256)
        self.assertRegex(said, r"gain of the best over the flags as they stand: [+-]\d+\.\d %.*95 % interval .*3 seeds")
        shared = self.folder / "shared.json"
        shared.write_text(json.dumps({"name": "shared", "dataset": "prefix_repetition", "prefix_count": 3, "prefix_tokens": 600,
                                      "suffix_tokens": 100, "output_tokens": 40, "count": 60, "rate": 1}))
        load = ["tune", "gpt-oss-20b", "--gpu", "l4", "--workload", shared]
        said = pelton(*load, "--ablate")
        self.assertRegex(said, r"(?m)^nothing +[\d.]+ +\+0\.0 %")
        self.assertRegex(said, r"(?m)^speculation +is off$")
        rows = {row["off"]: row for row in json.loads(pelton(*load, "--ablate", "--json", "-"))}
        self.assertGreater(rows["prefix cache"]["p90_ttft_ms"], rows["nothing"]["p90_ttft_ms"])
        self.assertIn("--vary", pelton(*load, "--ablate", "--vary", "max-num-seqs=1,2", code=2))

    def test_the_two_fidelities_agree_and_what_only_one_knows_is_refused(self):
        load = ["simulate", "gpt-oss-20b", "--gpu", "l4", "--max-num-seqs", 16, "--replicas", 4, "--request-rate", 10, "--num-prompts", 2000,
                "--input-len", 500, "--output-len", 100]
        said = pelton(*load, "--fidelity", "fluid", "--check-fluid")
        shares = [abs(float(one)) for one in re.search(r"throughput (\S+) %, TTFT p50 \S+ %, p90 (\S+) %, replica-hours (\S+) %",
                                                       said).groups()]
        self.assertLess(shares[0], 3)
        self.assertLess(shares[1], 12)
        for words, named in ((["--adapters", 4], "--adapters"), (["--speculative-tokens", 2], "--speculative-tokens"),
                             (["--gateways", 2], "--gateways"), (["--client-retries", 1], "--client-retries")):
            self.assertIn(named, pelton(*load, "--fidelity", "fluid", *words, code=2))
        self.assertIn("--days", pelton(*load, "--days", 1, code=2))
        self.assertIn("--start-seconds", pelton("simulate", "--scenario", "start-times", "--days", 1, code=2))

    def test_what_would_have_no_effect_is_refused_by_its_name(self):
        year = ["simulate", "--scenario", "two-zones-year", "--days", 1]
        for words in (["--num-prompts", 40], ["--max-concurrency", 3], ["--swap-space", "4GiB"], ["--goodput", "ttft:500"]):
            self.assertIn(words[0], pelton(*year, *words, code=2))
        fluid = ["simulate", "gpt-oss-20b", "--gpu", "l4", "--num-prompts", 20, "--fidelity", "fluid"]
        self.assertIn("--swap-space", pelton(*fluid, "--swap-space", "4GiB", code=2))
        fronts = ["simulate", "--scenario", "split-against-mixed-8k"]
        for words in (["--seeds", 2], ["--days", 1], ["--check-fluid"], ["--price", 2], ["--metric-percentiles", "50"]):
            self.assertIn(f"{words[0]} has no effect", pelton(*fronts, *words, code=2))
        sweep = next(path for path in (ROOT / "scenarios").glob("split-against-mixed-8k.toml"))
        parsed = tomllib.loads(sweep.read_text())
        self.assertIn(f"--{parsed['sweep']['flag']} has no effect", pelton(*fronts, f"--{parsed['sweep']['flag']}", 1, code=2))
        own = next(iter(parsed["front"][0]["flags"]))
        self.assertIn(f"--{own}", pelton(*fronts, f"--{own}", parsed["front"][0]["flags"][own], code=2))
        self.assertIn("--goodput has no effect", pelton("simulate", "--scenario", "start-times", "--goodput", "ttft:500", code=2))
        self.assertIn("--replicas has no effect", pelton("simulate", "--scenario", "aws-g6", "--replicas", 2, code=2))
        self.assertIn("MODEL has no effect", pelton("simulate", "gpt-oss-20b", "--scenario", "aws-g6", code=2))

    def test_a_sweep_is_compared_run_by_run_and_names_where_least_is_spent(self):
        scenario = self.folder / "small.toml"
        scenario.write_text('title = "small"\nmodel = "gpt-oss-20b"\n[flags]\ngpu = "l4"\nmax-num-seqs = 8\nstart-seconds = 20\n[scale]\nmin = 1\nmax = 6\nprice = 1\n'
                            '[workload]\ninput_tokens = 50\noutput_tokens = 60\ncount = 900\nrate = 1\nspikes = [{at_s = 60, for_s = 30, rps = 10}, {at_s = 200, for_s = 30, rps = 10}]\n'
                            '[sweep]\nflag = "scale-down-delay"\nvalues = [0, 300]\n')
        words = ["simulate", "--scenario", scenario]
        kept = self.folder / "sweep.json"
        self.assertRegex(pelton(*words, "--json", kept), "the fewest replica-hours at --scale-down-delay 0, the fewest late, lost or left at (0|300)")
        runs = json.loads(kept.read_text())["runs"]
        self.assertGreater(runs[0]["figures"]["late"], runs[1]["figures"]["late"])
        hours, late = ([run["figures"][name] for run in runs] for name in ("replica_hours", "late"))
        even = (hours[1] - hours[0]) / (late[0] - late[1])  # where both values take as much
        for price, value in ((even / 2, 0), (even * 2, 300)):
            played = json.loads(pelton(*words, "--late-price", price, "--json", "-"))
            self.assertEqual(played["least_at"], value)
            self.assertAlmostEqual(played["runs"][0]["cost_with_late"], hours[0] + price * late[0], places=6)
        self.assertRegex(pelton(*words, "--late-price", even * 2), "the least is spent at --scale-down-delay 300: ")
        said = pelton("bench", "compare", kept)
        self.assertRegex(said, r"sweep 0 +sweep 300")
        self.assertRegex(said, rf"replica-hours +{hours[0]:.2f} +{hours[1]:.2f}")
        self.assertIn("--late-price", pelton(*words, "--late-price", 1, "--scale-down-delay", 5, code=2))

    def sweep(self, flag, values, start_s, times):
        """Figures by value of the flag, of a load with spikes of five times as much."""
        scenario = self.folder / f"{flag}.toml"
        spikes = ", ".join(f"{{at_s = {at}, for_s = 120, rps = 8}}" for at in times)
        start = "" if flag == "start-seconds" else f"start-seconds = {start_s}\n"
        scenario.write_text(f'title = "{flag}"\nmodel = "gpt-oss-20b"\n[flags]\ngpu = "l4"\nmax-num-seqs = 16\nreplicas = 2\n{start}[scale]\nmin = 1\nmax = 16\n'
                            f'[workload]\ninput_tokens = 200\noutput_tokens = 200\nrange_ratio = 0.5\ncount = 4200\nrate = 2\nburstiness = 0.2\nspikes = [{spikes}]\n'
                            f'[sweep]\nflag = "{flag}"\nvalues = {list(values)}\n')
        runs = json.loads(pelton("simulate", "--scenario", scenario, "--json", "-"))["runs"]
        return {run["value"]: run["figures"] for run in runs}

    def test_lateness_has_a_cliff_beyond_a_start_time_and_deciding_each_half_second_gains_nothing(self):
        """The two shapes of NVIDIA's DynoSim, in small: scenarios/start-times.toml and loop-interval.toml are the whole of them."""
        starts = self.sweep("start-seconds", (5, 60, 300), None, (200, 700))
        self.assertLess(starts[5]["late"], 0.15 * starts[5]["requests"])
        self.assertLess(starts[5]["ttft_p90_s"], 2)
        self.assertGreater(starts[300]["late"], 3 * starts[5]["late"])
        self.assertGreater(starts[300]["ttft_p90_s"], 5 * starts[60]["ttft_p90_s"])
        loops = self.sweep("decision-interval", (0.5, 5, 60), 10, (217, 713, 1109))
        self.assertLess(loops[5]["replica_hours"], loops[0.5]["replica_hours"])
        self.assertLess(loops[5]["replica_hours"], loops[60]["replica_hours"])
        self.assertLess(loops[5]["late"], 0.5 * loops[60]["late"])

    def test_a_published_table_has_a_page_and_json(self):
        page = self.folder / "table.html"
        played = json.loads(pelton("simulate", "--scenario", "aws-g6", "--json", "-", "--html", page))
        self.assertEqual(len(played["cells"]), 36)
        errors = sorted(abs(cell["played"] / cell["published"] - 1) for cell in played["cells"])
        self.assertAlmostEqual(played["largest_error"], errors[-1])
        self.assertAlmostEqual(played["median_error"], (errors[17] + errors[18]) / 2)
        text = page.read_text()
        self.assertEqual(text.count("<tr>"), 37)
        self.assertIsNone(re.search(r"(?:src|href)=\"(?!data:)", text))

    def test_an_answer_goes_on_where_its_replica_died(self):
        """As behind the gateway, whatever is said of the network: none is lost, and one is gone on with elsewhere."""
        faults = self.folder / "crash.json"
        faults.write_text('[{"kind": "crash", "replica": 0, "at_s": 4, "until_s": 6}]')
        words = ["simulate", "gpt-oss-20b", "--gpu", "l4", "--replicas", 2, "--request-rate", 4, "--num-prompts", 40, "--input-len", 50, "--output-len", 100]
        result = json.loads(pelton(*words, "--faults", faults, "--json", "-"))
        self.assertEqual((result["completed"], result["failed"]), (40, 0))
        self.assertRegex(pelton(*words, "--faults", faults), r"redispatched [1-9]")

    def test_starts_fetch_their_weights_from_a_tier(self):
        """From a slower one they take longer, and longer still where all of them share it."""
        words = [*FLEET[:-2], "--autoscale", "concurrency", "--replicas", 0, "--min-replicas", 4, "--max-replicas", 4, "--request-rate", "inf", "--num-prompts", 40,
                 "--start-seconds", 1]
        def first(*more):
            return json.loads(pelton(*words, *more, "--json", "-", "--metric-percentiles", "0,50"))["p0_ttft_ms"]
        fast, slow = first("--start-tier", "peer"), first("--start-tier", "hub")
        shared = first("--start-tier", "hub", "--start-shared-bandwidth", "1GB")
        self.assertAlmostEqual((slow - fast) / 1000, 13.8 * (1 - 1 / 25), delta=1.5)  # of 13.8 GB
        self.assertGreater(shared, 1.5 * slow)
        self.assertAlmostEqual(first("--start-tier", "hub", "--start-bandwidth", "25GB"), fast, delta=1)
        self.assertIn("--start-tier", pelton("simulate", "gpt-oss-20b", "--gpu", "l4", "--num-prompts", 2, "--start-tier", "disk", code=2))
        points = json.loads(pelton("tune", *words[1:], "--vary", "start-tier=hub,peer", "--json", "-"))
        ttft = {point["settings"]["start-tier"]: point["p90_ttft_ms"] for point in points}
        self.assertGreater(ttft["hub"], ttft["peer"] + 5000)

    def test_the_fluid_fidelity_does_not_call_its_means_exact(self):
        load = ["simulate", "gpt-oss-20b", "--gpu", "l4", "--request-rate", 2, "--num-prompts", 40]
        self.assertIn("exact to the token", pelton(*load))
        said = pelton(*load, "--fidelity", "fluid")
        self.assertNotIn("exact to the token", said)
        self.assertNotIn("Peak output token", said)
        self.assertIn("each answer's mean", said)

    def test_intervals_do_not_go_below_nothing(self):
        said = json.loads(pelton("simulate", "gpt-oss-20b", "--gpu", "l4", "--request-rate", 1, "--num-prompts", 20, "--seeds", 2, "--json", "-"))
        self.assertEqual(said["seeds"], 2)
        for name, figure in said["figures"].items():
            self.assertGreaterEqual(figure["low"], 0, name)
            self.assertLessEqual(figure["low"], figure["mean"], name)

    def test_a_year_names_its_causes_and_leaves_one_out(self):
        page = self.folder / "year.html"
        year = ["simulate", "--scenario", "two-zones-year", "--days"]
        words = [*year, 20]
        with_all = json.loads(pelton(*words, "--price", 2, "--html", page, "--json", "-"))
        causes = {one["cause"]: one for one in with_all["causes"]}
        self.assertGreater(causes["node"]["requests"], 0)
        self.assertGreater(causes["replica"]["incidents"], 0)
        self.assertEqual(causes["replica"]["requests"], 0, "its answers go on elsewhere")
        self.assertIn("Money so far", page.read_text())
        without = json.loads(pelton(*words, "--without", "node", "--json", "-"))
        self.assertNotIn("node", {one["cause"] for one in without["causes"]})
        gained = without["availability"][0] - with_all["availability"][0]
        self.assertAlmostEqual(gained / causes["node"]["share"], 1, delta=0.5)
        self.assertIn("did you mean 'zone'", pelton(*words, "--without", "zonee", code=2))
        ones = [json.loads(pelton(*year, 2, "--seed", seed, "--json", "-"))["figures"]["replica_hours"] for seed in (0, 1, 2)]
        self.assertAlmostEqual(json.loads(pelton(*year, 2, "--seed", 0, "--seeds", 3, "--json", "-"))["figures"]["replica_hours"], sum(ones) / 3, places=6)
        said = pelton(*year, 2, "--seeds", 3)
        self.assertIn("3 runs, their means", said)
        self.assertRegex(said, r"availability .* 95 % interval [\d.]+ % to [\d.]+ %")

    def test_recommend_writes_what_autoscale_reads(self):
        load = self.folder / "load.json"
        load.write_text(json.dumps({"input_tokens": 50, "output_tokens": 60, "count": 900, "rate": 1, "seed": 3,
                                    "spikes": [{"at_s": at, "for_s": 20, "rps": 5} for at in (100, 400)]}))
        out = self.folder / "recommended.toml"
        words = ["autoscale", "recommend", "gpt-oss-20b", "--gpu", "l4", "--max-num-seqs", "8", "--workload", load, "--start-seconds", 10,
                 "--max-replicas", 5]
        done = json.loads(pelton(*words, "--vary", "scale_down_delay=default,60,600", "--vary", "min=0,2", "--late-share", 0.2,
                                 "--out", out, "--json", "-"))
        runs = done["runs"]
        self.assertEqual(len(runs), 6)
        best = runs[done["recommended"]]
        kept = [run for run in runs if run["keeps"]]
        self.assertEqual(best["figures"]["replica_hours"], min(run["figures"]["replica_hours"] for run in kept))
        self.assertTrue(all(run["keeps"] == (run["late_share"] <= 0.2) for run in runs))
        # Of two of which one is no worse in both, the other one is not efficient.
        def better(one, other):
            a, b = ((run["late_share"], run["figures"]["replica_hours"]) for run in (one, other))
            return a != b and a[0] <= b[0] and a[1] <= b[1]
        for run in runs:
            self.assertEqual(run["efficient"], not any(better(other, run) for other in runs), run)
        self.assertGreater(len({run["figures"]["replica_hours"] for run in runs}), 1)
        # The file says what was played: the same figures come from it.
        self.assertIn("sound", pelton("autoscale", "--config", out, "--check"))
        keys = tomllib.loads(out.read_text())["pool"][0]["scale"]
        self.assertEqual((keys["min"], keys["max"]), (int(best["settings"]["min"]), 5))
        again = json.loads(pelton("simulate", *words[2:-4], "--scale-config", out, "--json", "-"))["fleet"]["figures"]
        self.assertEqual(again, best["figures"])
        # And replicas are served as they were played: every flag that serve knows, given here.
        served = tomllib.loads(out.read_text())["pool"][0]["launch"]["serve"]
        self.assertEqual(served, ["gpt-oss-20b", "--max-num-seqs", "8"])
        flagged = self.folder / "flagged.toml"
        pelton(*words, "--vary", "max=5", "--late-share", 1, "--max-num-batched-tokens", 1024, "--kv-cache-dtype", "fp8",
               "--no-enable-prefix-caching", "--block-size", 32, "--out", flagged)
        self.assertIn("sound", pelton("autoscale", "--config", flagged, "--check"))
        served = tomllib.loads(flagged.read_text())["pool"][0]["launch"]["serve"]
        self.assertEqual(served[:3], ["gpt-oss-20b", "--max-num-seqs", "8"])
        rest = served[3:]
        for name, value in (("--max-num-batched-tokens", "1024"), ("--kv-cache-dtype", "fp8"), ("--block-size", "32")):
            self.assertEqual(rest[rest.index(name) + 1], value)
        self.assertIn("--no-enable-prefix-caching", rest)
        self.assertEqual(len(rest), 7, rest)
        # From a file of one's own the rest stays as it was.
        out.write_text(out.read_text().replace('name = "main"', 'name = "ours"'))
        other = self.folder / "other.toml"
        text = pelton(*words[:-4], "--scale-config", out, "--vary", "max=2,5", "--late-share", 1, "--out", other)
        self.assertRegex(text, r"(?m)^settings +late +replica-hours")
        self.assertIn("recommended: max=", text)
        self.assertEqual(tomllib.loads(other.read_text())["pool"][0]["name"], "ours")
        self.assertIn("keeps so few late", pelton(*words, "--max-replicas", 1, "--vary", "max=1", "--late-share", 0, code=5, out=True))
        none = json.loads(pelton(*words, "--max-replicas", 1, "--vary", "max=1", "--late-share", 0, "--json", "-", code=5, out=True))
        self.assertIsNone(none["recommended"])
        for vary, said in (("max", "is not like"), ("maxx=3", "did you mean 'max'"), ("max=0", "from 1 to 10000"), ("min=9", "is more than"),
                           ("mode=advise", "nothing would be done"), ("max=2,3,2", "has the value 2 twice"),
                           ("hold_keepalive=events,whitespace", "changes nothing that is played"), ("hold_bytes=1048576", "changes nothing that is played"),
                           ("hold_keepalive_seconds=1,2", "changes nothing that is played"), ("max=" + ",".join(map(str, range(1, 1002))), "more than 1000")):
            self.assertIn(said, pelton(*words, "--vary", vary, code=2), vary)

    def test_some_that_stand_by_answer_a_burst_in_time(self):
        figures = {}
        for standby in (0, 2):
            (self.folder / "standby.toml").write_text(f'[[pool]]\nname = "a"\nmodel = "m"\n[pool.scale]\nmin = 1\nmax = 4\nstandby = {standby}\n'
                                                      '[pool.launch]\nserve = ["m"]\nstart_seconds = 60\n')
            load = self.folder / "burst.json"
            load.write_text(json.dumps({"input_tokens": 50, "output_tokens": 60, "count": 700, "rate": 2, "seed": 3,
                                        "spikes": [{"at_s": 150, "for_s": 30, "rps": 9}]}))
            figures[standby] = json.loads(pelton("simulate", "gpt-oss-20b", "--gpu", "l4", "--max-num-seqs", 8, "--workload", load,
                                                 "--scale-config", self.folder / "standby.toml", "--json", "-"))["fleet"]["figures"]
        self.assertLess(figures[2]["late"], figures[0]["late"], figures)
        self.assertLess(figures[2]["ttft_p90_s"], figures[0]["ttft_p90_s"] / 2, figures)
        self.assertGreater(figures[2]["replica_hours"], figures[0]["replica_hours"], figures)

    def test_an_input_that_is_missing_fails_the_run_whatever_asks_for_it(self):
        base = ["--gpu", "l4", "--num-prompts", 2]
        scaled = ["--autoscale", "concurrency"]
        for words in (["simulate", "gpt-oss-20b", *base, "--requests"], ["simulate", "gpt-oss-20b", *base, "--workload"],
                      ["simulate", "gpt-oss-20b", *base, "--faults"], ["simulate", "gpt-oss-20b", *base, "--calibration"],
                      ["simulate", "gpt-oss-20b", "--gpu", "l4", *scaled, "--facts"], ["simulate", "--scenario"],
                      ["tune", "gpt-oss-20b", *base, "--requests"], ["tune", "gpt-oss-20b", *base, "--workload"], ["tune", "--list", "--history"],
                      ["plan", "gpt-oss-20b", "--gpu", "l4", "--workload"], ["whatif", "--facts"], ["autoscale", "--replay"],
                      ["eval", "--base-url", "http://127.0.0.1:1", "--tasks"], ["eval", "--base-url", "http://127.0.0.1:1", "--against"],
                      ["bench", "serve", "--dataset-name", "trace", "--dataset-path"], ["bench", "serve", "--workload"], ["bench", "compare"]):
            self.assertIn("none.toml", pelton(*words, self.folder / "none.toml", code=1), words)
        self.assertIn("cannot create", pelton("simulate", "gpt-oss-20b", *base, "--json", self.folder / "no" / "folder", code=1))

    def test_a_flag_is_no_file_name(self):
        before = sorted(self.folder.iterdir())
        for words in (["simulate", "gpt-oss-20b", "--json", "--seeds", 2], ["tune", "gpt-oss-20b", "--gpu", "l4", "--num-prompts", 2, "--json", "--ablate"],
                      ["whatif", "--facts", self.facts, "--html", "--last", "1h"], ["eval", "--out", "--html", "x"]):
            done = subprocess.run([BINARY, *map(str, words)], capture_output=True, text=True, timeout=60, check=False, cwd=self.folder)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertRegex(done.stderr, "--[a-z]+ wants a value, and --[a-z]+ behind it is a flag")
        self.assertEqual(sorted(self.folder.iterdir()), before)

    def test_times_of_a_trace(self):
        trace = self.folder / "trace.jsonl"
        words = ["simulate", "gpt-oss-20b", "--gpu", "l4", "--requests", trace]

        def with_times(*times):
            trace.write_text("".join('{"timestamp":%s,"input_length":20,"output_length":4}\n' % time for time in times))

        with_times(0, 10**13)
        self.assertRegex(pelton(*words, code=2), r"days apart, more than 366")
        with_times(0, 10**18)
        self.assertIn("trace.jsonl:2: the time must be from 0 to", pelton(*words, code=2))
        with_times(10**13 + 500, 10**13, 10**13 + 250)
        done = subprocess.run([BINARY, *map(str, words), "--json", "-"], capture_output=True, text=True, timeout=60, check=True)
        self.assertIn("2 of its 3 requests came before one that stands above them", done.stderr)
        result = json.loads(done.stdout)
        self.assertGreater(result["mean_ttft_ms"], 0)
        self.assertGreater(result["duration"], 0.5)
        # Everything else that reads it says so, too.
        for other in (["bench", "serve", "--base-url", "http://127.0.0.1:1", "--dataset-name", "trace", "--dataset-path", trace, "--model", "m",
                       "--ready-check-timeout-sec", 0], ["tune", *words[1:], "--vary", "max-num-seqs=2,4"],
                      [*words, "--seeds", 2], ["autoscale", "recommend", *words[1:], "--vary", "max=2,3"]):
            done = subprocess.run([BINARY, *map(str, other)], capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(done.stderr.count("2 of its 3 requests"), 1, done.stderr)

    def test_what_took_no_time_has_no_share_of_it(self):
        said = pelton("simulate", "gpt-oss-20b", "--gpu", "l4", "--num-prompts", 5, "--input-len", 100, "--max-model-len", 16)
        self.assertIn("no step was running", said)
        self.assertNotIn("nan", said)

    def test_bad_input_is_refused_by_name(self):
        scenario = self.folder / "own.toml"
        base = 'title = "a"\nmodel = "gpt-oss-20b"\n[flags]\n'
        for text, said in ((base + 'gpu = "h100"\nrequest-rate = "nan"\n', "request-rate"), (base + 'gpus = "h100"\n', "gpus"),
                           (base + 'gpu = "h100"\n[workload]\nrate = 0\n', "rate"), (base + 'gpu = "h100"\n[workload]\nspikes = 3\n', "spikes"),
                           (base.replace("20b", "120b") + 'gpu = "l4"\n', "does not fit"),
                           ('title = "a"\nmodel = "gpt-oss-20b"\nfaults = [{kind = "crash", replica = 3, at_s = 1}]\n[flags]\ngpu = "h100"\n'
                            'num-prompts = 2\n', "must be from 0 to 0")):
            scenario.write_text(text)
            done = subprocess.run([BINARY, "simulate", "--scenario", scenario], capture_output=True, text=True, timeout=60, check=False)
            self.assertNotEqual(done.returncode, 0, text)
            self.assertIn(said, done.stderr)
        for phases in ("", "a", "a:", ":3", "a:-1", "a:nan", "a:5~3", "a:1,,b:2"):
            self.assertIn("start-phases", pelton(*FLEET[:-2], "--autoscale", "concurrency", f"--start-phases={phases}", code=2))
        for setting, said in (("max", "has no value"), ("maxx=3", "did you mean 'max'"), ("pool.other.max=3", "another pool"),
                              ("max=0", "from 1 to 10000"), ("max=2}\n[a]", "'max'"), ("min=9", "is more than"), ("policy=kpb", "kpa")):
            self.assertIn(said, pelton("whatif", "--facts", self.facts, "--set", setting, code=2), setting)
        other = self.folder / "other.jsonl"
        other.write_text("a,b,c\n" * 1000)
        self.assertIn("other.jsonl:1:", pelton("whatif", "--facts", other, code=2))
        self.assertIn("MODEL or --scenario", pelton("simulate", code=2))


if __name__ == "__main__":
    BINARY = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main(verbosity=2)
