#!/usr/bin/python3
"""Is the trainer's forward Pelton's? Compares logits of a held-out conversation.

usage: check_forward.py PELTON MODEL_FOLDER [flags for pelton logits]     exit code 1 if they differ by more than 1e-4
"""
import json
import os
import subprocess
import sys
import tempfile

import numpy
import torch

import bpe
import checkpoint_io
import corpus
import harmony


def main():
    pelton, folder, flags = sys.argv[1], sys.argv[2], sys.argv[3:]
    torch.set_num_threads(1)
    tokenizer, model = bpe.Tokenizer.load(os.path.join(folder, "tokenizer.json")), checkpoint_io.load_folder(folder)
    ids, index = [], 0
    while len(ids) < 400:  # several conversations in a row, so that windows and positions matter
        conversation = corpus.conversation_at(5, "test", index)
        ids += tokenizer.encode_pieces(harmony.render_prefix(conversation).pieces +
                                       harmony.render_rest(conversation).pieces)
        index += 1
    with torch.no_grad():
        x, _, _ = model.hidden_states(torch.tensor([ids]), torch.ones(1, len(ids), dtype=torch.long),
                                      torch.arange(len(ids)).unsqueeze(0), exact=True)
        ours = model.logits(x, exact=True)[0].numpy()
    with tempfile.TemporaryDirectory() as folder_of_logits:
        ids_file, out = os.path.join(folder_of_logits, "ids.json"), os.path.join(folder_of_logits, "logits.npy")
        with open(ids_file, "w") as file:
            json.dump(ids, file)
        subprocess.run([pelton, "logits", folder, "--tokens", ids_file, "--out", out] + flags, check=True)
        theirs = numpy.load(out)
    error = numpy.linalg.norm(ours - theirs, axis=1) / numpy.linalg.norm(theirs, axis=1)
    print("relative error of the logits of %d tokens: mean %.2e, largest %.2e" % (len(ids), error.mean(), error.max()))
    sys.exit(0 if error.max() <= 1e-4 else 1)


if __name__ == "__main__":
    main()
