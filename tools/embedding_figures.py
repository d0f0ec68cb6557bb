#!/usr/bin/env python3
"""Texts a second of an encoder of bge-small's shape (33 M parameters, random weights) at 16, 128 and 512 tokens: `pelton serve`, and beside it, by
turns, llama.cpp's embedding path as npm's node-llama-cpp has it, from a GGUF file of the same weights. Prints the median of the turns' ratios and
the least cosine between the two's vectors.

usage: embedding_figures.py BINARY [NODE_MODULES] [--turns 5] [--threads 2]
NODE_MODULES: a folder in which `npm install node-llama-cpp` has run; without it pelton's figures alone.
"""
import argparse
import array
import base64
import contextlib
import json
import math
import os
import pathlib
import random
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from ports import free_port  # pylint: disable=wrong-import-position

HIDDEN, INNER, LAYERS, HEADS, POSITIONS, VOCABULARY = 384, 1536, 12, 12, 512, 30522
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [f"w{i}" for i in range(VOCABULARY - len(SPECIAL))]
LENGTHS = {16: 64, 128: 16, 512: 8}  # tokens: texts a turn
EMBEDDED = "text-vector"  # the server's name for the model

PEER = """
import {getLlama} from "node-llama-cpp";
import readline from "node:readline";
const [file, threads] = process.argv.slice(2);
const llama = await getLlama({gpu: false, build: "never", maxThreads: Number(threads)});
const model = await llama.loadModel({modelPath: file});
const context = await model.createEmbeddingContext({contextSize: 576, batchSize: 576, threads: Number(threads)});
console.log("ready");
for await (const line of readline.createInterface({input: process.stdin})) {
  const texts = JSON.parse(line);
  const begun = process.hrtime.bigint();
  const vectors = [];
  for (const text of texts) vectors.push((await context.getEmbeddingFor(text)).vector);
  const seconds = Number(process.hrtime.bigint() - begun) / 1e9;
  console.log(JSON.stringify({seconds, vectors: [...vectors[0]]}));
}
process.exit(0);
"""


def tensors():
    """(name in Hugging Face's file, in a GGUF file, shape, whether it is a matrix), of all weights."""
    def linear(ours, theirs, rows, columns):
        yield f"{ours}.weight", f"{theirs}.weight", [rows, columns], True
        yield f"{ours}.bias", f"{theirs}.bias", [rows], False

    def norm(ours, theirs):
        yield f"{ours}.weight", f"{theirs}.weight", [HIDDEN], False
        yield f"{ours}.bias", f"{theirs}.bias", [HIDDEN], False
    yield "embeddings.word_embeddings.weight", "token_embd.weight", [VOCABULARY, HIDDEN], True
    yield "embeddings.position_embeddings.weight", "position_embd.weight", [POSITIONS, HIDDEN], False
    yield "embeddings.token_type_embeddings.weight", "token_types.weight", [2, HIDDEN], False
    yield from norm("embeddings.LayerNorm", "token_embd_norm")
    for layer in range(LAYERS):
        ours, theirs = f"encoder.layer.{layer}", f"blk.{layer}"
        for part, short in (("query", "q"), ("key", "k"), ("value", "v")):
            yield from linear(f"{ours}.attention.self.{part}", f"{theirs}.attn_{short}", HIDDEN, HIDDEN)
        yield from linear(f"{ours}.attention.output.dense", f"{theirs}.attn_output", HIDDEN, HIDDEN)
        yield from norm(f"{ours}.attention.output.LayerNorm", f"{theirs}.attn_output_norm")
        yield from linear(f"{ours}.intermediate.dense", f"{theirs}.ffn_up", INNER, HIDDEN)
        yield from linear(f"{ours}.output.dense", f"{theirs}.ffn_down", HIDDEN, INNER)
        yield from norm(f"{ours}.output.LayerNorm", f"{theirs}.layer_output_norm")


def weights():
    """(names, shape, is a matrix, bytes): matrices in float16, all else in float32."""
    draw = random.Random(1)
    drawn = [draw.gauss(0, 0.05) for _ in range(1 << 16)]
    halves = struct.pack(f"<{len(drawn)}e", *drawn)
    floats = array.array("f", drawn).tobytes()
    for ours, theirs, shape, is_matrix in tensors():
        size = math.prod(shape) * (2 if is_matrix else 4)
        if "orm.weight" in ours:
            yield ours, theirs, shape, is_matrix, array.array("f", [1.0] * shape[0]).tobytes()
            continue
        source = halves if is_matrix else floats
        shift = draw.randrange(1 << 12) * 4
        source = source[shift:] + source[:shift]
        yield ours, theirs, shape, is_matrix, (source * (size // len(source) + 1))[:size]


def write_model(folder):
    header, data = {}, []
    at = 0
    for ours, _, shape, is_matrix, values in weights():
        header[ours] = {"dtype": "F16" if is_matrix else "F32", "shape": shape, "data_offsets": [at, at + len(values)]}
        at += len(values)
        data.append(values)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data))
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["BertModel"], "model_type": "bert", "hidden_size": HIDDEN, "intermediate_size": INNER,
        "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "max_position_embeddings": POSITIONS, "type_vocab_size": 2,
        "vocab_size": VOCABULARY, "layer_norm_eps": 1e-12, "hidden_act": "gelu", "pad_token_id": 0,
        "position_embedding_type": "absolute"}))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(
        {"word_embedding_dimension": HIDDEN, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}))
    kinds = (("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize"))
    (folder / "modules.json").write_text(json.dumps([{"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
                                                     for i, (path, kind) in enumerate(kinds)]))
    added = [{"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
             for i, text in enumerate(SPECIAL)]
    single = [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "[SEP]", "type_id": 0}}]
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "TemplateProcessing", "single": single, "pair": single,
                           "special_tokens": {name: {"id": name, "ids": [i], "tokens": [name]} for name, i in (("[CLS]", 2), ("[SEP]", 3))}},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
                  "vocab": {word: i for i, word in enumerate([*SPECIAL, *WORDS])}}}))


def write_gguf(path):
    """The same weights in GGUF 3, as the format's page describes it."""
    def text(value):
        value = value.encode()
        return struct.pack("<Q", len(value)) + value

    def entry(key, value):
        if isinstance(value, bool):
            return text(key) + struct.pack("<I?", 7, value)
        if isinstance(value, int):
            return text(key) + struct.pack("<II", 4, value)
        if isinstance(value, float):
            return text(key) + struct.pack("<If", 6, value)
        if isinstance(value, str):
            return text(key) + struct.pack("<I", 8) + text(value)
        kind = 8 if isinstance(value[0], str) else 5
        head = text(key) + struct.pack("<IIQ", 9, kind, len(value))
        return head + b"".join(text(one) if kind == 8 else struct.pack("<i", one) for one in value)
    entries = {
        "general.architecture": "bert", "general.name": "bge-small's shape", "general.alignment": 32, "bert.block_count": LAYERS,
        "bert.context_length": POSITIONS, "bert.embedding_length": HIDDEN, "bert.feed_forward_length": INNER,
        "bert.attention.head_count": HEADS, "bert.attention.layer_norm_epsilon": 1e-12, "bert.attention.causal": False,
        "bert.pooling_type": 2, "tokenizer.ggml.model": "bert", "tokenizer.ggml.token_type_count": 2,
        "tokenizer.ggml.tokens": SPECIAL + ["\u2581" + word for word in WORDS],
        "tokenizer.ggml.token_type": [3] * len(SPECIAL) + [1] * len(WORDS), "tokenizer.ggml.padding_token_id": 0,
        "tokenizer.ggml.unknown_token_id": 1, "tokenizer.ggml.cls_token_id": 2, "tokenizer.ggml.bos_token_id": 2, "tokenizer.ggml.eos_token_id": 3,
        "tokenizer.ggml.seperator_token_id": 3, "tokenizer.ggml.mask_token_id": 4}
    every = list(weights())
    head = b"GGUF" + struct.pack("<IQQ", 3, len(every), len(entries)) + b"".join(entry(*one) for one in entries.items())
    at = 0
    for _, theirs, shape, is_matrix, values in every:
        head += text(theirs) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), 1 if is_matrix else 0, at)
        at += (len(values) + 31) // 32 * 32
    with open(path, "wb") as file:
        file.write(head + b"\0" * (-len(head) % 32))
        for *_, values in every:
            file.write(values + b"\0" * (-len(values) % 32))


class Ours:
    def __init__(self, binary, folder, threads):
        self.url = f"http://127.0.0.1:{free_port()}"
        self.process = subprocess.Popen([binary, "serve", folder, "--served-model-name", EMBEDDED, "--threads", str(threads), "--port", self.url.rsplit(":", 1)[1]],
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.process.stdout.readline()

    def embed(self, texts):
        body = json.dumps({"model": EMBEDDED, "input": texts, "encoding_format": "base64"}).encode()
        request = urllib.request.Request(self.url + "/v1/embeddings", body, {"Content-Type": "application/json"})
        begun = time.monotonic()
        with urllib.request.urlopen(request, timeout=600) as answer:
            got = answer.read()
        taken = time.monotonic() - begun
        return taken, array.array("f", base64.b64decode(json.loads(got)["data"][0]["embedding"]))

    def end(self):
        self.process.terminate()
        self.process.wait(30)


class Peer:
    def __init__(self, modules, file, threads):
        script = pathlib.Path(modules) / "pelton_peer.mjs"
        script.write_text(PEER)
        self.process = subprocess.Popen(["node", script, file, str(threads)], cwd=modules, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True, env={**os.environ, "NODE_LLAMA_CPP_SKIP_DOWNLOAD": "true"})
        while (line := self.process.stdout.readline()).strip() != "ready":
            if not line:
                raise SystemExit("node-llama-cpp ended")

    def embed(self, texts):
        self.process.stdin.write(json.dumps(texts) + "\n")
        self.process.stdin.flush()
        while not (line := self.process.stdout.readline()).startswith("{"):
            if not line:
                raise SystemExit("node-llama-cpp ended")
        got = json.loads(line)
        return got["seconds"], got["vectors"]

    def end(self):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait(30)


def cosine(one, other):
    return sum(a * b for a, b in zip(one, other)) / math.sqrt(sum(a * a for a in one) * sum(b * b for b in other))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("modules", nargs="?")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    asked = parser.parse_args()
    draw = random.Random(3)
    with tempfile.TemporaryDirectory(prefix="pelton_vectors_") as place:
        folder = pathlib.Path(place) / "model"
        folder.mkdir()
        write_model(folder)
        contenders = [Ours(asked.binary, folder, asked.threads)]
        if asked.modules:
            write_gguf(pathlib.Path(place) / "model.gguf")
            contenders.append(Peer(asked.modules, pathlib.Path(place) / "model.gguf", asked.threads))
        try:
            for tokens, count in LENGTHS.items():
                rates = [[] for _ in contenders]
                least = 1.0
                for _ in range(asked.turns + 1):  # the first warms up
                    texts = [" ".join(draw.choice(WORDS) for _ in range(tokens - 2)) for _ in range(count)]
                    vectors = []
                    for rate, contender in zip(rates, contenders):
                        seconds, vector = contender.embed(texts)
                        rate.append(count / seconds)
                        vectors.append(vector)
                    if len(vectors) == 2:
                        least = min(least, cosine(*vectors))
                rates = [rate[1:] for rate in rates]
                line = f"{tokens} tokens: {statistics.median(rates[0]):.1f} texts/s"
                if len(rates) == 2:
                    ratio = statistics.median(ours / theirs for ours, theirs in zip(*rates))
                    line += f", node-llama-cpp {statistics.median(rates[1]):.1f}; ratio {ratio:.2f}; least cosine {least:.6f}"
                print(line, flush=True)
        finally:
            for contender in contenders:
                contender.end()


if __name__ == "__main__":
    main()
