#!/usr/bin/env python3
"""How fast a Whisper model of small's shape turns sound into text on this machine: a checkpoint of random weights is written, `pelton transcribe`
hears noise of some minutes, and the real-time factor is printed (seconds for each second of sound). Random weights say what they like
until a window's 224 tokens are full, which is more than people say in 30 s: about 100 tokens.

usage: whisper_figures.py BINARY [--seconds 120] [--runs 3] [--hidden 768 --layers 12 --heads 12] [--keep FOLDER]
"""
import argparse
import array
import json
import pathlib
import random
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import wave

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from whisper_model import GOLDEN, write_model  # pylint: disable=wrong-import-position

VOCABULARY = 51865


def shapes(asked):
    """Of each tensor, by the golden model's names."""
    with open(GOLDEN / "model.safetensors", "rb") as file:
        golden = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    golden.pop("__metadata__", None)
    small = json.loads((GOLDEN / "config.json").read_text())
    sizes = {small["d_model"]: asked.hidden, small["encoder_ffn_dim"]: 4 * asked.hidden, small["vocab_size"]: VOCABULARY}
    for name, tensor in golden.items():
        shape = [sizes.get(size, size) for size in tensor["shape"]]
        if ".layers." not in name:
            yield name, tensor["dtype"], shape
        elif ".layers.0." in name:
            for layer in range(asked.layers):
                yield name.replace(".layers.0.", f".layers.{layer}."), tensor["dtype"], shape


def write_shape(folder, asked):
    write_model(folder)
    config = json.loads((folder / "config.json").read_text())
    config.update(d_model=asked.hidden, vocab_size=VOCABULARY, num_hidden_layers=asked.layers)
    for stack in ("encoder", "decoder"):
        config.update({f"{stack}_layers": asked.layers, f"{stack}_attention_heads": asked.heads, f"{stack}_ffn_dim": 4 * asked.hidden})
    (folder / "config.json").write_text(json.dumps(config))
    draw = random.Random(1)
    normal = array.array("f", (draw.gauss(0, 0.02) for _ in range(1 << 16)))
    halves = array.array("H", (bits >> 16 for bits in struct.unpack(f"<{len(normal)}I", normal.tobytes()))).tobytes()
    one = struct.pack("<H", 0x3F80)
    header, at = {}, 0
    tensors = list(shapes(asked))
    for name, dtype, shape in tensors:
        size = (4 if dtype == "F32" else 2)
        for rows in shape:
            size *= rows
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, dtype, shape in tensors:
            begin, end = header[name]["data_offsets"]
            if "layer_norm.weight" in name:
                file.write(one * ((end - begin) // 2))
                continue
            source = normal.tobytes() if dtype == "F32" else halves
            shift = draw.randrange(1 << 12) * 8
            source = source[shift:] + source[:shift]
            file.write((source * ((end - begin) // len(source) + 1))[:end - begin])


def write_noise(path, seconds):
    draw = random.Random(2)
    second = array.array("h", (max(-32000, min(32000, int(draw.gauss(0, 3000)))) for _ in range(16000))).tobytes()
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        file.writeframes(second * seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--keep", type=pathlib.Path, help="a folder for the model, which stays")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pelton_whisper_") as place:
        model = asked.keep or pathlib.Path(place) / "model"
        write_shape(model, asked)
        sound = pathlib.Path(place) / "noise.wav"

        def seconds_of(*words):
            taken = []
            for _ in range(asked.runs):
                begun = time.monotonic()
                subprocess.run([asked.binary, "transcribe", model, sound, *words], check=True, stdout=subprocess.DEVNULL, timeout=1800)
                taken.append(time.monotonic() - begun)
            return statistics.median(taken)

        write_noise(sound, 30)
        # One decoding of a window: at temperature 0 what is doubtful would be decoded up to six times.
        decoding = ("--language", "l0", "--temperature", "1")
        start = seconds_of("--mel-out", pathlib.Path(place) / "mel.npy")
        encoder = seconds_of("--encoder-out", pathlib.Path(place) / "states.npy") - start
        few = seconds_of(*decoding)
        write_noise(sound, asked.seconds)
        many = seconds_of(*decoding)
        products = 1500 * asked.layers * (24 * asked.hidden ** 2 + 4 * 1500 * asked.hidden)
        print(f"start and spectrogram {start:.2f} s; encoder {encoder:.2f} s a window, {products / encoder / 1e9:.0f} GFLOP/s")
        print(f"30 s of sound {few:.2f} s, {asked.seconds} s {many:.2f} s")
        print(f"real-time factor {(many - few) / (asked.seconds - 30):.3f}")


if __name__ == "__main__":
    main()
