#include "cli/config_file.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/command_line.h"
#include "cli/exit_code.h"

namespace pelton::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

CommandLine example() {
  Verb serve{.name = "serve",
             .summary = "Serves a model",
             .positionals = {{.name = "MODEL", .help = "a folder", .variables = {"PELTON_MODEL"}}},
             .flags = {{.name = "--port",
                        .value = "N",
                        .help = "where",
                        .kind = Flag::Kind::kInteger,
                        .default_text = "8000",
                        .most = 65535},
                       {.name = "--memory",
                        .value = "BYTES",
                        .kind = Flag::Kind::kSize,
                        .aliases = {"--gpu-memory"}},
                       {.name = "--share", .value = "S", .kind = Flag::Kind::kNumber, .most = 1},
                       {.name = "--prompt", .value = "TEXT"},
                       {.name = "--api-key", .value = "KEY", .secret = true},
                       {.name = "--kernels", .value = "K", .choices = {"auto", "reference"}},
                       {.name = "--origin", .value = "URL", .many = true},
                       {.name = "--log-json", .kind = Flag::Kind::kSwitch}},
             .run = [](const Arguments&) -> Result<void> { return {}; },
             .configurable = true};
  return CommandLine({.name = "pelton", .version = "1.2.3", .summary = "a test"}, {serve});
}

class Config : public testing::Test {
 protected:
  Config() {
    char name[] = "/tmp/pelton_config.XXXXXX";
    folder_ = ::mkdtemp(name);
    file_ = folder_ + "/pelton.toml";
  }
  ~Config() override {
    std::filesystem::remove_all(folder_);
    for (const char* name : {"PELTON_PORT", "PELTON_MODEL", "PELTON_CONFIG", "PELTON_API_KEY"}) {
      unsetenv(name);
    }
  }
  void write(const std::string& text) { std::ofstream(file_) << text; }

  Result<CommandLine::Request> parse(std::vector<std::string> words) {
    words.insert(words.begin(), "serve");
    words.insert(words.end(), {"--config", file_});
    return line_.parse(words);
  }
  Arguments arguments(const std::vector<std::string>& words) {
    Result<CommandLine::Request> request = parse(words);
    EXPECT_TRUE(request.ok()) << request.error().message;
    return request->arguments;
  }
  Error error_of(const std::string& text) {
    write(text);
    const Result<CommandLine::Request> request = parse({});
    return request.ok() ? Error{ErrorCode::kInternal, "was accepted", {}} : request.error();
  }

  const CommandLine line_ = example();
  std::string folder_;
  std::string file_;
};

TEST_F(Config, NamesAreTheFlags) {
  write(
      "# a comment\n"
      "model = 'some/model'\n"
      "port = 9000\n"
      "gpu-memory = \"4GiB\"\n"
      "share = 1\n"
      "prompt = \"\"\"two\nlines\"\"\"\n"
      "origin = [\"a b\", \"c\"]\n"
      "log-json = true\n");
  const Arguments got = arguments({});
  EXPECT_EQ(got.text("MODEL"), "some/model");
  EXPECT_EQ(got.integer("--port"), 9000);
  EXPECT_EQ(got.integer("--memory"), int64_t{4} << 30);
  EXPECT_EQ(got.number("--share"), 1);
  EXPECT_EQ(got.text("--prompt"), "two\nlines");
  EXPECT_THAT(got.list("--origin"), ElementsAre("a b", "c"));
  EXPECT_TRUE(got.has("--log-json"));
  EXPECT_FALSE(got.has("--kernels"));
  EXPECT_EQ(got.origin("--port"), file_ + ":3");
  EXPECT_EQ(got.origin("--kernels"), "");
}

TEST_F(Config, FlagBeforeEnvironmentBeforeFileBeforeDefault) {
  write("");
  EXPECT_EQ(arguments({"m"}).integer("--port"), 8000);
  EXPECT_EQ(arguments({"m"}).origin("--port"), "default");
  write("model = \"from-file\"\nport = 1\nlog-json = true");
  EXPECT_EQ(arguments({}).integer("--port"), 1);
  setenv("PELTON_PORT", "2", 1);
  setenv("PELTON_MODEL", "from-environment", 1);
  EXPECT_EQ(arguments({}).integer("--port"), 2);
  EXPECT_EQ(arguments({}).origin("--port"), "$PELTON_PORT");
  EXPECT_EQ(arguments({}).text("MODEL"), "from-environment");
  EXPECT_EQ(arguments({"word", "--port", "3"}).integer("--port"), 3);
  EXPECT_EQ(arguments({"word", "--port", "3"}).origin("--port"), "--port");
  EXPECT_EQ(arguments({"word"}).text("MODEL"), "word");
  EXPECT_FALSE(arguments({"--log-json=false"}).has("--log-json"));
  // The file's own place may come from the environment.
  unsetenv("PELTON_PORT");
  setenv("PELTON_CONFIG", file_.c_str(), 1);
  EXPECT_EQ(line_.parse({"serve"})->arguments.integer("--port"), 1);
}

TEST_F(Config, ErrorsNameFileAndLine) {
  const auto says = [&](const std::string& text, const std::string& line, const std::string& what) {
    const Error error = error_of(text);
    EXPECT_EQ(error.code, ErrorCode::kBadConfig) << text;
    EXPECT_THAT(error.message, HasSubstr(file_ + ":" + line + ": ")) << text;
    EXPECT_THAT(error.message, HasSubstr(what)) << text;
  };
  says("\nprot = 1", "2", "unknown name 'prot'; did you mean 'port'?");
  says("gpu_memory = 1", "1", "did you mean 'gpu-memory'?");
  says("zzzzzzzzz = 1", "1", "unknown name 'zzzzzzzzz'");
  says("config = \"x\"", "1", "unknown name 'config'");
  says("print-config = true", "1", "unknown name 'print-config'");
  says("model = \"m\"\n\nport = 65536", "3", "--port must be between 0 and 65535");
  says("port = \"8000\"", "1", "port wants a whole number");
  says("port = 1.5", "1", "a whole number");
  says("share = nan", "1", "a number");
  says("log-json = \"yes\"", "1", "log-json wants true or false");
  says("prompt = 1", "1", "prompt wants text in quotes");
  says("prompt = 1979-05-27", "1", "prompt wants text in quotes");
  says("kernels = \"fast\"", "1", "is one of auto, reference");
  says("memory = \"4X\"", "1", "is not a size");
  says("memory = 1\ngpu-memory = 2", "2", "'gpu-memory' is the same as 'memory' in line 1");
  says("origin = [1]", "1", "texts in quotes only");
  says("port = [\"1\"]", "1", "a whole number");
  says("[serve]\nport = 1", "1", "'serve' is a table");
  says("a.b = 1", "1", "is a table");
  says("port = 1\nport = 2", "2", "");
  says("port = ", "1", "");
  says("port = 1 2", "1", "");
  says("model = \"m", "1", "");
  says("\x01", "1", "");
  file_ = "/nowhere/pelton.toml";
  EXPECT_THAT(parse({"m"}).error().message, HasSubstr("/nowhere/pelton.toml"));
  EXPECT_EQ(parse({"m"}).error().code, ErrorCode::kBadConfig);
}

TEST_F(Config, DeepNestingIsRefused) {
  EXPECT_EQ(error_of("port = " + std::string(100'000, '[')).code, ErrorCode::kBadConfig);
  EXPECT_EQ(error_of("model = \"" + std::string(2'000'000, 'x') + "\"").code,
            ErrorCode::kBadConfig);
}

TEST_F(Config, WhatIsPrintedSaysTheSameAgain) {
  setenv("PELTON_API_KEY", "sesame", 1);
  write("share = 0.25\norigin = [\"a b\", \"c\"]\n");
  const std::vector<std::string> words = {"a \"model\"\\", "--prompt", "x\ny\t\x7f#=\"",
                                          "--memory",      "32K",      "--log-json"};
  std::vector<std::string> print = words;
  print.push_back("--print-config");
  const std::string text = parse(print)->text;
  EXPECT_THAT(text, HasSubstr("port = 8000"));
  EXPECT_THAT(text, HasSubstr("# default"));
  EXPECT_THAT(text, HasSubstr("# " + file_ + ":1"));
  EXPECT_THAT(text, HasSubstr("$PELTON_API_KEY; secrets are not printed"));
  EXPECT_THAT(text, Not(HasSubstr("sesame")));
  EXPECT_THAT(text, HasSubstr("# kernels = K"));
  const Arguments before = arguments(words);
  write(text);
  const Arguments after = arguments({});
  for (const char* name : {"MODEL", "--prompt", "--memory"}) {
    EXPECT_EQ(before.text(name), after.text(name)) << text;
  }
  EXPECT_EQ(after.integer("--port"), 8000);
  EXPECT_EQ(after.number("--share"), 0.25);
  EXPECT_EQ(after.list("--origin"), before.list("--origin"));
  EXPECT_TRUE(after.has("--log-json"));
  EXPECT_FALSE(after.has("--kernels"));
  // Nothing need be given to see what is there.
  EXPECT_THAT(line_.parse({"serve", "--print-config"})->text, HasSubstr("# model = \"MODEL\""));
}

TEST(ConfigFile, QuotedTextIsReadAsItWas) {
  const unsigned seed = 11;
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 300; ++round) {
    std::string text;
    for (size_t i = random() % 40; i > 0; --i) text += static_cast<char>(random() % 128);
    const Result<ConfigFile> read = parse_config("a = " + toml_quoted(text), "f");
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(read->entries.at(0).text, text);
  }
}

TEST_F(Config, IsReadAgainWhenAsked) {
  std::vector<int64_t> ports;
  Verb serve{.name = "serve",
             .summary = "s",
             .flags = {{.name = "--port", .kind = Flag::Kind::kInteger}},
             .run = [&](const Arguments& first) -> Result<void> {
               ports.push_back(first.integer("--port"));
               write("port = 2");
               ports.push_back(first.reread()->integer("--port"));
               write("port = many");
               EXPECT_FALSE(first.reread().ok());
               return {};
             },
             .configurable = true};
  const CommandLine line({.name = "pelton", .version = "1", .summary = "s"}, {serve});
  write("port = 1");
  const char* words[] = {"pelton", "serve", "--config", file_.c_str()};
  EXPECT_EQ(line.run(4, words), kExitOk);
  EXPECT_THAT(ports, ElementsAre(1, 2));
}

}  // namespace
}  // namespace pelton::cli
