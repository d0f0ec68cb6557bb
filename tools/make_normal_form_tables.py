#!/usr/bin/env python3
"""Writes src/tokenizer/normal_form_tables.cc: what NFC needs to know of each code point.

From Python's unicodedata, which must be Unicode 14 like the other tables of the tokenizer.

    tools/make_normal_form_tables.py > src/tokenizer/normal_form_tables.cc
"""
import sys
import unicodedata

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
HANGUL = range(0xAC00, 0xAC00 + 11172)


def rows(numbers):
    line = "   "
    for number in numbers:
        word = f" {number},"
        if len(line) + len(word) > 100:
            yield line
            line = "   "
        line += word
    yield line


def main():
    if unicodedata.unidata_version != "14.0.0":
        sys.exit(f"these would be Unicode {unicodedata.unidata_version}; 14.0.0 is wanted")
    decompositions, letters, marks, pairs = [], [], [], []
    for c in CODE_POINTS:
        if c in HANGUL:
            continue  # by arithmetic
        parts = [ord(x) for x in unicodedata.normalize("NFD", chr(c))]
        if parts != [c]:
            decompositions.append((c, len(letters), len(parts)))
            letters += parts
        mark = unicodedata.combining(chr(c))
        if mark:
            if marks and marks[-1][1] == c - 1 and marks[-1][2] == mark:
                marks[-1][1] = c
            else:
                marks.append([c, c, mark])
        one_step = unicodedata.decomposition(chr(c)).split()
        canonical = len(one_step) == 2 and not one_step[0].startswith("<")
        if canonical and unicodedata.normalize("NFC", chr(c)) == chr(c):
            pairs.append((int(one_step[0], 16), int(one_step[1], 16), c))
    pairs.sort()

    print("// Made by tools/make_normal_form_tables.py from Unicode 14.0.0.")
    print('#include "tokenizer/normal_form_tables.h"\n')
    print("namespace pelton::tokenizer {\n")
    print("// clang-format off")
    for kind, name, table in (
            ("Decomposition", "kDecompositions", [f"{{{c}, {at}, {n}}}" for c, at, n in decompositions]),
            ("uint32_t", "kDecompositionLetters", letters),
            ("CombiningRange", "kCombiningRanges", [f"{{{a}, {b}, {mark}}}" for a, b, mark in marks]),
            ("Composition", "kCompositions", [f"{{{a}, {b}, {c}}}" for a, b, c in pairs])):
        print(f"const {kind} {name}[{len(table)}] = {{")
        print("\n".join(rows(table)))
        print("};")
    print("// clang-format on\n")
    print("}  // namespace pelton::tokenizer")
    print(f"{len(decompositions)} {len(letters)} {len(marks)} {len(pairs)}", file=sys.stderr)


main()
