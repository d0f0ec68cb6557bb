#!/usr/bin/env python3
"""libpelton.so as a program meets it: installed into a folder, found by pkg-config and by CMake, its examples compiled as
C99 without a warning and run under ASan; their answers are those of the verbs. Python streams by ctypes.

usage: library_test.py PELTON BUILD_FOLDER [UNITTEST ARGUMENTS]
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

TOP = pathlib.Path(__file__).resolve().parent.parent
PELTON, BUILD = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
MODEL = TOP / "models/pelton-box"
EXAMPLES = TOP / "examples/library"
QUESTION = "What is a Pelton wheel?"
C = ["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-fsanitize=address,undefined"]


def run(command, **more):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=300, **more)
    if done.returncode != 0:
        raise AssertionError(f"{command}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


class Library(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = pathlib.Path(tempfile.mkdtemp(prefix="pelton-library-"))
        cls.addClassCleanup(shutil.rmtree, cls.work)
        cls.prefix = cls.work / "prefix"
        run(["cmake", "--install", BUILD, "--component", "library", "--prefix", cls.prefix, "--strip"])
        [found] = cls.prefix.rglob("pelton.pc")
        cls.library = found.parent.parent / "libpelton.so.1"
        environment = {**os.environ, "PKG_CONFIG_PATH": str(found.parent)}
        cls.flags = run(["pkg-config", "--cflags", "--libs", "pelton"], env=environment).split()
        # Leaks of the library's are seen, too.
        cls.environment = {**os.environ, "LD_LIBRARY_PATH": str(cls.library.parent),
                           "UBSAN_OPTIONS": "halt_on_error=1"}

    def compiled(self, name):
        program = self.work / name
        run(["cc", *C, EXAMPLES / f"{name}.c", "-o", program, "-pthread", *self.flags])
        return program

    def example(self, name, *arguments):
        return run([self.compiled(name), *arguments], env=self.environment)

    def test_a_chat_in_c_says_what_the_verb_says(self):
        answer = self.example("chat", MODEL, QUESTION)
        # The verb shows the reasoning in front.
        said = run([PELTON, "chat", MODEL, QUESTION, "--temperature", "0"])
        self.assertGreater(len(answer), 20)
        self.assertTrue(said.endswith("\n" + answer), said)

    def test_a_chat_in_python_streams_the_same(self):
        reader = subprocess.Popen([sys.executable, EXAMPLES / "chat.py", MODEL, QUESTION], stdout=subprocess.PIPE,
                                  env={**os.environ, "LIBPELTON": str(self.library)})
        pieces = []
        while piece := os.read(reader.stdout.fileno(), 4096):
            pieces.append(piece)
        reader.stdout.close()
        self.assertEqual(reader.wait(60), 0)
        self.assertGreater(len(pieces), 1, "it came at once")
        self.assertEqual(b"".join(pieces).decode(), self.example("chat", MODEL, QUESTION))

    def test_answers_at_a_time_follow_a_schema_and_one_is_cancelled(self):
        for line in self.example("extract", MODEL).splitlines():
            found = json.loads(line)
            self.assertEqual(sorted(found), ["city", "inhabitants"])
            self.assertEqual(found["inhabitants"], int(found["inhabitants"]))

    def test_vectors_are_those_of_embed(self):
        texts = ["a water wheel", "a turbine"]
        cosine = float(self.example("embed", MODEL, *texts))
        lines = run([PELTON, "embed", MODEL, *(part for text in texts for part in ("--text", text))])
        first, second = (json.loads(line) for line in lines.splitlines())
        self.assertAlmostEqual(cosine, sum(a * b for a, b in zip(first, second)), places=3)

    def test_errors_are_sentences(self):
        done = subprocess.run([self.compiled("chat"), "/nowhere", "?"], capture_output=True, text=True,
                              env=self.environment, timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertIn("/nowhere", done.stderr)

    def test_cmake_finds_it(self):
        project = self.work / "project"
        project.mkdir()
        shutil.copy(EXAMPLES / "embed.c", project)
        (project / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.20)\nproject(user C)\nfind_package(pelton 0.1 REQUIRED)\n"
            "add_executable(user embed.c)\ntarget_link_libraries(user PRIVATE pelton::pelton)\n")
        run(["cmake", "-S", project, "-B", project / "build", f"-DCMAKE_PREFIX_PATH={self.prefix}"])
        run(["cmake", "--build", project / "build"])
        run([project / "build/user", MODEL, "one", "two"])

    def test_a_header_for_c_plus_plus_and_nothing_else_exported(self):
        (self.work / "user.cc").write_text('#include <pelton.h>\nint main() { return pelton_abi_version() - 1; }\n')
        program = self.work / "user"
        run(["c++", self.work / "user.cc", "-o", program, *self.flags])
        run([program], env=self.environment)
        names = [line.split()[-1] for line in run(["nm", "-D", "--defined-only", self.library]).splitlines()]
        declared = (TOP / "src/c_api/pelton.h").read_text()
        for name in names:
            name = name.split("@")[0]
            self.assertTrue(name == "PELTON_1" or f"{name}(" in declared, name)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
