#!/usr/bin/env python3
"""`pelton fleet init`: what it writes is a fleet. Its script, with a double of ssh in place of the real one, takes each host's files to a folder
that stands for the host; the services' commands, run as processes with these files, find each other and answer.

usage: fleet_init_test.py BINARY
"""
import json
import os
import pathlib
import re
import stat
import subprocess
import sys
import tempfile
import time
import tomllib
import unittest

import gateway_fixture
from gateway_fixture import BOX, SCRIPT, Process, ask
from ports import free_port

HOSTS = ["127.0.0.2", "127.0.0.3"]
# Root, who runs the command below the folder that is the host. systemctl and useradd say what they were asked.
SSH = """#!/usr/bin/env bash
set -euo pipefail
[[ $1 == -o ]] && shift 2
root=$HOSTS_FOLDER/${1#*@}
mkdir -p "$root"
printf '%s %s\\n' "$1" "$2" >>"$HOSTS_FOLDER/log"
command=${2//tar -C \\/ /tar -C $root }
command=${command//\\/usr\\/bin\\/pelton/$PELTON}
command=${command//\\/etc\\/pelton\\//$root/etc/pelton/}
PATH=$HOSTS_FOLDER/bin:$PATH exec bash -c "$command"
"""


class FleetInit(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.addCleanup(self.scratch.cleanup)
        self.folder = pathlib.Path(self.scratch.name)

    def init(self, *words):
        return subprocess.run([gateway_fixture.BINARY, "fleet", "init", *words, "--out", "fleet"], cwd=self.folder, capture_output=True, text=True, check=False)

    def install(self, *words):
        hosts = self.folder / "sites"
        (hosts / "bin").mkdir(parents=True, exist_ok=True)
        for name, text in (("ssh", SSH), ("systemctl", '#!/bin/sh\necho "systemctl $*" >>"$HOSTS_FOLDER/log"\n'), ("getent", "#!/bin/sh\nexit 0\n"),
                           ("chown", '#!/bin/sh\necho "chown $*" >>"$HOSTS_FOLDER/log"\n')):
            (hosts / "bin" / name).write_text(text)
            (hosts / "bin" / name).chmod(0o755)
        return subprocess.run([self.folder / "fleet" / "install.sh", *words], capture_output=True, text=True, check=False, env={
            **os.environ, "PATH": f"{hosts / 'bin'}:{os.environ['PATH']}", "HOSTS_FOLDER": str(hosts), "PELTON": gateway_fixture.BINARY})

    def test_what_it_writes_is_a_fleet(self):
        ports = [free_port() for _ in range(3)]
        done = self.init("ann@" + HOSTS[0], HOSTS[1], "--model", str(BOX), "--fleet-port", str(ports[0]), "--port", str(ports[1]))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"a gateway on {HOSTS[0]}", done.stdout)
        fleet = self.folder / "fleet"
        self.assertEqual(stat.S_IMODE(fleet.stat().st_mode), 0o700)
        for secret in ("fleet.key", "keys"):
            self.assertEqual(stat.S_IMODE((fleet / secret).stat().st_mode), 0o600)
        subprocess.run(["bash", "-n", fleet / "install.sh"], check=True)
        done = self.install("--dry-run")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertFalse((self.folder / "sites" / "log").exists(), "it only says what it would do")
        self.assertIn(f"ann@{HOSTS[0]}: test -x /usr/bin/pelton && systemctl daemon-reload && systemctl enable pelton@worker pelton-gateway", done.stdout)
        done = self.install()
        self.assertEqual(done.returncode, 0, done.stderr)
        log = (self.folder / "sites" / "log").read_text()
        self.assertEqual(re.findall(r"^systemctl restart (.*)$", log, re.MULTILINE), ["pelton@worker pelton-gateway", "pelton@worker"])
        self.assertEqual(re.findall(r"^chown (.*)$", log, re.MULTILINE), [f"-R pelton: {self.folder / 'sites' / HOSTS[0]}/etc/pelton/gateway"], "the gateway's alone")
        key = (fleet / "keys").read_text().split()[0]
        self.assertNotIn(key, log, "keys are no words of a command line")
        self.expect_it_answers(ports, key)
        self.assertEqual(self.install("--remove").returncode, 0)
        self.assertEqual(list((self.folder / "sites").rglob("fleet.key")), [])

    def command(self, host, unit):
        """What systemd would start there, with the host's folder in place of its root and its address in place of every one."""
        root = self.folder / "sites" / host
        text = (root / "etc/systemd/system" / f"{unit}.service").read_text()
        words = re.search(r"^ExecStart=/usr/bin/pelton (.*)$", text, re.MULTILINE).group(1).replace("%i", "worker").replace("/etc/pelton", str(root / "etc/pelton")).split()
        file = pathlib.Path(words[words.index("--config") + 1])
        file.write_text(file.read_text().replace("/etc/pelton", str(root / "etc/pelton")).replace('"0.0.0.0', f'"{host}').replace("port = 8001", "port = 0")
                        .replace('"127.0.0.1:8091"', '"127.0.0.1:0"'))
        return words

    def expect_it_answers(self, ports, key):
        (self.folder / "script.json").write_text(json.dumps({**SCRIPT, "step_ms": 1}))
        for host in HOSTS:
            worker = Process(*self.command(host, "pelton@"), "--executor", f"modelled:{self.folder / 'script.json'}")
            self.addCleanup(worker.end)
        config = self.folder / "sites" / HOSTS[0] / "etc/pelton/gateway/gateway.toml"
        gateway = Process(*self.command(HOSTS[0], "pelton-gateway"))
        self.addCleanup(gateway.end)
        self.assertEqual([one["url"] for one in tomllib.loads(config.read_text())["worker"]], [f"http://{host}:{ports[0]}" for host in HOSTS])
        admin = int(re.search(r":(\d+)$", gateway.process.stdout.readline().strip()).group(1))
        end = time.monotonic() + 15
        while sum(one["state"] == "ready" for one in json.loads(ask(admin, "GET", "/v1/workers")[1])["workers"]) < 2:
            self.assertLess(time.monotonic(), end, list(gateway.log))
            time.sleep(0.05)
        body = json.dumps({"model": "pelton-box", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8})
        url = f"http://{HOSTS[0]}:{ports[1]}/v1/chat/completions"
        for header, status in ((f"Authorization: Bearer {key}", "200"), ("X-No: key", "401")):
            done = subprocess.run(["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", url, "-H", header, "-H", "Content-Type: application/json", "-d", body],
                                  capture_output=True, text=True, check=True, timeout=30)
            self.assertEqual(done.stdout, status)

    def test_a_gateway_of_its_own(self):
        self.assertEqual(self.init("one", "two", "--gateway", "front").returncode, 0)
        hosts = self.folder / "fleet" / "hosts"
        self.assertEqual({file.name: sorted(one.name for one in file.rglob("*") if one.is_file()) for file in hosts.iterdir()}, {
            "front": ["fleet.key", "gateway.toml", "keys", "pelton-gateway.service"], "one": ["fleet.key", "pelton@.service", "worker.toml"],
            "two": ["fleet.key", "pelton@.service", "worker.toml"]})

    def test_what_is_wrong_is_refused_and_writes_nothing(self):
        for words, reason in ((["a b"], "is no host"), (["$(reboot)"], "is no host"), (["-o"], "-o"), (["a;b"], "is no host"), (["x@y@z"], "is no host"), (["../x"], "is no host"),
                              (["fe80::1"], "is no host"), (["one", "ann@one"], "is there twice"), (["one", "--gateway", "'"], "is no host"), (["one", "--name", ""], "name")):
            done = self.init(*words)
            self.assertEqual(done.returncode, 2, words)
            self.assertIn(reason, done.stderr)
            self.assertFalse((self.folder / "fleet").exists(), words)
        self.assertEqual(self.init("one").returncode, 0)
        key = (self.folder / "fleet" / "fleet.key").read_text()
        done = self.init("one")
        self.assertEqual(done.returncode, 2)
        self.assertIn("is there already", done.stderr)
        self.assertEqual((self.folder / "fleet" / "fleet.key").read_text(), key)


if __name__ == "__main__":
    gateway_fixture.BINARY = os.path.abspath(sys.argv[1])
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
