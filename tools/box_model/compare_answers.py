#!/usr/bin/python3
"""Where two sets of greedy answers part, how sure was the model? usage: compare_answers.py MODEL A.json B.json

A and B are written by `collect_answers --json`, with different kernels. Prints the gap between the two best logits
at each first different token, and the closest choice of an expert up to there (the difference of the router's logits
of the last one taken and the first one left): where that is next to nothing, rounding alone sends a token to another
expert, and what follows may differ by any amount. Exit code 1 if a gap is 0.2 or more without such a choice.
"""
import json
import os
import sys

import torch

import bpe
import checkpoint_io
import corpus
import harmony
from acceptance import one, sampled_pieces
from evaluate_settings import DATE

ROUTER_TIE = 1e-3  # float16 keys and values alone move router logits by more


def main():
    folder, first_file, second_file = sys.argv[1:]
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    tokenizer, model = bpe.Tokenizer.load(os.path.join(folder, "tokenizer.json")), checkpoint_io.load_folder(folder)
    with open(first_file) as file:
        first = json.load(file)
    with open(second_file) as file:
        second = json.load(file)
    gaps, closest, unexplained = [], [], 0
    for a, b in zip(first, second):
        x, y = (tokenizer.encode_pieces(sampled_pieces(answer)) for answer in (a, b))
        if x == y:
            continue
        same = next((k for k, (p, q) in enumerate(zip(x, y)) if p != q), min(len(x), len(y)))
        conversation = {**corpus.conversation_at(a["seed"], "test", a["index"]), "date": DATE}
        tokens, segments, positions = one(tokenizer.encode_pieces(harmony.render_prompt(conversation)) + x[:same])
        choices = model.record_closest_choices()
        states, _, _ = model.hidden_states(tokens, segments, positions, exact=True)
        best = model.logits(states[0, -1:], exact=True)[0].topk(2).values
        gaps.append((best[0] - best[1]).item())
        closest.append(min(choices))
        unexplained += gaps[-1] >= 0.2 and closest[-1] >= ROUTER_TIE
    print("%d of %d answers differ; gaps where they part, closest choice of an expert before: %s" % (
        len(gaps), len(first), ", ".join("%.3f %.1e" % pair for pair in sorted(zip(gaps, closest))) or "none"))
    sys.exit(1 if unexplained else 0)


if __name__ == "__main__":
    main()
