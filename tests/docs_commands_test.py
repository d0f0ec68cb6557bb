#!/usr/bin/env python3
"""The commands, flags and routes that the pages name are those of the binary.

usage: docs_commands_test.py BINARY [PAGE...]

Pages: README.md, HACKING.md, docs/*.md and those of docs/formats that users need (docs/log is history). Each
fence names its language. A fence of commands is marked in its info string, which no reader sees:

  ```sh            checked: each `pelton` command's verb and flags against the binary's help, a `serve` command
                   also by --print-config; a script of this repository must exist and know the flags
  ```sh run        run, all lines in one shell, within seconds. MODEL, openai/gpt-oss-20b and a gpt-oss-20b
                   folder are the model in the box; ports of this machine are free ones; files stay for the
                   page's next fence. `pelton serve`, `gateway` and `autoscale` come back once they listen, and serve
                   until the page ends: one of each, and workers by their --fleet-port
  ```sh run server the same, with `pelton serve MODEL` running already
  ```sh run exits=5  the shell's exit code

Lines before such a fence say what it must print: <!-- prints: some words -->

Of the fences that are run ./test runs those of the pages in FIRST, $PELTON_FULL all.

A `toml` fence is a configuration file that `serve --print-config` accepts (`toml foreign`: another program's, well
formed); `json` and `python` must be well formed.
Flags, environment variables and commands within a line are checked too.
"""
import contextlib
import http.client
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
import unittest

from ports import free_port
from tiers import FULL

ROOT = pathlib.Path(__file__).resolve().parent.parent
BOX = ROOT / "models" / "pelton-box"
# Pages that ./test follows; with $PELTON_FULL, or where pages are named, all.
FIRST = {"README.md", "quickstart.md", "serving.md", "gateway.md", "clients.md"}
LANGUAGES = {"sh", "text", "toml", "json", "yaml", "python", "js", "ini", "proto", "c", "cpp", "nginx", "haproxy"}
BINARY = None
PAGES = []

# Programs of others that the pages name. Whoever adds one has looked at its manual.
FOREIGN = {
    "apt", "printf", "apt-get", "brew", "cat", "cd", "claude", "cmake", "cp", "ctest", "curl", "dd", "docker", "sha256sum", "echo", "export",
    "ffmpeg", "free", "git", "grep", "hf", "helm", "ik_llama.cpp", "journalctl", "jq", "kill", "kubectl", "ldd", "less", "llama-batched-bench",
    "llama-bench", "llama-server", "ls", "lscpu", "man", "mkdir", "mv", "ninja", "node", "npm", "npx", "numactl",
    "nvidia-smi", "openssl", "perf", "pip", "python3", "rm", "sbatch", "scancel", "scontrol", "sed", "skopeo", "source", "ss", "sudo", "systemctl", "tee", "test",
    "true", "ulimit", "vllm", "wait",
}
# Flags of others that stand alone in a line of text.
FOREIGN_FLAGS = {"--ulimit", "--cap-add", "--full", "--soak", "--once", "--test", "--help", "--version", "--cuda"}

FLAG = re.compile(r"--[a-z][a-z0-9-]*")
# Of other servers' command lines, which `serve` knows what to do with; tests.flag_precedence holds the page's table.
FOREIGN_FLAGS |= {"--model-path"} | {
    flag for line in (ROOT / "docs" / "pasted_commands.md").read_text().splitlines() if line.startswith("| `-")
    for flag in FLAG.findall(line)}
# Of the runner of runbooks, as it reads them.
FOREIGN_FLAGS |= set(re.findall(r'add_argument\("(--[a-z-]+)"', (ROOT / "deploy" / "runbooks" / "run").read_text()))
SPAN = re.compile(r"(`+)(.+?)\1", re.DOTALL)


class Fence:
    def __init__(self, page, line, info, text, prints):
        self.page, self.line, self.text, self.prints = page, line, text, prints
        words = info.split()
        self.language = words[0] if words else ""
        self.marks = set(words[1:])

    @property
    def where(self):
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def parse(page):
    """The page's fences, and its text without them (lines keep their numbers)."""
    fences, prose, prints = [], [], []
    lines = page.read_text().splitlines()
    number = 0
    while number < len(lines):
        line = lines[number]
        number += 1
        opening = re.match(r"\s*(```+)(.*)$", line)
        if not opening:
            expected = re.match(r"<!-- prints: (.*) -->$", line)
            if expected:
                prints.append(expected[1])
            elif line.strip():
                prints = []
            prose.append("" if expected else line)
            continue
        begin, body = number, []
        while number < len(lines) and lines[number].strip() != opening[1]:
            body.append(lines[number])
            number += 1
        number += 1
        prose.extend([""] * (number - begin + 1))
        fences.append(Fence(page, begin, opening[2], "\n".join(body) + "\n", prints))
        prints = []
    return fences, "\n".join(prose)


def commands_of(script):
    """The simple commands of a shell script as lists of words, without assignments before them."""
    script = re.sub(r"<<'?(\w+)'?\n.*?\n\1\n", "\n", script, flags=re.DOTALL)
    text = re.sub(r"(^|\s)#[^\n]*", r"\1", script.replace("\\\n", " "))
    lexer = shlex.shlex(text, posix=True, punctuation_chars="|&;()\n")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    command = []
    for word in [*lexer, "\n"]:
        if set(word) <= set("|&;()\n"):
            while command and re.match(r"[A-Z_]+=", command[0]):
                command.pop(0)
            if command:
                yield command
            command = []
        elif word not in ("<", ">", ">>"):
            command.append(word)


class Binary:
    """What the binary says of its verbs."""

    def __init__(self):
        page = self.help()
        self.flags = {}
        for line in page.splitlines():
            verb = re.match(r"  ([a-z][a-z-]*(?: [a-z][a-z-]*)?)(?: [A-Z\[]| {2}|$)", line)
            if verb and (text := self.help(*verb[1].split())):
                self.flags[verb[1]] = set(FLAG.findall(text)) | {"--help"}
        self.all_flags = set().union(*self.flags.values()) | {"--version"}

    @staticmethod
    def help(*verb):
        done = subprocess.run([BINARY, *verb, "--help"], capture_output=True, text=True, timeout=60, check=False)
        return done.stdout if done.returncode == 0 else ""

    def verb_of(self, words):
        """The verb that `words` begin with, or None."""
        for count in (2, 1):
            if " ".join(words[:count]) in self.flags:
                return " ".join(words[:count])
        return None

    def mistakes(self, words):
        """What is wrong with the words behind `pelton`."""
        if not words or words[0] in ("--help", "--version", "-h", "VERB", "…", "..."):
            return []
        verb = self.verb_of(words)
        if verb is None:
            return [f"there is no verb '{' '.join(words[:2])}'"] if words[0] not in ("audit", "bench", "cache", "chain", "fleet", "kv", "store") else []
        used = {FLAG.match(word)[0] for word in words if FLAG.match(word)}
        return [f"`pelton {verb}` has no flag {flag}" for flag in sorted(used - self.flags[verb])]


def is_pelton(word):
    return word in ("pelton", "build/release/pelton", "BINARY")


class Commands(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.binary = Binary()
        cls.pages = [(page, *parse(page)) for page in PAGES]

    def test_the_help_was_understood(self):
        for verb in ("serve", "bench serve", "cache list", "plan", "completion", "manual"):
            self.assertIn(verb, self.binary.flags)
        self.assertIn("--max-num-seqs", self.binary.flags["serve"])
        self.assertTrue(self.binary.mistakes(["serve", "MODEL", "--prot", "1"]))
        self.assertTrue(self.binary.mistakes(["sevre", "MODEL"]))

    def test_a_wrong_command_would_be_seen(self):
        for script in ("pelton serve MODEL --prot 1\n", "A=1 pelton sevre MODEL\n", "cat x | pelton tokenize M --x &\n",
                       "curl a # pelton nothing\npelton plan \\\n  --wrong\n", "unknown-program\n", "tools/nothing\n",
                       "tools/box_model/evaluate --flags '--prot 1' M\n"):
            self.assertTrue(self.mistakes_in(script), script)
        self.assertEqual(self.mistakes_in("pelton serve MODEL --port 1 # --wrong\nA='b c' curl -d '{\n}' x\n"), [])

    def mistakes_in(self, script):
        found = []
        for words in commands_of(script):
            program = words[0]
            if is_pelton(program):
                found += self.binary.mistakes(words[1:])
            elif "/" in program and not program.startswith(("/", "$", "FOLDER/", "build/")):
                found += self.script_mistakes(program, words[1:])
            elif program not in FOREIGN and not program.startswith(("/", "$", "FOLDER/", "build/", "<")):
                found.append(f"'{program}' is neither pelton nor known to this test")
        return found

    def script_mistakes(self, program, words):
        """Of a script in this repository: it exists and knows the flags; what it hands to `pelton serve` are serve's."""
        file = ROOT / program
        if not file.is_file():
            return [f"there is no {program}"]
        text = file.read_text()
        found = []
        for before, word in zip(["", *words], words):
            if before == "--flags":
                found += self.binary.mistakes(["serve", *shlex.split(word)])
            elif FLAG.match(word) and FLAG.match(word)[0] not in text:
                found.append(f"{program} knows no {FLAG.match(word)[0]}")
        return found

    def test_fences_name_their_language(self):
        for _, fences, _ in self.pages:
            for fence in fences:
                self.assertIn(fence.language, LANGUAGES, fence.where)
                if fence.language != "sh":
                    self.assertLessEqual(fence.marks, {"foreign"}, fence.where)
                    self.assertEqual(fence.prints, [], fence.where)
                    continue
                others = {mark for mark in fence.marks if not mark.startswith("exits=")} - {"run", "server"}
                self.assertEqual(others, set(), fence.where)

    def test_commands_in_fences(self):
        for _, fences, _ in self.pages:
            for fence in fences:
                if fence.language == "sh":
                    with self.subTest(fence.where):
                        self.assertEqual(self.mistakes_in(fence.text), [])

    def test_serve_commands_have_values_that_serve_takes(self):
        with tempfile.TemporaryDirectory() as folder:
            for _, fences, _ in self.pages:
                for fence in fences:
                    for words in commands_of(fence.text) if fence.language == "sh" else ():
                        if is_pelton(words[0]) and words[1:2] == ["serve"] and "--help" not in words:
                            done = subprocess.run([BINARY, *words[1:], "--print-config"], cwd=folder, timeout=60,
                                                  capture_output=True, text=True, check=False)
                            # A file that the page tells to make may be missing here.
                            if done.returncode != 0 and "--config" not in words:
                                self.fail(f"{fence.where}: {done.stderr}")

    def test_other_fences_are_well_formed(self):
        for _, fences, _ in self.pages:
            for fence in fences:
                with self.subTest(fence.where):
                    if fence.language == "json":
                        json.loads(fence.text)
                    elif fence.language == "python":
                        compile(fence.text, fence.where, "exec")
                    elif fence.language == "toml":
                        tomllib.loads(fence.text)
                        if "foreign" not in fence.marks:
                            self.expect_config(fence)

    def expect_config(self, fence):
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write(fence.text)
            file.flush()
            words = [] if re.search(r"^model\b", fence.text, re.MULTILINE) else [str(BOX)]
            done = subprocess.run([BINARY, "serve", *words, "--config", file.name, "--print-config"],
                                  capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 0, f"{fence.where}: {done.stderr}")

    def test_commands_and_flags_within_lines(self):
        for page, _, prose in self.pages:
            for match in SPAN.finditer(prose):
                span = " ".join(match[2].split())
                if "--" not in span and not span.startswith("pelton "):
                    continue
                where = f"{page.relative_to(ROOT)}:{prose.count(chr(10), 0, match.start()) + 1}"
                with self.subTest(where):
                    self.assertEqual(self.span_mistakes(span), [], f"`{span}`")

    def span_mistakes(self, span):
        try:
            commands = list(commands_of(span.replace("…", "")))
        except ValueError:
            return []  # a quotation mark of its own: no command
        found = []
        for words in commands:
            flags = {FLAG.match(word)[0] for word in words if FLAG.match(word)}
            if is_pelton(words[0]):
                found += self.binary.mistakes(words[1:])
            elif words[0].startswith("-"):
                unknown = flags - self.binary.all_flags - FOREIGN_FLAGS
                found += [f"no verb has a flag {flag}" for flag in sorted(unknown)]
            elif self.binary.verb_of(words) and words[0] not in FOREIGN:
                found += self.binary.mistakes(words)
            elif (ROOT / words[0]).is_file():
                found += self.script_mistakes(words[0], words[1:])
            elif flags and words[0] not in FOREIGN and not words[0].endswith(("_test", "_bench", ".py")):
                found.append(f"whose flags are these: {words[0]}?")
        return found

    def test_environment_variables(self):
        names = {"PELTON_" + flag[2:].upper().replace("-", "_") for flag in self.binary.all_flags}
        text = "\n".join(file.read_text(errors="replace") for folder in ("apps", "src", "tests", "tools", "cmake")
                         for file in sorted((ROOT / folder).rglob("*"))
                         if file.is_file() and file.suffix in ("", ".cc", ".h", ".py", ".sh", ".txt", ".cmake", ".mjs"))
        text += (ROOT / "CMakeLists.txt").read_text() + (ROOT / "run").read_text()
        for page in PAGES:
            for name in set(re.findall(r"PELTON_[A-Z_]*[A-Z]\b", page.read_text())):
                known = name in names or re.search(rf"\b{name}\b", text)
                self.assertTrue(known, f"{page.name}: nothing reads {name}")


# Stands before the binary in a page's shell: `serve` comes back once it listens.
WRAPPER = r"""#!/usr/bin/env bash
case $1 in
  serve) name=serve; [[ " $* " =~ " --fleet-port "([0-9]+) ]] && name=worker-${BASH_REMATCH[1]};;
  gateway) name=gateway;;
  autoscale) name=autoscale;;
  *) exec "$REAL" "$@";;
esac
if [[ " $* " =~ " --"(print-config|help|check|new-key|explain|replay)" " || $2 == recommend ]]; then exec "$REAL" "$@"; fi
pid=$SERVERS/$name.pid
[[ -e $pid ]] && kill "$(cat "$pid")" && while kill -0 "$(cat "$pid")" 2>/dev/null; do sleep 0.02; done
: >"$SERVERS/$name.out"  # what the one before has written there is no sign of this one
"$REAL" "$@" >"$SERVERS/$name.out" 2>"$SERVERS/$name.err" &
echo $! >"$pid"
until grep -q '^listening on ' "$SERVERS/$name.out"; do
  if ! kill -0 $! 2>/dev/null; then wait $!; code=$?; rm "$pid"; cat "$SERVERS/$name.err" >&2; exit $code; fi
  sleep 0.02
done
disown
"""


class Shell:
    """One page's: a folder, a binary that serves in the background, ports of its own."""

    def __init__(self, folder):
        self.folder = folder
        self.ports = {}
        for name in ("bin", "home", "work", "servers"):
            (folder / name).mkdir()
        wrapper = folder / "bin" / "pelton"
        wrapper.write_text(WRAPPER)
        wrapper.chmod(0o755)
        self.env = {**{k: v for k, v in os.environ.items() if not k.startswith("PELTON_")},
                    "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "REAL": str(BINARY), "HOME": str(folder / "home"),
                    "SERVERS": str(folder / "servers"), "PELTON_CACHE": str(folder / "cache"),
                    "HF_HOME": str(folder / "hub"), "PELTON_PORT": self.port("8000")}

    def port(self, name):
        return str(self.ports.setdefault(name, free_port()))

    def own(self, script):
        """The page's script with this shell's model and ports."""
        script = re.sub(r"(?<![\w/-])(?:\./|build/release/)pelton\b", "pelton", script)
        script = re.sub(r"(?<![\w/])(?:openai/gpt-oss-20b|\./gpt-oss-20b|MODEL)(?![\w.-])", str(BOX), script)
        script = re.sub(r"(pelton (?:serve|gateway|autoscale) .*?)\s*&$", r"\1", script, flags=re.MULTILINE)
        script = re.sub(r"(127\.0\.0\.1:|localhost:)(\d+)", lambda m: m[1] + self.port(m[2]), script)
        return re.sub(r"(--(?:admin-|grpc-|fleet-)?port[ =])(\d+)", lambda m: m[1] + self.port(m[2]), script)

    def run(self, script):
        return subprocess.run(["bash", "-c", "set -e -o pipefail\n" + script], cwd=self.folder / "work", env=self.env,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=180, check=False)

    def serves(self):
        return (self.folder / "servers" / "serve.pid").exists()

    def close(self):
        # A gateway that is killed leaves what it has started to the next one.
        gateway = self.folder / "servers" / "gateway.pid"
        if gateway.exists():
            self.run(f"pid=$(cat {gateway}); kill $pid; for i in $(seq 500); do kill -0 $pid || break; sleep 0.02; done; true")
        for pid in (self.folder / "servers").glob("*.pid"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid.read_text()), signal.SIGKILL)


class Run(unittest.TestCase):
    """Each page's marked fences, one after the other, as somebody who follows the page."""

    def follow(self, page):
        fences = [fence for fence in parse(page)[0] if "run" in fence.marks]
        with tempfile.TemporaryDirectory() as folder:
            shell = Shell(pathlib.Path(folder))
            try:
                for fence in fences:
                    if "server" in fence.marks and not shell.serves():
                        done = shell.run(f"pelton serve {BOX}")
                        self.assertEqual(done.returncode, 0, done.stdout)
                    done = shell.run(shell.own(fence.text))
                    codes = [int(mark[6:]) for mark in fence.marks if mark.startswith("exits=")]
                    self.assertEqual(done.returncode, codes[0] if codes else 0, f"{fence.where}\n{done.stdout}")
                    for expected in fence.prints:
                        self.assertIn(expected, done.stdout, fence.where)
            finally:
                shell.close()
        return len(fences)

    def test_pages_can_be_followed(self):
        pages = [page for page in PAGES if FULL or len(PAGES) <= 5 or page.name in FIRST]
        count = 0
        for page in pages:
            with self.subTest(page.name):
                count += self.follow(page)
        if len(PAGES) > 5:
            self.assertGreaterEqual(count, 16 if FULL else 9, "are the fences still marked `sh run`?")


class Routes(unittest.TestCase):
    """docs/routes.md has every route of the server, and no other."""

    ROW = re.compile(r"^\| (GET|POST|DELETE)((?:, (?:GET|POST|DELETE))*) \| `([^`]+)` \| (key|open) \|", re.MULTILINE)

    @classmethod
    def setUpClass(cls):
        text = (ROOT / "docs" / "routes.md").read_text()
        cls.page = {(method, path): guard for first, more, path, guard in cls.ROW.findall(text)
                    for method in [first, *more.replace(",", " ").split()]}
        cls.text = text
        cls.folder = pathlib.Path(tempfile.mkdtemp())
        cls.shell = Shell(cls.folder)
        done = cls.shell.run(f"pelton serve {BOX} --api-key k --admin-port {cls.shell.port('9000')}")
        assert done.returncode == 0, done.stdout

    @classmethod
    def tearDownClass(cls):
        cls.shell.close()
        shutil.rmtree(cls.folder)

    def ask(self, method, path, port="8000"):
        connection = http.client.HTTPConnection("127.0.0.1", int(self.shell.port(port)), timeout=30)
        connection.request(method, path, headers={} if port == "9000" else {"Authorization": "Bearer k"})
        answer = connection.getresponse()
        body = answer.read().decode(errors="replace")
        connection.close()
        return answer, body

    def test_C11_the_page_has_the_routes_of_the_table(self):
        answer, body = self.ask("GET", "/openapi.json")
        self.assertEqual(answer.status, 200, body)
        routes = {(method.upper(), re.sub(r"\{[^}]*\}", "{id}", path)): "open" if operation.get("security") == [] else "key"
                  for path, operations in json.loads(body)["paths"].items() for method, operation in operations.items()}
        self.assertGreater(len(routes), 40)
        self.assertEqual(self.page, routes)

    def test_C11_the_server_answers_what_the_page_has(self):
        for path in sorted({path for _, path in self.page}):
            methods = {method for method, listed in self.page if listed == path}
            answer, body = self.ask("PUT", path.replace("{id}", "x"))
            self.assertEqual(answer.status, 405, f"{path}: {body}")
            allowed = {word.strip() for word in (answer.getheader("Allow") or "").split(",")}
            # What ends in an id has the methods of all that lies below it.
            self.assertLessEqual(methods, allowed, path)

    def test_C11_what_is_open_needs_no_key(self):
        for (method, path), guard in sorted(self.page.items()):
            connection = http.client.HTTPConnection("127.0.0.1", int(self.shell.port("8000")), timeout=30)
            connection.request(method, path.replace("{id}", "x"), body="{}" if method == "POST" else None)
            status = connection.getresponse().status
            connection.close()
            self.assertEqual(status == 401, guard == "key", f"{method} {path}: {status}")

    def test_C11_the_admin_listener(self):
        answer, body = self.ask("GET", "/", port="9000")
        self.assertEqual(answer.status, 200)
        section = self.text.split("## The admin listener")[1].split("\n## ")[0]
        rows = re.findall(r"^\| ([A-Z, ]+) \| `([^`]+)` \|", section, re.MULTILINE)
        named = {path.replace("{name}", "*") for _, path in rows}
        self.assertLessEqual({line.split()[0] for line in body.splitlines() if line}, named)
        listed = [path for methods, path in rows if methods == "GET"]
        for path in listed:
            self.assertEqual(self.ask("GET", path, port="9000")[0].status, 200, path)

    def test_C11_grpc(self):
        proto = (ROOT / "proto" / "pelton" / "v1" / "inference.proto").read_text()
        calls = set(re.findall(r"^\s*rpc (\w+)", proto, re.MULTILINE))
        section = self.text.split("## gRPC")[1]
        self.assertEqual(calls, set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)))


if __name__ == "__main__":
    BINARY = pathlib.Path(sys.argv[1]).resolve()
    PAGES = [pathlib.Path(page).resolve() for page in sys.argv[2:]] or [
        ROOT / "README.md", ROOT / "HACKING.md", *sorted((ROOT / "docs").glob("*.md")),
        *(ROOT / "docs" / "formats" / name for name in ("checkpoints.md", "step_log.md", "workload.md"))]
    unittest.main(argv=sys.argv[:1])
