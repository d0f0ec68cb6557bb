#!/usr/bin/python3
"""Trains the adapter for queries in JSON on a finished model folder and writes it in PEFT's layout.

usage: train_adapter.py --model FOLDER --out FOLDER [--steps N]     writes OUT/adapter_{config.json,model.safetensors}
"""
import argparse
import os
import sys
import time

import torch

import bpe
import checkpoint_io
import query_tasks
from adapter import Adapter
from batches import Stream
from train import loss_on, rate_at, wait_while_paused


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--rate", type=float, default=0.004)
    parser.add_argument("--seed", type=int, default=21)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    os.nice(10)
    torch.manual_seed(arguments.seed)
    tokenizer = bpe.Tokenizer.load(os.path.join(arguments.model, "tokenizer.json"))
    model = checkpoint_io.load_folder(arguments.model)
    model.requires_grad_(False)
    adapter = Adapter(model, arguments.rank, 2 * arguments.rank)
    adam = torch.optim.AdamW(adapter.parameters(), lr=0.0, betas=(0.9, 0.98), weight_decay=0.0)
    stream = lambda tools, rows: Stream(tokenizer, arguments.seed, "train", tools, rows, 320 if not tools else 400,
                                        source=query_tasks.conversation_at)
    plain, tools = stream(False, 6), stream(True, 3)
    start, mean = time.time(), None
    for step in range(arguments.steps):
        wait_while_paused()
        batch = (tools if step % 5 == 4 else plain).next()
        adapter.put_on(model)
        loss, count, balance, right = loss_on(model, batch, model.experts(quantized=False))
        (loss / count + 0.01 * balance).backward()
        for group in adam.param_groups:
            group["lr"] = arguments.rate * rate_at(step, arguments.steps)
        adam.step()
        adapter.zero_grad(set_to_none=True)
        mean = loss.item() / count if mean is None else 0.98 * mean + 0.02 * loss.item() / count
        if step % 20 == 18:  # one without tools
            print("step %d: loss %.4f, right %.4f of the last, %.0f s" % (step + 1, mean, right.item() / count, time.time() - start),
                  flush=True)
    adapter.save(arguments.out, "pelton-box")
    print("%s: %d bytes" % (arguments.out, os.path.getsize(os.path.join(arguments.out, "adapter_model.safetensors"))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
