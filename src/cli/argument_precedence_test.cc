#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/command_line.h"
#include "cli/exit_code.h"

namespace pelton::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using Words = std::vector<std::string>;
using Variables = std::vector<std::pair<std::string, std::string>>;

CommandLine example() {
  Verb load{.name = "load",
            .summary = "s",
            .positionals = {{.name = "MODEL", .help = "m", .required = false}},
            .flags = {{.name = "--model", .value = "MODEL"},
                      {.name = "--prompt", .value = "TEXT"},
                      {.name = "--file", .value = "FILE"},
                      {.name = "--url", .value = "URL"},
                      {.name = "--port",
                       .value = "N",
                       .kind = Flag::Kind::kInteger,
                       .default_text = "8000",
                       .most = 65535,
                       .not_with = {{"--url"}}},
                      {.name = "--kind",
                       .value = "KIND",
                       .default_text = "random",
                       .choices = {"random", "trace"}},
                      {.name = "--length", .value = "N", .not_with = {{"--kind", {"trace"}}}},
                      {.name = "--speed",
                       .value = "X",
                       .kind = Flag::Kind::kNumber,
                       .default_text = "1",
                       .only_with = {{"--kind", {"trace"}}}},
                      {.name = "--again", .value = "N", .only_with = {{"--speed"}}},
                      {.name = "--date", .value = "DATE"}},
            .exclusive = {{"MODEL", "--model"}, {"--prompt", "--file"}},
            .run = [](const Arguments& arguments) -> Result<void> {
              if (!arguments.has("--date")) return {};
              return Error{ErrorCode::kInvalidArgument, "--date is no day", "date"};
            },
            .configurable = true};
  return CommandLine({.name = "pelton", .version = "1", .summary = "s"}, {load});
}

class Precedence : public testing::Test {
 protected:
  ~Precedence() override {
    for (const std::string& name : set_) unsetenv(name.c_str());
    std::filesystem::remove(file_);
  }
  Result<CommandLine::Request> parse(Words words, const Variables& variables,
                                     const std::string& config) {
    prepare(variables, config);
    words.insert(words.begin(), "load");
    if (!config.empty()) words.insert(words.end(), {"--config", file_});
    return line_.parse(words);
  }
  Arguments in_effect(const Words& words, const Variables& variables,
                      const std::string& config = "") {
    Result<CommandLine::Request> request = parse(words, variables, config);
    EXPECT_TRUE(request.ok()) << request.error().message;
    return request.ok() ? request->arguments : Arguments();
  }
  Error refusal(const Words& words, const Variables& variables, const std::string& config = "") {
    const Result<CommandLine::Request> request = parse(words, variables, config);
    EXPECT_FALSE(request.ok());
    return request.ok() ? Error{} : request.error();
  }
  int exit_of(const Words& words, const Variables& variables, const std::string& config = "") {
    prepare(variables, config);
    std::vector<const char*> all = {"pelton", "load"};
    for (const std::string& word : words) all.push_back(word.c_str());
    if (!config.empty()) all.insert(all.end(), {"--config", file_.c_str()});
    return line_.run(static_cast<int>(all.size()), all.data());
  }

  const std::string file_ = "/tmp/" + std::to_string(::getpid()) + "_precedence.toml";

 private:
  void prepare(const Variables& variables, const std::string& config) {
    for (const std::string& name : set_) unsetenv(name.c_str());
    set_.clear();
    for (const auto& [name, value] : variables) {
      setenv(name.c_str(), value.c_str(), 1);
      set_.push_back(name);
    }
    std::ofstream(file_) << config;
  }

  const CommandLine line_ = example();
  Words set_;
};

TEST_F(Precedence, A7_OfAGroupTheStrongestSourceCounts) {
  Arguments words = in_effect({"m", "--prompt", "p"}, {{"PELTON_MODEL", "x"}, {"PELTON_FILE", "f"}},
                              "file = \"g\"\nmodel = \"y\"\n");
  EXPECT_EQ(words.text("MODEL"), "m");
  EXPECT_FALSE(words.has("--model"));
  EXPECT_EQ(words.text("--prompt"), "p");
  EXPECT_FALSE(words.has("--file"));
  const Arguments variables = in_effect({}, {{"PELTON_FILE", "f"}}, "prompt = \"g\"\n");
  EXPECT_EQ(variables.text("--file"), "f");
  EXPECT_FALSE(variables.has("--prompt"));
}

TEST_F(Precedence, A7_TwoOfOneSourceExcludeEachOther) {
  const Error words = refusal({"--prompt", "p", "--file", "f"}, {});
  EXPECT_EQ(exit_code(words), kExitUsage);
  EXPECT_THAT(words.message, HasSubstr("--prompt and --file exclude each other"));
  EXPECT_THAT(refusal({"m", "--model", "m"}, {}).message, HasSubstr("MODEL and --model"));
  const Error variables = refusal({}, {{"PELTON_PROMPT", "p"}, {"PELTON_FILE", "f"}});
  EXPECT_EQ(exit_code(variables), kExitBadConfig);
  EXPECT_THAT(variables.message, HasSubstr("$PELTON_PROMPT and $PELTON_FILE exclude each other"));
  const Error file = refusal({}, {}, "prompt = \"p\"\nfile = \"f\"\n");
  EXPECT_EQ(exit_code(file), kExitBadConfig);
  EXPECT_THAT(file.message, HasSubstr(file_ + ":1 and " + file_ + ":2 exclude each other"));
}

TEST_F(Precedence, A7_AnAlternativeFromBelowYieldsToAWord) {
  const Arguments port = in_effect({"--port", "1"}, {{"PELTON_URL", "u"}});
  EXPECT_EQ(port.integer("--port"), 1);
  EXPECT_FALSE(port.has("--url"));
  const Arguments url = in_effect({"--url", "u"}, {{"PELTON_PORT", "1"}});
  EXPECT_EQ(url.text("--url"), "u");
  EXPECT_EQ(url.origin("--port"), "default");
  EXPECT_FALSE(in_effect({"--port", "1"}, {}, "url = \"u\"\n").has("--url"));
  EXPECT_FALSE(in_effect({}, {{"PELTON_PORT", "1"}}, "url = \"u\"\n").has("--url"));
  EXPECT_THAT(refusal({"--port", "1", "--url", "u"}, {}).message,
              HasSubstr("no effect with --url"));
}

// Another way of working is not chosen behind somebody's back.
TEST_F(Precedence, A7_AWordThatAVariablesChoiceLeavesWithoutEffectIsRefusedWithItsName) {
  const Error error = refusal({"--length", "3"}, {{"PELTON_KIND", "trace"}});
  EXPECT_EQ(exit_code(error), kExitUsage);
  EXPECT_THAT(error.message, AllOf(HasSubstr("--length has no effect with --kind trace"),
                                   HasSubstr("$PELTON_KIND says")));
  EXPECT_THAT(refusal({"--length", "3"}, {}, "kind = \"trace\"\n").message,
              HasSubstr(".toml:1 says"));
  EXPECT_EQ(
      in_effect({"--length", "3", "--kind", "random"}, {{"PELTON_KIND", "trace"}}).text("--length"),
      "3");
}

TEST_F(Precedence, A7_AVariableWithoutEffectIsNotTaken) {
  const Arguments alone = in_effect({}, {{"PELTON_SPEED", "2"}, {"PELTON_AGAIN", "3"}});
  EXPECT_EQ(alone.origin("--speed"), "default");
  EXPECT_FALSE(alone.has("--again"));
  EXPECT_EQ(in_effect({"--kind", "trace"}, {{"PELTON_SPEED", "2"}}).number("--speed"), 2);
  EXPECT_FALSE(in_effect({"--kind", "trace"}, {{"PELTON_LENGTH", "2"}}).has("--length"));
}

TEST_F(Precedence, A7_AFilesValueWithoutEffectIsAnErrorWithItsPlace) {
  const Error error = refusal({}, {}, "\nspeed = 2\n");
  EXPECT_EQ(exit_code(error), kExitBadConfig);
  EXPECT_THAT(error.message, HasSubstr(file_ + ":2: speed has an effect only with --kind trace"));
  EXPECT_THAT(refusal({}, {}, "url = \"u\"\nport = 1\n").message,
              HasSubstr(file_ + ":2: port has no effect with --url"));
  // But not where a word or a variable has taken its effect away, nor as --print-config prints it.
  const std::string whole = "kind = \"trace\"\nspeed = 2\n";
  EXPECT_EQ(in_effect({}, {}, whole).number("--speed"), 2);
  EXPECT_EQ(in_effect({"--kind", "random"}, {}, whole).origin("--speed"), "default");
  EXPECT_EQ(in_effect({}, {{"PELTON_KIND", "random"}}, whole).origin("--speed"), "default");
  EXPECT_EQ(in_effect({}, {}, "speed = 1.0\nport = 8000\n").number("--speed"), 1);
  EXPECT_EQ(in_effect({"--url", "u"}, {}, "port = 1\n").integer("--port"), 8000);
}

TEST_F(Precedence, ConfigurationMistakesHaveTheirExitCodeAndPlace) {
  EXPECT_EQ(exit_of({"--port", "many"}, {}), kExitUsage);
  EXPECT_EQ(exit_of({}, {{"PELTON_PORT", "many"}}), kExitBadConfig);
  EXPECT_EQ(exit_of({}, {{"PELTON_KIND", "none"}}), kExitBadConfig);
  EXPECT_EQ(exit_of({}, {}, "port = 99999\n"), kExitBadConfig);
  // What the verb itself finds.
  EXPECT_EQ(exit_of({"--date", "x"}, {}), kExitUsage);
  EXPECT_EQ(exit_of({}, {{"PELTON_DATE", "x"}}), kExitBadConfig);
  testing::internal::CaptureStderr();
  EXPECT_EQ(exit_of({}, {}, "\ndate = \"x\"\n"), kExitBadConfig);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr(file_ + ":2: --date is no day"));
}

}  // namespace
}  // namespace pelton::cli
