#!/usr/bin/python3
"""Trains the tokenizer on generated conversations. usage: make_tokenizer.py OUT.json"""
import collections
import sys

import bpe
import corpus
import harmony

CONVERSATIONS, VOCABULARY, SEED = 24000, 4096, 1


def main():
    counts = collections.Counter()
    for i in range(CONVERSATIONS):
        conversation = corpus.conversation_at(SEED, "train", corpus.FIRST_LESSONS + i)
        for piece in harmony.render_prefix(conversation).pieces + harmony.render_rest(conversation).pieces:
            if not isinstance(piece, harmony.Control):
                counts.update(bpe.SPLIT.findall(piece))
    tokenizer = bpe.Tokenizer(bpe.train(counts, VOCABULARY))
    tokenizer.save(sys.argv[1])
    print("%d tokens, %d different words" % (tokenizer.size, len(counts)))


if __name__ == "__main__":
    main()
