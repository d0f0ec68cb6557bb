#include "eval/sandbox.h"

#include <chrono>
#include <filesystem>
#include <fstream>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "eval/program_judge.h"

namespace pelton::eval {
namespace {

using std::chrono::milliseconds;

class Sandbox : public ::testing::Test {
 protected:
  void SetUp() override {
    const Result<void> works = check_sandbox();
    if (!works.ok()) GTEST_SKIP() << works.error().message;
  }

  static ProgramEnd run(const std::string& python, const SandboxLimits& limits = {}) {
    const Result<ProgramEnd> end = run_program(python, limits);
    EXPECT_TRUE(end.ok()) << end.error().message;
    return end.ok() ? *end : ProgramEnd::kFailed;
  }
};

// Where nothing can be run, that is said.
TEST(SandboxOffer, IsTakenOrRefusedWithItsReason) {
  const Result<ProgramEnd> end = run_program("pass", {});
  if (end.ok()) {
    EXPECT_EQ(*end, ProgramEnd::kFinished);
    return;
  }
  EXPECT_EQ(end.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(end.error().message.find("the sandbox"), std::string::npos);
}

TEST_F(Sandbox, OnlyWhoComesToTheLastLineHasFinished) {
  EXPECT_EQ(run("assert sorted([2, 1]) == [1, 2]"), ProgramEnd::kFinished);
  EXPECT_EQ(run("assert 1 == 2"), ProgramEnd::kFailed);
  EXPECT_EQ(run("import os\nos._exit(0)"), ProgramEnd::kFailed);
  EXPECT_EQ(run("raise SystemExit(0)"), ProgramEnd::kFailed);
  EXPECT_EQ(run("import os\nos.write(3, b'0' * 32)"), ProgramEnd::kFailed);
  EXPECT_EQ(run("this is no Python"), ProgramEnd::kFailed);
  EXPECT_EQ(run("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\nassert False"),
            ProgramEnd::kFailed);
}

TEST_F(Sandbox, WaitsAndForksAreEnded) {
  const SandboxLimits brief{.wall = milliseconds(400)};
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(run("while True: pass", brief), ProgramEnd::kTimeOut);
  EXPECT_EQ(run("import time\ntime.sleep(1e6)", brief), ProgramEnd::kTimeOut);
  // Children of children, each of which would outlive its parent.
  EXPECT_EQ(run("import os\nwhile True:\n  try: os.fork()\n  except OSError: pass", brief),
            ProgramEnd::kTimeOut);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  // Those of one that ends are ended with it, and their number is bounded.
  EXPECT_EQ(run("import os, time\nmade = 0\n"
                "try:\n"
                "  for _ in range(100):\n"
                "    if os.fork() == 0:\n"
                "      time.sleep(1e6)\n"
                "    made += 1\n"
                "except OSError: pass\n"
                "assert 0 < made < 40"),
            ProgramEnd::kFinished);
}

TEST_F(Sandbox, DiskAndMemoryAreBounded) {
  EXPECT_EQ(run("try:\n"
                "  for i in range(20):\n"
                "    open(f'f{i}', 'wb').write(bytes(8 << 20))\n"
                "except OSError: pass\n"
                "else: assert False"),
            ProgramEnd::kFinished);
  EXPECT_EQ(run("import signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
                "try: open('one', 'wb').write(bytes(20 << 20))\n"
                "except OSError: pass\n"
                "else: assert False"),
            ProgramEnd::kFinished);
  EXPECT_EQ(run("try: bytes(2 << 30)\nexcept MemoryError: pass\nelse: assert False"),
            ProgramEnd::kFinished);
}

TEST_F(Sandbox, NothingOfTheMachineIsWrittenOrHeard) {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{.sin_family = AF_INET, .sin_port = 0};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(listener, 1), 0);
  socklen_t size = sizeof address;
  ASSERT_EQ(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
  EXPECT_EQ(run(fmt::format("import socket\n"
                            "try: socket.create_connection(('127.0.0.1', {}), 1)\n"
                            "except OSError: pass\n"
                            "else: assert False",
                            ntohs(address.sin_port))),
            ProgramEnd::kFinished);
  ::close(listener);

  // A file that anybody may write, were it not for the sandbox.
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / fmt::format("sandbox_test.{}", ::getpid());
  std::ofstream(file) << "as it was";
  std::filesystem::permissions(file, std::filesystem::perms::all);
  EXPECT_EQ(run(fmt::format("for name in ({:?}, '/tmp/x', '/dev/shm/x', '/etc/x'):\n"
                            "  try: open(name, 'w')\n"
                            "  except OSError: pass\n"
                            "  else: assert False",
                            file.string())),
            ProgramEnd::kFinished);
  std::string text;
  std::getline(std::ifstream(file), text);
  EXPECT_EQ(text, "as it was");
  std::filesystem::remove(file);

  EXPECT_EQ(run(fmt::format("import os\n"
                            "assert os.listdir('/proc') == [] and os.getpid() == 1\n"
                            "assert os.getuid() == 65534 and os.environ.get('HOME') == '.'\n"
                            "try: os.kill({}, 0)\n"
                            "except ProcessLookupError: pass\n"
                            "else: assert False",
                            ::getpid())),
            ProgramEnd::kFinished);
}

TEST_F(Sandbox, NothingIsLeftOfIt) {
  const auto count = [] {
    int folders = 0;
    for (const auto& one :
         std::filesystem::directory_iterator(std::filesystem::temp_directory_path())) {
      folders += one.path().filename().string().starts_with("pelton-code-") ? 1 : 0;
    }
    return folders;
  };
  const int before = count();
  EXPECT_EQ(run("open('left', 'w').write('x')"), ProgramEnd::kFinished);
  EXPECT_LE(count(), before);
}

TEST(ProgramJudge, AnswersAreSetBetweenPromptAndTests) {
  const ExpectProgram task{.prompt = "import math\ndef f(x):\n    \"\"\"Doubles.\"\"\"\n",
                           .entry = "f",
                           .tests = "check(f)"};
  EXPECT_EQ(program_of(task, "Sure:\n```python\ndef f(x):\n    return 2 * x\n```\nDone."),
            task.prompt + "\n\ndef f(x):\n    return 2 * x\n\n\ncheck(f)");
  // One that goes on from where the prompt ends.
  EXPECT_EQ(program_of(task, "    return 2 * x"), task.prompt + "    return 2 * x\n\ncheck(f)");
}

TEST_F(Sandbox, AnswersAreJudgedByTheirTests) {
  const ExpectProgram task{.prompt = "def f(x):\n    \"\"\"Doubles.\"\"\"\n",
                           .entry = "f",
                           .tests = "def check(g):\n    assert g(4) == 8\ncheck(f)"};
  const auto passes = [&](const std::string& text) {
    return *passes_tests(task, {.content = text, .calls = {}}, {.wall = milliseconds(5000)});
  };
  EXPECT_TRUE(passes("```python\ndef f(x):\n    return 2 * x\n```"));
  EXPECT_TRUE(passes("    return x + x"));
  EXPECT_FALSE(passes("```python\ndef f(x):\n    return 3 * x\n```"));
  EXPECT_FALSE(passes("I would double it."));
  EXPECT_FALSE(passes(std::string("    return x + x\n\0exit", 23)));
}

}  // namespace
}  // namespace pelton::eval
