#!/usr/bin/env python3
"""pelton tune beyond the sweep itself: machine types with their price, the history of what was played, the best few confirmed on a real server.

usage: tune_test.py BINARY
"""
import json
import os
import pathlib
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import tomllib
import unittest

BINARY = None
BOX = pathlib.Path(__file__).resolve().parent.parent / "models" / "pelton-box"
LOAD = ["gpt-oss-20b", "--request-rate", 4, "--num-prompts", 60, "--input-len", 100, "--output-len", 40]
# Small, so that a machine that does other things answers in time.
BOX_LOAD = [BOX, "--threads", 1, "--kv-cache-memory", "64MiB", "--no-enable-prefix-caching", "--input-len", 24, "--output-len", 12, "--random-range-ratio", 0.3,
            "--max-concurrency", 6, "--num-prompts", 30]


def pelton(*words, code=0, both=False, env=None):
    done = subprocess.run([BINARY, *map(str, words)], capture_output=True, text=True, timeout=120, check=False, env=env)
    assert done.returncode == code, (words, done.returncode, done.stdout[-1500:], done.stderr[-1500:])
    return (done.stdout, done.stderr) if both else done.stdout if code == 0 else done.stderr


class Tune(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def test_machine_types_are_varied_and_priced(self):
        out = self.folder / "serve.toml"
        points = json.loads(pelton("tune", *LOAD, "--hardware", "l4@0.5,h100@50,p5.48xlarge", "--vary", "max-num-seqs=16,64", "--objectives", "ttft:60000",
                                   "--out", out, "--json", "-"))
        self.assertEqual(len(points), 6)
        for point in points:
            dollars = {"l4@0.5": 0.5, "h100@50": 50, "p5.48xlarge": 55.04 / 8}[point["settings"]["hardware"]] * point["devices"]
            self.assertAlmostEqual(point["dollars_per_million_tokens"], dollars / (point["per_replica"] * 3600) * 1e6, delta=0.01)
        cheapest = min((point for point in points if point["keeps"]), key=lambda point: point["dollars_per_million_tokens"])
        self.assertEqual(cheapest["settings"]["hardware"], "l4@0.5")
        self.assertIn('# hardware = "l4@0.5"', out.read_text())
        self.assertIn("max-num-seqs", tomllib.loads(out.read_text()))
        # A model that no single one holds lies on as many as it takes; without all prices the devices count.
        said = pelton("tune", "gpt-oss-120b", *LOAD[1:], "--hardware", "l4,h100@3", "--vary", "max-num-seqs=16")
        self.assertRegex(said, r"(?m)^hardware=l4 .* 4 +no price ")
        self.assertIn("best: hardware=h100@3 max-num-seqs=16 (by tokens/s of a device)", said)
        for words, what in ((["l4,l4"], "l4 twice"), (["l4@0"], "dollars for an hour"), (["l5"], "no hardware is called"),
                            (["l4", "--best-by", "cost"], "no price of l4"), (["l4", "--gpu", "h100"], "--gpu"), (["l4", "--vary", "gpu=h100"], "--hardware LIST")):
            self.assertIn(what, pelton("tune", *LOAD, "--hardware", *words, code=2), words)

    def test_only_settings_of_a_deployment_are_varied(self):
        words = ["tune", *LOAD, "--gpu", "l4"]
        for key in ("seed", "json", "html", "history", "out", "list", "ablate", "objectives", "num-prompts", "workload", "facts", "duration", "fidelity"):
            self.assertRegex(pelton("tune", LOAD[0], "--gpu", "l4", "--num-prompts", 5, "--vary", f"{key}=1,2", code=2),
                             f"--vary {key}: that is (no setting of a deployment|the load's)", key)
        self.assertIn("the load's, which is the same for all", pelton("tune", LOAD[0], "--gpu", "l4", "--vary", "input-len=10,20", code=2))
        self.assertIn("did you mean 'max-num-seqs'?", pelton(*words, "--vary", "max-num-sqs=3", code=2))
        self.assertRegex(pelton(*words, "--vary", "zzz=3", code=2), "vary settings of a deployment, as max-num-seqs")
        # What the command line says already is not varied by default.
        self.assertNotIn("max-num-seqs=", pelton(*words, "--max-num-seqs", 8))

    def test_what_can_have_no_effect_is_not_varied(self):
        words = ["tune", *LOAD, "--gpu", "l4"]
        self.assertIn("--vary zone-distance has an effect only with --zones", pelton(*words, "--vary", "zone-distance=20,40", code=2))
        self.assertIn("--vary swap-bandwidth has an effect only with --swap-space", pelton(*words, "--vary", "swap-bandwidth=20GB,40GB", code=2))
        self.assertIn("--vary max-replicas has an effect only with --autoscale", pelton(*words, "--vary", "max-replicas=2,4", code=2))
        self.assertIn("has kv-cache-dtype twice", pelton(*words, "--vary", "kv_cache_dtype=int8", "--vary", "kv-cache-dtype=auto", code=2))
        self.assertIn("vary enable-prefix-caching=true,false", pelton(*words, "--vary", "no-enable-prefix-caching=true", code=2))
        # One axis may be what another one needs; and what is assumed of a load is said.
        assumed = "is an assumption of nobody's load"
        said = pelton(*words, "--vary", "speculative-tokens=0,4", "--vary", "max-num-seqs=8")
        self.assertIn(assumed, " ".join(said.split()))
        said = pelton(*words, "--vary", "speculative-tokens=0,4", "--vary", "max-num-seqs=8", "--speculative-acceptance", 0.7)
        self.assertIn("best: speculative-tokens=4", said)
        self.assertNotIn(assumed, " ".join(said.split()))
        self.assertIn("only with --speculative-tokens", pelton(*words, "--vary", "max-num-seqs=8", "--speculative-acceptance", 0.7, code=2))

    def test_the_file_has_all_that_was_played_with(self):
        out = self.folder / "serve.toml"
        pelton("tune", *LOAD, "--gpu", "l4", "--vary", "max-num-seqs=4,8", "--kv-cache-dtype", "f16", "--no-enable-prefix-caching", "--scheduling-policy",
               "decode-first", "--max-queue-seconds", 7, "--replicas", 2, "--router", "cost", "--out", out)
        kept = tomllib.loads(out.read_text())
        self.assertIn(kept.pop("max-num-seqs"), (4, 8))
        self.assertEqual(kept, {"kv-cache-dtype": "f16", "enable-prefix-caching": False, "scheduling-policy": "decode-first", "max-queue-seconds": 7})
        self.assertIn("# replicas = 2", out.read_text())
        done = subprocess.run([BINARY, "serve", "model", "--config", out, "--print-config"], capture_output=True, text=True, timeout=20, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertFalse(tomllib.loads(done.stdout)["enable-prefix-caching"])

    def test_seeds_give_intervals_everywhere(self):
        words = ["tune", *LOAD, "--gpu", "l4", "--vary", "max-num-seqs=1,8", "--seeds", 3]
        self.assertRegex(pelton(*words), r"(?m)^max-num-seqs=8 .* [\d.]+ to [\d.]+ +(yes|no)")
        seeded = [point for point in json.loads(pelton(*words, "--json", "-")) if "value_low" in point]
        self.assertGreater(len(seeded), 0)
        for point in seeded:
            self.assertLessEqual(0, point["value_low"])
            self.assertLessEqual(point["value_low"], point["value_mean"])
            self.assertLessEqual(point["value_mean"], point["value_high"])

    def test_a_kv_cache_in_8_bits_is_not_recommended_without_a_word_on_quality(self):
        out, page = self.folder / "serve.toml", self.folder / "tune.html"
        words = ["tune", *LOAD, "--gpu", "l4", "--vary", "kv-cache-dtype=int8", "--vary", "max-num-seqs=8"]
        said = pelton(*words, "--out", out, "--html", page)
        missing = "what it costs gpt-oss-20b in quality is not known here"
        self.assertIn(missing, " ".join(said.split()))
        self.assertIn(missing, page.read_text())
        self.assertIn("# kv-cache-dtype=int8: " + missing, out.read_text())
        self.assertEqual(tomllib.loads(out.read_text())["kv-cache-dtype"], "int8")
        self.assertIn("--against-kv-cache-dtype int8", pelton(*words, "--json", "-", both=True)[1])
        # However the setting is written.
        pelton(*words[:-4], "--vary", "kv_cache_dtype=int8", "--vary", "max_num_seqs=8", "--out", out)
        self.assertIn("# kv-cache-dtype=int8: " + missing, out.read_text())
        self.assertEqual(tomllib.loads(out.read_text()), {"kv-cache-dtype": "int8", "max-num-seqs": 8})
        self.assertNotIn("quality", pelton(*words[:-4], "--vary", "kv-cache-dtype=f16"))
        # With a record it says that instead.
        text = self.folder / "text.txt"
        text.write_text("The capital of France is Paris. Water boils at one hundred degrees. " * 20)
        environment = {**os.environ, "XDG_CACHE_HOME": str(self.folder)}
        box = ["tune", BOX, "--threads", 1, "--kv-cache-memory", "64MiB", *LOAD[1:], "--max-model-len", 256, "--vary", "kv-cache-dtype=int8"]
        self.assertIn("is not known here", " ".join(pelton(*box, env=environment).split()))
        # A form compared with itself says nothing of the one as it is served.
        same = json.loads(pelton("perplexity", BOX, "--text", text, "--kv-cache-dtype", "int8", "--against-kv-cache-dtype", "int8", "--json", env=environment))
        self.assertEqual(same["kl_max"], 0)
        self.assertIn("is not known here", " ".join(pelton(*box, env=environment).split()))
        pelton("perplexity", BOX, "--text", text, "--against-kv-cache-dtype", "int8", env=environment)
        self.assertRegex(" ".join(pelton(*box, env=environment).split()), r"kv-cache-dtype=int8: perplexity [\d.]+ instead of [\d.]+, .* nats of divergence")

    def test_an_ablation_shows_what_each_feature_does(self):
        """As docs/plan_and_simulate.md has it."""
        docs = (pathlib.Path(__file__).resolve().parent.parent / "docs" / "plan_and_simulate.md").read_text()
        commands = next(block for block in re.findall(r"(?s)```sh run\n(.*?)```", docs) if "--ablate" in block)
        script = commands.replace("pelton tune", f"{BINARY} tune").replace("--ablate", "--ablate --json -")
        done = subprocess.run(["bash", "-ec", script], capture_output=True, text=True, timeout=100, check=True, cwd=self.folder)
        rows = {row["off"]: row for row in json.loads(done.stdout)}
        whole = rows.pop("nothing")
        moved = {off for off, row in rows.items() if max(abs(row[figure] / whole[figure] - 1) for figure in ("p90_ttft_ms", "p90_itl_ms")) > 0.01}
        self.assertEqual(moved, {"prefix cache", "speculation", "router", "prefills first", "KV cache in fewer bits"}, rows)

    def test_what_was_played_is_kept_and_not_played_again(self):
        file = self.folder / "tune.db"
        words = ["tune", *LOAD, "--gpu", "l4", "--vary", "max-num-seqs=8,16", "--history", file]
        first = pelton(*words)
        self.assertIn("2 runs played, 0 of", first)
        again = pelton(*words, "--objectives", "ttft:60000")  # other objectives are judged by what is kept
        self.assertIn("0 runs played, 2 of", again)
        self.assertEqual(re.findall(r"(?m)^max-num-seqs=\S+ +\S+", first), re.findall(r"(?m)^max-num-seqs=\S+ +\S+", again))
        self.assertIn("1 runs played, 2 of", pelton("tune", *LOAD, "--gpu", "l4", "--vary", "max-num-seqs=8,16,32", "--history", file))
        self.assertIn("2 runs played, 0 of", pelton(*words, "--seed", 7))
        spec = self.folder / "load.json"
        for count, said in ((20, "2 runs played, 0 of"), (20, "0 runs played, 2 of"), (21, "2 runs played, 0 of")):
            spec.write_text(json.dumps({"input_tokens": 30, "output_tokens": 10, "count": count, "rate": 5}))
            self.assertIn(said, pelton("tune", "gpt-oss-20b", "--gpu", "l4", "--workload", spec, "--vary", "max-num-seqs=8,16", "--history", file))
        listed = pelton("tune", "--list", "--history", file)
        self.assertIn("9 of the newest", listed)
        self.assertIn("max-num-seqs=32", listed)
        database = sqlite3.connect(file)
        database.execute("UPDATE points SET json = '{\"requests\": -1}'")
        database.commit()
        database.close()
        self.assertIn("damaged", pelton(*words, code=3))
        other, none = self.folder / "other.db", self.folder / "none.db"
        other.write_text("no database\n" * 100)
        self.assertIn("not a database", pelton("tune", *LOAD, "--gpu", "l4", "--history", other, code=3))
        self.assertEqual(other.read_text(), "no database\n" * 100)
        self.assertIn("does not exist", pelton("tune", "--list", "--history", none, code=1))
        self.assertFalse(none.exists())
        self.assertIn("--history FILE", pelton("tune", "--list", code=2))
        self.assertIn("MODEL", pelton("tune", code=2))

    def test_requests_that_fail_are_said_with_their_reason(self):
        done = subprocess.run([BINARY, "tune", "gpt-oss-20b", "--gpu", "h100", "--request-rate", "inf", "--num-prompts", "1200", "--input-len", "50",
                               "--output-len", "4", "--vary", "max-num-seqs=64"], capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 5)
        self.assertRegex(done.stdout, r"no .*176 of 1200 requests failed: 1024 requests are waiting already")

    def test_the_best_few_are_measured_on_this_machine(self):
        calibration = self.folder / "calibration.json"
        page = self.folder / "fronts.html"
        points, said = pelton("tune", *BOX_LOAD, "--vary", "max-num-seqs=2,6", "--confirm", "local", "--confirm-best", 1, "--confirm-rounds", 1,
                              "--confirm-seconds", 25, "--calibration-out", calibration, "--html", page, "--json", "-", both=True)
        self.assertIn("calibrating: 1 stream", said)
        self.assertIn("round 1 of 1, the flags as they stand:", said)
        measured = [point["measured"] for point in json.loads(points) if "measured" in point]
        self.assertEqual(len(measured), 2)  # the best one, and the flags without --vary
        for one in measured:
            self.assertGreater(one["output_throughput"], 0)
            self.assertGreater(one["p90_ttft_ms"], 0)
            self.assertGreater(one["recalibrated"]["output_throughput"], 0)
            self.assertEqual(one["failed"], 0)
        self.assertGreaterEqual(json.loads(calibration.read_text())["steps"], 16)
        self.assertIn("the forecast was wrong by at most", page.read_text())
        self.assertIn("--confirm-seconds", pelton("tune", *BOX_LOAD, "--calibration", calibration, "--vary", "max-num-seqs=2,6", "--confirm", "local",
                                                  "--confirm-seconds", 3, code=2))

    def test_a_server_that_runs_is_measured_with_the_loads_knobs(self):
        server = subprocess.Popen([BINARY, "serve", BOX, "--port", "0", "--threads", "1", "--kv-cache-memory", "64MiB", "--log-level", "error"],
                                  stdout=subprocess.PIPE, text=True)
        try:
            line = server.stdout.readline()
            self.assertTrue(line.startswith("listening on "), line)
            url = line.split()[-1]
            words = ["tune", *BOX_LOAD[:-4], "--num-prompts", 20]
            said = pelton(*words, "--vary", "max-concurrency=1,4", "--confirm", url, "--confirm-rounds", 1, "--confirm-seconds", 60)
            self.assertIn(f"measured on {url}, 1 round by turns", said)
            self.assertRegex(said, r"the forecast was wrong by at most \d+\.\d % \(tokens/s\) and \d+\.\d % \(TTFT p90\)\n")
            self.assertRegex(said, r"(?m)^(gain of the best measured \(max-concurrency=\d\)|nothing measured is better)")
            self.assertIn("--max-num-seqs is the server's own", pelton(*words, "--vary", "max-num-seqs=1,4", "--confirm", url, code=2))
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(30)
            server.stdout.close()
        for words, what in ((["--confirm", "there"], "neither 'local' nor a URL"), 
                            (["--confirm", "local", "--replicas", 2], "one server"), (["--confirm-rounds", 2], "--confirm")):
            self.assertIn(what, pelton("tune", *BOX_LOAD, *words, code=2), words)
        self.assertIn("about this machine", pelton("tune", *LOAD, "--gpu", "l4", "--confirm", "local", code=2))
        self.assertIn("no folder of weights", pelton("tune", *LOAD, "--confirm", "local", code=2))


if __name__ == "__main__":
    BINARY = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main(verbosity=2)
