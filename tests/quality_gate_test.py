#!/usr/bin/env python3
"""The gate that kernels and engine features pass: the model in the box by the reference kernels and by each of the fast ones, and
its answers with features on and off. Bounds: docs/evaluation.md, "What kernels and features are held to".

usage: quality_gate_test.py PELTON MODEL_FOLDER      a few tokens and tasks; all of them with PELTON_FULL=1
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from eval_test import rounded_head
from tiers import FULL, full

PELTON, MODEL = sys.argv[1:3]
TOOLS = pathlib.Path(__file__).resolve().parent.parent / "tools" / "box_model"
WINDOW = 512
TOKENS = 12 * WINDOW if FULL else WINDOW // 4
TASKS = 150 if FULL else 16

# What docs/evaluation.md states.
DISTRIBUTIONS = ("kl_mean>0.0006", "agreement<0.99")
ANSWERS_OF_KERNELS = ("errors>0", "drop>0.005", "same<0.99")
ANSWERS_OF_FEATURES = ("errors>0", "same<1")  # the same bits (docs/decisions/0004)

FEATURES = {
    "no prefix caching": ["--no-enable-prefix-caching"],
    "chunks of 16 tokens": ["--max-num-batched-tokens", "16", "--max-num-seqs", "8"],
    "one sequence at a time": ["--max-num-seqs", "1"],
    "n-gram speculation": ["--speculative-config", '{"method":"ngram","num_speculative_tokens":3}'],
    "EAGLE-3": ["--speculative-config", json.dumps({"method": "eagle3", "model": f"{MODEL}/eagle3", "num_speculative_tokens": 3})],
    "Medusa": ["--speculative-config", json.dumps({"method": "medusa", "model": f"{MODEL}/medusa", "num_speculative_tokens": 3})],
    "a draft model": ["--speculative-config", json.dumps({"method": "draft_model", "model": f"{MODEL}/draft", "num_speculative_tokens": 3})],
}
QUICK_FEATURES = ("chunks of 16 tokens", "EAGLE-3")


def run(*words):
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=900, check=False)


class QualityGate(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        os.environ["XDG_CACHE_HOME"] = str(cls.folder / "cache")  # no record of these runs is kept
        cls.ids = cls.folder / "ids.json"
        made = run(sys.executable, TOOLS / "held_out_tokens.py", "--tokens", TOKENS, MODEL, cls.ids)
        assert made.returncode == 0, made.stderr
        made = run(sys.executable, TOOLS / "eval_tasks.py", "--count", TASKS, cls.folder / "tasks")
        assert made.returncode == 0, made.stderr
        cls.tasks = made.stdout.strip()
        cls.fast_kernels = [name for name in ("avx2", "avx512") if cls.processor_has(name)]

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    @classmethod
    def processor_has(cls, kernels):
        pair = cls.folder / "pair.json"
        pair.write_text("[1, 2]")
        return "this processor has no" not in run(PELTON, "perplexity", MODEL, "--tokens", pair, "--kernels", kernels).stderr

    def distributions(self, *flags):
        """(exit code, figures) of a comparison under the gate."""
        gate = [word for bound in DISTRIBUTIONS for word in ("--fail-if", bound)]
        done = run(PELTON, "perplexity", MODEL, "--tokens", self.ids, "--window", WINDOW, "--json", *flags, *gate)
        self.assertIn(done.returncode, (0, 1), done.stderr)
        return done.returncode, json.loads(done.stdout), done.stderr

    def ask(self, out, *serve, model=MODEL, more=()):
        flags = [f"--serve-flag={word}" for word in ("--current-date", "2026-11-21", *serve)]
        return run(PELTON, "eval", model, *flags, "--max-tokens", 400, "--tasks", self.tasks, "--out", self.folder / out, *more)

    def answers(self, name, base, bounds, *serve, model=MODEL):
        """A second evaluation against a first one, under the gate."""
        gate = [word for bound in bounds for word in ("--fail-if", bound)]
        return self.ask(f"{name}.json", *serve, model=model, more=["--against", self.folder / base, *gate])

    def test_fast_kernels_predict_as_the_reference_does(self):
        for kernels in self.fast_kernels:
            with self.subTest(kernels=kernels):
                code, found, said = self.distributions("--kernels", "reference", "--against-kernels", kernels)
                self.assertEqual(code, 0, (found, said))
                self.assertGreater(found["kl_max"], 0, "the same kernels twice")
                print(f"{kernels}: {found}", file=sys.stderr)

    def test_a_head_of_4_bits_fails(self):
        """The bounds see a real loss: the same weights but for a head that is rounded to 4 bits instead of bf16."""
        other = rounded_head(MODEL, str(self.folder / "head4"), 4)
        code, found, said = self.distributions("--against", other)
        self.assertEqual(code, 1, found)
        self.assertIn("--fail-if kl_mean>0.0006", said)
        self.assertLess(found["agreement"], 0.99, found)
        code, found, said = self.distributions("--against", MODEL)
        self.assertEqual((code, found["kl_max"]), (0, 0), said)

    def test_features_do_not_change_answers(self):
        done = self.ask("base.json", more=["--fail-if", "score<0.85"])
        self.assertEqual(done.returncode, 0, done.stderr)
        for name in FEATURES if FULL else QUICK_FEATURES:
            with self.subTest(feature=name):
                done = self.answers(name, "base.json", ANSWERS_OF_FEATURES, *FEATURES[name])
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    @full
    def test_a_head_of_2_bits_answers_otherwise(self):
        done = self.ask("shipped.json")
        self.assertEqual(done.returncode, 0, done.stderr)
        other = rounded_head(MODEL, str(self.folder / "head2"), 2)
        done = self.answers("head2", "shipped.json", ANSWERS_OF_KERNELS, model=other)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("--fail-if", done.stderr)

    @full
    def test_fast_kernels_answer_as_the_reference_does(self):
        done = self.ask("reference.json", "--kernels", "reference", more=["--fail-if", "score<0.85"])
        self.assertEqual(done.returncode, 0, done.stderr)
        for kernels in self.fast_kernels:
            with self.subTest(kernels=kernels):
                done = self.answers(kernels, "reference.json", ANSWERS_OF_KERNELS, "--kernels", kernels)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
