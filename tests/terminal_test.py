#!/usr/bin/env python3
"""The terminal chat on a pseudo-terminal: streaming, commands, history, Ctrl-C and Ctrl-D.

usage: terminal_test.py BINARY
"""
import os
import pathlib
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
BINARY = None


class Session:
    """A program on a terminal of its own."""

    def __init__(self, *words, env=None):
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen(
            list(map(str, words)), stdin=slave, stdout=slave, stderr=slave, close_fds=True,
            start_new_session=True, preexec_fn=lambda: __import__("fcntl").ioctl(0, 0x540E, 0),  # TIOCSCTTY
            env={**os.environ, "TERM": "xterm", "HOME": "/nonexistent", **(env or {})})
        os.close(slave)
        self.text = ""

    def expect(self, pattern, seconds=60):
        end = time.monotonic() + seconds
        while not (found := re.search(pattern, self.text)):
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.master], [], [], left)[0]:
                raise AssertionError(f"no {pattern!r} in:\n{self.text!r}")
            try:
                chunk = os.read(self.master, 65536)
            except OSError:
                chunk = b""
            if not chunk:
                raise AssertionError(f"ended without {pattern!r}:\n{self.text!r}")
            self.text += chunk.decode(errors="replace")
        passed = self.text[:found.end()]
        self.text = self.text[found.end():]
        return passed

    def send(self, text):
        os.write(self.master, text.encode())

    def wait(self, seconds=30):
        end = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < end:
            if select.select([self.master], [], [], 0.1)[0]:
                try:
                    os.read(self.master, 65536)
                except OSError:
                    break
        return self.process.wait(5)

    def close(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        os.close(self.master)


class Chat(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.model = cls.folder.name + "/model"
        subprocess.run([BINARY, "synth", "--like", str(ROOT / "apps/demo_model.json"), cls.model], check=True,
                       capture_output=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def session(self, *flags, env=None):
        session = Session(BINARY, "chat", self.model, *flags, env=env)
        self.addCleanup(session.close)
        session.expect("> ")
        return session

    def test_asks_and_answers(self):
        session = self.session("--max-tokens", "24")
        session.send("Hello\r")
        session.expect(r"24 tokens")
        session.expect("> ")
        session.send("/help\r")
        session.expect("/reasoning")
        session.send("/reasoning high\r")
        session.expect("high")
        session.send("/reasoning soon\r")
        session.expect("low, medium or high")
        session.send("/clear\r")
        session.expect("(?i)new conversation")
        session.send("/nonsense\r")
        session.expect("/help")
        session.send("/quit\r")
        self.assertEqual(session.wait(), 0)

    def test_history_and_editing(self):
        session = self.session("--max-tokens", "4")
        session.send("/reasoning lowX\x7f\r")  # backspace
        session.expect("is low")
        session.expect("> ")
        session.send("\x1b[A\r")  # up: the same line again
        session.expect("is low")
        session.send("\x04")
        self.assertEqual(session.wait(), 0)

    def test_interrupts(self):
        session = self.session("--max-tokens", "100000")
        session.send("Tell me a long story\r")
        session.expect("story")
        time.sleep(0.5)
        session.send("\x03")  # stops the answer, not the chat
        session.expect("stopped")
        session.expect("> ")
        session.send("half a line\x03")  # gives the line up
        session.expect("> ")
        session.send("\x04")
        self.assertEqual(session.wait(), 0)

    def test_no_color(self):
        session = self.session("--max-tokens", "4", env={"NO_COLOR": "1"})
        session.send("x\r")
        self.assertNotIn("\x1b[2m", session.expect("4 tokens"))


if __name__ == "__main__":
    BINARY = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
