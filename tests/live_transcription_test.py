#!/usr/bin/env python3
"""Live sound to text over a WebSocket, in OpenAI's Realtime transcription events, by real processes: the small Whisper model
of testdata/golden is served, and sound is sent in pieces as a microphone gives it. What has been said of it is never taken
back: an item's deltas, one behind the other, are its transcript.

usage: live_transcription_test.py BINARY
"""
import array
import base64
import json
import math
import os
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

import gateway_fixture
from tiers import FULL, full
import transcription_test
from painter import Painter
from transcription_test import BOX, Served, error_of, free_port, tone, wav
from whisper_model import write_model

RATE = 24000
PATH = "/v1/realtime?intent=transcription"
ITEM = "conversation.item.input_audio_transcription."


def pcm(samples):
    return array.array("h", samples).tobytes()


def burst(seed):
    """Three seconds, all of whose sound comes in the first 0.4: every window of it is the same but for its length."""
    return tone(0.4, seed=seed, rate=RATE) + [0] * int(2.6 * RATE)


class Session(gateway_fixture.Socket):
    def __init__(self, server, path=PATH, **headers):
        super().__init__(server.port, path, **headers)
        if self.status != 101:
            self.body = self.file.read1(4096).decode()
            return
        self.created = self.hear()

    def say(self, value):
        data, mask = json.dumps(value).encode(), os.urandom(4)
        if len(data) < 126:
            size = struct.pack(">B", 0x80 | len(data))
        elif len(data) < 65536:
            size = struct.pack(">BH", 0x80 | 126, len(data))
        else:
            size = struct.pack(">BQ", 0x80 | 127, len(data))
        key = int.from_bytes((mask * (len(data) // 4 + 1))[:len(data)], "big")
        self.link.sendall(b"\x81" + size + mask + (int.from_bytes(data, "big") ^ key).to_bytes(len(data), "big"))

    def update(self, **fields):
        """Of what comes in; gives the next event."""
        self.say({"type": "session.update", "session": {"type": "transcription", "audio": {"input": fields}}})
        return self.hear()

    def append(self, data):
        self.say({"type": "input_audio_buffer.append", "audio": base64.b64encode(data).decode()})

    def commit(self):
        self.say({"type": "input_audio_buffer.commit"})

    def until(self, kind):
        """Events up to one of this type."""
        heard = []
        while not heard or heard[-1]["type"] != kind:
            one = self.hear()
            assert not isinstance(one, int), (one, heard)
            heard.append(one)
        return heard

    def transcript(self):
        """The next item's: its committed, deltas and completed are checked. Gives the text and all events."""
        events = self.until(ITEM + "completed")
        done = events[-1]
        deltas = [one for one in events if one["type"] == ITEM + "delta" and one["item_id"] == done["item_id"]]
        assert "".join(one["delta"] for one in deltas) == done["transcript"], events
        committed = [one for one in events if one["type"] == "input_audio_buffer.committed"]
        assert done["item_id"] in [one["item_id"] for one in committed], events
        return done["transcript"], events


class Live(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.model = write_model(pathlib.Path(cls.folder.name) / "whisper")
        cls.server = Served("serve", cls.model, BOX, "--port", "0", "--kv-cache-memory", "32MiB", "--max-model-len", "256")

    @classmethod
    def tearDownClass(cls):
        cls.server.end()
        cls.folder.cleanup()

    def session(self, **fields):
        session = Session(self.server)
        self.addCleanup(session.close)
        self.assertEqual(session.status, 101)
        if fields:
            self.assertEqual(session.update(**fields)["type"], "session.updated")
        return session

    def windows(self):
        return self.server.metric("pelton_transcription_windows_total", model_name="whisper")

    def test_a_session_says_what_it_is(self):
        session = self.session()
        created = session.created
        self.assertEqual((created["type"], created["session"]["object"]), ("session.created", "realtime.transcription_session"))
        sound = created["session"]["audio"]["input"]
        self.assertEqual(sound["format"], {"type": "audio/pcm", "rate": 24000})
        self.assertEqual(sound["transcription"]["model"], "whisper")
        self.assertEqual(sound["turn_detection"]["type"], "server_vad")
        updated = session.update(turn_detection=None, transcription={"language": "l3", "model": "whisper"})
        self.assertEqual(updated["type"], "session.updated")
        self.assertIsNone(updated["session"]["audio"]["input"]["turn_detection"])
        self.assertEqual(updated["session"]["audio"]["input"]["transcription"]["language"], "l3")
        self.assertEqual(updated["session"]["id"], created["session"]["id"])
        session.say({"type": "transcription_session.update", "session": {"input_audio_format": "g711_alaw"}})
        older = session.hear()
        self.assertEqual((older["type"], older["session"]["input_audio_format"]), ("transcription_session.updated", "g711_alaw"))
        end = time.monotonic() + 30  # those of other tests may still be on their way out
        while self.server.metric("pelton_live_transcriptions", model_name="whisper") != 1 and time.monotonic() < end:
            time.sleep(0.02)
        self.assertEqual(self.server.metric("pelton_live_transcriptions", model_name="whisper"), 1)

    def test_text_comes_while_sound_does(self):
        early = 0
        for seed in range(5 if FULL else 3):
            session = self.session(turn_detection=None)
            data = pcm(burst(seed))
            piece = 2 * RATE * 6 // 10  # 0.6 s, of which a pass is made
            for at in range(0, len(data), piece):
                heard, end = self.windows(), time.monotonic() + 30
                session.append(data[at:at + piece])
                while self.windows() == heard and time.monotonic() < end:
                    time.sleep(0.02)
            session.commit()
            text, events = session.transcript()
            kinds = [one["type"] for one in events]
            early += ITEM + "delta" in kinds[:kinds.index("input_audio_buffer.committed")]
            self.assertEqual(events[-1]["usage"], {"type": "duration", "seconds": 3})
        self.assertGreater(early, 0)

    def test_sound_that_comes_at_once_has_the_text_of_the_file(self):
        for seed in (4, 8, 11) if FULL else (4,):  # of these the file's text is in one segment, without drawn special tokens, which cut it
            samples = tone(4, seed=seed, rate=RATE)
            path = pathlib.Path(self.folder.name) / "talk.wav"
            path.write_bytes(wav(samples, rate=RATE))
            written = subprocess.run([transcription_test.BINARY, "transcribe", self.model, path, "--without-timestamps",
                                      "--format", "json"], capture_output=True, text=True, check=True, timeout=120).stdout
            segments = json.loads(written)["segments"]
            self.assertEqual(len(segments), 1)
            text = bytes(one for one in segments[0]["tokens"] if one < 256).decode(errors="replace").lstrip(" \t\r\n")
            session = self.session(turn_detection=None)
            session.append(pcm(samples))
            session.commit()
            self.assertEqual(session.transcript()[0], text, seed)

    @full
    def test_an_item_longer_than_a_window(self):
        session = self.session(turn_detection=None)
        for part in range(3):
            session.append(pcm(tone(5, seed=part, rate=RATE) * 3))
        session.commit()
        _, events = session.transcript()
        self.assertEqual(events[-1]["usage"]["seconds"], 45)

    @full
    def test_telephone_sound(self):
        session = self.session(turn_detection=None, format={"type": "audio/pcmu"})
        session.append(bytes(0x80 | int(60 + 60 * math.sin(i * 0.7)) for i in range(8000)))
        session.commit()
        self.assertEqual(session.transcript()[1][-1]["usage"]["seconds"], 1)

    def test_speech_begins_and_ends_items(self):
        session = self.session()
        silence, speech = pcm([0] * RATE), pcm(tone(1, seed=4, rate=RATE))
        session.append(silence + speech + silence)
        _, events = session.transcript()
        self.assertEqual([one["type"] for one in events[:3]], ["input_audio_buffer.speech_started", "input_audio_buffer.speech_stopped",
                                                               "input_audio_buffer.committed"])
        started, stopped, committed = events[:3]
        self.assertEqual(len({one["item_id"] for one in events}), 1)
        self.assertAlmostEqual(started["audio_start_ms"], 700, delta=60)
        self.assertAlmostEqual(stopped["audio_end_ms"], 2500, delta=60)
        self.assertIsNone(committed["previous_item_id"])
        session.append(silence + speech + silence)
        again = session.transcript()[1]
        self.assertEqual([one for one in again if one["type"] == "input_audio_buffer.committed"][0]["previous_item_id"], committed["item_id"])

    def test_what_is_cleared_has_no_text(self):
        session = self.session(turn_detection=None)
        session.append(pcm(tone(1, seed=1, rate=RATE)))
        session.say({"type": "input_audio_buffer.clear"})
        self.assertEqual(session.until("input_audio_buffer.cleared")[-1]["type"], "input_audio_buffer.cleared")
        session.commit()
        self.assertEqual(session.hear()["error"]["code"], "input_audio_buffer_commit_empty")
        session.append(pcm(tone(2, seed=1, rate=RATE)))
        session.commit()
        self.assertEqual(session.transcript()[1][-1]["usage"]["seconds"], 2)

    def test_errors_are_named_and_end_nothing(self):
        session = self.session(turn_detection=None)
        append = "input_audio_buffer.append"
        for message, param, code in (
                ({"type": "response.create"}, "type", None),
                ({"type": append}, "audio", None),
                ({"type": append, "audio": "###"}, "audio", None),
                ({"type": append, "audio": base64.b64encode(b"abc").decode()}, "audio", None),
                ({"type": append, "audio": base64.b64encode(bytes(125 * RATE)).decode()}, "audio", "invalid_value"),
                ({"type": "input_audio_buffer.commit"}, None, "input_audio_buffer_commit_empty"),
                ({"type": append, "audio": base64.b64encode(bytes(2 * 59 * RATE)).decode()}, None, None),
                ({"type": append, "audio": base64.b64encode(bytes(2 * 40 * RATE)).decode()}, "audio", "input_audio_buffer_full"),
                ({"type": "session.update", "session": {"audio": {"input": {"transcription": {"language": "xx"}}}}}, "language", None),
                ({"type": "session.update", "session": {"audio": {"input": {"transcription": {"model": "pelton-box"}}}}},
                 "session.audio.input.transcription.model", None),
                ({"type": "session.update", "session": {"type": "realtime"}}, "session.type", None)):
            session.say({**message, "event_id": "mine"})
            if param is None and code is None:
                continue
            event = session.until("error")[-1]
            self.assertEqual(event["error"]["event_id"], "mine", event)
            self.assertEqual(event["error"]["param"], param, event)
            if code:
                self.assertEqual(event["error"]["code"], code)
        session.say({"type": "input_audio_buffer.clear"})
        session.until("input_audio_buffer.cleared")
        session.append(pcm(tone(1, seed=2, rate=RATE)))
        session.commit()
        session.transcript()

    def test_bench_transcribe_streams_files_in_real_time(self):
        folder = pathlib.Path(self.folder.name) / "bench"
        folder.mkdir()
        (folder / "talk.wav").write_bytes(wav(tone(1, seed=4)))
        (folder / "talk.txt").write_text("hello there")
        words = [transcription_test.BINARY, "bench", "transcribe", "--base-url", f"http://127.0.0.1:{self.server.port}"]
        begun = time.monotonic()
        done = subprocess.run([*words, folder, "--live", "--rounds", "3", "--max-concurrency", "3", "--chunk-ms", "50", "--delay-max", "60",
                               "--json", "-"], capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreater(time.monotonic() - begun, 1)
        report = json.loads(done.stdout)
        self.assertEqual((report["streams"], report["failed"], report["chunk_ms"], report["words"]), (3, 0, 50, 6))
        self.assertAlmostEqual(report["audio_s"], 3, delta=0.01)
        for one in report["outcomes"]:
            self.assertGreater(one["delay_s"], 0)
            self.assertLessEqual(one["first_text_s"], 1 + one["sound_late_s"] + one["delay_s"] + 0.1)
            self.assertTrue(one["text"])
        for path, flags, named in ((folder, ["--model", "nobody"], "404"), (folder / "talk.wav", ["--language", "xx"], "language"),
                                   (folder, ["--base-url", "http://127.0.0.1:1"], "cannot connect")):
            done = subprocess.run([*words, path, "--live", *flags], capture_output=True, text=True, timeout=120, check=False)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(named, done.stderr)
        done = subprocess.run([*words, folder, "--live", "--stream"], capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--stream", done.stderr)

    def test_who_may_not_is_answered_over_http(self):
        for path, status in ((PATH + "&model=pelton-box", 501), ("/v1/realtime?model=whisper", 501), (PATH + "&model=nobody", 404)):
            session = Session(self.server, path)
            self.addCleanup(session.close)
            self.assertEqual(session.status, status, path)
        refused = Session(self.server, PATH, Origin="http://elsewhere.example")
        self.addCleanup(refused.close)
        self.assertEqual(refused.status, 403)
        status, headers, text = self.server.request("GET", PATH)
        self.assertEqual((status, headers["Upgrade"]), (426, "websocket"), text)
        named = Session(self.server, PATH + "&model=whisper")
        self.addCleanup(named.close)
        self.assertEqual(named.status, 101)

    def test_a_session_has_the_time_that_its_client_gives_it(self):
        session = Session(self.server, **{"x-request-timeout-ms": "3000"})
        self.addCleanup(session.close)
        self.assertEqual(session.status, 101)
        heard = [session.hear()]
        while not isinstance(heard[-1], int):
            heard.append(session.hear())
        self.assertEqual((heard[-2]["type"], heard[-2]["error"]["code"], heard[-1]), ("error", "deadline_exceeded", 1008))
        refused = Session(self.server, **{"x-request-timeout-ms": "soon"})
        self.addCleanup(refused.close)
        self.assertEqual(refused.status, 400)

    @full
    def test_files_are_heard_beside_it(self):
        session = self.session(turn_detection=None)
        file = wav(tone(10, seed=6) * 4)
        alone = self.server.transcribe(file)
        session.append(pcm(tone(20, seed=5, rate=RATE)))
        self.assertEqual(self.server.transcribe(file), alone)
        session.commit()
        session.transcript()


class Bounds(unittest.TestCase):
    def test_sessions_have_places_and_end_with_the_server(self):
        with tempfile.TemporaryDirectory() as folder:
            model = write_model(pathlib.Path(folder) / "whisper")
            server = Served("serve", model, "--port", "0", "--max-num-transcriptions", "1")
            self.addCleanup(server.end)
            first = Session(server)
            self.assertEqual(first.status, 101)
            refused = Session(server)
            self.assertEqual(refused.status, 429)
            self.assertEqual(error_of(refused.body)["code"], "overloaded")
            refused.close()
            self.assertEqual(server.post("/v1/audio/transcriptions", wav(tone(1)))[0], 429)
            first.close()
            end = time.monotonic() + 30
            while server.metric("pelton_live_transcriptions") != 0 and time.monotonic() < end:
                time.sleep(0.02)
            last = Session(server)
            self.addCleanup(last.close)
            self.assertEqual(last.status, 101)
            last.update(turn_detection=None)
            last.append(pcm(tone(3, seed=1, rate=RATE)))
            last.commit()
            last.until("input_audio_buffer.committed")
            server.process.send_signal(signal.SIGTERM)
            heard = []
            while not heard or not isinstance(heard[-1], int):
                heard.append(last.hear())
            self.assertEqual(heard[-1], 1001)
            self.assertIn(ITEM + "completed", [one["type"] for one in heard[:-1]])


class Gateway(unittest.TestCase):
    """Two workers behind one gateway: a session is one worker's, and all that is said passes through."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.model = write_model(self.folder / "whisper")
        subprocess.run([transcription_test.BINARY, "gateway", "--new-key", self.folder / "key"], check=True)

    def start(self, workers=2, flags=(), gateway="", more=""):
        ports, self.admin = [free_port() for _ in range(workers)], free_port()
        self.workers = []
        for i, port in enumerate(ports):
            self.workers.append(Served("serve", self.model, "--port", "0", "--fleet-port", port, "--fleet-name", f"w-{i}",
                                       "--fleet-key-file", self.folder / "key", *flags))
            self.addCleanup(self.workers[-1].end)
        (self.folder / "gateway.toml").write_text(
            f'[gateway]\nlisten = "127.0.0.1:0"\nadmin = "127.0.0.1:{self.admin}"\nfleet_key_file = "{self.folder}/key"\nresume_budget = 2\n{gateway}'
            '[[pool]]\nname = "speech"\nmodel = "whisper"\n' +
            "".join(f'[[worker]]\npool = "speech"\nurl = "http://127.0.0.1:{port}"\n' for port in ports) + more)
        self.gateway = Served("gateway", "--config", self.folder / "gateway.toml")
        self.addCleanup(self.gateway.end)
        self.wait(lambda: sum(row["state"] == "ready" for row in self.rows()) == workers + more.count("[[worker]]"))

    def rows(self):
        return json.loads(gateway_fixture.ask(self.admin, "GET", "/v1/workers")[1])["workers"]

    def wait(self, what):
        end = time.monotonic() + 60  # who takes nothing is cut off after 30 s
        while not what() and time.monotonic() < end:
            time.sleep(0.02)
        self.assertTrue(what(), (self.rows(), self.gateway.log[-10:]))

    def figure(self, name, **labels):
        return gateway_fixture.figure(self.admin, f"pelton_gateway_{name}", **labels)

    def session(self, server=None, path=PATH, **headers):
        session = Session(server or self.gateway, path, **headers)
        self.addCleanup(session.close)
        return session

    def open_at(self, i):
        return self.workers[i].metric("pelton_live_transcriptions")

    def say(self, session):
        """An item of four seconds; gives its text."""
        self.assertEqual(session.update(turn_detection=None)["type"], "session.updated")
        session.append(pcm(tone(4, seed=4, rate=RATE)))
        session.commit()
        return session.transcript()[0]

    def to_the_end(self, session):
        heard = []
        while not heard or not isinstance(heard[-1], int):
            heard.append(session.hear())
        return heard

    def test_a_session_is_as_at_its_worker(self):
        self.start()
        direct = self.session(self.workers[0])
        text = self.say(direct)
        direct.close()
        through = self.session()
        self.assertEqual((through.status, through.created["type"]), (101, "session.created"))
        self.assertEqual(self.say(through), text)
        through.append(pcm(tone(3, seed=1, rate=RATE) * 15))  # one message of three megabytes
        through.commit()
        self.assertEqual(through.transcript()[1][-1]["usage"]["seconds"], 45)
        through.say({"type": "response.create", "event_id": "mine"})
        self.assertEqual(through.until("error")[-1]["error"]["event_id"], "mine")
        samples = tone(2, seed=4, rate=RATE)
        for i in range(40):  # as a microphone gives it
            through.append(pcm(samples[i * RATE // 20:(i + 1) * RATE // 20]))
        through.commit()
        self.assertEqual(through.transcript()[1][-1]["usage"]["seconds"], 2)
        self.assertEqual(self.figure("requests_open"), 1)
        through.close()
        self.wait(lambda: self.figure("requests_total", pool="speech", outcome="ok", code_class="2xx") == 1)
        self.wait(lambda: self.open_at(0) + self.open_at(1) == 0)
        self.assertEqual((self.figure("requests_open"), self.figure("requests_total", outcome="left")), (0, 0))
        big = self.session()
        big.link.sendall(b"\x81" + struct.pack(">BQ", 0x80 | 127, 5 << 20) + bytes(4))  # a message's head
        self.assertEqual(self.to_the_end(big)[-1], 1009)

    def test_sessions_go_where_there_is_a_place(self):
        self.start(flags=("--max-num-transcriptions", "1"))
        sessions = [self.session(), self.session()]
        self.assertEqual([one.status for one in sessions], [101, 101])
        self.assertEqual([self.open_at(0), self.open_at(1)], [1, 1])
        refused = self.session()
        self.assertEqual((refused.status, error_of(refused.body)["code"]), (429, "overloaded"))
        texts = [self.say(one) for one in sessions]
        self.assertEqual(texts[0], texts[1], "they do not mix")
        sessions[0].close()
        self.wait(lambda: self.open_at(0) + self.open_at(1) == 1)
        self.assertEqual(self.session().status, 101)

    def test_a_fallback_of_another_kind_gets_no_session(self):
        painter = Painter("whisper")
        self.addCleanup(painter.close)
        self.start(1, flags=("--max-num-transcriptions", "1"), more=(
            f'[[pool]]\nname = "other"\nmodel = "whisper"\nkind = "openai"\n[[worker]]\npool = "other"\n'
            f'url = "http://127.0.0.1:{painter.server_port}"\n[[route]]\nmodel = "whisper"\nto = [{{pool = "speech"}}]\nfallback = ["other"]\n'))
        path = PATH + "&model=whisper"
        self.assertEqual(self.session(path=path).status, 101)
        refused = self.session(path=path)
        self.assertEqual(refused.status, 429)
        self.assertEqual(error_of(refused.body)["code"], "overloaded")

    def test_who_may_not_is_answered_over_http(self):
        keys = self.folder / "keys"
        keys.write_text("key-a acme concurrent=1\n")
        self.start(1, gateway=f'keys_file = "{keys}"\n')
        mine = {"Authorization": "Bearer key-a"}
        self.assertEqual(self.session().status, 401)
        self.assertEqual(self.session(Origin="http://elsewhere.example", **mine).status, 403)
        self.assertEqual(self.session(path=PATH + "&model=nobody", **mine).status, 404)
        self.assertEqual(self.session(path="/v1/realtime?model=whisper", **mine).status, 501)
        named = self.session(path=PATH + "&model=whisper", **mine)
        self.assertEqual(named.status, 101)
        self.assertEqual(self.session(**mine).status, 429, "it is the one that the key may have")
        self.say(named)

    def test_a_worker_that_dies_ends_its_sessions_with_an_error(self):
        self.start()
        session = self.session()
        self.say(session)
        here = 0 if self.open_at(0) == 1 else 1
        self.workers[here].process.kill()
        heard = self.to_the_end(session)
        self.assertEqual((heard[-2]["type"], heard[-2]["error"]["code"], heard[-1]), ("error", "stream_interrupted", 1011), heard)
        self.wait(lambda: self.figure("requests_total", outcome="error") == 1)
        for _ in range(3):
            again = self.session()
            self.assertEqual(again.status, 101, "the other one is there")
            self.say(again)
        self.assertEqual(self.figure("requests_open"), 3)

    def test_without_a_worker_the_handshake_says_so(self):
        self.start(1)
        self.workers[0].process.kill()
        self.wait(lambda: self.rows()[0]["state"] != "ready")
        refused = self.session()
        self.assertEqual((refused.status, error_of(refused.body)["code"]), (503, "no_worker"))

    def check_drain(self, process):
        session = self.session()
        session.update(turn_detection=None)
        session.append(pcm(tone(3, seed=1, rate=RATE)))
        session.commit()
        session.until("input_audio_buffer.committed")
        process.send_signal(signal.SIGTERM)
        heard = self.to_the_end(session)
        self.assertEqual(heard[-1], 1001)
        self.assertIn(ITEM + "completed", [one["type"] for one in heard[:-1]])

    def test_a_worker_that_is_stopped_answers_what_was_said(self):
        self.start(1)
        self.check_drain(self.workers[0].process)

    def test_so_does_a_gateway(self):
        self.start(1)
        self.check_drain(self.gateway.process)
        self.gateway.process.wait(20)
        self.wait_for_none()

    def wait_for_none(self):
        end = time.monotonic() + 30
        while self.open_at(0) != 0 and time.monotonic() < end:
            time.sleep(0.02)
        self.assertEqual(self.open_at(0), 0)

    def test_who_does_not_read_holds_up_nobody(self):
        self.start(1)
        deaf, other = self.session(), self.session()
        deaf.link.settimeout(2)
        try:
            for _ in range(100_000):  # each is answered with an error that nobody takes
                deaf.say({"type": "none", "event_id": "x" * 500})
        except OSError:
            pass
        self.say(other)
        self.wait(lambda: self.figure("requests_open") == 1)


if __name__ == "__main__":
    transcription_test.BINARY = gateway_fixture.BINARY = sys.argv.pop(1)
    unittest.main(verbosity=2)
