#!/usr/bin/env python3
"""Images and videos through a gateway, made by servers of the test's own (painter.py): real processes, real PNGs, work that takes time.

usage: images_test.py BINARY
"""
import base64
import concurrent.futures
import hashlib
import http.client
import json
import pathlib
import re
import signal
import socket
import sys
import tempfile
import threading
import time
import unittest

import gateway_fixture
from gateway_fixture import Process, ask
from painter import Painter, content_block, png, read_png
from ports import free_port
from tiers import FULL, full

IMAGES, EDITS, VIDEOS = "/v1/images/generations", "/v1/images/edits", "/v1/videos"
LIMITS = {"makes": ["images", "videos"], "steps": 4, "steps_max": 50, "pixels_max": 1 << 20, "images_max": 4, "frames_max": 240, "time_max": 10}


def form(fields, files=()):
    """Body and type of a multipart form."""
    parts = [f'--x\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode() for name, value in fields]
    parts += [f'--x\r\nContent-Disposition: form-data; name="{name}"; filename="a.png"\r\nContent-Type: image/png\r\n\r\n'.encode() + data + b"\r\n"
              for name, data in files]
    return b"".join(parts) + b"--x--\r\n", "multipart/form-data; boundary=x"


class Media(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def start(self, pools, gateway="", scale=""):
        """`pools`: name and model -> its painters, and what is other than LIMITS. `scale`: tables of each pool."""
        self.admin = free_port()
        text = f'[gateway]\nlisten = "127.0.0.1:0"\nadmin = "127.0.0.1:{self.admin}"\nresume_budget = 2\n{gateway}'
        for name, (painters, other) in pools.items():
            text += f'[[pool]]\nname = "{name}"\nmodel = "{name}"\nkind = "openai"\n[pool.media]\n'
            text += "".join(f"{key} = {json.dumps(value)}\n" for key, value in {**LIMITS, **other}.items()) + scale
            for painter in painters:
                self.addCleanup(painter.close)
                text += f'[[worker]]\npool = "{name}"\nurl = "http://127.0.0.1:{painter.server_port}"\n'
        config = self.folder / "gateway.toml"
        config.write_text(text)
        self.gateway = Process("gateway", "--config", config)
        self.addCleanup(self.gateway.end)
        self.port = self.gateway.port
        there = [painter.server_port for painters, _ in pools.values() for painter in painters if not painter.away]
        self.wait(lambda: sum(row["state"] == "ready" for row in self.rows()) == len(there))

    def rows(self):
        return json.loads(ask(self.admin, "GET", "/v1/workers")[1])["workers"]

    def wait(self, what):
        end = time.monotonic() + 15
        while not what() and time.monotonic() < end:
            time.sleep(0.02)
        self.assertTrue(what(), (self.rows(), list(self.gateway.log)[-10:]))

    def metric(self, name, **labels):
        return gateway_fixture.figure(self.admin, f"pelton_gateway_media_{name}", **labels)

    def raw(self, method, path, body=None, kind="application/json", **headers):
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            link.request(method, path, body, {"Content-Type": kind, **headers})
            answer = link.getresponse()
            return answer.status, answer.read(), answer.headers
        finally:
            link.close()

    def ask(self, method, path, value=None, **headers):
        """Status and what it answers, as JSON."""
        status, body, _ = self.raw(method, path, value and json.dumps(value), **headers)
        return status, json.loads(body)

    def images(self, **fields):
        return self.ask("POST", IMAGES, {"model": "paint", "prompt": "a cat", "size": "256x256", **fields})

    def memory_mib(self):
        status = pathlib.Path(f"/proc/{self.gateway.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) >> 10

    def error(self, status, answer, code=None, param=None):
        self.assertEqual(answer[0], status, answer)
        error = answer[1]["error"]
        self.assertEqual((error["code"] or code, error["param"] or param), (code or error["code"], param or error["param"]))
        return error["message"]


class Images(Media):
    def test_pictures_are_what_was_asked_for(self):
        one, other = Painter(), Painter("draw")
        self.start({"paint": ([one], {}), "draw": ([other], {"makes": ["images"]})})
        status, answer = self.images(n=3, num_inference_steps=2, seed=7, size="128x64", guidance_scale=3.5, lora="ink")
        self.assertEqual((status, answer["steps"]), (200, 2), answer)
        self.assertEqual([base64.b64decode(data["b64_json"]) for data in answer["data"]], [png(128, 64, f"a cat {i}") for i in range(3)])
        self.assertEqual([read_png(base64.b64decode(data["b64_json"])) for data in answer["data"]], [(128, 64)] * 3)
        self.assertEqual(json.loads(one.asked[-1][1])["guidance_scale"], 3.5)
        self.assertEqual(one.asked[-1][1], json.dumps({"model": "paint", "prompt": "a cat", "size": "128x64", "n": 3, "num_inference_steps": 2,
                                                       "seed": 7, "guidance_scale": 3.5, "lora": "ink"}).encode(), "it goes on as it came")
        # A form: its model, too, is read, and the pictures in it arrive.
        pictures = [png(64, 64, i) for i in range(3)]
        body, kind = form([("model", "draw"), ("prompt", "a hat"), ("n", "2"), ("size", "64x64")],
                          [("image[]", pictures[0]), ("image[]", pictures[1]), ("mask", pictures[2])])
        status, raw, _ = self.raw("POST", EDITS, body, kind)
        answer = json.loads(raw)
        self.assertEqual((status, len(answer["data"])), (200, 2), answer)
        self.assertEqual(answer["files"], {"image[]": [hashlib.sha256(one).hexdigest() for one in pictures[:2]],
                                           "mask": [hashlib.sha256(pictures[2]).hexdigest()]})
        self.assertEqual((other.asked[-1][1], len(one.asked)), (body, 1))
        # Who names no model means the first pool that makes such a thing.
        status, answer = self.ask("POST", IMAGES, {"prompt": "x", "size": "64x64"})
        self.assertEqual((status, len(one.asked)), (200, 2), answer)
        self.assertIn("makes images, no videos", self.error(400, self.ask("POST", VIDEOS, {"model": "draw", "prompt": "x"}), param="model"))
        self.error(404, self.images(model="other"), "model_not_found")
        self.assertEqual(self.metric("requests_total", makes="images"), 3)
        self.assertGreater(self.metric("result_bytes_total"), 1000)

    def test_events_as_they_come(self):
        painter = Painter(unit_s=0.01)
        self.start({"paint": ([painter], {})})
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        self.addCleanup(link.close)
        body = {"model": "paint", "prompt": "a cat", "size": "256x256", "num_inference_steps": 20, "n": 2, "stream": True, "partial_images": 1}
        link.request("POST", IMAGES, json.dumps(body), {"Content-Type": "application/json"})
        events, times = [], []
        for line in link.getresponse():
            if line.startswith(b"data: "):
                events.append(json.loads(line[6:]))
                times.append(time.monotonic())
        self.assertEqual([one["type"].split(".")[1] for one in events], ["partial_image", "completed"] * 2)
        self.assertTrue(all(read_png(base64.b64decode(one["b64_json"])) == (256, 256) for one in events))
        self.assertGreater(times[-1] - times[0], 0.1, "they are passed on as they are made")
        # One that just stops is no whole answer.
        painter.fault = "cut"
        link.request("POST", IMAGES, json.dumps(body), {"Content-Type": "application/json"})
        text = link.getresponse().read().decode()
        self.assertIn("stream_interrupted", text)
        self.assertNotIn("completed", text)

    def test_what_is_beyond_a_limit_reaches_no_worker(self):
        painter = Painter()
        self.start({"paint": ([painter], {})})
        big = 10 ** 9
        cases = [("size", "0x0", "pixels_max"), ("size", f"{big}x{big}", "pixels_max"), ("size", f"{big}x1", "pixels_max"), ("size", "-1x5", "pixels_max"),
                 ("size", "1024x", "WIDTHxHEIGHT"), ("size", "99999999999999999999x1", "WIDTHxHEIGHT"), ("size", 1024, "string"), ("size", ["1x1"], "string"),
                 ("n", 10 ** 6, "images_max"), ("n", 0, "images_max"), ("n", -1, "images_max"), ("n", 1.5, "whole"), ("n", "2", "whole"), ("n", True, "whole"),
                 ("num_inference_steps", 51, "steps_max"), ("num_inference_steps", 0, "steps_max"), ("steps", big, "steps_max"), ("steps", {}, "whole"),
                 ("guidance_scale", -1, "number"), ("guidance_scale", "3", "number"), ("width", big, "pixels_max"), ("height", 0, "pixels_max"),
                 ("prompt", None, "missing"), ("prompt", "", "missing"), ("prompt", 7, "string"), ("prompt", "x" * 70000, "bytes"), ("seed", "a", "whole"),
                 ("partial_images", 9, "0 to 3"), ("output_compression", 101, "0 to 100"), ("response_format", 3, "string"),
                 ("lora", 5, "name"), ("lora", {}, "name"), ("output_path", "/etc/passwd", "trust_clients"), ("diffusers_kwargs", {"steps": big}, "trust_clients")]
        for field, value, words in cases:
            with self.subTest(field=field, value=str(value)[:40]):
                self.assertIn(words, self.error(400, self.images(**{field: value}), param=field))
        self.assertIn("trust_clients", self.error(400, self.images(lora={"name": "a", "path": "/etc/passwd"}), param="lora.path"))
        videos = [("seconds", 0, "frames_max"), ("seconds", "99", "frames_max"), ("seconds", "x", "whole"), ("num_frames", 241, "frames_max"),
                  ("fps", 241, "1 to 240"), ("n", 10 ** 6, "images_max"), ("size", "0x0", "pixels_max"), ("video_params", 4, "object")]
        for field, value, words in videos:
            with self.subTest(field=field, value=value):
                self.assertIn(words, self.error(400, self.ask("POST", VIDEOS, {"model": "paint", "prompt": "x", field: value}), param=field))
        self.error(400, self.ask("POST", VIDEOS, {"model": "paint", "prompt": "x", "video_params": {"num_frames": big}}), param="num_frames")
        for body in (b"{", b"[]", b'{"model":"paint","prompt":"x","guidance_scale":NaN}', b'{"model":"paint","prompt":"x","n":1e999}', b"\xff\xfe", b"4"):
            with self.subTest(body=body):
                self.assertEqual(self.raw("POST", IMAGES, body)[0], 400)
        for fields, words in (([("n", "NaN")], "whole"), ([("size", "0x0")], "pixels_max"), ([("n", "1"), ("n", "9")], "twice"),
                              ([("guidance_scale", "nan")], "number"), ([("guidance_scale", "inf")], "number"), ([("steps", "10000")], "steps_max")):
            body, kind = form([("model", "paint"), ("prompt", "x"), *fields])
            status, raw, _ = self.raw("POST", EDITS, body, kind)
            self.assertEqual(status, 400, raw)
            self.assertIn(words, raw.decode())
        for body in (b"", b"--x", b'--x\r\nContent-Disposition: form-data; name="prompt"\r\n\r\nno end'):
            self.assertEqual(self.raw("POST", EDITS, body, "multipart/form-data; boundary=x")[0], 400)
        self.assertEqual(painter.asked, [])
        self.assertEqual(self.images()[0], 200, "and it still paints")
        self.assertGreater(self.metric("refused_total"), len(cases))

    def test_workers_that_fail(self):
        good, bad = Painter(), Painter()
        lone, slow = Painter("lone"), Painter("slow")
        self.start({"paint": ([good, bad], {}), "lone": ([lone], {"result_bytes_max": 8 << 20}), "slow": ([slow], {"time_max": 0.5})})
        for fault in "die", "html", "busy":
            bad.fault = fault
            tried = len(bad.asked)
            while len(bad.asked) < tried + 2:  # whoever is asked first, the good one answers
                self.assertEqual(self.images(prompt=f"{fault} {len(good.asked)}", size="64x64")[0], 200, fault)
            ask(self.admin, "POST", f"/v1/workers/127.0.0.1:{bad.server_port}/restore")
        # Alone it fails clearly, and what has begun is never ended cleanly.
        for fault, status in (("die", 502), ("html", 502), ("busy", 429)):
            lone.fault = fault
            self.assertEqual(self.images(model="lone", prompt=fault)[0], status, fault)
            ask(self.admin, "POST", f"/v1/workers/127.0.0.1:{lone.server_port}/restore")
        lone.fault = "half"
        with self.assertRaises(http.client.IncompleteRead):
            self.images(model="lone")
        before = self.memory_mib()
        lone.fault, lone.sent = "huge", 0
        with self.assertRaises(http.client.IncompleteRead) as cut:
            self.images(model="lone")
        self.assertLessEqual(len(cut.exception.partial), 8 << 20)
        self.wait(lambda: "result_bytes_max" in "".join(self.gateway.log))
        self.assertLess(lone.sent, 64 << 20, "a gigabyte is not taken from it")
        self.assertLess(self.memory_mib() - before, 24)
        lone.fault = None
        ask(self.admin, "POST", f"/v1/workers/127.0.0.1:{lone.server_port}/restore")
        self.assertEqual(self.images(model="lone")[0], 200)
        slow.fault = "never"
        self.assertIn("time_max", self.error(504, self.images(model="slow"), "worker_timeout"))
        self.wait(lambda: slow.left == 1)
        self.assertEqual((len(slow.asked), self.metric("late_total")), (1, 1), "it is not tried again")

    def test_a_client_that_leaves_frees_the_worker(self):
        painter = Painter(unit_s=0.02)
        self.start({"paint": ([painter], {})})
        body = json.dumps({"model": "paint", "prompt": "x", "size": "1024x1024", "num_inference_steps": 50}).encode()
        link = socket.create_connection(("127.0.0.1", self.port))
        link.sendall(b"POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
                     % (IMAGES.encode(), len(body), body))
        self.wait(lambda: len(painter.asked) == 1)
        self.assertEqual(self.metric("open", makes="images"), 1)
        self.assertEqual(self.metric("units_open"), 16 * 50)
        link.close()
        self.wait(lambda: painter.left == 1)
        self.wait(lambda: self.metric("open", makes="images") == 0)
        self.assertEqual(self.rows()[0]["failures"], 0)

    def test_where_a_request_goes(self):
        """Work that is there is waited for; an adapter that was loaded is used again."""
        painters = [Painter(unit_s=0.002) for _ in range(2)]
        self.start({"paint": (painters, {})})
        for one in painters:
            one.free.clear()
        status, video = self.ask("POST", VIDEOS, {"model": "paint", "prompt": "x", "size": "256x256", "num_frames": 240, "num_inference_steps": 4})
        self.assertEqual(status, 200, video)
        busy = next(one for one in painters if one.videos)
        idle = next(one for one in painters if one is not busy)
        idle.free.set()
        row = {row["name"]: row for row in self.rows()}[f"127.0.0.1:{busy.server_port}"]
        self.assertEqual(row["making"]["videos"], 1)
        self.assertGreater(row["making"]["units"], 100)
        for i in range(6):
            self.assertEqual(self.images(prompt=f"{i}")[0], 200)
        self.assertEqual(len(idle.asked), 6, "they do not wait behind the video")
        busy.free.set()
        self.wait(lambda: all(row["making"]["units"] == 0 for row in self.rows()))
        measured = [row["making"]["unit_s"] for row in self.rows()]
        self.assertTrue(all(one >= painters[0].unit_s for one in measured), measured)

        def who(lora):
            before = [len(one.asked) for one in painters]
            self.assertEqual(self.images(lora=lora, size="64x64")[0], 200)
            return next(i for i, one in enumerate(painters) if len(one.asked) > before[i])
        for lora in "ink", {"name": "oil", "scale": 0.5}, "chalk":
            self.assertEqual(len({who(lora) for _ in range(4)}), 1, lora)
        self.assertEqual(sorted(lora for row in self.rows() for lora in row["making"]["loras"]), ["chalk", "ink", "oil"])
        self.assertEqual(gateway_fixture.figure(self.admin, "pelton_gateway_adapter_requests_total"), 12)
        self.assertEqual(gateway_fixture.figure(self.admin, "pelton_gateway_adapter_resident_total"), 9)

    def test_an_adapter_that_a_worker_lists_is_a_model(self):
        plain, inked = Painter(), Painter(loras=("ink",))
        self.start({"paint": ([plain, inked], {})})
        self.wait(lambda: any(one["id"] == "ink" for one in self.ask("GET", "/v1/models")[1]["data"]))
        for i in range(5):
            self.assertEqual(self.images(model="ink", size="64x64", prompt=f"{i}")[0], 200)
        self.assertEqual((len(plain.asked), len(inked.asked)), (0, 5))
        for i in range(4):
            self.assertEqual(self.images(lora="ink", size="64x64", prompt=f"{i}")[0], 200)
        self.assertEqual((len(plain.asked), len(inked.asked)), (0, 9), "nor as a request's adapter")


class Queue(Media):
    """What is beyond the requests that workers take at once waits in the gateway."""

    def setUp(self):
        super().setUp()
        self.threads = concurrent.futures.ThreadPoolExecutor(32)
        self.addCleanup(self.threads.shutdown)

    def held(self, name="held_requests", pool="paint"):
        return gateway_fixture.figure(self.admin, f"pelton_gateway_{name}", pool=pool)

    def send(self, prompt, held, key=None, **fields):
        """In the background; it is held, as the `held`-th one that waits, or on its way where that is None."""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        body = json.dumps({"model": "paint", "prompt": prompt, "size": "64x64", **fields})
        answer = self.threads.submit(self.raw, "POST", IMAGES, body, **headers)
        if held is not None:
            self.wait(lambda: self.held() == held)
        return answer

    def prompts(self, painter):
        return [json.loads(body)["prompt"] for _, body, _ in painter.asked]

    def test_it_is_bounded_and_fair(self):
        keys = self.folder / "keys"
        keys.write_text("key-a acme\nkey-b other\n")
        painter = Painter()
        self.start({"paint": ([painter], {"at_once": 1, "queue_requests": 5})}, f'keys_file = "{keys}"\n')
        painter.free.clear()
        self.addCleanup(painter.free.set)
        answers = [self.send("a0", None, "key-a")]
        self.wait(lambda: len(painter.asked) == 1)
        answers += [self.send(f"a{i}", i, "key-a") for i in (1, 2, 3)]
        answers.append(self.send("b1", 4, "key-b"))
        body = json.dumps({"model": "paint", "prompt": "leaves", "size": "64x64"}).encode()
        link = socket.create_connection(("127.0.0.1", self.port))
        link.sendall(b"POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer key-b\r\nContent-Type: application/json\r\n"
                     b"Content-Length: %d\r\n\r\n%s" % (IMAGES.encode(), len(body), body))
        self.wait(lambda: self.held() == 5)
        status, raw, headers = self.raw("POST", IMAGES, json.dumps({"model": "paint", "prompt": "x", "size": "64x64"}), Authorization="Bearer key-b")
        self.assertEqual((status, json.loads(raw)["error"]["code"]), (429, "overloaded"), raw)
        self.assertGreaterEqual(int(headers["Retry-After"]), 1)
        self.assertEqual((self.held("hold_refused_total"), self.held("held_total")), (1, 5))
        link.close()  # who leaves frees its place
        self.wait(lambda: self.held() == 4)
        answers.append(self.send("b2", 5, "key-b"))
        self.assertEqual(self.prompts(painter), ["a0"], "one at once")
        painter.free.set()
        for answer in answers:
            status, raw, headers = answer.result(30)
            self.assertEqual(status, 200, raw)
        self.assertGreater(int(headers["x-pelton-held-ms"]), 0)
        order = self.prompts(painter)
        self.assertEqual(sorted(order), ["a0", "a1", "a2", "a3", "b1", "b2"])
        self.assertEqual([one for one in order if one[0] == "a"], ["a0", "a1", "a2", "a3"], "in order within a tenant")
        self.assertLess(order.index("b1"), order.index("a2"), order)
        self.assertEqual(self.held(), 0)
        self.wait(lambda: json.loads(ask(self.admin, "GET", "/debug/ledger")[1])["clean"])

    @full
    def test_all_workers_have_their_fill_and_no_more(self):
        painters = [Painter(unit_s=0.2) for _ in range(2)]
        most = [0, 0]
        self.start({"paint": (painters, {"at_once": 2})})
        answers = [self.send(f"{i}", None, num_inference_steps=16) for i in range(12)]
        while not all(one.done() for one in answers):
            for i, row in enumerate(sorted(self.rows(), key=lambda row: row["name"])):
                most[i] = max(most[i], row["making"]["images"])
        self.assertEqual([one.result()[0] for one in answers], [200] * 12)
        self.assertEqual(most, [2, 2])
        self.assertEqual(sum(len(one.asked) for one in painters), 12)

    @full
    def test_a_video_takes_its_place_until_it_is_made(self):
        painter = Painter()
        self.start({"paint": ([painter], {"at_once": 1})})
        painter.free.clear()
        self.addCleanup(painter.free.set)
        status, video = self.ask("POST", VIDEOS, {"model": "paint", "prompt": "x", "size": "64x64", "num_frames": 4})
        self.assertEqual(status, 200, video)
        image = self.send("behind it", 1)
        self.assertEqual(self.ask("GET", f"{VIDEOS}/{video['id']}")[0], 200, "who asks after it does not wait")
        time.sleep(0.3)
        self.assertEqual(self.held(), 1)
        painter.free.set()
        self.assertEqual(image.result(30)[0], 200)
        self.assertEqual(self.ask("GET", f"{VIDEOS}/{video['id']}")[1]["status"], "completed")

    def test_the_wait_has_an_end(self):
        painter = Painter()
        self.start({"paint": ([painter], {"at_once": 1, "queue_seconds": 1})})
        painter.free.clear()
        self.addCleanup(painter.free.set)
        first = self.send("first", None)
        self.wait(lambda: len(painter.asked) == 1)
        status, raw, headers = self.send("late", 1).result(30)
        self.assertEqual((status, json.loads(raw)["error"]["code"]), (429, "overloaded"), raw)
        self.assertGreaterEqual(int(headers["Retry-After"]), 1)
        status, answer = self.ask("POST", IMAGES, {"model": "paint", "prompt": "hasty", "size": "64x64"}, **{"x-request-timeout-ms": "200"})
        self.assertIn("no worker was free", self.error(408, (status, answer), "deadline_exceeded"))
        painter.free.set()
        self.assertEqual(first.result(30)[0], 200)
        self.assertEqual(self.prompts(painter), ["first"])

    @full
    def test_a_fallback_has_its_own_limits(self):
        full, small = Painter(), Painter()
        self.start({"paint": ([full], {"at_once": 1, "queue_requests": 1}), "small": ([small], {"makes": ["images"], "steps": 1, "steps_max": 2})})
        config = self.folder / "gateway.toml"
        config.write_text(config.read_text().replace('model = "small"', 'model = "paint"') +
                          '[[route]]\nmodel = "paint"\nto = [{pool = "paint"}]\nfallback = ["small"]\n')
        reloads = gateway_fixture.figure(self.admin, "pelton_gateway_config_reloads_total")
        self.gateway.process.send_signal(signal.SIGHUP)
        self.wait(lambda: gateway_fixture.figure(self.admin, "pelton_gateway_config_reloads_total") > reloads)
        full.free.clear()
        self.addCleanup(full.free.set)
        answers = [self.send("first", None)]
        self.wait(lambda: len(full.asked) == 1)
        answers.append(self.send("second", 1))
        self.assertEqual(self.images(num_inference_steps=2)[0], 200, "it keeps to the limits of both")
        self.error(429, self.images(num_inference_steps=3), "overloaded")
        self.error(429, self.ask("POST", VIDEOS, {"model": "paint", "prompt": "x", "size": "64x64", "num_frames": 1}), "overloaded")
        self.assertEqual(len(small.asked), 1)
        full.free.set()
        self.assertEqual([one.result(30)[0] for one in answers], [200] * 2)

    @full
    def test_without_a_worker_nobody_waits_long(self):
        painter = Painter()
        painter.away = True
        self.start({"paint": ([painter], {"at_once": 1})})
        begun = time.monotonic()
        self.error(503, self.images(), "no_worker")
        self.assertLess(time.monotonic() - begun, 10, "resume_budget is 2 s")

    @full
    def test_a_pool_that_is_scaled_holds_them_until_a_replica_is_there(self):
        painter = Painter()
        painter.away = True
        self.start({"paint": ([painter], {"at_once": 1})}, scale="[pool.scale]\nmax = 2\nconcurrency_target = 1\n")
        answers = [self.send(f"{i}", i + 1) for i in range(3)]
        time.sleep(3)
        self.assertEqual((self.held(), painter.asked), (3, []), "longer than resume_budget")
        painter.away = False
        self.assertEqual([one.result(30)[0] for one in answers], [200] * 3)
        self.assertEqual(self.prompts(painter), ["0", "1", "2"])

    @full
    def test_a_reload_says_how_much_waits(self):
        painter = Painter()
        self.start({"paint": ([painter], {"at_once": 1, "queue_requests": 1})})
        painter.free.clear()
        self.addCleanup(painter.free.set)
        answers = [self.send("first", None)]
        self.wait(lambda: len(painter.asked) == 1)
        answers.append(self.send("second", 1))
        self.error(429, self.images(), "overloaded")
        config = self.folder / "gateway.toml"
        config.write_text(config.read_text().replace("queue_requests = 1", "queue_requests = 2"))
        reloads = gateway_fixture.figure(self.admin, "pelton_gateway_config_reloads_total")
        self.gateway.process.send_signal(signal.SIGHUP)
        self.wait(lambda: gateway_fixture.figure(self.admin, "pelton_gateway_config_reloads_total") > reloads)
        answers.append(self.send("third", 2))
        painter.free.set()
        self.assertEqual([one.result(30)[0] for one in answers], [200] * 3)


class Videos(Media):
    def begin(self, **fields):
        status, video = self.ask("POST", VIDEOS, {"model": "paint", "prompt": "a dog", "size": "256x256", "num_frames": 24, **fields})
        self.assertEqual(status, 200, video)
        return video["id"]

    def state(self, video):
        status, answer = self.ask("GET", f"{VIDEOS}/{video}")
        self.assertEqual(status, 200, answer)
        return answer

    def test_a_job_from_its_beginning_to_its_end(self):
        painters = [Painter(unit_s=0.004, content_bytes=((96 if FULL else 8) << 20) + 17) for _ in range(3)]
        self.start({"paint": (painters, {})})
        body, kind = form([("model", "paint"), ("prompt", "a form"), ("seconds", "1"), ("size", "256x256")], [("input_reference", png(8, 8, 1))])
        first = json.loads(self.raw("POST", VIDEOS, body, kind)[1])["id"]
        jobs = [first, *(self.begin(prompt=f"dog {i}") for i in range(5))]
        self.assertEqual(self.metric("requests_total", makes="videos"), 6)
        seen = {job: [0] for job in jobs}
        while not all(seen[job][-1] == 100 for job in jobs):
            for job in jobs:
                seen[job].append(self.state(job)["progress"])
        for job, progress in seen.items():
            self.assertEqual(progress, sorted(progress), job)
        self.assertTrue(any(0 < one < 100 for progress in seen.values() for one in progress), seen)
        self.assertEqual(sum(one.missed for one in painters), 0, "each is asked for where it is made")
        self.assertGreater(sum(bool(one.videos) for one in painters), 1)
        self.wait(lambda: all(self.state(job)["status"] == "completed" for job in jobs))
        self.wait(lambda: self.metric("open", makes="videos") == 0)
        self.check_content(jobs[1], "dog 0", painters[0].content_bytes)
        # The list is that of all.
        status, listed = self.ask("GET", f"{VIDEOS}?limit=4")
        self.assertEqual((status, listed["object"], listed["has_more"], len(listed["data"])), (200, "list", True, 4))
        status, rest = self.ask("GET", f"{VIDEOS}?limit=4&after={listed['last_id']}")
        self.assertEqual([status, rest["has_more"], *(one["id"] for one in reversed(listed["data"] + rest["data"]))], [200, False, *jobs])
        self.error(400, self.ask("GET", f"{VIDEOS}?limit=0"), param="limit")
        self.error(400, self.ask("GET", f"{VIDEOS}?order=up"), param="order")
        status, answer = self.ask("DELETE", f"{VIDEOS}/{first}")
        self.assertEqual((status, answer["deleted"]), (200, True))
        self.assertEqual(self.ask("GET", f"{VIDEOS}/{first}")[0], 404)
        self.assertEqual(self.ask("GET", f"{VIDEOS}/video_unknown/content")[0], 404)
        self.assertEqual(len(self.ask("GET", VIDEOS)[1]["data"]), 5)

    def check_content(self, job, prompt, size):
        """All bytes reach a client that is slow at first, and the gateway holds few of them."""
        before = self.memory_mib()
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        self.addCleanup(link.close)
        link.request("GET", f"{VIDEOS}/{job}/content")
        answer = link.getresponse()
        self.assertEqual((answer.status, answer.headers["Content-Type"]), (200, "video/mp4"))
        time.sleep(0.5)
        got, want, left = hashlib.sha256(), hashlib.sha256(), size
        while piece := answer.read(1 << 20):
            got.update(piece)
            left -= len(piece)
        self.assertEqual(left, 0)
        block = content_block(prompt)
        for _ in range(size // len(block)):
            want.update(block)
        want.update(block[:size % len(block)])
        self.assertEqual(got.hexdigest(), want.hexdigest())
        self.assertLess(self.memory_mib() - before, 24)

    def events(self, video):
        """What its events say, until they end."""
        status, body, headers = self.raw("GET", f"{VIDEOS}/{video}/events")
        self.assertEqual((status, headers["Content-Type"]), (200, "text/event-stream"), body)
        return [json.loads(line[6:]) for line in body.decode().splitlines() if line.startswith("data: ")]

    def test_progress_comes_as_events(self):
        self.start({"paint": ([Painter(unit_s=0.03)], {})})  # 24 frames of 4 steps: some three seconds
        job = self.begin()
        events = self.events(job)
        self.assertEqual({one["type"] for one in events[:-1]}, {"video.progress"})
        self.assertEqual({one["video"]["id"] for one in events}, {job})
        progress = [one["video"]["progress"] for one in events]
        self.assertEqual(progress, sorted(progress))
        self.assertTrue(any(0 < one < 100 for one in progress), progress)
        self.assertEqual((events[-1]["type"], events[-1]["video"]["status"]), ("video.completed", "completed"))
        self.assertEqual([one["type"] for one in self.events(job)], ["video.completed"])  # of what is made already
        self.assertEqual(self.ask("GET", f"{VIDEOS}/video_unknown/events")[0], 404)
        other, heard = self.begin(num_frames=240), []
        watcher = threading.Thread(target=lambda: heard.extend(self.events(other)))
        watcher.start()
        self.wait(lambda: self.state(other)["status"] == "in_progress")
        self.ask("POST", f"{VIDEOS}/{other}/cancel", {})
        watcher.join(20)
        self.assertEqual((heard[-1]["type"], heard[-1]["video"]["status"]), ("video.failed", "cancelled"))

    def test_cancelled_and_lost(self):
        painter = Painter(unit_s=0.01, content_bytes=1 << 20)
        self.start({"paint": ([painter], {"result_bytes_max": 4 << 20})})
        job = self.begin(num_frames=100, num_inference_steps=10)
        self.wait(lambda: self.state(job)["progress"] > 0)
        status, answer = self.ask("POST", f"{VIDEOS}/{job}/cancel", {})
        self.assertEqual((status, answer["status"]), (200, "cancelled"))
        self.wait(lambda: self.metric("open", makes="videos") == 0)
        # What may have begun is not begun twice.
        for fault in "die", "html", "nameless":
            painter.fault = fault
            asked = len(painter.asked)
            self.assertIn("not known", self.error(502, self.ask("POST", VIDEOS, {"model": "paint", "prompt": fault}), "worker_failed"))
            self.assertEqual(len(painter.asked), asked + 1)
            ask(self.admin, "POST", f"/v1/workers/127.0.0.1:{painter.server_port}/restore")
        painter.fault = None
        done = self.begin(num_frames=1)
        self.wait(lambda: self.state(done)["status"] == "completed")
        painter.fault = "html content"
        self.assertEqual(self.raw("GET", f"{VIDEOS}/{done}/content")[0], 502)
        painter.fault = "cut content"
        with self.assertRaises(http.client.IncompleteRead):
            self.raw("GET", f"{VIDEOS}/{done}/content")
        painter.fault = "lists html"
        self.error(502, self.ask("GET", VIDEOS), "worker_failed")
        painter.fault, painter.content_bytes = None, 8 << 20
        self.assertEqual(self.raw("GET", f"{VIDEOS}/{done}/content")[0], 502, "larger than result_bytes_max, as its head says")

    @full
    def test_a_worker_that_is_away_keeps_its_videos(self):
        painters = [Painter(), Painter()]
        self.start({"paint": (painters, {})})
        job = self.begin(num_frames=1)
        home = next(one for one in painters if one.videos)
        self.wait(lambda: self.state(job)["status"] == "completed")
        home.away = True
        for _ in range(3):
            self.error(503, self.ask("GET", f"{VIDEOS}/{job}"), "worker_away")
        self.wait(lambda: any(row["state"] != "ready" for row in self.rows()))
        self.error(503, self.ask("GET", f"{VIDEOS}/{job}/content"), "worker_away")
        home.away = False
        self.wait(lambda: all(row["state"] == "ready" for row in self.rows()))
        self.assertEqual(self.state(job)["status"], "completed")
        home.videos.clear()
        missed = sum(one.missed for one in painters)
        self.assertEqual(self.ask("GET", f"{VIDEOS}/{job}")[0], 404)
        self.assertEqual(sum(one.missed for one in painters), missed + 1, "it knows best")

    def test_a_video_is_its_tenants(self):
        keys = self.folder / "keys"
        keys.write_text("key-a acme\nkey-b\nkey-c\n")
        painters = [Painter(), Painter()]
        self.start({"paint": (painters, {})}, f'keys_file = "{keys}"\n')
        its = {key: {"Authorization": f"Bearer {key}"} for key in ("key-a", "key-b", "key-c")}
        self.assertEqual(self.ask("POST", VIDEOS, {"model": "paint", "prompt": "x"})[0], 401)
        jobs = {key: self.ask("POST", VIDEOS, {"model": "paint", "prompt": key, "num_frames": 1}, **its[key])[1]["id"] for key in its}
        for key, other in (("key-a", "key-b"), ("key-b", "key-a"), ("key-c", "key-b")):
            self.assertEqual(self.ask("GET", f"{VIDEOS}/{jobs[key]}", **its[key])[0], 200)
            for method, path in (("GET", ""), ("GET", "/content"), ("DELETE", ""), ("POST", "/cancel")):
                self.error(404, self.ask(method, f"{VIDEOS}/{jobs[other]}{path}", **its[key]), "not_found")
            self.assertEqual([one["id"] for one in self.ask("GET", VIDEOS, **its[key])[1]["data"]], [jobs[key]])
        self.assertEqual(self.ask("GET", f"{VIDEOS}/{jobs['key-a']}", **its["key-a"])[0], 200, "nobody has deleted it")

    def test_a_plain_server_says_that_it_makes_none(self):
        script = self.folder / "script.json"
        script.write_text(json.dumps(gateway_fixture.SCRIPT))
        server = Process("serve", gateway_fixture.BOX, "--executor", f"modelled:{script}", "--port", "0")
        self.addCleanup(server.end)
        for path in IMAGES, EDITS, VIDEOS:
            status, text = ask(server.port, "POST", path, {"model": "pelton-box", "prompt": "x"})
            self.assertEqual((status, json.loads(text)["error"]["code"]), (501, "modality_not_supported"), text)


if __name__ == "__main__":
    gateway_fixture.BINARY = sys.argv.pop(1)
    unittest.main()
