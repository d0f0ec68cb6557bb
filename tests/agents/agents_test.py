#!/usr/bin/env python3
"""Coding agents, unmodified and offline, run a tool loop of ten turns on a server whose model answers by a script.

usage: agents_test.py AGENT WORK_FOLDER PELTON [SHAPE]    (AGENT: claude_code, cline, opencode, qwen_code;
                                                          SHAPE: tiny, which is gpt-oss', or qwen3)

Each agent is asked to read ten files, each of which names the next; the script has the model call the agent's own
tool for reading. What must hold: the agent says what the last file says, no request to the server failed, and each turn
found what the one before had computed. Claude Code also compacts its conversation on the way, as the files do not fit
into the context of 131 072 tokens.

Only under PELTON_FULL=1; otherwise exit code 77 (skipped). npm fetches the agents that package-lock.json pins; apart
from that nothing leaves this machine: telemetry and updates are off, and what asks for a proxy finds a closed port.
Every step is bounded in time.
"""

import fcntl
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
STEPS = 10
CONTEXT = 131072
ANSWER = "All ten are read: the last word is walrus."
PROMPT = "Please read the ten steps, one after the other."


class Harmony:
    """How a model of gpt-oss' shape writes, and what it is told of a tool."""

    @staticmethod
    def said(text):
        return f"<|channel|>final<|message|>{text}<|return|>"

    @staticmethod
    def called(tool, arguments):
        return (f"<|channel|>analysis<|message|>The next one.<|end|><|start|>assistant<|channel|>commentary "
                f"to=functions.{tool} <|constrain|>json<|message|>{json.dumps(arguments)}<|call|>")

    @staticmethod
    def knows(tool):
        return f"type {tool} = "


class Qwen3:
    @staticmethod
    def said(text):
        return f"<think>\n\n</think>\n\n{text}<|im_end|>"

    @staticmethod
    def called(tool, arguments):
        call = json.dumps({"name": tool, "arguments": arguments})
        return f"<think>\nThe next one.\n</think>\n\n<tool_call>\n{call}\n</tool_call><|im_end|>"

    @staticmethod
    def knows(tool):
        return f'"name": "{tool}"'


SPELLINGS = {"tiny": Harmony, "qwen3": Qwen3}


class Agent:
    """How an agent reads a file, and how it is started."""

    step_bytes = 2000
    compacts = False

    def __init__(self, work, spelling):
        self.work = work
        self.spelling = spelling
        self.url = None  # the server's, once it runs
        self.home = work / "home"
        self.project = work / "project"

    def environment(self):
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "TMPDIR": str(self.home),
            "HTTP_PROXY": "http://127.0.0.1:9",
            "HTTPS_PROXY": "http://127.0.0.1:9",
            "NO_PROXY": "127.0.0.1,localhost",
            "no_proxy": "127.0.0.1,localhost",
            "DO_NOT_TRACK": "1",
        }

    def program(self, name):
        return str(self.work.parent / "packages" / "node_modules" / ".bin" / name)

    def run(self, *command):
        """What it writes; through a file, as some end before a pipe has taken all."""
        out, errors = self.work / "agent.out", self.work / "agent.err"
        with open(out, "w") as out_file, open(errors, "w") as error_file:
            done = subprocess.run(command, cwd=self.project, env=self.environment(), stdin=subprocess.DEVNULL,
                                  stdout=out_file, stderr=error_file, timeout=300)
        expect(done.returncode == 0,
               f"{command[0]} ended with {done.returncode}:\n{out.read_text()[-3000:]}\n{errors.read_text()[-3000:]}")
        return out.read_text()

    def step(self, number):
        return str(self.project / f"step-{number:02}.txt")

    def reads(self, number):
        """What the model says to read that step."""
        return self.spelling.called(self.tool, self.arguments(self.step(number)))

    def rules(self):
        """Of the script, beside those that go from one step to the next."""
        return [{"when": PROMPT, "then": self.reads(1)}]

    def prepare(self):
        pass


class ClaudeCode(Agent):
    step_bytes = 9500
    compacts = True
    tool = "Read"

    def rules(self):
        # First it searches a deferred tool, which the model is then told of; later it asks for a summary to go on from.
        return [{"when": PROMPT, "then": self.spelling.called("ToolSearch", {"query": "select:TaskStop", "max_results": 5})},
                {"when": self.spelling.knows("TaskStop"), "then": self.reads(1)},
                {"when": "create a detailed summary",
                 "then": self.spelling.said("<summary>Five steps are read; the next is step-06</summary>")}]

    def arguments(self, path):
        return {"file_path": path}

    def environment(self):
        return super().environment() | {
            "ANTHROPIC_BASE_URL": self.url,
            "ANTHROPIC_AUTH_TOKEN": "none",
            "ANTHROPIC_MODEL": "tiny",
            "ANTHROPIC_SMALL_FAST_MODEL": "tiny",
            "CLAUDE_CODE_MAX_CONTEXT_TOKENS": str(CONTEXT),
            "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "8000",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_ERROR_REPORTING": "1",
            "DISABLE_TELEMETRY": "1",
        }

    def ask(self):
        out = self.run(self.program("claude"), "-p", PROMPT, "--output-format", "stream-json", "--verbose")
        events = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
        result = [event for event in events if event["type"] == "result"][-1]
        expect(not result["is_error"], json.dumps(result)[:2000])
        return result["result"]


class QwenCode(Agent):
    tool = "read_file"

    def arguments(self, path):
        return {"file_path": path}

    def prepare(self):
        settings = {"telemetry": {"enabled": False}, "privacy": {"usageStatisticsEnabled": False},
                    "general": {"enableAutoUpdate": False, "disableAutoUpdate": True, "disableUpdateNag": True}}
        (self.home / ".qwen").mkdir(parents=True)
        (self.home / ".qwen" / "settings.json").write_text(json.dumps(settings))

    def ask(self):
        out = self.run(self.program("qwen"), "--auth-type", "openai", "--openai-api-key", "none", "--openai-base-url",
                       self.url + "/v1", "--model", "tiny", "--yolo", "--output-format", "json", PROMPT)
        return [event for event in json.loads(out[out.index("[{"):]) if event["type"] == "result"][-1]["result"]


class Cline(Agent):
    tool = "read_files"

    def arguments(self, path):
        return {"files": [{"path": path}]}

    def environment(self):
        return super().environment() | {"CLINE_TELEMETRY_DISABLED": "1", "CLINE_NO_AUTO_UPDATE": "1"}

    def prepare(self):
        self.run(self.program("cline"), "auth", "openai-compatible", "--apikey", "none", "--modelid", "tiny", "--baseurl",
                 self.url + "/v1")

    def ask(self):
        out = self.run(self.program("cline"), "--provider", "openai-compatible", "--json", "--cwd", str(self.project), PROMPT)
        events = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
        return [event for event in events if event["type"] == "run_result"][-1]["text"]


class OpenCode(Agent):
    tool = "read"

    def arguments(self, path):
        return {"filePath": path}

    def environment(self):
        folders = {f"XDG_{kind}_HOME": str(self.home / kind.lower()) for kind in ("CONFIG", "DATA", "CACHE", "STATE")}
        return super().environment() | folders | {
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        }

    def prepare(self):
        model = {"name": "tiny", "tool_call": True, "reasoning": True, "limit": {"context": CONTEXT, "output": 2000}}
        provider = {"npm": "@ai-sdk/openai-compatible", "name": "Pelton",
                    "options": {"baseURL": self.url + "/v1", "apiKey": "none"}, "models": {"tiny": model}}
        (self.project / "opencode.json").write_text(json.dumps(
            {"autoupdate": False, "share": "disabled", "provider": {"pelton": provider}, "model": "pelton/tiny",
             "small_model": "pelton/tiny"}))

    def ask(self):
        out = self.run(self.program("opencode"), "run", "--format", "json", PROMPT)
        events = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
        return "".join(event["part"]["text"] for event in events if event["type"] == "text")


AGENTS = {"claude_code": ClaudeCode, "cline": Cline, "opencode": OpenCode, "qwen_code": QwenCode}


def expect(holds, message):
    if not holds:
        sys.exit(f"agents: {message}")


def install(folder):
    """The agents of package-lock.json, once, whichever test comes first."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        pinned = (HERE / "package-lock.json").read_bytes()
        installed = folder / "installed.lock"
        if installed.exists() and installed.read_bytes() == pinned:
            return
        installed.unlink(missing_ok=True)
        for name in ("package.json", "package-lock.json", ".npmrc"):
            shutil.copy(HERE / name, folder / name)
        # Not "npm ci": it misses what is for other platforms in the lock file.
        subprocess.run(["npm", "install", "--no-save", "--no-audit", "--no-fund", "--loglevel=error"], cwd=folder,
                       check=True, timeout=600)
        installed.write_bytes(pinned)


def write_steps(agent):
    for number in range(1, STEPS + 1):
        last = number == STEPS
        end = "the last word is walrus" if last else f"the next is step-{number + 1:02}"
        filler = "".join(f"line {line} of step {number} says little\n" for line in range(agent.step_bytes // 30))
        pathlib.Path(agent.step(number)).write_text(f"{filler}{end}\n")


def script_of(agent):
    rules = [{"when": "", "then": agent.spelling.said("Yes.")},
             {"when": "the last word is walrus", "then": agent.spelling.said(ANSWER)}]
    for number in range(2, STEPS + 1):
        rules.append({"when": f"the next is step-{number:02}", "then": agent.reads(number)})
    return {"step_ms": 0, "context": CONTEXT, "rules": rules + agent.rules()}


class Server:
    def __init__(self, pelton, work, shape):
        self.pelton = pelton
        self.work = work
        self.shape = shape
        self.process = None

    def start(self):
        """Its URL."""
        subprocess.run([self.pelton, "synth", "--like", str(HERE / f"../../testdata/golden/{self.shape}/config.json"),
                        str(self.work / "tiny")], check=True, timeout=60, stdout=subprocess.DEVNULL)
        out = self.work / "server.out"
        self.process = subprocess.Popen(
            [self.pelton, "serve", "tiny", "--port", "0", "--executor", "modelled:script.json", "--access-log", "json",
             "--access-log-file", "access.log"], cwd=self.work, stdout=open(out, "w"),
            stderr=open(self.work / "server.err", "w"))
        for _ in range(600):
            listening = [line for line in out.read_text().splitlines() if line.startswith("listening on ")]
            if listening:
                return listening[0].removeprefix("listening on ")
            expect(self.process.poll() is None, (self.work / "server.err").read_text()[-3000:])
            time.sleep(0.1)
        sys.exit("agents: the server did not begin to listen")

    def stop(self):
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()

    def requests(self):
        """The lines of the access log that ask for an answer."""
        lines = [json.loads(line) for line in (self.work / "access.log").read_text().splitlines()]
        return [line for line in lines if line["method"] == "POST"]


def main():
    name, work, pelton = sys.argv[1:4]
    shape = sys.argv[4] if len(sys.argv) > 4 else "tiny"
    if os.environ.get("PELTON_FULL") != "1":
        print("agents: only with PELTON_FULL=1", file=sys.stderr)
        sys.exit(77)
    work = pathlib.Path(work).resolve()
    install(work / "packages")
    work = work / (name if shape == "tiny" else f"{name}_{shape}")
    shutil.rmtree(work, ignore_errors=True)
    agent = AGENTS[name](work, SPELLINGS[shape])
    agent.home.mkdir(parents=True)
    agent.project.mkdir()
    write_steps(agent)
    (work / "script.json").write_text(json.dumps(script_of(agent)))
    server = Server(str(pathlib.Path(pelton).resolve()), work, shape)
    try:
        agent.url = server.start()
        agent.prepare()
        answer = agent.ask()
    finally:
        server.stop()
    expect(ANSWER in answer, f"it says {answer!r}")
    requests = server.requests()
    failed = [line for line in requests if line["status"] >= 400]
    expect(not failed, f"requests failed: {failed[:5]}")
    expect(len(requests) > STEPS, f"only {len(requests)} requests")
    lengths = [line["prompt_tokens"] for line in requests if "prompt_tokens" in line]
    compacted = any(after < before - 10_000 for before, after in zip(lengths, lengths[1:]))
    expect(compacted or not agent.compacts, f"no compaction took place: prompts of {lengths} tokens")
    found = [line for line in requests if line.get("cached_tokens", 0) > line.get("prompt_tokens", 0) / 2]
    expect(len(found) >= STEPS - 3, f"only {len(found)} of {len(requests)} requests found what was computed before")
    print(f"{name}, {shape}: {len(requests)} requests, none failed, {len(found)} found more than half of their prompt")


if __name__ == "__main__":
    main()
