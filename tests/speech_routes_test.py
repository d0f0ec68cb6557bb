#!/usr/bin/env python3
"""Speech by a real process: a small Llama of random weights with Orpheus' tokens (speech_model.py) and the SNAC decoder of
testdata, as safetensors and as PyTorch's file, behind /v1/audio/speech; the same through a gateway. What is heard is what
`pelton snac` makes of the windows of the model's own tokens.

usage: speech_routes_test.py BINARY
"""
import array
import base64
import ctypes
import http.client
import json
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

import speech_model
import torch_state

BINARY = None
ROOT = pathlib.Path(__file__).resolve().parent.parent
SNAC = ROOT / "testdata" / "golden" / "audio" / "snac"
FRAME_BYTES = 2048 * 2
RATE = 24000
WAIT_S = 120


def processes_end(*processes):
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def start(folder, name, *arguments):
    """A server that has said where it listens: process, host:port."""
    out = folder / f"{name}.out"
    with out.open("wb") as stdout, (folder / f"{name}.err").open("wb") as stderr:
        process = subprocess.Popen([BINARY, *map(str, arguments)], stdout=stdout, stderr=stderr)
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline and process.poll() is None:
        for line in out.read_text().splitlines():
            if line.startswith("listening on "):
                return process, line.split("//", 1)[1]
        time.sleep(0.05)
    processes_end(process)
    raise AssertionError((folder / f"{name}.err").read_text())


class Info(ctypes.Structure):
    _fields_ = [("frames", ctypes.c_int64), ("samplerate", ctypes.c_int), ("channels", ctypes.c_int), ("format", ctypes.c_int),
                ("sections", ctypes.c_int), ("seekable", ctypes.c_int)]


def samples_of(path):
    """What libsndfile reads in a file: samples, their rate, and how many the file says there are."""
    library = ctypes.CDLL("libsndfile.so.1")
    library.sf_open.restype, library.sf_open.argtypes = ctypes.c_void_p, [ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p]
    library.sf_read_short.restype = ctypes.c_int64
    library.sf_read_short.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
    library.sf_close.argtypes = [ctypes.c_void_p]
    info = Info()
    file = library.sf_open(str(path).encode(), 0x10, ctypes.byref(info))
    assert file, path
    room = (ctypes.c_short * (60 * RATE))()
    count = library.sf_read_short(file, room, len(room))
    library.sf_close(file)
    return array.array("h", room[:count]), info.samplerate, info.frames


class Speech(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="pelton_speech_"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.model = cls.folder / "orpheus"
        speech_model.write(cls.model)
        # The decoder as it is published: a PyTorch file.
        cls.decoder = cls.folder / "snac"
        cls.decoder.mkdir()
        shutil.copy(SNAC / "config.json", cls.decoder)
        torch_state.write_state(cls.decoder / "pytorch_model.bin", torch_state.read_safetensors(SNAC / "model.safetensors"))
        cls.server, cls.at = start(cls.folder, "serve", "serve", cls.model, "--port", "0", "--speech-decoder", cls.decoder,
                                   "--max-model-len", "8192", "--kv-cache-memory", "64MiB")
        cls.addClassCleanup(processes_end, cls.server)

    def ask(self, body, at=None, path="/v1/audio/speech"):
        request = urllib.request.Request(f"http://{at or self.at}{path}", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
            return answer.read()

    @staticmethod
    def body(**more):
        return {"model": "orpheus", "input": "Hello there.", "voice": "tara", "seed": 5, "max_tokens": 70, "response_format": "pcm",
                **more}

    def tokens(self, count, voice="tara", text="Hello there."):
        """What the model says to that prompt, by the text side of the server: there a byte is the token of its number."""
        prompt = [speech_model.BASE + 3, *f"{voice}: {text}".encode(), speech_model.END_OF_TEXT,
                  *(speech_model.BASE + i for i in (4, 5, 1))]
        tokens = []
        for i in range(count):
            first = speech_model.BASE + 10 + speech_model.BOOK * (i % 7)
            answer = json.loads(self.ask({"model": "orpheus", "token_ids": prompt + tokens, "sampling_params": {
                "max_tokens": 1, "temperature": 0, "repetition_penalty": 1.3,
                "allowed_token_ids": list(range(first, first + speech_model.BOOK))}}, path="/inference/v1/generate"))
            tokens += answer["choices"][0]["token_ids"]
        return tokens

    def decoded(self, tokens):
        """The windows of these tokens through `pelton snac`, of each the second frame."""
        sound = b""
        codes = [token - speech_model.BASE - 10 - speech_model.BOOK * (i % 7) for i, token in enumerate(tokens)]
        for begin in range(0, len(codes) // 7 * 7 - 27, 7):
            window = codes[begin:begin + 28]
            books = [[], [], []]
            for i, code in enumerate(window):
                books[(0, 1, 2, 2, 1, 2, 2)[i % 7]].append(code)
            (self.folder / "codes.json").write_text(json.dumps(books))
            subprocess.run([BINARY, "snac", self.decoder, "--codes", self.folder / "codes.json", "--out", self.folder / "x.npy"],
                           check=True, timeout=WAIT_S)
            raw = (self.folder / "x.npy").read_bytes()
            samples = struct.unpack("<8192f", raw[-8192 * 4:])
            # In float32, as Orpheus' own program does it.
            scaled = struct.unpack("<2048f", struct.pack("<2048f", *(sample * 32767 for sample in samples[2048:4096])))
            sound += struct.pack("<2048h", *map(int, scaled))
        return sound

    def test_sound_is_that_of_the_models_windows(self):
        heard = self.ask(self.body(temperature=0, max_tokens=49))
        self.assertEqual(len(heard), 4 * FRAME_BYTES)
        self.assertEqual(heard, self.decoded(self.tokens(49)))

    def test_a_seed_gives_the_same_bytes(self):
        first = self.ask(self.body())
        self.assertEqual(len(first), 7 * FRAME_BYTES)
        self.assertEqual(self.ask(self.body()), first)
        self.assertNotEqual(self.ask(self.body(seed=6)), first)
        self.assertEqual(self.ask(self.body(stream=False)), first)
        wav = self.ask(self.body(response_format="wav", stream=False))
        self.assertEqual(wav[:4] + wav[8:16], b"RIFFWAVEfmt ")
        self.assertEqual(struct.unpack("<I", wav[40:44])[0], len(first))
        self.assertEqual(wav[44:], first)
        events = [json.loads(line[6:]) for line in self.ask(self.body(stream_format="sse")).decode().splitlines() if line]
        self.assertEqual(b"".join(base64.b64decode(one["audio"]) for one in events[:-1]), first)
        self.assertEqual(events[-1]["usage"]["output_tokens"], 70)

    def heard(self, **more):
        """A file's samples, as libsndfile reads them; None: the server's library does not write this format."""
        try:
            file = self.ask(self.body(**more))
        except urllib.error.HTTPError as refused:
            with refused:
                error = json.load(refused)["error"]
            self.assertEqual((refused.code, error["param"]), (400, "response_format"))
            self.assertIn("this machine's libsndfile does not write", error["message"])
            return None
        path = self.folder / "heard"
        path.write_bytes(file)
        return samples_of(path)

    def test_compressed_sound_is_the_same_sound(self):
        exact = array.array("h", self.ask(self.body(max_tokens=350)))
        self.assertEqual(len(exact), 47 * FRAME_BYTES // 2)
        energy = sum(sample * sample for sample in exact)
        for form in ("flac", "mp3", "opus"):
            for stream in (False, True):
                got = self.heard(max_tokens=350, response_format=form, stream=stream)
                if got is None:
                    continue
                samples, rate, said = got
                self.assertEqual(rate, RATE)
                if form == "flac":
                    self.assertEqual(samples, exact)
                    self.assertEqual(said == len(exact), not stream)
                    continue
                # As it comes a file cannot say how much of its ends is the coder's.
                self.assertAlmostEqual(len(samples) / RATE, len(exact) / RATE, delta=0.15 if stream else 0.02)
                shift = max(range(0, 2400, 1 if stream else 2400), key=lambda at: sum(
                    a * b for a, b in zip(exact[:4096], samples[at:at + 4096])))
                error = sum((a - b) ** 2 for a, b in zip(exact, samples[shift:]))
                self.assertLess(error, energy, (form, stream))
            again = [self.ask(self.body(response_format=form)) for _ in range(2)] if got is not None else [b"", b""]
            self.assertEqual(again[0], again[1])
            # Events carry the same bytes.
            if got is not None:
                lines = self.ask(self.body(response_format=form, stream_format="sse")).decode().splitlines()
                events = [json.loads(line[6:]) for line in lines if line]
                self.assertEqual(b"".join(base64.b64decode(one["audio"]) for one in events[:-1]), again[0])

    def test_long_texts_are_spoken_piece_by_piece(self):
        sentence = "This is a sentence that is repeated until there is enough of it. "
        # Of eight sentences of 65 characters: the first, one that makes 60, two that make 120, four that make 240.
        heard = self.ask(self.body(input=sentence * 8, max_tokens=35))
        self.assertEqual(len(heard), 4 * 2 * FRAME_BYTES)
        self.assertEqual(heard[:2 * FRAME_BYTES], self.ask(self.body(input=sentence.strip(), max_tokens=35)))

    def test_the_decoders_formats_are_one(self):
        books = json.loads((SNAC / "codes.json").read_text())
        (self.folder / "all.json").write_text(json.dumps(books))
        files = []
        for decoder in (SNAC, self.decoder):
            out = self.folder / f"{len(files)}.wav"
            subprocess.run([BINARY, "snac", decoder, "--codes", self.folder / "all.json", "--out", out], check=True, timeout=WAIT_S)
            files.append(out.read_bytes())
        self.assertEqual(files[0], files[1])

    def test_a_reader_that_stalls_blocks_nobody(self):
        body = json.dumps(self.body(max_tokens=4000)).encode()
        host, port = self.at.rsplit(":", 1)
        stalled = []
        for _ in range(3):
            reader = socket.create_connection((host, int(port)), timeout=WAIT_S)
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            reader.sendall(b"POST /v1/audio/speech HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: "
                           + str(len(body)).encode() + b"\r\n\r\n" + body)
            self.assertTrue(reader.recv(100).startswith(b"HTTP/1.1 200"))
            self.addCleanup(reader.close)
            stalled.append(reader)
        alone = self.ask(self.body())
        self.assertEqual(len(alone), 7 * FRAME_BYTES)
        for reader in stalled:
            reader.close()
        # What they had asked for is given up.
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            page = urllib.request.urlopen(f"http://{self.at}/metrics", timeout=WAIT_S).read().decode()
            running = [line for line in page.splitlines() if line.startswith("vllm:num_requests_running")]
            if running and float(running[0].rsplit(" ", 1)[1]) == 0:
                return
            time.sleep(0.1)
        self.fail("the stalled readers' requests still run")

    def test_the_first_sound_comes_before_the_last_token(self):
        host, port = self.at.rsplit(":", 1)
        connection = http.client.HTTPConnection(host, int(port), timeout=WAIT_S)
        connection.request("POST", "/v1/audio/speech", json.dumps(self.body(max_tokens=4000)), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        self.assertEqual(answer.status, 200)
        self.assertEqual(answer.getheader("Transfer-Encoding"), "chunked")
        first = answer.read(FRAME_BYTES)
        self.assertEqual(len(first), FRAME_BYTES)
        page = urllib.request.urlopen(f"http://{self.at}/metrics", timeout=WAIT_S).read().decode()
        running = [line for line in page.splitlines() if line.startswith("vllm:num_requests_running")]
        self.assertGreaterEqual(float(running[0].rsplit(" ", 1)[1]), 1)
        connection.close()

    def test_wrong_requests_are_answered_400(self):
        for field, more in (("response_format", {"response_format": "aac"}), ("voice", {"voice": "alloy"}),
                            ("input", {"input": "x" * 4097}), ("speed", {"speed": 2}), ("max_tokens", {"max_tokens": 27})):
            with self.assertRaises(urllib.error.HTTPError) as refused:
                self.ask(self.body(**more))
            with refused.exception as answer:
                self.assertEqual(answer.code, 400)
                self.assertEqual(json.load(answer)["error"]["param"], field)

    def test_inspect_says_what_sounds(self):
        def inspect(folder, *flags):
            return subprocess.run([BINARY, "inspect", folder, *flags], capture_output=True, text=True, check=True, timeout=WAIT_S).stdout
        said = [inspect(folder) for folder in (SNAC, self.decoder)]
        self.assertIn("SNAC: codes to sound", said[0])
        self.assertIn("24000 Hz, 512 samples for each frame", said[0])
        self.assertIn("3 of 64 codes, one code each 4, 2, 1 frames", said[0])
        self.assertEqual(said[0].replace("\n", " "), said[1].replace("\n", " "))
        self.assertEqual(json.loads(inspect(SNAC, "--json"))["strides"], [4, 2, 1])
        self.assertIn("Orpheus' tokens: text to speech", inspect(self.model))
        self.assertEqual(json.loads(inspect(self.model, "--json"))["task"], "text to speech")
        self.assertNotIn("Orpheus", inspect(ROOT / "models" / "pelton-box"))

    def bench(self, *words):
        return subprocess.run([BINARY, "bench", "speech", *map(str, words)], capture_output=True, text=True, timeout=WAIT_S,
                              env={**os.environ, "PELTON_BENCH_LOCK_HELD": "1"})

    def test_bench_speech_plays_what_it_hears(self):
        out = self.folder / "bench.json"
        done = self.bench("--base-url", f"http://{self.at}", "--streams", "1,2", "--rounds", "2", "--max-tokens", "70", "--buffer", "60",
                          "--json", out)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("in real time throughout: 2 streams at once", done.stdout)
        figures = json.loads(out.read_text())
        self.assertEqual((figures["model"], figures["voice"]), ("orpheus", "tara"))  # the first that is listed
        self.assertEqual([(level["streams"], level["answers"], level["failed"], level["in_real_time"]) for level in figures["levels"]],
                         [(1, 2, 0, 2), (2, 4, 0, 4)])
        for level in figures["levels"]:
            # Ten frames are seven of sound.
            self.assertAlmostEqual(level["audio_s"], level["answers"] * 7 * FRAME_BYTES / 2 / RATE, 6)
            self.assertEqual((level["underruns"], level["waited_s"]), (0, 0))
            self.assertLess(0, level["first_audio_p50_s"])
            self.assertLess(level["first_audio_max_s"], level["seconds"])

    def test_bench_speech_says_what_fails(self):
        done = self.bench("--base-url", f"http://{self.at}", "--voice", "nobody", "--streams", "1")
        self.assertEqual(done.returncode, 1)
        self.assertIn("no answer at 1 at once: HTTP 400", done.stderr)
        self.assertEqual(self.bench("--base-url", f"http://{self.at}", "--streams", "0").returncode, 2)

    def test_a_gateway_passes_sound_on(self):
        key = self.folder / "fleet.key"
        subprocess.run([BINARY, "gateway", "--new-key", key], check=True, capture_output=True, timeout=WAIT_S)
        worker, _ = start(self.folder, "worker", "serve", self.model, "--port", "0", "--speech-decoder", SNAC, "--kv-cache-memory",
                          "64MiB", "--fleet-port", "0", "--fleet-name", "w", "--fleet-key-file", key)
        self.addCleanup(processes_end, worker)
        deadline = time.monotonic() + WAIT_S
        fleet = []
        while not fleet and time.monotonic() < deadline:
            fleet = [line for line in (self.folder / "worker.out").read_text().splitlines() if line.startswith("fleet on ")]
        config = self.folder / "gateway.toml"
        config.write_text(f'[gateway]\nlisten = "127.0.0.1:0"\nfleet_key_file = "{key}"\n[[pool]]\nname = "a"\nmodel = "orpheus"\n'
                          f'[[worker]]\npool = "a"\nurl = "http://{fleet[0].split()[-1]}"\n')
        gateway, at = start(self.folder, "gateway", "gateway", "--config", config)
        self.addCleanup(processes_end, gateway)
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                heard = self.ask(self.body(), at=at)
                break
            except urllib.error.HTTPError as error:
                error.close()
                if error.code != 503 or time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
        self.assertEqual(heard, self.ask(self.body()))
        voices = json.load(urllib.request.urlopen(f"http://{at}/v1/audio/voices?model=orpheus", timeout=WAIT_S))
        self.assertIn("tara", voices["voices"])


class Refusals(unittest.TestCase):
    def refused(self, *arguments):
        done = subprocess.run([BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=WAIT_S)
        self.assertNotEqual(done.returncode, 0)
        return done.stderr

    def test_what_cannot_speak_is_said_at_the_start(self):
        with tempfile.TemporaryDirectory() as text:
            folder = pathlib.Path(text)
            speech_model.write(folder / "orpheus")
            config = ROOT / "testdata" / "golden" / "tiny" / "config.json"
            subprocess.run([BINARY, "synth", "--like", config, folder / "silent"], check=True, capture_output=True, timeout=WAIT_S)
            self.assertIn("<custom_token_0>", self.refused("serve", folder / "silent", "--port", "0", "--speech-decoder", SNAC))
            self.assertIn("MODEL=DIR", self.refused("serve", folder / "silent", folder / "orpheus", "--port", "0",
                                                    "--speech-decoder", SNAC))
            self.assertIn("no folder", self.refused("serve", folder / "orpheus", "--port", "0", "--speech-decoder",
                                                  folder / "nowhere"))


if __name__ == "__main__":
    BINARY = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
