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
import subprocess
import sys
import tempfile
import unittest
import urllib.parse

import gateway_fixture
from gateway_fixture import Process
from ports import free_port

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


if __name__ == "__main__":
    gateway_fixture.BINARY = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
