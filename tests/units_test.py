#!/usr/bin/env python3
"""The systemd units that the package ships: systemd finds nothing wrong with them, each command is one that the binary takes, and all are confined
alike.

usage: units_test.py BINARY
"""
import configparser
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
UNITS = sorted((ROOT / "packaging").glob("*.service"))
BINARY = None
# What a unit may be without: a gateway has no models and starts nobody.
OWN = {"ExecStart", "ExecReload", "TimeoutStopSec", "RestartPreventExitStatus", "KillMode", "StateDirectory", "CacheDirectory", "WorkingDirectory",
       "Environment", "LimitMEMLOCK", "ProtectProc", "ReadWritePaths"}


def service(unit):
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str
    parser.read(unit)
    return dict(parser["Service"])


class Units(unittest.TestCase):
    def test_all_are_installed(self):
        installed = re.search(r"install\(FILES ([^)]*\.service)", (ROOT / "packaging/CMakeLists.txt").read_text()).group(1).split()
        self.assertEqual({unit.name for unit in UNITS}, set(installed))
        for script in ("prerm", "postrm"):
            text = (ROOT / "packaging" / script).read_text()
            for unit in UNITS:
                # Of a template there is nothing that a purge could know by name.
                if script == "prerm" or "@" not in unit.name:
                    self.assertIn(unit.name.replace("@", "@*"), text, script)

    def test_commands_are_the_binarys(self):
        for unit in UNITS:
            program, verb, *words = service(unit)["ExecStart"].split()
            self.assertEqual(program, "/usr/bin/pelton")
            done = subprocess.run([BINARY, verb, "--help"], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, unit.name)
            for word in words:
                if word.startswith("--"):
                    self.assertIn(word, re.findall(r"--[a-z-]+", done.stdout), unit.name)

    def test_a_gateway_may_write_its_own_configuration_and_nothing_else(self):
        keys = service(ROOT / "packaging" / "pelton-gateway.service")
        file = pathlib.PurePosixPath(keys["ExecStart"].split()[-1])
        self.assertEqual(keys["ReadWritePaths"], f"-{file.parent}")
        self.assertNotEqual(file.parent, pathlib.PurePosixPath("/etc/pelton"), "keys are there")
        self.assertIn(f"install -d -o pelton -g pelton -m 0750 {file.parent}\n", (ROOT / "packaging" / "postinst").read_text())
        for unit in UNITS:
            if unit.name != "pelton-gateway.service":
                self.assertNotIn("ReadWritePaths", service(unit))
        # The other one that reads it.
        self.assertEqual(service(ROOT / "packaging" / "pelton-autoscale.service")["ExecStart"].split()[-1], str(file))

    def test_the_example_is_a_gateways_file(self):
        done = subprocess.run([BINARY, "gateway", "--config", ROOT / "packaging" / "gateway.toml", "--check"], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_they_are_confined_alike(self):
        first = service(ROOT / "packaging" / "pelton.service")
        self.assertEqual(first["NoNewPrivileges"], "yes")
        for unit in UNITS:
            keys = service(unit)
            self.assertEqual({key: value for key, value in keys.items() if key not in OWN},
                             {key: value for key, value in first.items() if key not in OWN}, unit.name)
        # systemd would end the autoscaler's replicas with it.
        self.assertEqual(service(ROOT / "packaging" / "pelton-autoscale.service")["KillMode"], "process")
        for unit in UNITS:
            self.assertEqual(service(unit)["ProtectProc"], "default" if unit.name == "pelton-autoscale.service" else "invisible")
        self.assertIn("%i", service(ROOT / "packaging" / "pelton@.service")["ExecStart"])

    @unittest.skipUnless(shutil.which("systemd-analyze"), "systemd-analyze is not installed")
    def test_systemd_understands_them(self):
        with tempfile.TemporaryDirectory() as scratch:
            for unit in UNITS:
                copy = pathlib.Path(scratch) / unit.name.replace("@", "@name")
                text = unit.read_text().replace("/usr/bin/pelton", BINARY)
                copy.write_text(text)
                done = self.verify(copy)
                self.assertEqual((done.returncode, done.stderr), (0, ""), unit.name)
                # Would it see anything?
                copy.write_text(text.replace("KillMode", "KillMood").replace("NoNewPrivileges", "NoNewPrivilege"))
                self.assertIn("Unknown key", self.verify(copy).stderr)

    @staticmethod
    def verify(unit):
        return subprocess.run(["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", unit], capture_output=True, text=True, check=False)


if __name__ == "__main__":
    BINARY = os.path.abspath(sys.argv[1])
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
