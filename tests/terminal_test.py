#!/usr/bin/env python3
"""The terminal chat on a pseudo-terminal: streaming, commands, history, Ctrl-C and Ctrl-D.

usage: terminal_test.py BINARY
"""
import json
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
        self.everything = ""  # that was ever shown

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
            self.everything += chunk.decode(errors="replace")
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


class Banner(unittest.TestCase):
    def test_serve_says_what_it_serves(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([BINARY, "synth", "--like", str(ROOT / "testdata/demo_model.json"), folder + "/wheel"],
                           check=True, capture_output=True)
            session = Session(BINARY, "serve", folder + "/wheel", "--port", "0")
            self.addCleanup(session.close)
            banner = session.expect(r"listening on http://127.0.0.1:\d+")
            self.assertLessEqual(banner.count("\n"), 9, banner)
            for part in ("wheel", "http://127.0.0.1:", "context", "curl http://127.0.0.1:", "KV cache of"):
                self.assertIn(part, banner)
            session.send("\x03")
            self.assertEqual(session.wait(), 0)


class Chat(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.model = cls.folder.name + "/model"
        cls.script = cls.folder.name + "/script.json"
        pathlib.Path(cls.script).write_text(json.dumps({"step_ms": 5, "rules": [
            {"when": "", "then": "<|channel|>analysis<|message|>thinking\x1b[2J<|end|>"
                                 "<|start|>assistant<|channel|>final<|message|>a wheel<|return|>"},
            {"when": "again", "then": "<|channel|>final<|message|>as before<|return|>"},
            {"when": "pasted text", "then": "<|channel|>final<|message|>damaged<|return|>"},
            {"when": "story", "then": ["<|channel|>final<|message|>", {"text": "and so on ", "times": 3000}]}]}))
        subprocess.run([BINARY, "synth", "--like", str(ROOT / "testdata/demo_model.json"), cls.model], check=True,
                       capture_output=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def session(self, *flags, env=None):
        session = Session(BINARY, "chat", self.model, "--executor", "modelled:" + self.script, *flags, env=env)
        self.addCleanup(session.close)
        session.expect("> ")
        return session

    def test_asks_and_answers(self):
        session = self.session()
        session.send("What is it?\r")
        answer = session.expect(r"\d+ tokens")
        self.assertIn("\x1b[2mthinking[2J", answer)  # dim, and without the model's escape
        self.assertRegex(answer, r"(?s)thinking.*\x1b\[0m.*a wheel")
        session.expect("> ")
        session.send("again\r")
        session.expect("as before")
        session.expect("> ")

    def test_commands(self):
        session = self.session()
        for line, shown in (("/help", "/reasoning"), ("/reasoning high", "is high"),
                            ("/reasoning soon", "low, medium or high"), ("/clear", "new conversation"),
                            ("/nonsense", "/help lists")):
            session.send(line + "\r")
            session.expect(shown)
            session.expect("> ")
        session.send("/quit\r")
        self.assertEqual(session.wait(), 0)

    def test_history_and_editing(self):
        session = self.session()
        session.send("/reasoning lowX\x7f\r")  # backspace
        session.expect("is low")
        session.expect("> ")
        session.send("\x1b[A\r")  # up: the same line again
        session.expect("is low")
        session.expect("> ")
        session.send("\x04")
        self.assertEqual(session.wait(), 0)

    def test_end_of_input_before_the_prompt(self):
        for _ in range(12):  # Ctrl-D comes while the terminal still gathers lines
            session = self.session()
            session.send("/reasoning low\r")
            session.expect("is low")
            session.send("\x04")
            self.assertEqual(session.wait(), 0)

    def test_C1_a_paste_of_several_lines_is_one_question(self):
        session = self.session()
        self.assertIn("\x1b[?2004h", session.everything)
        session.send("See \x1b[200~first again\nsecond\nthird\x1b[201~ please")
        session.expect(r"\[pasted text 1: 3 lines\]")
        session.send("\r")
        session.expect("as before")  # one answer: the rule for "again"
        session.expect("> ")
        session.send("/nonsense\r")  # and nothing of it waits
        session.expect("no /nonsense")
        session.expect("> ")
        session.send("a single \x1b[200~pasted again\x1b[201~\r")
        session.expect("as before")
        session.expect("> ")
        # The marker is one character to the keys: backspace, a word, the cursor.
        for keys in ("\x7f", "\x1b\x7f", "\x1b[D\x04", "\x1b[D\x1b[D\x1b[C\x1b[C\x7f"):
            session.send("again \x1b[200~left\nalone\x1b[201~")
            session.expect(r"1: 2 lines\]")
            session.send(keys + "\r")
            session.expect("as before")
            session.expect("> ")
        session.send("\x1b[200~left\nalone\x1b[201~\x03")
        session.expect("> ")
        session.send("/quit\r")
        self.assertEqual(session.wait(), 0)

    def test_C1_files_and_fences(self):
        text = pathlib.Path(self.folder.name, "question.txt")
        text.write_text("line one\nsay it again\n")
        session = self.session()
        session.send(f"/file {text}\r")
        session.expect("before the next question")
        session.expect("> ")
        session.send("well?\r")
        session.expect("as before")
        session.expect("> ")
        session.send("/file /nowhere\r")
        session.expect("nowhere")
        session.expect("> ")
        session.send('"""\r')
        session.expect("> ")
        session.send("/help is no command in here\r")
        session.expect("> ")
        session.send("again\r")
        session.expect("> ")
        session.send('"""\r')
        session.expect("as before")
        session.expect("> ")

    def test_C1_the_end_of_input_sends_what_is_open(self):
        self.assertEqual(self.chat(stdin=b'"""\nx\nagain\n'), b"as before\n")
        self.assertEqual(self.chat(stdin=b'"""\n'), b"")
        self.assertEqual(self.chat(stdin=b"say it \\\nagain\\"), b"as before\n")
        text = pathlib.Path(self.folder.name, "waiting.txt")
        text.write_text("again\n")
        done = subprocess.run([BINARY, "chat", self.model, "--executor", "modelled:" + self.script],
                              input=f"/file {text}\n".encode(), capture_output=True, timeout=60, check=True)
        self.assertIn(b"was not sent", done.stderr)
        session = self.session()
        session.send('"""\r')
        session.expect("> ")
        session.send("again\r")
        session.expect("> ")
        session.send("\x04")  # closes the block
        session.expect("as before")
        session.expect("> ")
        session.send("\x04")  # leaves
        self.assertEqual(session.wait(), 0)

    def test_interrupts(self):
        session = self.session()
        session.send("Tell me a story\r")
        session.expect("and so on")
        session.send("\x03")  # stops the answer, not the chat
        session.expect("stopped")
        session.expect("> ")
        session.send("half a line")
        session.expect("half a line")
        session.send("\x03")  # gives the line up
        session.expect("> ")
        session.send("again\r")
        session.expect("as before")
        session.expect("> ")
        session.send("\x03")
        session.expect("> ")
        session.send("\x03")  # twice in a row leaves
        self.assertEqual(session.wait(), 130)

    def test_no_color(self):
        session = self.session(env={"NO_COLOR": "1"})
        session.send("x\r")
        self.assertNotIn("\x1b[2m", session.expect(r"\d tokens"))

    def chat(self, *words, stdin=b""):
        return subprocess.run([BINARY, "chat", self.model, *words, "--executor", "modelled:" + self.script], input=stdin,
                              capture_output=True, timeout=60, check=True).stdout

    def test_C10_a_question_on_the_command_line(self):
        self.assertEqual(self.chat("What", "again?"), b"as before\n")
        text = pathlib.Path(self.folder.name, "again.txt")
        text.write_text("first\nagain\n")
        self.assertEqual(self.chat("--file", str(text)), b"as before\n")
        self.assertEqual(self.chat("--file", str(text), "what is that?"), b"as before\n")
        self.assertEqual(self.chat("--file", "-", stdin=b"x\nagain\ny\n"), b"as before\n")
        self.assertEqual(self.chat(stdin=b'"""\nx\nagain\n"""\n'), b"as before\n")

    def test_pipe(self):
        done = subprocess.run([BINARY, "chat", self.model, "--executor", "modelled:" + self.script],
                              input=b"What?\nagain\n", capture_output=True, timeout=60, check=True)
        self.assertEqual(done.stdout, b"thinking[2J\na wheel\nas before\n")


def has_terminals():
    try:
        for end in pty.openpty():
            os.close(end)
        return True
    except OSError:  # a container without /dev/pts
        return False


if __name__ == "__main__":
    if not has_terminals():
        print("skipped: this machine gives no pseudo-terminals")
        sys.exit(77)
    BINARY = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
