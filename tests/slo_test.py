#!/usr/bin/env python3
"""The project's own objectives (deploy/slo.toml), each played in the simulator.

usage: slo_test.py BINARY
"""
import json
import pathlib
import subprocess
import sys
import tomllib
import unittest

BINARY = None
ROOT = pathlib.Path(__file__).resolve().parent.parent


def figures_of(play):
    done = subprocess.run([BINARY, "simulate", *play.split(), "--json", "-"], capture_output=True, text=True, timeout=120, check=False, cwd=ROOT)
    assert done.returncode == 0, (play, done.stderr[-2000:])
    said = json.loads(done.stdout)
    if "availability" in said:
        return {"availability": sum(said["availability"]) / len(said["availability"])}
    figures = said["fleet"]["figures"]
    requests = max(figures["requests"], 1)
    return {**figures, "late_share": figures["late"] / requests, "lost_share": figures["lost"] / requests}


class Objectives(unittest.TestCase):
    def test_each_is_kept(self):
        objectives = tomllib.loads((ROOT / "deploy" / "slo.toml").read_text())["objective"]
        self.assertGreaterEqual(len(objectives), 3)
        for one in objectives:
            figures = figures_of(one["play"])
            for name, bound in one["bounds"].items():
                self.assertTrue(bound, f"{one['name']}: {name} has no bound")
                self.assertIsNotNone(figures[name], one["name"])
                print(f"{one['name']}: {name} {figures[name]:.5g}, bound {bound}", flush=True)
                self.assertGreaterEqual(figures[name], bound.get("least", float("-inf")), f"{one['name']}: {name}")
                self.assertLessEqual(figures[name], bound.get("most", float("inf")), f"{one['name']}: {name}")


if __name__ == "__main__":
    BINARY = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main(verbosity=2)
