#!/usr/bin/python3
"""Trains the EAGLE-3 and Medusa heads against a finished model folder, both in one run.

usage: train_heads.py --model FOLDER --out FOLDER [--steps N]     writes OUT/eagle3.pt and OUT/medusa.pt
"""
import argparse
import collections
import os
import time

import torch
import torch.nn.functional as F

import bpe
import checkpoint_io
import optimizers
from batches import Stream
from heads import DRAFTED, TAPS, Eagle, Medusa
from model import masks_of, rms
from train import rate_at, wait_while_paused

DRAFT_VOCABULARY = 2048


def frequent_ids(stream, config):
    """The tokens that the assistant says most, and all control tokens; ascending."""
    counts = collections.Counter()
    for _ in range(60):
        batch = stream.next()
        counts.update(batch["ids"][:, 1:][batch["targets"][:, :-1]].tolist())
    chosen = set(range(config.vocab_size - 21, config.vocab_size))
    for token, _ in counts.most_common():
        if len(chosen) < DRAFT_VOCABULARY:
            chosen.add(token)
    rest = (i for i in range(config.vocab_size) if i not in chosen)
    while len(chosen) < DRAFT_VOCABULARY:
        chosen.add(next(rest))
    return torch.tensor(sorted(chosen))


def shifted(x, by):
    """x[t + by], zero at the end."""
    return torch.cat((x[:, by:], torch.zeros_like(x[:, :by])), 1) if by else x


def eagle_loss(eagle, model, batch, taps, to_draft):
    """At t the feature of t and token t+1 are known; draft step j guesses token t+2+j."""
    segments, ids = batch["segments"], batch["ids"]
    mask = masks_of(segments, batch["positions"], 1 << 30)[0].bfloat16()
    feature, cache, loss, right, count = eagle.fused(taps), [], 0.0, [], 0
    for j in range(DRAFTED):
        embedded = F.embedding(shifted(ids, 1 + j), model.embedding)
        feature, cache = eagle.step(embedded, feature, batch["positions"] + j, mask, cache)
        # Token t+1 was sampled by the model, and so was t+2+j.
        wanted = shifted(batch["targets"], 1 + j) & batch["targets"] & (shifted(segments, 2 + j) == segments)
        answers = to_draft[shifted(ids, 2 + j)[wanted]]
        logits = eagle.logits(feature[wanted]).float()
        known = answers >= 0
        loss = loss + 0.8 ** j * F.cross_entropy(logits[known], answers[known])
        right.append((logits.argmax(-1) == answers).float().mean().item())
    return loss, right


def medusa_loss(medusa, model, batch, x):
    state, loss, right = rms(x, model.norm, model.c.epsilon, False), 0.0, []
    ids, targets, segments = batch["ids"], batch["targets"], batch["segments"]
    wanted = targets & (shifted(segments, 1 + DRAFTED) == segments)
    for j, y in enumerate(medusa.states(state[wanted])):
        logits = F.linear(y, model.head.bfloat16()).float()
        answers = shifted(ids, 2 + j)[wanted]
        loss = loss + 0.8 ** j * F.cross_entropy(logits, answers)
        right.append((logits.argmax(-1) == answers).float().mean().item())
    return loss, right


class Learner:
    def __init__(self, module):
        self.module = module
        muon, rest = [], []
        for p in module.parameters():
            (muon if p.dim() == 2 and p.shape[0] < 1000 else rest).append(p)
        self.muon = optimizers.Muon(muon)
        self.adam = torch.optim.AdamW(rest, lr=0.0, betas=(0.9, 0.98), weight_decay=0.0)

    def step(self, loss, rate):
        loss.backward()
        self.muon.step(0.015 * rate)
        for group in self.adam.param_groups:
            group["lr"] = 0.003 * rate
        self.adam.step()
        self.module.zero_grad(set_to_none=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--seed", type=int, default=11)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    os.nice(15)
    torch.manual_seed(arguments.seed)
    os.makedirs(arguments.out, exist_ok=True)
    tokenizer = bpe.Tokenizer.load(os.path.join(arguments.model, "tokenizer.json"))
    model = checkpoint_io.load_folder(arguments.model)
    for p in model.parameters():
        p.requires_grad_(False)
    streams = [Stream(tokenizer, arguments.seed, "train", False, 10, 320),
               Stream(tokenizer, arguments.seed, "train", True, 8, 400)]
    draft_ids = frequent_ids(streams[0], model.c)
    to_draft = torch.full((model.c.vocab_size,), -1)
    to_draft[draft_ids] = torch.arange(len(draft_ids))
    eagle, medusa = Learner(Eagle(model.c, draft_ids)), Learner(Medusa(model.c))
    log = open(os.path.join(arguments.out, "heads_log.txt"), "a", buffering=1)
    start = time.time()
    for step in range(arguments.steps):
        wait_while_paused()
        batch = streams[step % 2].next()
        with torch.no_grad():
            x, _, taps = model.hidden_states(batch["ids"], batch["segments"], batch["positions"], taps=TAPS)
        rate = rate_at(step, arguments.steps)
        loss, eagle_right = eagle_loss(eagle.module, model, batch, taps, to_draft)
        eagle.step(loss, rate)
        loss, medusa_right = medusa_loss(medusa.module, model, batch, x)
        medusa.step(loss, rate)
        if step % 10 == 0 or step + 1 == arguments.steps:
            log.write("step %d: eagle right %s, medusa right %s, %.0f s\n" % (
                step, " ".join("%.3f" % r for r in eagle_right), " ".join("%.3f" % r for r in medusa_right),
                time.time() - start))
        if step % 100 == 99 or step + 1 == arguments.steps:
            torch.save({"state": eagle.module.state_dict(), "draft_ids": draft_ids}, os.path.join(arguments.out, "eagle3.pt"))
            torch.save({"state": medusa.module.state_dict()}, os.path.join(arguments.out, "medusa.pt"))


if __name__ == "__main__":
    main()
