#!/usr/bin/env python3
"""Checks that docs/way_of_a_request.md tells the truth: each file and function it names exists.

usage: docs_check.py ROOT

In the tables of that page, a file is written `src/room/file.h` or `room/file` (then src/room/file.h or
.cc must exist), a function `Type::function` or `function()`. A name in a row must occur in one of the
files named in the same row. Also checks relative links in every Markdown page of the project, that tables of the
users' pages have short rows, that the tests named in the pages on hostile input exist, and the files named in the
rooms' READMEs, and that the picture of the architecture has every room.
"""
import fnmatch
import pathlib
import re
import sys

CODE = re.compile(r"`([^`]+)`")
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
FILE = re.compile(r"^(?:src/|apps/)?[a-z_0-9]+/[a-z_0-9/]+(?:\.(?:h|cc|md|txt))?$")
ROW_MAX = 200
WAY_FILES_MAX = 25
NAME = re.compile(r"^(?:[A-Za-z_0-9]+::)*~?[A-Za-z_0-9]+(?:\(\))?$")


def files_for(root, word):
    """The files that `word` names, or an empty list."""
    found = []
    for stem in (root / word, root / "src" / word):
        if stem.is_file():
            found.append(stem)
        for suffix in (".h", ".cc"):
            file = stem.with_name(stem.name + suffix)
            if file.is_file():
                found.append(file)
    return found


def check_row(root, where, row, errors):
    words = CODE.findall(row)
    files, names = [], []
    for word in words:
        if FILE.match(word):
            found = files_for(root, word)
            if not found:
                errors.append(f"{where}: no file '{word}'")
            files += found
        elif NAME.match(word):
            names.append(word)
        else:
            errors.append(f"{where}: '{word}' is neither a file nor a name")
    text = "\n".join(file.read_text() for file in files)
    for name in names:
        if not files:
            errors.append(f"{where}: '{name}' stands in a row without a file")
            return
        # Type::function is declared as `function` inside `Type`: both words must be there.
        for part in name.removesuffix("()").split("::"):
            if not re.search(rf"\b{re.escape(part)}\b", text):
                errors.append(f"{where}: '{part}' (of '{name}') is in none of the row's files")
    return


def check_way(root, errors):
    page = root / "docs" / "way_of_a_request.md"
    rows = 0
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if line.startswith("|") and CODE.search(line):
            rows += 1
            check_row(root, f"{page.name}:{number}", line, errors)
    named = {word for word in CODE.findall(page.read_text()) if FILE.match(word)}
    if len(named) > WAY_FILES_MAX:
        errors.append(f"{page.name}: names {len(named)} files; at most {WAY_FILES_MAX}, so that it can be followed")
    if rows < 10:
        errors.append(f"{page.name}: only {rows} rows name a file; is the table still there?")
    return rows


def check_links(root, errors):
    pages = [p for p in root.rglob("*.md")
             if not {"build", "node_modules", ".git"} & set(p.relative_to(root).parts)]
    links = 0
    for page in pages:
        for number, line in enumerate(page.read_text().splitlines(), 1):
            for target in LINK.findall(line):
                if "://" in target or target.startswith("mailto:"):
                    continue
                links += 1
                if not (page.parent / target).exists():
                    errors.append(f"{page.relative_to(root)}:{number}: no such file '{target}'")
    return links


def check_tables(root, errors):
    """Tables of the pages that users read fit a screen: short rows. Long text stands below a table."""
    for page in [root / "README.md", *sorted((root / "docs").glob("*.md"))]:
        if page.name in ("hardening.md", "way_of_a_request.md", "models.md"):
            continue  # for those who work on the code; made by tools/models_table
        for number, line in enumerate(page.read_text().splitlines(), 1):
            if line.startswith("|") and len(line) > ROW_MAX:
                errors.append(f"{page.name}:{number}: a table's row of {len(line)} characters; at most {ROW_MAX}: "
                              "say what is long below the table")


def check_whole_tables(root, errors):
    """No empty line cuts a table: what stands below it is text, unless it begins another one."""
    for page in sorted((root / "docs").rglob("*.md")):
        lines = page.read_text().splitlines() + ["", ""]
        for i in range(2, len(lines) - 1):
            is_cut = lines[i].startswith("|") and not lines[i - 1] and lines[i - 2].startswith("|")
            if is_cut and not re.fullmatch(r"\|[-:| ]+\|", lines[i + 1]):
                errors.append(f"{page.relative_to(root)}:{i + 1}: an empty line cuts this row from its table")


def check_rooms(root, errors):
    """The tables of files in the rooms' READMEs: each name in the first column is a file or folder of the room."""
    for page in sorted((root / "src").glob("*/README.md")):
        paths = {path.relative_to(page.parent) for path in page.parent.rglob("*")}
        there = {str(path) for path in paths} | {path.name for path in paths} | {path.stem for path in paths}
        of_files = False
        for number, line in enumerate(page.read_text().splitlines(), 1):
            cell = line.split("|")[1].strip() if line.startswith("|") else ""
            if not cell or cell == "file":
                of_files = cell == "file"
            elif of_files:
                for name in CODE.findall(cell):
                    if not fnmatch.filter(there, name.rstrip("/")):
                        errors.append(f"src/{page.parent.name}/README.md:{number}: no file '{name}' in the room")


# What every room stands on, and the words between rooms: no boxes of the picture.
NOT_IN_PICTURE = {"base", "tensor", "telemetry", "cli", "request"}


def check_picture(root, errors):
    """The picture of docs/architecture.md names every room."""
    words = set(re.findall(r"\w+", (root / "docs/pictures/architecture.svg").read_text()))
    rooms = {path.parent.name for path in (root / "src").glob("*/CMakeLists.txt")}
    errors += [f"architecture.svg: room '{room}' is not in the picture"
               for room in sorted(rooms - words - NOT_IN_PICTURE)]


def check_hostile_files(root, errors):
    """Each test that the page of hostile files names is there: `room.Suite.Name`."""
    page = root / "docs" / "formats" / "hostile_files.md"
    named = re.findall(r"`([a-z_]+)\.([A-Z]\w+)\.(\w+)`", page.read_text())
    for room, suite, name in named:
        pattern = re.compile(rf"TEST(?:_F|_P)?\(\s*{suite},\s*{name}\)")
        if not any(pattern.search(file.read_text()) for file in (root / "src" / room).glob("*_test.cc")):
            errors.append(f"{page.name}: there is no test {room}.{suite}.{name}")
    if len(named) < 90:
        errors.append(f"{page.name}: names only {len(named)} tests; is the table still there?")


def check_hardening(root, errors):
    """Each row of what clients may send has a test with its name, and the tests that the page names exist."""
    rows = {"HT": 24, "JB": 12, "SE": 6, "WS": 14, "GR": 11}  # GR-12 is AP's rows through gRPC
    names = set()
    for file in (root / "src").rglob("*_test.cc"):
        for name in re.findall(r"TEST(?:_F|_P)?\(\s*\w+,\s*(\w+)\)", file.read_text()):
            names |= {f"{row}-{number}".upper() for row, number in re.findall(r"(?i)(HT|JB|SE|WS|GR)_?(\d\d)", name)}
    for row, count in rows.items():
        for number in range(1, count + 1):
            if f"{row}-{number:02}" not in names:
                errors.append(f"hardening.md: row {row}-{number:02} has no test")
    page = (root / "docs" / "hardening.md").read_text()
    for room in sorted(path.name for path in (root / "src").iterdir() if path.is_dir()):
        tests = [f"{suite}.{name}" for file in (root / "src" / room).rglob("*_test.cc")
                 for suite, name in re.findall(r"TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\)", file.read_text())]
        # `room.Suite.Name`, `room.Instance/Suite.*`: '*' stands for any ending.
        for suite, name in sorted(set(re.findall(rf"`{room}\.(?:\w+/)?([A-Z*][\w*]*)\.([\w*]+)`", page))):
            if not fnmatch.filter(tests, f"{suite}.{name}"):
                errors.append(f"hardening.md: there is no test {room}.{suite}.{name}")


def main(root):
    errors = []
    check_hardening(root, errors)
    check_rooms(root, errors)
    check_hostile_files(root, errors)
    check_tables(root, errors)
    check_whole_tables(root, errors)
    check_picture(root, errors)
    rows = check_way(root, errors)
    links = check_links(root, errors)
    print("\n".join(errors) or f"{rows} rows and {links} links are true")
    return bool(errors)


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve()))
