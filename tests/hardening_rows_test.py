#!/usr/bin/env python3
"""Checks docs/hardening.md: each row of the catalogue of API parameters (AP) and of Harmony (HM) has
tests at every API, and these tests exist.

usage: hardening_rows_test.py ROOT SERVER_TEST

In the tables whose first column names a row ("| AP-07 |"), the third and later columns are apis: each
says in backticks which tests hold it there, a trailing * standing for any ending, or "- why not".
"""
import fnmatch
import pathlib
import re
import subprocess
import sys

ROWS = [f"AP-{n:02}" for n in range(1, 37)] + [f"HM-{n:02}" for n in range(1, 20)]
APIS = 3
CODE = re.compile(r"`([^`]+)`")


def tests_of(program):
    listed = subprocess.run([program, "--gtest_list_tests"], capture_output=True, text=True,
                            check=True, timeout=60).stdout
    names, suite = [], ""
    for line in listed.splitlines():
        word = line.split("#")[0].rstrip()
        if word.startswith(" "):
            names.append(suite + word.strip())
        else:
            suite = word
    return names


def complaints(page, names):
    found = []
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if not re.fullmatch(r"(AP|HM)-\d\d", cells[0]):
            continue
        row = cells[0]
        found.append(row)
        apis = cells[2:]
        if len(apis) != APIS:
            yield f"{row}: {len(apis)} apis, not {APIS}"
        for api in apis:
            patterns = CODE.findall(api)
            if api.startswith("- "):
                if len(api) < 10:
                    yield f"{row}: '{api}' is no reason"
                continue
            if not patterns:
                yield f"{row}: an API without a test and without a reason"
            for pattern in patterns:
                if not fnmatch.filter(names, pattern):
                    yield f"{row}: no test '{pattern}'"
                if row.replace("-", "") not in pattern.replace("_", "").replace("-", ""):
                    yield f"{row}: '{pattern}' is not named after it"
    for row in ROWS:
        if found.count(row) != 1:
            yield f"{row}: {found.count(row)} lines"


def main():
    page = (pathlib.Path(sys.argv[1]) / "docs" / "hardening.md").read_text()
    # That it sees what is missing.
    broken = page.replace("| AP-07 |", "| AP-99 |").replace("AP08_", "AP08x_")
    seen = list(complaints(broken, tests_of(sys.argv[2])))
    assert any("AP-07: 0 lines" in one for one in seen) and any("AP08x_" in one for one in seen), seen
    errors = list(complaints(page, tests_of(sys.argv[2])))
    for error in errors:
        print(f"docs/hardening.md: {error}", file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
