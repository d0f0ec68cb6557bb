#!/usr/bin/env python3
"""Writes a trace for `pelton simulate --workload`, to compare routers by: requests with the lengths and the reuse that Mooncake's published
traces have in the mean, or half of all requests on one prefix.

usage: routing_traces.py conversation|synthetic|hot FILE [--requests N] [--rate RPS] [--seed N]

FILE is a JSON workload; FILE.jsonl the trace that it names, in blocks of 512 tokens. Printed: mean lengths, and the share of prompts that a
cache which forgets nothing would find (its ideal).
"""
import argparse
import json
import pathlib
import random

BLOCK = 512
MEANS = {"conversation": (12035, 343, 0.366), "synthetic": (15325, 149, 0.640)}  # tokens in and out, ideal share


class Trace:
    def __init__(self, arguments):
        self.draw, self.rate, self.most = random.Random(arguments.seed), arguments.rate, arguments.requests
        self.rows, self.blocks = [], 0

    def fresh(self, tokens):
        count = tokens // BLOCK
        self.blocks += count
        return list(range(self.blocks - count, self.blocks))

    def length(self, mean):
        """Lognormal, as wide as recorded ones."""
        return max(int(self.draw.lognormvariate(0, 0.9) * mean / 1.5), 64)

    def add(self, at, blocks, tail, answer):
        self.rows.append((at, len(blocks) * BLOCK + tail, max(self.length(answer), 1), blocks))

    def conversation(self, scale, again):
        """Sessions: each turn repeats what was said before, and begins half a minute later."""
        at = 0.0
        while len(self.rows) < self.most:
            at += self.draw.expovariate(self.rate * (1 - again))
            begun, blocks = at, self.fresh(self.length(9000 * scale))
            while True:
                self.add(begun, blocks, self.draw.randrange(1, BLOCK), MEANS["conversation"][1])
                if self.draw.random() >= again or len(self.rows) >= self.most:
                    break
                begun += self.draw.expovariate(1 / 30)
                blocks = blocks + self.fresh(self.length(3500 * scale) + BLOCK)

    def synthetic(self, scale, again):
        """Questions about documents, of which some are asked about often."""
        at, documents = 0.0, []
        while len(self.rows) < self.most:
            at += self.draw.expovariate(self.rate)
            if not documents or self.draw.random() >= again:
                documents.append(self.fresh(self.length(13500 * scale) + BLOCK))
            document = documents[int(len(documents) * self.draw.random() ** 1.5)]
            self.add(at, document + self.fresh(self.length(1500)), self.draw.randrange(1, BLOCK), MEANS["synthetic"][1])

    def hot(self):
        at, prefix = 0.0, self.fresh(8 * BLOCK)
        while len(self.rows) < self.most:
            at += self.draw.expovariate(self.rate)
            shared = prefix if self.draw.random() < 0.5 else self.fresh(8 * BLOCK)
            self.add(at, shared + self.fresh(BLOCK), self.draw.randrange(1, BLOCK), 200)

    def means(self):
        self.rows.sort(key=lambda row: row[0])
        known, found = set(), 0
        for _, _, _, blocks in self.rows:
            for block in blocks:
                if block not in known:
                    break
                found += BLOCK
            known.update(blocks)
        total = sum(row[1] for row in self.rows)
        return total / len(self.rows), sum(row[2] for row in self.rows) / len(self.rows), found / total


def made(kind, arguments, scale=1.0, again=0.4):
    trace = Trace(arguments)
    getattr(trace, kind)(*(() if kind == "hot" else (scale, again)))
    return trace


def fitted(kind, arguments):
    """With the means that were published, within a percent or two."""
    length, _, share = MEANS[kind]
    scale, again = 1.0, 0.4
    for _ in range(12):
        mean, _, found = made(kind, arguments, scale, again).means()
        scale *= (length / mean) ** 0.8
        again = min(max(again + (share - found) * 0.8, 0.02), 0.98)
    return made(kind, arguments, scale, again)


def positive(kind):
    def read(text):
        value = kind(text)
        if not 0 < value < 1e9:
            raise argparse.ArgumentTypeError(f"'{text}' is not above 0, or is too large")
        return value
    return read


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["conversation", "synthetic", "hot"])
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--requests", type=positive(int), default=3000)
    parser.add_argument("--rate", type=positive(float), default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    trace = made("hot", arguments) if arguments.kind == "hot" else fitted(arguments.kind, arguments)
    mean_in, mean_out, ideal = trace.means()
    rows = arguments.file.with_suffix(arguments.file.suffix + ".jsonl")
    rows.write_text("".join(json.dumps({"timestamp": round(at * 1000), "input_length": tokens, "output_length": answer, "hash_ids": blocks}) + "\n"
                            for at, tokens, answer, blocks in trace.rows))
    arguments.file.write_text(json.dumps({"dataset": "trace", "file": str(rows), "name": arguments.kind}))
    print(json.dumps({"requests": len(trace.rows), "seconds": round(trace.rows[-1][0]), "mean_in": round(mean_in), "mean_out": round(mean_out),
                      "ideal": round(ideal, 4)}))


if __name__ == "__main__":
    main()
