#!/usr/bin/env python3
"""What the coarsest packed weights cost the model in the box: perplexity of held-out answers, and the answers.

usage: packed_quality_test.py PELTON MODEL_FOLDER
"""
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

PELTON, MODEL = sys.argv[1:3]
TOOLS = pathlib.Path(__file__).resolve().parent.parent / "tools" / "box_model"


def output_of(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=200)
    return done.returncode, done.stdout + done.stderr


class PackedQuality(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.packed = pathlib.Path(cls.folder.name) / "packed"
        code, output = output_of(PELTON, "pack", "--weights", "int8", "--activations", "int8", MODEL, cls.packed)
        assert code == 0 and "attention int8, head int4 and as shipped, activations int8" in output, output

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_perplexity(self):
        code, output = output_of(sys.executable, TOOLS / "served_perplexity.py", "--pelton", PELTON, "--count", 150, "--limit", 0.5,
                                 MODEL, self.packed)
        self.assertEqual(code, 0, output)
        # Not the same weights twice, and not a model that knows nothing.
        losses = [float(loss) for loss in re.findall(r"loss (\d\.\d+)", output)]
        self.assertEqual(len(losses), 2, output)
        self.assertNotEqual(*losses)
        self.assertLess(losses[0], 0.1)

    def test_worse_weights_are_seen(self):
        """The limit is one: below any loss that rounding brings, it is exceeded."""
        code, output = output_of(sys.executable, TOOLS / "served_perplexity.py", "--pelton", PELTON, "--count", 20, "--limit", -1,
                                 MODEL, self.packed)
        self.assertEqual(code, 1, output)

    def test_right_answers(self):
        """The same held-out tasks, asked of both by `pelton eval`."""
        folder = pathlib.Path(self.folder.name)
        code, tasks = output_of(sys.executable, TOOLS / "eval_tasks.py", "--count", 200, folder / "held-out")
        self.assertEqual(code, 0, tasks)
        flags = ["--serve-flag=--current-date", "--serve-flag=2026-11-21", "--max-tokens", 400, "--tasks", tasks.strip()]
        code, output = output_of(PELTON, "eval", MODEL, *flags, "--out", folder / "before.json", "--fail-if", "score<0.85")
        self.assertEqual(code, 0, output)
        code, output = output_of(PELTON, "eval", self.packed, *flags, "--against", folder / "before.json", "--fail-if", "drop>0.005")
        self.assertEqual(code, 0, output)


if __name__ == "__main__":
    sys.argv[1:3] = []
    unittest.main()
