#!/usr/bin/env python3
"""Writes src/tokenizer/unicode_class.cc: the letter classes of every code point.

The classes come from the PCRE2 library of this machine, and not from Python's unicodedata, because
the scanner that uses them must agree with PCRE2 (tokenizer_test compares all code points) and both
must be Unicode 14, which PCRE2 10.42 is.

    tools/make_unicode_tables.py > src/tokenizer/unicode_class.cc
"""
import ctypes
import ctypes.util
import sys

UTF, UCP, NO_UTF_CHECK = 0x00080000, 0x00020000, 0x40000000
CODE_POINTS = 0x110000
BLOCK = 128

# The letter written into the table, and what it stands for. Order and letters: unicode_class.h.
CLASSES = [
    ("U", r"[\p{Lu}\p{Lt}]+"),
    ("l", r"\p{Ll}+"),
    ("o", r"[\p{Lm}\p{Lo}]+"),
    ("m", r"\p{M}+"),
    ("9", r"\p{N}+"),
    ("s", r"\p{White_Space}+"),
    ("r", r"[\r\n]+"),
]


def load_pcre2():
    lib = ctypes.CDLL(ctypes.util.find_library("pcre2-8") or "libpcre2-8.so.0")
    lib.pcre2_compile_8.restype = ctypes.c_void_p
    lib.pcre2_match_data_create_8.restype = ctypes.c_void_p
    lib.pcre2_match_data_create_8.argtypes = [ctypes.c_uint32, ctypes.c_void_p]
    lib.pcre2_get_ovector_pointer_8.restype = ctypes.POINTER(ctypes.c_size_t)
    lib.pcre2_get_ovector_pointer_8.argtypes = [ctypes.c_void_p]
    lib.pcre2_match_8.argtypes = [
        ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_uint32,
        ctypes.c_void_p, ctypes.c_void_p]
    return lib


def unicode_version(lib):
    buffer = ctypes.create_string_buffer(64)
    lib.pcre2_config_8(10, buffer)  # PCRE2_CONFIG_UNICODE_VERSION
    return buffer.value.decode()


def runs(lib, pattern, text):
    """Byte ranges of `text` that `pattern` matches."""
    error, offset = ctypes.c_int(), ctypes.c_size_t()
    code = lib.pcre2_compile_8(pattern.encode(), ctypes.c_size_t(len(pattern)), UTF | UCP,
                               ctypes.byref(error), ctypes.byref(offset), None)
    if not code:
        sys.exit(f"PCRE2 does not understand {pattern} (error {error.value})")
    match = lib.pcre2_match_data_create_8(1, None)
    ends = lib.pcre2_get_ovector_pointer_8(match)
    at = 0
    while lib.pcre2_match_8(code, text, len(text), at, NO_UTF_CHECK, match, None) > 0:
        yield ends[0], ends[1]
        at = ends[1]


def main():
    lib = load_pcre2()
    version = unicode_version(lib)
    if not version.startswith("14."):
        sys.exit(f"PCRE2 here knows Unicode {version}; the tables are to be Unicode 14")

    points = [c for c in range(CODE_POINTS) if not 0xD800 <= c < 0xE000]
    text = "".join(map(chr, points)).encode()
    point_at = {}
    offset = 0
    for c in points:
        point_at[offset] = c
        offset += len(chr(c).encode())
    table = ["."] * CODE_POINTS
    for letter, pattern in CLASSES:
        for begin, end in runs(lib, pattern, text):
            for at in range(begin, end):
                if at in point_at:
                    table[point_at[at]] = letter

    blocks, index = [], []
    for start in range(0, CODE_POINTS, BLOCK):
        block = "".join(table[start:start + BLOCK])
        if block not in blocks:
            blocks.append(block)
        index.append(blocks.index(block))

    print("// Made by tools/make_unicode_tables.py from PCRE2's tables (Unicode " + version + ").")
    print('#include "tokenizer/unicode_class.h"\n')
    print("namespace pelton::tokenizer {\n")
    print("// clang-format off")
    print(f"const uint8_t kUnicodeBlockIndex[{len(index)}] = {{")
    for start in range(0, len(index), 24):
        print("    " + ", ".join(map(str, index[start:start + 24])) + ",")
    print("};\n")
    print(f"const char kUnicodeBlocks[{len(blocks)}][{BLOCK} + 1] = {{")
    for block in blocks:
        print(f'    "{block}",')
    print("};")
    print("// clang-format on\n")
    print("}  // namespace pelton::tokenizer")
    assert len(blocks) < 256


if __name__ == "__main__":
    main()
