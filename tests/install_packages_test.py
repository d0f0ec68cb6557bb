#!/usr/bin/env python3
"""tools/install_packages on systems that are not this one: programs of Debian's stand in for dpkg and apt.

usage: install_packages_test.py
"""
import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Debian 12's lists have Boost 1.81, the later ones 1.83 (looked up in November 2026).
BOOST = {"debian-12": "libboost1.81-dev", "debian-13": "libboost1.83-dev", "ubuntu-24.04": "libboost1.83-dev"}


class InstallPackages(unittest.TestCase):
    def run_on(self, system, *, installed=(), known=(), lists_fetched=True, flags=()):
        """Installs on `system` ("debian-13"), whose lists know all but Boost's names that are not in `known`."""
        name, version = system.split("-")
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "os-release").write_text(f'ID={name}\nVERSION_ID="{version}"\nPRETTY_NAME="{name} {version}"\n')
            if lists_fetched:
                (folder / "lists").touch()
            programs = {
                "dpkg-query": "\n".join(f"echo 'ii  {package}'" for package in installed) or "true",
                "apt-cache": f'[ -e {folder}/lists ] || exit 0\n'
                             f'case " {" ".join(known)} " in *" $2 "*) echo "  Candidate: 1" ;;\n'
                             '*) echo "  Candidate: (none)" ;; esac',
                "apt-get": f'echo "$@" >>{folder}/asked\n'
                           f'case $1 in update) touch {folder}/lists; exit 0 ;; esac\n'
                           f'[ -e {folder}/lists ]',
                "id": "echo 0",
            }
            for program, text in programs.items():
                (folder / program).write_text(f"#!/bin/sh\n{text}\n")
                (folder / program).chmod(0o755)
            done = subprocess.run([ROOT / "tools" / "install_packages", *flags], capture_output=True, text=True,
                                  timeout=60, check=False,
                                  env={"PATH": f"{folder}:/usr/bin:/bin", "OS_RELEASE_FILE": f"{folder}/os-release"})
            asked = (folder / "asked").read_text() if (folder / "asked").exists() else ""
        return done, asked

    def test_C13_names_of_packages_are_the_releases_own(self):
        for system, boost in BOOST.items():
            done, asked = self.run_on(system, known=[boost])
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f" {boost} ", asked)
            self.assertEqual(sum(word.startswith("libboost") for word in asked.split()), 1, asked)

    def test_C13_names_are_chosen_anew_once_the_lists_are_there(self):
        done, asked = self.run_on("debian-13", known=["libboost1.83-dev"], lists_fetched=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([line.split()[0] for line in asked.splitlines()], ["install", "update", "install"])
        self.assertIn(" libboost1.83-dev ", asked.splitlines()[2])

    def test_C13_another_name_that_is_installed_will_do(self):
        done, asked = self.run_on("debian-13", installed=["libboost1.83-dev"], known=["libboost1.83-dev"])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("libboost", asked)

    def test_C13_it_says_where_nobody_has_tried(self):
        self.assertNotIn("Debian 12", self.run_on("debian-12", known=["libboost1.81-dev"])[0].stderr)
        for system in ("debian-13", "ubuntu-24.04"):
            words = self.run_on(system, known=[BOOST[system]])[0].stderr
            self.assertIn(f"this is {system.replace('-', ' ')}", words)
            self.assertIn("tested on Debian 12 only", " ".join(words.split()))
        words = self.run_on("ubuntu-22.04", known=["libboost-dev"])[0].stderr
        self.assertIn("this is ubuntu 22.04. Pelton was built and tested on Debian 12 only", words)

    def test_nothing_is_said_and_done_where_nothing_is_missing(self):
        done, asked = self.run_on("debian-12", known=["libboost1.81-dev"])
        packages = asked.split()[3:]
        done, asked = self.run_on("ubuntu-22.04", installed=packages)
        self.assertEqual((done.returncode, done.stderr, asked), (0, "", ""))


if __name__ == "__main__":
    unittest.main()
