#!/usr/bin/env python3
"""Puts sources that may be compiled together into batches, each a file that includes them.

usage: batches.py ROOT OUT MOST FILE...

Seven of ten seconds of the compiler's are headers' and the templates they make; files in one batch share them. Writes
OUT/batch_N.cc, each with at most MOST files named below ROOT, and prints the paths of the batches, one a line. A file
whose own names (those of unnamed namespaces, static ones, macros) another of the batch has too goes to another batch, so
names stay a file's own affair; a constant that no header beside it knows is called otherwise in each. A file of whose
own names a header beside it defines one stays alone. A batch that is as it was keeps its time of writing.

example: `int most() {…}` in unnamed namespaces of a.cc and c.cc, nothing in b.cc: batches {a, b}, {c}.
"""
import os
import re
import sys

UNNAMED = re.compile(r"^(inline )?namespace \{")
END = re.compile(r"^\}\s*//\s*namespace\s*$")
MACRO = re.compile(r"^\s*#\s*define\s+(\w+)(.*)")
TYPE = re.compile(r"^(?:template\s*<.*>\s*)?(?:class|struct|enum class|enum|union)\s+(?:alignas\(\w+\)\s*)?(\w+)")
ALIAS = re.compile(r"^(?:using|namespace)\s+(\w+)\s*=\s*(.*?);?\s*$")
TAKEN = re.compile(r"^using\s+(?!namespace\b)(?:typename\s+)?([\w:]+)::(\w+);")
OPENED = re.compile(r"^using\s+namespace\s+([\w:]+);")
FUNCTION = re.compile(r"(?<![\w:~])(\w+)\s*\(")
VARIABLE = re.compile(r"(?<![\w:])(\w+)\s*(?:\[[^\]]*\]\s*)*(?:=|\{|;)")
WORD = re.compile(r"^[A-Za-z_\[]")
CONSTANT = re.compile(r"^k[A-Z]\w+$")
NOT_A_NAME = {"if", "for", "while", "switch", "return", "sizeof", "decltype", "requires", "alignas", "operator", "noexcept", "defined"}


def names_of(path):
    """(own, shared): what the file defines that others may not have, and what it defines for all; name -> definition."""
    own, shared = {}, {}
    unnamed = False
    with open(path, encoding="utf-8") as file:
        for line in file:
            macro = MACRO.match(line)
            if macro:
                own[macro.group(1)] = "#" + macro.group(2).strip()
            if not WORD.match(line) and line[0] != "}":
                continue
            if UNNAMED.match(line):
                unnamed = True
                continue
            if END.match(line):
                unnamed = False
                continue
            line = re.sub(r'"(?:[^"\\]|\\.)*"', '""', line.split("//")[0])
            into = own if unnamed or line.startswith("static ") else shared
            if opened := OPENED.match(line):
                own["using namespace"] = opened.group(1)
            elif alias := ALIAS.match(line):
                own[alias.group(1)] = alias.group(2)
            elif taken := TAKEN.match(line):
                own[taken.group(2)] = taken.group(1)
            elif kind := TYPE.match(line):
                into[kind.group(1)] = path
            elif not line.startswith(("namespace", "extern", "using", "typedef", "#", "}", "TEST", "INSTANTIATE")):
                call = FUNCTION.search(line)
                value = VARIABLE.search(line)
                if call and (not value or call.start() < value.start()):
                    if call.group(1) not in NOT_A_NAME:
                        into[call.group(1)] = path
                elif value:
                    into[value.group(1)] = path
    return own, shared


def headers_beside(files):
    """(names that the headers in the folders of files define, constants that they speak of)."""
    names, constants = set(), set()
    for folder in {os.path.dirname(path) for path in files}:
        for header in (os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".h")):
            for found in names_of(header):
                names.update(found)
            with open(header, encoding="utf-8") as file:
                constants.update(re.findall(r"\bk[A-Z]\w+", file.read()))
    return names, constants


def conflicts(batch, own, shared):
    """The names because of which a file may not join the batch as it is."""
    found = {name for name, what in own.items() if batch["own"].get(name, what) != what or name in batch["shared"]}
    return found | {name for name in shared if name in batch["own"]}


def batches_of(files, most):
    """[[(path, names that are called otherwise in it)]]"""
    names, known = headers_beside(files)
    batches, singles = [], []
    for path in files:
        own, shared = names_of(path)
        if names.intersection(own.keys() - shared.keys()):
            singles.append([(path, [])])
            continue
        for batch in batches:
            found = conflicts(batch, own, shared)
            if len(batch["files"]) < most and all(CONSTANT.match(name) and name not in known for name in found):
                break
        else:
            batch, found = {"files": [], "own": {}, "shared": set()}, set()
            batches.append(batch)
        batch["files"].append((path, sorted(found)))
        batch["own"].update(own)
        batch["shared"].update(shared)
    return [batch["files"] for batch in batches] + singles


def text_of(files, root):
    # What a class keeps in an unnamed namespace stays in one file here, too.
    lines = ['#pragma GCC diagnostic ignored "-Wsubobject-linkage"']
    for number, (path, renamed) in enumerate(files):
        lines += [f"#define {name} {name}{number}" for name in renamed]
        lines.append(f'#include "{os.path.relpath(path, root)}"')
        lines += [f"#undef {name}" for name in renamed]
    return "\n".join(lines) + "\n"


def write(path, text):
    try:
        with open(path, encoding="utf-8") as file:
            if file.read() == text:
                return
    except FileNotFoundError:
        pass
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def main():
    root, out, most = sys.argv[1], sys.argv[2], int(sys.argv[3])
    os.makedirs(out, exist_ok=True)
    made = []
    for number, files in enumerate(batches_of(sys.argv[4:], most)):
        if len(files) == 1:
            made.append(files[0][0])
            continue
        path = os.path.join(out, f"batch_{number}.cc")
        write(path, text_of(files, root))
        made.append(path)
    print("\n".join(made))


if __name__ == "__main__":
    main()
