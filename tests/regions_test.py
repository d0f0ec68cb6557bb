#!/usr/bin/env python3
"""Two regions, each with a gateway and workers of its own: requests stay where they are as long as there is room, go to the other
region when there is not or when the workers here are gone, never leave the region that a key is tied to, and are counted by tenant
and region. Whoever is no region's gateway sees nothing and is not believed.

usage: regions_test.py BINARY
"""
import http.client
import json
import pathlib
import sys
import tempfile
import threading
import time
import unittest

import gateway_fixture
from gateway_fixture import Fleet, ask, chat, letters
from regions_fixture import Link, Links
from tiers import full

CHAT = "/v1/chat/completions"
SUMMARY = "/v1/regions/summary"
FEW_SLOTS = {**gateway_fixture.SCRIPT, "slots": 2, "step_ms": 20}


class Region(Fleet):
    """A fleet whose gateway has a key of the other region's and of two tenants."""

    def __init__(self, folder, name, workers=1, script=None, secret=None):
        folder.mkdir()
        self.name = name
        self.keys, self.secret = folder / "keys", folder.parent / (secret or "secret")
        self.secret.write_text((secret or "s" * 40) * 4)
        self.keys.write_text(f"sk-ann ann\nsk-bob bob region={name}\nsk-gateway-of-{name} other-region gateway\n")
        super().__init__(folder, workers, script=script, pool=f'region = "{name}"\n',
                         gateway=(f'region = "{name}"\nregion_secret_file = "{self.secret}"\nkeys_file = "{self.keys}"\n',))

    def knows(self, other, port=None, more=""):
        """The file with another region, read by now."""
        key = self.folder / f"key-of-{other.name}"
        key.write_text(f"sk-gateway-of-{other.name}\n")
        reloads = self.metric("config_reloads_total")
        self.configure(self.ports, f'[[region]]\nname = "{other.name}"\ngateway = "http://127.0.0.1:{port or other.gateway.port}"\n'
                                   f'key_file = "{key}"\negress_per_gb = 0.02\n{more}')
        wait(lambda: self.metric("config_reloads_total") > reloads)

    def regions(self):
        return json.loads(ask(self.admin, "GET", "/v1/regions")[1])["regions"]

    def state_of(self, other):
        return next(row for row in self.rows() if row["name"] == f"region-{other.name}.box")

    def asked(self, number, count=8, key="sk-ann", **headers):
        return ask(self.gateway.port, "POST", CHAT, chat(number, count, 7), Authorization=f"Bearer {key}", **headers)

    def ready(self):
        return sum(row["state"] == "ready" for row in self.rows() if not row["name"].startswith("region-"))


def wait(what, seconds=15):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def text_of(answer):
    return json.loads(answer[1])["choices"][0]["message"]["content"]


class Regions(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def pair(self, script=None, both=False, more="", **us):
        self.eu = Region(self.folder / "eu", "eu", script=script)
        self.addCleanup(self.eu.close)
        self.us = Region(self.folder / "us", "us", script=script, **us)
        self.addCleanup(self.us.close)
        self.eu.knows(self.us, more=more)
        if both:
            self.us.knows(self.eu)

    def wait_for_region(self):
        wait(lambda: self.eu.state_of(self.us)["state"] == "ready")

    def sent(self):
        return sum(region["requests"] for region in self.eu.regions())

    def test_near_first_then_far(self):
        self.pair(script=FEW_SLOTS)
        self.wait_for_region()
        for number in range(10):
            self.assertEqual(text_of(self.eu.asked(number)), letters(7, number, 8))
        self.assertEqual(self.sent(), 0)  # there is room here
        # Two slots on either side: what comes at once goes to both, and each answer is its own.
        answers = {}

        def one(number):
            answers[number] = self.eu.asked(number, 24)
        threads = [threading.Thread(target=one, args=(number,)) for number in range(40)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for number, answer in answers.items():
            self.assertEqual((answer[0], text_of(answer)), (200, letters(7, number, 24)), answer)
        self.assertGreater(self.sent(), 2)
        self.assertLess(self.sent(), 40)
        # The other side counted as many, of no region's workers but its own.
        self.assertEqual(self.us.begun(), self.sent())
        [region] = self.eu.regions()
        self.assertEqual([row["tenant"] for row in region["tenants"]], ["ann"])
        for name in ("requests", "bytes_out", "bytes_in"):
            self.assertEqual(sum(row[name] for row in region["tenants"]), region[name])
        self.assertGreater(region["bytes_in"], 24 * region["requests"])
        self.assertAlmostEqual(region["egress_cost"], 0.02 * region["bytes_out"] / 1e9)
        self.assertGreater(region["round_trip_ms"], 0)
        self.assertEqual(self.eu.metric("region_requests_total", region="us"), region["requests"])

    def test_what_is_large_stays_where_sending_it_costs_much(self):
        """Though the other region has room: a hundred kilobytes are a hundred seconds here."""
        self.pair(script=FEW_SLOTS, more="egress_s_per_mb = 1000\n")
        self.wait_for_region()
        bodies = [json.dumps(chat(number, 24, 7)) + " " * 100_000 for number in range(24)]
        answers = {}

        def one(number):
            link = http.client.HTTPConnection("127.0.0.1", self.eu.gateway.port, timeout=60)
            link.request("POST", CHAT, bodies[number], {"Content-Type": "application/json", "Authorization": "Bearer sk-ann"})
            answer = link.getresponse()
            answers[number] = answer.status, answer.read().decode()
            link.close()
        threads = [threading.Thread(target=one, args=(number,)) for number in range(len(bodies))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for number, answer in answers.items():
            self.assertEqual((answer[0], text_of(answer)), (200, letters(7, number, 24)), answer)
        self.assertEqual(self.sent(), 0)

    def test_a_region_without_workers(self):
        self.pair(both=True)
        self.wait_for_region()
        self.eu.kill(0)
        wait(lambda: self.eu.asked(1)[0] == 200, 5)
        for number in range(10):
            self.assertEqual(text_of(self.eu.asked(number)), letters(7, number, 8))
        data = self.events(self.eu, 5, 40)
        self.assertEqual(data, letters(7, 5, 40))
        # Who is tied to this region is answered by nobody else.
        before = self.us.begun()
        status, text = self.eu.asked(3, key="sk-bob")
        self.assertEqual((status, json.loads(text)["error"]["code"]), (503, "no_worker"), text)
        self.assertEqual(self.us.begun(), before)
        # Neither region has any: each says so, and none sends the other's requests back.
        self.us.kill(0)
        wait(lambda: self.eu.state_of(self.us)["state"] != "ready" or not self.eu.regions()[0]["models"][0]["ready"])
        begun = time.monotonic()
        status, text = self.eu.asked(4)
        self.assertEqual(status, 503, text)
        self.assertLess(time.monotonic() - begun, 20)
        self.assertLess(self.us.begun() - before, 10)
        self.eu.start(0)
        wait(lambda: self.eu.ready() == 1)
        self.assertEqual(text_of(self.eu.asked(3, key="sk-bob")), letters(7, 3, 8))

    def events(self, region, number, count):
        link = http.client.HTTPConnection("127.0.0.1", region.gateway.port, timeout=60)
        self.addCleanup(link.close)
        link.request("POST", CHAT, json.dumps(chat(number, count, 7, stream=True)),
                     {"Content-Type": "application/json", "Authorization": "Bearer sk-ann"})
        answer = link.getresponse()
        self.assertEqual(answer.status, 200)
        data = [line[6:].strip() for line in answer if line.startswith(b"data: ")]
        self.assertEqual(data[-1], b"[DONE]")
        chunks = [json.loads(one) for one in data[:-1]]
        return "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])

    def test_a_client_says_where(self):
        self.pair()
        self.wait_for_region()
        self.assertEqual(text_of(self.eu.asked(1, **{"x-pelton-region": "us"})), letters(7, 1, 8))
        self.assertEqual(self.sent(), 1)
        self.assertEqual(text_of(self.eu.asked(1, **{"x-pelton-region": "eu"})), letters(7, 1, 8))
        self.assertEqual(self.sent(), 1)
        for key, region in (("sk-ann", "mars"), ("sk-bob", "us")):
            status, text = self.eu.asked(1, key=key, **{"x-pelton-region": region})
            self.assertEqual((status, json.loads(text)["error"]["code"]), (403, "region_not_allowed"), text)
        self.assertEqual(self.eu.asked(1, key="sk-bob", **{"x-pelton-region": "eu"})[0], 200)
        self.assertEqual(self.sent(), 1)
        # What only a gateway may say is nobody's word.
        self.eu.asked(1, **{"x-pelton-region": "us", "x-pelton-region-tenant": "bob"})
        self.assertEqual([row["tenant"] for row in self.eu.regions()[0]["tenants"]], ["ann"])

    @full
    def test_a_lost_region_holds_nobody_up(self):
        self.pair()
        self.wait_for_region()
        self.us.gateway.process.kill()
        for number in range(5):
            self.assertEqual(text_of(self.eu.asked(number)), letters(7, number, 8))
        wait(lambda: self.eu.state_of(self.us)["state"] == "down")
        self.assertTrue(self.eu.regions()[0]["trouble"])
        status, text = self.eu.asked(1, **{"x-pelton-region": "us", "x-request-timeout-ms": "1500"})
        self.assertIn(status, (408, 503), text)

    def test_who_may_be_answered_in_a_lost_region_only_gets_503_until_it_is_back(self):
        links = Links()
        self.addCleanup(links.close)
        self.pair()
        link = Link(links, [self.us.gateway.port], 0.001)
        self.addCleanup(link.close)
        self.eu.knows(self.us, port=link.port)
        self.wait_for_region()
        there = {"x-pelton-region": "us", "x-request-timeout-ms": "500"}
        self.assertEqual(text_of(self.eu.asked(1, **there)), letters(7, 1, 8))
        link.lose(True)
        seen = set()
        for number in range(6):
            status, text = self.eu.asked(number, **there)
            seen.add((status, json.loads(text)["error"]["code"]))
        # Once the region is known to be lost a request waits for it as long as it may.
        self.assertIn((503, "no_worker"), seen)
        self.assertLessEqual(seen, {(503, "no_worker"), (408, "deadline_exceeded")})
        wait(lambda: self.eu.state_of(self.us)["state"] == "down")
        link.lose(False)
        # Nobody has to ask there first.
        wait(lambda: self.eu.state_of(self.us)["state"] == "ready", 5)
        self.assertEqual(text_of(self.eu.asked(2, **there)), letters(7, 2, 8))

    def test_whoever_signs_with_another_secret(self):
        self.pair(secret="x" * 40)
        wait(lambda: self.eu.regions()[0]["trouble"])
        self.assertIn("region_secret_file", self.eu.regions()[0]["trouble"])
        self.assertNotEqual(self.eu.state_of(self.us)["state"], "ready")
        # And who has no gateway's key does not see what there is.
        for key in ("sk-ann", "sk-none"):
            status, text = ask(self.us.gateway.port, "GET", SUMMARY + "?nonce=1", Authorization=f"Bearer {key}")
            self.assertIn(status, (401, 404), text)
            self.assertNotIn("kv_used", text)
        status, text = ask(self.us.gateway.port, "GET", SUMMARY + "?nonce=1", Authorization="Bearer sk-gateway-of-us")
        self.assertEqual((status, json.loads(text)["region"]), (200, "us"))
        self.assertNotIn("ann", text)

    def test_files_that_are_wrong(self):
        head = '[gateway]\nlisten = "127.0.0.1:0"\n'
        own = 'region = "eu"\nregion_secret_file = "s"\n'
        pool = '[[pool]]\nname = "box"\nmodel = "m"\n[[worker]]\npool = "box"\nurl = "http://127.0.0.1:1"\n'
        region = '[[region]]\nname = "us"\ngateway = "http://127.0.0.1:2"\nkey_file = "k"\n'
        for text, said in ((head + pool + region, "means nothing without 'region'"),
                           (head + own + pool + region.replace('"us"', '"EU"'), "own region"),
                           (head + own + pool + region + region.replace('"us"', '"US"'), "by case alone"),
                           (head + own + pool + region + region, "another region's too"),
                           (head + own + pool + region.replace('key_file = "k"\n', ""), "'key_file' is missing"),
                           (head + own + pool + region.replace("http://127.0.0.1:2", "127.0.0.1:2"), "must be http://HOST:PORT"),
                           (head + own + pool + region + "egress_per_gb = -1\n", "egress_per_gb"),
                           (head + own + pool + region + "egress_s_per_mb = -1\n", "egress_s_per_mb"),
                           (head + own + pool + region + 'gatewey = "x"\n', "did you mean 'gateway'"),
                           (head + 'region = "e u"\n' + pool, "is letters")):
            file = self.folder / "wrong.toml"
            file.write_text(text)
            done = gateway_fixture.subprocess.run([gateway_fixture.BINARY, "gateway", "--config", file, "--check"],
                                                  capture_output=True, text=True, timeout=30, check=False)
            self.assertEqual(done.returncode, 3, (text, done.stderr))
            self.assertIn(said, done.stderr)


if __name__ == "__main__":
    gateway_fixture.BINARY = sys.argv.pop(1)
    unittest.main(verbosity=2)
