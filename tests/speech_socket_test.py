#!/usr/bin/env python3
"""Text that is spoken while it is being written, over a WebSocket, by real processes: the small Orpheus of speech_model.py and
the SNAC decoder of testdata. However a text comes, its sound is that of POST /v1/audio/speech, byte for byte; the same through
a gateway.

usage: speech_socket_test.py BINARY
"""
import base64
import json
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

import gateway_fixture
import speech_model
import speech_routes_test
from speech_routes_test import FRAME_BYTES, SNAC, WAIT_S, processes_end, start

PATH = "/v1/audio/speech/websocket"
DELTA, DONE, FAILED = "conversation.item.audio_output.delta", "conversation.item.audio_output.done", "conversation.item.tts.failed"
TEXT = ("Hello there. This is a text of several sentences, which are cut where they end. Dr. Smith counts 3.50 of them, and "
        "more! The pieces grow, so that the first one is heard early and the later ones have their melody. “Is that so?” It is, "
        "as everybody can hear. The last sentence has no end")


def port_of(at):
    return int(at.rsplit(":", 1)[1])


def over_http(at, text, **more):
    body = {"model": "orpheus", "input": text, "voice": "tara", "seed": 5, "max_tokens": 42, "response_format": "pcm", **more}
    request = urllib.request.Request(f"http://{at}/v1/audio/speech", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
        return answer.read()


class Session(gateway_fixture.Socket):
    def __init__(self, at, query="voice=tara", **headers):
        super().__init__(port_of(at), f"{PATH}?{query}", **headers)
        self.link.settimeout(WAIT_S)
        if self.status != 101:
            self.body = self.file.read1(4096).decode()
            return
        self.created = self.hear()

    def set(self, **fields):
        self.say({"type": "session.update", "session": fields})
        return self.until("session.updated")[-1]

    def append(self, text):
        self.say({"type": "input_text_buffer.append", "text": text})

    def commit(self):
        self.say({"type": "input_text_buffer.commit"})

    def until(self, *kinds):
        """Events up to one of these types."""
        heard = []
        while not heard or heard[-1]["type"] not in kinds:
            one = self.hear()
            assert not isinstance(one, int), (one, heard[-3:])
            heard.append(one)
        return heard

    def spoken(self):
        """The next item's sound, to its end."""
        events = self.until(DONE, FAILED)
        assert events[-1]["type"] == DONE and events[-1]["status"] == "completed", events[-1]
        item = events[-1]["item_id"]
        deltas = [one for one in events if one["type"] == DELTA]
        assert all(one["item_id"] == item for one in deltas)
        return b"".join(base64.b64decode(one["delta"]) for one in deltas)

    def to_the_end(self):
        heard = []
        while not heard or not isinstance(heard[-1], int):
            heard.append(self.hear())
        return heard


class Case(unittest.TestCase):
    def session(self, at, query="voice=tara", **headers):
        session = Session(at, query, **headers)
        self.addCleanup(session.close)
        return session

    def metric(self, at, name):
        page = urllib.request.urlopen(f"http://{at}/metrics", timeout=WAIT_S).read().decode()
        return sum(float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith((name + "{", name + " ")))

    def wait(self, what):
        end = time.monotonic() + WAIT_S
        while not what():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)


class Spoken(Case):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="pelton_speech_socket_"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.model = cls.folder / "orpheus"
        speech_model.write(cls.model)
        cls.server, cls.at = start(cls.folder, "serve", "serve", cls.model, "--port", "0", "--speech-decoder", SNAC,
                                   "--max-model-len", "8192", "--kv-cache-memory", "64MiB")
        cls.addClassCleanup(processes_end, cls.server)

    def nothing_runs(self):
        self.wait(lambda: self.metric(self.at, "vllm:num_requests_running") == 0)

    def test_however_a_text_comes_its_sound_is_that_over_http(self):
        whole = over_http(self.at, TEXT)
        self.assertGreater(len(whole), 3 * FRAME_BYTES, "there are several pieces")
        seed = random.SystemRandom().randrange(1 << 32)
        draw = random.Random(seed)
        for longest in (1, 8, 60, len(TEXT)):
            session = self.session(self.at)
            session.set(seed=5, max_tokens=42)
            at = 0
            while at < len(TEXT):
                size = draw.randint(1, longest)
                session.append(TEXT[at:at + size])
                at += size
            session.commit()
            self.assertEqual(session.spoken(), whole, (longest, seed))

    def test_the_first_sentence_is_heard_before_the_second_is_written(self):
        session = self.session(self.at)
        session.set(seed=5, max_tokens=42)
        session.append("Hello there. ")
        first = session.until(DELTA)[-1]
        sound = base64.b64decode(first["delta"])
        session.append("And more")
        session.commit()
        self.assertEqual(sound + session.spoken(), over_http(self.at, "Hello there. And more"))

    def test_formats_are_those_over_http(self):
        for form in ("wav", "pcm", "flac"):
            try:
                whole = over_http(self.at, TEXT, response_format=form)
            except urllib.error.HTTPError as refused:
                refused.close()
                self.assertEqual((form, refused.code), ("flac", 400))
                continue
            session = self.session(self.at, f"voice=tara&response_format={form}")
            session.set(seed=5, max_tokens=42)
            session.append(TEXT)
            session.commit()
            self.assertEqual(session.spoken(), whole, form)
            session.append(TEXT)
            session.commit()
            self.assertEqual(session.spoken(), whole, f"each item is a file: {form}")

    def test_a_session_says_what_it_is_and_ends_when_it_is_asked_to(self):
        session = self.session(self.at, "model=orpheus&voice=tara&response_format=raw&response_encoding=pcm_s16le")
        self.assertEqual(session.created["type"], "session.created")
        made = session.created["session"]
        self.assertEqual((made["object"], made["model"], made["voice"], made["response_format"], made["sample_rate"]),
                         ("realtime.tts.session", "orpheus", "tara", "pcm", 24000))
        session.say({"type": "tts_session.updated", "session": {"voice": "leo", "max_tokens": 42, "seed": 5}})
        self.assertEqual(session.until("session.updated")[-1]["session"]["voice"], "leo")
        session.append("One sentence")
        session.say({"type": "session.finish"})
        self.assertEqual(session.spoken(), over_http(self.at, "One sentence", voice="leo"))
        self.assertEqual([one if isinstance(one, int) else one["type"] for one in session.to_the_end()], ["session.finished", 1000])

    def test_errors_are_those_over_http(self):
        for query, status, param in (("voice=alloy", 400, "voice"), ("voice=tara&response_format=aac", 400, "response_format"),
                                     ("voice=tara&speed=2", 400, "speed"), ("model=nobody", 404, "model"),
                                     ("voice=tara&speed=nan", 400, "speed"), ("voice=tara&voice=leo", 400, "voice")):
            refused = self.session(self.at, query)
            self.assertEqual((refused.status, json.loads(refused.body.split("\r\n\r\n")[-1])["error"]["param"]), (status, param), query)
        session = self.session(self.at)
        with self.assertRaises(urllib.error.HTTPError) as refused:
            over_http(self.at, "Hello", voice="alloy")
        with refused.exception as answer:
            said = json.load(answer)["error"]
        session.say({"type": "session.update", "event_id": "mine", "session": {"voice": "alloy"}})
        error = session.until("error")[-1]["error"]
        self.assertEqual((error["message"], error["param"], error["event_id"]), (said["message"], "voice", "mine"))
        session.append("x" * 4097)
        self.assertEqual(session.until("error")[-1]["error"]["code"], "input_text_buffer_full")
        session.set(seed=5, max_tokens=42)
        session.append("Hello")
        session.commit()
        self.assertEqual(session.spoken(), over_http(self.at, "Hello"))

    def test_what_is_said_can_be_cancelled(self):
        session = self.session(self.at)
        session.set(max_tokens=4000)
        session.append("Hello there. " * 20)
        session.until(DELTA)
        session.say({"type": "response.cancel"})
        self.assertEqual(session.until(DONE)[-1]["status"], "cancelled")
        self.nothing_runs()
        session.set(seed=5, max_tokens=42)
        session.append("Something else.")
        session.commit()
        self.assertEqual(session.spoken(), over_http(self.at, "Something else."))

    def test_a_reader_that_stalls_holds_its_own_text_up_and_nobody_else(self):
        deaf = self.session(self.at)
        deaf.set(max_tokens=2000)
        deaf.link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        spoken = self.metric(self.at, "pelton_speech_audio_seconds_total")
        for _ in range(60):
            deaf.append("This is a sentence of sixty characters, as they are counted. ")
        self.wait(lambda: self.metric(self.at, "pelton_speech_audio_seconds_total") > spoken)
        other = self.session(self.at)
        other.set(seed=5, max_tokens=42)
        for _ in range(3):
            other.append("Hello there.")
            other.commit()
            self.assertEqual(other.spoken(), over_http(self.at, "Hello there."))
        # What has been begun is sampled to its end, and nothing more is begun.
        def held():
            before = self.metric(self.at, "pelton_speech_audio_seconds_total")
            time.sleep(1)
            return (self.metric(self.at, "vllm:num_requests_running") == 0
                    and self.metric(self.at, "pelton_speech_audio_seconds_total") == before)
        self.wait(held)
        deaf.append("x" * 4000)
        self.assertEqual(deaf.until("error")[-1]["error"]["code"], "input_text_buffer_full")

    def test_who_leaves_frees_the_work(self):
        session = self.session(self.at)
        session.set(max_tokens=4000)
        session.append("Hello there. " * 100)
        session.until(DELTA)
        self.assertGreater(self.metric(self.at, "vllm:num_requests_running"), 0)
        session.close()
        self.nothing_runs()
        self.wait(lambda: self.metric(self.at, "pelton_speech_decodes_waiting") == 0)

    def test_a_session_has_the_time_that_its_client_gives_it(self):
        session = self.session(self.at, **{"x-request-timeout-ms": "5000"})
        session.set(max_tokens=4000)
        session.append("Hello there. " * 20)
        heard = session.to_the_end()
        self.assertEqual((heard[-2]["type"], heard[-1]), ("error", 1008))
        self.assertIn("time is over", heard[-2]["error"]["message"])
        self.nothing_runs()

    def test_items_are_counted_as_answers_are(self):
        before = self.metric(self.at, "pelton_speech_first_audio_seconds_count")
        session = self.session(self.at)
        session.set(max_tokens=42)
        for _ in range(3):
            session.append("Hello there. And more.")
            session.commit()
            session.spoken()
        self.assertEqual(self.metric(self.at, "pelton_speech_first_audio_seconds_count"), before + 3)

    def test_a_model_that_makes_no_sound_says_so(self):
        box = speech_routes_test.ROOT / "models" / "pelton-box"
        silent, at = start(self.folder, "silent", "serve", box, "--port", "0", "--kv-cache-memory", "32MiB", "--max-model-len", "256")
        self.addCleanup(processes_end, silent)
        refused = self.session(at)
        self.assertEqual(refused.status, 501)
        self.assertIn("--speech-decoder", refused.body)

    def test_keys_and_their_limits(self):
        keys = self.folder / "keys"
        keys.write_text("key-a acme concurrent=1\n")
        server, at = start(self.folder, "keys", "serve", self.model, "--port", "0", "--speech-decoder", SNAC, "--kv-cache-memory",
                           "64MiB", "--api-key-file", keys)
        self.addCleanup(processes_end, server)
        self.assertEqual(self.session(at).status, 401)
        mine = {"Authorization": "Bearer key-a"}
        one, other = self.session(at, **mine), self.session(at, **mine)
        one.set(max_tokens=2000)
        one.append("Hello there. And")
        one.until(DELTA)
        other.append("Hello")
        other.commit()
        failed = other.until(FAILED)[-1]
        self.assertEqual(failed["error"]["code"], "rate_limit_exceeded")
        one.say({"type": "response.cancel"})
        one.until(DONE)
        other.set(max_tokens=42)
        other.append("Hello")
        other.commit()
        self.assertEqual(len(other.spoken()), 3 * FRAME_BYTES)
        server.send_signal(signal.SIGTERM)
        self.assertEqual(one.to_the_end()[-1], 1001)


class Gateway(Case):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        speech_model.write(self.folder / "orpheus")
        key = self.folder / "fleet.key"
        subprocess.run([speech_routes_test.BINARY, "gateway", "--new-key", key], check=True, capture_output=True, timeout=WAIT_S)
        self.worker, self.direct = start(self.folder, "worker", "serve", self.folder / "orpheus", "--port", "0", "--speech-decoder",
                                         SNAC, "--kv-cache-memory", "64MiB", "--max-model-len", "8192", "--fleet-port", "0",
                                         "--fleet-name", "w", "--fleet-key-file", key)
        self.addCleanup(processes_end, self.worker)
        fleet = []
        self.wait(lambda: fleet.extend(line for line in (self.folder / "worker.out").read_text().splitlines()
                                       if line.startswith("fleet on ")) or fleet)
        config = self.folder / "gateway.toml"
        config.write_text(f'[gateway]\nlisten = "127.0.0.1:0"\nfleet_key_file = "{key}"\n[[pool]]\nname = "a"\nmodel = "orpheus"\n'
                          f'[[worker]]\npool = "a"\nurl = "http://{fleet[0].split()[-1]}"\n')
        self.gateway, self.at = start(self.folder, "gateway", "gateway", "--config", config)
        self.addCleanup(processes_end, self.gateway)

        def ready():
            try:
                return over_http(self.at, "Hello")
            except urllib.error.HTTPError as error:
                error.close()
                return None
        self.wait(ready)

    def test_a_session_is_as_at_its_worker(self):
        whole = over_http(self.direct, TEXT)
        session = self.session(self.at)
        self.assertEqual(session.created["type"], "session.created")
        session.set(seed=5, max_tokens=42)
        for at in range(0, len(TEXT), 7):
            session.append(TEXT[at:at + 7])
        session.commit()
        self.assertEqual(session.spoken(), whole)
        session.say({"type": "nothing", "event_id": "mine"})
        self.assertEqual(session.until("error")[-1]["error"]["event_id"], "mine")
        refused = self.session(self.at, "voice=alloy")
        self.assertEqual(refused.status, 400)
        self.assertIn("there is none of this name", refused.body)
        self.assertEqual(self.session(self.at, "model=nobody&voice=tara").status, 404)
        # Who leaves frees the work at the worker.
        session.set(max_tokens=4000)
        session.append("Hello there. " * 100)
        session.until(DELTA)
        session.close()
        self.wait(lambda: self.metric(self.direct, "vllm:num_requests_running") == 0)

    def test_who_does_not_read_holds_its_own_text_up(self):
        deaf = self.session(self.at)
        deaf.set(max_tokens=2000)
        deaf.link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for _ in range(60):
            deaf.append("This is a sentence of sixty characters, as they are counted. ")
        other = self.session(self.at)
        other.set(seed=5, max_tokens=42)
        other.append(TEXT)
        other.commit()
        self.assertEqual(other.spoken(), over_http(self.direct, TEXT))

    def test_a_message_that_is_too_long_ends_the_session_by_its_code(self):
        session = self.session(self.at)
        session.say({"type": "input_text_buffer.append", "text": "x" * 60_000})
        self.assertEqual(session.until("error")[-1]["error"]["code"], "input_text_buffer_full")
        data = json.dumps({"type": "input_text_buffer.append", "text": "x" * 200_000}).encode()
        session.link.sendall(b"\x81\xff" + len(data).to_bytes(8, "big") + bytes(4) + data)
        self.assertEqual(session.to_the_end()[-1], 1009)

    def test_a_session_has_the_time_that_its_client_gives_it(self):
        session = self.session(self.at, **{"x-request-timeout-ms": "5000"})
        session.set(max_tokens=4000)
        session.append("Hello there. " * 20)
        heard = session.to_the_end()
        self.assertEqual((heard[-2]["type"], heard[-1]), ("error", 1008))

    def test_a_worker_that_dies_ends_its_sessions_with_an_error(self):
        session = self.session(self.at)
        session.set(max_tokens=4000)
        session.append("Hello there. " * 20)
        session.until(DELTA)
        self.worker.kill()
        heard = session.to_the_end()
        self.assertEqual((heard[-2]["type"], heard[-2]["error"]["code"], heard[-1]), ("error", "stream_interrupted", 1011))

    def test_a_worker_that_is_stopped_says_what_it_has_begun(self):
        session = self.session(self.at)
        session.set(seed=5, max_tokens=42)
        session.append("Hello there. And")
        session.until(DELTA)
        self.worker.send_signal(signal.SIGTERM)
        self.assertEqual(session.to_the_end()[-1], 1001)


if __name__ == "__main__":
    speech_routes_test.BINARY = gateway_fixture.BINARY = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
