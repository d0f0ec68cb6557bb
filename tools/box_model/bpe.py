"""A byte-level BPE: training, encoding, and tokenizer.json in the form src/tokenizer reads.

Digits are single tokens, words never join with anything but the space before them: so numbers can be
computed digit by digit, and a name is the same token in a sentence and in JSON.
"""
import collections
import json
import re

from harmony import Control

# For ASCII, Python's pattern splits as PCRE2 splits by the first. (Python's re has no \p{L}.)
PATTERN = r" ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s*[\r\n]+|\s+(?!\S)|\s+"
SPLIT = re.compile(r" ?[^\W\d_]+|\d| ?(?:[^\s\w]|_)+|\s*[\r\n]+|\s+(?!\S)|\s+")

CONTROLS = {0: "<|startoftext|>", 1: "<|endoftext|>", 4: "<|return|>", 5: "<|constrain|>", 7: "<|channel|>",
            8: "<|start|>", 9: "<|end|>", 10: "<|message|>", 14: "<|call|>", 20: "<|endofprompt|>"}
CONTROL_COUNT = 21


def control_names():
    """As in o200k_harmony, whose ids 199998..200018 they have there."""
    return [CONTROLS.get(i, "<|reserved_%d|>" % (199998 + i)) for i in range(CONTROL_COUNT)]


def byte_letters():
    """GPT-2's alphabet: each byte as a printable character."""
    plain = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    letters, extra = {}, 0
    for byte in range(256):
        if byte in plain:
            letters[byte] = chr(byte)
        else:
            letters[byte] = chr(256 + extra)
            extra += 1
    return letters


LETTERS = byte_letters()


def letters(token):
    return "".join(LETTERS[b] for b in token)


def train(word_counts, vocabulary):
    """Merges, most frequent pair first; ties by the bytes. word_counts: text of a piece -> count."""
    words = [[bytes([b]) for b in word.encode()] for word in word_counts]
    counts = list(word_counts.values())
    pairs, where = collections.Counter(), collections.defaultdict(set)
    for i, word in enumerate(words):
        for pair in zip(word, word[1:]):
            pairs[pair] += counts[i]
            where[pair].add(i)
    merges = []
    while 256 + len(merges) + CONTROL_COUNT < vocabulary and pairs:
        best = max(pairs, key=lambda p: (pairs[p], p))
        if pairs[best] <= 0:
            break
        merges.append(best)
        for i in where.pop(best):
            word = words[i]
            for pair in zip(word, word[1:]):
                pairs[pair] -= counts[i]
                where[pair].discard(i)
            merged, k = [], 0
            while k < len(word):
                if k + 1 < len(word) and (word[k], word[k + 1]) == best:
                    merged.append(word[k] + word[k + 1])
                    k += 2
                else:
                    merged.append(word[k])
                    k += 1
            words[i] = merged
            for pair in zip(merged, merged[1:]):
                pairs[pair] += counts[i]
                where[pair].add(i)
        pairs.pop(best, None)
    return merges


class Tokenizer:
    def __init__(self, merges):
        self.tokens = [bytes([b]) for b in range(256)]
        self.ids = {t: i for i, t in enumerate(self.tokens)}
        self.merges, self.ranks = [], {}
        for left, right in merges:
            if left + right in self.ids:
                continue  # another cut of the same token
            self.ids[left + right] = len(self.tokens)
            self.tokens.append(left + right)
            self.ranks[(left, right)] = len(self.merges)
            self.merges.append((left, right))
        self.first_control = len(self.tokens)
        self.controls = {name: self.first_control + i for i, name in enumerate(control_names())}
        self.size = self.first_control + CONTROL_COUNT
        self.cache = {}

    def encode_word(self, word):
        parts = [bytes([b]) for b in word.encode()]
        while len(parts) > 1:
            ranked = [(self.ranks.get(p, 1 << 30), k) for k, p in enumerate(zip(parts, parts[1:]))]
            rank, k = min(ranked)
            if rank == 1 << 30:
                break
            parts[k:k + 2] = [parts[k] + parts[k + 1]]
        return [self.ids[p] for p in parts]

    def encode(self, text):
        out = []
        for word in SPLIT.findall(text):
            ids = self.cache.get(word)
            if ids is None:
                ids = self.cache[word] = self.encode_word(word)
            out += ids
        return out

    def encode_pieces(self, pieces):
        out = []
        for piece in pieces:
            out += [self.controls[piece]] if isinstance(piece, Control) else self.encode(piece)
        return out

    def decode(self, ids):
        names = control_names()
        out = b""
        for i in ids:
            out += self.tokens[i] if i < self.first_control else names[i - self.first_control].encode()
        return out.decode("utf-8", "replace")

    def words(self):
        """For each token the number of its word: the same with a space before it and in any case."""
        numbers = {}
        keys = [t.strip().lower() or t for t in self.tokens] + list(self.controls)
        return [numbers.setdefault(key, len(numbers)) for key in keys]

    def to_json(self):
        flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
        byte_level = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
        return {
            "version": "1.0", "truncation": None, "padding": None,
            "added_tokens": [{"id": i, "content": name, **flags} for name, i in self.controls.items()],
            "normalizer": None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Isolated", "invert": False},
                {**byte_level, "add_prefix_space": False, "use_regex": False}]},
            "post_processor": {**byte_level, "trim_offsets": False},
            "decoder": byte_level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      "vocab": {letters(t): i for i, t in enumerate(self.tokens)},
                      "merges": [[letters(a), letters(b)] for a, b in self.merges]}}

    def save(self, path):
        with open(path, "w", encoding="utf-8") as file:
            json.dump(self.to_json(), file, ensure_ascii=False, indent=1)

    @classmethod
    def load(cls, path):
        with open(path, encoding="utf-8") as file:
            merges = json.load(file)["model"]["merges"]
        bytes_of = {letter: byte for byte, letter in LETTERS.items()}
        return cls([tuple(bytes(bytes_of[c] for c in side) for side in merge) for merge in merges])
