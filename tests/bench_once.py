#!/usr/bin/env python3
"""Runs each benchmark of a program once with its first arguments, so that none of them is broken when somebody wants to
measure; all of them with PELTON_FULL=1.

usage: bench_once.py BENCH
"""
import os
import re
import subprocess
import sys


def main():
    bench = sys.argv[1]
    names = subprocess.run([bench, "--benchmark_list_tests"], check=True, capture_output=True,
                           text=True).stdout.split("\n")
    first = {}
    for name in filter(None, names):
        first.setdefault(name.split("/")[0], name)
    if not first:
        sys.exit(f"{bench} has no benchmarks")
    chosen = list(filter(None, names)) if os.environ.get("PELTON_FULL") else list(first.values())
    pattern = "|".join(re.escape(name) for name in chosen)
    run = subprocess.run([bench, "--benchmark_min_time=0.0000001", f"--benchmark_filter=^({pattern})$"], check=False,
                         capture_output=True, text=True)
    print(run.stdout, run.stderr)
    ran = {line.split()[0] for line in run.stdout.splitlines() if line.strip()}
    missing = [name for name in chosen if name not in ran]
    if run.returncode != 0 or missing or "ERROR OCCURRED" in run.stdout:
        sys.exit(f"exit code {run.returncode}; did not run: {missing}")


if __name__ == "__main__":
    main()
