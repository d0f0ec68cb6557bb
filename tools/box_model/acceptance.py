#!/usr/bin/python3
"""Offline acceptance of the drafters: how many tokens a step yields with 3 drafted ones, greedily, by task.

usage: acceptance.py --model FOLDER --answers FILE [--draft FOLDER] [--heads FOLDER] [--count N]
--answers is what `collect_answers --json` wrote for that model: what it really said. A step yields the model's
own next token and those drafted ones behind it that the model would have said too: 1 to 4.
"""
import argparse
import collections
import json
import os

import torch
import torch.nn.functional as F

import bpe
import checkpoint_io
import corpus
import harmony
from evaluate_settings import DATE
from heads import DRAFTED, TAPS, Eagle, Medusa
from model import masks_of, rms


def sampled_pieces(answer):
    rendering = harmony.Rendering()
    harmony.add_assistant(rendering, answer, True)
    return rendering.pieces[2:]


def one(ids):
    length = len(ids)
    return torch.tensor([ids]), torch.ones(1, length, dtype=torch.long), torch.arange(length).unsqueeze(0)


def medusa_guesses(medusa, model, x):
    state = rms(x, model.norm, model.c.epsilon, False)[0]
    return torch.stack([F.linear(y, model.head.bfloat16()).float().argmax(-1) for y in medusa.states(state)], 1)


def eagle_guesses(eagle, model, ids, segments, positions, taps):
    mask = masks_of(segments, positions, 1 << 30)[0].bfloat16()
    feature, cache, out = eagle.fused(taps), [], []
    tokens = torch.cat((ids[:, 1:], ids[:, -1:]), 1)  # t+1
    for j in range(DRAFTED):
        feature, cache = eagle.step(F.embedding(tokens, model.embedding), feature, positions + j, mask, cache)
        tokens = eagle.draft_ids[eagle.logits(feature).float().argmax(-1)]
        out.append(tokens[0])
    return torch.stack(out, 1)


def draft_guesses(draft, ids, first):
    """For t = first ..: each row is the sequence up to t+1, then the guesses so far."""
    ends = list(range(first + 2, len(ids) + 1))
    rows = [list(ids[:end]) for end in ends]
    out = []
    for _ in range(DRAFTED):
        width = max(map(len, rows))
        tokens = torch.tensor([r + [0] * (width - len(r)) for r in rows])
        segments = torch.tensor([[1] * len(r) + [-1] * (width - len(r)) for r in rows])
        positions = torch.arange(width).expand(len(rows), width)
        x, _, _ = draft.hidden_states(tokens, segments, positions)
        last = x[torch.arange(len(rows)), torch.tensor([len(r) - 1 for r in rows])]
        guesses = draft.logits(last).float().argmax(-1)
        rows = [r + [g] for r, g in zip(rows, guesses.tolist())]
        out.append(guesses)
    return torch.cat((torch.zeros(first, DRAFTED, dtype=torch.long), torch.stack(out, 1)))


def tokens_per_step(guesses, ids, first):
    """t begins at the last prompt token. Returns (tokens yielded, steps)."""
    t, last, steps = first, len(ids) - 1, 0
    while t < last:
        accepted = 0
        while accepted < DRAFTED and t + 2 + accepted <= last and int(guesses[t][accepted]) == ids[t + 2 + accepted]:
            accepted += 1
        t += 1 + accepted
        steps += 1
    return last - first, steps


def load_heads(arguments, model):
    eagle = torch.load(os.path.join(arguments.heads, "eagle3.pt"))
    medusa = torch.load(os.path.join(arguments.heads, "medusa.pt"))
    heads = Eagle(model.c, eagle["draft_ids"]), Medusa(model.c)
    for head, saved in zip(heads, (eagle, medusa)):
        head.load_state_dict(saved["state"])
    return heads


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--answers", required=True)
    parser.add_argument("--draft")
    parser.add_argument("--heads")
    parser.add_argument("--count", type=int, default=200)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    tokenizer, model = bpe.Tokenizer.load(os.path.join(arguments.model, "tokenizer.json")), checkpoint_io.load_folder(arguments.model)
    draft = checkpoint_io.load_folder(arguments.draft) if arguments.draft else None
    heads = load_heads(arguments, model) if arguments.heads else None
    with open(arguments.answers) as file:
        answers = json.load(file)[:arguments.count]
    sums = collections.defaultdict(lambda: [0, 0])
    for answer in answers:
        conversation = {**corpus.conversation_at(answer["seed"], "test", answer["index"]), "date": DATE}
        prompt = tokenizer.encode_pieces(harmony.render_prompt(conversation))
        ids = prompt + tokenizer.encode_pieces(sampled_pieces(answer))
        if len(ids) < len(prompt) + 2:
            continue
        tokens, segments, positions = one(ids)
        first, guesses = len(prompt) - 1, {}
        if heads:
            x, _, taps = model.hidden_states(tokens, segments, positions, taps=TAPS)
            guesses["eagle3"] = eagle_guesses(heads[0], model, tokens, segments, positions, taps)
            guesses["medusa"] = medusa_guesses(heads[1], model, x)
        if draft:
            guesses["draft"] = draft_guesses(draft, ids, first)
        for name, g in guesses.items():
            for task in (conversation["task"], "all"):
                yielded, steps = tokens_per_step(g, ids, first)
                sums[name, task][0] += yielded
                sums[name, task][1] += steps
    names = sorted({n for n, _ in sums})
    print("%-12s" % "task", " ".join("%8s" % n for n in names))
    for task in sorted({t for _, t in sums}):
        print("%-12s" % task, " ".join("%8.2f" % (sums[n, task][0] / sums[n, task][1]) for n in names))


if __name__ == "__main__":
    main()
