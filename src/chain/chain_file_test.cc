// What a chain file may say wrong, and how it is said before anything runs.
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "chain/chain.h"
#include "chain/chain_graph.h"

namespace pelton::chain {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr std::string_view kHead = R"(name = "c"
input = {question = "string", k = "integer?"}
output = {text = "${b.text}"}
)";

std::string refusal(const std::string& steps) {
  const Result<Chain> chain = parse_chain(std::string(kHead) + steps, "c.toml");
  return chain.ok() ? "" : chain.error().message;
}

constexpr std::string_view kGood = R"([[step]]
name = "a"
use = "model:m"
with = {prompt = "${input.question}"}
[[step]]
name = "b"
use = "builtin:join"
with = {parts = ["${a.text}", "x"]}
)";

std::string with(std::string_view from, std::string_view to) {
  std::string text(kGood);
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(ChainFile, IsReadAndDrawn) {
  const Result<Chain> chain = parse_chain(std::string(kHead) + std::string(kGood), "c.toml");
  ASSERT_TRUE(chain.ok()) << chain.error().message;
  EXPECT_EQ(graph_text(*chain),
            "input: question (string), k (integer?)\n"
            "  1 a  model:m       needs input; gives object {text, finish_reason, usage}\n"
            "  2 b  builtin:join  needs a; gives object {text}\n"
            "output: text (string)\n");
  EXPECT_THAT(graph_dot(*chain), HasSubstr("\"a\" -> \"b\";"));
  EXPECT_THAT(graph_dot(*chain), HasSubstr("\"b\" -> \"output\";"));
}

TEST(ChainFile, ErrorsHaveTheLineAndTheNearestName) {
  EXPECT_EQ(refusal(with("${a.text}", "${aa.text}")),
            "c.toml:11: there is no step 'aa'; did you mean 'a'?; there are input, a, b");
  EXPECT_EQ(refusal(with("${a.text}", "${a.txt}")),
            "c.toml:11: there is no 'a.txt'; object {text, finish_reason, usage}; did you mean "
            "'text'?");
  EXPECT_THAT(refusal(with("${input.question}", "${input.questoin}")),
              HasSubstr("c.toml:7: there is no 'input.questoin'"));
  EXPECT_THAT(refusal(with("builtin:join", "builtin:jion")), HasSubstr("did you mean 'join'?"));
  EXPECT_THAT(refusal(with("parts =", "part =")), HasSubstr("did you mean 'parts'?"));
  EXPECT_THAT(refusal(with("with = {p", "wiht = {p")), HasSubstr("did you mean 'with'?"));
  EXPECT_THAT(refusal(with("${a.text}", "${a.text")), HasSubstr("c.toml:11: '${' without"));
  EXPECT_THAT(refusal(with("${a.text}", "${item}")), HasSubstr("is of steps with for_each"));
}

TEST(ChainFile, TypesMustMeet) {
  EXPECT_EQ(refusal(with("parts = [\"${a.text}\", \"x\"]", "parts = \"${a.text}\"")),
            "c.toml:11: step 'b': 'parts' must be [any?], and is string");
  EXPECT_EQ(refusal(with("prompt = \"${input.question}\"", "prompt = \"${input.k}\"")),
            "c.toml:7: step 'a': 'prompt' must be string, and is integer?");
  EXPECT_THAT(refusal(with("use = \"model:m\"", "use = \"model:m\"\nwhen = \"${input.question}\"")),
              HasSubstr("'when' must be boolean, and is string"));
  EXPECT_THAT(
      refusal(with("use = \"model:m\"", "use = \"model:m\"\nfor_each = \"${input.question}\"")),
      HasSubstr("'for_each' must be a list, and is string"));
  EXPECT_THAT(refusal(with("use = \"model:m\"", "use = \"model:m\"\nfor_each = \"text\"")),
              HasSubstr("must be one expression"));
  // With 'when' a value may be missing.
  EXPECT_THAT(refusal(std::string(kGood) + R"(
[[step]]
name = "d"
use = "model:m"
when = "${b.text == 'x'}"
with = {prompt = "p"}
[[step]]
name = "e"
use = "http:http://h/"
with = {}
[[step]]
name = "f"
use = "builtin:template"
with = {text = "${d.text}"}
)"),
              HasSubstr("'text' must be string, and is string?: it may be missing"));
}

TEST(ChainFile, StepsThatNeedEachOtherAreNamed) {
  EXPECT_EQ(refusal(with("${input.question}", "${b.text}")),
            "c.toml:4: steps need each other: a needs b needs a");
  EXPECT_THAT(refusal(with("${input.question}", "${a.text}")), HasSubstr("a needs a"));
}

TEST(ChainFile, RefusesWhatNobodyCanMean) {
  EXPECT_THAT(refusal(with("model:m", "exec:ls")), HasSubstr("no sandbox"));
  EXPECT_THAT(refusal(with("model:m", "model:")), HasSubstr("names no model"));
  EXPECT_THAT(refusal(with("model:m", "model:chain:c")), HasSubstr("no chain asks itself"));
  EXPECT_THAT(refusal(with("model:m", "http:ftp://x")), HasSubstr("is \"http:URL\""));
  EXPECT_THAT(refusal(with("model:m", "magic:m")), HasSubstr("must be \"model:NAME\""));
  EXPECT_THAT(refusal(with("name = \"a\"", "name = \"input\"")), HasSubstr("use themselves"));
  EXPECT_THAT(refusal(with("name = \"a\"", "name = \"a b\"")), HasSubstr("must be a letter"));
  EXPECT_THAT(refusal(with("name = \"a\"", "name = \"b\"")), HasSubstr("a step 'b' already"));
  EXPECT_THAT(refusal(with("prompt", "model = \"x\", prompt")), HasSubstr("the chain's business"));
  EXPECT_THAT(refusal(with("prompt", "messages = [], prompt")), HasSubstr("and 'prompt'"));
  EXPECT_THAT(refusal(with("use = \"model:m\"", "use = \"model:m\"\ntimeout_s = 0")),
              HasSubstr("must be a number from"));
  EXPECT_THAT(refusal(with("use = \"model:m\"", "use = \"model:m\"\nparallel = 3")),
              HasSubstr("wants 'for_each'"));
  EXPECT_THAT(refusal(with("use = \"model:m\"", "use = \"model:m\"\nmethod = \"GET\"")),
              HasSubstr("is of http: steps"));
  EXPECT_THAT(refusal(with("use = \"model:m\"",
                           "use = \"model:m\"\nfor_each = \"${[1]}\"\npieces_max = 10000000")),
              HasSubstr("'${[1]}' expected"));
  EXPECT_THAT(refusal(with("use = \"model:m\"", "use = \"model:m\"\nretry = {on = [\"4xx\"]}")),
              HasSubstr("'on' holds"));
  EXPECT_THAT(refusal(std::string(kGood) + "[[step]]\nname = \"z\"\nuse = \"model:m\"\n"
                                           "with = {prompt = \"p\"}\n"),
              HasSubstr("nothing reads step 'z'"));
  EXPECT_THAT(refusal(""), HasSubstr("has no [[step]]"));
  std::string many;
  for (int i = 0; i < 300; ++i) many += "[[step]]\nname = \"s" + std::to_string(i) + "\"\n";
  EXPECT_THAT(refusal(many), HasSubstr("at most 256 steps"));
  const Result<Chain> streamed = parse_chain(
      "name = \"c\"\noutput = {text = \"${b.text}\", stream_from = \"b\"}\n[[step]]\nname = \"b\"\n"
      "use = \"builtin:template\"\nwith = {text = \"t\"}\n",
      "c.toml");
  ASSERT_FALSE(streamed.ok());
  EXPECT_THAT(streamed.error().message, StartsWith("c.toml:2: chain: 'output' 'stream_from'"));
}

TEST(ChainFile, ChecksInput) {
  const Result<Chain> chain = parse_chain(std::string(kHead) + std::string(kGood), "c.toml");
  ASSERT_TRUE(chain.ok());
  const auto said = [&](const char* input) {
    const Result<void> checked = check_input(*chain, *Json::parse(input));
    return checked.ok() ? "" : checked.error().message;
  };
  EXPECT_EQ(said(R"({"question":"q"})"), "");
  EXPECT_EQ(said(R"({"question":"q","k":null})"), "");
  EXPECT_EQ(said(R"({})"), "'input.question' is missing: string");
  EXPECT_EQ(said(R"({"question":1})"), "'input.question' must be string, and is an integer");
  EXPECT_THAT(said(R"({"question":"q","kk":1})"), HasSubstr("did you mean 'k'?"));
  EXPECT_THAT(said("[]"), HasSubstr("must be an object"));
}

TEST(ChainFile, TheTreesExamplesAreSound) {
  const Result<std::vector<Chain>> chains = read_chains(PELTON_SOURCE_DIR "/chains");
  ASSERT_TRUE(chains.ok()) << chains.error().message;
  EXPECT_EQ(chains->size(), 3);
  const Result<std::vector<Chain>> none = read_chains(PELTON_SOURCE_DIR "/docs");
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(none.error().message, HasSubstr("there is no chain"));
}

}  // namespace
}  // namespace pelton::chain
