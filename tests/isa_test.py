#!/usr/bin/env python3
"""What is compiled for AVX2, AVX-512, AMX, or Arm's dotprod or i8mm leaves nothing behind that the whole program shares.

usage: isa_test.py NM OBJECT...

A template or inline function of the standard library that such a file needs and does not inline
becomes a weak symbol, and the linker keeps one of all files' copies: perhaps the one that a processor
without these instructions cannot run. Looks at the objects whose names say so.
"""
import pathlib
import subprocess
import sys


def weak_functions(nm, path):
    lines = subprocess.run([nm, "--defined-only", "--demangle", path], check=True,
                           capture_output=True, text=True).stdout.splitlines()
    return [line.split(" W ", 1)[1] for line in lines if " W " in line]


def main():
    nm, *objects = sys.argv[1:]
    special = [path for path in objects if any(word in pathlib.Path(path).name for word in ("avx", "amx", "dotprod", "i8mm"))]
    least = 2 if any("neon" in pathlib.Path(path).name for path in objects) else 4
    if len(special) < least:
        sys.exit(f"{len(special)} objects of special instruction sets by their names among {len(objects)}")
    shared = [(path, name) for path in special for name in weak_functions(nm, path)]
    for path, name in shared:
        print(f"{pathlib.Path(path).name} shares {name}")
    if shared:
        sys.exit("move what needs it to a file that is compiled for any processor (kernels/cpu/step_workspace.cc)")
    print(f"{len(special)} objects share nothing")


if __name__ == "__main__":
    main()
