#include "cli/foreign_flags.h"

#include <gmock/gmock.h>

namespace pelton::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Verb verb() {
  Verb serve{.name = "serve", .positionals = {{.name = "MODEL", .help = "a model"}}};
  serve.flags = {{.name = "--port", .value = "N", .help = "where", .kind = Flag::Kind::kInteger}};
  serve.foreign = {
      {.names = {"--model"}, .takes_value = true, .is_positional = true, .taken = {}, .why = ""},
      {.names = {"--eager"}, .taken = {"*"}, .why = "it always is"},
      {.names = {"--sizes"}, .takes_value = true, .takes_list = true, .taken = {"*"}, .why = "no"},
      {.names = {"--tp", "-tp"}, .takes_value = true, .taken = {"1"}, .why = "there is one"},
      {.names = {"--lora"}, .taken = {}, .why = "there are none"},
      {.names = {"--token"}, .takes_value = true, .taken = {}, .why = "there are none"},
  };
  return serve;
}

// CLI11 has none of one dash and several letters.
TEST(ForeignFlags, ShortWordsOfOursBecomeTheirFlags) {
  Verb serve = verb();
  serve.flags.push_back(
      {.name = "--pipeline", .value = "N", .help = "", .aliases = {"--pp", "-pp"}});
  const auto native = native_words(serve, {"m", "-pp", "2", "-pp=3", "--pp", "4", "-px"});
  ASSERT_TRUE(native.ok());
  EXPECT_THAT(native->words,
              ElementsAre("m", "--pipeline", "2", "--pipeline=3", "--pp", "4", "-px"));
}

TEST(ForeignFlags, AreTakenWithANoteRefusedOrMoved) {
  const auto native =
      native_words(verb(), {"--model", "m", "--eager", "--port", "3", "--tp=1", "-tp", "1"});
  ASSERT_TRUE(native.ok());
  EXPECT_THAT(native->words, ElementsAre("m", "--port", "3"));
  EXPECT_THAT(native->notes, ElementsAre("--eager changes nothing here: it always is",
                                         "--tp 1 changes nothing here: there is one",
                                         "-tp 1 changes nothing here: there is one"));
  EXPECT_THAT(native_words(verb(), {"m", "--port", "3"})->notes, IsEmpty());
  for (const auto& [words, error] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"m", "--tp", "8"}, "--tp 8 is not supported (taken: 1): there is one"},
           {{"m", "--lora"}, "--lora is not supported: there are none"},
           {{"m", "--tp"}, "--tp wants a value"},
           {{"--tp=", "m"}, "--tp  is not supported"},
           {{"m", "--sizes", "--port", "3"}, "--sizes wants a value"},
           {{"--model", "--eager"}, "--model wants a value"},
           {{"m", "--token", "secret"}, "--token is not supported: there are none"}}) {
    const auto refused = native_words(verb(), words);
    ASSERT_FALSE(refused.ok());
    EXPECT_THAT(refused.error().message, HasSubstr(error));
  }
}

TEST(ForeignFlags, APositionalsFlagStandsBeforeFlagsOfSeveralWords) {
  EXPECT_THAT(native_words(verb(), {"--names", "a", "--model", "m"})->words,
              ElementsAre("m", "--names", "a"));
  EXPECT_THAT(native_words(verb(), {"m", "--names", "a", "b", "--model=n"})->words,
              ElementsAre("m", "n", "--names", "a", "b"));
  EXPECT_THAT(native_words(verb(), {"--eager", "m", "--port", "3"})->words,
              ElementsAre("m", "--port", "3"));
}

TEST(ForeignFlags, AWordTooManyIsNoSecondModel) {
  EXPECT_THAT(native_words(verb(), {"m", "--sizes", "1", "2", "4", "--port", "3"})->words,
              ElementsAre("m", "--port", "3"));
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"m", "--eager", "secret"},
                                             {"m", "--tp", "1", "secret"},
                                             {"--model", "m", "--tp=1", "secret"}}) {
    const auto refused = native_words(verb(), words);
    ASSERT_FALSE(refused.ok());
    EXPECT_THAT(refused.error().message, HasSubstr("more stands behind it"));
    EXPECT_THAT(refused.error().message, testing::Not(HasSubstr("secret")));
  }
}

TEST(ForeignFlags, StandInVariablesOfTheOtherPrefixToo) {
  Verb serve = verb();
  serve.other_prefix = "PELTON_TEST_OPTION_";
  const auto with = [&](const char* variable, const char* value) {
    setenv(variable, value, 1);
    auto native = native_words(serve, {"m"});
    unsetenv(variable);
    return native;
  };
  EXPECT_THAT(with("PELTON_TEST_OPTION_TP", "1")->notes,
              ElementsAre("$PELTON_TEST_OPTION_TP 1 changes nothing here: there is one"));
  EXPECT_THAT(with("PELTON_TEST_OPTION_TP", "auto")->notes, IsEmpty());
  EXPECT_THAT(with("PELTON_TEST_OPTION_EAGER", "True")->notes, testing::SizeIs(1));
  EXPECT_THAT(with("PELTON_TEST_OPTION_EAGER", "false")->notes, IsEmpty());
  const auto refused = with("PELTON_TEST_OPTION_TP", "8");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kBadConfig);
  EXPECT_THAT(refused.error().message, HasSubstr("$PELTON_TEST_OPTION_TP 8 is not supported"));
}

// A slip in a name is named; its value is not shown.
TEST(ForeignFlags, AVariableThatNobodyReadsIsNamed) {
  Verb serve = verb();
  serve.other_prefix = "PELTON_TEST_OPTION_";
  setenv("PELTON_TEST_OPTION_PROT", "secret", 1);
  setenv("PELTON_TEST_OPTION_PORT", "3", 1);
  const auto native = native_words(serve, {"m"});
  unsetenv("PELTON_TEST_OPTION_PROT");
  unsetenv("PELTON_TEST_OPTION_PORT");
  ASSERT_TRUE(native.ok());
  EXPECT_THAT(
      native->notes,
      ElementsAre("$PELTON_TEST_OPTION_PROT is not known, and changes nothing; did you mean "
                  "'PELTON_TEST_OPTION_PORT'?"));
}

TEST(ForeignFlags, BelongToTheirVerb) {
  Verb serve = verb();
  serve.summary = "serves";
  serve.run = [](const Arguments&) { return Result<void>(); };
  const CommandLine line({.name = "pelton", .version = "1", .summary = "x", .examples = {}},
                         {serve});
  const auto request = line.parse({"serve", "--eager", "--model", "m", "--port", "4"});
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_EQ(request->arguments.text("MODEL"), "m");
  EXPECT_EQ(request->arguments.integer("--port"), 4);
  EXPECT_THAT(request->notes, ElementsAre(HasSubstr("--eager")));
  EXPECT_THAT(line.help(serve), testing::Not(HasSubstr("--eager")));
}

}  // namespace
}  // namespace pelton::cli
