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
  says("\nmodel = []", "2", "model wants text in quotes");
  says("port = [\"1\"]", "1", "a whole number");
  says("[serve]\nport = 1", "1", "'serve' is a table");
  says("a.b = 1", "1", "is a table");
  says("port = 1\nport = 2", "2", "");
  says("port = ", "1", "");
  says("port = 1 2", "1", "");
  says("model = \"m", "1", "");
  says("\x01", "1", "");
  EXPECT_EQ(error_of("model = \"\"").code, ErrorCode::kBadConfig);
  EXPECT_EQ(error_of("model = \"\"").message,
            file_ + ":1 is empty; give MODEL a value, or take it away");
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
  // C9: who copies the file is told what it lacks, before anything else.
  EXPECT_LT(text.find("# WARNING: api-key is in effect and is left out"), text.find("port = "));
  EXPECT_THAT(text, HasSubstr("$PELTON_API_KEY.\n"));
  EXPECT_THAT(line_.parse({"serve", "m", "--port", "1", "--print-config"})->text,
              HasSubstr("# WARNING"));
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

// Letters beyond ASCII where white space could stand: UBSan and the compiler saw an unreachable
// point of toml++ reached.
TEST(ConfigFile, D11_LettersBeyondAsciiWhereWhiteSpaceCouldStand) {
  const std::string letters[] = {"\u00e9", "\u00a1", "\u2c5e", "\u3042", "\ufc26", "\ufe0f"};
  for (const std::string& letter : letters) {
    for (const std::string& text : {letter, letter + " = 1", "a" + letter + " = 1", "a = " + letter,
                                    "a = 1" + letter, "a = \"\\" + letter + "\""}) {
      const Result<ConfigFile> read = parse_config("\n" + text, "f");
      ASSERT_FALSE(read.ok()) << text;
      EXPECT_THAT(read.error().message, testing::StartsWith("f:2: ")) << text;
    }
    const Result<ConfigFile> read =
        parse_config("a = \"\"\"x\\\n  " + letter + "\"\"\" # " + letter, "f");
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(read->entries.at(0).text, "x" + letter);
  }
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

Verb switches() {
  return {.name = "serve",
          .summary = "s",
          .flags = {{.name = "--cache",
                     .kind = Flag::Kind::kSwitch,
                     .default_text = "true",
                     .aliases = {"--with-cache"},
                     .negations = {"--no-cache", "--without-cache"}},
                    {.name = "--key", .value = "KEY", .secret = true, .may_be_empty = false}},
          .run = [](const Arguments&) -> Result<void> { return {}; },
          .other_prefix = "OTHER_",
          .configurable = true};
}

// A switch that is on by default is one name wherever it is said, and its negations are that name
// said the other way round.
TEST_F(Config, A2_SwitchWithNegationsIsOneKey) {
  const CommandLine line({.name = "pelton", .version = "1", .summary = "s"}, {switches()});
  const auto is_on = [&](std::vector<std::string> words) {
    words.insert(words.begin(), "serve");
    const Result<CommandLine::Request> request = line.parse(words);
    EXPECT_TRUE(request.ok()) << request.error().message;
    return request.ok() && request->arguments.has("--cache");
  };
  EXPECT_TRUE(is_on({}));
  EXPECT_TRUE(is_on({"--cache"}));
  EXPECT_TRUE(is_on({"--with-cache"}));
  EXPECT_TRUE(is_on({"--no-cache=false"}));
  for (const char* word : {"--no-cache", "--without-cache", "--cache=false"}) {
    EXPECT_FALSE(is_on({word})) << word;
  }
  EXPECT_THAT(line.parse({"serve", "--cache", "--no-cache"}).error().message,
              HasSubstr("--cache and --no-cache exclude each other"));
  for (const char* text : {"cache = false", "no-cache = true", "without-cache = true"}) {
    write(text);
    EXPECT_FALSE(is_on({"--config", file_})) << text;
    EXPECT_TRUE(is_on({"--config", file_, "--cache"})) << text;
  }
  write("no-cache = false");
  EXPECT_TRUE(is_on({"--config", file_}));
  write("cache = true\nno-cache = false");
  EXPECT_THAT(line.parse({"serve", "--config", file_}).error().message, HasSubstr(":2: "));
  write("no-cache = true");
  for (const auto& [name, value] :
       std::vector<std::pair<const char*, const char*>>{{"PELTON_NO_CACHE", "1"},
                                                        {"PELTON_WITHOUT_CACHE", "yes"},
                                                        {"PELTON_WITH_CACHE", "0"},
                                                        {"OTHER_CACHE", "False"},
                                                        {"OTHER_NO_CACHE", "True"}}) {
    setenv(name, value, 1);
    EXPECT_FALSE(is_on({})) << name;
    unsetenv(name);
  }
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{}, {"--no-cache"}, {"--cache"}}) {
    std::vector<std::string> print = {"serve", "--print-config"};
    print.insert(print.end(), words.begin(), words.end());
    write(line.parse(print)->text);
    EXPECT_EQ(is_on({"--config", file_}), is_on(words));
  }
}

TEST_F(Config, D5_EmptyValueThatMayNotBeIsAnErrorWhereverItIsSaid) {
  const CommandLine line({.name = "pelton", .version = "1", .summary = "s"}, {switches()});
  const auto refused = [&](std::vector<std::string> words, const std::string& origin) {
    words.insert(words.begin(), "serve");
    const Result<CommandLine::Request> request = line.parse(words);
    ASSERT_FALSE(request.ok()) << origin;
    EXPECT_EQ(request.error().code, ErrorCode::kBadConfig) << origin;
    EXPECT_THAT(request.error().message, HasSubstr(origin + " is empty")) << origin;
  };
  refused({"--key", ""}, "--key");
  refused({"--key="}, "--key");
  refused({"--key", " \t"}, "--key");
  write("key = \"\"");
  refused({"--config", file_}, file_ + ":1");
  for (const char* name : {"PELTON_KEY", "OTHER_KEY"}) {
    setenv(name, "", 1);
    refused({}, std::string("$") + name);
    setenv(name, " ", 1);
    refused({}, std::string("$") + name);
    // A word goes before it.
    EXPECT_EQ(line.parse({"serve", "--key", "k"})->arguments.text("--key"), "k");
    unsetenv(name);
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
