#!/usr/bin/env python3
"""Speech to text by real processes: the small Whisper model of testdata/golden (random weights, with a tokenizer written
here) is served, alone, beside a chat model and behind a gateway, and asked as OpenAI's SDK asks. What a route answers is
what `pelton transcribe` says of the same file.

usage: transcription_test.py BINARY
"""
import array
import concurrent.futures
import ctypes
import http.client
import io
import json
import math
import os
import pathlib
import random
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import wave

from tiers import FULL, full
from whisper_model import GOLDEN, write_model

BINARY = None
ROOT = pathlib.Path(__file__).resolve().parent.parent
BOX = ROOT / "models" / "pelton-box"
RATE = 16000
LIMIT_S = 300  # of the sound that the server takes here


def tone(seconds, seed=1, rate=RATE):
    """Samples that no two seeds share: a few gliding tones and noise."""
    draw = random.Random(seed)
    rates = [draw.uniform(80, 900) for _ in range(3)]
    samples = []
    for i in range(int(seconds * rate)):
        t = i / rate
        value = sum(math.sin(2 * math.pi * hz * t * (1 + 0.1 * t)) for hz in rates) / 4
        samples.append(int(32767 * max(-1, min(1, value + draw.uniform(-0.02, 0.02)))))
    return samples


def wav(samples, rate=RATE, channels=1):
    data = io.BytesIO()
    with wave.open(data, "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(array.array("h", samples).tobytes())
    return data.getvalue()


class SoundFile:
    """libsndfile, to write what the server is to read."""
    FORMATS = {"flac": 0x170002, "ogg": 0x200060, "opus": 0x200064, "mp3": 0x230082, "aiff": 0x020002, "ulaw": 0x010010}

    class Info(ctypes.Structure):
        _fields_ = [("frames", ctypes.c_int64), ("samplerate", ctypes.c_int), ("channels", ctypes.c_int),
                    ("format", ctypes.c_int), ("sections", ctypes.c_int), ("seekable", ctypes.c_int)]

    def __init__(self):
        self.library = ctypes.CDLL("libsndfile.so.1")
        self.library.sf_open.restype = ctypes.c_void_p
        self.library.sf_open.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p]
        self.library.sf_writef_short.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
        self.library.sf_writef_short.restype = ctypes.c_int64
        self.library.sf_close.argtypes = [ctypes.c_void_p]

    def write(self, form, samples, rate=RATE, channels=1, times=1):
        """A file's bytes; `samples`: interleaved, so many times over. None: this library cannot."""
        info = self.Info(0, rate, channels, self.FORMATS[form], 0, 0)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "sound"
            file = self.library.sf_open(str(path).encode(), 0x20, ctypes.byref(info))
            if not file:
                return None
            data = array.array("h", samples)
            for _ in range(times):
                self.library.sf_writef_short(file, data.buffer_info()[0], len(data) // channels)
            self.library.sf_close(file)
            return path.read_bytes()


class Served:
    def __init__(self, *words, env=None):
        self.process = subprocess.Popen([BINARY, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True, env={**os.environ, **(env or {})})
        self.log = []
        self.reader = threading.Thread(target=lambda: self.log.extend(self.process.stderr), daemon=True)
        self.reader.start()
        line = self.process.stdout.readline()
        assert line.startswith("listening on "), (words, self.log)
        self.port = int(line.rsplit(":", 1)[1])

    def end(self):
        self.process.kill()
        self.process.wait(30)
        self.reader.join()
        self.process.stdout.close()
        self.process.stderr.close()

    def request(self, method, path, body=None, **headers):
        """Status, headers, text."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read().decode()
        finally:
            connection.close()

    def post(self, path, file, name="talk.wav", more=(), **fields):
        body, kind = form(file, name, [*fields.items(), *more])
        return self.request("POST", path, body, **{"Content-Type": kind})

    def transcribe(self, file, **fields):
        status, _, text = self.post("/v1/audio/transcriptions", file, **{"model": "whisper", **fields})
        return status, text

    def metric(self, name, **labels):
        for line in self.request("GET", "/metrics")[2].splitlines():
            found = re.match(rf"{name}(?:\{{(.*)\}})? (\S+)$", line)
            if found and all(f'{key}="{value}"' in (found[1] or "") for key, value in labels.items()):
                return float(found[2])
        return None


def form(file, name, fields):
    boundary = "pelton-boundary"
    parts = []
    for key, value in fields:
        parts.append(f'--{boundary}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'.encode())
    if file is not None:
        parts.append(f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
                     f"Content-Type: application/octet-stream\r\n\r\n".encode() + file + b"\r\n")
    return b"".join(parts) + f"--{boundary}--\r\n".encode(), f"multipart/form-data; boundary={boundary}"


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def error_of(text):
    return json.loads(text)["error"]


class Transcription(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.folder.name)
        cls.model = write_model(cls.path / "whisper")
        cls.words_model = write_model(cls.path / "words", alignment_heads=[[0, 1], [1, 2], [1, 3]])
        cls.server = Served("serve", cls.model, cls.words_model, BOX, "--port", "0", "--kv-cache-memory", "32MiB",
                            "--max-model-len", "256", "--max-audio-seconds", LIMIT_S, "--max-audio-bytes", "8MiB",
                            env={"PATH": "/nowhere"})
        cls.sound = SoundFile()
        cls.talk = (GOLDEN / "audio.wav").read_bytes()

    @classmethod
    def tearDownClass(cls):
        cls.server.end()
        cls.folder.cleanup()

    def said(self, file, *flags, model=None, name="talk.wav"):
        path = self.path / f"said_{threading.get_ident()}_{name}"
        path.write_bytes(file)
        return subprocess.run([BINARY, "transcribe", model or self.model, path, *flags], capture_output=True, text=True,
                              check=True, timeout=300).stdout

    def test_formats_equal_the_commands(self):
        for form_name in ("text", "srt", "vtt", "verbose_json"):
            status, headers, text = self.server.post("/v1/audio/transcriptions", self.talk, model="whisper",
                                                     response_format=form_name)
            self.assertEqual(status, 200, text)
            written = self.said(self.talk, "--format", form_name)
            self.assertEqual(text.rstrip("\n"), written.rstrip("\n"), form_name)
            kind = "application/json" if form_name == "verbose_json" else "text/plain"
            self.assertTrue(headers["Content-Type"].startswith(kind), headers)
        plain = self.said(self.talk).rstrip("\n")
        self.assertGreater(len(plain), 2)
        status, text = self.server.transcribe(self.talk)
        self.assertEqual(json.loads(text), {"text": plain, "usage": {"type": "duration", "seconds": 8}}, text)

    def test_verbose_json_holds_what_openais_holds(self):
        verbose = json.loads(self.server.transcribe(self.talk, response_format="verbose_json")[1])
        self.assertEqual(verbose["task"], "transcribe")
        self.assertAlmostEqual(verbose["duration"], (len(self.talk) - 44) / 2 / RATE, 3)
        self.assertEqual("".join(one["text"] for one in verbose["segments"]).lstrip(" "), verbose["text"])
        last = 0
        for i, one in enumerate(verbose["segments"]):
            self.assertEqual(one["id"], i)
            self.assertLessEqual(last, one["start"])
            self.assertLessEqual(one["start"], one["end"])
            last = one["start"]
            for key in ("seek", "tokens", "temperature", "avg_logprob", "compression_ratio", "no_speech_prob"):
                self.assertIn(key, one)
        self.assertLessEqual(last, verbose["duration"])

    def test_a_stream_says_the_same(self):
        long_talk = wav(tone(25, seed=3) * 3)
        whole = json.loads(self.server.transcribe(long_talk)[1])
        status, headers, text = self.server.post("/v1/audio/transcriptions", long_talk, model="whisper", stream="true")
        self.assertEqual((status, headers["Content-Type"]), (200, "text/event-stream"), text)
        lines = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
        self.assertEqual(lines.pop(), "[DONE]")
        events = [json.loads(line) for line in lines]
        done = events.pop()
        self.assertEqual((done["type"], done["text"], done["usage"]),
                         ("transcript.text.done", whole["text"], whole["usage"]))
        self.assertEqual({one["type"] for one in events}, {"transcript.text.delta"})
        self.assertGreater(len(events), 1)
        self.assertEqual("".join(one["delta"] for one in events), whole["text"])

    def test_language_prompt_temperature_and_translation(self):
        base = self.said(self.talk)
        for fields, flags in ((dict(language="l3"), ["--language", "l3"]), (dict(prompt="Pelton wheel"), ["--prompt", "Pelton wheel"]),
                              (dict(temperature="0.8"), ["--temperature", "0.8"])):
            status, text = self.server.transcribe(self.talk, response_format="text", **fields)
            self.assertEqual(status, 200, text)
            written = self.said(self.talk, *flags)
            self.assertEqual(text, written, fields)
            if "temperature" not in fields:  # what is drawn may be the same
                self.assertNotEqual(text, base, fields)
        status, _, text = self.server.post("/v1/audio/translations", self.talk, model="whisper", response_format="verbose_json")
        self.assertEqual(json.loads(text)["task"], "translate")
        self.assertEqual(json.loads(text)["text"], self.said(self.talk, "--task", "translate").rstrip("\n"))

    def test_words_have_times_where_the_model_says_how(self):
        fields = {"response_format": "verbose_json", "timestamp_granularities[]": "word"}
        status, text = self.server.transcribe(self.talk, **fields)
        self.assertEqual((status, error_of(text)["param"]), (400, "timestamp_granularities"), text)
        status, text = self.server.transcribe(self.talk, **{**fields, "model": "words"})
        self.assertEqual(status, 200, text)
        answer = json.loads(text)
        self.assertNotIn("segments", answer)
        words = answer["words"]
        self.assertGreaterEqual(len(words), 1)
        self.assertEqual("".join(one["word"] for one in words).replace(" ", ""), answer["text"].replace(" ", ""))
        for one in words:
            self.assertLessEqual(one["start"], one["end"])
            self.assertLessEqual(one["end"], answer["duration"])
        self.assertEqual(sorted(one["start"] for one in words), [one["start"] for one in words])
        status, _, text = self.server.post("/v1/audio/transcriptions", self.talk, model="words", response_format="verbose_json",
                                           more=[("timestamp_granularities[]", "word"), ("timestamp_granularities[]", "segment")])
        both = json.loads(text)
        self.assertEqual(both["words"], words)
        self.assertGreater(len(both["segments"]), 0)
        written = json.loads(self.said(self.talk, "--format", "verbose_json", "--words", model=self.words_model))
        self.assertEqual(written["words"], words)
        many = json.loads(self.server.transcribe(wav(tone(3, seed=5)), **{**fields, "model": "words"})[1])["words"]
        self.assertGreater(len(many), 3)
        self.assertEqual(sorted(one["start"] for one in many), [one["start"] for one in many])

    def test_plan_says_what_serve_claims(self):
        plan = ["plan", self.model, "--max-audio-seconds", LIMIT_S]
        done = subprocess.run([BINARY, *map(str, plan)], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        claimed = next(re.search(r"memory ([0-9.]+ \w+)", line)[1] for line in self.server.log if "speech to text" in line)
        self.assertRegex(done.stdout, rf"in all +{re.escape(claimed)} ")
        figures = json.loads(subprocess.run([BINARY, *map(str, plan), "--json"], capture_output=True, text=True, timeout=60).stdout)
        self.assertEqual(figures["total_bytes"], figures["weight_bytes"] + figures["workspace_bytes"] + figures["sound_bytes"])
        self.assertEqual(figures["weight_bytes"], json.loads(subprocess.run(
            [BINARY, "inspect", self.model, "--json"], capture_output=True, text=True, timeout=60).stdout)["weight_bytes"])
        windows = [json.loads(subprocess.run([BINARY, *map(str, plan), "--memory", "--json", "--transcription-batch", str(batch)], capture_output=True,
                                             text=True, timeout=60).stdout) for batch in (2, 5)]
        self.assertEqual(windows[1]["workspace_bytes"] - windows[0]["workspace_bytes"], 3 * windows[0]["each_more_bytes"])
        self.assertNotIn("modelled", windows[0])
        done = subprocess.run([BINARY, "plan", self.model, "--gpu", "h100"], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("on processors alone", done.stdout.splitlines()[0])
        done = subprocess.run([BINARY, "plan", BOX, "--max-audio-seconds", "60"], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--max-audio-seconds is of speech models", done.stderr)

    def bench(self, *words):
        return subprocess.run([BINARY, "bench", "transcribe", "--base-url", f"http://127.0.0.1:{self.server.port}", "--model", "whisper",
                               *map(str, words)], capture_output=True, text=True, timeout=300,
                              env={**os.environ, "PELTON_BENCH_LOCK_HELD": "1"})

    def test_bench_counts_words_and_seconds(self):
        folder = self.path / "recordings"
        folder.mkdir()
        samples = [tone(2, seed=31), tone(5, seed=32)]
        (folder / "a.wav").write_bytes(wav(samples[0]))
        (folder / "b.flac").write_bytes(self.sound.write("flac", samples[1]))
        said = self.said(wav(samples[0])).split()
        (folder / "a.txt").write_text(" ".join(said))
        for stream in ([], ["--stream"]):
            out = self.path / "bench.json"
            done = self.bench(folder, "--rounds", "2", "--max-concurrency", "3", "--json", out, *stream)
            self.assertEqual(done.returncode, 0, done.stderr)
            figures = json.loads(out.read_text())
            self.assertEqual((figures["answers"], figures["failed"]), (4, 0))
            self.assertAlmostEqual(figures["audio_s"], 14, 3)
            self.assertAlmostEqual(figures["real_time_factor"], figures["seconds"] / 14, 3)
            self.assertEqual([pathlib.Path(one["file"]).name for one in figures["files"]], ["a.wav", "b.flac"] * 2)
            self.assertEqual("first_text_p50_s" in figures, bool(stream))
            # What the server says is what the command says: the reference.
            self.assertEqual(figures["word_error_rate"], 0)
            self.assertGreater(figures["words"], 0)
            self.assertIn("word error rate          0.00 %", done.stdout)
        # Of 1 + n words one is left out.
        words = figures["words"] // 2
        (folder / "a.txt").write_text("zzzzz " + " ".join(said))
        figures = json.loads(self.bench(folder, "--json", "-").stdout)
        self.assertEqual((figures["words"], figures["left_out"], figures["added"], figures["substituted"]), (words + 1, 1, 0, 0))

    @full
    def test_bench_says_what_is_no_sound(self):
        path = self.path / "no.wav"
        path.write_text("a text")
        done = self.bench(path)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("no.wav", done.stderr)
        (self.path / "yes.wav").write_bytes(self.talk)
        done = self.bench(self.path / "yes.wav", "--language", "xx")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("no transcript", done.stderr)
        self.assertIn("HTTP 400", done.stderr)

    @full
    def test_several_at_once_equal_one_at_a_time(self):
        files = [wav(tone(4 + 9 * (i % 4), seed=10 + i)) for i in range(8)]
        alone = [self.server.transcribe(file, response_format="verbose_json") for file in files]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            together = list(pool.map(lambda file: self.server.transcribe(file, response_format="verbose_json"), files))
        self.assertEqual(alone, together)
        self.assertEqual({status for status, _ in alone}, {200})
        self.assertEqual(len({text for _, text in alone}), 8)

    def test_other_formats_are_decoded(self):
        samples = tone(3, seed=5)
        exact = self.server.transcribe(wav(samples))
        self.assertEqual(self.server.transcribe(self.sound.write("flac", samples)), exact)
        self.assertEqual(self.server.transcribe(self.sound.write("aiff", samples)), exact)
        for form_name in ("ogg", "opus", "mp3", "ulaw"):
            file = self.sound.write(form_name, samples)
            if file is None:
                continue  # this libsndfile cannot write it
            for name in ("talk." + form_name, "talk.wav"):  # its name says nothing
                status, _, text = self.server.post("/v1/audio/transcriptions", file, name=name, model="whisper",
                                                   response_format="verbose_json")
                self.assertEqual(status, 200, (form_name, text))
                self.assertAlmostEqual(json.loads(text)["duration"], 3, delta=0.1)
            written = json.loads(self.said(file, "--format", "verbose_json", name="talk." + form_name))
            self.assertEqual(json.loads(text), written)

    @full
    def test_many_channels_and_high_rates(self):
        one = tone(1, seed=6, rate=48000)
        eight = [sample for sample in one for _ in range(8)]
        for file in (wav(eight, 48000, 8), self.sound.write("flac", eight, 48000, 8), wav(one * 4, 192000),
                     self.sound.write("flac", one * 4, 192000)):
            status, text = self.server.transcribe(file, response_format="verbose_json")
            self.assertEqual(status, 200, text)
            self.assertAlmostEqual(json.loads(text)["duration"], 1, delta=0.01)

    def test_a_sound_file_that_is_missing_is_no_missing_model(self):
        done = subprocess.run([BINARY, "transcribe", self.model, self.path / "nowhere.wav"], capture_output=True, text=True, check=False, timeout=60)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("nowhere.wav: cannot open", done.stderr)
        piped = subprocess.run([BINARY, "transcribe", self.model, "-"], input=self.talk, capture_output=True, check=True, timeout=300)
        self.assertEqual(piped.stdout.decode(), self.said(self.talk))

    def test_what_is_no_sound_is_said(self):
        flac = self.sound.write("flac", tone(3, seed=7))
        # Ten hours of silence.
        bomb = self.sound.write("flac", [0] * 60000, rate=1000, times=600)
        self.assertLess(len(bomb), 4 << 20)
        talk = wav(tone(3, seed=7))
        seven_bits, fast = bytearray(talk), bytearray(talk)
        seven_bits[34] = 7
        fast[24:28] = (4_000_000_000).to_bytes(4, "little")
        rows = [(talk[:len(talk) // 2], "is cut off"), (bytes(seven_bits), "PCM of 7 bits"), (bytes(fast), "a sample rate of 4000000000"),
                (b"", "'file' is empty"), (b"hello there, this is a text", "is no sound that is known"),
                (b"RIFF\0\0\0\0WAVE", "has no samples"), (wav([]), "has no samples"), (flac[:100], "flac"),
                (b"fLaC" + bytes(1000), "file"), (b"OggS" + os.urandom(2000), "file"), (b"ID3" + os.urandom(500), "file"),
                (bomb, f"is longer than {LIMIT_S} s"), (wav([1] * 8000, rate=20), f"is longer than {LIMIT_S} s"),
                (b"\x1A\x45\xDF\xA3" + bytes(100), "the program ffmpeg reads, and that is not installed"),
                (bytes(4) + b"ftypM4A " + bytes(100), "the program ffmpeg reads, and that is not installed"),
                (wav([0] * (5 << 20)), "'file' has 10485804 bytes; at most 8388608 are read")]
        for file, words in rows:
            begin = time.monotonic()
            status, text = self.server.transcribe(file)
            self.assertEqual(status, 400, (file[:20], text))
            self.assertEqual(error_of(text)["param"], "file", text)
            self.assertIn(words.lower(), error_of(text)["message"].lower(), file[:20])
            self.assertLess(time.monotonic() - begin, 60)
        status, text = self.server.transcribe(flac[:len(flac) // 2])  # cut short: what there is, or why not
        self.assertIn(status, (200, 400), text)
        self.assertEqual(self.server.request("GET", "/health")[0], 200)

    def test_fields_that_are_wrong_are_named(self):
        rows = [(dict(language="xx"), "language"), (dict(response_format="xml"), "response_format"),
                (dict(temperature="2"), "temperature"), (dict(stream="perhaps"), "stream"),
                ({"timestamp_granularities[]": "word"}, "timestamp_granularities"), ({"include[]": "logprobs"}, "include"),
                (dict(timeout="0"), "timeout"), (dict(chunking_strategy="x"), "chunking_strategy")]
        for fields, param in rows:
            status, text = self.server.transcribe(self.talk, **fields)
            self.assertEqual((status, error_of(text)["param"]), (400, param), text)
        status, _, text = self.server.post("/v1/audio/transcriptions", None, model="whisper")
        self.assertEqual((status, error_of(text)["message"]), (400, "'file' is missing"))
        status, _, text = self.server.post("/v1/audio/transcriptions", self.talk, more=[("model", "whisper")], model="whisper")
        self.assertEqual((status, error_of(text)["message"]), (400, "'model' is given twice"), text)
        status, _, text = self.server.post("/v1/audio/transcriptions", self.talk, model="nobody")
        self.assertEqual((status, error_of(text)["code"]), (404, "model_not_found"), text)
        status, _, text = self.server.request("POST", "/v1/audio/transcriptions", b'{"model":"whisper"}',
                                              **{"Content-Type": "application/json"})
        self.assertEqual(status, 400, text)
        status, headers, text = self.server.post("/v1/audio/transcriptions", self.talk, model="whisper", hotwords="x")
        self.assertEqual(status, 200, text)
        self.assertIn("hotwords", headers["x-pelton-warning"])

    def test_each_kind_of_model_refuses_the_other_kinds_routes(self):
        status, _, text = self.server.post("/v1/audio/transcriptions", self.talk, model="pelton-box")
        self.assertEqual((status, error_of(text)["param"], error_of(text)["code"]), (501, "model", "modality_not_supported"), text)
        self.assertIn("pelton-box", error_of(text)["message"])
        for path, body in (("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}),
                           ("/v1/completions", {"prompt": "hi"}), ("/v1/embeddings", {"input": "hi"}),
                           ("/v1/responses", {"input": "hi"}), ("/v1/rerank", {"query": "a", "documents": ["b"]}),
                           ("/v1/messages", {"max_tokens": 4, "messages": [{"role": "user", "content": "hi"}]})):
            status, _, text = self.server.request("POST", path, json.dumps({"model": "whisper", **body}),
                                                  **{"Content-Type": "application/json"})
            self.assertEqual(status, 400, (path, text))
            self.assertIn("/v1/audio/transcriptions", text, path)
        # Beside it the chat model answers.
        status, _, text = self.server.request("POST", "/v1/completions", json.dumps(
            {"model": "pelton-box", "prompt": "The", "max_tokens": 4}), **{"Content-Type": "application/json"})
        self.assertEqual(status, 200, text)
        listed = json.loads(self.server.request("GET", "/v1/models")[2])["data"]
        self.assertEqual({pathlib.Path(one["id"]).name for one in listed}, {"whisper", "words", "pelton-box"})

    def test_figures(self):
        done = self.server.metric("pelton_transcriptions_total", model_name="words", end="done") or 0
        heard = self.server.metric("pelton_audio_seconds_total", model_name="words") or 0
        self.assertEqual(self.server.transcribe(wav(tone(2, seed=8)), model="words")[0], 200)
        self.assertEqual(self.server.metric("pelton_transcriptions_total", model_name="words", end="done"), done + 1)
        self.assertAlmostEqual(self.server.metric("pelton_audio_seconds_total", model_name="words"), heard + 2, 3)
        self.assertGreater(self.server.metric("pelton_transcription_busy_seconds_total", model_name="words"), 0)
        for name in ("pelton_transcription_queue_seconds", "pelton_transcription_first_text_seconds",
                     "pelton_transcription_speed", "pelton_transcription_audio_seconds"):
            self.assertGreater(self.server.metric(name + "_count", model_name="words"), 0, name)
        self.assertIsNone(self.server.metric("pelton_engine_steps_total", model_name="words"))

    def test_a_deadline_ends_it(self):
        body, kind = form(wav(tone(6, seed=9) * 20), "talk.wav", [("model", "whisper")])
        status, _, text = self.server.request("POST", "/v1/audio/transcriptions", body,
                                              **{"Content-Type": kind, "x-request-timeout-ms": "50"})
        self.assertEqual(status, 408, text)


class Queue(unittest.TestCase):
    def test_a_full_queue_refuses_and_a_client_that_leaves_makes_room(self):
        with tempfile.TemporaryDirectory() as folder:
            model = write_model(pathlib.Path(folder) / "whisper")
            server = Served("serve", model, "--port", "0", "--max-num-transcriptions", "1", "--max-audio-seconds", "600")
            self.addCleanup(server.end)
            body, kind = form(wav(tone(4, seed=1) * 50), "talk.wav", [("model", "whisper")])
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
            connection.request("POST", "/v1/audio/transcriptions", body, {"Content-Type": kind})
            end = time.monotonic() + 60
            while server.metric("vllm:num_requests_running") != 1 and time.monotonic() < end:
                time.sleep(0.02)
            status, headers, text = server.post("/v1/audio/transcriptions", wav(tone(1)), model="whisper")
            self.assertEqual((status, error_of(text)["code"]), (429, "overloaded"), text)
            self.assertIn("Retry-After", headers)
            connection.close()
            while server.metric("pelton_transcriptions_total", end="cancelled") != 1 and time.monotonic() < end:
                time.sleep(0.02)
            self.assertEqual(server.metric("pelton_transcriptions_total", end="cancelled"), 1)
            self.assertEqual(server.post("/v1/audio/transcriptions", wav(tone(1)), model="whisper")[0], 200)
            self.assertEqual(server.post("/v1/audio/transcriptions", wav(tone(1)))[0], 200)  # the only model
            self.assertEqual(server.metric("pelton_requests_refused_total", by="queue"), 1)


class Beams(unittest.TestCase):
    def test_they_are_the_commands_and_bounded_by_a_flag(self):
        with tempfile.TemporaryDirectory() as folder:
            model = write_model(pathlib.Path(folder) / "whisper")
            server = Served("serve", model, "--port", "0", "--transcription-beams", "5")
            self.addCleanup(server.end)
            path = pathlib.Path(folder) / "talk.wav"
            said = []
            for seed in range(4 if FULL else 2):
                path.write_bytes(wav(tone(3, seed=seed)))
                written = [json.loads(subprocess.run([BINARY, "transcribe", model, path, "--format", "verbose_json", *flags], check=True,
                                                     capture_output=True, text=True, timeout=120).stdout)
                           for flags in ((), ("--beam-size", "5", "--best-of", "2"))]
                status, text = server.transcribe(path.read_bytes(), response_format="verbose_json", beam_size="5", best_of="2")
                self.assertEqual((status, json.loads(text)), (200, written[1]), seed)
                said.append(written)
            self.assertTrue(any(plain != searched for plain, searched in said), said)
            status, text = server.transcribe(path.read_bytes(), beam_size="6")
            self.assertEqual((status, error_of(text)["param"]), (400, "beam_size"), text)
            self.assertIn("--transcription-beams", text)


class Ffmpeg(unittest.TestCase):
    """Where the program is installed: one that says what it was called with, in its place."""

    def test_it_gets_the_file_and_one_demuxer(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            model = write_model(folder / "whisper")
            program = folder / "bin" / "ffmpeg"
            program.parent.mkdir()
            # Sees the file, cannot write one, and its words go to where only the test looks: into the samples' number.
            program.write_text('#!/usr/bin/python3\nimport socket, struct, sys\n'
                               'data = open("/proc/self/fd/0", "rb").read()\n'
                               'assert data.startswith(b"\\x1a\\x45\\xdf\\xa3"), data[:8]\n'
                               'words = sys.argv[1:]\n'
                               'assert words[words.index("-f") + 1] == "matroska", words\n'
                               'assert words[words.index("-protocol_whitelist") + 1] == "file", words\n'
                               f'for forbidden in (lambda: open("{folder}/written", "w"), lambda: socket.socket()):\n'
                               '    try:\n        forbidden()\n        sys.exit("not confined")\n'
                               '    except OSError:\n        pass\n'
                               'sys.stdout.buffer.write(struct.pack("<f", 0.25) * 32000)\n')
            program.chmod(0o755)
            server = Served("serve", model, "--port", "0", env={"PATH": f"{program.parent}:{os.environ['PATH']}"})
            self.addCleanup(server.end)
            webm = b"\x1A\x45\xDF\xA3" + bytes(100)
            status, text = server.transcribe(webm, response_format="verbose_json")
            self.assertEqual(status, 200, text)
            self.assertEqual(json.loads(text)["duration"], 2)
            self.assertFalse((folder / "written").exists())
            status, text = server.transcribe(bytes(4) + b"ftypM4A " + bytes(100))
            self.assertEqual((status, error_of(text)["param"]), (400, "file"), text)  # its assertion


class Gateway(unittest.TestCase):
    def test_forms_go_through_to_the_model_that_they_name(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            model = write_model(folder / "whisper")
            subprocess.run([BINARY, "gateway", "--new-key", folder / "key"], check=True)
            ports = [free_port(), free_port()]
            workers = []
            for served, port in ((model, ports[0]), (BOX, ports[1])):
                workers.append(Served("serve", served, "--port", "0", "--kv-cache-memory", "32MiB", "--max-model-len", "256",
                                      "--fleet-port", port, "--fleet-key-file", folder / "key"))
                self.addCleanup(workers[-1].end)
            (folder / "gateway.toml").write_text(
                f'[gateway]\nlisten = "127.0.0.1:0"\nfleet_key_file = "{folder}/key"\n'
                '[[pool]]\nname = "speech"\nmodel = "whisper"\n[[pool]]\nname = "box"\nmodel = "pelton-box"\n'
                f'[[worker]]\npool = "speech"\nurl = "http://127.0.0.1:{ports[0]}"\n'
                f'[[worker]]\npool = "box"\nurl = "http://127.0.0.1:{ports[1]}"\n')
            gateway = Served("gateway", "--config", folder / "gateway.toml")
            self.addCleanup(gateway.end)
            end = time.monotonic() + 30
            while gateway.request("GET", "/ready")[0] != 200 and time.monotonic() < end:
                time.sleep(0.05)
            file = wav(tone(5, seed=2))
            direct = workers[0].transcribe(file, response_format="verbose_json")
            while True:  # either pool may come last
                through = gateway.transcribe(file, response_format="verbose_json")
                if through[0] == 200 or time.monotonic() > end:
                    break
                time.sleep(0.1)
            self.assertEqual(through, direct)
            status, _, text = gateway.post("/v1/audio/transcriptions", file, model="whisper", stream="true")
            self.assertEqual(status, 200, text)
            self.assertIn("transcript.text.done", text)
            status, _, text = gateway.post("/v1/audio/transcriptions", file, model="pelton-box")
            self.assertEqual((status, error_of(text)["param"]), (501, "model"), text)
            status, _, text = gateway.post("/v1/audio/transcriptions", file, model="nobody")
            self.assertEqual(status, 404, text)


if __name__ == "__main__":
    BINARY = sys.argv.pop(1)
    unittest.main(verbosity=2)
