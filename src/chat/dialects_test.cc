// Turns in each dialect: what is read of them, streamed and whole; and calls that are forced.
#include <random>

#include <gtest/gtest.h>

#include "chat/byte_tokenizer.h"
#include "chat/checked_reply.h"
#include "chat/dialect_grammar.h"
#include "chat/dialect_parser.h"
#include "chat/python_values.h"
#include "grammar/ebnf.h"

namespace pelton::chat {
namespace {

struct Case {
  std::string_view dialect;
  std::string_view output;
  std::string_view shown;  // reasoning | content | name arguments ...
  bool cut = false;
  std::string_view opening = {};  // what the prompt has written of the turn
};

constexpr Case kCases[] = {
    {"hermes", "<think>\nhm\n</think>\n\nyes", "hm | yes"},
    {"hermes",
     "See.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"</tool_call>\"}}\n</tool_call>",
     " | See. | f {\"s\": \"</tool_call>\"}"},
    {"deepseek_r1", "so\n</think>\n\n4", "so | 4", false, "<think>\n"},
    {"deepseek_r1", "<think>\nso\n</think>\n\n4", "so | 4", false, "<think>\n"},
    {"deepseek_r1",
     "</think>\n\nA<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n"
     "{\"q\": "
     "\"```\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{}"
     "\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     " | A | f {\"q\": \"```\"} | g {}", false, "<think>\n"},
    {"deepseek_v31",
     "A<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": "
     "1}<｜tool▁call▁end｜><｜tool▁call▁"
     "begin｜>g<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     " | A | f {\"a\": 1} | g {}"},
    {"deepseek_v31", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": ",
     " |  | f {\"a\": ", true},
    {"deepseek_v31", "ok", " | ok", false, "</think>"},
    {"llama3_json",
     "{\"name\": \"f\", \"parameters\": {\"a\": 1}}; {\"name\": \"g\", \"parameters\": {}}",
     " |  | f {\"a\": 1} | g {}"},
    {"llama3_json", "<|python_tag|>{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}",
     " |  | f {}"},
    {"llama3_json", "<|python_tag|>find.call(q=\"a, \\\"b\\\"\", n=2)",
     " |  | find {\"q\": \"a, \\\"b\\\"\", \"n\": 2}"},
    {"llama3_json", "{\"degrees\": 21}", " | {\"degrees\": 21}"},
    {"llama3_json", "So: {\"name\": \"f\", \"parameters\": {}}",
     " | So: {\"name\": \"f\", \"parameters\": {}}"},
    {"llama3_json", "{\"name\": \"f\", \"parameters\": {\"a\"", " |  | f {\"a\"", true},
    {"llama3_json", "<think>\nso\n</think>\n\n{\"name\": \"f\", \"parameters\": {\"a\": 1}}",
     "so |  | f {\"a\": 1}"},
    {"llama3_json", "so\n</think>\n\n{\"name\": \"f\", \"parameters\": {}}", "so |  | f {}", false,
     "<think>\n"},
    {"llama3_json", "<think>so</think>\n\n{\"degrees\": 21}", "so | {\"degrees\": 21}"},
    {"pythonic", "<think>so</think>[f(a=1)]", "so |  | f {\"a\": 1}"},
    {"pythonic", "[f(a=[1, None, True], b={'k': \"v\"}), g()]",
     " |  | f {\"a\": [1, null, true], \"b\": {\"k\": \"v\"}} | g {}"},
    {"pythonic", "[1, 2]", " | [1, 2]"},
    {"pythonic", "[f(a=1, a=2)]", " | [f(a=1, a=2)]"},
    {"pythonic", "[f(a=open(\"x\"))]", " | [f(a=open(\"x\"))]"},
    {"mistral",
     "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"s\": \"]\"}, \"id\": \"abcdef123\"}, "
     "{\"name\": \"g\", \"arguments\": {}}]",
     " |  | f {\"s\": \"]\"} | g {}"},
    {"mistral", "hello [TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}]tail",
     " | hellotail | f {}"},
    {"hermes", "A.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\nB.",
     " | A.B. | f {}"},
    {"mistral_args", "Now.[TOOL_CALLS]f[CALL_ID]abcdef123[ARGS]{\"a\": 1}[TOOL_CALLS]g[ARGS]{}",
     " | Now. | f {\"a\": 1} | g {}"},
    {"qwen3_coder",
     "Go.\n<tool_call>\n<function=f>\n<parameter=s>\n7\n</parameter>\n<parameter=n>\n7\n</"
     "parameter>\n"
     "<parameter=t>\na\n<b>\"c\"</b>\n</parameter>\n</function>\n</tool_call>",
     " | Go. | f {\"s\": \"7\", \"n\": 7, \"t\": \"a\\n<b>\\\"c\\\"</b>\"}"},
    {"phi4_mini", "<|tool_call|>[{\"name\": \"f\", \"arguments\": {}}]<|/tool_call|>",
     " |  | f {}"},
};

// A value as Qwen3-Coder's models write it, and what it is in the call's arguments.
struct WrittenValue {
  std::string_view parameter;
  std::string_view text;
  std::string_view json;
};

// Of a function with these parameters (Dialects::functions_); "x" is none of them.
constexpr WrittenValue kWrittenValues[] = {
    {"o", "123", "\"123\""},
    {"o", "null", "null"},
    {"o", "None", "null"},
    {"e", "1", "\"1\""},
    {"r", "7", "\"7\""},
    {"s", "null", "\"null\""},
    {"n", "12345678901234567890123", "12345678901234567890123"},
    {"n", "1.50", "1.50"},
    {"x", "12345678901234567890123", "12345678901234567890123"},
    {"x", "{\"a\":[1,98765432109876543210]}", "{\"a\": [1, 98765432109876543210]}"},
    {"x", "True", "\"True\""},
    {"b", "True", "true"},
    {"b", "false", "false"},
    {"b", "None", "null"},
    {"b", "yes", "\"yes\""},
    {"l", "[\"a\", 1]", "[\"a\", 1]"},
    {"l", "7", "\"7\""},
    {"d", "{'a': True, 'b': (1, None)}", "{\"a\": true, \"b\": [1, null]}"},
    {"d", "{'a': open(1)}", "\"{'a': open(1)}\""},
    {"w", "7", "7"},
};

std::string shown(const Reply& reply) {
  std::string out = reply.reasoning.value_or("") + " | " + reply.content.value_or("");
  for (const ToolCall& call : reply.tool_calls) out += " | " + call.name + " " + call.arguments;
  return out;
}

class Dialects : public testing::TestWithParam<bool> {
 protected:
  Dialect dialect(std::string_view name) const {
    Dialect made =
        make_dialect(*find_reasoning_syntax("think"), *find_call_syntax(name), tokenizer_);
    made.stops = {tokenizer_.special_id(kEnd).value()};
    return made;
  }
  std::vector<TokenId> ids(std::string_view text) const {
    return tokenizer_.encode_with_special(text);
  }
  Reply reply_to(const Dialect& dialect, const std::vector<TokenId>& tokens,
                 StopCause cause) const {
    const ParserOptions options(Calls::kRead, functions_);
    return checked_reply(
        ReplyBuilder(std::make_unique<DialectParser>(tokenizer_, dialect, options), {}), tokens,
        cause);
  }

  const tokenizer::Tokenizer tokenizer_ = byte_tokenizer(GetParam());
  const std::shared_ptr<const std::vector<FunctionTool>> functions_ =
      std::make_shared<const std::vector<FunctionTool>>(
          std::vector<FunctionTool>{{.name = "f",
                                     .description = {},
                                     .parameters = Json::parse(R"({
             "properties": {"s": {"type": "string"}, "n": {"type": "integer"},
               "t": {"type": "string"}, "o": {"anyOf": [{"type": "string"}, {"type": "null"}]},
               "e": {"enum": ["1", "2"]}, "b": {"type": ["boolean", "null"]},
               "l": {"oneOf": [{"type": "string"}, {"type": "array"}]},
               "r": {"$ref": "#/$defs/unit"}, "d": {"type": "object"},
               "w": {"anyOf": [{"$ref": "#/properties/w"}, {"$ref": "#/properties/w"}]}},
             "$defs": {"unit": {"enum": ["7", "8"]}}})")
                                                       .value()}});
};

INSTANTIATE_TEST_SUITE_P(MarkersAre, Dialects, testing::Bool(),
                         [](const auto& info) { return info.param ? "Tokens" : "Text"; });

// As in Python, where it is an error: one of the values would be lost.
TEST(PythonCalls, ANameGivenTwiceIsNoCall) {
  size_t at = 0;
  EXPECT_FALSE(read_python_call("f(a=1, b=2, a=3)", at).has_value());
  EXPECT_TRUE(read_python_call("f(a=1, b=2, c=3)", at).has_value());
}

TEST(PythonCalls, NumbersAreAsPythonHasThem) {
  const std::pair<std::string_view, std::string_view> kNumbers[] = {
      {"7", "7"},
      {"-7", "-7"},
      {"+7", "7"},
      {".5", "0.5"},
      {"-.5", "-0.5"},
      {"5.", "5.0"},
      {"1.50", "1.50"},
      {"007.5", "7.5"},
      {"1e5", "1e5"},
      {"1.E+05", "1.0e+05"},
      {"0x1f", "31"},
      {"-0b101", "-5"},
      {"0o17", "15"},
      {"0xFFFFFFFFFFFFFFFFFF", "4722366482869645213695"},
      {"1_000", "1000"},
      {"000", "0"},
      {"12345678901234567890123", "12345678901234567890123"},
      {"0.12345678901234567890123", "0.12345678901234567890123"},
  };
  for (const auto& [written, json] : kNumbers) {
    const auto value = python_value_as_json(written);
    ASSERT_TRUE(value.has_value()) << written;
    EXPECT_EQ(*value, json);
  }
  for (const std::string_view written : {"007", ".", "1__0", "1_", "0x", "1j", "1e", "1e999", "--1",
                                         "1.2.3", "0b2", "inf", "5px", "_1"}) {
    EXPECT_FALSE(python_value_as_json(written).has_value()) << written;
  }
  EXPECT_FALSE(python_value_as_json("0x" + std::string(2000, 'f')).has_value());
}

TEST(PythonCalls, StringsBesideEachOtherAreOne) {
  size_t at = 0;
  const auto call = read_python_call(
      R"(f(a="x" 'y'
      "z", b=("p" "q"), c=(1,), d="""say "hi" now""", e=((1)), f=(), g=''))",
      at);
  ASSERT_TRUE(call.has_value());
  EXPECT_EQ(
      call->arguments,
      R"({"a": "xyz", "b": "pq", "c": [1], "d": "say \"hi\" now", "e": 1, "f": [], "g": ""})");
}

// Each byte is a token, so that a stream is cut wherever it can be.
TEST_P(Dialects, AreRead) {
  for (const Case& row : kCases) {
    SCOPED_TRACE(std::string(row.dialect) + ": " + std::string(row.output));
    const Dialect dialect = this->dialect(row.dialect);
    std::vector<TokenId> tokens = ids(std::string(row.opening) + std::string(row.output));
    if (!row.cut) tokens.push_back(dialect.stops[0]);
    const StopCause cause = row.cut ? StopCause::kLength : StopCause::kStopToken;
    EXPECT_EQ(shown(reply_to(dialect, tokens, cause)), row.shown);
  }
}

// Tags say nothing of a value's type: the schema does.
TEST_P(Dialects, ValuesInTagsAreOfTheirSchemasKind) {
  const Dialect dialect = this->dialect("qwen3_coder");
  for (const WrittenValue& row : kWrittenValues) {
    const std::string output =
        "<tool_call>\n<function=f>\n<parameter=" + std::string(row.parameter) + ">\n" +
        std::string(row.text) + "\n</parameter>\n</function>\n</tool_call>";
    EXPECT_EQ(shown(reply_to(dialect, ids(output), StopCause::kStopToken)),
              " |  | f {\"" + std::string(row.parameter) + "\": " + std::string(row.json) + "}")
        << output;
  }
}

// One of the values would be lost: a client that reads JSON keeps one.
TEST_P(Dialects, AParameterGivenTwiceIsNoCall) {
  const std::string output =
      "<tool_call>\n<function=f>\n<parameter=s>\na\n</parameter>\n<parameter=s>\nb\n</parameter>\n"
      "</function>\n</tool_call>";
  const Reply reply = reply_to(this->dialect("qwen3_coder"), ids(output), StopCause::kStopToken);
  EXPECT_TRUE(reply.tool_calls.empty());
  EXPECT_NE(reply.content.value_or("").find("<parameter=s>\nb"), std::string::npos);
}

// At each length a reply; and what was not known to be a call is there as text.
TEST_P(Dialects, MayBeCutAnywhere) {
  for (const Case& row : kCases) {
    const Dialect dialect = this->dialect(row.dialect);
    const std::vector<TokenId> tokens = ids(row.output);
    for (size_t size = 0; size <= tokens.size(); ++size) {
      const Reply reply =
          reply_to(dialect, {tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(size)},
                   StopCause::kLength);
      for (const ToolCall& call : reply.tool_calls) {
        EXPECT_LE(call.name.size(), 4u) << row.output.substr(0, size);
      }
    }
  }
}

// A 'q' and a 'z' stand for what was said: none is lost, whatever is around.
TEST_P(Dialects, LoseNothingOfMalformedTurns) {
  std::mt19937_64 random(std::random_device{}());
  const uint64_t seed = random();
  SCOPED_TRACE("seed " + std::to_string(seed));
  random.seed(seed);
  std::vector<std::string> pieces = {"p",
                                     "q z",
                                     "{\"name\": \"f\", \"arguments\": {",
                                     "}}",
                                     "[{",
                                     "}]",
                                     "\"",
                                     "\\",
                                     "{",
                                     "}",
                                     "[",
                                     "]",
                                     "\n",
                                     "f(",
                                     ")",
                                     "```",
                                     "<function=f>",
                                     "<parameter=a>",
                                     "</parameter>",
                                     "</function>",
                                     "; ",
                                     ", ",
                                     "é"};
  for (const std::string_view marker : kMarkers) pieces.emplace_back(marker);
  for (const std::string_view name : kDialects) {
    const Dialect dialect = this->dialect(name);
    for (int round = 0; round < 300 && !HasFailure(); ++round) {
      std::string text;
      for (uint64_t n = random() % 24; n > 0; --n) text += pieces[random() % pieces.size()];
      const Reply reply = reply_to(dialect, ids(text), StopCause::kStopToken);
      std::string all = reply.reasoning.value_or("") + reply.content.value_or("");
      for (const ToolCall& call : reply.tool_calls) all += call.arguments;
      const auto said = [](std::string_view of) {
        return std::count_if(of.begin(), of.end(), [](char c) { return c == 'q' || c == 'z'; });
      };
      EXPECT_EQ(said(all), said(text)) << name << ": " << text << "\n" << all;
    }
  }
}

TEST_P(Dialects, ForcedCallsFollowTheirArguments) {
  const auto trie = grammar::TokenTrie::of(tokenizer_);
  const std::vector<std::string> said = {"x"};
  const auto answer =
      grammar::TokenGrammar::make(grammar::compile_choice(said).value(), trie).value();
  for (const std::string_view name : kDialects) {
    const Dialect dialect = this->dialect(name);
    for (const auto begin :
         {TurnRules::Begin::kFirstCall, TurnRules::Begin::kAnyCall, TurnRules::Begin::kTurn}) {
      const CallFrame frame = dialect_call_frame(*dialect.calls, tokenizer_, "f", begin);
      const std::vector<std::string> texts = {frame.before + "{\"a\": 1}" + frame.after};
      const auto arguments =
          grammar::TokenGrammar::make(grammar::compile_choice(texts).value(), trie).value();
      SCOPED_TRACE(std::string(name) + " " + std::to_string(static_cast<int>(begin)));
      const TurnRules rules{.answer = begin == TurnRules::Begin::kTurn ? answer : nullptr,
                            .functions = {{.name = "f", .arguments = arguments}},
                            .begin = begin};
      grammar::GrammarState guide(dialect_grammar(rules, {dialect, tokenizer_}, trie).value());
      std::vector<TokenId> tokens;
      if (begin != TurnRules::Begin::kTurn) {
        const bool any = begin == TurnRules::Begin::kAnyCall;
        tokens = forced_call_opening(*dialect.calls, any ? "" : "f", tokenizer_);
      } else {
        // Into the call, where an answer might come, too.
        for (const TokenId token : forced_call_opening(*dialect.calls, "f", tokenizer_)) {
          ASSERT_TRUE(guide.accept(token));
          tokens.push_back(token);
        }
      }
      for (int i = 0; i < 200 && !guide.over(); ++i) {
        std::vector<uint64_t> room;
        const std::span<const uint64_t> mask = guide.mask(room);
        // Hermes' may call again: the turn ends where it can.
        TokenId next = grammar::may_be(mask, dialect.stops[0]) ? dialect.stops[0] : 0;
        while (next < tokenizer_.vocab_size() && !grammar::may_be(mask, next)) ++next;
        ASSERT_LT(next, tokenizer_.vocab_size());
        ASSERT_TRUE(guide.accept(next));
        tokens.push_back(next);
      }
      EXPECT_TRUE(guide.over());
      EXPECT_EQ(shown(reply_to(dialect, tokens, StopCause::kStopToken)), " |  | f {\"a\": 1}");
    }
  }
}

// Where the vocabulary has no token for the blank line behind reasoning, it is two.
TEST_P(Dialects, AnAnswerThatIsForcedMayStandBehindReasoningAndABlankLine) {
  if (!GetParam()) return;  // markers that are no tokens bound no segment
  const auto trie = grammar::TokenTrie::of(tokenizer_);
  const std::vector<std::string> said = {"x"};
  const auto answer =
      grammar::TokenGrammar::make(grammar::compile_choice(said).value(), trie).value();
  const Dialect dialect = this->dialect("hermes");
  const TurnRules rules{.answer = answer, .functions = {}, .begin = TurnRules::Begin::kTurn};
  for (const std::string_view turn : {"<think>\nhm\n</think>\n\nx", "<think>hm</think>x"}) {
    grammar::GrammarState guide(dialect_grammar(rules, {dialect, tokenizer_}, trie).value());
    for (const TokenId token : ids(turn)) ASSERT_TRUE(guide.accept(token)) << turn;
    EXPECT_TRUE(guide.accept(dialect.stops[0])) << turn;
  }
}

TEST(CallSyntaxes, AreFoundByNameAndByTemplate) {
  EXPECT_EQ(find_call_syntax("deepseek_v3")->name, "deepseek_r1");
  EXPECT_EQ(find_call_syntax("llama4_pythonic")->name, "pythonic");
  EXPECT_EQ(find_call_syntax("nonsense"), nullptr);
  EXPECT_EQ(call_syntax_of("... <tool_call> ...").syntax.name, "hermes");
  EXPECT_EQ(call_syntax_of("{{ '[TOOL_CALLS]' + name + '[ARGS]' }}").syntax.name, "mistral_args");
  EXPECT_EQ(call_syntax_of("{{ m.content }}").syntax.name, "plain");
  EXPECT_FALSE(find_reasoning_syntax("nonsense").has_value());
  EXPECT_EQ(find_reasoning_syntax("qwen3")->end, "</think>");
  EXPECT_FALSE(reasoning_syntax_of("{{ m.content }}").marks());
}

}  // namespace
}  // namespace pelton::chat
