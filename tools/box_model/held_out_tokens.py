#!/usr/bin/python3
"""Held-out conversations whole, answers included, as token ids for `pelton perplexity --tokens`.

usage: held_out_tokens.py [--tokens N] [--seed N] MODEL_FOLDER FILE       FILE is written; of MODEL_FOLDER the tokenizer is used

    pelton perplexity models/pelton-box --tokens FILE --against-weights int8
"""
import argparse
import itertools
import json
import os

import bpe
import corpus
import harmony
from evaluate_settings import SEED


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("model")
    parser.add_argument("file")
    arguments = parser.parse_args()
    tokenizer = bpe.Tokenizer.load(os.path.join(arguments.model, "tokenizer.json"))
    ids = []
    for index in itertools.count():
        if len(ids) >= arguments.tokens:
            break
        conversation = corpus.conversation_at(arguments.seed, "test", index)
        for rendering in (harmony.render_prefix(conversation), harmony.render_rest(conversation)):
            ids += tokenizer.encode_pieces(rendering.pieces)
    with open(arguments.file, "w", encoding="utf-8") as file:
        json.dump(ids[:arguments.tokens], file)


if __name__ == "__main__":
    main()
