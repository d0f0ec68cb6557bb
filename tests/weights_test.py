#!/usr/bin/env python3
"""Weights over tiers, as a user meets them: an origin, mirrors that share, a bucket that checks signatures, a server that fetches
what it serves; cut, lied to, killed, erased.

usage: weights_test.py BINARY
"""
import concurrent.futures
import datetime
import hashlib
import hmac
import http.server
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
import threading
import time
import tomllib
import unittest
import urllib.request

from tiers import full

ROOT = pathlib.Path(__file__).resolve().parent.parent
BOX = ROOT / "models" / "pelton-box"
MANIFEST = "pelton-manifest.json"
KEY, SECRET = "test:tester", "testing"  # a key may hold a colon
BINARY = None


def mac(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def signature(secret, method, target, headers, scope, signed):
    """Amazon's own steps for a request without a body and a query, written from their description."""
    path = target.split("?")[0]
    canonical = "\n".join([method, path, "", *(f"{name}:{headers[name].strip()}" for name in signed), "", ";".join(signed),
                           headers["x-amz-content-sha256"]])
    text = "\n".join(["AWS4-HMAC-SHA256", headers["x-amz-date"], scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = ("AWS4" + secret).encode()
    for part in scope.split("/"):
        key = mac(key, part)
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


class Store(http.server.ThreadingHTTPServer):
    """Files below /bucket/m/, as a bucket (`secret`: signatures are checked) or a web server has them."""
    daemon_threads = True

    def __init__(self, files, secret=None):
        super().__init__(("127.0.0.1", 0), Answer)
        self.files, self.secret, self.flip, self.slow, self.asked, self.refused = files, secret, False, 0, [], []
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request, client_address):
        pass


class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def is_signed(self):
        headers = {name.lower(): value for name, value in self.headers.items()}
        found = re.fullmatch(r"AWS4-HMAC-SHA256 Credential=(.+?)/(\d{8}/[^/]+/s3/aws4_request),SignedHeaders=([a-z0-9;-]+),"
                             r"Signature=([0-9a-f]{64})", headers.get("authorization", ""))
        if not found or found[1] != KEY or not {"host", "x-amz-date", "x-amz-content-sha256"} <= set(found[3].split(";")):
            return False
        then = datetime.datetime.strptime(headers["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.timezone.utc)
        if abs((datetime.datetime.now(datetime.timezone.utc) - then).total_seconds()) > 900:
            return False
        return signature(self.server.secret, "GET", self.path, headers, found[2], found[3].split(";")) == found[4]

    def do_GET(self):
        server = self.server
        server.asked.append((self.path, self.headers.get("Range"), self.headers.get("Authorization")))
        if server.secret is not None and not self.is_signed():
            server.refused.append(self.path)
            return self.reply(403, b"<Error><Code>SignatureDoesNotMatch</Code></Error>")
        if server.slow > 0 and self.headers.get("Range"):
            server.slow -= 1
            return self.reply(503, b"<Error><Code>SlowDown</Code></Error>")
        name = self.path.split("/m/", 1)[-1]
        if name not in server.files:
            return self.reply(404)
        data = server.files[name]
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if not wanted:
            return self.reply(200, data)
        first, last = int(wanted[1]), min(int(wanted[2]), len(data) - 1)
        body = bytearray(data[first:last + 1])
        if server.flip:
            body[0] ^= 1
        return self.reply(206, bytes(body), Content_Range=f"bytes {first}-{last}/{len(data)}")


def files_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(pathlib.Path(folder).rglob("*"))
            if path.is_file() and not path.name.startswith(".") and path.name != MANIFEST}


def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


class Weights(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="pelton_weights_"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.running = []
        self.addCleanup(self.stop_all)

    def stop_all(self):
        for process in self.running:
            process.kill()
            process.wait(20)
            for stream in (process.stdout, process.stderr):
                if stream:
                    stream.close()

    def environment(self, **more):
        plain = {name: value for name, value in os.environ.items()
                 if not name.startswith(("AWS_", "PELTON_WEIGHTS")) and "proxy" not in name.lower()}
        (self.folder / "tmp").mkdir(exist_ok=True)
        return {**plain, "TMPDIR": str(self.folder / "tmp"), "HF_HOME": str(self.folder / "hub"), **more}

    def pelton(self, *words, **environment):
        return subprocess.run([BINARY, *map(str, words)], capture_output=True, text=True, timeout=120, check=False,
                              env=self.environment(**environment))

    def expect(self, code, done):
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def start(self, *words, **environment):
        """A server, and the URL that it prints."""
        log = self.folder / f"log{len(self.running)}"
        with open(log, "w") as errors:
            process = subprocess.Popen([BINARY, *map(str, words)], stdout=subprocess.PIPE, stderr=errors, text=True,
                                       env=self.environment(**environment))
        process.log = log
        self.running.append(process)
        line = process.stdout.readline()
        self.assertIn("listening on", line, process.log.read_text())
        return process, line.split()[-1]

    def model(self, name="model", size=3_000_000, seed=1):
        folder = self.folder / name
        (folder / "sub").mkdir(parents=True)
        (folder / "model.safetensors").write_bytes(b"".join(random.Random(seed + at).randbytes(min(size - at, 1 << 26)) for at in range(0, size, 1 << 26)))
        (folder / "sub" / "config.json").write_text("{}")
        (folder / "empty").write_text("")
        return folder

    def sent(self, url, name="pelton_weights_bytes_sent_total"):
        with urllib.request.urlopen(url + "/metrics", timeout=10) as page:
            return float(re.search(rf"^{name} (\S+)$", page.read().decode(), re.M)[1])

    def test_a_mirror_is_the_model_byte_for_byte_and_goes_without_a_rest(self):
        model = self.model()
        origin, url = self.start("weights", "serve", model, "--port", "0", "--chunk-size", "64KiB")
        copy = self.folder / "copies" / "copy"
        done = self.expect(0, self.pelton("weights", "mirror", f"{url}/model", copy))
        self.assertEqual(done.stdout.strip(), str(copy))
        self.assertNotIn("\x1b", done.stderr)
        self.assertEqual(files_of(copy), files_of(model))
        self.assertEqual(self.sent(url), 3_000_002)
        # Once more: all is there. Served on, it needs no hashing, and is a mirror's origin as well.
        self.assertIn("all there already", self.expect(0, self.pelton("weights", "mirror", url, copy)).stderr)
        self.assertEqual(self.sent(url), 3_000_002)
        _, second = self.start("weights", "serve", copy, "--port", "0")
        self.expect(0, self.pelton("weights", "mirror", second, self.folder / "copies" / "other"))
        self.assertEqual(files_of(self.folder / "copies" / "other"), files_of(model))

        listed = json.loads(self.expect(0, self.pelton("weights", "ls", copy.parent, "--json")).stdout)
        self.assertEqual([(one["folder"], one["from"], one["whole"]) for one in listed],
                         [(str(copy), f"{url}/model", True), (str(copy.parent / "other"), second, True)])
        self.assertIn(str(copy), self.expect(0, self.pelton("weights", "ls", copy.parent)).stdout)
        self.assertIn("is no copy", self.expect(4, self.pelton("weights", "erase", model)).stderr)
        self.expect(0, self.pelton("weights", "erase", copy.parent, "--all"))
        self.assertEqual(list(copy.parent.iterdir()), [])
        self.assertEqual(len(files_of(model)), 3)
        origin.send_signal(signal.SIGTERM)
        self.assertEqual(origin.wait(20), 0)
        self.assertIn("of weights sent", origin.log.read_text())

    def test_a_mirror_that_is_killed_goes_on_where_it_was(self):
        model = self.model(size=6_000_000)
        _, url = self.start("weights", "serve", model, "--port", "0", "--chunk-size", "64KiB", "--rate", "8MiB")
        copy = self.folder / "copy"
        for _ in range(2):
            mirror = subprocess.Popen([BINARY, "weights", "mirror", url, copy], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                      env=self.environment())
            begun = self.sent(url)
            while self.sent(url) < begun + 1_500_000 and mirror.poll() is None:
                time.sleep(0.02)
            mirror.kill()
            mirror.wait(20)
            self.assertFalse(copy.exists())
        listed = json.loads(self.pelton("weights", "ls", copy, "--json").stdout)
        self.assertEqual([one["whole"] for one in listed], [False])
        self.assertGreater(listed[0]["unfinished_bytes"], 1_000_000)
        done = self.expect(0, self.pelton("weights", "mirror", url, copy))
        self.assertEqual(files_of(copy), files_of(model))
        self.assertNotIn(" 0 B were there", done.stderr)
        # What was on its way when it was killed came twice, all else once.
        self.assertLess(self.sent(url), 6_000_002 + 2 * 3_000_000)
        self.expect(0, self.pelton("weights", "erase", copy))
        self.assertEqual([path.name for path in self.folder.iterdir() if "copy" in path.name], [])

    def test_four_at_once_cost_the_origin_the_model_once(self):
        model = self.model(size=12_000_000)
        _, url = self.start("weights", "serve", model, "--port", "0", "--chunk-size", "64KiB", "--rate", "8MiB")

        def mirror(i):
            return self.pelton("weights", "mirror", f"{url}/model", self.folder / f"copy{i}", "--weights-share-port", "0")

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            for done in list(pool.map(mirror, range(4))):
                self.expect(0, done)
        for i in range(4):
            self.assertEqual(files_of(self.folder / f"copy{i}"), files_of(model), i)
        times = self.sent(url) / 12_000_002
        print(f"four mirrors at once: the origin sent {times:.3f} times the model", file=sys.stderr)
        self.assertLess(times, 1.25)  # alone each would cost 1: 4
        self.assertGreaterEqual(times, 1)

    @full
    def test_eight_at_once_cost_the_origin_the_model_once(self):
        """Figures: the origin's bytes over the model's, the last one's time over that of one alone."""
        model = self.model(size=500_000_000)
        times = {}

        def mirror(name, url):
            begin = time.monotonic()
            process = subprocess.Popen([BINARY, "weights", "mirror", f"{url}/model", self.folder / name, "--weights-share-port", "0"],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=self.environment())
            # It stays for others: the folder takes its name when all is there.
            while not (self.folder / name).exists() and process.poll() is None:
                time.sleep(0.02)
            times[name] = time.monotonic() - begin
            self.assertEqual(process.wait(300), 0, process.stderr.read())
            process.stderr.close()

        def origin():
            return self.start("weights", "serve", model, "--port", "0", "--rate", "50000000")[1]
        mirror("alone", origin())
        url = origin()
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda i: mirror(f"copy{i}", url), range(8)))
        sent = self.sent(url) / 500_000_002
        last = max(seconds for name, seconds in times.items() if name != "alone")
        print(f"eight mirrors at once: the origin sent {sent:.3f} times the model; the last one took {last:.1f} s, one alone "
              f"{times['alone']:.1f} s ({last / times['alone']:.2f} times)", file=sys.stderr)
        self.assertLess(sent, 1.5)

    def test_its_metrics_are_those_that_are_listed(self):
        listed = {name for group in tomllib.loads((ROOT / "deploy" / "metrics.toml").read_text())["metrics"]
                  if group["where"] == "weights" for name in group["names"]}
        _, url = self.start("weights", "serve", self.model(), "--port", "0")
        with urllib.request.urlopen(url + "/metrics", timeout=10) as page:
            self.assertEqual(set(re.findall(r"^# TYPE (\S+)", page.read().decode(), re.M)), listed)

    def test_a_lying_peer_and_one_that_dies(self):
        model = self.model()
        _, url = self.start("weights", "serve", model, "--port", "0", "--chunk-size", "64KiB")
        manifest = self.expect(0, self.pelton("weights", "manifest", model, "--chunk-size", "64KiB")).stdout.encode()
        liar = Store({**files_of(model), MANIFEST: manifest})
        self.addCleanup(liar.server_close)
        self.addCleanup(liar.shutdown)
        liar.flip = True
        done = self.expect(0, self.pelton("weights", "mirror", url, self.folder / "copy", "--peer", f"{liar.url}/m"))
        self.assertIn("sent other bytes than the manifest has for model.safetensors", done.stderr)
        self.assertEqual(files_of(self.folder / "copy"), files_of(model))
        self.assertTrue(any(asked[1] for asked in liar.asked))

        peer, peer_url = self.start("weights", "serve", model, "--port", "0", "--chunk-size", "64KiB", "--rate", "2MiB")
        mirror = subprocess.Popen([BINARY, "weights", "mirror", url, self.folder / "second", "--peer", peer_url],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=self.environment())
        while self.sent(peer_url) < 500_000:
            time.sleep(0.02)
        peer.kill()
        output, _ = mirror.communicate(timeout=60)
        self.assertEqual(mirror.returncode, 0, output)
        self.assertEqual(files_of(self.folder / "second"), files_of(model))

    def test_a_bucket_is_read_with_signatures(self):
        model = self.model()
        manifest = self.expect(0, self.pelton("weights", "manifest", model, "--chunk-size", "64KiB")).stdout.encode()
        store = Store({**files_of(model), MANIFEST: manifest}, secret=SECRET)
        self.addCleanup(store.server_close)
        self.addCleanup(store.shutdown)
        keys = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "eu-north-1"}
        words = ["weights", "mirror", "s3://bucket/m", self.folder / "copy", "--weights-endpoint", store.url]
        store.slow = 5
        done = self.expect(0, self.pelton(*words, **keys))
        self.assertIn("503", done.stderr)
        self.assertEqual(files_of(self.folder / "copy"), files_of(model))
        self.assertEqual(store.refused, [])
        self.assertNotIn(SECRET, done.stderr)
        words[3] = self.folder / "second"
        done = self.expect(1, self.pelton(*words, **{**keys, "AWS_SECRET_ACCESS_KEY": "other"}))
        self.assertIn("403", done.stderr)
        self.assertIn("AWS_", done.stderr)
        done = self.expect(1, self.pelton(*words))
        self.assertIn("403", done.stderr)
        self.expect(0, self.pelton(*words[:-2], **keys, AWS_ENDPOINT_URL_S3=store.url))
        self.assertIn("go together", self.pelton(*words, AWS_ACCESS_KEY_ID=KEY).stderr)

    def test_who_has_no_key_gets_nothing(self):
        model = self.model()
        _, url = self.start("weights", "serve", model, "--port", "0", PELTON_API_KEY="secret")
        done = self.expect(1, self.pelton("weights", "mirror", url, self.folder / "copy"))
        self.assertIn("--weights-key", done.stderr)
        self.expect(1, self.pelton("weights", "mirror", url, self.folder / "copy", "--weights-key", "wrong"))
        done = self.expect(0, self.pelton("weights", "mirror", url, self.folder / "copy", PELTON_WEIGHTS_KEY="secret"))
        self.assertNotIn("secret", done.stderr)
        self.expect(3, self.pelton("weights", "serve", model, "--host", "0.0.0.0", "--port", "0"))
        self.expect(3, self.pelton("weights", "mirror", url, self.folder / "x", "--weights-share-port", "0", "--weights-share-host", "0.0.0.0"))

    def test_what_is_wrong_is_named(self):
        for words, code, text in ((("mirror", "ftp://a/b", "x"), 2, "s3://"),
                                  (("mirror", "http://127.0.0.1:1/m", self.folder / "x"), 1, "127.0.0.1:1"),
                                  (("serve", self.folder / "nothing"), 4, "nothing"),
                                  (("serve", BOX, BOX, "--port", "0"), 2, "two folders are called pelton-box"),
                                  (("manifest", BOX, "--chunk-size", "100000"), 2, "power of two"),
                                  (("erase", self.folder / "nothing"), 4, "is no copy")):
            done = self.pelton("weights", *words)
            self.assertEqual(done.returncode, code, (words, done.stderr))
            self.assertIn(text, done.stderr)

    def serve(self, url, *more):
        process, own = self.start("serve", "pelton-box", "--weights-from", url, "--port", "0", "--kv-cache-memory", "16MiB", *more)
        answer = post(own + "/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4})
        self.assertEqual(answer["model"], "pelton-box")
        self.assertGreater(answer["usage"]["completion_tokens"], 0)
        return process, own

    def test_a_server_fetches_what_it_serves(self):
        _, url = self.start("weights", "serve", BOX, "--port", "0", "--chunk-size", "256KiB")
        size = sum(len(data) for data in files_of(BOX).values())
        process, own = self.serve(url)
        with urllib.request.urlopen(own + "/metrics", timeout=10) as page:
            phases = re.findall(r'^pelton_model_load_seconds\{.*?phase="(\w+)".*?\}', page.read().decode(), re.M)
        self.assertEqual(phases, ["manifest", "fetch", "files", "tokenizer", "weights", "memory"])
        self.assertRegex(process.log.read_text(), r"loaded in [0-9.]+ s \(manifest [0-9.]+, fetch [0-9.]+, files ")
        self.assertEqual(self.sent(url), size)
        # No copy was asked for: none is there.
        self.assertEqual(list((self.folder / "tmp").iterdir()), [])
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(30), 0)
        self.assertIn("is no folder", self.pelton("serve", "../x", "--weights-from", url, "--port", "0").stderr)
        self.assertIn("404", self.pelton("serve", "other-model", "--weights-from", url + "/nothing", "--port", "0").stderr)

    def test_servers_of_one_machine_fetch_once_and_keep_what_was_asked_for(self):
        _, url = self.start("weights", "serve", BOX, "--port", "0", "--chunk-size", "256KiB", "--rate", "16MiB")
        size = sum(len(data) for data in files_of(BOX).values())
        cache = self.folder / "cache"
        words = ("--weights-cache", cache)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda _: self.serve(url, *words), range(2)))
        self.assertEqual(self.sent(url), size)
        copies = json.loads(self.pelton("weights", "ls", cache, "--json").stdout)
        self.assertEqual(len(copies), 1)
        self.assertEqual(files_of(copies[0]["folder"]), files_of(BOX))
        # Given on by a third one, from its copy.
        process, _ = self.serve(url, *words, "--weights-share-port", "0")
        shared = re.search(r"given on at (http://\S+)", process.log.read_text())[1]
        self.expect(0, self.pelton("weights", "mirror", url, self.folder / "copy", "--peer", shared))
        self.assertEqual(self.sent(url), size)
        # The commands of packed weights see and delete copies as well.
        listed = json.loads(self.pelton("cache", "list", "--weights-cache", cache, "--json").stdout)
        self.assertEqual([(one["folder"], one["bytes"]) for one in listed if "from" in one], [(copies[0]["folder"], copies[0]["bytes"])])
        self.assertIn(copies[0]["folder"], self.pelton("cache", "list", "--weights-cache", cache).stdout)
        for code, *words in ((4, "another-model", "--copies"), (4, "pelton-box", "--packed"), (4, "another-model", "--packed", "--copies"),
                             (0, "--all", "--packed")):
            self.expect(code, self.pelton("cache", "purge", *words, "--weights-cache", cache))
            self.assertTrue(pathlib.Path(copies[0]["folder"]).exists(), words)
        for words in (("cache", "purge", "--all", "--copies", "--weights-cache"), ("weights", "ls"), ("weights", "erase", "--all")):
            self.assertIn("there is no folder", self.expect(4, self.pelton(*words, self.folder / "nowhere")).stderr)
        self.expect(0, self.pelton("cache", "purge", "pelton-box", "--copies", "--weights-cache", cache))
        self.assertEqual(list(cache.iterdir()), [])


if __name__ == "__main__":
    BINARY = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
