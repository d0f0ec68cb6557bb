#!/usr/bin/env python3
"""What a gateway's operators get of it: a configuration file that it may not write is said to be so, and a dry run writes nothing; whoever only looks
starts no replica; its ledger, and which alerts would fire; who tried what stands in the audit.

usage: gateway_operators_test.py BINARY
"""
import http.client
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
import unittest

import gateway_fixture
from ports import free_port

ROOT = pathlib.Path(__file__).resolve().parent.parent
BINARY = None
NOBODY = 65534
KEY = "a-long-secret-of-ann"
CONFIG = """[gateway]
listen = "127.0.0.1:0"
admin = "127.0.0.1:{port}"
keys_file = "{keys}"

[[pool]]
name = "box"
model = "pelton-box"

[pool.scale]
min = 0
max = 2

[pool.launch]
serve = ["models/none"]

[[pool]]
name = "other"
model = "org/other"

[pool.scale]
min = 0
max = 2

[pool.launch]
serve = ["models/none"]
"""


class Gateway:
    """Of two pools at zero. Its folder is not its own to write: it runs as nobody, if we are root."""

    def __init__(self, folder):
        self.folder = folder
        self.port = free_port()
        self.file = folder / "etc" / "gateway.toml"
        self.file.parent.mkdir()
        keys = folder / "keys"
        keys.write_text(f"{KEY} ann role=admin\nclients-key clients\n")
        self.text = CONFIG.format(port=self.port, keys=keys)
        self.file.write_text(self.text)
        work = folder / "work"
        work.mkdir()
        who = []
        if os.getuid() == 0:
            os.chown(work, NOBODY, NOBODY)
            folder.chmod(0o755)
            who = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        self.file.parent.chmod(0o555)
        self.process = subprocess.Popen([*who, BINARY, "gateway", "--config", self.file, "--with-autoscaler", "--log-level", "info"], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, cwd=work)
        self.log = []
        self.reader = threading.Thread(target=lambda: self.log.extend(self.process.stderr), daemon=True)
        self.reader.start()
        self.listen = None
        for line in self.process.stdout:
            if line.startswith("listening on "):
                self.listen = int(line.rsplit(":", 1)[1])
            if line.startswith("admin on "):
                break
        assert self.process.poll() is None, self.log

    def ask(self, path, method="GET", body=None, headers=None, port=None):
        connection = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=20)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read(), answer.headers
        finally:
            connection.close()

    def json(self, path, *more, **named):
        status, body, _ = self.ask(path, *more, **named)
        return status, json.loads(body)

    def client(self, path, method="GET"):
        return self.json(path, method, headers={"Authorization": "Bearer clients-key"}, port=self.listen)

    def sign_in(self):
        status, body, headers = self.ask("/console/session", "POST", json.dumps({"key": KEY}), {"Content-Type": "application/json"})
        assert status == 200, body
        return {"Cookie": headers["Set-Cookie"].split(";")[0], "X-Pelton-Token": json.loads(body)["token"]}

    def audit(self):
        return [line.split("audit: ", 1)[1].strip() for line in self.log if "audit: " in line]

    def close(self):
        self.process.terminate()
        self.process.wait(30)
        self.reader.join()
        self.process.stdout.close()
        self.process.stderr.close()
        self.file.parent.chmod(0o755)


class Operators(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.gateway = Gateway(pathlib.Path(cls.scratch.name))

    @classmethod
    def tearDownClass(cls):
        cls.gateway.close()
        cls.scratch.cleanup()

    def until(self, holds, what):
        end = time.monotonic() + 10
        while not holds():
            self.assertLess(time.monotonic(), end, what)
            time.sleep(0.05)

    def test_a_file_that_may_not_be_written(self):
        other = self.gateway.text.replace("[gateway]\n", "[gateway]\nretries = 3\n")
        status, said = self.gateway.json("/v1/config?dry_run=true", "PUT", other)
        self.assertEqual((status, said["writable"], said["takes_new_start"]), (200, False, []))
        self.assertIn("retries = 3", said["file"])
        status, said = self.gateway.json("/v1/config?dry_run=true", "PUT", other.replace("retries = 3", "retries = -3"))
        self.assertEqual((status, said["error"]["code"]), (400, "bad_config"))
        status, said = self.gateway.json("/v1/config", "PUT", other)
        self.assertEqual((status, said["error"]["code"]), (409, "config_not_writable"))
        for word in (str(self.gateway.file), "Permission denied", "kubectl apply", "operations.md"):
            self.assertIn(word, said["error"]["message"])
        # What is wrong is wrong before it is anything else.
        self.assertEqual(self.gateway.json("/v1/config", "PUT", "[gateway")[0], 400)
        new = self.gateway.folder / "new.toml"
        new.write_text(other)
        done = subprocess.run([BINARY, "fleet", "config", "put", new, "--admin", f"http://127.0.0.1:{self.gateway.port}"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("may not write its file", done.stderr)
        self.assertEqual(self.gateway.file.read_text(), self.gateway.text)
        self.assertEqual([one.name for one in self.gateway.file.parent.iterdir()], ["gateway.toml"])
        self.assertNotIn("retries = 3", self.gateway.ask("/v1/config?form=effective")[1].decode())
        signed = self.gateway.sign_in()
        status, said = self.gateway.json("/console/config", "PUT", other, signed)
        self.assertEqual((status, said["error"]["code"]), (409, "config_not_writable"))
        self.until(lambda: "ann from 127.0.0.1: configure: refused: the file may not be written" in self.gateway.audit(), self.gateway.log)

    def test_who_only_looks_starts_no_replica(self):
        for path, status, code in (("/v1/models", 200, None), ("/v1/models/pelton-box", 200, None), ("/v1/model_cards/pelton-box", 503, "no_replica"),
                                   ("/v1/model_cards/org/other", 503, "no_replica"), ("/v1/model_cards/none", 404, "model_not_found"), ("/api/tags", 200, None),
                                   ("/health", None, None), ("/v1/responses/resp_none", None, None), ("/v1/files", None, None), ("/v1/batches", None, None),
                                   ("/version", None, None), ("/api/version", None, None), ("/ping", None, None), ("/props", None, None)):
            with self.subTest(path):
                began = time.monotonic()
                got, said = self.gateway.client(path)
                self.assertLess(time.monotonic() - began, 5, "it is not held")
                if status:
                    self.assertEqual((got, (said.get("error") or {}).get("code")), (status, code))
        time.sleep(1.2)  # a decision
        for pool in self.gateway.json("/v1/autoscaler")[1]["pools"]:
            self.assertEqual((pool["desired"], pool["starts"]), (0, 0), pool)

    def test_ledger_and_conditions(self):
        status, ledger = self.gateway.json("/debug/ledger")
        self.assertEqual((status, ledger["clean"], ledger["state"], ledger["workers"]), (200, True, "serving", []))
        self.assertEqual(ledger["requests"], {"open": 0, "waiting": 0, "held": 0, "suspects": 0})
        self.assertGreater(ledger["process"]["descriptors"]["count"], 3)
        self.until(lambda: any(one["pool"] for one in self.gateway.json("/v1/conditions")[1]["conditions"]), "a sample was noted")
        conditions = self.gateway.json("/v1/conditions")[1]["conditions"]
        self.assertEqual({one["pool"] for one in conditions}, {"", "box", "other"})
        self.assertEqual([one for one in conditions if one["state"] == "firing"], [])
        # They are the rules' own, word for word and number for number.
        alerts = {one["name"]: one for one in tomllib.loads((ROOT / "deploy" / "metrics.toml").read_text())["alert"]}
        for one in conditions:
            rule = alerts[one["name"]]
            self.assertEqual((one["expr"], one["severity"]), (rule["expr"], rule["severity"]))
            seconds = int(rule["for"][:-1]) * {"s": 1, "m": 60, "h": 3600}[rule["for"][-1]]
            self.assertEqual(one["for_s"], seconds + (300 if one["name"] == "PeltonHeldLong" else 0), one["name"])
        # And none is left out: those that a gateway cannot judge are named, with who can.
        said = self.gateway.json("/v1/conditions")[1]
        for one in said["elsewhere"]:
            rule = alerts[one["name"]]
            seconds = int(rule["for"][:-1]) * {"s": 1, "m": 60, "h": 3600}[rule["for"][-1]]
            self.assertEqual((one["expr"], one["severity"], one["for_s"]), (rule["expr"], rule["severity"], seconds))
            self.assertIn(one["where"], ("server", "prometheus"))
        self.assertEqual(sorted({one["name"] for one in conditions}) + sorted(one["name"] for one in said["elsewhere"]),
                         sorted({one["name"] for one in conditions}) + sorted(set(alerts) - {one["name"] for one in conditions}))
        self.assertEqual([one["window_s"] for one in said["budgets"]], [900, 3600, 21600, 259200])
        self.assertEqual(self.gateway.ask("/v1/conditions", "POST", "{}")[0], 405)

    def test_other_pages_and_missing_tokens(self):
        for path in ("/console/fleet",):
            self.assertEqual(self.gateway.json(path, headers={"Origin": "http://evil.example"})[1]["error"]["code"], "forbidden_origin", path)
        signed = self.gateway.sign_in()
        del signed["X-Pelton-Token"]
        status, said = self.gateway.json("/console/workers/none/drain", "POST", "", signed)
        self.assertEqual((status, said["error"]["code"]), (403, "bad_token"))
        self.until(lambda: "ann from 127.0.0.1: drain none: refused: without the session's token" in self.gateway.audit(), self.gateway.log)
        self.assertEqual(self.gateway.json("/console/workers/none/drain", "POST", "", {**signed, "Origin": "http://evil.example"})[0], 403)
        self.until(lambda: "nobody from 127.0.0.1: drain none: refused: another page" in self.gateway.audit(), self.gateway.log)


class Erasing(unittest.TestCase):
    def test_a_tenant_is_erased_at_every_worker(self):
        """Stored responses, encrypted, each at its worker: pelton fleet erase reaches them while they run, and fails where it does not."""
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            keys, secret = folder / "keys", folder / "store.key"
            keys.write_text("anns-key ann\nbobs-key bob\n")
            secret.write_text("s" * 40 + "\n")
            fleet = gateway_fixture.Fleet(folder, 2, gateway=(f'keys_file = "{keys}"\n',), serve=(
                "--executor", f"modelled:{folder / 'script.json'}", "--response-store", f"sqlite:{folder}/r{{i}}.db", "--store-key-file", secret))
            self.addCleanup(fleet.close)

            def ask(who, method, path, body=None):
                status, text = gateway_fixture.ask(fleet.gateway.port, method, path, body, Authorization=f"Bearer {who}s-key")
                return status, json.loads(text)

            def erase():
                return subprocess.run([BINARY, "fleet", "erase", "--tenant", "ann", "--admin", f"http://127.0.0.1:{fleet.admin}"],
                                      capture_output=True, text=True, timeout=60, check=False)

            made = {}
            for who in ("ann", "bob"):
                for number in range(6):
                    status, said = ask(who, "POST", "/v1/responses", {"model": "pelton-box", "input": f"check {number}"})
                    self.assertEqual(status, 200, said)
                    made.setdefault(who, []).append(said["id"])
            for who, ids in made.items():
                self.assertEqual({ask(who, "GET", f"/v1/responses/{one}")[0] for one in ids}, {200}, who)
            done = erase()
            self.assertEqual((done.returncode, done.stdout), (0, "erased at all workers\n"), done.stderr)
            self.assertEqual({ask("ann", "GET", f"/v1/responses/{one}")[0] for one in made["ann"]}, {404})
            self.assertEqual({ask("bob", "GET", f"/v1/responses/{one}")[0] for one in made["bob"]}, {200})
            self.assertEqual(gateway_fixture.ask(fleet.admin, "POST", "/v1/erase_tenant")[0], 400)
            for path in ("/v1/erase_tenant", "/v1/reset_prefix_cache"):
                status, text = gateway_fixture.ask(fleet.admin, "POST", path + "?tenant=bob&tenant=ann")
                self.assertEqual((status, json.loads(text)["error"]["param"]), (400, "tenant"), text)
                status, text = gateway_fixture.ask(fleet.admin, "POST", path + "?tenant=bob", {"tenant": "bob"})
                self.assertEqual((status, json.loads(text)["error"]["param"]), (400, "body"), text)
            self.assertEqual({ask("bob", "GET", f"/v1/responses/{one}")[0] for one in made["bob"]}, {200})
            self.assertEqual(gateway_fixture.ask(fleet.admin, "POST", "/v1/erase_tenant?tenant=ann", Origin="http://evil.example")[0], 403)
            fleet.kill(1)
            failed = erase()
            self.assertNotEqual(failed.returncode, 0)
            self.assertIn("w1", failed.stderr)
            fleet.workers[0].end(signal.SIGTERM)
            fleet.workers[0] = None
            listed = subprocess.run([BINARY, "store", "ls", folder / "r0.db"], capture_output=True, text=True, timeout=60, check=True).stdout
            self.assertNotIn("ann", listed)


if __name__ == "__main__":
    BINARY = gateway_fixture.BINARY = os.path.abspath(sys.argv[1])
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
