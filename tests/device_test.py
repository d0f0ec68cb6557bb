#!/usr/bin/env python3
"""--device as a user meets it: no CUDA in the binary, the CPU where there is no GPU, and a model computed
through a device library (the emulated one) that answers as the CPU does.

usage: device_test.py BINARY [EMULATED_LIBRARY]
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
TINY = ROOT / "testdata" / "golden" / "tiny"
BINARY = None
EMULATED = None


def generate(*flags, library):
    # 20: each of these is the best by far; the 21st is not.
    golden = json.loads((TINY / "tokens.json").read_text())
    with tempfile.NamedTemporaryFile("w", suffix=".json") as ids:
        json.dump(golden["prompt"], ids)
        ids.flush()
        done = subprocess.run(
            [BINARY, "generate", str(TINY), "--tokens", ids.name, "--max-tokens", "20", "--ids", *flags],
            capture_output=True, text=True, timeout=240, check=False,
            env={**os.environ, "PELTON_CUDA_LIBRARY": str(library)})
    return done, golden["continuation"][:20]


class Device(unittest.TestCase):
    def test_the_binary_knows_no_cuda(self):
        linked = subprocess.run(["ldd", BINARY], capture_output=True, text=True, check=True).stdout.lower()
        self.assertIn("libc.so", linked)
        for word in ("cuda", "cublas", "nvidia", "nccl", "nvrtc", "libmpi"):
            self.assertNotIn(word, linked)

    def test_without_a_library_it_is_the_cpu(self):
        done, expected = generate("--device", "auto", library="/nowhere/libpelton_cuda.so")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout), expected)

    def test_asked_for_and_not_there_is_an_error(self):
        done, _ = generate("--device", "cuda", library="/nowhere/libpelton_cuda.so")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("--device cuda", done.stderr)
        self.assertIn("/nowhere/libpelton_cuda.so", done.stderr)
        self.assertEqual(done.stdout, "")

    def test_C5_what_is_missing_is_said_and_what_to_do(self):
        library = pathlib.Path(BINARY).parent / "libpelton_cuda.so"  # where there is nvcc; a GPU there may be none
        for path in {"/nowhere/libpelton_cuda.so", str(library) if library.exists() else "/nowhere/else.so"}:
            done, _ = generate("--device", "cuda", library=path)
            if done.returncode == 0:
                continue  # a machine with a GPU
            for words in ("docs/gpu.md", "libpelton_cuda.so", "NVIDIA's driver", "--device cpu"):
                self.assertIn(words, done.stderr)

    def test_what_is_no_device_library_is_an_error(self):
        done, _ = generate("--device", "cuda", library="libm.so.6")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("no device library", done.stderr)

    def test_a_device_answers_as_the_cpu_does(self):
        if EMULATED is None:
            self.skipTest("no emulated library in this build")
        done, expected = generate("--device", "cuda", "--kv-cache-memory", "4MiB", "--max-model-len", "256",
                                  library=EMULATED)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout), expected)

    def test_persistent_steps_answer_as_the_cpu_does(self):
        if EMULATED is None:
            self.skipTest("no emulated library in this build")
        done, expected = generate("--device", "cuda", "--kernel-choice", "persistent", "--kv-cache-memory", "4MiB",
                                  "--max-model-len", "256", library=EMULATED)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout), expected)

    def test_how_kernels_were_chosen_is_told(self):
        if EMULATED is None:
            self.skipTest("no emulated library in this build")
        for mode, how in (("auto", "by constants: times of this device mean nothing"), ("default", "by constants"),
                          ("measure", "measured in "), ("plain", "by constants, without wgmma"),
                          ("persistent", "by constants, but that steps of few rows are persistent")):
            with tempfile.TemporaryDirectory() as cache:
                runtime, log = self.served("--kernel-choice", mode, cache=cache)
            self.assertTrue(runtime["kernel_choice"].startswith(how), runtime)
            self.assertIn("kernel choice: " + runtime["kernel_choice"], log)
            self.assertIn("gate_up ", runtime["kernel_forms"])
            if mode != "measure":  # which may find either faster
                self.assertEqual("rows persistent" in runtime["kernel_forms"], mode == "persistent", runtime)

    def served(self, *flags, cache):
        """What /server_info says of what computes, and the log."""
        process = subprocess.Popen(
            [BINARY, "serve", str(ROOT / "models" / "pelton-box"), "--port", "0", "--device", "cuda",
             "--kv-cache-memory", "4MiB", "--max-model-len", "256", *flags], stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
            env={**os.environ, "PELTON_CUDA_LIBRARY": str(EMULATED), "PELTON_CACHE": cache})
        try:
            line = process.stdout.readline()
            self.assertTrue(line.startswith("listening on "), line)
            with urllib.request.urlopen(line.split()[-1] + "/server_info", timeout=60) as answer:
                runtime = json.load(answer)["runtime"]
        finally:
            process.terminate()
            _, log = process.communicate(timeout=60)
        return runtime, log

    def test_the_device_can_be_declined(self):
        done, expected = generate("--device", "cpu", library="libm.so.6")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout), expected)


if __name__ == "__main__":
    BINARY = os.path.abspath(sys.argv[1])
    EMULATED = os.path.abspath(sys.argv[2]) if len(sys.argv) > 2 else None
    unittest.main(argv=sys.argv[:1])
