#!/usr/bin/env python3
"""What a gateway's admin listener computes when it is asked (/v1/whatif, /v1/capacity): the numbers are the verbs', one at a time, bounded, and whoever
leaves ends it. And the configuration's dry run.

usage: computed_pages_test.py BINARY
"""
import http.client
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.parse

from ports import free_port

ROOT = pathlib.Path(__file__).resolve().parent.parent
CAPACITY = ROOT / "deploy" / "capacity.toml"
BINARY = None
CONFIG = """[gateway]
listen = "127.0.0.1:0"
admin = "127.0.0.1:{port}"

[[pool]]
name = "box"
model = "pelton-box"

[pool.scale]
min = 0
max = 4
window = 10
scale_down_delay = 1

[pool.launch]
serve = ["models/none"]
"""


class Gateway:
    """Of a pool that nobody asks for: its autoscaler decides once a second, and starts nothing."""

    def __init__(self, folder, *words):
        self.port = free_port()
        self.file = folder / "gateway.toml"
        self.file.write_text(CONFIG.format(port=self.port))
        self.process = subprocess.Popen([BINARY, "gateway", "--config", self.file, "--with-autoscaler", *map(str, words)], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, cwd=folder)
        while not self.process.stdout.readline().startswith("admin on "):
            assert self.process.poll() is None, self.process.stderr.read()

    def ask(self, path, method="GET", body=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read(), answer.headers
        finally:
            connection.close()

    def refused(self, path, **more):
        status, body, headers = self.ask(path, **more)
        error = json.loads(body)["error"]
        return status, error["code"], error["message"], headers

    def children(self):
        text = pathlib.Path(f"/proc/{self.process.pid}/task").glob("*/children")
        return [int(one) for file in text for one in file.read_text().split()]

    def close(self):
        self.process.terminate()
        self.process.wait(30)
        self.process.stdout.close()
        self.process.stderr.close()


def verb(*words, codes=(0,)):
    done = subprocess.run([BINARY, *map(str, words)], capture_output=True, check=False, timeout=60)
    assert done.returncode in codes, (words, done.returncode, done.stderr)
    return done.stdout


# A plan that takes long: many kinds of machines that differ in little.
def slow_capacity(entries, variants, models):
    lines = ['[plan]\nsurvive = ["zone", "region", "provider", "spot"]\n']
    for i in range(entries):
        lines.append(f'[[capacity]]\nname = "e{i}"\nprovider = "p{i % 7}"\nregion = "r{i % 11}"\nzone = "{i % 13}"\nmachine = "m{i % variants}"\n'
                     f'kind = "{"spot" if i % 2 else "on_demand"}"\nprice_per_hour = {1 + i * 37 % 101 / 100}\nquota = {3 + i % 17}\n')
    for i in range(variants):
        for model in range(models):
            lines.append(f'[[variant]]\nname = "v{i}-{model}"\nmodel = "x{model}"\nmachine = "m{i}"\nrate = {1 + (i * 13 + model * 7) % 19 / 10}\n')
    for model in range(models):
        lines.append(f'[[demand]]\nmodel = "x{model}"\nrate = {7 + model}\n')
    return "\n".join(lines)


class Computed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.scratch.name)
        cls.facts = cls.folder / "facts.jsonl"
        cls.capacity = cls.folder / "capacity.toml"
        cls.capacity.write_bytes(CAPACITY.read_bytes())
        # What the verb would take for itself from a unit's environment.
        os.environ["PELTON_WITHOUT"] = "north"
        cls.gateway = Gateway(cls.folder, "--record-facts", cls.facts, "--capacity", cls.capacity)
        del os.environ["PELTON_WITHOUT"]

    @classmethod
    def tearDownClass(cls):
        cls.gateway.close()
        cls.scratch.cleanup()

    def test_capacity_is_what_the_verb_says(self):
        for asked in ([], ["north/eu/2"], ["west-spot"]):
            query = urllib.parse.urlencode([("without", one) for one in asked])
            status, body, headers = self.gateway.ask("/v1/capacity?" + query)
            self.assertEqual((status, headers["Content-Type"]), (200, "application/json"))
            self.assertEqual(body, verb("capacity", "plan", "--config", self.capacity, "--explain", "--json", *[f"--without={one}" for one in asked], codes=(0, 5)))
        plan = json.loads(self.gateway.ask("/v1/capacity")[1])
        machines = {one["name"]: one for one in plan["variants"]}
        for entry in plan["entries"]:
            taken = sum(one["replicas"] * machines[one["variant"]]["machines"] for one in plan["placements"] if one["capacity"] == entry["name"])
            self.assertEqual(entry["machines"], taken)
            paid = entry["quota"] if entry["kind"] == "reserved" else taken
            self.assertAlmostEqual(entry["per_hour"], paid * entry["price_per_hour"])
        # All that is left is what leaves the providers with answers.
        self.assertGreaterEqual(plan["per_hour"], sum(entry["per_hour"] for entry in plan["entries"]) - 1e-9)

    def test_a_plan_that_there_is_none_of_is_an_answer(self):
        text = CAPACITY.read_text()
        try:
            head, _, rest = text.rpartition("[[demand]]")
            self.capacity.write_text(head + "[[demand]]" + rest.replace("rate = ", "rate = 9999", 1))
            status, body, _ = self.gateway.ask("/v1/capacity")
            plan = json.loads(body)
            self.assertEqual((status, plan["possible"]), (200, False))
            self.assertTrue(plan["shortfalls"][0]["wanted"] > plan["shortfalls"][0]["given"])
            self.capacity.write_text(text.replace("\nquota = ", "\nquotta = ", 1))
            status, code, message, _ = self.gateway.refused("/v1/capacity")
            self.assertEqual((status, code), (400, "not_computed"))
            self.assertIn("quotta", message)
        finally:
            self.capacity.write_bytes(CAPACITY.read_bytes())

    def test_what_if_is_what_the_verb_says_of_the_same_facts(self):
        end = time.monotonic() + 150  # on a busy machine most tries see a decision come meanwhile
        while self.facts.read_bytes().count(b'"decision"') < 3:
            self.assertLess(time.monotonic(), end)
            time.sleep(0.1)
        copy = self.folder / "copy.jsonl"
        for query, flags in (("", []), ("?pool=box&last=1h&set=scale_down_delay%3D120&set=max%3D2&seed=7&late_seconds=3", [
                "--pool=box", "--last=1h", "--set=scale_down_delay=120", "--set=max=2", "--seed=7", "--late-seconds=3"])):
            while True:  # until nothing was recorded meanwhile
                copy.write_bytes(self.facts.read_bytes())
                status, body, _ = self.gateway.ask("/v1/whatif" + query)
                if copy.read_bytes() == self.facts.read_bytes():
                    break
                self.assertLess(time.monotonic(), end)
            self.assertEqual(status, 200, body)
            self.assertEqual(body, verb("whatif", "--facts", copy, "--json", "-", *flags))
        self.assertEqual([run["name"] for run in json.loads(body)["runs"]], ["recorded", "played", "scale_down_delay=120, max=2"])

    def test_what_is_wrong_is_refused_with_the_verbs_words(self):
        for path, status, code, words in (
                ("/v1/whatif?set=max", 400, "not_computed", "has no value"), ("/v1/whatif?set=maxx=3", 400, "not_computed", "maxx"),
                ("/v1/whatif?pool=none", 400, "not_computed", "none"), ("/v1/whatif?last=soon", 400, "not_computed", "--last"),
                ("/v1/whatif?html=/tmp/x", 400, None, "'html' is nothing"), ("/v1/whatif?set=" + "x" * 5000, 400, None, "too much"),
                ("/v1/whatif?" + "&".join(["set=max=3"] * 80), 400, None, "too much"), ("/v1/whatif?set=a%00b", 400, None, "byte of 0"),
                ("/v1/capacity?config=/etc/passwd", 400, None, "'config' is nothing"), ("/v1/capacity?without=nowhere", 400, "not_computed", "nowhere"),
                ("/v1/capacity?without=--json", 400, "not_computed", "--json")):
            with self.subTest(path[:60]):
                said = self.gateway.refused(path)
                self.assertEqual((said[0], said[1] if code else None), (status, code), said)
                self.assertIn(words, said[2])
        self.assertEqual(self.gateway.refused("/v1/capacity", method="POST", body="{}")[0], 405)
        self.assertEqual(self.gateway.refused("/v1/capacity", headers={"Sec-Fetch-Site": "cross-site"})[:2], (403, "forbidden_origin"))
        self.assertEqual(self.gateway.ask("/v1/capacity", headers={"Sec-Fetch-Site": "same-origin"})[0], 200)

    def test_one_at_a_time_and_it_ends_with_its_client(self):
        self.capacity.write_text(slow_capacity(60, 12, 8))
        try:
            slow = socket.create_connection(("127.0.0.1", self.gateway.port))
            slow.sendall(b"GET /v1/capacity HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            self.until(lambda: self.gateway.children(), "the verb runs")
            (child,) = self.gateway.children()
            if "AddressSanitizer" not in verb("--version").decode():
                # It is held back a moment after it has begun.
                limits = pathlib.Path(f"/proc/{child}/limits")
                bounds = (r"Max data size\s+2147483648 ", r"Max cpu time\s+30 ")
                self.until(lambda: all(re.search(bound, limits.read_text()) for bound in bounds), "it is held back")
            status, code, _, headers = self.gateway.refused("/v1/whatif")
            self.assertEqual((status, code, headers["Retry-After"]), (503, "one_at_a_time", "1"))
            began = time.monotonic()
            self.assertEqual(self.gateway.ask("/v1/workers")[0], 200)
            self.assertLess(time.monotonic() - began, 5, "nobody waits for it")
            slow.close()
            self.until(lambda: not self.gateway.children(), "it was given up")
        finally:
            self.capacity.write_bytes(CAPACITY.read_bytes())
        self.until(lambda: self.gateway.ask("/v1/capacity")[0] == 200, "the next one is computed", 150)  # at the least priority

    def until(self, holds, what, most_s=20):
        end = time.monotonic() + most_s
        while not holds():
            self.assertLess(time.monotonic(), end, what)
            time.sleep(0.02)

    def test_a_dry_run_says_what_would_be_and_changes_nothing(self):
        text = self.gateway.file.read_text()
        files = {one.name: one.read_bytes() for one in self.folder.iterdir() if one.name.startswith("gateway.toml")}
        other = text.replace("[gateway]\n", "[gateway]\nthreads = 2\nretries = 7\n")
        status, body, _ = self.gateway.ask("/v1/config?dry_run=true", "PUT", other)
        said = json.loads(body)
        self.assertEqual((status, said["takes_new_start"]), (200, ["threads"]))
        self.assertIn("retries = 7", said["file"])
        status, code, message, _ = self.gateway.refused("/v1/config?dry_run=true", method="PUT", body=text.replace("max = 4", "max = -4"))
        self.assertEqual((status, code), (400, "bad_config"))
        self.assertIn("max", message)
        self.assertEqual(self.gateway.refused("/v1/config?dry_run=perhaps", method="PUT", body=other)[0], 400)
        self.assertEqual(self.gateway.refused("/v1/config?dry_run=true", method="PUT", body=other, headers={"If-Match": '"x"'})[0], 412)
        self.assertEqual(self.gateway.file.read_text(), text)
        self.assertEqual({one.name: one.read_bytes() for one in self.folder.iterdir() if one.name.startswith("gateway.toml")}, files)
        self.assertNotIn("retries = 7", self.gateway.ask("/v1/config?form=effective")[1].decode())

    def test_without_the_files_there_is_nothing(self):
        with tempfile.TemporaryDirectory() as name:
            bare = Gateway(pathlib.Path(name))
            try:
                self.assertEqual(bare.refused("/v1/whatif")[:2], (404, "no_facts"))
                self.assertEqual(bare.refused("/v1/capacity")[:2], (404, "no_capacity"))
                pages = json.loads(bare.ask("/console/config.json")[1])
                self.assertNotIn("capacity", pages["pages"])
                self.assertFalse(pages["what_if"])
            finally:
                bare.close()
            done = subprocess.run([BINARY, "gateway", "--config", self.gateway.file, "--capacity", "/nowhere"], capture_output=True, text=True, check=False)
            self.assertIn("/nowhere", done.stderr)
            self.assertNotEqual(done.returncode, 0)

    def test_a_process_that_ends_ends_what_it_has_asked_for(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "slow.toml").write_text(slow_capacity(60, 12, 8))
            gateway = Gateway(folder, "--capacity", folder / "slow.toml")
            asking = threading.Thread(target=lambda: self.assertRaises((OSError, http.client.HTTPException), gateway.ask, "/v1/capacity"))
            asking.start()
            self.until(lambda: gateway.children(), "the verb runs")
            (child,) = gateway.children()
            began = time.monotonic()
            gateway.close()
            self.assertLess(time.monotonic() - began, 15)
            asking.join()
            self.assertFalse(pathlib.Path(f"/proc/{child}").exists())


if __name__ == "__main__":
    BINARY = os.path.abspath(sys.argv.pop(1))
    unittest.main()
