#!/usr/bin/env python3
"""Decoders with a classification head in place of their output head (LlamaForSequenceClassification, Qwen3For...): what
`pelton embed --labels` and the server's routes say is what a plain float64 computation of the same files comes to.

usage: decoder_labels_test.py BINARY
"""
import json
import math
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

import chains_test

BINARY = None
HIDDEN, HEADS, KV_HEADS, HEAD, INNER, LAYERS, EPSILON, THETA = 64, 4, 2, 16, 96, 2, 1e-6, 10000.0
LABELS = ["good", "bad", "odd"]
TEXTS = ["A wheel turns.", "The sky", "one two three four five six"]


def config(architecture, model_type, labels):
    made = {"architectures": [architecture], "model_type": model_type, "hidden_size": HIDDEN, "intermediate_size": INNER,
            "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD,
            "vocab_size": 512, "max_position_embeddings": 256, "rms_norm_eps": EPSILON, "rope_theta": THETA, "hidden_act": "silu",
            "tie_word_embeddings": False, "torch_dtype": "bfloat16"}
    if isinstance(labels, list):
        made["id2label"] = {str(i): label for i, label in enumerate(labels)}
    else:
        made["num_labels"] = labels
    return made


def read_tensors(folder):
    tensors = {}
    for file in folder.glob("*.safetensors"):
        raw = file.read_bytes()
        [size] = struct.unpack("<Q", raw[:8])
        for name, about in json.loads(raw[8:8 + size]).items():
            if name == "__metadata__":
                continue
            first, last = about["data_offsets"]
            data = raw[8 + size + first:8 + size + last]
            assert about["dtype"] == "BF16", about
            halves = struct.unpack(f"<{len(data) // 2}H", data)
            values = struct.unpack(f"<{len(halves)}f", b"".join(struct.pack("<I", half << 16) for half in halves))
            rows = about["shape"][0] if len(about["shape"]) == 2 else 1
            width = len(values) // rows
            tensors[name] = [list(values[i * width:(i + 1) * width]) for i in range(rows)]
    return tensors


def norm(row, gain):
    scale = 1 / math.sqrt(sum(x * x for x in row) / len(row) + EPSILON)
    return [x * scale * g for x, g in zip(row, gain)]


def product(matrix, row):
    return [sum(w * x for w, x in zip(weights, row)) for weights in matrix]


def rotated(row, position):
    """Rotary positions of one head: halves, as transformers has them."""
    half = len(row) // 2
    out = list(row)
    for i in range(half):
        angle = position * THETA ** (-2 * i / len(row))
        out[i] = row[i] * math.cos(angle) - row[i + half] * math.sin(angle)
        out[i + half] = row[i + half] * math.cos(angle) + row[i] * math.sin(angle)
    return out


def heads_of(row, count):
    return [row[i * HEAD:(i + 1) * HEAD] for i in range(count)]


def logits_of(tensors, tokens, has_qk_norm):
    rows = [list(tensors["model.embed_tokens.weight"][token]) for token in tokens]
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        keys, values = [], []
        for position, row in enumerate(list(rows)):
            x = norm(row, tensors[at + "input_layernorm.weight"][0])
            q, k, v = (product(tensors[f"{at}self_attn.{name}_proj.weight"], x) for name in "qkv")
            q, k = heads_of(q, HEADS), heads_of(k, KV_HEADS)
            if has_qk_norm:
                q = [norm(head, tensors[at + "self_attn.q_norm.weight"][0]) for head in q]
                k = [norm(head, tensors[at + "self_attn.k_norm.weight"][0]) for head in k]
            keys.append([rotated(head, position) for head in k])
            values.append(heads_of(v, KV_HEADS))
            mixed = []
            for h, head in enumerate(q):
                head, group = rotated(head, position), h * KV_HEADS // HEADS
                scores = [sum(a * b for a, b in zip(head, key[group])) / math.sqrt(HEAD) for key in keys]
                weights = [math.exp(score - max(scores)) for score in scores]
                mixed += [sum(w * value[group][i] for w, value in zip(weights, values)) / sum(weights) for i in range(HEAD)]
            row = [a + b for a, b in zip(row, product(tensors[at + "self_attn.o_proj.weight"], mixed))]
            x = norm(row, tensors[at + "post_attention_layernorm.weight"][0])
            gate, up = (product(tensors[f"{at}mlp.{name}_proj.weight"], x) for name in ("gate", "up"))
            inner = [g / (1 + math.exp(-g)) * u for g, u in zip(gate, up)]
            rows[position] = [a + b for a, b in zip(row, product(tensors[at + "mlp.down_proj.weight"], inner))]
    return product(tensors["score.weight"], norm(rows[-1], tensors["model.norm.weight"][0]))


def pelton(*words):
    return subprocess.run([str(part) for part in (BINARY, *words)], capture_output=True, text=True, timeout=120, check=False)


class DecoderLabels(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.work.cleanup)
        cls.folder = pathlib.Path(cls.work.name)
        cls.classifier = cls.made("classifier", config("LlamaForSequenceClassification", "llama", LABELS))
        cls.reward = cls.made("reward", config("Qwen3ForSequenceClassification", "qwen3", 1))

    @classmethod
    def made(cls, name, about):
        like = cls.folder / f"{name}.json"
        like.write_text(json.dumps(about), encoding="utf-8")
        done = pelton("synth", "--like", like, cls.folder / name)
        assert done.returncode == 0, done.stderr
        return cls.folder / name

    def tokens(self, server, text):
        """As the server reads a text: with what stands before one."""
        status, body = server.ask("POST", "/tokenize", {"prompt": text, "add_special_tokens": True})
        self.assertEqual(status, 200, body)
        return json.loads(body)["tokens"]

    def labels(self, model, tokens):
        file = self.folder / "tokens.json"
        file.write_text(json.dumps(tokens), encoding="utf-8")
        done = pelton("embed", model, "--labels", "--tokens", file, "--kernels", "reference")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_logits_are_the_formulas(self):
        for model, has_norm in ((self.classifier, False), (self.reward, True)):
            tensors = read_tensors(model)
            self.assertIn("score.weight", tensors)
            self.assertNotIn("lm_head.weight", tensors)
            for tokens in ([5], [7, 300, 12, 40], list(range(30, 60))):
                exact = logits_of(tensors, tokens, has_norm)
                got = self.labels(model, tokens)
                self.assertEqual(len(got), len(exact))
                for a, b in zip(got, exact):
                    self.assertAlmostEqual(a, b, delta=1e-4 * max(1, max(map(abs, exact))))

    def test_the_server_says_labels_and_no_text(self):
        server = chains_test.Server(self.folder, model=self.classifier)
        self.addCleanup(server.close)
        status, text = server.ask("POST", "/classify", {"input": TEXTS})
        self.assertEqual(status, 200, text)
        tensors = read_tensors(self.classifier)
        for row, words in zip(json.loads(text)["data"], TEXTS):
            logits = logits_of(tensors, self.tokens(server, words), False)
            weights = [math.exp(x - max(logits)) for x in logits]
            for probability, weight in zip(row["probs"], weights):
                self.assertAlmostEqual(probability, weight / sum(weights), delta=0.02)
            self.assertIn(row["label"], LABELS)
        status, text = server.ask("POST", "/v1/completions", {"prompt": "Hi", "max_tokens": 2})
        self.assertEqual(status, 400, text)
        self.assertIn("classification head", text)
        status, text = server.ask("POST", "/v1/embeddings", {"input": "Hi"})
        self.assertEqual(status, 200, text)

    def test_a_reward_is_one_label(self):
        server = chains_test.Server(self.folder, model=self.reward)
        self.addCleanup(server.close)
        status, text = server.ask("POST", "/classify", {"input": TEXTS[0]})
        self.assertEqual(status, 200, text)
        [logit] = logits_of(read_tensors(self.reward), self.tokens(server, TEXTS[0]), True)
        self.assertAlmostEqual(json.loads(text)["data"][0]["probs"][0], 1 / (1 + math.exp(-logit)), delta=0.02)

    def test_what_does_not_go_is_said(self):
        refused = pelton("serve", self.reward, "--rerank-by", "yes-no", "--port", "0")
        self.assertEqual(refused.returncode, 2, refused.stderr)
        self.assertIn("classification head", refused.stderr)
        refused = pelton("pack", self.classifier, self.folder / "packed")
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("classification head", refused.stderr)
        refused = pelton("generate", self.classifier, "--prompt", "Hi")
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("classification head", refused.stderr)


if __name__ == "__main__":
    BINARY = chains_test.BINARY = sys.argv.pop(1)
    unittest.main(verbosity=2)
