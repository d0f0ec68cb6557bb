#!/usr/bin/env python3
"""The prefix cache's tiers as a user meets them: whatever is evicted, restarted, killed, damaged or full, the model in the box says what
it says without tiers; hits come, and are counted.

usage: kv_tiers_test.py PELTON MODEL_FOLDER
"""
import concurrent.futures
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

from ports import free_port
from same_times import check_alike
from tiers import FULL, full

PELTON, MODEL = sys.argv[1:3]
SCHEMA = {"type": "object", "properties": {"words": {"type": "array", "items": {"type": "string", "maxLength": 8}, "maxItems": 3}},
          "required": ["words"], "additionalProperties": False}
WAYS = ({"temperature": 0}, {"temperature": 1.1, "seed": 7, "top_p": 0.95}, {"temperature": 0, "logprobs": True, "top_logprobs": 2},
        {"temperature": 0.8, "seed": 3, "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}})
PROMPTS = 40 if FULL else 20
# Of hits on the host, on the disk and after a restart. 500 take these three tests 170 s (two processors, load 6 to 12, 2026-11-30).
MANY = 500 if FULL else PROMPTS
COMMON = 64  # tokens that all prompts begin with
COMMON_OF_SCHEMA = 160  # and those with the schema


def common_of(number):
    """Tokens that the prompt has in common with others asked in the same way: its tenant's own once one of them was computed."""
    return COMMON_OF_SCHEMA if "response_format" in WAYS[number % len(WAYS)] else COMMON


# The device holds a few prompts of this length, the host some more, the disk all of them.
DEVICE = ("--max-model-len", "768", "--kv-cache-memory", "1MiB", "--max-num-seqs", "2")
HOST = ("--swap-space", "2MiB")
# What computing takes is known of steps of 32 tokens or more; unless it is known, whatever lies on the disk is read: so small a model
# computes faster than many a disk reads.
READ_ALWAYS = ("--max-num-batched-tokens", "31")
DISK_SIZE = "64MiB"
DISK_OF_MANY = "512MiB" if FULL else DISK_SIZE


def prompt(number):
    draw = random.Random(number)
    return f"Canary {number}. " + " ".join(draw.choice(("apple", "river", "seven", "cloud", "stone", "paper")) for _ in range(150))


class Server:
    def __init__(self, *flags, key=None):
        self.flags = flags
        self.key = key  # for whatever is not asked with another one

    def start(self):
        self.process = subprocess.Popen([PELTON, "serve", MODEL, "--port", "0", "--threads", "1", "--device", "cpu",
                                         "--current-date", "2026-11-21", *DEVICE, *self.flags],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if not line.startswith("listening on "):
            raise RuntimeError("the server did not start: " + line + self.process.communicate()[1])
        self.url = line.split()[2]
        return self

    __enter__ = start

    def stop(self):
        self.process.terminate()
        return self.process.communicate(timeout=60)[1]

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate(timeout=60)

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.stop()

    def post(self, path, body, key=None):
        headers = {"Content-Type": "application/json", **self.authorization(key)}
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=60) as reply:
            return json.load(reply)

    def authorization(self, key=None):
        key = key or self.key
        return {"Authorization": "Bearer " + key} if key else {}

    def ask(self, number, key=None):
        body = {"messages": [{"role": "user", "content": prompt(number)}], "max_completion_tokens": 24, **WAYS[number % len(WAYS)]}
        reply = self.post("/v1/chat/completions", body, key)
        details = reply["usage"]["prompt_tokens_details"]
        return json.dumps(reply["choices"]), details["cached_tokens"], details.get("cached_tokens_details", {})

    def answers(self, numbers, at_once=2):
        with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
            return [one[0] for one in pool.map(self.ask, numbers)]

    def disk_tokens(self, key=None):
        """Of some prompts. One that is read too slowly is computed."""
        return sum(self.ask(number, key)[2].get("disk", 0) for number in range(12))

    def metric(self, name, **labels):
        with urllib.request.urlopen(urllib.request.Request(self.url + "/metrics", headers=self.authorization()), timeout=60) as reply:
            found = re.findall(r"^%s\{(.*)\} (\S+)$" % re.escape(name), reply.read().decode(), re.M)
        return sum(float(value) for text, value in found if all(f'{label}="{wanted}"' in text for label, wanted in labels.items()))

    def wait_for(self, what, why):
        for _ in range(600):
            if what():
                return
            time.sleep(0.05)
        raise AssertionError(why)

    def written(self):
        return self.metric("pelton_kv_disk_blocks_total", kind="written")

    def wait_until_written(self):
        """All that was asked for so far lies on the disk."""
        before = [-1]

        def quiet():
            now = self.written()
            same, before[0] = now == before[0], now
            return same and now > 0
        self.wait_for(lambda: quiet() and not time.sleep(0.2) and quiet(), "nothing was written")


class Tiers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with Server() as plain:
            cls.plain = plain.answers(range(MANY))

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="pelton_tiers_"))
        self.disk = self.folder / "disk"
        self.disk.mkdir()
        self.key = self.folder / "key"
        self.key.write_text("k" * 40 + "\n")

    def tearDown(self):
        shutil.rmtree(self.folder)

    def disk_flags(self, *more, size=DISK_SIZE, write="all"):
        return (*HOST, *READ_ALWAYS, "--kv-disk", str(self.disk), "--kv-disk-size", size, "--kv-disk-write", write, *more)

    def warm_flags(self, size=DISK_SIZE):
        return self.disk_flags("--kv-disk-key-file", str(self.key), size=size)

    def kv(self, *words):
        return subprocess.run([PELTON, "kv", *map(str, words)], capture_output=True, text=True, timeout=60, check=False)

    def check_answers(self, server, numbers=range(PROMPTS)):
        self.assertEqual(server.answers(numbers), [self.plain[number] for number in numbers])

    def test_what_the_device_evicts_is_found_on_the_host(self):
        with Server(*HOST) as server:
            self.check_answers(server, range(MANY))
            last = range(MANY - 6, MANY)
            self.check_answers(server, last)
            self.assertGreater(server.metric("pelton_prefix_cache_hits_total", tier="host"), 0)
            self.assertGreater(server.metric("pelton_kv_block_copies_total", kind="offload"), 0)
            self.assertEqual(server.metric("pelton_prefix_cache_hits_total"), server.metric("vllm:prefix_cache_hits_total"))

    def test_what_the_host_has_no_room_for_is_found_on_the_disk(self):
        for write in ("selective", "all", "evict") if FULL else ("all",):
            with self.subTest(write), Server(*self.disk_flags(write=write, size=DISK_OF_MANY)) as server:
                if write == "selective":  # what is found once more is written
                    for number in (0, 0, 1, 1):
                        server.ask(number)
                self.check_answers(server, range(MANY))
                server.wait_until_written()
                self.check_answers(server, range(MANY))
                hits = [server.ask(number) for number in (0, 1, 10, PROMPTS // 2)]
                for _ in range(20):  # a disk that was very slow is left alone for half a minute
                    if server.metric("pelton_prefix_cache_hits_total", tier="disk") > 0:
                        break
                    time.sleep(2)
                    hits += [server.ask(number) for number in range(PROMPTS)]
                self.assertGreater(server.metric("pelton_kv_disk_loads_total", kind="begun"), 0)
                self.assertGreater(server.metric("pelton_prefix_cache_hits_total", tier="disk"), 0)
                for _, cached, details in hits:
                    self.assertEqual(sum(details.values()) if details else cached, cached)
                self.assertEqual(os.listdir(self.disk), ["lock"])  # its file has no name

    def test_reset_forgets_every_tier(self):
        with Server(*self.disk_flags()) as server:
            server.answers(range(12))
            server.wait_until_written()
            self.assertEqual(server.post("/reset_prefix_cache", {}), {"success": True})
            found = [server.ask(number)[1] for number in range(12)]
            self.assertEqual(found[0], 0)
            for number, tokens in enumerate(found):
                self.assertLessEqual(tokens, common_of(number))
            self.assertLessEqual(max(found[:len(WAYS)]), COMMON)  # the first of each way
            self.assertGreater(server.ask(11)[1], common_of(11))

    def test_a_key_file_makes_the_next_start_warm(self):
        with Server(*self.warm_flags(DISK_OF_MANY)) as server:
            self.check_answers(server, range(MANY))
            server.wait_until_written()
        listed = self.kv("ls", self.disk)
        self.assertEqual(listed.returncode, 0, listed.stderr)
        self.assertRegex(listed.stdout, r"group 0: [1-9]\d* blocks")
        checked = self.kv("check", self.disk, "--kv-disk-key-file", self.key)
        self.assertRegex(checked.stdout, r"^[1-9]\d* blocks, 0 damaged\n$")
        with Server(*self.warm_flags(DISK_OF_MANY)) as server:
            self.assertGreater(server.disk_tokens(), 0)
            self.check_answers(server, range(MANY))
            self.assertGreater(server.metric("pelton_kv_disk_loads_total", kind="begun"), MANY)
        # Erased, there is nothing to be found.
        self.assertRegex(self.kv("erase", self.disk).stdout, r"^[1-9]\d* blocks erased\n$")
        with Server(*self.warm_flags(DISK_OF_MANY)) as server:
            self.assertEqual(server.ask(0)[1], 0)

    def pieces(self):
        """What lies in the tier's slots, but for their headers, in pieces of 16 bytes."""
        found = set()
        data = (self.disk / "blocks.pelton-kv").read_bytes()
        for page in range(4096, len(data), 4096):
            if any(data[page:page + 4096]):
                found.update(data[at:at + 16] for at in range(page + 64, page + 4096, 16))
        return found - {bytes(16)}

    def test_the_same_blocks_look_otherwise_each_time(self):
        """Nothing readable lies on the disk: whoever has two copies finds nothing in common, though names, key and content are the same."""
        copies = []
        for _ in range(2):
            with Server(*self.warm_flags()) as server:
                self.check_answers(server, range(4))
                server.wait_until_written()
            copies.append(self.pieces())
            (self.disk / "blocks.pelton-kv").unlink()
        self.assertGreater(min(map(len, copies)), 1000)
        self.assertEqual(copies[0] & copies[1], set())

    def test_of_another_key_or_kv_type_nothing_matches(self):
        with Server(*self.warm_flags()) as server:
            server.answers(range(8))
            server.wait_until_written()
        with Server(*self.warm_flags(), "--kv-cache-dtype", "int8") as server:
            self.assertEqual(server.ask(0)[1], 0)
            self.assertEqual(server.stop().count("its room is reclaimed"), 1)
        with Server(*self.warm_flags()) as server:
            self.assertEqual(server.ask(0)[1], 0)
            server.wait_until_written()
        self.key.write_text("another key, which is long enough for it")
        with Server(*self.warm_flags()) as server:
            self.assertEqual(server.ask(0)[:2], (self.plain[0], 0))

    @full
    def test_flags_that_tune_keep_what_is_there(self):
        """They change how the device is shared among KV groups, not what a block is; another size is said by its name."""
        with Server(*self.warm_flags()) as server:
            server.answers(range(12))
            server.wait_until_written()
        for flags in (("--kv-cache-memory", "2MiB"), ("--max-num-seqs", "4")):
            with Server(*self.warm_flags(), *flags) as server:
                self.assertGreater(server.disk_tokens(), 0, flags)
                self.check_answers(server, range(4))
                self.assertNotIn("its room is reclaimed", server.stop(), flags)
        self.assertRegex(self.kv("check", self.disk, "--kv-disk-key-file", self.key).stdout, r"^[1-9]\d* blocks, 0 damaged\n$")
        with Server(*self.warm_flags("65MiB")) as server:
            self.assertEqual(server.ask(0)[:2], (self.plain[0], 0))
            self.assertIn("it was made with another --kv-disk-size; its room is reclaimed", server.stop())

    def test_killed_amid_writes_it_says_nothing_wrong_afterwards(self):
        """FT-58: torn slots are misses, and nobody has to clean up."""
        draw = random.Random(5)
        rounds = 200 if FULL else 4
        for round_number in range(rounds):
            server = Server(*self.warm_flags()).start()
            numbers = range(8 * round_number, 8 * round_number + 8)  # nobody has asked for them before, so that all are written
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                asked = pool.submit(server.answers, numbers)
                if round_number % 2:
                    server.wait_for(lambda one=server: one.written() > 0, "nothing was written")
                time.sleep(draw.uniform(0.02, 0.4))
                server.kill()
                asked.exception()
        # Of what lies there all is good but what was being written, a slot each time at most, and it is found.
        blocks, damaged = map(int, re.findall(r"\d+", self.kv("check", self.disk, "--kv-disk-key-file", self.key).stdout))
        self.assertGreater(blocks, 10)
        self.assertLessEqual(damaged, rounds)
        with Server(*self.warm_flags()) as server:
            self.check_answers(server)
            for _ in range(30):  # one that was very slow is left alone for a while
                if server.metric("pelton_kv_disk_blocks_total", kind="read") > 0:
                    break
                time.sleep(2)
                self.check_answers(server)
            else:
                self.fail("nothing was read")

    def test_what_is_said_to_be_erased_is_erased(self):
        """Whatever becomes of the server right behind its answer; and where it cannot be done it is not said."""
        keys = self.folder / "keys"
        keys.write_text("key-a a\nkey-b b\nroot operator role=admin\n")
        flags = (*self.warm_flags(), "--api-key-file", str(keys), "--enable-sleep-mode")
        with Server(*flags, key="root") as server:
            for number in range(12):
                server.ask(number, "key-a")
                server.ask(number, "key-b")
            server.wait_until_written()
            self.assertEqual(server.post("/sleep", {}), {})
            for path in ("/reset_prefix_cache?tenant=a", "/reset_prefix_cache", "/erase_tenant?tenant=a"):
                with self.assertRaises(urllib.error.HTTPError) as refused:
                    server.post(path, {})
                self.assertEqual(refused.exception.code, 503)
                self.assertIn("sleeps and its disk keeps", refused.exception.read().decode())
        with Server(*flags, key="root") as server:  # it is all there
            self.assertGreater(server.disk_tokens("key-a"), 0)
            self.assertEqual(server.post("/reset_prefix_cache?tenant=a", {}), {"success": True})
            server.kill()
        with Server(*flags, key="root") as server:
            self.assertEqual(server.ask(0, "key-a")[:2], (self.plain[0], 0))
            self.assertGreater(server.disk_tokens("key-b"), 0)
            self.assertEqual(server.post("/reset_prefix_cache", {}), {"success": True})
            server.kill()
        with Server(*flags, key="root") as server:
            self.assertEqual(server.ask(0, "key-b")[1], 0)

    def test_what_an_unloaded_model_has_left_is_not_said_to_be_erased(self):
        admin = free_port()
        with Server(*self.warm_flags(), "--admin-port", str(admin)) as server:
            server.answers(range(4))
            server.wait_until_written()
            gone = urllib.request.Request(f"http://127.0.0.1:{admin}/admin/models/pelton-box?drain_seconds=0", method="DELETE")
            self.assertEqual(urllib.request.urlopen(gone, timeout=60).status, 200)
            with self.assertRaises(urllib.error.HTTPError) as refused:
                server.post("/reset_prefix_cache", {})
            self.assertEqual(refused.exception.code, 503)
            self.assertIn("has been unloaded and its disk keeps", refused.exception.read().decode())

    @full
    def test_a_start_that_is_refused_destroys_nothing(self):
        with Server(*self.warm_flags()) as server:
            server.answers(range(12))
            server.wait_until_written()
        done = subprocess.run([PELTON, "serve", MODEL, "--port", "0", "--device", "cpu", *DEVICE, *self.disk_flags(size="1000TiB"),
                               "--kv-disk-key-file", str(self.key)], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 3, done.stderr)
        with Server(*self.warm_flags()) as server:
            self.assertGreater(server.disk_tokens(), 0)

    def test_damaged_files_are_misses(self):
        """FT-30, KV-09."""
        draw = random.Random(6)
        with Server(*self.warm_flags()) as server:
            server.answers(range(16))
            server.wait_until_written()
        with (self.disk / "blocks.pelton-kv").open("r+b") as file:
            size = file.seek(0, os.SEEK_END)
            for at in range(4096, size, 2048):  # some bit of every slot
                file.seek(at + draw.randrange(2048))
                byte = file.read(1)
                file.seek(-1, os.SEEK_CUR)
                file.write(bytes((byte[0] ^ 1 << draw.randrange(8),)))
        with Server(*self.warm_flags()) as server:
            self.check_answers(server, range(16))
            self.assertEqual(server.metric("pelton_prefix_cache_hits_total", tier="disk"), 0)
            self.assertGreater(server.metric("pelton_kv_disk_blocks_total", kind="corrupt"), 0)

    def test_a_file_that_is_cut_or_deleted_under_it_ends_nothing(self):
        """FT-33."""
        with Server(*self.warm_flags()) as server:
            server.answers(range(16))
            server.wait_until_written()
            os.truncate(self.disk / "blocks.pelton-kv", 5000)
            self.check_answers(server, range(16))
            (self.disk / "blocks.pelton-kv").unlink()
            self.check_answers(server)

    @full
    def test_a_file_that_was_cut_is_erased(self):
        """Whatever it holds: nothing of it is left. Of one tenant's blocks that cannot be said."""
        kept = self.disk / "blocks.pelton-kv"
        for size in (4095, 5000, 200000):
            with Server(*self.warm_flags()) as server:
                server.answers(range(8))
                server.wait_until_written()
                in_use = self.kv("erase", self.disk)
                self.assertNotEqual(in_use.returncode, 0)
                self.assertIn("another process uses it", in_use.stderr)
            os.truncate(kept, size)
            tenants = self.kv("erase", self.disk, "--tenant", "a", "--kv-disk-key-file", self.key)
            self.assertNotEqual(tenants.returncode, 0)
            self.assertTrue(kept.exists())
            erased = self.kv("erase", self.disk)
            self.assertEqual((erased.returncode, erased.stdout), (0, "what lay there was damaged, and is removed\n"), (size, erased.stderr))
            self.assertEqual([one.name for one in self.disk.iterdir() if one.name.startswith("blocks")], [])
        kept.write_bytes(b"no tier" * 1000)
        self.assertEqual(self.kv("erase", self.disk).returncode, 0)
        none = self.kv("erase", self.disk)
        self.assertIn("holds no tier that is kept", none.stderr)
        self.assertNotEqual(none.returncode, 0)
        with Server(*self.warm_flags()) as server:
            self.assertEqual(server.ask(0)[:2], (self.plain[0], 0))

    @full
    def test_the_smallest_disk_serves_too(self):
        with Server(*self.disk_flags(size="1MiB")) as server:
            self.check_answers(server)
            self.check_answers(server)

    def test_tenants_share_nothing_and_one_can_be_erased(self):
        keys = self.folder / "keys"
        keys.write_text("key-a a\nkey-b b\n")
        flags = (*self.warm_flags(), "--api-key-file", str(keys))
        with Server(*flags, key="key-a") as server:
            for number in range(12):
                server.ask(number, "key-a")
            found = [server.ask(number, "key-b")[1] for number in range(12)]
            self.assertEqual(found[0], 0, "found what another tenant had computed")
            for number, tokens in enumerate(found):
                self.assertLessEqual(tokens, common_of(number), "found what another tenant had computed")
            self.assertLessEqual(max(found[:len(WAYS)]), COMMON, "found what another tenant had computed")  # the first of each way
            server.wait_until_written()
        with Server(*flags) as server:  # from the disk alone
            self.assertGreater(server.disk_tokens("key-a"), 0)
        erased = self.kv("erase", self.disk, "--tenant", "a", "--kv-disk-key-file", self.key)
        self.assertRegex(erased.stdout, r"^[1-9]\d* blocks erased\n$", erased.stderr)
        with Server(*flags) as server:
            self.assertEqual(server.ask(11, "key-a")[1], 0)
            self.assertGreater(server.disk_tokens("key-b"), 0)

    def tenants(self):
        keys = self.folder / "keys"
        keys.write_text("key-a a\nkey-b b\n")
        return ("--api-key-file", str(keys))

    def check_strange(self, server, numbers, prepare=lambda number: None):
        """Tenant b on what a has asked: nothing is found, in usage or in time."""
        def ask(number):  # what all prompts of a way begin with may be b's own
            self.assertLessEqual(server.ask(number, "key-b")[1], common_of(number), "found what another tenant had computed")
        for number in range(len(WAYS)):
            ask(9_000 + numbers[0] // len(WAYS) * len(WAYS) + number)
        check_alike(ask, numbers, [number + 4_000 for number in numbers], prepare)  # asked in the same ways

    @full
    def test_a_stranger_does_not_see_by_time_what_lies_on_the_host(self):
        with Server(*HOST, *self.tenants(), key="key-a") as server:
            def evict(number):
                for one in (number, number + 20_000, number + 30_000, number + 40_000):  # the device holds fewer
                    server.ask(one, "key-a")
            found = 0
            for number in range(1_000, 1_008):
                evict(number)
                found += server.ask(number, "key-a")[2].get("host", 0)
            self.assertGreater(found, 0)
            self.check_strange(server, list(range(200 if FULL else 24)), evict)

    @full
    def test_a_stranger_does_not_see_by_time_what_lies_on_the_disk_and_after_a_restart(self):
        numbers = list(range(200 if FULL else 48))
        flags = (*self.disk_flags("--kv-disk-key-file", str(self.key), size="256MiB"), *self.tenants())
        with Server(*flags, key="key-a") as server:
            for number in numbers:
                server.ask(number, "key-a")
            server.wait_until_written()
            self.check_strange(server, numbers[:len(numbers) // 2])
            self.assertGreater(server.disk_tokens("key-a"), 0)
        with Server(*flags, key="key-a") as server:
            self.check_strange(server, numbers[len(numbers) // 2:])
            self.assertGreater(server.disk_tokens("key-a"), 0)

    @full
    def test_a_tenant_is_erased_while_another_is_served(self):
        """Of a disk too, and for the next start."""
        keys = self.folder / "keys"
        keys.write_text("key-a a\nkey-b b\nroot operator role=admin\n")
        flags = (*self.warm_flags(), "--api-key-file", str(keys))
        with Server(*flags, key="root") as server:
            for number in range(12):
                server.ask(number, "key-a")
                server.ask(number, "key-b")
            server.wait_until_written()
            self.assertEqual(server.post("/reset_prefix_cache?tenant=a", {}), {"success": True})
            self.assertEqual(server.ask(0, "key-a")[:2], (self.plain[0], 0))
            found = sum(server.ask(number, "key-b")[1] for number in range(12))
            self.assertGreaterEqual(found, 12 * COMMON)  # the first one too
            self.assertEqual(server.post("/reset_prefix_cache?tenant=a", {}), {"success": True})
        with Server(*flags, key="root") as server:  # from the disk alone
            self.assertGreater(server.disk_tokens("key-b"), 0)
            self.assertEqual(server.ask(0, "key-a")[:2], (self.plain[0], 0))

    def admin(self, server, method, path, body=None, kind="application/json"):
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(f"{server.admin}{path}", data, {"Content-Type": kind}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
                return reply.status, json.load(reply)
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def test_prefixes_are_pinned_while_it_serves(self):
        """Of one tenant's; they outlive whatever evicts others, and go when they are removed or their tenant is erased."""
        keys = self.folder / "keys"
        keys.write_text("key-a a\nkey-b b\nroot operator role=admin\n")
        with Server("--admin-port", "0", "--kv-cache-memory", "2MiB", "--api-key-file", str(keys), key="root") as server:
            server.admin = server.process.stdout.readline().split()[2]

            def churn():
                for number in range(20, 32):
                    server.ask(number, "key-b")

            def listed():
                return self.admin(server, "GET", "/admin/prefixes")[1]["prefixes"]

            self.assertEqual(listed(), [])
            messages = [{"role": "user", "content": prompt(0)}]
            status, pinned = self.admin(server, "POST", "/admin/prefixes?tenant=a", {"messages": messages})
            self.assertEqual(status, 200, pinned)
            self.assertEqual(pinned["tenant"], "a")
            self.assertGreater(pinned["tokens"], 2 * COMMON)
            self.assertEqual(listed(), [pinned])
            churn()
            said, cached, _ = server.ask(0, "key-a")
            self.assertEqual((said, cached), (self.plain[0], pinned["tokens"]))
            self.assertLessEqual(server.ask(0, "key-b")[1], COMMON)
            server.post("/reset_prefix_cache", {})
            self.assertEqual(server.ask(0, "key-a")[1], pinned["tokens"])
            self.assertEqual(self.admin(server, "DELETE", f"/admin/prefixes/{pinned['id']}"), (200, {"success": True}))
            self.assertEqual(listed(), [])
            churn()
            self.assertLess(server.ask(0, "key-a")[1], pinned["tokens"])
            # Text too; and it goes with its tenant.
            status, second = self.admin(server, "POST", "/admin/prefixes?tenant=a&model=" + pinned["model"], prompt(1).encode(), "text/plain")
            self.assertEqual(status, 200, second)
            self.assertEqual(listed(), [second])
            server.post("/reset_prefix_cache?tenant=b", {})
            self.assertEqual(listed(), [second])
            server.post("/reset_prefix_cache?tenant=a", {})
            server.ask(2, "key-b")
            self.assertEqual(listed(), [])
            # More than leaves room for the longest request.
            full = [self.admin(server, "POST", "/admin/prefixes", {"messages": [{"role": "user", "content": prompt(n)}]}) for n in range(40, 60)]
            refused = [body for status, body in full if status != 200]
            self.assertGreater(len(refused), 0)
            self.assertEqual(refused[-1]["error"]["code"], "insufficient_memory")
            self.check_answers(server, range(4))
            for one in listed():
                self.assertEqual(self.admin(server, "DELETE", f"/admin/prefixes/{one['id']}")[0], 200)
            for status, method, path, body, kind in (
                    (400, "POST", "/admin/prefixes?tenannt=a", {"messages": messages}, "application/json"),
                    (404, "POST", "/admin/prefixes?model=nobody", {"messages": messages}, "application/json"),
                    (400, "POST", "/admin/prefixes?tenant=" + "a" * 300, {"messages": messages}, "application/json"),
                    (400, "POST", "/admin/prefixes", b"{", "application/json"), (400, "POST", "/admin/prefixes", b"", "text/plain"),
                    (400, "POST", "/admin/prefixes", b"\xff\xfe", "text/plain"), (400, "POST", "/admin/prefixes", b"short", "text/plain"),
                    (400, "POST", "/admin/prefixes", b"x", "application/x-www-form-urlencoded"),
                    (400, "POST", "/admin/prefixes", ("river " * 4000).encode(), "text/plain"),
                    (404, "DELETE", "/admin/prefixes/prefix-99", None, "application/json"),
                    (405, "GET", "/admin/prefixes/prefix-99", None, "application/json"), (405, "DELETE", "/admin/prefixes", None, "application/json")):
                self.assertEqual(self.admin(server, method, path, body, kind)[0], status, (method, path, body if body is None else str(body)[:40]))
            self.assertEqual(listed(), [])

    def test_bad_flags_are_refused(self):
        def refused(code, text, *flags):
            done = subprocess.run([PELTON, "serve", MODEL, "--port", "0", "--device", "cpu", *DEVICE, *flags],
                                  capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(text, done.stderr)
        size = ("--kv-disk-size", "4MiB")
        refused(2, "--swap-space", "--kv-disk", str(self.disk), *size)
        refused(2, "--kv-disk-size", *HOST, "--kv-disk", str(self.disk))
        for size_text in ("0", "1023KiB"):
            refused(3, "--kv-disk-size", *HOST, "--kv-disk", str(self.disk), "--kv-disk-size", size_text)
        refused(3, "No such file", *HOST, "--kv-disk", str(self.folder / "none"), *size)
        refused(3, "not a directory", *HOST, "--kv-disk", str(self.key), *size)
        refused(3, "are free in", *self.disk_flags(size="1000TiB"))
        short = self.folder / "short"
        short.write_text("short")
        refused(3, "at least 32", *self.disk_flags("--kv-disk-key-file", str(short)))
        with Server(*self.disk_flags()):
            refused(3, "another process uses it", *self.disk_flags())
        for mode in (0o777, 0o770):
            self.disk.chmod(mode)
            refused(3, "others may write there", *self.disk_flags())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
