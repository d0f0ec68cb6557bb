#!/usr/bin/env python3
"""Writes a small model that speaks: a Llama of random weights whose vocabulary is single bytes and Orpheus' tokens for
books of 64 codes (as those of testdata/golden/audio/snac), and that hardly ever says it is at an end. For tests.

usage: speech_model.py FOLDER
"""
import array
import json
import math
import pathlib
import random
import struct
import sys

BOOK = 64
BEGIN_OF_TEXT, END_OF_TEXT, BASE = 256, 257, 258
VOCABULARY = BASE + 10 + 7 * BOOK
STOPS = (END_OF_TEXT, BASE + 2)
HIDDEN, INNER, LAYERS, HEADS, KV_HEADS = 64, 128, 2, 4, 2


def byte_letters():
    """How a byte-level vocabulary writes the 256 bytes (GPT-2's encoder)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters, extra = {byte: chr(byte) for byte in plain}, 0
    for byte in range(256):
        if byte not in letters:
            letters[byte] = chr(256 + extra)
            extra += 1
    return [letters[byte] for byte in range(256)]


def tokenizer():
    def added(number, text):
        return {"id": number, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                "special": True}
    special = [added(BEGIN_OF_TEXT, "<|begin_of_text|>"), added(END_OF_TEXT, "<|eot_id|>"),
               *(added(BASE + i, f"<custom_token_{i}>") for i in range(10 + 7 * BOOK))]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
            "post_processor": None, "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      "vocab": {letter: i for i, letter in enumerate(byte_letters())}, "merges": []}}


def write(folder, seed=1):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True)
    draw, tensors = random.Random(seed), {}

    def normal(name, *shape, deviation):
        tensors[name] = (list(shape), [draw.gauss(0, deviation) for _ in range(math.prod(shape))])

    normal("model.embed_tokens.weight", VOCABULARY, HIDDEN, deviation=1)
    head = HIDDEN // HEADS
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        for part, rows in (("q", HEADS * head), ("k", KV_HEADS * head), ("v", KV_HEADS * head)):
            normal(f"{at}self_attn.{part}_proj.weight", rows, HIDDEN, deviation=0.2)
        normal(f"{at}self_attn.o_proj.weight", HIDDEN, HEADS * head, deviation=0.2)
        for part in ("gate", "up"):
            normal(f"{at}mlp.{part}_proj.weight", INNER, HIDDEN, deviation=0.2)
        normal(f"{at}mlp.down_proj.weight", HIDDEN, INNER, deviation=0.2)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{at}{norm}.weight"] = ([HIDDEN], [1.0] * HIDDEN)
    tensors["model.norm.weight"] = ([HIDDEN], [1.0] * HIDDEN)
    # Logits of a deviation of 4; a stop token's is 0, and top_p leaves it out.
    normal("lm_head.weight", VOCABULARY, HIDDEN, deviation=0.5)
    values = tensors["lm_head.weight"][1]
    for stop in STOPS:
        values[stop * HIDDEN:(stop + 1) * HIDDEN] = [0.0] * HIDDEN
    header, data = {}, b""
    for name, (shape, numbers) in tensors.items():
        raw = array.array("f", numbers).tobytes()
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": INNER,
        "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": head,
        "vocab_size": VOCABULARY, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
        "tie_word_embeddings": False, "torch_dtype": "float32", "hidden_act": "silu", "attention_bias": False, "mlp_bias": False,
        "bos_token_id": BEGIN_OF_TEXT, "eos_token_id": END_OF_TEXT}))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer()))


if __name__ == "__main__":
    write(sys.argv[1])
