#!/usr/bin/python3
"""Trains the model. Can be stopped at any time and started again with the same arguments.

usage: train.py --out FOLDER [--steps N] [--seconds S] [--seed N] [--size box|draft]

FOLDER gets tokenizer.json (if it is not there), state.pt every two minutes, log.txt, model.pt at the end.
It pauses while the file /tmp/pelton-training-pause exists or /tmp/pelton-bench.lock is locked.
"""
import argparse
import fcntl
import os
import signal
import subprocess
import sys
import time

import torch
import torch.nn.functional as F

import bpe
import corpus
import optimizers
from batches import Stream
from model import Config, Model

SIZES = {"box": {}, "draft": {"hidden": 128, "layers": 2, "heads": 4, "kv_heads": 1, "intermediate": 128, "experts": 4}}


def wait_while_paused():
    waited = 0.0
    while True:
        paused = os.path.exists("/tmp/pelton-training-pause")
        try:
            with open("/tmp/pelton-bench.lock") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            pass
        except OSError:
            paused = True
        if not paused:
            return waited
        time.sleep(1)
        waited += 1


def rate_at(step, steps):
    """Warm-up, a plateau, then down to nothing over the last 70 %."""
    return min(1.0, (step + 1) / 100, max(0.0, (steps - step) / (0.7 * steps)))


def loss_on(model, batch, experts, exact=False):
    x, balance, _ = model.hidden_states(batch["ids"], batch["segments"], batch["positions"], exact=exact, experts=experts)
    wanted = batch["targets"].flatten().nonzero().squeeze(1)
    logits = model.logits(x.view(-1, x.shape[-1])[wanted], exact).float()
    answers = batch["ids"].flatten()[wanted + 1]
    return F.cross_entropy(logits, answers, reduction="sum"), len(wanted), balance, (logits.argmax(-1) == answers).sum()


class Trainer:
    def __init__(self, arguments):
        self.arguments, self.out = arguments, arguments.out
        os.makedirs(self.out, exist_ok=True)
        path = os.path.join(self.out, "tokenizer.json")
        if not os.path.exists(path):
            here = os.path.dirname(os.path.abspath(__file__))
            subprocess.run([sys.executable, os.path.join(here, "make_tokenizer.py"), path], check=True)
        tokenizer = bpe.Tokenizer.load(path)
        torch.manual_seed(arguments.seed)
        self.config = Config(vocab_size=tokenizer.size, **SIZES[arguments.size])
        self.model = Model(self.config, torch.tensor(tokenizer.words()))
        self.streams = [Stream(tokenizer, arguments.seed, "train", False, 6, 320),
                        Stream(tokenizer, arguments.seed, "train", True, 4, 400)]
        self.streams[1].index = corpus.FIRST_LESSONS
        self.tests = [Stream(tokenizer, 99, "test", False, 14, 320), Stream(tokenizer, 99, "test", True, 9, 400)]
        self.tests = [s.next() for s in self.tests]
        matrices, biases, rest = optimizers.split_parameters(self.model)
        self.muon = optimizers.Muon(matrices)
        # The biases of queries and keys learn faster: they are what can say "the token before".
        self.adam = torch.optim.AdamW([{"params": rest, "rate": 0.004}, {"params": biases, "rate": 0.02}],
                                      lr=0.0, betas=(0.9, 0.98), weight_decay=0.0)
        self.step, self.seconds = 0, 0.0
        self.state = os.path.join(self.out, "state.pt")
        if os.path.exists(self.state):
            self.load()
        self.log = open(os.path.join(self.out, "log.txt"), "a", buffering=1)
        self.stopping = False
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "stopping", True))

    def load(self):
        state = torch.load(self.state)
        self.model.load_state_dict(state["model"])
        self.muon.load_state_dict(state["muon"])
        self.adam.load_state_dict(state["adam"])
        self.step, self.seconds = state["step"], state["seconds"]
        for stream, index in zip(self.streams, state["streams"]):
            stream.index = index

    def save(self):
        torch.save({"model": self.model.state_dict(), "muon": self.muon.state_dict(), "adam": self.adam.state_dict(),
                    "step": self.step, "seconds": self.seconds, "streams": [s.index for s in self.streams],
                    "config": self.config.to_dict()}, self.state + ".new")
        os.replace(self.state + ".new", self.state)

    def train_step(self, quantized):
        plain, tools = self.streams
        batches = [plain.next()]
        if plain.index > corpus.FIRST_LESSONS:
            batches.append(tools.next())
        total = sum(int(b["targets"].sum()) for b in batches)
        loss_sum, experts = 0.0, self.model.experts(quantized)
        for batch in batches:
            loss, _, balance, _ = loss_on(self.model, batch, experts)
            (loss / total + 0.01 * balance / len(batches)).backward()
            loss_sum += loss.item()
        rate = rate_at(self.step, self.arguments.steps)
        self.muon.step(self.arguments.rate * rate)
        for group in self.adam.param_groups:
            group["lr"] = group["rate"] * rate * self.arguments.rate / 0.02
        self.adam.step()
        self.model.zero_grad(set_to_none=True)
        return loss_sum / total, sum(b["ids"].numel() for b in batches)

    def test(self, quantized):
        with torch.no_grad():
            experts = self.model.experts(quantized)
            parts = [loss_on(self.model, b, experts) for b in self.tests]
        count = sum(p[1] for p in parts)
        return sum(p[0].item() for p in parts) / count, sum(p[3].item() for p in parts) / count

    def run(self):
        steps, saved = self.arguments.steps, time.time()
        mean, tokens, began = None, 0, time.time()
        while self.step < steps:
            paused = wait_while_paused()
            began += paused
            start = time.time()
            quantized = self.step >= self.arguments.quantize_from * steps
            loss, count = self.train_step(quantized)
            mean = loss if mean is None else 0.98 * mean + 0.02 * loss
            tokens += count
            self.step += 1
            self.seconds += time.time() - start
            if self.step % 50 == 0:
                line = "step %d loss %.4f, %.0f tokens/s, %.0f s" % (
                    self.step, mean, tokens / (time.time() - began), self.seconds)
                if self.step % 250 == 0:
                    line += ", test loss %.4f right %.4f" % self.test(quantized)
                self.log.write(line + "\n")
                tokens, began = 0, time.time()
            if self.stopping or time.time() - saved > 120:
                self.save()
                saved = time.time()
            if self.stopping:
                return
        self.save()
        torch.save({"model": self.model.state_dict(), "config": self.config.to_dict()},
                   os.path.join(self.out, "model.pt"))
        self.log.write("done: test loss %.4f right %.4f with MXFP4 experts; " % self.test(True) +
                       "%.4f right %.4f without\n" % self.test(False))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--steps", type=int, default=7800)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--size", choices=SIZES, default="box")
    parser.add_argument("--rate", type=float, default=0.006, help="Muon's; AdamW's follows")
    parser.add_argument("--quantize-from", type=float, default=0.5)
    parser.add_argument("--nice", type=int, default=15)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    os.nice(arguments.nice)
    Trainer(arguments).run()


if __name__ == "__main__":
    main()
