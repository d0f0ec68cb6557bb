#include "cli/command_line.h"

#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/exit_code.h"
#include "cli/flag_names.h"

namespace pelton::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

CommandLine example() {
  Verb serve{.name = "serve",
             .summary = "Serves a model",
             .positionals = {{"MODEL", "a folder"}},
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
                       {.name = "--prompt", .value = "TEXT"},
                       {.name = "--temperature", .value = "T", .kind = Flag::Kind::kNumber},
                       {.name = "--kernels", .value = "K", .choices = {"auto", "reference"}},
                       {.name = "--log-json", .kind = Flag::Kind::kSwitch}},
             .examples = {"pelton serve folder"},
             .run = [](const Arguments&) -> Result<void> {
               return Error{ErrorCode::kDoesNotFit, "too big"};
             }};
  Verb latency{.name = "bench latency",
               .summary = "Measures",
               .positionals = {{"MODEL", "a folder"}},
               .flags = {{.name = "--json", .value = "FILE", .required = true},
                         {.name = "--batch", .value = "N"},
                         {.name = "--rows", .value = "N", .only_with = {{"--batch"}}},
                         {.name = "--columns", .not_with = {{"--batch"}}},
                         {.name = "--forgotten", .kind = Flag::Kind::kSwitch},
                         {.name = "--theirs", .kind = Flag::Kind::kSwitch, .ignored = true}},
               .run = [](const Arguments& arguments) -> Result<void> {
                 for (const char* flag : {"MODEL", "--json", "--batch", "--rows", "--columns"}) {
                   arguments.has(flag);
                 }
                 return {};
               }};
  Verb sample{.name = "bench sample",
              .summary = "Draws",
              .flags = {{.name = "--heat", .value = "T", .kind = Flag::Kind::kNumber},
                        {.name = "--draws", .value = "N", .not_with = {{"--heat", {"0"}}}}},
              .run = [](const Arguments& arguments) -> Result<void> {
                arguments.has("--heat");
                arguments.has("--draws");
                return {};
              }};
  Verb compare{.name = "bench compare",
               .summary = "Compares",
               .positionals = {{.name = "FILE", .help = "results", .many = true}},
               .flags = {{.name = "--header", .value = "K=V", .many = true},
                         {.name = "--html", .value = "FILE"}},
               .run = [](const Arguments&) -> Result<void> { return {}; }};
  return CommandLine({.name = "pelton", .version = "1.2.3", .summary = "a test"},
                     {serve, latency, sample, compare});
}

std::string error_of(const std::vector<std::string>& words) {
  const auto request = example().parse(words);
  return request.ok() ? "" : request.error().message;
}

TEST(CommandLine, ReadsFlagsOfEveryKind) {
  const CommandLine line = example();
  const auto request = line.parse({"serve", "m", "--memory=4GiB", "--prompt", "-5 [x]",
                                   "--temperature", "0.5", "--log-json", "--kernels", "auto"});
  ASSERT_TRUE(request.ok()) << request.error().message;
  const Arguments& arguments = request->arguments;
  EXPECT_EQ(arguments.text("MODEL"), "m");
  EXPECT_EQ(arguments.integer("--memory"), int64_t{4} << 30);
  EXPECT_EQ(arguments.text("--prompt"), "-5 [x]");
  EXPECT_EQ(arguments.number("--temperature"), 0.5);
  EXPECT_TRUE(arguments.has("--log-json"));
  EXPECT_EQ(arguments.integer("--port"), 8000);
}

// "scale" and "scale plan" are both verbs.
TEST(CommandLine, AVerbMayHaveOthersBelowIt) {
  const auto nothing = [](const Arguments&) -> Result<void> { return {}; };
  const CommandLine line({.name = "pelton", .version = "1", .summary = "S"},
                         {{.name = "scale",
                           .summary = "Scales",
                           .flags = {{.name = "--now", .kind = Flag::Kind::kSwitch}},
                           .run = nothing},
                          {.name = "scale plan",
                           .summary = "Plans",
                           .positionals = {{"MODEL", "a folder"}},
                           .run = nothing}});
  EXPECT_TRUE(line.parse({"scale", "--now"})->arguments.has("--now"));
  EXPECT_EQ(line.parse({"scale", "plan", "m"})->arguments.text("MODEL"), "m");
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"scale", "--help"}, {"help", "scale"}}) {
    EXPECT_THAT(line.parse(words)->text, HasSubstr("--now"));
  }
  EXPECT_THAT(line.parse({"scale", "plan", "--help"})->text, HasSubstr("Plans"));
  EXPECT_THAT(line.parse({"scale", "plon"}).error().message, HasSubstr("unexpected argument"));
}

TEST(CommandLine, TakesTextAsItIs) {
  for (const std::string text : {"", "[1,2]", "--", "--port", "a b", "\"quoted\"", "x=y"}) {
    const CommandLine line = example();
    const auto request = line.parse({"serve", "m", "--prompt", text});
    ASSERT_TRUE(request.ok()) << text << ": " << request.error().message;
    EXPECT_TRUE(request->arguments.has("--prompt"));
    EXPECT_EQ(request->arguments.text("--prompt"), text);
  }
}

TEST(CommandLine, AFlagIsNoValueOfTheOneBefore) {
  for (const std::string next : {"--batch", "--batch=2", "--rows", "--forgotten", "--help", "-h"}) {
    const std::string error = error_of({"bench", "latency", "m", "--json", next, "2"});
    EXPECT_THAT(error, HasSubstr("--json wants a value, and " + next.substr(0, next.find('='))));
    EXPECT_THAT(error, HasSubstr("is a flag; --json=" + next.substr(0, next.find('='))));
  }
  const CommandLine line = example();
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"--json=--batch"}, {"--json", "-"}, {"--json", "--no-flag"}}) {
    std::vector<std::string> all = {"bench", "latency", "m"};
    all.insert(all.end(), words.begin(), words.end());
    const auto request = line.parse(all);
    ASSERT_TRUE(request.ok()) << request.error().message;
    EXPECT_TRUE(request->arguments.has("--json"));
    EXPECT_FALSE(request->arguments.has("--batch"));
  }
}

TEST(CommandLine, LastOfARepeatedFlagCounts) {
  const CommandLine line = example();
  EXPECT_EQ(line.parse({"serve", "m", "--port", "1", "--port", "2"})->arguments.integer("--port"),
            2);
}

// But not of one that is alone in a group.
TEST(CommandLine, AFlagThatMayComeOnceIsRefusedTwice) {
  const CommandLine line({.name = "pelton", .version = "1", .summary = "S"},
                         {{.name = "erase",
                           .summary = "Erases",
                           .flags = {{.name = "--tenant"}, {.name = "--admin"}},
                           .exclusive = {{"--tenant"}},
                           .run = [](const Arguments&) -> Result<void> { return {}; }}});
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"erase", "--tenant", "a", "--tenant", "b"},
        {"erase", "--tenant=a", "--admin", "x", "--tenant=a"},
        {"erase", "--tenant=", "--tenant", "b"}}) {
    const auto request = line.parse(words);
    ASSERT_FALSE(request.ok());
    EXPECT_EQ(request.error().message, "--tenant is given twice: give one");
    EXPECT_EQ(request.error().field, "tenant");
    EXPECT_EQ(exit_code(request.error()), kExitUsage);
  }
  setenv("PELTON_TENANT", "c", 1);
  const auto once = line.parse({"erase", "--tenant", "a", "--admin", "x", "--admin", "y"});
  unsetenv("PELTON_TENANT");
  ASSERT_TRUE(once.ok()) << once.error().message;
  EXPECT_EQ(once->arguments.text("--tenant"), "a");
  EXPECT_EQ(once->arguments.text("--admin"), "y");
}

TEST(CommandLine, AnAliasIsTheSameFlag) {
  const CommandLine line = example();
  EXPECT_EQ(line.parse({"serve", "m", "--gpu-memory", "2KiB"})->arguments.integer("--memory"),
            2048);
  EXPECT_EQ(line.parse({"serve", "m", "--gpu-memory=1", "--memory=2"})->arguments.text("--memory"),
            "2");
  setenv("PELTON_GPU_MEMORY", "3", 1);
  EXPECT_EQ(line.parse({"serve", "m"})->arguments.integer("--memory"), 3);
  setenv("PELTON_MEMORY", "4", 1);
  EXPECT_EQ(line.parse({"serve", "m"})->arguments.integer("--memory"), 4);
  unsetenv("PELTON_MEMORY");
  unsetenv("PELTON_GPU_MEMORY");
  EXPECT_THAT(line.parse({"serve", "--help"})->text, HasSubstr("also --gpu-memory"));
  EXPECT_THAT(error_of({"serve", "m", "--gpu-memery", "1"}), HasSubstr("'--gpu-memory'"));
}

TEST(CommandLine, SomeTakeManyWords) {
  const auto request = example().parse({"bench", "compare", "a.json", "b.json", "--header", "A=1",
                                        "B=2", "--html", "-", "--header", "C=3"});
  ASSERT_TRUE(request.ok()) << request.error().message;
  const Arguments& arguments = request->arguments;
  EXPECT_THAT(arguments.list("FILE"), testing::ElementsAre("a.json", "b.json"));
  EXPECT_THAT(arguments.list("--header"), testing::ElementsAre("A=1", "B=2", "C=3"));
  EXPECT_EQ(arguments.text("--header"), "A=1 B=2 C=3");
  setenv("PELTON_HEADER", "D=4 E=5", 1);
  const auto by_environment = example().parse({"bench", "compare", "a.json"});
  unsetenv("PELTON_HEADER");
  EXPECT_THAT(by_environment->arguments.list("--header"), testing::ElementsAre("D=4", "E=5"));
  EXPECT_THAT(error_of({"bench", "compare"}), HasSubstr("FILE is missing"));
  EXPECT_THAT(error_of({"serve", "a", "b"}), HasSubstr("unexpected argument 'b'"));
}

TEST(CommandLine, EnvironmentStandsIn) {
  setenv("PELTON_PORT", "1234", 1);
  const CommandLine line = example();
  EXPECT_EQ(line.parse({"serve", "m"})->arguments.integer("--port"), 1234);
  EXPECT_EQ(line.parse({"serve", "m", "--port", "5"})->arguments.integer("--port"), 5);
  setenv("PELTON_PORT", "many", 1);
  EXPECT_FALSE(line.parse({"serve", "m"}).ok());
  unsetenv("PELTON_PORT");
}

// As the containers of others are configured.
TEST(CommandLine, OtherVariablesStandInToo) {
  Verb verb{.name = "serve",
            .summary = "s",
            .positionals = {{.name = "MODEL", .help = "m", .variables = {"OPTION_MODEL_ID"}}},
            .flags = {{.name = "--max-num-seqs",
                       .value = "N",
                       .help = "h",
                       .kind = Flag::Kind::kInteger,
                       .aliases = {"--max-rolling-batch-size"}},
                      {.name = "--port",
                       .value = "N",
                       .help = "h",
                       .kind = Flag::Kind::kInteger,
                       .variables = {"SAGEMAKER_BIND_TO_PORT"}}},
            .run = [](const Arguments&) { return Result<void>(); },
            .other_prefix = "OPTION_"};
  const CommandLine line({.name = "pelton", .version = "1", .summary = "s"}, {verb});
  EXPECT_FALSE(line.parse({"serve"}).ok());
  const std::vector<std::pair<const char*, const char*>> variables = {
      {"OPTION_MODEL_ID", "some/model"},
      {"OPTION_MAX_ROLLING_BATCH_SIZE", "7"},
      {"SAGEMAKER_BIND_TO_PORT", "8080"},
      {"OPTION_NOBODY_KNOWS", "x"}};
  for (const auto& [name, value] : variables) setenv(name, value, 1);
  const auto by_environment = line.parse({"serve"});
  ASSERT_TRUE(by_environment.ok()) << by_environment.error().message;
  EXPECT_EQ(by_environment->arguments.text("MODEL"), "some/model");
  EXPECT_EQ(by_environment->arguments.integer("--max-num-seqs"), 7);
  EXPECT_EQ(by_environment->arguments.integer("--port"), 8080);
  setenv("PELTON_MAX_NUM_SEQS", "9", 1);  // ours goes before
  EXPECT_EQ(line.parse({"serve", "m"})->arguments.integer("--max-num-seqs"), 9);
  EXPECT_EQ(line.parse({"serve", "m"})->arguments.text("MODEL"), "m");
  unsetenv("PELTON_MAX_NUM_SEQS");
  for (const auto& [name, value] : variables) unsetenv(name);
}

TEST(CommandLine, OtherVariablesMayBeSpelledAsOthersDo) {
  Verb verb{.name = "serve",
            .summary = "s",
            .flags = {{.name = "--max-num-seqs",
                       .value = "N",
                       .help = "h",
                       .kind = Flag::Kind::kInteger,
                       .default_text = "5"},
                      {.name = "--enable-it", .help = "h", .kind = Flag::Kind::kSwitch},
                      {.name = "--disable-it", .help = "h", .kind = Flag::Kind::kSwitch},
                      {.name = "--log-level",
                       .value = "L",
                       .help = "h",
                       .default_text = "warning",
                       .choices = {"info", "warning"}},
                      {.name = "--dtype",
                       .value = "T",
                       .help = "h",
                       .default_text = "f16",
                       .choices = {"auto", "f16", "fp8"},
                       .other_choices = {{"fp8_e4m3", "fp8"}}},
                      {.name = "--port",
                       .value = "N",
                       .help = "h",
                       .kind = Flag::Kind::kInteger,
                       .default_text = "8000",
                       .variables = {"PELTON_TEST_BIND_TO_PORT"}},
                      {.name = "--name", .value = "N", .help = "h", .default_text = "x"}},
            .run = [](const Arguments&) { return Result<void>(); },
            .other_prefix = "OPTION_"};
  const CommandLine line({.name = "pelton", .version = "1", .summary = "s"}, {verb});
  const auto with = [&](const char* variable, const char* value) {
    setenv(variable, value, 1);
    auto parsed = line.parse({"serve"});
    unsetenv(variable);
    return parsed;
  };
  EXPECT_TRUE(with("OPTION_ENABLE_IT", "True")->arguments.has("--enable-it"));
  const auto denied = with("OPTION_ENABLE_IT", "False");
  ASSERT_TRUE(denied.ok());
  EXPECT_FALSE(denied->arguments.has("--enable-it"));
  EXPECT_EQ(denied->arguments.origin("--enable-it"), "$OPTION_ENABLE_IT");
  EXPECT_EQ(line.parse({"serve"})->arguments.origin("--enable-it"), "default");
  EXPECT_EQ(with("OPTION_LOG_LEVEL", "INFO")->arguments.text("--log-level"), "info");
  EXPECT_EQ(with("OPTION_DTYPE", "fp8_e4m3")->arguments.text("--dtype"), "fp8");
  EXPECT_EQ(with("OPTION_DTYPE", "auto")->arguments.text("--dtype"), "auto");
  EXPECT_EQ(with("OPTION_LOG_LEVEL", "auto")->arguments.text("--log-level"), "warning");
  // What leaves it to us hides no other variable.
  setenv("PELTON_TEST_BIND_TO_PORT", "9000", 1);
  EXPECT_EQ(with("OPTION_PORT", "auto")->arguments.origin("--port"), "$PELTON_TEST_BIND_TO_PORT");
  unsetenv("PELTON_TEST_BIND_TO_PORT");
  EXPECT_EQ(with("OPTION_MAX_NUM_SEQS", "auto")->arguments.integer("--max-num-seqs"), 5);
  EXPECT_EQ(with("OPTION_NAME", "Auto")->arguments.text("--name"), "Auto");
  EXPECT_FALSE(with("OPTION_DTYPE", "fp8_e5m2").ok());
  EXPECT_FALSE(with("OPTION_MAX_NUM_SEQS", "many").ok());
  // Ours are spelled as flags are.
  EXPECT_FALSE(with("PELTON_DTYPE", "fp8_e4m3").ok());
  EXPECT_FALSE(with("PELTON_LOG_LEVEL", "INFO").ok());
}

TEST(CommandLine, SaysWhatIsWrong) {
  EXPECT_THAT(error_of({"serve", "m", "--prot", "1"}),
              HasSubstr("unknown flag '--prot'; did you mean '--port'?"));
  EXPECT_THAT(error_of({"serve", "m", "--zzzzzzzz"}), HasSubstr("unknown flag '--zzzzzzzz'"));
  EXPECT_THAT(error_of({"serv", "m"}), HasSubstr("unknown verb 'serv'; did you mean 'serve'?"));
  EXPECT_THAT(error_of({"serve"}), HasSubstr("MODEL is missing"));
  EXPECT_THAT(error_of({"serve", "m", "n"}), HasSubstr("unexpected argument 'n'"));
  EXPECT_THAT(error_of({"serve", "m", "--port", "65536"}), HasSubstr("between 0 and 65535"));
  EXPECT_THAT(error_of({"serve", "m", "--port", "1.5"}), HasSubstr("a whole number"));
  EXPECT_THAT(error_of({"serve", "m", "--port"}), HasSubstr("--port"));
  EXPECT_THAT(error_of({"serve", "m", "--temperature", "nan"}), HasSubstr("a number"));
  EXPECT_THAT(error_of({"serve", "m", "--kernels", "fast"}), HasSubstr("auto, reference"));
  EXPECT_THAT(error_of({"serve", "m", "--memory", "4X"}), HasSubstr("is not a size"));
  EXPECT_THAT(error_of({"bench", "m"}), HasSubstr("bench latency"));
  EXPECT_THAT(error_of({"bench", "latency", "m"}), HasSubstr("--json is missing"));
  EXPECT_THAT(error_of({"help", "nothing"}), HasSubstr("unknown verb"));
}

TEST(CommandLine, HelpNamesEverything) {
  const CommandLine line = example();
  const std::string all = line.parse({"--help"})->text;
  EXPECT_THAT(all, HasSubstr("serve MODEL"));
  EXPECT_THAT(all, HasSubstr("bench latency MODEL"));
  const std::string serve = line.parse({"serve", "--help"})->text;
  EXPECT_THAT(serve, HasSubstr("--port N"));
  EXPECT_THAT(serve, HasSubstr("[default: 8000]"));
  EXPECT_THAT(serve, HasSubstr("pelton serve folder"));
  EXPECT_EQ(line.parse({"help", "serve"})->text, serve);
  EXPECT_EQ(line.parse({"--version"})->text, "pelton 1.2.3\n");
}

TEST(CommandLine, ExitCodes) {
  const CommandLine line = example();
  const char* fails[] = {"pelton", "serve", "m"};
  EXPECT_EQ(line.run(3, fails), kExitDoesNotFit);
  const char* fine[] = {"pelton", "bench", "latency", "m", "--json", "f"};
  EXPECT_EQ(line.run(6, fine), kExitOk);
  const char* unknown[] = {"pelton", "fly"};
  EXPECT_EQ(line.run(2, unknown), kExitUsage);
  const char* nothing[] = {"pelton"};
  EXPECT_EQ(line.run(1, nothing), kExitUsage);
  EXPECT_EQ(exit_code({ErrorCode::kNotFound, ""}), 4);
  EXPECT_EQ(exit_code({ErrorCode::kBadCheckpoint, ""}), 4);
  EXPECT_EQ(exit_code({ErrorCode::kBadConfig, ""}), 3);
  EXPECT_EQ(exit_code({ErrorCode::kAddressInUse, ""}), 6);
  EXPECT_EQ(exit_code({ErrorCode::kCancelled, ""}), 130);
  EXPECT_EQ(exit_code({ErrorCode::kIo, ""}), 1);
}

int run(std::vector<const char*> words) {
  words.insert(words.begin(), "pelton");
  return example().run(static_cast<int>(words.size()), words.data());
}

TEST(CommandLine, A7_NoFlagIsTakenThatHasNoEffect) {
  EXPECT_EQ(run({"bench", "latency", "m", "--json", "f", "--batch", "2", "--rows", "3"}), kExitOk);
  EXPECT_THAT(error_of({"bench", "latency", "m", "--json", "f", "--rows", "3"}),
              HasSubstr("--rows has an effect only with --batch"));
  EXPECT_THAT(error_of({"bench", "latency", "m", "--json", "f", "--batch", "2", "--columns", "3"}),
              HasSubstr("--columns has no effect with --batch"));
  // A number is the same however it is written.
  for (const char* zero : {"0", "0.0", "0.00", "0e3", ".0"}) {
    EXPECT_THAT(error_of({"bench", "sample", "--heat", zero, "--draws", "3"}),
                HasSubstr("--draws has no effect with --heat 0"))
        << zero;
  }
  EXPECT_EQ(run({"bench", "sample", "--heat", "0.5", "--draws", "3"}), kExitOk);
  // Nobody has described it, and nobody has read it.
  EXPECT_EQ(run({"bench", "latency", "m", "--json", "f", "--forgotten"}), kExitUsage);
  EXPECT_EQ(run({"bench", "latency", "m", "--json", "f", "--theirs"}), kExitOk);
  // What stands in the environment is for all verbs.
  setenv("PELTON_FORGOTTEN", "1", 1);
  setenv("PELTON_ROWS", "1", 1);
  EXPECT_EQ(run({"bench", "latency", "m", "--json", "f"}), kExitOk);
  unsetenv("PELTON_FORGOTTEN");
  unsetenv("PELTON_ROWS");
}

TEST(CommandLine, C10_AnswersWhatPeopleTry) {
  for (const char* asked : {"-v", "-V", "version", "--version"}) {
    EXPECT_EQ(example().parse({asked})->text, "pelton 1.2.3\n") << asked;
  }
  for (const std::vector<std::string>& asked :
       {std::vector<std::string>{"bench", "--help"}, {"bench", "-h"}, {"help", "bench"}}) {
    const auto request = example().parse(asked);
    ASSERT_TRUE(request.ok()) << request.error().message;
    EXPECT_THAT(request->text, HasSubstr("bench latency"));
    EXPECT_THAT(request->text, Not(HasSubstr("serve")));
  }
  EXPECT_FALSE(example().parse({"bench"}).ok());
  EXPECT_THAT(error_of({"bench", "latncy"}), HasSubstr("did you mean 'bench latency'"));
  EXPECT_THAT(error_of({"serve", "--model", "m"}), HasSubstr("give the MODEL itself"));
  EXPECT_THAT(example().help(), HasSubstr(" 7 serve"));
}

TEST(CommandLine, C7_HelpFitsTheTerminal) {
  for (const int width : {24, 40, 72, 80, 100, 200}) {
    setenv("COLUMNS", std::to_string(width).c_str(), 1);
    const CommandLine line = example();
    for (const std::string& text : {line.help(), line.help(line.verbs()[1])}) {
      size_t widest = 0;
      for (size_t at = 0; at < text.size();) {
        const size_t end = text.find('\n', at);
        widest = std::max(widest, end - at);
        at = end + 1;
      }
      EXPECT_LE(widest, static_cast<size_t>(std::min(width, 100))) << text;
    }
  }
  unsetenv("COLUMNS");
}

TEST(CommandLine, SwitchesCanBeTurnedOff) {
  const CommandLine line = example();
  EXPECT_FALSE(line.parse({"serve", "m", "--log-json=false"})->arguments.has("--log-json"));
  EXPECT_TRUE(line.parse({"serve", "m", "--log-json=true"})->arguments.has("--log-json"));
  for (const char* off : {"0", "false", "no", "off"}) {
    setenv("PELTON_LOG_JSON", off, 1);
    EXPECT_FALSE(line.parse({"serve", "m"})->arguments.has("--log-json")) << off;
    EXPECT_TRUE(line.parse({"serve", "m", "--log-json"})->arguments.has("--log-json"));
  }
  setenv("PELTON_LOG_JSON", "yes", 1);
  EXPECT_TRUE(line.parse({"serve", "m"})->arguments.has("--log-json"));
  EXPECT_FALSE(line.parse({"serve", "m", "--log-json=0"})->arguments.has("--log-json"));
  setenv("PELTON_LOG_JSON", "perhaps", 1);
  EXPECT_THAT(error_of({"serve", "m"}), HasSubstr("$PELTON_LOG_JSON: --log-json is true or false"));
  unsetenv("PELTON_LOG_JSON");
}

TEST(CommandLine, EnvironmentNames) {
  EXPECT_EQ(environment_name("--max-num-seqs"), "PELTON_MAX_NUM_SEQS");
}

// What is said of one model while the verb runs.
TEST(WithValues, OtherValuesAreCheckedAsWordsAre) {
  const CommandLine line = example();
  const auto request = line.parse({"serve", "m", "--port", "9000"});
  ASSERT_TRUE(request.ok());
  const std::vector<Flag>& flags = request->verb->flags;
  const auto with = [&](const std::vector<std::pair<std::string, std::string>>& values) {
    return with_values(flags, request->arguments, values);
  };
  const Result<Arguments> changed = with({{"memory", "4GiB"}, {"log-json", "true"}});
  ASSERT_TRUE(changed.ok()) << changed.error().message;
  EXPECT_EQ(changed->integer("--memory"), int64_t{4} << 30);
  EXPECT_TRUE(changed->has("--log-json"));
  EXPECT_EQ(changed->integer("--port"), 9000) << "what was said before stays";
  EXPECT_FALSE(request->arguments.has("--memory")) << "and is not changed";
  const auto refused = [&](const std::string& name, const std::string& text) {
    const Result<Arguments> wrong = with({{name, text}});
    if (wrong.ok()) return std::string("taken");
    EXPECT_EQ(wrong.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(wrong.error().field, name);
    return wrong.error().message;
  };
  EXPECT_THAT(refused("port", "70000"), HasSubstr("65535"));
  EXPECT_THAT(refused("kernels", "fast"), HasSubstr("reference"));
  EXPECT_THAT(refused("log-json", "perhaps"), HasSubstr("true or false"));
  EXPECT_THAT(refused("memor", "1"), HasSubstr("did you mean 'memory'"));
  EXPECT_THAT(refused("log_jso", "1"), HasSubstr("did you mean 'log_json'"));
}

// As the command line takes them: aliases, names that turn a switch off, '_' for '-'.
TEST(WithValues, AFlagHasAllItsNames) {
  const std::vector<Flag> flags = {
      {.name = "--max-model-len", .kind = Flag::Kind::kInteger, .aliases = {"--context-length"}},
      {.name = "--caching",
       .kind = Flag::Kind::kSwitch,
       .default_text = "true",
       .negations = {"--no-caching"}},
      {.name = "--pin", .not_with = {{"--caching", {"false"}}}},
      {.name = "--kernels", .choices = {"avx2"}, .other_choices = {{"haswell", "avx2"}}}};
  const CommandLine line({.name = "p", .version = "1", .summary = "s", .examples = {}},
                         {{.name = "v", .flags = flags, .run = {}}});
  const auto request = line.parse({"v"});
  ASSERT_TRUE(request.ok()) << request.error().message;
  using Values = std::vector<std::pair<std::string, std::string>>;
  const auto with = [&](const Values& values) {
    return with_values(flags, request->arguments, values);
  };
  for (const char* name : {"max-model-len", "max_model_len", "context_length", "context-length"}) {
    const Result<Arguments> changed = with({{name, "7"}});
    ASSERT_TRUE(changed.ok()) << name << changed.error().message;
    EXPECT_EQ(changed->integer("--max-model-len"), 7) << name;
  }
  EXPECT_FALSE(with({{"no_caching", "true"}})->has("--caching"));
  EXPECT_TRUE(with({{"no-caching", "false"}})->has("--caching"));
  EXPECT_EQ(with({{"kernels", "haswell"}})->text("--kernels"), "avx2");

  const auto refused = [&](const Values& values) {
    const Result<Arguments> wrong = with(values);
    return wrong.ok() ? "taken" : wrong.error().field + ": " + wrong.error().message;
  };
  EXPECT_THAT(refused({{"max_model_len", "7"}, {"context_length", "8"}}),
              HasSubstr("context_length: 'context_length' is the same as 'max_model_len'"));
  EXPECT_THAT(refused({{"max_model_len", "7"}, {"max-model-len", "7"}}),
              HasSubstr("max-model-len: 'max-model-len' is the same as 'max_model_len'"));
  EXPECT_THAT(refused({{"caching", "true"}, {"no_caching", "true"}}), HasSubstr("the same as"));
  EXPECT_THAT(refused({{"no_caching", "true"}, {"pin", "x"}}),
              HasSubstr("pin: pin has no effect with no_caching"));
}

TEST(FieldNames, StandForFlagsInATextToWhoeverGaveFields) {
  const std::vector<Flag> flags = {
      {.name = "--max-model-len", .kind = Flag::Kind::kInteger, .aliases = {"--context-length"}},
      {.name = "--weights"},
      {.name = "--weights-cache"}};
  const auto text = [&](std::string_view said) { return with_field_names(said, flags, {}); };
  EXPECT_EQ(text("--max-model-len 9 is more than the model's 8"),
            "'max_model_len' 9 is more than the model's 8");
  EXPECT_EQ(text("lower --max-model-len or (--weights-cache DIR), --weights"),
            "lower 'max_model_len' or ('weights_cache' DIR), 'weights'");
  EXPECT_EQ(text("--weights: none"), "'weights': none");
  for (const char* stays :
       {"", "--", "a --threads", "/x/--weights", "--weights-caches", "a--", "-"}) {
    EXPECT_EQ(text(stays), stays);
  }
  EXPECT_EQ(with_field_names("--max-model-len 9", flags, {{"context-length", "9"}}),
            "'context-length' 9");
}

}  // namespace
}  // namespace pelton::cli
