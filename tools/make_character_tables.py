#!/usr/bin/env python3
"""Writes src/tokenizer/character_tables.cc: which letters have a lower case, which marks take place, and what is
punctuation or is no character, as runs of code points.

Python's unicodedata must be Unicode 14, as the other tables of the room are (Python 3.11's is).

    tools/make_character_tables.py > src/tokenizer/character_tables.cc
"""
import sys
import unicodedata


def runs():
    """(first, last, step, offset) for letters whose lower case is one code point."""
    cased = [(c, ord(chr(c).lower())) for c in range(0x110000)
             if not 0xD800 <= c < 0xE000 and len(chr(c).lower()) == 1 and chr(c).lower() != chr(c)]
    at = 0
    while at < len(cased):
        first, offset = cased[at][0], cased[at][1] - cased[at][0]
        best, step = 1, 1
        for tried in (1, 2):
            count = 1
            while (at + count < len(cased) and cased[at + count][0] == first + count * tried
                   and cased[at + count][1] - cased[at + count][0] == offset):
                count += 1
            if count > best:
                best, step = count, tried
        yield first, first + (best - 1) * step, step, offset
        at += best


def print_rows(form, rows):
    """As many in a line as go, and the end of the table."""
    line = "   "
    for row in rows:
        text = " " + form % row + ","
        if len(line) + len(text) > 100:
            print(line)
            line = "   "
        line += text
    print(line + "\n};")


def ranges(wanted):
    """(first, last) of code points whose category is one of these."""
    first = None
    for c in range(0x110001):
        is_one = c < 0x110000 and unicodedata.category(chr(c)) in wanted
        if is_one and first is None:
            first = c
        if not is_one and first is not None:
            yield first, c - 1
            first = None


def print_ranges(name, wanted):
    rows = list(ranges(wanted))
    print(f"\nconst CodePointRange {name}[{len(rows)}] = {{")
    print_rows("{0x%X, 0x%X}", rows)


def main():
    if unicodedata.unidata_version != "14.0.0":
        sys.exit(f"Python here knows Unicode {unicodedata.unidata_version}; the tables are to be Unicode 14")
    rows = list(runs())
    print("// Made by tools/make_character_tables.py: not to be edited.")
    print('#include "tokenizer/character_tables.h"\n')
    print("namespace pelton::tokenizer {\n")
    print("// clang-format off")
    print(f"const CaseRun kCaseRuns[{len(rows)}] = {{")
    print_rows("{0x%X, 0x%X, %d, %d}", rows)
    print_ranges("kWideMarks", ("Mc", "Me"))
    print_ranges("kPunctuation", ("Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po"))
    print_ranges("kNoCharacters", ("Cc", "Cf", "Co", "Cs", "Cn"))
    print("// clang-format on\n")
    print("}  // namespace pelton::tokenizer")


if __name__ == "__main__":
    main()
