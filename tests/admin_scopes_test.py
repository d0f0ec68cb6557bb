#!/usr/bin/env python3
"""What operators' keys may do at the admin listeners of a gateway and of a server: each route that the documents name, by each method, with
each role.

usage: admin_scopes_test.py BINARY
"""
import http.client
import http.cookiejar
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

import gateway_fixture
from gateway_fixture import Process
from ports import free_port

DOCS = pathlib.Path(__file__).resolve().parent.parent / "docs"
KEYS = {"view": "a-long-secret-of-vera", "operate": "a-long-secret-of-otto", "admin": "a-long-secret-of-ann", "client": "a-long-secret-of-carl"}
FILE = (f'{KEYS["view"]} vera role=view\n{KEYS["operate"]} otto role=operate\n{KEYS["admin"]} ann role=admin\n{KEYS["client"]} carl\n')
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
PROBES = {"/health", "/ready", "/health/live", "/health/ready"}
STREAMS = {"/console/fleet", "/v1/events"}


def routes(page, heading):
    """(method, path) of each row of the table below that heading, names put in."""
    text = (DOCS / page).read_text().split(heading, 1)[1]
    rows = re.findall(r"^\| ([A-Z, ]+) \| (`/.*?) \|", text.split("\n\n`", 1)[0], re.M)
    found = []
    for methods, cell in rows:
        paths = re.findall("`([^`]+)`", cell)
        first = paths[0]
        for path in paths:
            if not path.startswith(("/", "?")):
                path = f"{first.split('?')[0].rsplit('/', 1)[0]}/{path}"
            elif path.startswith("?"):
                path = first.split("?")[0] + path
            for word, name in (("KIND", "pool"), ("/workers/NAME", "/workers/one"), ("/rollouts/NAME", "/rollouts/v2"), ("/pool/NAME", "/pool/a"), ("/N", "/1"),
                               ("NAME", "one"), ("PLACE", "x"), ("=T", "=acme"), ("=P", "=a"), ("ID", "pelton-box")):
                path = path.replace(word, name)
            found += [(method.strip(), path) for method in methods.split(",")]
    return found


class Scopes(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.keys = self.folder / "keys"
        self.keys.write_text(FILE)
        self.admin = free_port()
        self.config = self.folder / "gateway.toml"
        self.config.write_text(f'[gateway]\nlisten = "127.0.0.1:0"\nadmin = "127.0.0.1:{self.admin}"\nkeys_file = "{self.keys}"\n'
                               f'rollouts_file = "{self.folder / "rollouts.json"}"\n[[pool]]\nname = "a"\nmodel = "m"\n'
                               '[[pool]]\nname = "b"\nmodel = "m"\n[[route]]\nmodel = "m"\nto = [{pool = "a"}, {pool = "b"}]\n[route.rollout]\nname = "v2"\n'
                               'arm = "b"\nsteps = [1, 100]\n[[worker]]\npool = "a"\nurl = "http://127.0.0.1:3"\n')

    def ask(self, method, path, role=None, body=None, port=None, **headers):
        link = http.client.HTTPConnection("127.0.0.1", port or self.admin, timeout=30)
        try:
            if role:
                headers["Authorization"] = f"Bearer {KEYS[role]}"
            link.request(method, path, body, headers)
            answer = link.getresponse()
            if (answer.headers["Content-Type"] or "").startswith("text/event-stream") and answer.status == 200:
                return answer.status, ""
            return answer.status, answer.read().decode()
        finally:
            link.close()

    def gateway(self, *more):
        process = Process("gateway", "--config", self.config, *more)
        self.addCleanup(lambda: process.process.poll() is None and process.end())
        return process

    def state(self):
        """All that a change would be seen in."""
        workers = json.loads(self.ask("GET", "/v1/workers", "admin")[1])["workers"]
        rollouts = json.loads(self.ask("GET", "/v1/rollouts", "admin")[1])["rollouts"]
        return (self.config.read_text(), [(one["name"], one["state"] in ("draining", "ejected")) for one in workers],
                [(one["phase"], one["step"]) for one in rollouts], len(json.loads(self.ask("GET", "/v1/config/history", "admin")[1])["entries"]))

    def walk(self, known, port=None):
        """Each path by each method as each role: what each may. A viewer's key is refused whatever is no reading, whether or not anything is there."""
        may = {"view": set(), "operate": set(), "admin": set()}
        for path in sorted({path for _, path in known if not path.startswith("/console")}):  # which asks for a session (gateway_operators_test.py)
            for method in METHODS:
                reads = method in ("GET", "HEAD")
                is_open = reads and path in PROBES
                self.assertEqual(self.ask(method, path, port=port)[0] == 401, not is_open, (method, path))
                self.assertEqual(self.ask(method, path, "client", port=port)[0] == 401, not is_open, (method, path))
                for role, able in may.items():
                    status, text = self.ask(method, path, role, port=port, body="{}" if method in ("POST", "PUT", "PATCH") else None)
                    self.assertNotEqual(status, 401, (method, path, role))
                    self.assertNotEqual(status, 500, (method, path, role, text))
                    if status == 403:
                        self.assertTrue(method == "HEAD" or "insufficient_scope" in text, (method, path, role, text))
                    else:
                        able.add((method, path))
                    if role == "view" and not reads:
                        self.assertEqual(status == 403, (method, path.split("?")[0]) != ("POST", "/v1/explain"), (method, path, text))
                if method in ("GET", "HEAD"):
                    self.assertTrue(all((method, path) in able for able in may.values()), (method, path))
        self.assertLess(may["view"], may["operate"])
        self.assertLess(may["operate"], may["admin"])
        return may

    def test_a_viewers_key_changes_nothing_at_a_gateway(self):
        known = routes("gateway.md", "On the `admin` listener:")
        self.assertGreater(len(known), 40, known)
        self.gateway("--admin-keys")
        before = self.state()
        views = {(method, path) for method in METHODS for _, path in known if method not in ("GET", "HEAD")}
        for method, path in sorted(views):
            if not path.startswith("/console"):
                self.ask(method, path, "view", body="{}", **{"Content-Type": "application/merge-patch+json"})
        self.ask("PATCH", "/v1/config", "view", '{"pool": {"c": {"model": "x"}}}', **{"Content-Type": "application/merge-patch+json"})
        self.assertEqual(self.state(), before)
        may = self.walk(known)
        commands = {path for method, path in may["operate"] - may["view"] if method == "POST"}
        self.assertTrue({"/v1/workers/one/drain", "/v1/rollouts/v2/promote"} <= commands, commands)
        self.assertTrue({("PUT", "/v1/config"), ("PATCH", "/v1/config"), ("DELETE", "/v1/config/pool/a"), ("POST", "/v1/config/history/1/revert"),
                         ("POST", "/v1/erase_tenant?tenant=acme"), ("POST", "/v1/autoscaler/exchange")} <= may["admin"] - may["operate"])

    def test_a_verb_brings_its_key_along_and_the_audit_log_its_name(self):
        log, key = self.folder / "audit.jsonl", self.folder / "audit.key"
        key.write_text("0123456789abcdef" * 4)
        gateway = self.gateway("--admin-keys", "--audit-log", log, "--audit-key-file", key)
        for role, secret in KEYS.items():
            (self.folder / role).write_text(secret + "\n")

        def fleet(role, *words, text=None):
            more = ["--admin-key-file", self.folder / role] if role else []
            return subprocess.run([gateway_fixture.BINARY, "fleet", *words, "--admin", f"http://127.0.0.1:{self.admin}", *map(str, more)], capture_output=True,
                                  text=True, timeout=60, check=False, input=text)

        self.assertIn("operator's key", fleet(None, "ls").stderr)
        self.assertEqual(fleet("view", "ls").returncode, 0)
        self.assertIn("role=view; this asks for role=admin", fleet("view", "patch", "-", text='{"gateway": {"retries": 3}}').stderr)
        done = fleet("admin", "patch", "-", text='{"gateway": {"retries": 3}}')
        self.assertEqual(done.returncode, 0, done.stderr)
        worker = json.loads(self.ask("GET", "/v1/workers", "view")[1])["workers"][0]["name"]
        self.assertEqual(fleet("operate", "drain", worker).returncode, 0)
        self.assertEqual(self.ask("POST", "/v1/erase_tenant?tenant=acme", "operate")[0], 403)
        # Keys that are gone are so from the next reading on; none at all are refused.
        self.assertEqual(self.ask("PATCH", "/v1/config", "admin", '{"gateway": {"keys_file": null}}', **{"Content-Type": "application/merge-patch+json"})[0], 400)
        # Nor is a configuration that the next start would refuse.
        status, text = self.ask("PATCH", "/v1/config", "admin", '{"gateway": {"admin": null}}', **{"Content-Type": "application/merge-patch+json"})
        self.assertEqual((status, json.loads(text)["error"]["param"]), (400, "admin-keys"), text)
        self.assertIn("no 'admin' listener", text)
        gateway.end(15)
        shown = subprocess.run([gateway_fixture.BINARY, "audit", "show", log, "--key-file", key, "--json"], capture_output=True, text=True, timeout=30, check=False)
        lines = [json.loads(line) for line in shown.stdout.splitlines()]
        self.assertTrue({("ann", "configure", "done"), ("otto", "drain", "done")} <= {(line["who"], line["what"], line["result"].split(",")[0]) for line in lines}, lines)
        self.assertTrue(any(line["result"].startswith("refused: 403 insufficient_scope") for line in lines), lines)
        self.assertFalse([secret for secret in KEYS.values() if secret in log.read_text()])

    def test_who_has_signed_in_at_the_console_sees_its_pages_without_a_key(self):
        self.gateway("--admin-keys")
        # As a browser does: it sends a cookie where its Path says.
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))

        def browse(path, body=None, **headers):
            request = urllib.request.Request(f"http://127.0.0.1:{self.admin}{path}", body and body.encode(), headers)
            try:
                with browser.open(request, timeout=30) as answer:
                    return answer.status, "" if path == "/console/fleet" else answer.read().decode()
            except urllib.error.HTTPError as error:
                return error.code, error.read().decode()

        pages = ("/console/fleet", "/v1/workers", "/v1/routes", "/v1/rollouts", "/v1/conditions", "/v1/config", "/v1/config/state", "/metrics", "/debug/ledger")
        for path in pages:
            self.assertEqual(browse(path)[0], 401, path)
        for role in ("view", "operate"):
            status, text = browse("/console/session", json.dumps({"key": KEYS[role]}))
            self.assertEqual(status, 403, text)
            self.assertIn("only a key with role=admin signs in here", text)
        self.assertEqual(browse("/console/session", json.dumps({"key": KEYS["admin"]}))[0], 200)
        for path in pages:
            self.assertEqual(browse(path)[0], 200, path)
        prompt = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x"}]})
        self.assertNotIn(browse("/v1/explain?path=/v1/chat/completions", prompt)[0], (401, 403))
        # Not for a page of another port of this host, which browsers send the cookie for as well; nor to change anything.
        self.assertEqual(browse("/v1/workers", **{"Sec-Fetch-Site": "same-site"})[0], 401)
        self.assertEqual(browse("/v1/explain?path=/v1/chat/completions", prompt, Origin="http://127.0.0.1:1")[0], 401)
        for path in ("/v1/workers/x/drain", "/v1/rollouts/v2/promote", "/v1/erase_tenant?tenant=acme"):
            self.assertEqual(browse(path, "{}")[0], 401, path)

    def test_a_stream_ends_with_its_key(self):
        self.gateway("--admin-keys")
        link = http.client.HTTPConnection("127.0.0.1", self.admin, timeout=30)
        self.addCleanup(link.close)
        link.request("GET", "/v1/events", headers={"Authorization": f"Bearer {KEYS['view']}"})
        stream = link.getresponse()
        self.assertEqual(stream.status, 200)
        self.assertTrue(stream.readline())
        self.keys.write_text(FILE.replace("vera role=view", "vera"))
        end = time.monotonic() + 20
        while stream.readline():
            self.assertLess(time.monotonic(), end, "it goes on without its key")
        self.assertEqual(self.ask("GET", "/v1/events", "view")[0], 401)

    def follow(self, role=None):
        """A stream of events, open, or the error's status and code."""
        link = http.client.HTTPConnection("127.0.0.1", self.admin, timeout=30)
        self.addCleanup(link.close)
        link.request("GET", "/v1/events", headers={"Authorization": f"Bearer {KEYS[role]}"} if role else {})
        answer = link.getresponse()
        if answer.status == 200:
            return link
        self.assertGreater(int(answer.headers["Retry-After"]), 0)
        return answer.status, json.loads(answer.read())["error"]["code"]

    def test_of_streams_one_key_leaves_others_some(self):
        too_many = (429, "too_many_event_streams")
        gateway = self.gateway("--admin-keys")
        streams = [self.follow("view") for _ in range(8)]
        self.assertNotIn(too_many, streams)
        self.assertEqual(self.follow("view"), too_many)
        self.assertEqual(self.ask("HEAD", "/v1/events", "view")[0], 200)
        streams += [self.follow(role) for role in ("operate", "admin") for _ in range(8)]
        self.assertNotIn(too_many, streams)
        self.assertEqual(self.follow("admin"), too_many)
        # One that has ended makes room, for its own key.
        streams[0].close()
        end = time.monotonic() + 20
        while self.follow("view") == too_many:
            self.assertLess(time.monotonic(), end)
            time.sleep(0.1)
        gateway.end(15)
        # Where nobody is asked for a key there are so many in all.
        self.gateway()
        self.assertNotIn(too_many, [self.follow() for _ in range(24)])
        self.assertEqual(self.follow(), too_many)

    def test_without_asking_a_key_is_held_to_its_role(self):
        self.gateway()
        self.assertEqual(self.ask("GET", "/v1/workers")[0], 200)
        for role, wanted in ((None, 200), ("view", 403), ("operate", 403), ("admin", 200), ("client", 200)):
            status, text = self.ask("PATCH", "/v1/config", role, '{"gateway": {"retries": 3}}', **{"Content-Type": "application/merge-patch+json"})
            self.assertEqual(status, wanted, (role, text))
        # Nobody would get in.
        self.keys.write_text(f'{KEYS["client"]} carl\n')
        done = subprocess.run([gateway_fixture.BINARY, "gateway", "--config", self.config, "--admin-keys"], capture_output=True, text=True, timeout=30, check=False)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("no key of 'keys_file' has a role", done.stderr)

    def test_a_viewers_key_changes_nothing_at_a_server(self):
        script = self.folder / "script.json"
        script.write_text(json.dumps(gateway_fixture.SCRIPT))
        server = Process("serve", gateway_fixture.BOX, "--executor", f"modelled:{script}", "--port", "0", "--admin-port", self.admin, "--api-key-file", self.keys,
                         "--admin-keys")
        self.addCleanup(lambda: server.process.poll() is None and server.end())
        paths = ["/admin/models", "/admin/models/pelton-box", "/admin/prefixes", "/admin/prefixes/x", "/admin/faults", "/debug/ledger", "/metrics", "/health",
                 "/health/live", "/health/ready", "/ready", "/"]
        known = [("GET", path) for path in paths]
        listing = self.ask("GET", "/", "view")[1]
        for path in re.findall("^/[a-z/]+", listing, re.M):
            self.assertTrue(path in paths or f"{path}x" in paths or f"{path}pelton-box" in paths, path)
        for path in paths:
            for method in ("POST", "PUT", "PATCH", "DELETE"):
                for role in ("view", "operate") if "prefixes" not in path else ("view",):
                    status, text = self.ask(method, path, role, "{}", **{"Content-Type": "application/json"})
                    self.assertEqual(status, 403, (method, path, role, text))
                    self.assertIn("insufficient_scope", text)
        self.assertEqual(self.ask("GET", "/admin/models/pelton-box", "view")[0], 200)
        may = {role: {path for _, path in known if self.ask("GET", path, role)[0] < 400} for role in ("view", "operate", "admin")}
        self.assertEqual(may["view"], may["admin"])
        self.assertEqual({path for path in paths if self.ask("GET", path)[0] == 401}, set(paths) - PROBES)
        self.assertEqual(self.ask("GET", "/console", "view")[0], 404, "a page has no key to ask with")
        # Nor at the listener that all callers have.
        for path in ("/reset_prefix_cache", "/erase_tenant?tenant=carl", "/v1/load_lora_adapter", "/v1/unload_lora_adapter"):
            for role in ("view", "operate"):
                self.assertEqual(self.ask("POST", path, role, "{}", port=server.port, **{"Content-Type": "application/json"})[0], 403, (path, role))
        self.assertEqual(self.ask("POST", "/reset_prefix_cache", "admin", port=server.port)[0], 200)
        self.assertEqual(self.ask("DELETE", "/admin/models/pelton-box", "admin")[0], 200)


if __name__ == "__main__":
    gateway_fixture.BINARY = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
