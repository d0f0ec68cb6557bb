#!/usr/bin/env python3
"""What `pelton posture` says of servers and gateways by their settings, and that a process which is started so is what was said.

usage: posture_test.py BINARY
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import gateway_fixture
from gateway_fixture import BOX, Process, ask
from ports import free_port

DOCS = pathlib.Path(__file__).resolve().parent.parent / "docs"
PROFILES = ("local", "shared", "regulated")
SECRET = "0123456789abcdef" * 4


class Posture(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.keys = self.secret("keys", "sk-acme-0123456789 acme\nsk-vera-0123456789 vera role=view\n# none\nsk-ann-0123456789 ann role=admin\n")
        self.seal = self.secret("audit.key", SECRET)
        self.log = self.folder / "audit.jsonl"

    def secret(self, name, text, mode=0o600):
        file = self.folder / name
        file.write_text(text)
        file.chmod(mode)
        return file

    def judged(self, command, profile, code=None):
        done = subprocess.run([gateway_fixture.BINARY, "posture", command, "--profile", profile, "--json"], capture_output=True, text=True, timeout=60, check=False)
        self.assertIn(done.returncode, (0, 1) if code is None else (code,), done.stderr)
        said = json.loads(done.stdout)
        self.assertEqual((said["profile"], said["passes"]), (profile, done.returncode == 0))
        return said

    def failed(self, command, profile="regulated"):
        return {one["rule"]: one["why"] for one in self.judged(command, profile)["findings"] if not one["passes"]}

    def gateway(self, more="", gateway=""):
        config = self.folder / "gateway.toml"
        config.write_text(f'[gateway]\nlisten = "127.0.0.1:0"\nadmin = "127.0.0.1:{free_port()}"\nkeys_file = "{self.keys}"\n{gateway}'
                          f'[[pool]]\nname = "a"\nmodel = "m"\n{more}')
        return f"gateway --config {config} --admin-keys --audit-log {self.log} --audit-key-file {self.seal}"

    def test_each_profile_has_the_rules_that_the_docs_list(self):
        page = (DOCS / "compliance.md").read_text()
        rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \|", page.split("## Posture", 1)[1].split("## Foreign code", 1)[0], re.M)
        self.assertEqual(len(rows), 11)
        command = self.gateway()
        for number, profile in enumerate(PROFILES):
            rules = [one["rule"] for one in self.judged(command, profile)["findings"]]
            self.assertEqual(rules, [rule for rule, since in rows if PROFILES.index(since) <= number])

    def test_a_gateway(self):
        sound = self.gateway()
        said = self.judged(sound, "regulated", 0)
        self.assertEqual(said["of"], "gateway")
        self.assertEqual({one["name"]: (one["local"], one["asks"], one["tls"]) for one in said["listeners"]}, {"clients": (True, True, False), "admin": (True, True, False)})
        self.assertEqual(said["keys"], {"clients": 1, "view": 1, "operate": 0, "admin": 1})
        self.assertEqual({one["what"]: one["mode"] for one in said["secrets"]}, {"keys_file": "0600", "--audit-key-file": "0600"})
        self.assertEqual(said["configuration"]["gateway"]["keys_file"], str(self.keys))
        self.assertEqual(said["configuration"]["gateway"]["retries"], 2, "what the file leaves out, too")
        self.assertEqual(said["flags"]["--admin-keys"], "true")
        self.assertFalse([word for word in ("sk-acme", "sk-ann", SECRET) if word in json.dumps(said)])
        self.assertEqual(self.failed(sound.replace(" --admin-keys", "")).keys(), {"operators_have_keys"})
        self.assertEqual(self.failed(sound.split(" --audit-log")[0]).keys(), {"audit_kept"})
        self.keys.chmod(0o644)
        self.assertIn("mode 0644", self.failed(sound, "local")["secrets_private"])
        self.keys.chmod(0o600)
        worker = '[[worker]]\npool = "a"\nurl = "http://10.0.0.9:9000"\n'
        self.assertIn("worker 10.0.0.9:9000", self.failed(self.gateway(worker))["links_encrypted"])
        fleet = self.folder / "fleet.key"
        subprocess.run([gateway_fixture.BINARY, "gateway", "--new-key", fleet], check=True)
        with_key = f'fleet_key_file = "{fleet}"\n'
        self.assertEqual(self.failed(self.gateway(worker, with_key)), {})
        etcd = '[etcd]\nendpoints = ["10.0.0.3:2379"]\n'
        self.assertEqual(self.failed(self.gateway(etcd, with_key)).keys(), {"links_encrypted", "workers_bounded"})
        self.assertEqual(self.failed(self.gateway(etcd, with_key + 'allowed_cidrs = ["10.0.0.0/8"]\n')).keys(), {"links_encrypted"})
        scaled = "[pool.scale]\n"
        self.assertEqual(self.failed(self.gateway(scaled)).keys(), {"workers_bounded"})
        # Beyond this machine, where a start would ask for --open.
        command = self.gateway()
        config = self.folder / "gateway.toml"
        config.write_text(config.read_text().replace('listen = "127.0.0.1:0"', 'listen = "0.0.0.0:8000"').replace(f'keys_file = "{self.keys}"\n', ""))
        self.assertEqual(self.failed(command, "local").keys(), {"listeners_ask"})
        self.assertEqual(self.failed(command).keys(), {"listeners_ask", "clients_have_keys", "listeners_encrypted", "roles_apart"})

    def test_a_server(self):
        store = self.folder / "responses.db"
        sound = (f"serve {BOX} --port 0 --api-key-file {self.keys} --admin-port 0 --admin-keys --audit-log {self.log} --audit-key-file {self.seal} "
                 f"--response-store sqlite:{store} --store-key-file {self.secret('store.key', SECRET)}")
        said = self.judged(sound, "regulated", 0)
        self.assertEqual([(one["what"], one["place"], one["has_text"], one["encrypted"]) for one in said["storage"] if one["has_text"]],
                         [("responses", str(store), True, True)])
        self.assertEqual(said["flags"]["--response-store"], f"sqlite:{store}")
        self.assertEqual(self.failed(sound.split(" --store-key-file")[0]).keys(), {"storage_encrypted"})
        self.assertEqual(self.failed(sound + " --allow-core-dumps").keys(), {"no_core_dumps"})
        self.assertEqual(self.failed(sound + " --host 0.0.0.0").keys(), {"listeners_encrypted"})
        self.assertEqual(self.failed(sound + " --fleet-port 0 --fleet-host 0.0.0.0 --host 0.0.0.0 --open", "local").keys(), {"listeners_ask"})
        self.assertIn("--api-key in the command's words", self.failed(f"serve {BOX} --api-key sk-0123456789", "local")["secrets_private"])
        bare = self.failed(f"serve {BOX}")
        self.assertEqual(bare.keys(), {"clients_have_keys", "audit_kept", "roles_apart"})

    def test_what_is_said_is_what_runs(self):
        command = self.gateway()
        listeners = {one["name"]: one for one in self.judged(command, "shared", 0)["listeners"]}
        process = Process(*command.split(), "--allow-empty")
        self.addCleanup(process.end)
        admin = int(listeners["admin"]["address"].rsplit(":", 1)[1])
        self.assertEqual(ask(process.port, "GET", "/v1/models")[0] == 401, listeners["clients"]["asks"])
        self.assertEqual(ask(admin, "GET", "/v1/workers")[0] == 401, listeners["admin"]["asks"])

    def test_what_starts_nothing_is_refused(self):
        for command, code in (("", 2), ("bench serve", 2), ("gateway --new-key x", 2), ("serve --no-such-flag", 2), (f"gateway --config {self.folder / 'none'}", 3)):
            done = subprocess.run([gateway_fixture.BINARY, "posture", command], capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual((done.returncode, done.stdout), (code, ""), (command, done.stderr))
        done = subprocess.run([gateway_fixture.BINARY, "posture", "serve x", "--profile", "strict"], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 2, done.stderr)


if __name__ == "__main__":
    gateway_fixture.BINARY = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
