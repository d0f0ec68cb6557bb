#!/usr/bin/python3
"""Writes a model folder. usage: export.py TRAINED_FOLDER OUT   (model.pt, or state.pt of a run that goes on)"""
import os
import sys

import torch

import bpe
import checkpoint_io
from model import Config


def main():
    source, out = sys.argv[1:]
    path = os.path.join(source, "model.pt")
    trained = torch.load(path if os.path.exists(path) else os.path.join(source, "state.pt"))
    tokenizer = bpe.Tokenizer.load(os.path.join(source, "tokenizer.json"))
    checkpoint_io.save_folder(out, Config(**trained["config"]), trained["model"], tokenizer)
    print("%s: %d bytes of weights" % (out, os.path.getsize(os.path.join(out, "model.safetensors"))))


if __name__ == "__main__":
    main()
