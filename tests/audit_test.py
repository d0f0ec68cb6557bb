#!/usr/bin/env python3
"""A gateway's audit log by real processes: who changed its configuration and what was refused by residency, and what becomes of a log that
somebody has changed.

usage: audit_test.py BINARY
"""
import http.client
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

import gateway_fixture
from gateway_fixture import Process, ask
from ports import free_port

CHAT = {"model": "m", "messages": [{"role": "user", "content": "a canary in its cage"}]}


class Audit(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.log, self.key = self.folder / "audit.jsonl", self.folder / "audit.key"
        self.key.write_text("0123456789abcdef" * 4 + "\n")
        (self.folder / "keys").write_text("sk-eu-0123456789 acme region=eu\nsk-any-0123456789 other\n")
        self.admin = free_port()
        self.config = self.folder / "gateway.toml"
        self.config.write_text(self.text(1))

    def text(self, retries):
        return (f'[gateway]\nlisten = "127.0.0.1:0"\nadmin = "127.0.0.1:{self.admin}"\nkeys_file = "{self.folder / "keys"}"\nretries = {retries}\n'
                f'resume_budget = 0.2\n[[pool]]\nname = "a"\nmodel = "m"\nregion = "us"\n[[worker]]\npool = "a"\nurl = "http://127.0.0.1:3"\n')

    def gateway(self):
        one = Process("gateway", "--config", self.config, "--audit-log", self.log, "--audit-key-file", self.key)
        self.addCleanup(lambda: one.process.poll() is None and one.end())
        return one

    def put(self, text):
        link = http.client.HTTPConnection("127.0.0.1", self.admin, timeout=30)
        try:
            link.request("PUT", "/v1/config", text)
            return link.getresponse().status
        finally:
            link.close()

    def verb(self, word, *more, key=None):
        done = subprocess.run([gateway_fixture.BINARY, "audit", word, self.log, "--key-file", key or self.key, *more],
                              capture_output=True, text=True, timeout=30, check=False)
        return done.returncode, done.stdout + done.stderr

    def lines(self):
        code, text = self.verb("show", "--json")
        self.assertEqual(code, 0, text)
        return [json.loads(line) for line in text.splitlines()]

    def wait(self, what):
        end = time.monotonic() + 20
        while not what() and time.monotonic() < end:
            time.sleep(0.1)
        self.assertTrue(what(), self.lines())

    def test_changes_and_refusals_are_kept_and_a_log_that_was_changed_is_found(self):
        gateway = self.gateway()
        self.assertEqual(self.put(self.text(2)), 200)
        self.assertEqual(self.put(self.text(99)), 400)
        for _ in range(50):
            status, text = ask(gateway.port, "POST", "/v1/chat/completions", CHAT, Authorization="Bearer sk-eu-0123456789")
            self.assertEqual(status, 503, text)
        self.wait(lambda: any(line["what"] == "refuse by residency" for line in self.lines()))
        self.config.write_text(self.text(3))
        self.wait(lambda: sum(line["what"] == "configure" for line in self.lines()) == 3)
        lines = self.lines()
        changed, refused, again = (line for line in lines if line["what"] == "configure")
        self.assertEqual((changed["who"], changed["from"], changed["result"]), ("an operator", "127.0.0.1", "done"))
        self.assertEqual(changed["detail"], ["-retries = 1", "+retries = 2"])
        self.assertTrue(refused["result"].startswith("refused: ") and "retries" in refused["result"], refused)
        self.assertEqual((again["who"], again["detail"]), ("its file has changed", ["-retries = 2", "+retries = 3"]))
        kept = [line for line in lines if line["what"] == "refuse by residency"]
        self.assertEqual({line["who"] for line in kept}, {"acme"})
        self.assertLessEqual(len(kept), 3, "fifty of them are a line or two")
        gateway.end(9)
        code, text = self.verb("verify")
        self.assertEqual(code, 0, text)
        noted = text.rsplit("last line: ", 1)[1].strip()
        raw = self.log.read_text()
        for secret in ("canary", "sk-eu", "0123456789abcdef" * 2):
            self.assertNotIn(secret, raw)
        # It goes on behind what is there.
        again = self.gateway()
        self.assertEqual(self.put(self.text(4)), 200)
        again.end()
        code, text = self.verb("verify", "--noted", noted)
        self.assertEqual(code, 0, text)
        sound, head = self.log.read_text(), self.log.with_name("audit.jsonl.head").read_text()
        # Whoever changes it has no key.
        rows = sound.splitlines(keepends=True)
        for changed, line in ((sound.replace('"an operator"', '"nobody"', 1), 1), ("".join(rows[:-1]), None), ("".join(rows[1:]), 1),
                              ("".join([rows[1], rows[0], *rows[2:]]), 1), (sound + rows[-1], len(rows) + 1), (raw, None)):
            self.log.write_text(changed)
            code, text = self.verb("verify")
            self.assertEqual(code, 1, text)
            self.assertIn(f"audit.jsonl:{line}: " if line else "audit.jsonl: ", text)
            done = subprocess.run([gateway_fixture.BINARY, "gateway", "--config", self.config, "--audit-log", self.log, "--audit-key-file", self.key],
                                  capture_output=True, text=True, timeout=30, check=False)
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertIn("is not gone on with", done.stderr)
        self.log.write_text(sound)
        self.assertEqual(self.verb("verify")[0], 0)
        other = self.folder / "other.key"
        other.write_text("f" * 64)
        self.assertEqual(self.verb("verify", key=other)[0], 1)
        self.assertEqual(self.verb("verify", "--noted", "0" * 64)[0], 1)
        self.log.with_name("audit.jsonl.head").unlink()
        self.assertIn("its head is missing", self.verb("verify")[1])
        self.log.with_name("audit.jsonl.head").write_text(head)
        code, text = self.verb("show", "--last", "1")
        self.assertEqual(code, 0, text)
        self.assertIn("configure", text)
        self.assertIn("+retries = 4", text)

    def test_one_without_the_other_is_wrong_usage(self):
        for words in (("--audit-log", self.log), ("--audit-key-file", self.key)):
            done = subprocess.run([gateway_fixture.BINARY, "gateway", "--config", self.config, *words], capture_output=True, text=True, timeout=30, check=False)
            self.assertEqual(done.returncode, 2, done.stderr)
        self.key.write_text("short")
        done = subprocess.run([gateway_fixture.BINARY, "gateway", "--config", self.config, "--audit-log", self.log, "--audit-key-file", self.key],
                              capture_output=True, text=True, timeout=30, check=False)
        self.assertEqual(done.returncode, 3, done.stderr)


if __name__ == "__main__":
    gateway_fixture.BINARY = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
