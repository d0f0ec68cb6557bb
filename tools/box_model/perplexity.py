#!/usr/bin/python3
"""What do MXFP4 experts cost? Perplexity of held-out answers with experts in MXFP4 and in bfloat16.

usage: perplexity.py TRAINED_FOLDER [--seed N] [--batches N]      TRAINED_FOLDER has model.pt and tokenizer.json
Exit code 1 if MXFP4 is more than 2 % worse.
"""
import argparse
import math
import os
import sys

import torch

import bpe
import checkpoint_io
from batches import Stream
from evaluate_settings import SEED
from model import Config, Model
from train import loss_on


def is_expert(name):
    return name.rsplit(".", 1)[-1] in checkpoint_io.MATRICES


def written_as_bfloat16(parameters):
    for parameter in parameters:
        parameter.copy_(parameter.bfloat16().float())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("trained")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--batches", type=int, default=10, help="of each kind, without and with tools")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    saved = torch.load(os.path.join(arguments.trained, "model.pt"))
    tokenizer = bpe.Tokenizer.load(os.path.join(arguments.trained, "tokenizer.json"))
    model = Model(Config(**saved["config"]))
    model.load_state_dict(saved["model"])
    written_as_bfloat16(p for name, p in model.named_parameters() if not is_expert(name))
    streams = [Stream(tokenizer, arguments.seed, "test", tools, 8, 400) for tools in (False, True)]
    batches = [stream.next() for stream in streams for _ in range(arguments.batches)]
    perplexities = []
    for name, quantized in (("MXFP4", True), ("bfloat16", False)):
        if not quantized:
            written_as_bfloat16(p for name, p in model.named_parameters() if is_expert(name))
        experts = model.experts(quantized, exact=True)
        parts = [loss_on(model, batch, experts, exact=True)[:2] for batch in batches]
        loss = sum(part[0].item() for part in parts) / sum(part[1] for part in parts)
        perplexities.append(math.exp(loss))
        print("experts in %-8s: loss %.5f, perplexity %.5f" % (name, loss, perplexities[-1]))
    change = perplexities[0] / perplexities[1] - 1
    print("MXFP4 against bfloat16: %+.2f %% of perplexity, %d answer tokens" % (100 * change, sum(p[1] for p in parts)))
    sys.exit(1 if change > 0.02 else 0)


if __name__ == "__main__":
    main()
