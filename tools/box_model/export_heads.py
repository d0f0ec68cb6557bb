#!/usr/bin/python3
"""Writes the trained heads as folders OUT/eagle3 and OUT/medusa. usage: export_heads.py MODEL HEADS OUT"""
import os
import sys

import torch

import checkpoint_io
from heads import Eagle, Medusa


def main():
    folder, heads, out = sys.argv[1:]
    config = checkpoint_io.load_folder(folder).c
    eagle, medusa = torch.load(os.path.join(heads, "eagle3.pt")), torch.load(os.path.join(heads, "medusa.pt"))
    for name, head, state in (("eagle3", Eagle(config, eagle["draft_ids"]), eagle["state"]),
                              ("medusa", Medusa(config), medusa["state"])):
        head.load_state_dict(state)
        os.makedirs(os.path.join(out, name), exist_ok=True)
        checkpoint_io.write_json(os.path.join(out, name, "config.json"), head.config_json())
        path = os.path.join(out, name, "model.safetensors")
        checkpoint_io.write_safetensors(path, head.tensors())
        print("%s: %d bytes" % (path, os.path.getsize(path)))


if __name__ == "__main__":
    main()
