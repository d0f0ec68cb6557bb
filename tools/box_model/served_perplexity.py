#!/usr/bin/python3
"""Perplexity of held-out answers as `pelton serve` computes it: what a packed format or a key-value cache costs.

usage: served_perplexity.py [--pelton BINARY] [--count N] [--seed N] [--kernels K] [--flags FLAGS] [--limit PERCENT]
                            MODEL_FOLDER...

Each model is served in turn and given the same conversations whole, answers included; only the tokens that an answer
consists of count. The first model is what the others are compared with: exit code 1 if one is worse by more than
the limit.
"""
import argparse
import concurrent.futures
import itertools
import json
import math
import os
import shlex
import subprocess
import sys
import urllib.request

import bpe
import corpus
import harmony
from evaluate_settings import DATE, SEED


MODEL = "held-out"


def held_out(tokenizer, seed, count):
    """(tokens, which of them an answer consists of) of each conversation."""
    found = []
    for conversation in itertools.islice((corpus.conversation_at(seed, "test", i) for i in itertools.count()), count):
        tokens, marks = [], []
        for rendering in (harmony.render_prefix(conversation), harmony.render_rest(conversation)):
            for piece, mark in zip(rendering.pieces, rendering.trained):
                new = tokenizer.encode_pieces([piece])
                tokens += new
                marks += [mark] * len(new)
        found.append((tokens, marks))
    return found


def losses(url, tokens, marks):
    body = {"model": MODEL, "prompt": tokens, "max_tokens": 1, "prompt_logprobs": 0}
    request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as response:
        scored = json.load(response)["choices"][0]["prompt_logprobs"]
    return [-scored[i][str(token)]["logprob"] for i, (token, mark) in enumerate(zip(tokens, marks)) if mark and i > 0]


def loss_of(arguments, model, conversations):
    command = [arguments.pelton, "serve", model, "--served-model-name", MODEL, "--allow-control-tokens", "--port", "0", "--threads", "1", "--kernels", arguments.kernels,
               "--current-date", DATE] + shlex.split(arguments.flags)
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        line = server.stdout.readline()
        if not line.startswith("listening on "):
            raise SystemExit("the server did not start: " + line)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            parts = list(pool.map(lambda c: losses(line.split()[2], *c), conversations))
    finally:
        server.terminate()
        server.wait()
    all_losses = [loss for part in parts for loss in part]
    return sum(all_losses) / len(all_losses), len(all_losses)


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser()
    parser.add_argument("--pelton", default=os.path.join(here, "../../build/release/pelton"))
    parser.add_argument("--count", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--kernels", default="auto")
    parser.add_argument("--flags", default="", help="more flags for pelton serve")
    parser.add_argument("--limit", type=float, default=0.5, help="of perplexity, in per cent")
    parser.add_argument("models", nargs="+", metavar="MODEL_FOLDER")
    arguments = parser.parse_args()
    tokenizer = bpe.Tokenizer.load(os.path.join(arguments.models[0], "tokenizer.json"))
    conversations = held_out(tokenizer, arguments.seed, arguments.count)
    first = None
    worst = 0.0
    for model in arguments.models:
        loss, count = loss_of(arguments, model, conversations)
        first = loss if first is None else first
        change = 100 * (math.exp(loss - first) - 1)
        worst = max(worst, change)
        print("%-30s loss %.6f, perplexity %.5f (%+.3f %%), %d answer tokens" % (model, loss, math.exp(loss), change, count),
              flush=True)
    sys.exit(1 if worst > arguments.limit else 0)


if __name__ == "__main__":
    main()
