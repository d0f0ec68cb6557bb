#!/usr/bin/env python3
"""Writes a small Whisper model into a folder: testdata/golden's, of random weights, whose first 256 tokens are the bytes,
with a tokenizer that says so. For tests.

usage: whisper_model.py FOLDER
"""
import json
import pathlib
import shutil
import sys

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "testdata" / "golden" / "audio" / "whisper"


def byte_characters():
    """Of each byte, the character that stands for it in a byte-level vocabulary (GPT-2's)."""
    plain = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {**{byte: chr(byte) for byte in plain}, **{byte: chr(256 + i) for i, byte in enumerate(others)}}


def write_model(folder, alignment_heads=None):
    """The golden model, whose first 256 tokens are the bytes, with a tokenizer that says so."""
    folder.mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copyfile(GOLDEN / name, folder / name)
    generation = json.loads((GOLDEN / "generation_config.json").read_text())
    if alignment_heads:
        generation["alignment_heads"] = alignment_heads
    (folder / "generation_config.json").write_text(json.dumps(generation))
    ids = {character: byte for byte, character in byte_characters().items()}
    end = generation["eos_token_id"]
    special = {"id": end, "content": "<|endoftext|>", "single_word": False, "lstrip": False, "rstrip": False,
               "normalized": False, "special": True}
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [special], "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None, "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "",
                  "end_of_word_suffix": "", "fuse_unk": False, "byte_fallback": False, "vocab": ids, "merges": []}}))
    return folder


if __name__ == "__main__":
    write_model(pathlib.Path(sys.argv[1]))
