#!/usr/bin/env python3
"""One model over several processes on this host (serve --tensor-parallel-size): the answers are one process's, bit for
bit, whatever is asked; a rank that is killed or stopped ends the group with a line that names it, streams with an error,
and leaves nothing behind.

usage: ranks_test.py BINARY
"""
import concurrent.futures
import contextlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request

from tiers import FULL, full

BINARY = None
BOX = pathlib.Path(__file__).resolve().parent.parent / "models" / "pelton-box"
FLAGS = ("--port", "0", "--max-model-len", "1024", "--max-num-seqs", "6")
RUNS = 400 if FULL else 16
SERVERS = 12
TRANSPORTS = ("shm", "tcp") if FULL else ("shm",)  # of faults that both see alike
EXIT_LOST = 7
LOST_SECONDS = 5  # from a fault to the last stream's end
LONG_CONTEXT = ("--max-model-len", "8192", "--kv-cache-memory", "64MiB")  # all that the box has
# Of so many tokens that no machine has computed them while a test makes up its mind.
LONG = {"prompt": "The wheel of a Pelton turbine", "max_tokens": 8000, "temperature": 0, "ignore_eos": True}
EXPERT_WAYS = ((1, "auto"), (2, "shm"), (3, "tcp"), (4, "shm")) if FULL else ((1, "auto"), (3, "shm"))
AT_ONCE = 4  # streams that begin without waiting for another one's end (--max-num-seqs)


def children(process):
    return sorted(int(path.name) for path in pathlib.Path("/proc").iterdir() if path.name.isdigit() and parent(path) == process)


def parent(path):
    try:
        return int((path / "stat").read_text().rsplit(")", 1)[1].split()[1])
    except OSError:
        return 0


def maps_shared_memory():
    """Processes that map a group's shared memory, which has no name in any file system."""
    found = set()
    for maps in pathlib.Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            if "memfd:pelton-ranks" in maps.read_text():
                found.add(int(maps.parent.name))
    return found


def running(process):
    try:
        return pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def tensors(model):
    """Of each tensor of a model in one file, where it lies there, and its shape."""
    file = next(pathlib.Path(model).glob("*.safetensors"))
    with file.open("rb") as opened:
        size = struct.unpack("<Q", opened.read(8))[0]
        header = json.loads(opened.read(size))
    header.pop("__metadata__", None)
    return file, {name: (*(8 + size + at for at in found["data_offsets"]), found["shape"]) for name, found in header.items()}


def resident_weights(process):
    """Bytes of files of weights that the process has mapped in its memory."""
    resident, counts = 0, False
    for line in pathlib.Path(f"/proc/{process}/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            counts = line.endswith(".safetensors")
        elif counts and line.startswith("Rss:"):
            resident += int(line.split()[1]) << 10
    return resident


def ticks(process):
    fields = pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


def wait_for(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()


class Served:
    def __init__(self, add_cleanup, *words, model=BOX):
        self.process = subprocess.Popen([BINARY, "serve", str(model), *FLAGS, *map(str, words)], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        self.log = []
        self.reader = threading.Thread(target=lambda: self.log.extend(self.process.stderr), daemon=True)
        self.reader.start()
        add_cleanup(self.end)
        line = self.process.stdout.readline()
        if not line.startswith("listening on "):
            self.process.wait(20)
            self.reader.join(20)
            raise AssertionError("".join(self.log))
        self.url = line.split()[-1]
        self.followers = children(self.process.pid)

    def end(self):
        self.process.kill()
        self.process.wait()
        self.reader.join(20)
        self.process.stdout.close()
        self.process.stderr.close()

    def processes_by_rank(self):
        def rank(process):
            words = pathlib.Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
            return int(words[words.index(b"--rank") + 1])
        return [self.process.pid, *sorted(self.followers, key=rank)]

    def post(self, body, path="/v1/completions"):
        request = urllib.request.Request(self.url + path, data=json.dumps(body).encode(),
                                         headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def choices(self, body, path="/v1/completions"):
        status, text = self.post(body, path)
        assert status == 200, text
        return json.loads(text)["choices"]

    def figure(self, name):
        with urllib.request.urlopen(self.url + "/metrics", timeout=20) as answer:
            return sum(float(value) for value in re.findall(rf"(?m)^{name}(?:{{.*}})? (\S+)$", answer.read().decode()))

    def figures(self, name):
        """Of each rank, in their order."""
        with urllib.request.urlopen(self.url + "/metrics", timeout=20) as answer:
            return [float(value) for value in re.findall(rf"(?m)^{name}{{.*}} (\S+)$", answer.read().decode())]

    def stream(self, body, on_piece=lambda: None):
        """All that came, until it ended; an error of the connection is text, too. `on_piece` is called once, when the first piece is there."""
        request = urllib.request.Request(self.url + "/v1/completions", data=json.dumps({**body, "stream": True}).encode(),
                                         headers={"Content-Type": "application/json"})
        parts = []
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                for line in answer:
                    parts.append(line.decode())
                    if len(parts) == 1:
                        on_piece()
        except urllib.error.HTTPError as error:
            parts.append(f"status {error.code} {error.read().decode()}")
        except (OSError, ValueError, urllib.error.URLError) as error:
            parts.append(f"broken: {error!r}")
        return "".join(parts)


@contextlib.contextmanager
def streaming(served, bodies):
    """Streams of those bodies, each a future of what came of it, while they are under way: the server has all of them, and the first
    pieces of those that need not wait for a place are there."""
    first = threading.Semaphore(0)
    with concurrent.futures.ThreadPoolExecutor(max(len(bodies), 1)) as pool:
        streams = [pool.submit(served.stream, body, first.release) for body in bodies]
        for _ in bodies[:AT_ONCE]:
            assert first.acquire(timeout=60), [stream.result() for stream in streams if stream.done()]

        def asked():
            done = sum(stream.done() for stream in streams)
            return done + sum(served.figure(f"vllm:num_requests_{state}") for state in ("running", "waiting")) >= len(bodies)
        if len(bodies) > AT_ONCE:
            assert wait_for(asked, 60), [stream.result() for stream in streams if stream.done()]
        yield streams


def draw(rng):
    """One request, as a path and a body."""
    words = ["wheel", "water", "nozzle", "bucket", "splitter", "jet", "head", "runner", "the", "of", "a", "needle"]
    prompt = " ".join(rng.choice(words) for _ in range(rng.choice([1, 5, 20, 60, 150])))
    if rng.random() < 0.3:
        prompt = "The wheel of a Pelton turbine " * rng.randrange(1, 10) + prompt  # found in the prefix cache again
    body = {"max_tokens": rng.choice([1, 3, 12, 30]), "temperature": 0, "ignore_eos": True}
    if rng.random() < 0.5:
        body.update(temperature=rng.choice([0.5, 1.0, 1.5]), seed=rng.randrange(1 << 30), top_p=rng.choice([1.0, 0.9]),
                    top_k=rng.choice([0, 40]))
    kind = rng.random()
    if kind < 0.2:
        body.pop("ignore_eos")
        body.update(max_tokens=40, response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": {
            "type": "object", "properties": {"n": {"type": "integer"}, "w": {"enum": ["wheel", "jet"]}},
            "required": ["n", "w"], "additionalProperties": False}}})
        return "/v1/chat/completions", {**body, "messages": [{"role": "user", "content": prompt[:200]}], "logprobs": True,
                                        "top_logprobs": 5}
    body.update(prompt=prompt, logprobs=rng.choice([0, 5]), n=rng.choice([1, 1, 3]) if body["temperature"] else 1)
    if kind < 0.35:
        body["prompt_logprobs"] = 2
    return "/v1/completions", body


def draw_server(rng, packed):
    """A model and flags that change numbers, steps or how bytes travel: what one process has, and what ranks have beside."""
    same = ["--kv-cache-dtype", rng.choice(["auto", "f16", "bf16", "int8", "fp8"]), "--max-num-batched-tokens", rng.choice([8, 16, 64, 512]),
            "--kernels", rng.choice(["auto", "avx2"])]
    same += rng.choice([["--kv-cache-memory", "8MiB"], ["--kv-cache-memory", "1500KiB", "--swap-space", "1MiB"]])
    if rng.random() < 0.3:
        same.append("--no-enable-prefix-caching")
    if rng.random() < 0.4:
        same += ["--speculative-config", json.dumps({"method": rng.choice(["ngram", "suffix"]), "num_speculative_tokens": 3})]
    ranks = ["--tensor-parallel-size", rng.choice([2, 3, 4, 5, 8]), "--rank-transport", rng.choice(["shm", "tcp"])]
    if rng.random() < 0.5:
        ranks.append("--enable-expert-parallel")
    return rng.choice([BOX, packed]), same, ranks


class SameAnswers(unittest.TestCase):
    """Everything that is asked of one process is asked of two, three and four ranks (of two key/value heads: some have
    none), and the texts of all numbers must be equal."""

    def ask(self, ways, runs, seed):
        rng = random.Random(seed)
        asked = [draw(rng) for _ in range(runs)]
        with concurrent.futures.ThreadPoolExecutor(5) as pool:
            expected = list(pool.map(lambda one: ways[0].choices(one[1], one[0]), asked))
            for way in ways[1:]:
                for one, want, got in zip(asked, expected, pool.map(lambda one, way=way: way.choices(one[1], one[0]), asked)):
                    self.assertEqual(got, want, f"PELTON_SEED={seed}: {way.process.args}: {one}")

    def seed(self):
        return int(os.environ.get("PELTON_SEED", random.SystemRandom().randrange(1 << 30)))

    def test_any_request(self):
        seed = self.seed()
        print(f"PELTON_SEED={seed}", file=sys.stderr)
        ways = [Served(self.addCleanup, "--kv-cache-memory", "8MiB", "--tensor-parallel-size", ranks) for ranks in ((1, 2, 3, 4) if FULL else (1, 2, 4))]
        self.assertEqual([len(way.followers) for way in ways], [0, 1, 2, 3] if FULL else [0, 1, 3])
        self.ask(ways, RUNS, seed)

    def test_any_request_over_tcp(self):
        seed = self.seed()
        print(f"PELTON_SEED={seed}", file=sys.stderr)
        flags = ("--kv-cache-memory", "8MiB", "--rank-transport", "tcp", "--tensor-parallel-size")
        ways = [Served(self.addCleanup, *flags, ranks) for ranks in ((1, 2, 3) if FULL else (1, 3))]
        for way in ways[1:]:
            self.assertEqual(maps_shared_memory() & {way.process.pid, *way.followers}, set())
        self.ask(ways, RUNS // 2, seed)

    def test_any_request_with_experts_dealt_out(self):
        seed = self.seed()
        print(f"PELTON_SEED={seed}", file=sys.stderr)
        flags = ("--kv-cache-memory", "8MiB", "--enable-expert-parallel", "--tensor-parallel-size")
        ways = [Served(self.addCleanup, *flags, ranks, "--rank-transport", transport) for ranks, transport in EXPERT_WAYS]
        self.ask(ways, RUNS // 2, seed)

    @full
    def test_any_request_under_any_flags(self):
        seed = self.seed()
        print(f"PELTON_SEED={seed}", file=sys.stderr)
        rng = random.Random(seed)
        with tempfile.TemporaryDirectory(prefix="pelton_ranks_") as folder:
            packed = f"{folder}/packed"
            subprocess.run([BINARY, "pack", BOX, packed, "--weights", "int8"], check=True, capture_output=True, timeout=120)
            for turn in range(SERVERS):
                model, same, ranks = draw_server(rng, packed)
                with self.subTest(f"PELTON_SEED={seed}", turn=turn, model=model, same=same, ranks=ranks):
                    ways = [Served(self.addCleanup, *same, *more, model=model) for more in ([], ranks)]
                    self.ask(ways, RUNS // 5, seed + turn)
                    for way in ways:
                        way.end()

    def test_packed_short_of_blocks_swapped_and_speculating(self):
        """Packed weights; so few blocks that sequences are preempted and swapped; tokens guessed ahead."""
        seed = self.seed()
        with tempfile.TemporaryDirectory(prefix="pelton_ranks_") as folder:
            packed = f"{folder}/packed"
            subprocess.run([BINARY, "pack", BOX, packed, "--weights", "int8"], check=True, capture_output=True, timeout=120)
            flags = ("--kv-cache-memory", "600KiB", "--swap-space", "1MiB", "--max-num-batched-tokens", "64",
                     "--kv-cache-dtype", "int8", "--speculative-config", '{"method": "suffix", "num_speculative_tokens": 3}')
            ways = [Served(self.addCleanup, *flags, "--tensor-parallel-size", ranks, model=packed) for ranks in (1, 2)]
            self.ask(ways, RUNS // 4, seed)
            for way in ways:
                way.end()


class Faults(unittest.TestCase):
    def serve(self, ranks=2, transport="auto"):
        return Served(self.addCleanup, *LONG_CONTEXT, "--tensor-parallel-size", ranks, "--rank-transport", transport)

    def lose(self, served, victim, how, load=True, bodies=None):
        """Streams run, something happens to a rank: what each stream got, the last within the time that is promised."""
        bodies = bodies or [LONG] * (AT_ONCE if load else 0)
        with streaming(served, bodies) as streams:
            os.kill(victim, how)
            begun = time.monotonic()
            answers = [stream.result(30) for stream in streams]
            self.assertLess(time.monotonic() - begun, LOST_SECONDS)
            return answers

    def check_gone(self, served, *processes):
        self.assertEqual(served.process.wait(20), EXIT_LOST)
        served.reader.join(20)
        for process in processes:
            self.assertTrue(wait_for(lambda process=process: not running(process)), process)
        self.assertEqual(maps_shared_memory() & set(processes + (served.process.pid,)), set())

    def check_line(self, served, *words):
        lines = [line for line in served.log if "the group of ranks is lost" in line]
        self.assertEqual(len(lines), 1, served.log)
        for word in words:
            self.assertIn(word, lines[0])

    def test_a_killed_rank_ends_the_group(self):
        for ranks in (2, 3) if FULL else (3,):
            served = self.serve(ranks)
            victim = served.followers[0]
            self.assertLessEqual({served.process.pid, *served.followers}, maps_shared_memory())
            answers = self.lose(served, victim, signal.SIGKILL)
            for answer in answers:
                self.assertNotIn("[DONE]", answer)
                self.assertRegex(answer, "rank [12] .*killed by signal 9|status 503")
            self.check_gone(served, *served.followers)
            self.check_line(served, f"(process {victim})", "killed by signal 9")

    def test_a_killed_rank_ends_the_group_over_tcp(self):
        """The others see a connection end, too; the line says what was the cause of it."""
        for ranks, load in ((2, True), (3, True), (3, False)) if FULL else ((3, True),):
            served = self.serve(ranks, "tcp")
            victim = served.followers[-1]
            for answer in self.lose(served, victim, signal.SIGKILL, load):
                self.assertNotIn("[DONE]", answer)
                self.assertRegex(answer, f"rank [12] .process {victim}. was killed by signal 9|status 503")
            self.check_gone(served, *served.followers)
            self.check_line(served, f"(process {victim})", "killed by signal 9")

    @full
    def test_a_stopped_rank_is_found_out_over_tcp(self):
        served = self.serve(2, "tcp")
        self.lose(served, served.followers[0], signal.SIGSTOP)
        self.check_gone(served, *served.followers)
        self.check_line(served, "rank 1", "has been silent for")

    @full
    def test_a_killed_leader_takes_its_followers_along_over_tcp(self):
        served = self.serve(3, "tcp")
        served.process.kill()
        for follower in served.followers:
            self.assertTrue(wait_for(lambda follower=follower: not running(follower)), follower)

    def test_a_stopped_rank_is_found_out(self):
        served = self.serve()
        victim = served.followers[0]
        answers = self.lose(served, victim, signal.SIGSTOP)
        for answer in answers:
            self.assertRegex(answer, "rank 1 .*has been silent|status 503")
        self.check_gone(served, victim)
        self.check_line(served, "rank 1", "has been silent for")

    @full
    def test_two_hundred_streams_see_an_end_that_may_be_tried_again(self):
        served = self.serve(3)
        for answer in self.lose(served, served.followers[0], signal.SIGKILL, bodies=[LONG] * 200):
            self.assertNotIn("[DONE]", answer)
            self.assertRegex(answer, "service_unavailable|status 503")
        self.check_gone(served, *served.followers)

    @full
    def test_a_loss_among_prompts(self):
        """Of each sequence nothing but its prompt is computed."""
        rng = random.Random(1)
        prompts = [{"prompt": [rng.randrange(3, 4000) for _ in range(1000)], "max_tokens": 1, "temperature": 0} for _ in range(60)]
        for how, named in ((signal.SIGKILL, "killed by signal 9"), (signal.SIGSTOP, "has been silent for")):
            served = self.serve()
            answers = self.lose(served, served.followers[0], how, bodies=prompts)
            lost = [answer for answer in answers if "[DONE]" not in answer]
            self.assertGreater(len(lost), 0)
            for answer in lost:
                self.assertRegex(answer, "service_unavailable|status 503")
            self.check_gone(served, *served.followers)
            self.check_line(served, "rank 1", named)

    def test_a_rank_that_dies_while_the_group_begins(self):
        """A rank with files to read has hardly begun when it is killed: all end, and one line says who it was."""
        for transport in TRANSPORTS:
            process = subprocess.Popen([BINARY, "serve", str(BOX), *FLAGS, "--kv-cache-memory", "16MiB", "--tensor-parallel-size", "3",
                                        "--rank-transport", transport], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self.addCleanup(process.kill)
            self.assertTrue(wait_for(lambda process=process: len(children(process.pid)) == 2))
            followers = children(process.pid)
            os.kill(followers[1], signal.SIGKILL)
            out, log = process.communicate(timeout=30)
            self.assertNotEqual(process.returncode, 0)
            self.assertEqual(out, "")
            lines = [line for line in log.splitlines() if "killed by signal 9" in line]
            self.assertEqual(len(lines), 1, log)
            self.assertIn(f"(process {followers[1]})", lines[0])
            self.assertFalse(any(running(follower) for follower in followers))

    @full
    def test_an_idle_group_notices_too(self):
        served = self.serve()
        self.lose(served, served.followers[0], signal.SIGKILL, load=False)
        self.check_gone(served, *served.followers)
        self.check_line(served, "rank 1", "killed by signal 9")

    def test_a_killed_leader_takes_its_followers_along(self):
        served = self.serve(3)
        os.kill(served.followers[1], signal.SIGSTOP)  # this one could not see it
        served.process.kill()
        for follower in served.followers:
            self.assertTrue(wait_for(lambda follower=follower: not running(follower)), follower)

    def test_a_stopped_leader_is_ended_by_its_followers(self):
        """It would keep its port and its clients for as long as it is stopped."""
        for transport in TRANSPORTS:
            served = self.serve(3, transport)
            for answer in self.lose(served, served.process.pid, signal.SIGSTOP):
                self.assertNotIn("[DONE]", answer)
            self.assertEqual(served.process.wait(20), -signal.SIGKILL)
            for follower in served.followers:
                self.assertTrue(wait_for(lambda follower=follower: not running(follower)), follower)
            served.reader.join(20)
            self.assertRegex("".join(served.log), "rank [12] ends: the leader has been silent for .* it is killed")

    def test_a_leader_that_is_silent_from_the_start_is_ended(self):
        """Before any job has come, and while numbers' connections are made; the follower says that it lives from its first moment on."""
        for places in (None, [1, 2]) if FULL else ([1, 2],):
            leader = subprocess.Popen([sys.executable, "-c", SILENT_LEADER, BINARY, json.dumps(places)], stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE, text=True)
            self.addCleanup(leader.kill)
            begun = time.monotonic()
            self.assertEqual(leader.stdout.readline(), "a heartbeat\n")
            self.assertEqual(leader.wait(30), -signal.SIGKILL)
            self.assertLess(time.monotonic() - begun, 10)  # a connection is tried for 20
            self.assertIn("rank 1 ends: the leader has been silent for", leader.communicate()[1])

    @full
    def test_all_stopped_together_go_on(self):
        """As when the machine sleeps: nobody blames the others."""
        served = self.serve()
        everybody = [served.process.pid, *served.followers]
        for process in everybody:
            os.kill(process, signal.SIGSTOP)
        time.sleep(4)
        for process in everybody:
            os.kill(process, signal.SIGCONT)
        time.sleep(1)
        self.assertEqual(served.choices({**LONG, "max_tokens": 3})[0]["finish_reason"], "length")

    def test_a_stop_lets_answers_end(self):
        """SIGTERM to every process, as a supervisor sends it."""
        served = self.serve()
        with streaming(served, [{**LONG, "max_tokens": 200}]) as [answer]:
            for process in (*served.followers, served.process.pid):
                os.kill(process, signal.SIGTERM)
            self.assertIn("[DONE]", answer.result(60))
        self.assertEqual(served.process.wait(30), 0)
        self.assertFalse(any(running(follower) for follower in served.followers))
        served.reader.join(20)
        self.assertFalse(any("lost" in line for line in served.log), served.log)


# Starts rank 1, as parallel/group.h does, waits for its heartbeat, sends it a job where there is one, and does nothing more.
SILENT_LEADER = """
import json, os, socket, struct, sys, time
ends = [socket.socketpair() for _ in range(2)]
listener = socket.create_server(("127.0.0.1", 0))
given = [ends[0][1].fileno(), ends[1][1].fileno(), listener.fileno()]
moved = [os.dup(one) for one in given]
moved = [os.dup2(one, 20 + i) for i, one in enumerate(moved)]
words = ["pelton", "rank", "--rank", "1", "--ranks", "2", "--leader-process", str(os.getpid())]
os.posix_spawn(sys.argv[1], words, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, one, 3 + i) for i, one in enumerate(moved)])
assert len(ends[0][0].recv(40)) == 40
print("a heartbeat", flush=True)
ports = json.loads(sys.argv[2])
if ports:
    mute = socket.create_server(("127.0.0.1", 0))  # where nobody answers
    ports[0] = mute.getsockname()[1]
    job = json.dumps({"rank": 1, "ranks": 2, "part_bytes": 4096, "spin_ns": 0, "processors": [], "ports": ports, "token": "t",
                      "job": {}}).encode()
    ends[1][0].sendall(struct.pack("I", len(job)) + job)
time.sleep(60)
"""


class Weights(unittest.TestCase):
    """Each rank has its part of the weights in memory, and looks after it."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="pelton_ranks_")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def synthetic(self):
        """Of 90 MB, most of them in matrices that are shared out, of which each rank's part is many pages."""
        config = json.loads((BOX / "config.json").read_text())
        config.update(hidden_size=1024, intermediate_size=1024, num_attention_heads=16, num_key_value_heads=4, head_dim=64)
        (self.folder / "config.json").write_text(json.dumps(config))
        subprocess.run([BINARY, "synth", "--like", self.folder / "config.json", self.folder / "model"], check=True,
                       capture_output=True, timeout=200)
        return self.folder / "model"

    def test_a_rank_has_its_part_in_memory(self):
        model = self.synthetic()
        found = tensors(model)[1]

        def part(rank, ranks):
            total = 0
            for name, (begin, end, shape) in found.items():
                is_whole = len(shape) == 1 or name.endswith("bias") or "embed" in name or "router" in name
                if name == "lm_head.weight":
                    is_whole = rank == 0
                total += (end - begin) / (1 if is_whole else ranks)
            return total
        everything = part(0, 1)
        caches = set()
        for ranks, *more in ((1,), (2,), (4,), (2, "--enable-expert-parallel"), (4, "--enable-expert-parallel")) if FULL else ((2,),):
            served = Served(self.addCleanup, "--kv-cache-memory", "16MiB", "--tensor-parallel-size", ranks, "--load-mode", "mmap", *more, model=model)
            served.choices({"prompt": [1, 2, 3], "max_tokens": 4, "temperature": 0, "ignore_eos": True})
            self.assertEqual(len(served.followers), ranks - 1)
            for rank, process in enumerate(served.processes_by_rank()):
                resident, planned = resident_weights(process), part(rank, ranks)
                # Above it by what the system maps around a page that is used: 64 KiB, or a huge page.
                self.assertGreater(resident, 0.9 * planned, (ranks, more, rank))
                self.assertLess(resident, (planned + everything) / 2 + 1e6, (ranks, more, rank))
                self.assertTrue(ranks == 1 or planned < 0.7 * everything)
            # What each says that it has: 1/N and what is whole, to the byte (heads, rows and experts divide by all of these).
            self.assertEqual(served.figures("pelton_rank_weight_bytes"), [part(rank, ranks) for rank in range(ranks)] if ranks > 1 else [])
            held = served.figures("pelton_rank_cache_bytes")
            self.assertEqual(len(set(held)), min(ranks - 1, 1), held)
            caches |= {sum(held)} if ranks > 1 else set()
            served.end()
        self.assertEqual(len(caches), 1, caches)
        self.assertGreater(caches.pop(), 15 << 20)

    def planned(self, *words):
        """What plan says that each rank holds, to the byte."""
        done = subprocess.run([BINARY, "plan", str(BOX), "--json", *FLAGS[2:], *map(str, words)], capture_output=True, text=True, timeout=60,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        ranks = json.loads(done.stdout)["ranks"]
        return [rank["weight_bytes"] for rank in ranks], [rank["cache_bytes"] for rank in ranks]

    def test_uneven_parts_add_up(self):
        """Of two key/value heads three ranks have 1, 1 and 0, of twelve tiles of rows four each."""
        caches = []
        for ranks, *more in ((2,), (3,), (3, "--enable-expert-parallel"), (3, "--swap-space", "1MiB")):
            served = Served(self.addCleanup, "--kv-cache-memory", "16MiB", "--tensor-parallel-size", ranks, *more)
            caches.append(sorted(served.figures("pelton_rank_cache_bytes")))
            if "--enable-expert-parallel" not in more:
                self.assertEqual(self.planned("--kv-cache-memory", "16MiB", "--tensor-parallel-size", ranks, *more),
                                 (served.figures("pelton_rank_weight_bytes"), served.figures("pelton_rank_cache_bytes")))
            served.end()
        self.assertEqual(caches[0][0], caches[0][1])
        self.assertEqual(caches[1], [0, *caches[0]])
        self.assertEqual(caches[2], caches[1])
        self.assertEqual(caches[3][0], 0)
        self.assertGreater(caches[3][1], caches[1][1])

    def test_a_follower_looks_after_its_weights_itself(self):
        model = shutil.copytree(BOX, self.folder / "model")
        file, found = tensors(model)
        last = found["model.layers.0.self_attn.o_proj.weight"][1] - 1  # in the last rows, which are rank 1's
        served = Served(self.addCleanup, "--kv-cache-memory", "16MiB", "--tensor-parallel-size", 2, "--weight-scrub-hours", "0.0003", model=model)
        served.choices({"prompt": "a", "max_tokens": 4, "temperature": 0})

        def is_over_after_another_flip():
            with file.open("r+b") as opened:
                opened.seek(last)
                byte = opened.read(1)[0]
                opened.seek(last)
                opened.write(bytes([byte ^ 1]))
            return wait_for(lambda: served.process.poll() is not None, 5)
        # What it has not seen before it cannot miss: the first flip may come too early.
        self.assertTrue(any(is_over_after_another_flip() for _ in range(6)), "".join(served.log))
        self.assertEqual(served.process.returncode, EXIT_LOST)
        served.reader.join(20)
        log = "".join(served.log)
        self.assertEqual(log.count("the weights have changed in memory: model.layers.0.self_attn.o_proj.weight, bytes "), 1, log)
        self.assertIn("rank 1 ends: its weights are not what they were", log)


class AGroup(unittest.TestCase):
    def test_idle_ranks_use_no_processor(self):
        served = Served(self.addCleanup, "--kv-cache-memory", "16MiB", "--tensor-parallel-size", 2)
        served.choices({"prompt": "a", "max_tokens": 8, "temperature": 0})
        time.sleep(1)
        everybody = [served.process.pid, *served.followers]
        before = [ticks(process) for process in everybody]
        time.sleep(2)
        used = [ticks(process) - start for process, start in zip(everybody, before)]
        self.assertLessEqual(max(used), 2)  # of 200

    def test_what_each_rank_exchanged_is_reported(self):
        served = Served(self.addCleanup, "--kv-cache-memory", "16MiB", "--tensor-parallel-size", 2)
        served.choices({"prompt": "a", "max_tokens": 8, "temperature": 0, "ignore_eos": True})

        def counts():
            with urllib.request.urlopen(served.url + "/server_info", timeout=20) as answer:
                return re.findall(r'"rank_\d": *"process \d+: (\d+) exchanges', answer.read().decode())
        # 4 a layer of 8 steps and of the first one, and the head's of 8; followers' come with their heartbeats.
        self.assertTrue(wait_for(lambda: counts() == [str(9 * 16 + 8)] * 2), counts())
        with urllib.request.urlopen(served.url + "/server_info", timeout=20) as answer:
            facts = answer.read().replace(b" ", b"")
        self.assertIn(b'"rank_transport":"shm"', facts)
        self.assertIn(b'"enable_expert_parallel":"false"', facts)
        self.assertIn("2 ranks, numbers by shm", "".join(served.log))

    def test_bench_latency_sets_ranks_beside_one_process(self):
        def measured(*words):
            done = subprocess.run([BINARY, "bench", "latency", BOX, "--tensor-parallel-size", "2", "--threads", "1",
                                   "--input-len", "24", "--output-len", "6", "--runs", "2", "--json", "-", *words],
                                  capture_output=True, text=True, timeout=120, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            return json.loads(done.stdout)
        report = measured()
        self.assertEqual((report["ranks"], report["transport"], report["threads"], report["one_process_threads"]), (2, "shm", 1, 2))
        self.assertGreater(report["decode_tok_s"], 0)
        self.assertGreater(report["prefill_ratio"], 0)
        self.assertLess(report["exchange_copying_share"], 1)
        # 4 a layer of each step, and the head's: one chunk of the prompt, and five steps more.
        self.assertEqual(report["exchanges_per_run"], 6 * (16 + 1))
        if FULL:
            self.assertEqual(measured("--rank-transport", "tcp", "--batch-size", "3")["transport"], "tcp")
            self.assertTrue(measured("--enable-expert-parallel")["expert_parallel"])

    def test_rows_of_experts_are_counted_where_they_are_computed(self):
        served = Served(self.addCleanup, "--kv-cache-memory", "16MiB", "--tensor-parallel-size", 2, "--enable-expert-parallel")
        served.choices({"prompt": "a", "max_tokens": 8, "temperature": 0, "ignore_eos": True})

        def values(name):
            with urllib.request.urlopen(served.url + "/metrics", timeout=20) as answer:
                return [int(value) for value in re.findall(rf"^{name}{{.*}} (\d+)$", answer.read().decode(), re.MULTILINE)]
        # 3 a layer (what experts give comes whole, once) of 8 steps and of the first one, and the head's of 8.
        self.assertTrue(wait_for(lambda: values("pelton_rank_exchanges_total") == [9 * 12 + 8] * 2), values("pelton_rank_exchanges_total"))
        with urllib.request.urlopen(served.url + "/server_info", timeout=20) as answer:
            self.assertIn(b'"enable_expert_parallel":"true"', answer.read().replace(b" ", b""))
        self.assertIn("2 ranks, experts dealt out, numbers by shm", "".join(served.log))
        rows = values("pelton_rank_expert_rows_total")
        self.assertEqual(sum(rows), 9 * 4 * 2)  # each of 4 layers chooses 2 experts
        self.assertEqual(len(rows), 2)
        self.assertGreater(min(rows), 0)

    @full
    def test_experts_are_dealt_out_by_what_was_chosen_before(self):
        """The file adds up from start to start, is what placement goes by, and changes no answer."""
        folder = tempfile.TemporaryDirectory(prefix="pelton_ranks_")
        self.addCleanup(folder.cleanup)
        file = pathlib.Path(folder.name) / "chosen.json"
        flags = ("--kv-cache-memory", "16MiB", "--tensor-parallel-size", 2, "--enable-expert-parallel", "--expert-histogram", file)
        ask = {"prompt": "a", "max_tokens": 8, "temperature": 0, "ignore_eos": True, "logprobs": 5}
        alone = Served(self.addCleanup, "--kv-cache-memory", "16MiB").choices(ask)
        for turn, more in enumerate(((), ("--num-redundant-experts", 3), ("--num-redundant-experts", 99)), 1):
            served = Served(self.addCleanup, *flags, *more)
            self.assertEqual(served.choices(ask), alone)
            served.process.terminate()
            self.assertEqual(served.process.wait(30), 0)
            chosen = json.loads(file.read_text())["chosen"]
            self.assertEqual([len(layer) for layer in chosen], [8] * 4)
            # Of each start's first step and 8 more, 2 in each layer.
            self.assertEqual([sum(layer) for layer in chosen], [turn * 9 * 2] * 4)
        for text, named in (("{}", "holds no such histogram"), ('{"chosen": [[1, 2]]}', "the histogram of experts: 1 layers, where the model has 4")):
            file.write_text(text)
            with self.assertRaisesRegex(AssertionError, named):
                Served(self.addCleanup, *flags)

    def test_what_cannot_be_shared_out_is_refused_by_name(self):
        golden = BOX.parent.parent / "testdata" / "golden"
        folder = tempfile.TemporaryDirectory(prefix="pelton_ranks_")
        self.addCleanup(folder.cleanup)
        key = f"{folder.name}/fleet.key"
        subprocess.run([BINARY, "gateway", "--new-key", key], check=True, capture_output=True, timeout=60)
        fleet = ("--fleet-port", "0", "--fleet-key-file", key)
        for name in ("gemma3", "deepseek-v3", "qwen3"):
            subprocess.run([BINARY, "synth", "--like", golden / name / "config.json", f"{folder.name}/{name}"], check=True,
                           capture_output=True, timeout=60)
        for words, named in (
                ((BOX, "--tensor-parallel-size", "2", "--enable-lora"), "LoRA adapters"),
                ((BOX, "--tensor-parallel-size", "2", "--swap-space", "16MiB", "--kv-disk", folder.name, "--kv-disk-size", "16MiB"),
                 "without --kv-disk"),
                ((BOX, "--tensor-parallel-size", "2", "--swap-space", "16MiB", *fleet, "--kv-port", "0"), "--tensor-parallel-size: blocks travel"),
                ((BOX, "--tensor-parallel-size", "2", "--swap-space", "16MiB", *fleet, "--kv-port", "0", "--fleet-role", "decode"), "without --kv-port"),
                ((BOX, "--tensor-parallel-size", "2", *fleet, "--fleet-role", "prefill"), "--fleet-role prefill needs --kv-port"),
                ((BOX, "--tensor-parallel-size", "2", "--weights", "int8"), "--weights-cache"),
                ((BOX, "--tensor-parallel-size", "2", "--kernels", "reference"), "reference kernels"),
                ((f"{folder.name}/gemma3", "--tensor-parallel-size", "2"), "norms behind"),
                ((f"{folder.name}/deepseek-v3", "--tensor-parallel-size", "2"), "latent attention"),
                ((BOX, "--pipeline-parallel-size", "2"), "--pipeline-parallel-size"),
                ((BOX, "--enable-expert-parallel"), "--tensor-parallel-size"),
                ((BOX, "--tensor-parallel-size", "9", "--enable-expert-parallel"), "--enable-expert-parallel: a layer has 8 experts"),
                ((f"{folder.name}/qwen3", "--tensor-parallel-size", "2", "--enable-expert-parallel"), "this model has no experts")):
            done = subprocess.run([BINARY, "serve", *map(str, words), "--port", "0", "--kv-cache-memory", "16MiB"],
                                  capture_output=True, text=True, timeout=60, check=False)
            self.assertNotEqual(done.returncode, 0, words)
            self.assertIn(named, done.stderr, words)

    def test_a_rank_is_not_started_by_hand(self):
        done = subprocess.run([BINARY, "rank"], capture_output=True, text=True, timeout=20, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("starts its ranks itself", done.stderr)

    def generate(self, model, *words):
        return subprocess.run([BINARY, "generate", model, "--max-tokens", "20", "--kv-cache-memory", "16MiB", *map(str, words)],
                              capture_output=True, text=True, timeout=60, check=True).stdout

    def test_generate_over_ranks_writes_the_same(self):
        with tempfile.TemporaryDirectory(prefix="pelton_ranks_") as cache:
            for more in ((), ("--weights", "int8", "--weights-cache", cache), ("--load-mode", "read")) if FULL else ((),):
                ask = (BOX, "--prompt", "The wheel", *more)
                self.assertEqual(self.generate(*ask, "--tensor-parallel-size", 2), self.generate(*ask), more)

    def test_drafters_beside_the_leader(self):
        ask = (BOX, "--prompt", "The wheel of a Pelton turbine", "--temperature", "1", "--seed", "3")
        alone = self.generate(*ask)
        configs = ({"method": "eagle3", "model": str(BOX / "eagle3")}, {"method": "medusa", "model": str(BOX / "medusa")},
                   {"method": "draft_model", "model": str(BOX / "draft")}, {"method": "ngram"})
        for config in configs if FULL else configs[:1]:
            spoken = json.dumps({**config, "num_speculative_tokens": 3})
            self.assertEqual(self.generate(*ask, "--speculative-config", spoken, "--tensor-parallel-size", 2), alone, config)

    def test_each_family_and_layout_that_is_promised(self):
        golden = BOX.parent.parent / "testdata" / "golden"
        with tempfile.TemporaryDirectory(prefix="pelton_ranks_") as folder:
            (pathlib.Path(folder) / "ids.json").write_text("[1, 2, 3, 4, 5, 6, 7, 8, 9]")
            models = [(name, "hf") for name in ("tiny", "llama3", "mistral", "qwen2", "qwen3", "qwen3-moe", "mixtral")]
            for name, layout in [*models, ("tiny", "gguf")] if FULL else (("tiny", "gguf"), ("llama3", "hf"), ("mixtral", "hf")):
                model = f"{folder}/{name}-{layout}" + (".gguf" if layout == "gguf" else "")
                subprocess.run([BINARY, "synth", "--like", golden / name / "config.json", model, "--format", layout], check=True,
                               capture_output=True, timeout=60)
                ask = (model, "--tokens", f"{folder}/ids.json", "--temperature", "1", "--seed", "5")
                alone = self.generate(*ask)
                ways = [(2,), (3,)]
                if name in ("tiny", "qwen3-moe", "mixtral"):
                    ways.append((3, "--enable-expert-parallel"))
                for way in ways:
                    self.assertEqual(self.generate(*ask, "--tensor-parallel-size", *way), alone, (name, layout, way))


if __name__ == "__main__":
    BINARY = sys.argv.pop(1)
    unittest.main()
