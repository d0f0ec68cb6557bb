#!/usr/bin/env python3
"""The same weights in every layout, as a user meets them: equal logits, equal ids, equal text; and
what `verify` says of sound and damaged models.

usage: formats_test.py BINARY
"""
import hashlib
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
TINY = ROOT / "testdata" / "golden" / "tiny"
BINARY = None


def pelton(*words, **environment):
    return subprocess.run([BINARY, *map(str, words)], capture_output=True, timeout=120, check=False,
                          env={**os.environ, **environment})


class Formats(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.root = pathlib.Path(folder.name)
        config = json.loads((TINY / "config.json").read_text())
        config.update(vocab_size=3000, eos_token_id=2979, pad_token_id=2980)
        shape = cls.root / "shape.json"
        shape.write_text(json.dumps(config))
        cls.models = {}
        for name, flags in {"hf": [], "original": ["--format", "original"],
                            "bf16.gguf": ["--format", "gguf"],
                            "q8.gguf": ["--format", "gguf", "--gguf-type", "q8_0"]}.items():
            cls.models[name] = cls.root / name
            done = pelton("synth", "--like", shape, "--seed", 5, *flags, cls.models[name])
            assert done.returncode == 0, done.stderr
        cls.ids = cls.root / "ids.json"
        cls.ids.write_text(json.dumps([(i * 37 + 5) % 2900 for i in range(24)]))

    def expect(self, code, done):
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stdout

    def logits(self, model):
        out = self.root / "logits.npy"
        self.expect(0, pelton("logits", model, "--tokens", self.ids, "--out", out))
        return hashlib.sha256(out.read_bytes()).hexdigest()

    def test_logits_are_equal_to_the_bit(self):
        exact = self.logits(self.models["hf"])
        self.assertEqual(self.logits(self.models["original"]), exact)
        self.assertEqual(self.logits(self.models["original"] / "original"), exact)
        self.assertEqual(self.logits(self.models["bf16.gguf"]), exact)
        self.assertNotEqual(self.logits(self.models["q8.gguf"]), exact)  # Q8_0 rounds

    def test_text_and_ids_are_equal(self):
        text = "hello, wheel: <|start|> Grüße 水車"
        ids = self.expect(0, pelton("tokenize", self.models["hf"], "--text", text, "--ids"))
        said = self.expect(0, pelton("generate", self.models["hf"], "--prompt", text, "--max-tokens", 9))
        for name in ("original", "bf16.gguf", "q8.gguf"):
            model = self.models[name]
            self.assertEqual(self.expect(0, pelton("tokenize", model, "--text", text, "--ids")), ids)
            if name == "q8.gguf":
                continue
            self.assertEqual(
                self.expect(0, pelton("generate", model, "--prompt", text, "--max-tokens", 9)), said)

    def test_inspect_counts_the_same_parameters(self):
        seen = {name: json.loads(self.expect(0, pelton("inspect", model, "--json")))
                for name, model in self.models.items()}
        self.assertEqual({one["parameters_total"] for one in seen.values()},
                         {seen["hf"]["parameters_total"]})
        self.assertEqual([seen[name]["layout"] for name in ("hf", "original", "q8.gguf")],
                         ["Hugging Face", "original", "GGUF"])
        self.assertGreater(seen["q8.gguf"]["dtype_bytes"]["Q8_0"], 0)
        self.assertEqual(seen["q8.gguf"]["dtype_bytes"]["BF16"], 0)

    def test_verify_of_sound_models(self):
        for model in self.models.values():
            found = json.loads(self.expect(0, pelton("verify", model, "--json", "--tokens", 12)))
            self.assertTrue(found["sound"])
            self.assertTrue(found["self_check"]["real_text"])
            self.assertEqual(len(found["self_check"]["blocks"]), 6)

    def test_verify_compares_with_the_name_in_the_cache(self):
        entry = self.root / "cache" / "models--me--wheel"
        snapshot = entry / "snapshots" / "abc"
        (entry / "refs").mkdir(parents=True)
        (entry / "blobs").mkdir()
        snapshot.mkdir(parents=True)
        (entry / "refs" / "main").write_text("abc")
        data = bytearray((self.models["hf"] / "model.safetensors").read_bytes())
        blob = entry / "blobs" / hashlib.sha256(data).hexdigest()
        blob.write_bytes(data)
        (snapshot / "model.safetensors").symlink_to(blob)
        for name in ("config.json", "generation_config.json", "tokenizer.json"):
            (snapshot / name).write_bytes((self.models["hf"] / name).read_bytes())
        cache = {"HF_HUB_CACHE": str(self.root / "cache")}
        words = ("verify", "me/wheel", "--tokens", 4, "--json")
        found = json.loads(self.expect(0, pelton(*words, **cache)))
        self.assertEqual(found["files"][0]["found_sha256"], blob.name)
        data[-100] ^= 1  # still a number, so only the hash can tell
        blob.write_bytes(data)
        done = pelton(*words, **cache)
        found = json.loads(self.expect(4, done))
        self.assertTrue(found["files"][0]["damaged"])
        self.assertEqual(found["faults"], [])
        self.assertIn(b"is damaged", done.stderr)

    def test_ollamas_own_files_are_told_apart(self):
        data = self.models["bf16.gguf"].read_bytes()
        at = data.index(b"gpt-oss") - 8
        other = self.root / "ollama.gguf"
        other.write_bytes(data[:at] + struct.pack("<Q", 6) + b"gptoss" + data[at + 15:])
        done = pelton("inspect", other)
        self.expect(4, done)
        self.assertIn(b"Ollama", done.stderr)
        self.assertIn(b"ggml-org/gpt-oss-20b-GGUF", done.stderr)


if __name__ == "__main__":
    BINARY = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main(verbosity=2)
