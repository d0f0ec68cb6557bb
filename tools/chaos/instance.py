"""A running `pelton serve`: started, signalled, watched from outside."""
import http.client
import json
import os
import pathlib
import signal
import subprocess
import time

SIGHUP_BIT = 1 << (signal.SIGHUP - 1)
ARENA_BYTES = 64 << 20
MEMORY_CGROUPS = pathlib.Path("/sys/fs/cgroup/memory")


class Instance:
    """One process after the other under one name."""

    def __init__(self, name, command, log, box=False, fails=False, drain_s=30, tls=None):
        self.name, self.command, self.log, self.box, self.fails = name, command, log, box, fails
        self.drain_s, self.tls = drain_s, tls  # who vouches for its certificate, if it speaks TLS
        self.program = pathlib.Path(command[0]).name[:15]  # as its threads are called
        self.generation, self.process, self.stopped_until = 0, None, 0.0

    def start(self):
        """Beside the one before, if that still runs; which is returned."""
        before = self.process
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=self.log, text=True)
        lines = [self.process.stdout.readline() for _ in range(3)]
        if "gRPC on" not in lines[2]:
            raise RuntimeError(f"{self.name} did not start: {lines}, ended with {self.process.poll()}")
        self.port, self.admin, self.grpc = (int(line.rsplit(":", 1)[1]) for line in lines)
        self.generation += 1
        return before

    def fields(self):
        return {"name": self.name, "port": self.port, "grpc": self.grpc, "generation": self.generation,
                "box": self.box, "fails": self.fails, "tls": self.tls,
                "drain_s": self.drain_s - 1}

    @property
    def pid(self):
        return self.process.pid

    def alive(self):
        return self.process.poll() is None

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def get(self, port, path, timeout=600):
        link = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
        try:
            link.request("GET", path)
            answer = link.getresponse()
            return answer.status, answer.read()
        finally:
            link.close()

    def ledger(self):
        status, body = self.get(self.admin, "/debug/ledger")
        if status != 200:
            raise RuntimeError(f"{self.name}: /debug/ledger answers {status}")
        return json.loads(body)

    def metric(self, name, label):
        """The sum over a metric's lines with that label."""
        lines = self.get(self.admin, "/metrics")[1].decode().split("\n")
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name + "{") and label in line)

    def catches_hup(self):
        caught = int(self.status("SigCgt"), 16)
        return bool(caught & SIGHUP_BIT)

    def status(self, key):
        for line in pathlib.Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(key + ":"):
                return line.split()[1]
        raise KeyError(key)

    def memory(self):
        """Resident bytes: all, and what no file backs."""
        return int(self.status("VmRSS")) << 10, int(self.status("RssAnon")) << 10

    def mapped(self):
        """Resident bytes by what they are of: the allocator's heap and arenas, stacks, other anonymous memory, files."""
        sums, kind = {"heap": 0, "arenas": 0, "stacks": 0, "other": 0, "files": 0}, None
        try:
            text = pathlib.Path(f"/proc/{self.pid}/smaps").read_text()
        except PermissionError:  # only root may look into it
            text = ""
        for line in text.splitlines():
            first = line.split(" ", 1)[0]
            if not first.endswith(":"):  # a mapping's head
                parts = line.split()
                begin, end = (int(edge, 16) for edge in parts[0].split("-"))
                name = parts[5] if len(parts) > 5 else ""
                if name.startswith("/"):
                    kind = "files"
                elif name == "[heap]":
                    kind = "heap"
                elif name.startswith("[stack"):
                    kind = "stacks"
                # glibc's arenas begin at multiples of 64 MiB; what is behind them in use is of the same mapping
                elif begin % ARENA_BYTES == 0 and end - begin <= ARENA_BYTES:
                    kind = "arenas"
                else:
                    kind = "other"
            elif first == "Rss:":
                sums[kind] += int(line.split()[1]) << 10
        return sums

    def counts(self):
        return {"descriptors": len(os.listdir(f"/proc/{self.pid}/fd")), "threads": int(self.status("Threads"))}

    def freeze(self, seconds):
        """SIGSTOP now; whoever calls sends SIGCONT after `seconds`."""
        self.stopped_until = time.monotonic() + seconds + 1  # a second to catch up
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self):
        self.process.send_signal(signal.SIGCONT)

    def stopped(self):
        return time.monotonic() < self.stopped_until


class MemoryLimit:
    """A control group with a bound, where the system lets us make one. Breaking it kills the process."""

    def __init__(self, name):
        self.folder = MEMORY_CGROUPS / name
        try:
            self.folder.mkdir()
            self.works = True
        except OSError:
            self.works = False

    def hold(self, pid, limit):
        if self.works:
            (self.folder / "memory.limit_in_bytes").write_text(str(limit))
            (self.folder / "cgroup.procs").write_text(str(pid))

    def close(self):
        if self.works:
            try:
                self.folder.rmdir()
            except OSError:
                pass
