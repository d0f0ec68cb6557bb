#!/usr/bin/env python3
"""A gateway's audit log by real processes: who changed its configuration and what was refused by residency, and what becomes of a log that
somebody has changed.

usage: audit_test.py BINARY
"""
import http.client
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.parse

import gateway_fixture
from gateway_fixture import Process, ask
from ports import free_port
from tiers import full

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
        self.assertEqual(changed["detail"][:-1], ["~ gateway: retries = 1 -> 2"])
        self.assertRegex(changed["detail"][-1], "^config [0-9a-f]{64}$")
        self.assertTrue(refused["result"].startswith("refused: ") and "retries" in refused["result"], refused)
        self.assertEqual((again["who"], again["detail"][:-1]), ("its file has changed", ["~ gateway: retries = 2 -> 3"]))
        self.assertEqual((lines[0]["what"], lines[0]["target"]), ("start", str(self.config)))
        self.assertEqual({line["target"] for line in lines if line["what"] == "refuse by residency"}, {"eu"})
        kept = [line for line in lines if line["what"] == "refuse by residency"]
        self.assertEqual({line["who"] for line in kept}, {"acme"})
        self.assertLessEqual(len(kept), 3, "fifty of them are a line or two")
        metrics = ask(self.admin, "GET", "/metrics")[1]
        self.assertIn("# TYPE pelton_audit_lines_total counter", metrics)
        gateway.end(9)
        code, text = self.verb("verify")
        self.assertEqual(code, 0, text)
        self.assertIn("pelton_audit_lines_lost_total 0\n", metrics)
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
        for changed, line in ((sound.replace('"an operator"', '"nobody"', 1), 2), ("".join(rows[:-1]), None), ("".join(rows[1:]), 1),
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
        self.assertIn("~ gateway: retries = 3 -> 4", text)

    def test_what_changed_while_it_was_down_and_whose_keys_are_others_is_seen(self):
        gateway = self.gateway()
        (self.folder / "keys").write_text("sk-eu-0123456789 acme region=eu\nsk-new-0123456789 third rpm=5\n")
        self.wait(lambda: any(line["what"] == "configure" for line in self.lines()))
        detail = self.lines()[-1]["detail"]
        self.assertRegex(detail[0], "^- key [0-9a-f]{12} other$")
        self.assertRegex(detail[1], "^\\+ key [0-9a-f]{12} third rpm=5$")
        gateway.end(signal.SIGTERM)
        self.config.write_text(self.text(7))
        self.gateway().end(signal.SIGTERM)
        lines = self.lines()
        self.assertEqual([line["what"] for line in lines], ["start", "configure", "stop", "start", "stop"])
        self.assertEqual(lines[0]["detail"], [detail[-1]], "the same configuration, other keys")
        self.assertNotEqual(lines[3]["detail"], [detail[-1]])
        self.assertNotIn("sk-new", self.log.read_text())

    def test_one_process_has_a_log(self):
        self.gateway()
        done = subprocess.run([gateway_fixture.BINARY, "gateway", "--config", self.config, "--audit-log", self.log, "--audit-key-file", self.key],
                              capture_output=True, text=True, timeout=30, check=False)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("another process writes it", done.stderr)

    def test_each_command_to_a_gateway_is_one_line(self):
        """By the admin listener and by the console alike. What is asked with another method and stands in no list is a line by itself (gateway/admin_audit.h)."""
        secret = "a-long-secret-of-ann"
        (self.folder / "keys").write_text(f"{secret} ann role=admin\n")
        route = ('[[pool]]\nname = "b"\nmodel = "m"\n[[route]]\nmodel = "m"\nto = [{pool = "a"}, {pool = "b"}]\n[route.rollout]\nname = "v2"\narm = "b"\n'
                 'steps = [1, 100]\n')
        beginning = f'[gateway]\nrollouts_file = "{self.folder / "rollouts.json"}"\n'
        route += '[[pool]]\nname = "s"\nmodel = "s"\n[pool.scale]\n'
        self.config.write_text(self.text(1).replace("[gateway]\n", beginning) + route)
        self.gateway()

        def ask(method, path, body=None, **headers):
            link = http.client.HTTPConnection("127.0.0.1", self.admin, timeout=30)
            try:
                link.request(method, path, body, {"Content-Type": "application/json", **headers})
                answer = link.getresponse()
                return answer.status, answer.read().decode(), answer.headers
            finally:
                link.close()

        worker = json.loads(ask("GET", "/v1/workers")[1])["workers"][0]["name"]
        name = urllib.parse.quote(worker, safe="")
        status, text, headers = ask("POST", "/console/session", json.dumps({"key": secret}))
        self.assertEqual(status, 200, text)
        signed = {"Cookie": headers["Set-Cookie"].split(";")[0], "X-Pelton-Token": json.loads(text)["token"]}
        order = {"epoch": 5, "launched": [{"pool": "s", "host": "127.0.0.1", "port": 4}], "draining": [], "released": [], "pools": []}
        whole = self.text(2).replace("[gateway]\n", beginning) + route
        played = [("POST", f"/v1/workers/{name}/{word}", None, {}, word, worker, "an operator") for word in ("drain", "move", "undrain", "eject", "restore")]
        played += [("POST", f"/console/workers/{name}/{word}", None, signed, word, worker, "ann") for word in ("drain", "undrain")]
        played += [("POST", f"{below}/rollouts/v2/{word}", None, more, word, "v2", who) for word in ("pause", "resume")
                   for below, more, who in (("/v1", {}, "an operator"), ("/console", signed, "ann")) if (word, below) != ("resume", "/v1")]
        played += [("POST", "/v1/reset_prefix_cache?tenant=acme", None, {}, "POST", "/v1/reset_prefix_cache?tenant=acme", "an operator"),
                   ("POST", "/v1/erase_tenant?tenant=acme", None, {}, "POST", "/v1/erase_tenant?tenant=acme", "an operator"),
                   ("POST", "/v1/autoscaler/exchange", json.dumps(order), {}, "scale", "autoscaler 5", "an operator"),
                   ("PUT", "/v1/config", whole, {}, "configure", str(self.config), "an operator"),
                   ("PUT", "/console/config", whole.replace("retries = 2", "retries = 3"), signed, "configure", str(self.config), "ann"),
                   ("PUT", "/v1/config/tenant/acme", '[[tenant]]\nname = "acme"\n', {}, "configure", str(self.config), "an operator"),
                   ("DELETE", "/v1/config/tenant/acme", None, {}, "configure", str(self.config), "an operator"),
                   ("DELETE", "/console/session", None, signed, "signed out", "", "ann")]
        unaudited = [("POST", "/v1/explain", "{}"), ("PUT", "/v1/config?dry_run=true", whole), ("POST", "/v1/autoscaler/exchange", json.dumps(order)),
                     ("POST", "/v1/nothing_is_here", "{}"), ("PUT", "/metrics", "")]
        for method, path, body, more, what, target, who in played:
            before = len(self.own_lines())
            status, text, _ = ask(method, path, body, **more)
            self.assertLess(status, 503, (path, text))
            self.wait(lambda: len(self.own_lines()) > before)
            line = self.own_lines()[-1]
            self.assertEqual((line["what"], line["target"], line["who"], line["from"]), (what, target, who, "127.0.0.1"), line)
            self.assertEqual(line["result"].split(",")[0] in ("done", ""), status == 200, (path, status, line))
            self.assertEqual(len(self.own_lines()), before + 1, path)
        before = len(self.own_lines())
        for method, path, body in unaudited:
            ask(method, path, body)
        self.assertEqual(ask("PUT", "/v1/config", whole, Origin="http://attacker.example")[0], 403)
        self.assertEqual(ask("PUT", "/v1/config", whole, **{"If-Match": '"another"'})[0], 412)
        self.assertEqual(ask("PUT", "/console/config", whole)[0], 401)
        self.wait(lambda: len(self.own_lines()) >= before + 3)
        self.assertEqual({line["result"] for line in self.own_lines()[before:]},
                         {"refused: 403 forbidden_origin", "refused: 412 config_changed", "refused: not signed in"})

    def own_lines(self):
        """But for what a roll-out comes to by itself, and signing in."""
        return [line for line in self.lines() if not line["what"].startswith("roll-out ") and line["what"] not in ("start", "signed in")]

    def test_a_server_keeps_who_changes_and_erases_what(self):
        script = self.folder / "script.json"
        script.write_text(json.dumps(gateway_fixture.SCRIPT))
        (self.folder / "keys").write_text("sk-user-0123456789 acme\nsk-ann-0123456789 ann role=admin\n")
        server = Process("serve", gateway_fixture.BOX, "--executor", f"modelled:{script}", "--port", "0", "--admin-port", self.admin, "--api-key-file",
                         self.folder / "keys", "--audit-log", self.log, "--audit-key-file", self.key)
        self.addCleanup(lambda: server.process.poll() is None and server.end())
        self.assertEqual(ask(server.port, "POST", "/reset_prefix_cache", Authorization="Bearer sk-ann-0123456789")[0], 200)
        self.assertEqual(ask(server.port, "POST", "/reset_prefix_cache", Authorization="Bearer sk-user-0123456789")[0], 403)
        self.assertEqual(ask(server.port, "POST", "/v1/chat/completions", {**CHAT, "model": "pelton-box", "max_tokens": 2},
                             Authorization="Bearer sk-user-0123456789")[0], 200)
        self.assertEqual(ask(self.admin, "DELETE", "/admin/models/none")[0], 404)
        self.assertEqual(ask(self.admin, "DELETE", "/admin/models/pelton-box")[0], 200)
        server.process.send_signal(signal.SIGHUP)
        self.wait(lambda: any(line["what"] == "reload" for line in self.lines()))
        server.end(signal.SIGTERM)
        seen = {(line["who"], line["what"], line["target"], line["result"]) for line in self.lines()}
        version = self.lines()[0]["result"]
        self.assertRegex(version, "^version ")
        self.assertEqual(seen, {("", "start", str(gateway_fixture.BOX), version),
                                ("ann", "POST", "/reset_prefix_cache", "done"),
                                ("acme", "POST", "/reset_prefix_cache", "refused: 403 admin_key_required"),
                                ("an operator", "DELETE", "/admin/models/none", "refused: 404 model_not_found"),
                                ("an operator", "DELETE", "/admin/models/pelton-box", "done"),
                                ("SIGHUP", "reload", "certificates, keys", "done"),
                                ("", "stop", "", "")})
        for word in ("canary", "sk-user", "sk-ann"):
            self.assertNotIn(word, self.log.read_text())

    @full
    def test_an_order_about_what_was_not_launched_is_refused_and_a_line(self):
        self.config.write_text(self.text(1) + '[[pool]]\nname = "s"\nmodel = "s"\n[pool.scale]\n')
        self.gateway()

        def order(launched=(), draining=(), released=(), **more):
            lists = {key: [{"pool": "s", "host": host, "port": port} for host, port in some]
                     for key, some in (("launched", launched), ("draining", draining), ("released", released))}
            status, text = ask(self.admin, "POST", "/v1/autoscaler/exchange", {"epoch": 5, **lists, "pools": []}, **more)
            return status, "" if status == 200 else json.loads(text)["error"]["code"]

        one, declared = ("127.0.0.1", 4), ("127.0.0.1", 3)
        self.assertEqual(order(draining=[declared]), (400, "address_not_launched"))
        self.assertEqual(order(released=[one]), (400, "address_not_launched"))
        self.assertEqual(order(launched=[declared]), (400, "address_taken"))
        self.assertEqual(order(launched=[("8.8.8.8", 443)]), (400, "address_not_allowed"))
        self.assertEqual(order(Origin="http://attacker.example"), (403, "forbidden_origin"))
        rows = json.loads(ask(self.admin, "GET", "/v1/workers")[1])["workers"]
        self.assertEqual([(row["address"], row["state"] == "draining") for row in rows], [("127.0.0.1:3", False)])
        self.assertEqual(order(launched=[one], draining=[one]), (200, ""))
        self.assertEqual(order(launched=[one]), (200, ""))
        for _ in range(50):
            self.assertEqual(order(draining=[declared]), (400, "address_not_launched"), "launched once, or somebody else's")
        self.wait(lambda: len({line["result"] for line in self.own_lines()}) >= 5)
        refused = [line for line in self.own_lines() if line["result"] != "done"]
        self.assertEqual({line["result"].split(",")[0] for line in refused},
                         {f"refused: {why}" for why in ("400 address_not_launched", "400 address_taken", "400 address_not_allowed", "403 forbidden_origin")})
        self.assertLess(len(refused), 10, "however often it is tried")
        self.assertEqual({(line["what"], line["who"], line["from"]) for line in refused}, {("scale", "an operator", "127.0.0.1")})
        taken = next(line for line in refused if "taken" in line["result"])
        self.assertEqual((taken["target"], taken["detail"]), ("autoscaler 5", ["127.0.0.1:3 of pool 's' is a worker of the configuration's already"]))

    def test_a_servers_lost_lines_are_counted(self):
        script = self.folder / "script.json"
        script.write_text(json.dumps(gateway_fixture.SCRIPT))
        kept = self.folder / "kept"
        kept.mkdir()
        server = Process("serve", gateway_fixture.BOX, "--executor", f"modelled:{script}", "--port", "0", "--admin-port", self.admin,
                         "--audit-log", kept / "audit.jsonl", "--audit-key-file", self.key)
        self.addCleanup(server.end)

        def counted():
            text = ask(self.admin, "GET", "/metrics")[1]
            return tuple(int(float(line.split()[-1])) for name in ("total", "lost_total") for line in text.splitlines() if line.startswith(f"pelton_audit_lines_{name} "))

        self.assertEqual(counted(), (1, 0), "the start")
        kept.rename(self.folder / "away")
        for _ in range(2):
            self.assertEqual(ask(server.port, "POST", "/reset_prefix_cache")[0], 200, "what is done goes on")
        self.assertEqual(counted(), (1, 2))
        (self.folder / "away").rename(kept)
        self.assertEqual(ask(server.port, "POST", "/reset_prefix_cache")[0], 200)
        self.assertEqual(counted(), (3, 2), "how many were lost is a line, too")

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
