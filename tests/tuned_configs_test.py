#!/usr/bin/env python3
"""configs/: each file is read by serve, is said to be modelled, and stands in the table of docs/tuning.md.

usage: tuned_configs_test.py BINARY
"""
import pathlib
import subprocess
import sys
import tempfile
import tomllib
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
BINARY = None


class TunedConfigs(unittest.TestCase):
    def test_each_file_is_read_by_serve(self):
        files = sorted((ROOT / "configs").glob("*/*.toml"))
        self.assertGreater(len(files), 20)
        for file in files:
            with self.subTest(file=str(file)):
                done = subprocess.run([BINARY, "serve", "model", "--config", file, "--print-config"], capture_output=True, text=True,
                                      timeout=20, check=False)
                self.assertEqual(done.returncode, 0, done.stderr)
                in_effect = tomllib.loads(done.stdout)
                for name, value in tomllib.loads(file.read_text()).items():
                    self.assertEqual(str(in_effect[name]), str(value), name)

    def test_each_is_marked_and_stands_in_the_table(self):
        page = (ROOT / "docs" / "tuning.md").read_text()
        for file in (ROOT / "configs").glob("*/*.toml"):
            name = f"configs/{file.parent.name}/{file.name}"
            self.assertIn(name, page)
            first = file.read_text().splitlines()[0]
            self.assertTrue(first.startswith("# modelled, not measured, by: pelton tune "), first)
            self.assertIn(f"--gpu {file.stem} ", first)

    def test_a_name_that_serve_does_not_know_is_refused(self):
        wrong = ROOT / "configs" / "gpt-oss-20b" / "l4.toml"
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write(wrong.read_text().replace("max-num-seqs", "max-num-seks"))
            file.flush()
            done = subprocess.run([BINARY, "serve", "model", "--config", file.name, "--print-config"], capture_output=True, text=True,
                                  timeout=20, check=False)
        self.assertIn("did you mean 'max-num-seqs'", done.stderr)
        self.assertEqual(done.returncode, 3)


if __name__ == "__main__":
    BINARY = sys.argv.pop(1)
    unittest.main()
