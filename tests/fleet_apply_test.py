#!/usr/bin/env python3
"""A gateway's configuration as one file that is declared: planned, applied, read back to the byte, each change in the audit log, and nothing
lost where two write at once.

usage: fleet_apply_test.py BINARY
"""
import concurrent.futures
import http.client
import json
import os
import pathlib
import random
import select
import subprocess
import sys
import tempfile
import time
import tomllib
import unittest
import urllib.parse

import gateway_fixture
from gateway_fixture import Process
from ports import free_port
from tiers import FULL

HEAD = """# the fleet of a test
[gateway]
listen = "127.0.0.1:0"
admin = "127.0.0.1:{admin}"  # operators
"""
POOLS = """
# the large one
[[pool]]
name = "a"
model = "m"

# ---- small ones ----

[[pool]]
name = "b"
model = "n"

[[worker]]
pool = "a"
url = "http://127.0.0.1:3"
"""
WORKER = """
[[worker]]
pool = "b"
url = "http://127.0.0.1:4"
zone = "z"
"""


class Apply(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.admin = free_port()
        self.head = HEAD.format(admin=self.admin)
        self.config = self.folder / "gateway.toml"
        self.config.write_text(self.head + POOLS)
        self.log, self.key = self.folder / "audit.jsonl", self.folder / "audit.key"
        self.key.write_text("0123456789abcdef" * 4)
        self.gateway = Process("gateway", "--config", self.config, "--audit-log", self.log, "--audit-key-file", self.key)
        self.addCleanup(self.gateway.end)

    def run_verb(self, *words, text=None, cwd=None):
        return subprocess.run([gateway_fixture.BINARY, *map(str, words)], capture_output=True, text=True, timeout=60, check=False, input=text, cwd=cwd)

    def fleet(self, word, *words, text=None):
        return self.run_verb("fleet", word, *words, "--admin", f"http://127.0.0.1:{self.admin}", text=text)

    def done(self, word, *words, text=None):
        done = self.fleet(word, *words, text=text)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def ask(self, method, path, body=None, **headers):
        link = http.client.HTTPConnection("127.0.0.1", self.admin, timeout=30)
        try:
            link.request(method, path, body, headers)
            answer = link.getresponse()
            return answer.status, answer.read().decode(), answer.headers["ETag"]
        finally:
            link.close()

    def audited(self):
        done = self.run_verb("audit", "show", self.log, "--key-file", self.key, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return [line for line in map(json.loads, done.stdout.splitlines()) if line["what"] == "configure"]

    def test_what_is_applied_is_shown_first_and_read_back_to_the_byte(self):
        wanted = self.head + POOLS.replace('model = "n"', 'model = ["n", "o"]') + WORKER + "# ends without a line feed"
        plan = '~ pool b: model = ["n"] -> ["n", "o"]\n+ worker http://127.0.0.1:4\n'
        self.assertEqual(self.done("diff", "-", text=wanted), plan)
        self.assertEqual(self.done("apply", "-", "--dry-run", text=wanted), plan)
        self.assertEqual(self.config.read_text(), self.head + POOLS, "nothing has been done yet")
        self.assertEqual(self.audited(), [])
        self.assertEqual(self.done("apply", "-", text=wanted), plan)
        self.assertEqual(self.config.read_text(), wanted)
        self.assertEqual(self.done("get", "all"), wanted)
        self.assertEqual(self.done("diff", "-", text=wanted), "nothing to change\n")
        self.assertEqual(self.done("apply", "-", text=wanted), "nothing to change\n")
        # Of what says the same in other words only the text is another one.
        self.assertEqual(self.done("apply", "-", text=wanted + "\n# and more"), "nothing to change but the file's own text\n")
        self.assertEqual(self.done("get", "all"), wanted + "\n# and more")
        lines = self.audited()
        self.assertEqual([line["result"] for line in lines], ["done", "done"])
        self.assertEqual(lines[0]["detail"][:-1], plan.splitlines())
        self.assertEqual({worker["address"] for worker in json.loads(self.ask("GET", "/v1/workers")[1])["workers"]}, {"127.0.0.1:3", "127.0.0.1:4"})

    def test_what_a_file_lacks_goes_only_where_that_is_said(self):
        without = (self.head + POOLS).replace('[[pool]]\nname = "b"\nmodel = "n"\n', "")
        done = self.fleet("apply", "-", text=without)
        self.assertEqual((done.returncode, done.stdout), (2, "- pool b\n"))
        self.assertIn("the file lacks what is there: pool b; nothing was changed. --prune", done.stderr)
        self.assertEqual(self.fleet("apply", "-", text="").returncode, 3, "all would go, and no worker would be left")
        self.assertEqual(self.config.read_text(), self.head + POOLS)
        self.assertEqual(self.done("apply", "-", "--prune", text=without), "- pool b\n")
        self.assertEqual(self.config.read_text(), without)

    def test_a_file_that_is_wrong_is_so_in_the_same_words_as_at_the_start(self):
        wrong = {"a key that is none": self.head + "retrys = 3\n" + POOLS, "a number out of bounds": self.head + "retries = 99\n" + POOLS,
                 "a worker of no pool": self.head + POOLS + WORKER.replace('"b"', '"c"'), "two pools alike": self.head + POOLS + '[[pool]]\nname = "a"\nmodel = "m"\n',
                 "no TOML": self.head + POOLS + "[[pool", "a route to nowhere": self.head + POOLS + '[[route]]\nmodel = "m"\nto = [{pool = "x"}]\n',
                 "a tenant without keys": self.head + POOLS + '[[tenant]]\nname = "x"\npool = "c"\n', "a schedule that is none": self.head + POOLS.replace(
                     'name = "b"', 'name = "b"\nscale = {min = 3, max = 2}')}
        for what, text in wrong.items():
            with self.subTest(what):
                file = self.folder / "wrong.toml"
                file.write_text(text)
                checked = self.run_verb("gateway", "--config", file, "--check")
                self.assertEqual(checked.returncode, 3, checked.stderr)
                applied = self.fleet("apply", file)
                self.assertEqual(applied.returncode, 3, applied.stderr)
                self.assertEqual(applied.stderr, checked.stderr.replace(str(file), str(self.config)))
        self.assertEqual(self.config.read_text(), self.head + POOLS)

    def test_of_two_who_write_at_once_one_is_refused(self):
        etag = self.ask("GET", "/v1/config")[2]
        texts = [self.head + f"retries = {i}\n" + POOLS for i in range(3, 7)]
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            statuses = sorted(pool.map(lambda text: self.ask("PUT", "/v1/config", text, **{"If-Match": etag})[0], texts))
        self.assertEqual(statuses, [200, 412, 412, 412])
        kept = self.config.read_text()
        self.assertIn(kept, texts)
        stale = self.fleet("apply", "-", "--if-match", etag, text=self.head + POOLS)
        self.assertEqual(stale.returncode, 1, stale.stderr)
        self.assertIn("has changed since it was read", stale.stderr)
        self.assertEqual(self.config.read_text(), kept)
        self.assertEqual(sum(line["result"] == "done" for line in self.audited()), 1)

    def test_one_object_comes_and_goes_and_all_else_stands(self):
        self.assertEqual(self.done("get", "pool", "a"), '# the large one\n[[pool]]\nname = "a"\nmodel = "m"\n')
        self.assertEqual(self.done("get", "pool").count("[[pool]]"), 2)
        self.assertEqual(self.done("get", "gateway"), self.head)
        url = urllib.parse.quote("http://127.0.0.1:4", safe="")
        status, text, etag = self.ask("PUT", f"/v1/config/worker/{url}", WORKER)
        self.assertEqual(status, 200, text)
        self.assertEqual(json.loads(text)["changes"], [{"change": "added", "kind": "worker", "name": "http://127.0.0.1:4", "value": ""}])
        self.assertEqual(self.config.read_text(), self.head + POOLS + WORKER)
        self.assertEqual(etag, self.ask("GET", "/v1/config")[2])
        # What would be no configuration any more stays.
        held = self.fleet("delete", "pool", "b")
        self.assertEqual(held.returncode, 3, held.stderr)
        self.assertIn("names no [[pool]]: 'b'", held.stderr)
        self.assertEqual(self.fleet("delete", "pool", "c").returncode, 2)
        self.assertEqual(self.ask("PUT", "/v1/config/pool/c", '[[pool]]\nname = "a"\nmodel = "m"\n')[0], 400)
        self.assertEqual(self.ask("PUT", "/v1/config/nothing/c", "")[0], 404)
        self.assertEqual(self.ask("DELETE", "/v1/config/pool/b", Origin="http://attacker.example")[0], 403)
        self.assertEqual(self.ask("DELETE", f"/v1/config/worker/{url}", **{"If-Match": '"x"'})[0], 412)
        self.assertEqual(self.config.read_text(), self.head + POOLS + WORKER)
        self.assertEqual(self.done("delete", "worker", "http://127.0.0.1:4", "--dry-run"), "- worker http://127.0.0.1:4\n")
        self.assertEqual(self.done("delete", "worker", "http://127.0.0.1:4"), "- worker http://127.0.0.1:4\n")
        self.assertEqual(self.done("delete", "pool", "b"), "- pool b\n")
        self.assertEqual(self.config.read_text().rstrip(), (self.head + POOLS).replace('[[pool]]\nname = "b"\nmodel = "n"\n\n', "").rstrip())
        self.assertEqual([line["detail"][:-1] for line in self.audited() if line["result"] == "done"],
                         [["+ worker http://127.0.0.1:4"], ["- worker http://127.0.0.1:4"], ["- pool b"]])

    def patch(self, patch, path="/v1/config", **headers):
        return self.ask("PATCH", path, json.dumps(patch), **{"Content-Type": "application/merge-patch+json", **headers})

    def test_a_merge_patch_changes_the_lines_of_its_keys_alone(self):
        whole = self.head + POOLS
        self.assertEqual(json.loads(self.done("get", "pool", "b", "--json")), {"name": "b", "model": "n"})
        self.assertEqual(set(json.loads(self.done("get", "all", "--json"))), {"gateway", "pool", "worker"})
        status, text, etag = self.patch({"gateway": {"retries": 3}, "pool": {"b": {"model": ["n", "o"]}, "c": {"model": "p"}}})
        self.assertEqual(status, 200, text)
        self.assertEqual([(one["change"], one["kind"], one["name"]) for one in json.loads(text)["changes"]],
                         [("changed", "gateway", ""), ("changed", "pool", "b"), ("added", "pool", "c")])
        after = whole.replace("# operators\n", "# operators\nretries = 3\n").replace('model = "n"', 'model = ["n", "o"]') + '\n[[pool]]\nname = "c"\nmodel = "p"\n'
        self.assertEqual(self.config.read_text(), after)
        self.assertEqual(etag, self.ask("GET", "/v1/config")[2])
        # Null takes away; of one object by its path, and by the verb.
        self.assertEqual(self.patch({"pool": {"c": None}})[0], 200)
        self.assertEqual(self.patch({"model": "n"}, "/v1/config/pool/b")[0], 200)
        self.assertEqual(self.done("patch", "-", "gateway", "--dry-run", text='{"retries": null}'), "~ gateway: retries = 3 -> 2\n")
        self.assertEqual(self.done("patch", "-", "gateway", text='{"retries": null}'), "~ gateway: retries = 3 -> 2\n")
        self.assertEqual(self.config.read_text().rstrip(), whole.rstrip())
        self.assertEqual(self.done("patch", "-", text="{}"), "nothing to change\n")
        # What is no patch, or not of something that is there.
        for patch, path, code in (([], "/v1/config", 400), ({"pool": {"a": 1}}, "/v1/config", 400), ({"name": "c"}, "/v1/config/pool/b", 400),
                                  ({}, "/v1/config/pool/none", 404), ({}, "/v1/config/nothing/none", 404), (None, "/v1/config/pool/b", 400)):
            self.assertEqual(self.patch(patch, path)[0], code, (patch, path))
        self.assertEqual(self.ask("PATCH", "/v1/config", "{}", **{"Content-Type": "application/json"})[0], 415)
        self.assertEqual(self.ask("PATCH", "/v1/config", "{", **{"Content-Type": "application/merge-patch+json; charset=utf-8"})[0], 400)
        self.assertEqual(self.patch({"gateway": {"retries": 4}}, Origin="http://attacker.example")[0], 403)
        self.assertEqual(self.config.read_text().rstrip(), whole.rstrip())

    def test_a_patch_is_checked_in_the_words_of_the_file(self):
        whole = self.head + POOLS
        behind = "# operators\n"
        for patch, text in (({"gateway": {"retries": 99}}, whole.replace(behind, behind + "retries = 99\n")),
                            ({"gateway": {"retrys": 3}}, whole.replace(behind, behind + "retrys = 3\n")),
                            ({"gateway": {"retries": 2.0}}, whole.replace(behind, behind + "retries = 2.0\n")),
                            ({"gateway": {"http2": "yes"}}, whole.replace(behind, behind + 'http2 = "yes"\n')),
                            ({"pool": {"b": {"model": []}}}, whole.replace('model = "n"', "model = []")),
                            ({"pool": {"b": {"name": "b", "scale": {"min": 3, "max": 2}}}},
                             whole.replace('model = "n"\n', 'model = "n"\n[pool.scale]\nmin = 3\nmax = 2\n')),
                            ({"route": {"m": {"to": [{"pool": "x"}]}}}, whole + '\n[[route]]\nmodel = "m"\nto = [{pool = "x"}]\n'),
                            ({"worker": {"http://127.0.0.1:4": {"pool": "c"}}}, whole + '\n[[worker]]\nurl = "http://127.0.0.1:4"\npool = "c"\n'),
                            ({"tenant": {"t": {"pool": "a"}}}, whole + '\n[[tenant]]\nname = "t"\npool = "a"\n'),
                            ({"region": {"r": {"gateway": "x"}}}, whole + '\n[[region]]\nname = "r"\ngateway = "x"\n'),
                            ({"etcd": {"endpoint": "x"}}, whole + '\n[etcd]\nendpoint = "x"\n'),
                            ({"zones": {"a b": -1}}, whole + '\n[zones]\n"a b" = -1\n'),
                            ({"pools": {"x": 1}}, whole + "\n[pools]\nx = 1\n")):
            with self.subTest(patch=patch):
                file = self.folder / "wrong.toml"
                file.write_text(text)
                checked = self.run_verb("gateway", "--config", file, "--check")
                self.assertEqual(checked.returncode, 3, checked.stderr)
                patched = self.fleet("patch", "-", text=json.dumps(patch))
                self.assertEqual(patched.returncode, 3, patched.stderr)
                self.assertEqual(patched.stderr, checked.stderr.replace(str(file), str(self.config)))
        self.assertEqual(self.config.read_text(), whole)

    def test_a_patch_may_be_as_large_as_a_file(self):
        workers = {f"http://10.0.{i // 250}.{i % 250 + 1}:9000": {"pool": "b", "zone": "z"} for i in range(3000)}
        status, text, _ = self.patch({"worker": workers}, "/v1/config?dry_run=true")
        self.assertEqual(status, 200, text)
        self.assertEqual([(one["change"], one["kind"]) for one in json.loads(text)["changes"]], [("added", "worker")] * 3000)
        self.assertEqual(self.config.read_text(), self.head + POOLS)

    def test_a_change_that_takes_long_keeps_nobody_else_waiting(self):
        large = self.head + POOLS + "".join(f'[[pool]]\nname = "p{i}"\nmodel = "m{i}"\n' for i in range(4000))
        links = [http.client.HTTPConnection("127.0.0.1", self.admin, timeout=120) for _ in range(20)]
        try:
            for link in links:
                link.request("PUT", "/v1/config?dry_run=true", large)
            # One after the other, and no more of them than so many: what else is asked is answered meanwhile.
            self.assertEqual(self.ask("GET", "/health/live")[0], 200)
            waiting = select.select([link.sock for link in links], [], [], 0)[0]
            self.assertLess(len(waiting), len(links))
            answers = [link.getresponse() for link in links]
            bodies = [json.loads(answer.read()) for answer in answers]
            refused = [body["error"]["code"] for body, answer in zip(bodies, answers) if answer.status == 503]
            self.assertEqual(set(refused), {"config_busy"})
            self.assertEqual([answer.status for answer in answers].count(200) + len(refused), len(links))
        finally:
            for link in links:
                link.close()

    def test_files_beside_the_configuration_are_read_in_the_same_way(self):
        for kind, code in (("capacity", "no_capacity"), ("chain", "no_chains")):
            status, text, _ = self.ask("GET", f"/v1/config/{kind}")
            self.assertEqual((status, json.loads(text)["error"]["code"]), (404, code))
        self.gateway.end()
        top = pathlib.Path(__file__).resolve().parent.parent
        plan = self.folder / "capacity.toml"
        plan.write_text((top / "deploy" / "capacity.toml").read_text())
        self.gateway = Process("gateway", "--config", self.config, "--capacity", plan, "--chains", top / "chains")
        self.addCleanup(self.gateway.end)
        self.assertEqual(self.done("get", "capacity"), plan.read_text())
        said = json.loads(self.done("get", "capacity", "--json"))
        self.assertEqual(said, tomllib.loads(plan.read_text()))
        # As it lies there now.
        plan.write_text(plan.read_text() + "# and more\n")
        self.assertEqual(self.done("get", "capacity"), plan.read_text())
        chains = {tomllib.loads(file.read_text())["name"]: file for file in sorted((top / "chains").glob("*.toml"))}
        for name, file in chains.items():
            self.assertEqual(self.done("get", "chain", name), file.read_text())
        self.assertEqual(json.loads(self.done("get", "chain", "--json")), {name: tomllib.loads(file.read_text()) for name, file in chains.items()})
        self.assertEqual(self.fleet("get", "chain", "none").returncode, 2)
        for method in ("PUT", "PATCH", "DELETE"):
            self.assertEqual(self.ask(method, "/v1/config/capacity", "{}", **{"Content-Type": "application/merge-patch+json"})[0], 405, method)
        self.assertEqual(self.fleet("delete", "capacity").returncode, 2)

    def test_of_two_who_patch_at_once_one_is_refused(self):
        etag = self.ask("GET", "/v1/config")[2]
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            statuses = sorted(pool.map(lambda i: self.patch({"gateway": {"retries": i}}, **{"If-Match": etag})[0], range(3, 7)))
        self.assertEqual(statuses, [200, 412, 412, 412])
        # Without an ETag each is of what is there then, and none undoes another's key.
        self.assertEqual(self.patch({"gateway": {"threads": 3}})[0], 200)
        self.assertIn("retries = ", self.config.read_text())

    def test_a_change_with_a_word_that_is_none_is_not_made(self):
        whole = self.head + POOLS
        for query in ("dryrun=true", "dry_run=true&dryrun=true", "dry_run=true&dry_run=false", "dry_run=", "dry_run=%zz", "form=json"):
            for method, path, body in (("PUT", "/v1/config", whole + "# x\n"), ("DELETE", "/v1/config/pool/b", None), ("POST", "/v1/config/history/1/revert", None)):
                self.assertEqual(self.ask(method, f"{path}?{query}", body)[0], 400, (method, path, query))
            self.assertEqual(self.patch({"gateway": {"retries": 4}}, f"/v1/config?{query}")[0], 400, query)
        self.assertEqual(self.patch({"gateway": {"tls_cert": "x" * (1 << 20)}})[0], 400)
        self.assertEqual(self.config.read_text(), whole)

    def save(self, old, new):
        """As an editor does."""
        text = self.config.read_text()
        fresh = self.folder / "gateway.toml.hand"
        fresh.write_text(text.replace(old, new))
        fresh.rename(self.config)

    def in_force(self, line):
        end = time.monotonic() + 15
        while line not in self.ask("GET", "/v1/config?form=effective")[1].splitlines():
            self.assertLess(time.monotonic(), end, f"{line}: {self.ask('GET', '/v1/config/state')[1]}")
            time.sleep(0.1)

    def test_a_hand_that_saves_beside_a_change_loses_nothing(self):
        # A tokenizer takes a while to read: the file is another one before the change is done.
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            patched = pool.submit(self.patch, {"pool": {"a": {"tokenizer": str(gateway_fixture.BOX)}}})
            time.sleep(0.05)
            self.save("# operators\n", "# operators\ndrain_seconds = 7\n")
            self.assertEqual(patched.result()[0], 200)
        self.assertIn("drain_seconds = 7\n", self.config.read_text())
        self.in_force("drain_seconds = 7")
        # A whole text is not computed again: it is refused.
        etag = self.ask("GET", "/v1/config")[2]
        wanted = self.config.read_text().replace('name = "b"', f'name = "b"\ntokenizer = "{gateway_fixture.BOX}/"')
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            put = pool.submit(self.ask, "PUT", "/v1/config", wanted, **{"If-Match": etag})
            time.sleep(0.05)
            self.save("# the large one\n", "# the largest one\n")
            status, text, _ = put.result()
        self.assertTrue(status == 200 or "config_changed" in text, text)
        self.assertIn("# the largest one\n", self.config.read_text())
        self.assertEqual("tokenizer = " in self.config.read_text().split("# ---- small ones ----")[1], status == 200)
        # One who saves as soon as the new file is there is heard.
        for seconds in range(8, 12):
            before = self.config.stat().st_ino
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                patched = pool.submit(self.patch, {"gateway": {"retries": seconds - 8}})
                while self.config.stat().st_ino == before and not patched.done():
                    time.sleep(0.0005)
                self.save(f"drain_seconds = {seconds - 1}\n", f"drain_seconds = {seconds}\n")
                self.assertEqual(patched.result()[0], 200)
            self.in_force(f"drain_seconds = {seconds}")

    def test_a_change_is_taken_back_by_its_number(self):
        whole = self.head + POOLS
        self.assertEqual(self.patch({"gateway": {"retries": 3}})[0], 200)
        self.assertEqual(self.patch({"pool": {"c": {"model": "p"}}})[0], 200)
        self.assertEqual(self.patch({"gateway": {"retries": 99}})[0], 400)
        listed = json.loads(self.done("history", "--json"))
        self.assertTrue(listed["on_disk"])
        self.assertEqual([(one["n"], one["who"], one["changes"]) for one in listed["entries"]],
                         [(1, "start", []), (2, "an operator", ["~ gateway: retries = 2 -> 3"]), (3, "an operator", ["+ pool c"])])
        self.assertEqual(self.done("history", "1"), whole)
        self.assertEqual(self.done("revert", "1", "--dry-run"), "~ gateway: retries = 3 -> 2\n- pool c\n")
        stale = self.ask("POST", "/v1/config/history/1/revert", **{"If-Match": listed["entries"][0]["etag"]})
        self.assertEqual(stale[0], 412, stale)
        self.assertEqual(self.done("revert", "1"), "~ gateway: retries = 3 -> 2\n- pool c\n")
        self.assertEqual(self.config.read_text(), whole)
        done = [one for one in self.audited() if one["result"] == "done"]  # refusals are counted, and their line may come later
        self.assertEqual(done[-1]["detail"][:-1], ["= 1", "~ gateway: retries = 3 -> 2", "- pool c"])
        last = json.loads(self.ask("GET", "/v1/config/history")[1])["entries"][-1]
        self.assertEqual((last["n"], last["reverts_to"], last["etag"]), (4, 1, listed["entries"][0]["etag"]))
        self.assertRegex(self.done("history").splitlines()[-1], "^    4  .*Z  an operator +  *= 1; ~ gateway: retries = 3 -> 2 \\(and 1 more\\)$")
        for path, status in (("9/revert", 404), ("0/revert", 404), ("x/revert", 404), ("1/forward", 404)):
            self.assertEqual(self.ask("POST", f"/v1/config/history/{path}")[0], status, path)
        self.assertEqual(self.ask("POST", "/v1/config/history")[0], 405)
        self.assertEqual(self.ask("POST", "/v1/config/history/1/revert", Origin="http://attacker.example")[0], 403)
        # It outlives the gateway, and what is changed meanwhile is a number, too.
        self.gateway.end()
        self.config.write_text(whole + "# by hand\n")
        self.gateway = Process("gateway", "--config", self.config, "--audit-log", self.log, "--audit-key-file", self.key)
        self.addCleanup(self.gateway.end)
        self.assertEqual(self.done("history", "5"), whole + "# by hand\n")
        self.assertEqual(self.fleet("revert", "3").returncode, 0)
        self.assertIn('name = "c"', self.config.read_text())
        # What names a file that is gone is refused as at a start.
        keys = self.folder / "keys"
        keys.write_text("sk-0123456789abcdef acme\n")
        self.assertEqual(self.patch({"pool": {"c": {"kind": "openai", "api_key_file": str(keys)}}})[0], 200)
        self.assertEqual(self.patch({"pool": {"c": None}})[0], 200)
        keys.unlink()
        gone = self.fleet("revert", str(json.loads(self.ask("GET", "/v1/config/history")[1])["entries"][-2]["n"]))
        self.assertEqual(gone.returncode, 3, gone.stderr)
        self.assertIn("api_key_file", gone.stderr)

    def events(self, count, last=None):
        """The next ones behind that number."""
        link = http.client.HTTPConnection("127.0.0.1", self.admin, timeout=30)
        found = []
        try:
            link.request("GET", "/v1/events", headers={} if last is None else {"Last-Event-ID": str(last)})
            answer = link.getresponse()
            self.assertEqual((answer.status, answer.headers["Content-Type"]), (200, "text/event-stream; charset=utf-8"))
            end = time.monotonic() + 30
            while len(found) < count:
                self.assertLess(time.monotonic(), end, found)
                line = answer.readline().decode()
                self.assertTrue(line, "the stream goes on")
                if line.startswith("data: "):
                    found.append(json.loads(line[len("data: "):]))
        finally:
            link.close()
        return found

    def test_changes_are_a_stream_that_goes_on_behind_a_number(self):
        self.assertEqual(self.patch({"gateway": {"retries": 3}})[0], 200)
        first = self.events(2)
        self.assertEqual(first[1]["n"], first[0]["n"] + 1)
        kinds = {one["kind"] for one in first}
        self.assertIn("configuration", kinds)
        self.assertIn("worker", kinds)
        change = next(one for one in first if one["kind"] == "configuration")
        self.assertEqual((change["name"], change["who"], change["changes"]), ("2", "an operator", ["~ gateway: retries = 2 -> 3"]))
        worker = next(one for one in first if one["kind"] == "worker")
        self.assertEqual((worker["was"], worker["is"] != ""), ("", True))
        # Whoever was cut off goes on, in order and without a gap.
        self.assertEqual(self.patch({"gateway": {"retries": 1}})[0], 200)
        again = self.events(2, last=first[0]["n"])
        self.assertEqual(again[0], first[1])
        self.assertEqual(again[1]["n"], first[1]["n"] + 1)
        # Of a gateway that was started anew he knows nothing.
        self.gateway.end()
        self.gateway = Process("gateway", "--config", self.config)
        self.addCleanup(self.gateway.end)
        missed = self.events(1, last=again[1]["n"])[0]
        self.assertEqual((missed["kind"], missed["count"]), ("missed", -1))
        self.assertGreater(missed["n"], again[1]["n"])
        self.assertEqual(self.ask("POST", "/v1/events")[0], 405)
        self.assertEqual(self.ask("GET", "/v1/events", Origin="http://attacker.example")[0], 403)

    def test_random_edits_and_reverts_end_byte_equal(self):
        seed = int(os.environ.get("PELTON_SEED") or random.SystemRandom().getrandbits(32))
        print(f"PELTON_SEED={seed}")
        dice = random.Random(seed)
        whole = self.head + POOLS
        texts = {1: whole}
        url = urllib.parse.quote("http://127.0.0.1:4", safe="")
        for _ in range(2000 if FULL else 60):
            kind = dice.randrange(4)
            if kind == 0:
                status, text, _ = self.patch({"gateway": {"retries": dice.choice([None, 1, 2, 3])}, "pool": {"a": {"region": dice.choice([None, "eu"])}}})
            elif kind == 1:
                status, text, _ = self.ask("PUT", f"/v1/config/worker/{url}", WORKER.replace('"z"', f'"z{dice.randrange(3)}"'))
            elif kind == 2:
                status, text, _ = self.ask("DELETE", f"/v1/config/worker/{url}")
                self.assertIn(status, (200, 404), text)
            else:
                number = dice.choice(sorted(texts))
                status, text, _ = self.ask("POST", f"/v1/config/history/{number}/revert")
                self.assertEqual(self.config.read_text(), texts[number])
            self.assertTrue(status == 200 or kind == 2, text)
            entries = json.loads(self.ask("GET", "/v1/config/history")[1])["entries"]
            texts = {one["n"]: texts.get(one["n"], self.config.read_text()) for one in entries}
        first = min(texts)
        self.assertEqual(self.ask("POST", f"/v1/config/history/{first}/revert")[0], 200)
        self.assertEqual(self.config.read_text(), texts[first])


if __name__ == "__main__":
    gateway_fixture.BINARY = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
