#!/usr/bin/python3
"""Do Pelton and the trainer cut text into the same tokens? usage: check_tokenizer.py PELTON tokenizer.json"""
import json
import subprocess
import sys
import tempfile

import bpe
import corpus
import harmony

EXTRA = ["", " ", "  two  spaces ", "\n\n a\n", "tab\tand\r\nline\n\n\n", "x1y22 333", "snake_case_name(a, b) -> {}",
         "a" * 300, "Zorvaltaine's 12.5%", "\"quoted\", 'single'; <|start|> is text"]


def pelton_ids(pelton, tokenizer, text, *flags):
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", newline="") as file:
        file.write(text)
        file.flush()
        out = subprocess.run([pelton, "tokenize", tokenizer, "--file", file.name, "--ids", *flags],
                             check=True, capture_output=True, text=True)
    return json.loads(out.stdout)


def main():
    pelton, path = sys.argv[1:]
    tokenizer = bpe.Tokenizer.load(path)
    pieces = []
    for i in range(2000):
        conversation = corpus.conversation_at(7, "test", i)
        pieces += harmony.render_prefix(conversation).pieces + harmony.render_rest(conversation).pieces
    ours, theirs = tokenizer.encode_pieces(pieces), pelton_ids(pelton, path, harmony.as_text(pieces), "--special")
    wrong = ours != theirs
    print("%d tokens of generated conversations: %s" % (len(ours), "different" if wrong else "equal"))
    for text in EXTRA:
        if text and tokenizer.encode(text) != pelton_ids(pelton, path, text):
            print("different: %r" % text)
            wrong = True
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
