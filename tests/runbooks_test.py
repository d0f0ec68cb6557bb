#!/usr/bin/env python3
"""The runbooks of deploy/runbooks, carried out on real processes and taken back: what each says holds, and where a step fails nothing of it is left.

usage: runbooks_test.py BINARY
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest

import gateway_fixture
from gateway_fixture import Fleet, Process, ask, chat, letters
from ports import free_port
from regions_test import Region, wait
from tiers import full

RUNBOOKS = pathlib.Path(__file__).resolve().parent.parent / "deploy" / "runbooks"
RUNNER = types.ModuleType("runbook")
exec(compile((RUNBOOKS / "run").read_text(), RUNBOOKS / "run", "exec"), RUNNER.__dict__)
CHAT = "/v1/chat/completions"
SOUND = 'title = "t"\nwhen = "w"\n[parameters]\na = "b"\n[[step]]\nname = "s"\ncommand = ["echo", "{a}"]\nstays = "it is said"\n'


class Runbooks(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        programs = self.folder / "programs"
        programs.mkdir()
        (programs / "pelton").symlink_to(gateway_fixture.BINARY)
        self.environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}

    def run_book(self, book, *words, **values):
        sets = [word for name, value in values.items() for word in ("--set", f"{name}={value}")]
        file = book if isinstance(book, pathlib.Path) else RUNBOOKS / f"{book}.toml"
        return subprocess.run([RUNBOOKS / "run", file, *sets, "--work", self.folder / "work", "--yes", *words], capture_output=True, text=True, timeout=300,
                              env=self.environment, check=False, stdin=subprocess.DEVNULL)

    def carried_out(self, book, *words, **values):
        done = self.run_book(book, *words, **values)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def written(self, text):
        file = self.folder / "book.toml"
        file.write_text(text)
        return file

    @staticmethod
    def config(fleet):
        return json.loads(ask(fleet.admin, "GET", "/v1/config?form=json")[1])

    def test_each_file_is_sound_and_named_in_the_docs(self):
        books = sorted(RUNBOOKS.glob("*.toml"))
        self.assertEqual([book.stem for book in books], ["key-rotation", "lost-region", "new-provider", "new-region"])
        done = subprocess.run([RUNBOOKS / "run", "--check", *books], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        page = (RUNBOOKS.parent.parent / "docs" / "operations.md").read_text()
        self.assertEqual([book.name for book in books if f"`{book.name}`" not in page], [])

    def test_what_is_no_runbook_is_refused_with_a_reason(self):
        for old, new, why in ((SOUND, "[[step", "Expected"), ("when", "whenn", "no key 'whenn'"), ('when = "w"\n', "", "by 'when'"), ("[[step]]\n", "[[steps]]\n", "no key 'steps'"),
                              ('name = "s"\n', "", "no 'name'"), ('stays = "it is said"\n', "", "by 'undo' how it is taken back"), ("{a}", "{b}", "uses {b}"),
                              ("{a}", "x", "no step uses the parameter 'a'"), ('command = ["echo", "{a}"]\n', "", "does nothing"), ('["echo", "{a}"]', '"echo {a}"', "'command' is no list"),
                              ('["echo", "{a}"]', "[]", "'command' is no list"), ("stays", "undo_input", "no 'undo'"), ("stays", "keep = \"work\"\nstays", "keeps work"),
                              ("stays", 'says = "x"\nstays', "what 'holds' prints"), ("stays", "within_s = true\nstays", "'within_s' is no int"),
                              ('a = "b"\n', 'a = "b"\nwork = "c"\n', "'work' is the folder's")):
            with self.subTest(why=why):
                self.assertIn(old, SOUND)
                with self.assertRaises(RUNNER.Wrong) as refused:
                    RUNNER.read(self.written(SOUND.replace(old, new)))
                self.assertIn(why, str(refused.exception))
        done = self.run_book(self.written("[[step"), "--check")
        self.assertEqual((done.returncode, "book.toml: Expected" in done.stderr), (2, True), done.stderr)
        self.assertEqual(self.run_book(self.written(SOUND)).returncode, 2, "'a' is not set")
        self.assertEqual(self.run_book(self.written(SOUND), a=1, b=2).returncode, 2, "there is no 'b'")

    def test_what_was_done_is_taken_back_last_step_first(self):
        log = self.folder / "log"
        steps = "".join(f'[[step]]\nname = "s{i}"\ncommand = ["sh", "-c", "echo do{i} >> {log}; echo k{i}"]\nkeep = "k{i_word}"\n'
                        f'undo = ["sh", "-c", "echo undo{i} $(cat) >> {log}"]\nundo_input = "{{k{i_word}}}"\n' for i, i_word in ((1, "one"), (2, "two")))
        head = 'title = "t"\nwhen = "w"\n'
        sound = self.written(head + steps)
        self.carried_out(sound)
        self.assertEqual(log.read_text().split("\n")[:-1], ["do1", "do2"])
        # Another day: what was kept is still there.
        self.carried_out(sound, "--undo")
        self.assertEqual(log.read_text().split("\n")[2:-1], ["undo2 k2", "undo1 k1"])
        log.unlink()
        for last, why in (('command = ["false"]\nstays = "nothing"', "its command ends with 1"), ('holds = ["false"]', "what must hold after it does not"),
                          ('fails = ["true"]', "what must fail after it does not"), ('holds = ["echo", "no"]\nsays = "yes"', "nothing like 'yes'"),
                          ('command = ["/nothing/here"]\nstays = "nothing"', "No such file")):
            with self.subTest(why=why):
                done = self.run_book(self.written(f'{head}{steps}[[step]]\nname = "s3"\n{last}\n'), "--within", "0.1")
                self.assertEqual(done.returncode, 1, done.stdout)
                self.assertIn(why, done.stderr)
                self.assertEqual(log.read_text().split("\n")[:-1], ["do1", "do2", "undo2 k2", "undo1 k1"])
                log.unlink()
        # What cannot be taken back is said, and all before it is.
        done = self.run_book(self.written(head + steps.replace("undo2 $(cat)", "undo2 $(cat); exit 7 ") + '[[step]]\nname = "s3"\nholds = ["false"]\n'), "--within", "0.1")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("it ends with 7", done.stderr)
        self.assertIn("undo1 k1", log.read_text())
        log.unlink()
        # Nothing is done only to be shown.
        self.assertIn("echo do1", self.carried_out(sound, "--show"))
        self.assertFalse(log.exists())

    def pair(self):
        eu, us = (Region(self.folder / name, name) for name in ("eu", "us"))
        self.addCleanup(eu.close)
        self.addCleanup(us.close)
        key = eu.folder / "key-of-us"
        key.write_text("sk-gateway-of-us\n")
        return eu, us, {"admin": f"http://127.0.0.1:{eu.admin}", "region": "us", "gateway": f"http://127.0.0.1:{us.gateway.port}", "key_file": key, "egress_per_gb": 0.02}

    def text_of(self, fleet, number):
        status, text = fleet.asked(number)
        self.assertEqual(status, 200, text)
        return json.loads(text)["choices"][0]["message"]["content"]

    @full
    def test_a_new_region(self):
        eu, us, values = self.pair()
        before = self.config(eu)
        # A region that does not believe this one: nothing is left of it here.
        wrong = eu.folder / "wrong"
        wrong.write_text("sk-of-nobody\n")
        done = self.run_book("new-region", "--within", "2", **{**values, "key_file": wrong})
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("what must hold after it does not", done.stderr)
        self.assertEqual(self.config(eu), before)
        self.carried_out("new-region", **values)
        self.assertEqual(self.config(eu), {**before, "region": {"us": {"name": "us", "gateway": values["gateway"], "key_file": str(values["key_file"]), "egress_per_gb": 0.02}}})
        eu.kill(0)
        wait(lambda: eu.asked(1)[0] == 200)
        self.assertEqual(self.text_of(eu, 2), letters(7, 2, 8))
        self.assertEqual(us.begun(), sum(region["requests"] for region in eu.regions()))
        self.carried_out("new-region", "--undo", **values)
        self.assertEqual(self.config(eu), before)
        wait(lambda: not any(row["name"].startswith("region-") for row in eu.rows()))

    def capacity(self, providers):
        """A plan's file: a model, and two machines of each provider in a region of its own."""
        text = '[plan]\nsurvive = []\n[[variant]]\nname = "v"\nmodel = "pelton-box"\nmachine = "m"\nrate = 5\n[[demand]]\nmodel = "pelton-box"\nrate = 4\n'
        file = self.folder / "capacity.toml"
        file.write_text(text + "".join(self.entry(*one) for one in providers))
        return file

    @staticmethod
    def entry(provider, region):
        return f'[[capacity]]\nname = "{provider}-1"\nprovider = "{provider}"\nregion = "{region}"\nzone = "1"\nmachine = "m"\nprice_per_hour = 1\nquota = 4\n'

    def test_a_lost_region(self):
        eu, us, far = self.pair()
        self.carried_out("new-region", **far)
        spare = Process("serve", gateway_fixture.BOX, "--executor", f"modelled:{eu.script}", "--port", "0", "--fleet-port", port := free_port(), "--fleet-name", "spare",
                        "--fleet-key-file", eu.key)
        self.addCleanup(spare.end)
        before = self.config(eu)
        values = {"admin": far["admin"], "region": "us", "capacity": self.capacity([("north", "eu"), ("west", "us")]), "place": "west/us", "pool": "box", "worker": f"127.0.0.1:{port}"}
        # It is not lost.
        done = self.run_book("lost-region", "--within", "2", **values)
        self.assertEqual((done.returncode, self.config(eu)), (1, before), done.stderr)
        us.gateway.end()
        # What is left could not carry the demand: that is said before anything is done.
        done = self.run_book("lost-region", **{**values, "capacity": self.capacity([("west", "us")])})
        self.assertEqual((done.returncode, self.config(eu)), (1, before), done.stderr)
        self.assertIn("pelton-box", done.stderr)
        values["capacity"] = self.capacity([("north", "eu"), ("west", "us")])
        self.carried_out("lost-region", **values)
        self.assertEqual({row["name"] for row in eu.rows()}, {"w0", "spare"})
        for number in range(4):
            self.assertEqual(self.text_of(eu, number), letters(7, number, 8))
        # It is back.
        us.gateway = Process("gateway", "--config", us.config)
        us.configure(us.ports)
        self.carried_out("lost-region", "--undo", **values)
        self.assertEqual(self.config(eu), before)

    @full
    def test_a_new_provider(self):
        (self.folder / "fleet").mkdir()
        fleet = Fleet(self.folder / "fleet", 1)
        self.addCleanup(fleet.close)
        first = Process("serve", gateway_fixture.BOX, "--executor", f"modelled:{fleet.script}", "--port", "0", "--fleet-port", port := free_port(), "--fleet-name", "south",
                        "--fleet-key-file", fleet.key)
        self.addCleanup(first.end)
        capacity = self.capacity([("north", "eu")])
        plan, before = capacity.read_bytes(), self.config(fleet)
        entry = self.folder / "south.toml"
        entry.write_text(self.entry("south", "eu"))
        values = {"admin": f"http://127.0.0.1:{fleet.admin}", "capacity": capacity, "entry": entry, "cidrs_before": "null", "cidrs": '["127.0.0.0/8"]', "pool": "box", "worker": f"127.0.0.1:{port}"}
        # No worker of this fleet is there.
        done = self.run_book("new-provider", "--within", "2", **{**values, "worker": f"127.0.0.1:{free_port()}"})
        self.assertEqual((done.returncode, capacity.read_bytes(), self.config(fleet)), (1, plan, before), done.stderr)
        # An entry that is none.
        entry.write_text(self.entry("south", "eu").replace("quota = 4", "quota = -4"))
        done = self.run_book("new-provider", **values)
        self.assertEqual((done.returncode, capacity.read_bytes(), self.config(fleet)), (1, plan, before), done.stderr)
        self.assertIn("quota", done.stderr)
        entry.write_text(self.entry("south", "eu"))
        self.carried_out("new-provider", **values)
        self.assertEqual(capacity.read_text(), plan.decode() + "\n" + entry.read_text())
        self.assertEqual({row["name"]: row["state"] for row in fleet.rows()}, {"w0": "ready", "south": "ready"})
        self.carried_out("new-provider", "--undo", **values)
        self.assertEqual((capacity.read_bytes(), self.config(fleet)), (plan, before))

    def test_a_key_is_rotated(self):
        keys = self.folder / "keys"
        old, new, other = "sk-old-0123456789", "sk-new-0123456789", "sk-other-0123456789"
        keys.write_text(f"{other} acme\n{old} ann role=admin\n")
        keys.chmod(0o600)
        (self.folder / "fleet").mkdir()
        fleet = Fleet(self.folder / "fleet", 1, gateway=(f'keys_file = "{keys}"\n',))
        self.addCleanup(fleet.close)
        files = {}
        for name, key in (("old", old), ("new", new)):
            files[f"{name}_line"], files[f"{name}_header"] = self.folder / f"{name}.line", self.folder / f"{name}.header"
            files[f"{name}_line"].write_text(f"{key} ann role=admin\n")
            files[f"{name}_header"].write_text(f"Authorization: Bearer {key}\n")
        values = {"url": f"http://127.0.0.1:{fleet.gateway.port}/v1/models", "keys_file": keys, **files}

        def status(key):
            return ask(fleet.gateway.port, "POST", CHAT, chat(1, 4, 1), Authorization=f"Bearer {key}")[0]

        before = keys.read_text()
        # A new key that the gateway refuses the file for: all stays as it was.
        files["new_line"].write_text("too short\n")
        done = self.run_book("key-rotation", "--within", "2", **values)
        self.assertEqual((done.returncode, keys.read_text()), (1, before), done.stderr)
        files["new_line"].write_text(f"{new} ann role=admin\n")
        out = self.carried_out("key-rotation", **values)
        self.assertIn("by hand: ", out)
        self.assertEqual(keys.read_text(), f"{other} acme\n{new} ann role=admin\n")
        self.assertEqual(keys.stat().st_mode & 0o777, 0o600)
        self.assertEqual([status(key) for key in (old, new, other)], [401, 200, 200])
        self.assertFalse([secret for secret in (old, new) for file in (self.folder / "work").iterdir() if secret in file.read_text()])
        self.carried_out("key-rotation", "--undo", **values)
        self.assertEqual(sorted(keys.read_text().splitlines()), sorted(before.splitlines()))
        wait(lambda: [status(key) for key in (old, new, other)] == [200, 401, 200])


if __name__ == "__main__":
    gateway_fixture.BINARY = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
