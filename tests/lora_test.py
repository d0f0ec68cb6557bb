#!/usr/bin/env python3
"""LoRA adapters as a user meets them: `pelton logits --lora` on golden tiny, with adapters that this
test writes itself; and what is refused, by its name.

usage: lora_test.py BINARY
"""
import array
import json
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
TINY = ROOT / "testdata" / "golden" / "tiny"  # 2 layers, hidden 128, 4 heads of 32, 8 experts of 128
BINARY = None
RANK = 2


def write_adapter(folder, tensors, **config):
    folder.mkdir(parents=True, exist_ok=True)
    facts = {"peft_type": "LORA", "r": RANK, "lora_alpha": 4, "target_modules": ["q_proj", "o_proj"], "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps({**facts, **config}))
    header, data = {}, b""
    for name, (shape, values) in sorted(tensors.items()):
        begin = len(data)
        data += array.array("f", values).tobytes()
        header[f"base_model.model.model.{name}.weight"] = {"dtype": "F32", "shape": shape,
                                                           "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    return folder


def numbers(shape, scale, seed):
    count = 1
    for size in shape:
        count *= size
    return shape, [scale * ((i * 7919 + seed * 104729) % 1009 / 504.5 - 1) for i in range(count)]


def on_q(scale=0.2):
    tensors = {}
    for layer in (0, 1):
        module = f"layers.{layer}.self_attn.q_proj"
        tensors[f"{module}.lora_A"] = numbers([RANK, 128], 0.2, layer)
        tensors[f"{module}.lora_B"] = numbers([128, RANK], scale, layer + 5)
    return tensors


def on_down(expert_first=False):
    """Columns of B are rank first, or, as a mistake, expert first."""
    shape, b = numbers([128, RANK * 8], 0.2, 3)
    if expert_first:
        b = [b[row * 16 + rho * 8 + e] for row in range(128) for e in range(8) for rho in range(RANK)]
    return {"layers.1.mlp.experts.lora_A": numbers([8 * RANK, 128], 0.2, 1),
            "layers.1.mlp.experts.lora_B": (shape, b)}


class Lora(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def run_logits(self, *flags):
        out = self.root / "logits.npy"
        out.unlink(missing_ok=True)
        done = subprocess.run([BINARY, "logits", TINY, "--tokens", TINY / "tokens.json", "--positions", "0:40",
                               "--out", out, *flags], capture_output=True, text=True, timeout=300, check=False)
        return done, out.read_bytes() if out.exists() else None

    def logits(self, *flags):
        done, written = self.run_logits(*flags)
        self.assertEqual(done.returncode, 0, done.stderr)
        return written

    def test_synth_writes_ranks_and_alphas_by_kind_of_module(self):
        """Another rank for experts, and what is written is what is read: alpha 0 of the experts leaves attention alone."""
        def synth(name, *flags):
            folder = self.root / name
            subprocess.run([BINARY, "synth", "--like", TINY / "config.json", "--seed", "5", *flags, folder], check=True, capture_output=True,
                           timeout=60)
            file = (folder / "adapter_model.safetensors").read_bytes()
            return folder, json.loads(file[8:8 + struct.unpack("<Q", file[:8])[0]])
        both, tensors = synth("both", "--lora", "all", "--lora-rank", "6", "--lora-experts-rank", "3")
        module = "base_model.model.model.layers.1."
        self.assertEqual(tensors[module + "self_attn.q_proj.lora_A.weight"]["shape"], [6, 128])
        self.assertEqual(tensors[module + "mlp.experts.lora_A.weight"]["shape"], [3 * 8, 128])
        self.assertEqual(tensors[module + "mlp.experts.base_layer.lora_B.weight"]["shape"], [256, 3 * 8])
        faint, _ = synth("faint", "--lora", "all", "--lora-rank", "6", "--lora-experts-rank", "3", "--lora-experts-alpha", "0.001")
        fainter, _ = synth("fainter", "--lora", "all", "--lora-rank", "6", "--lora-alpha", "0.001", "--lora-experts-rank", "3",
                           "--lora-experts-alpha", "0.001")
        attention, _ = synth("attention", "--lora", "attention", "--lora-rank", "6")

        def apart(one, other):
            a, b = (array.array("f", self.logits("--lora", folder, "--kernels", "reference")[-40 * 512 * 4:]) for folder in (one, other))
            return max(abs(x - y) for x, y in zip(a, b))
        self.assertGreater(apart(both, attention), 0.1)
        self.assertLess(apart(faint, attention), 0.05)
        self.assertGreater(apart(faint, fainter), 0.1)

    def test_an_adapter_changes_logits_and_one_of_zeros_does_not(self):
        base = self.logits()
        adapter = write_adapter(self.root / "q", on_q())
        under = self.logits("--lora", adapter)
        self.assertNotEqual(under, base)
        self.assertEqual(self.logits("--lora", adapter, "--chunk", "7"), under)
        zeros = write_adapter(self.root / "zeros", on_q(scale=0.0))
        self.assertEqual(self.logits("--lora", zeros), base)

    def test_the_order_of_experts_columns_matters(self):
        target = {"target_modules": [], "target_parameters": ["mlp.experts.down_proj"]}
        right = write_adapter(self.root / "right", on_down(), **target)
        wrong = write_adapter(self.root / "wrong", on_down(expert_first=True), **target)
        self.assertNotEqual(self.logits("--lora", right), self.logits("--lora", wrong))

    def test_an_activated_one_acts_from_its_last_invocation(self):
        tokens = json.loads((TINY / "tokens.json").read_text())
        tokens = (tokens["prompt"] if isinstance(tokens, dict) else tokens)[:40]
        row, at = 512 * 4, max(i for i in range(40) if tokens[i:i + 2] == tokens[20:22])
        base, plain = self.logits(), self.logits("--lora", write_adapter(self.root / "plain", on_q()))
        activated = write_adapter(self.root / "activated", on_q(), alora_invocation_tokens=tokens[20:22])
        under = self.logits("--lora", activated)
        self.assertEqual(len(under), len(base))
        first = len(base) - (40 - at) * row
        self.assertEqual(under[:first], base[:first])
        for other in (base, plain):
            self.assertNotEqual(under[first:first + row], other[first:first + row])
        self.assertEqual(self.logits("--lora", activated, "--chunk", "7"), under)
        never = write_adapter(self.root / "never", on_q(), alora_invocation_tokens=[511, 510, 511])
        self.assertEqual(self.logits("--lora", never), base)
        first = write_adapter(self.root / "first", on_q(), alora_invocation_tokens=tokens[:2])
        self.assertEqual(self.logits("--lora", first), plain)

    def test_what_is_refused_is_named(self):
        def refused(word, tensors, **config):
            done, written = self.run_logits("--lora", write_adapter(self.root / "refused", tensors, **config))
            self.assertNotEqual(done.returncode, 0, word)
            self.assertIn(word, done.stderr)
            self.assertIsNone(written)
        refused("use_dora", on_q(), use_dora=True)
        refused("auto_map", on_q(), auto_map={"AutoModel": "x.Y"})
        refused("lora_alpha", on_q(), lora_alpha=0)
        refused("router", {**on_q(), "layers.0.mlp.router.lora_A": numbers([RANK, 128], 1, 1)})
        refused("not finite", {**on_q(), "layers.0.self_attn.q_proj.lora_B": ([128, RANK], [float("nan")] * 256)})
        refused("layer 7", {**on_q(), "layers.7.self_attn.q_proj.lora_A": numbers([RANK, 128], 1, 1)})
        done, _ = self.run_logits("--lora", self.root / "nothing")
        self.assertIn("adapter_config.json", done.stderr)


if __name__ == "__main__":
    BINARY = sys.argv.pop(1)
    unittest.main(verbosity=2)
