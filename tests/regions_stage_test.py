#!/usr/bin/env python3
"""A configuration goes to one region's gateway first and is watched there: a good one goes on to the next region, a bad one is taken
back with its reason, and the other region has never seen it.

usage: regions_stage_test.py BINARY
"""
import contextlib
import json
import pathlib
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import gateway_fixture
from gateway_fixture import Fleet, ask, chat
from ports import free_port

CHAT = "/v1/chat/completions"
GOOD = {"gateway": {"retries": 3}}


class Cutter:
    """TCP to one port. Of a request that begins as one of `cut`, so many times, the gateway gets all, and the connection breaks once it
    has answered; `swallows`: it gets nothing of it."""

    def __init__(self, port):
        self.target, self.cut, self.swallows, self.were = port, {}, False, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self.pass_on, args=(self.listener.accept()[0],), daemon=True).start()

    def is_cut(self, data):
        for begin, times in self.cut.items():
            # A dry run is another path.
            if data.startswith(begin) and times > 0:
                self.cut[begin] = times - 1
                self.were += 1
                return True
        return False

    def pass_on(self, near):
        with contextlib.suppress(OSError), near, socket.create_connection(("127.0.0.1", self.target)) as far:
            near.settimeout(30)
            far.settimeout(30)
            cuts = False
            while True:
                ready = select.select([near, far], [], [], 30)[0]
                if not ready:
                    return
                if near in ready:
                    data = near.recv(1 << 20)
                    cuts = cuts or self.is_cut(data)
                    if not data or (cuts and self.swallows):
                        return
                    far.sendall(data)
                else:
                    data = far.recv(1 << 20)
                    if not data or cuts:
                        return
                    near.sendall(data)

    def close(self):
        self.listener.close()


class Region(Fleet):
    """A gateway with one worker, and clients that ask all the time once they are started: several, as a request without a worker
    is held for seconds before it fails."""

    def __init__(self, folder, name):
        folder.mkdir()
        self.name, self.statuses, self.over = name, [], threading.Event()
        secret, keys, self.log, self.audit_key = (folder / one for one in ("secret", "keys", "audit.jsonl", "audit.key"))
        secret.write_text("s" * 160)
        keys.write_text("sk-ann ann\n")
        self.audit_key.write_text("0123456789abcdef" * 4)
        self.clients = [threading.Thread(target=self.ask_all_the_time) for _ in range(8)]
        super().__init__(folder, 1, pool=f'region = "{name}"\n', record=("--audit-log", self.log, "--audit-key-file", self.audit_key),
                         gateway=(f'region = "{name}"\nregion_secret_file = "{secret}"\nkeys_file = "{keys}"\n',))
        self.url = f"http://127.0.0.1:{self.admin}"
        self.before = self.config.read_text()

    def ask_all_the_time(self):
        number = 0
        while not self.over.is_set():
            number += 1
            self.statuses.append(ask(self.gateway.port, "POST", CHAT, chat(number, 4, 7), Authorization="Bearer sk-ann")[0])
            time.sleep(0.02)

    def ask_on(self, clients):
        for client in self.clients[:clients]:
            client.start()

    def close(self):
        self.over.set()
        for client in self.clients:
            if client.ident is not None:
                client.join()
        super().close()

    def history(self):
        return json.loads(ask(self.admin, "GET", "/v1/config/history")[1])["entries"]

    def audited(self):
        done = subprocess.run([gateway_fixture.BINARY, "audit", "show", self.log, "--key-file", self.audit_key, "--json"], capture_output=True, text=True,
                              timeout=60, check=True)
        return [line for line in map(json.loads, done.stdout.splitlines()) if line["what"] == "configure"]

    def without_worker(self):
        """A patch by which this region's pool has another worker, where nobody is."""
        return {"worker": {f"http://127.0.0.1:{self.ports[0]}": None, f"http://127.0.0.1:{free_port()}": {"pool": "box"}}}


class Stage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=self.scratch.name))
        self.eu, self.us = Region(self.folder / "eu", "eu"), None
        self.addCleanup(self.eu.close)
        self.us = Region(self.folder / "us", "us")
        self.addCleanup(self.us.close)
        self.us.ask_on(1)

    def words(self, *more):
        return [gateway_fixture.BINARY, "fleet", "stage", "-", "--to", f"eu={self.eu.url}", "--to", f"us={self.us.url}", *map(str, more)]

    def stage(self, patch, *more):
        return subprocess.run(self.words(*more), input=json.dumps(patch), capture_output=True, text=True, timeout=100, check=False)

    def expect_untouched(self, region, numbers=1):
        self.assertEqual(region.config.read_text(), region.before)
        self.assertEqual(len(region.history()), numbers)

    def expect_undisturbed(self, region):
        self.assertGreater(len(region.statuses), 10)
        self.assertEqual(set(region.statuses), {200})

    def test_a_good_one_goes_on_to_the_next_region(self):
        planned = self.stage(GOOD, "--dry-run")
        self.assertEqual((planned.returncode, planned.stdout), (0, f"eu {self.eu.url}: would change\nus {self.us.url}: would change\n"), planned.stderr)
        self.expect_untouched(self.eu)
        done = self.stage(GOOD, "--watch", 1)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.splitlines()[2:], ["eu: good", "us: good"])
        for region in (self.eu, self.us):
            text = region.before.replace("[gateway]\n", "", 1)
            self.assertIn("retries = 3\n", region.config.read_text())
            self.assertEqual(sorted(region.config.read_text().replace("retries = 3\n", "").splitlines()), sorted(("[gateway]\n" + text).splitlines()))
            self.assertEqual(ask(region.admin, "GET", "/v1/config")[1], region.config.read_text())
            self.assertEqual(region.history()[-1]["changes"], ["why: staged, eu first", "~ gateway: retries = 2 -> 3"])
        self.assertGreaterEqual(self.us.history()[-1]["at"] - self.eu.history()[-1]["at"], 1000)
        again = self.stage(GOOD, "--watch", 0)
        self.assertEqual((again.returncode, again.stdout.count("nothing to change")), (0, 2), again.stderr)
        self.assertEqual(len(self.us.history()), 2)
        self.expect_undisturbed(self.us)

    def test_one_by_which_requests_fail_is_taken_back_and_the_other_region_never_sees_it(self):
        self.eu.ask_on(8)
        patch = self.eu.without_worker()
        done = self.stage(patch, "--watch", 60, "--grace", 50)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertRegex(done.stderr, r"eu \(.*\): \d+ of \d+ requests failed \(.* %; at most 2 %\). All is as it was before")
        self.expect_taken_back("requests failed")
        self.expect_untouched(self.us)
        # And requests are answered again.
        self.eu.wait_for(1)
        before = len(self.eu.statuses)
        while len(self.eu.statuses) < before + 30:  # those that were held then are over
            time.sleep(0.05)
        self.assertEqual(set(self.eu.statuses[-5:]), {200})
        self.expect_undisturbed(self.us)

    def expect_taken_back(self, why):
        self.assertEqual(self.eu.config.read_text(), self.eu.before, "to the byte")
        first, staged, back = self.eu.history()
        self.assertEqual((staged["changes"][0], back["reverts_to"], back["etag"]), ("why: staged, eu first", first["n"], first["etag"]))
        self.assertIn("why: taken back: eu (", back["changes"][0])
        self.assertIn(why, back["changes"][0])
        lines = self.eu.audited()
        self.assertEqual([line["result"] for line in lines], ["done", "done"])
        self.assertEqual(lines[1]["detail"][:2], [f"= {first['n']}", back["changes"][0]])

    def test_one_by_which_a_pool_has_no_worker_is_taken_back_without_any_requests(self):
        done = self.stage(self.eu.without_worker(), "--watch", 1, "--grace", 2)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("no worker of box takes requests any more", done.stderr)
        self.expect_taken_back("no worker of box")
        self.expect_untouched(self.us)
        self.eu.wait_for(1)
        self.expect_undisturbed(self.us)

    def test_what_a_later_region_refuses_is_put_nowhere(self):
        wrong = {"retries": {"gateway": {"retries": 99}}, "a worker of eu": {"worker": {f"http://127.0.0.1:{self.eu.ports[0]}": {"pool": "nothing"}}}}
        for what, patch in wrong.items():
            with self.subTest(what):
                done = self.stage(patch)
                self.assertEqual(done.returncode, 3, done.stderr)
                self.assertIn(self.eu.url, done.stderr)
        # Only eu takes this one: a worker that us lacks is no whole one.
        done = self.stage({"worker": {f"http://127.0.0.1:{self.eu.ports[0]}": {"zone": "z"}}})
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn(self.us.url, done.stderr)
        for words in (("--to", f"us={self.eu.url}x"), ("--to", "eu"), ("--to", "=http://127.0.0.1:1"), ("--to", f"eu={self.eu.url}"), ("--to", "eu=http://127.0.0.1:1")):
            self.assertEqual(self.stage(GOOD, *words).returncode, 2, words)
        swapped = subprocess.run([gateway_fixture.BINARY, "fleet", "stage", "-", "--to", f"us={self.eu.url}"], input=json.dumps(GOOD), capture_output=True, text=True,
                                 timeout=60, check=False)
        self.assertEqual(swapped.returncode, 2, swapped.stderr)
        self.assertIn("is a gateway of 'eu'", swapped.stderr)
        for region in (self.eu, self.us):
            self.expect_untouched(region)
        status, text = ask(self.eu.admin, "PATCH", "/v1/config", GOOD, **{"Content-Type": "application/merge-patch+json", "X-Pelton-Why": "x" * 401})[:2]
        self.assertEqual((status, json.loads(text)["error"]["param"]), (400, "x-pelton-why"), text)
        self.expect_untouched(self.eu)

    def begin(self, patch):
        running = subprocess.Popen(self.words("--watch", 60), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        running.stdin.write(json.dumps(patch))
        running.stdin.close()
        running.stdin = None
        end = time.monotonic() + 30
        while "retries = 3" not in self.eu.config.read_text():
            assert time.monotonic() < end, "waited in vain"
            time.sleep(0.05)
        return running

    def test_whoever_breaks_it_off_has_it_taken_back(self):
        running = self.begin(GOOD)
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=60)
        self.assertEqual(running.returncode, 1, said)
        self.assertIn("it was broken off. All is as it was before", said)
        self.assertEqual(self.eu.config.read_text(), self.eu.before)
        self.assertEqual(self.eu.history()[-1]["changes"][0], "why: taken back: it was broken off")
        self.expect_untouched(self.us)

    def through(self, cutter):
        """The last region's gateway is reached through it."""
        self.addCleanup(cutter.close)
        self.us.url = f"http://127.0.0.1:{cutter.port}"
        return cutter

    def test_a_patch_whose_answer_is_lost_is_found_and_goes_on(self):
        cutter = self.through(Cutter(self.us.admin))
        cutter.cut = {b"PATCH /v1/config HTTP": 1}
        done = self.stage(GOOD, "--watch", 1)
        self.assertEqual((done.returncode, cutter.were), (0, 1), done.stderr)
        self.assertIn("no answer", done.stderr)
        self.assertEqual(done.stdout.splitlines()[2:], ["eu: good", "us: good"])
        self.assertEqual(self.us.history()[-1]["changes"], ["why: staged, eu first", "~ gateway: retries = 2 -> 3"])
        self.assertEqual(len(self.us.history()), 2)

    def test_one_whose_answers_are_lost_is_taken_back_where_it_was_taken(self):
        cutter = self.through(Cutter(self.us.admin))
        # The revert's answer is lost, too.
        cutter.cut = {b"PATCH /v1/config HTTP": 1, b"POST /v1/config/history": 1}
        done = subprocess.run([gateway_fixture.BINARY, "fleet", "stage", "-", "--to", f"us={self.us.url}", "--watch", "1", "--grace", "2"],
                              input=json.dumps(self.us.without_worker()), capture_output=True, text=True, timeout=100, check=False)
        self.assertEqual((done.returncode, cutter.were), (1, 2), done.stderr)
        self.assertIn("no worker of box takes requests any more", done.stderr)
        self.assertIn("All is as it was before", done.stderr)
        self.assertEqual(self.us.config.read_text(), self.us.before)
        self.assertEqual(len(self.us.history()), 3)

    def test_one_that_never_arrives_is_an_error_and_the_first_region_is_as_before(self):
        cutter = self.through(Cutter(self.us.admin))
        cutter.cut, cutter.swallows = {b"PATCH /v1/config HTTP": 1}, True
        done = self.stage(GOOD, "--watch", 1, "--grace", 2)
        self.assertEqual((done.returncode, cutter.were), (1, 1), done.stderr)
        self.assertIn("its file does not have the change. All is as it was before", done.stderr)
        self.assertEqual(self.eu.config.read_text(), self.eu.before)
        self.assertEqual(len(self.eu.history()), 3)
        self.expect_untouched(self.us)

    def test_what_somebody_else_has_written_meanwhile_stays(self):
        running = self.begin(GOOD)
        self.assertEqual(ask(self.eu.admin, "PATCH", "/v1/config", {"gateway": {"retries": 1}}, **{"Content-Type": "application/merge-patch+json"})[0], 200)
        _, said = running.communicate(timeout=60)
        self.assertEqual(running.returncode, 1, said)
        self.assertIn("somebody else has changed the file meanwhile", said)
        self.assertIn("NOT taken back", said)
        self.assertIn("retries = 1\n", self.eu.config.read_text())
        self.expect_untouched(self.us)


if __name__ == "__main__":
    gateway_fixture.BINARY = sys.argv.pop()
    unittest.main()
