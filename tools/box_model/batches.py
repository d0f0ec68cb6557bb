"""Rows of packed conversations, as model.py wants them; endless, deterministic, resumable."""
import collections
import re

import torch

import corpus
import harmony


class Stream:
    """kind: "plain" or "tools". `state` is the next conversation's index. `source`: as corpus.conversation_at."""

    def __init__(self, tokenizer, seed, split, tools, rows, length, part=(0, 1), source=corpus.conversation_at):
        self.source = source
        self.tokenizer, self.seed, self.split, self.tools = tokenizer, seed, split, tools
        self.rows, self.length = rows, length
        self.step, self.index = part[1], part[0]
        self.waiting = collections.defaultdict(collections.deque)
        self.prefixes = {}

    def encode(self, pieces, trained):
        ids, marks = [], []
        for piece, mark in zip(pieces, trained):
            new = self.tokenizer.encode_pieces([piece])
            ids += new
            marks += [mark] * len(new)
        return ids, marks

    def prefix(self, conversation):
        key = (conversation["date"], conversation["effort"])
        if key not in self.prefixes:
            if len(self.prefixes) > 20000:
                self.prefixes.clear()
            rendering = harmony.render_prefix(conversation)
            self.prefixes[key] = self.encode(rendering.pieces, rendering.trained)[0]
        return self.prefixes[key]

    def fetch(self):
        while True:
            conversation = self.source(self.seed, self.split, self.index)
            self.index += self.step
            if bool(conversation["tools"]) == self.tools:
                self.waiting[conversation["effort"]].append(conversation)
                return

    def row(self):
        while not any(len(q) >= 8 for q in self.waiting.values()):
            self.fetch()
        queue = max(self.waiting.values(), key=len)
        first = queue[0]
        ids, segments, positions, marks = list(self.prefix(first)), [], [], []
        base = len(ids)
        segments, positions, marks = [0] * base, list(range(base)), [False] * base
        segment, tries = 1, 0
        while queue and tries < 3:
            conversation = queue.popleft()
            text = with_date(conversation, first["date"])
            rendering = harmony.render_rest(text)
            more, trained = self.encode(rendering.pieces, rendering.trained)
            if base + len(more) > self.length:
                continue  # too long for any row
            if len(ids) + len(more) > self.length:
                queue.append(conversation)
                tries += 1
                continue
            ids += more
            marks += trained
            segments += [segment] * len(more)
            positions += range(base, base + len(more))
            segment += 1
        pad = self.length - len(ids)
        return ids + [0] * pad, segments + [-1] * pad, positions + [0] * pad, marks + [False] * pad

    def next(self):
        ids, segments, positions, marks = (torch.tensor(x) for x in zip(*(self.row() for _ in range(self.rows))))
        targets = torch.zeros_like(marks)
        targets[:, :-1] = marks[:, 1:]  # where the next token is to be predicted
        return {"ids": ids, "segments": segments, "positions": positions, "targets": targets}


def with_date(conversation, date):
    """Only the answer to "what day is it" speaks of the date."""
    if conversation["task"] != "date" or conversation["date"] == date:
        return conversation
    change = lambda text: text and re.sub(re.escape(conversation["date"]), date, text)
    messages = [{**m, "content": change(m["content"]), "reasoning": change(m.get("reasoning"))}
                for m in conversation["messages"]]
    return {**conversation, "date": date, "messages": messages}
