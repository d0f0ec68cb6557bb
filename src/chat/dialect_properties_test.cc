// What holds in each dialect for any turn: nothing that the model said is lost or doubled, however
// tokens cut it and however a call is malformed; and a forced call satisfies its schema. Turns are
// drawn (PELTON_SEED repeats them); PELTON_FULL=1 draws 10 000 streams, 1 000 malformed calls and
// 200 forced ones of each dialect.
#include <cstdlib>
#include <random>

#include <gtest/gtest.h>

#include "chat/byte_tokenizer.h"
#include "chat/checked_reply.h"
#include "chat/dialect_grammar.h"
#include "chat/dialect_parser.h"
#include "grammar/structural_tag.h"
#include "grammar/test_values.h"

namespace pelton::chat {
namespace {

// A turn with a call; '@' stands for something said.
struct Sample {
  std::string_view dialect;
  std::string_view text;
};
constexpr Sample kSamples[] = {
    {"hermes",
     "<think>\n@\n</think>\n\n@<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"@\", "
     "\"n\": [1, \"@\"]}}\n</tool_call>\n<tool_call>\n{\"name\": \"g\", \"arguments\": {\"@\": "
     "\"a\\n\"}}\n</tool_call>"},
    {"deepseek_r1",
     "<think>\n@</think>\n\n@<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n"
     "```json\n{\"s\": \"@\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g"
     "\n```json\n{\"t\": \"@\"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
    {"deepseek_v31",
     "<think>@</think>@<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"s\": \"@\"}"
     "<｜tool▁call▁end｜><｜tool▁call▁begin｜>g<｜tool▁sep｜>{\"t\": \"@\"}<｜tool▁call▁end｜>"
     "<｜tool▁calls▁end｜>"},
    {"llama3_json",
     "{\"name\": \"f\", \"parameters\": {\"s\": \"@\"}}; {\"name\": \"g\", \"parameters\": "
     "{\"@\": 1}}"},
    {"pythonic", "[f(s=\"@\", n=[1, None, True]), g(t={\"@\": '@'})]"},
    {"mistral",
     "@[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"s\": \"@]\"}}, {\"name\": \"g\", "
     "\"arguments\": {\"t\": \"@\"}}]"},
    {"mistral_args", "@[TOOL_CALLS]f[ARGS]{\"s\": \"@\"}[TOOL_CALLS]g[ARGS]{\"t\": \"@\"}"},
    {"qwen3_coder",
     "@\n<tool_call>\n<function=f>\n<parameter=s>\n@\n</parameter>\n<parameter=n>\n7\n"
     "</parameter>\n<parameter=t>\n<b>@</b>\n</parameter>\n</function>\n</tool_call>"},
    {"phi4_mini",
     "@<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"s\": \"@\"}}, {\"name\": \"g\", "
     "\"arguments\": {\"t\": [\"@\"]}}]<|/tool_call|>"},
};

constexpr std::string_view kPieces[] = {"@",
                                        "a@ b",
                                        "{\"name\": \"f\", \"arguments\": {",
                                        "{\"name\": \"f\", \"parameters\": {",
                                        "\"s\": \"@\"",
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
                                        "f(s=\"@\")",
                                        ")",
                                        "```",
                                        "```json\n",
                                        "f",
                                        "<function=f>",
                                        "<parameter=a>\n",
                                        "\n</parameter>",
                                        "</function>",
                                        "; ",
                                        ", ",
                                        "é",
                                        "function"};

bool is_full() {
  return std::getenv("PELTON_FULL") != nullptr;
}

// Each '@' becomes a letter of its own, which no marker and no frame has.
std::string with_letters(std::string_view text) {
  constexpr uint32_t kFirst = 0x4E00;
  std::string out;
  uint32_t next = kFirst;
  for (const char c : text) {
    if (c == '@') {
      base::append_utf8(out, next++);
    } else {
      out += c;
    }
  }
  return out;
}

// Without markers and white space: a marker that turns out to be no part of a call is text where it
// is spelled, and nothing where it is a token, with other white space at the ends of what is left.
std::string without_markers(std::string text) {
  for (const std::string_view marker : kMarkers) {
    for (size_t at = text.find(marker); at != std::string::npos; at = text.find(marker, at)) {
      text.erase(at, marker.size());
    }
  }
  std::erase_if(text, [](char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; });
  return text;
}

std::string only_letters(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const base::Utf8Step step = base::utf8_step(text.substr(i));
    if (step.kind == base::Utf8Step::Kind::kCodePoint && step.code_point >= 0x4E00 &&
        step.code_point < 0x9000) {
      out += text.substr(i, step.bytes);
    }
    i += step.bytes;
  }
  return out;
}

std::vector<std::string> sorted_letters(const std::string& text) {
  std::vector<std::string> letters;
  for (size_t i = 0; i + 3 <= text.size(); i += 3) letters.push_back(text.substr(i, 3));
  std::sort(letters.begin(), letters.end());
  return letters;
}

class DialectProperties : public testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override {
    const char* const given = std::getenv("PELTON_SEED");
    const uint64_t seed =
        given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
    std::printf("PELTON_SEED=%llu\n", static_cast<unsigned long long>(seed));
    random_.seed(seed);
  }

  uint64_t below(uint64_t bound) { return random_() % bound; }

  static Dialect dialect(const tokenizer::Tokenizer& tokenizer) {
    Dialect made =
        make_dialect(*find_reasoning_syntax("think"), *find_call_syntax(GetParam()), tokenizer);
    made.stops = {tokenizer.special_id(kEnd).value()};
    return made;
  }

  Reply reply_to(const tokenizer::Tokenizer& tokenizer, std::span<const TokenId> tokens,
                 StopCause cause) const {
    ParserOptions options(Calls::kRead);
    options.functions = functions_;
    return checked_reply(
        ReplyBuilder(std::make_unique<DialectParser>(tokenizer, dialect(tokenizer), options), {}),
        tokens, cause);
  }

  // The whole of it, with what belongs to it: who is called, and how it ended. No content is as an
  // empty one: a marker alone, which is no call, is text where it is spelled.
  static std::string shown(const Reply& reply) {
    std::string out = reply.reasoning.value_or("") + " | " + reply.content.value_or("");
    for (const ToolCall& call : reply.tool_calls) {
      out += " | " + call.name + " " + call.arguments + (call.complete ? "." : "...");
    }
    return out;
  }

  // Of any turn, byte by byte and with markers as tokens: the same is read, and every letter of it
  // is in one field, once.
  void expect_nothing_lost(const std::string& text, StopCause cause) {
    const Reply spelled = reply_to(bytes_, bytes_.encode_with_special(text), cause);
    const Reply marked = reply_to(markers_, markers_.encode_with_special(text), cause);
    ASSERT_EQ(without_markers(shown(spelled)), without_markers(shown(marked)))
        << GetParam() << ": " << text;
    std::string all = spelled.reasoning.value_or("") + spelled.content.value_or("");
    for (const ToolCall& call : spelled.tool_calls) all += call.name + call.arguments;
    ASSERT_EQ(sorted_letters(only_letters(all)), sorted_letters(only_letters(text)))
        << GetParam() << ": " << text << "\n"
        << shown(spelled);
  }

  StopCause some_cause() { return below(3) == 0 ? StopCause::kLength : StopCause::kStopToken; }

  // With the dialect's own markers as tokens.
  static tokenizer::Tokenizer marker_tokenizer() {
    const tokenizer::Tokenizer all = byte_tokenizer(true);
    const Dialect dialect = DialectProperties::dialect(all);
    std::vector<std::string_view> markers;
    for (const std::string_view marker : kMarkers) {
      if (dialect.is_marker(all.special_id(marker).value())) markers.push_back(marker);
    }
    return byte_tokenizer(markers);
  }

  const tokenizer::Tokenizer bytes_ = byte_tokenizer(false);
  const tokenizer::Tokenizer markers_ = marker_tokenizer();
  std::mt19937_64 random_;
  const std::shared_ptr<const std::vector<FunctionTool>> functions_ =
      std::make_shared<const std::vector<FunctionTool>>(std::vector<FunctionTool>{
          {.name = "f",
           .description = {},
           .parameters = Json::parse(R"({"properties":{"s":{"type":"string"},"n":{"type":"integer"},
                                         "t":{"type":"string"}}})")
                             .value()}});
};

INSTANTIATE_TEST_SUITE_P(All, DialectProperties, testing::ValuesIn(kDialects),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(DialectProperties, RandomStreamsLoseNothing) {
  std::vector<std::string_view> pieces(std::begin(kPieces), std::end(kPieces));
  for (const std::string_view marker : kMarkers) {
    // The model's own id of a call is taken for ours, whatever it is.
    if (marker != "[CALL_ID]") pieces.push_back(marker);
  }
  const int rounds = is_full() ? 10'000 : 200;
  for (int round = 0; round < rounds && !HasFatalFailure(); ++round) {
    std::string text;
    for (uint64_t n = below(24); n > 0; --n) text += pieces[below(pieces.size())];
    expect_nothing_lost(with_letters(text), some_cause());
  }
}

TEST_P(DialectProperties, CutAndMalformedCallsLoseNothing) {
  std::string_view sample;
  for (const Sample& row : kSamples) {
    if (row.dialect == GetParam()) sample = row.text;
  }
  const int rounds = is_full() ? 1'000 : 60;
  for (int round = 0; round < rounds && !HasFatalFailure(); ++round) {
    std::string text(sample);
    for (uint64_t n = 1 + below(3); n > 0; --n) {
      const size_t at = below(text.size() + 1);
      switch (below(4)) {
        case 0:  // cut off
          text.resize(at);
          break;
        case 1:  // something is missing
          text.erase(at, 1 + below(6));
          break;
        case 2:  // something is there that should not be
          text.insert(at, kPieces[below(std::size(kPieces))]);
          break;
        default:  // a part comes twice
          text.insert(at, text.substr(at, below(20)));
          break;
      }
    }
    expect_nothing_lost(with_letters(base::replace_invalid_utf8(text)), some_cause());
  }
}

// A stream of two tokens, cut at every byte (in ./test at every eighth): what stands before and
// behind comes at once.
TEST_P(DialectProperties, WhereverTokensAreCutTheReplyIsTheSame) {
  for (const Sample& row : kSamples) {
    if (row.dialect != GetParam()) continue;
    const std::string text = with_letters(row.text);
    const std::string wanted =
        shown(reply_to(bytes_, bytes_.encode_with_special(text), StopCause::kStopToken));
    for (size_t cut = is_full() ? 0 : below(8); cut <= text.size(); cut += is_full() ? 1 : 8) {
      const CutText two = cut_text(text, cut);
      ASSERT_EQ(shown(reply_to(two.tokenizer, two.tokens, StopCause::kStopToken)), wanted)
          << text.substr(0, cut);
    }
  }
}

TEST_P(DialectProperties, ForcedCallsSatisfyTheirSchema) {
  const Json schema = Json::parse(R"({"type": "object", "properties": {
      "s": {"type": "string", "maxLength": 5}, "n": {"type": "integer", "minimum": -99, "maximum":
      120}, "t": {"enum": ["</tool_call>", "]", "```", 1.5, null]},
      "l": {"type": "array", "maxItems": 2, "items": {"type": "boolean"}}},
      "required": ["s", "t"], "additionalProperties": false})")
                          .value();
  const auto trie = grammar::TokenTrie::of(markers_);
  const Dialect dialect = this->dialect(markers_);
  const auto text_of = [](const std::string& text) {
    return Json(Json::Object{{"type", Json("const_string")}, {"value", Json(text)}});
  };
  for (int round = 0; round < (is_full() ? 200 : 6) && !HasFatalFailure(); ++round) {
    const auto begin = round % 2 == 0 ? TurnRules::Begin::kFirstCall : TurnRules::Begin::kAnyCall;
    const CallFrame frame = dialect_call_frame(*dialect.calls, markers_, "f", begin);
    Json::Array parts;
    if (!frame.before.empty()) parts.push_back(text_of(frame.before));
    parts.push_back(
        Json(Json::Object{{"type", Json("json_schema")}, {"json_schema", Json(schema)}}));
    if (!frame.after.empty()) parts.push_back(text_of(frame.after));
    Json sequence(Json::Object{{"type", Json("sequence")}, {"elements", Json(std::move(parts))}});
    const auto compiled =
        grammar::compile_structural_tag(Json(Json::Object{{"format", std::move(sequence)}}), {});
    ASSERT_TRUE(compiled.ok()) << compiled.error().message;
    const auto arguments = grammar::TokenGrammar::make(*compiled, trie).value();
    const TurnRules rules{
        .answer = nullptr, .functions = {{.name = "f", .arguments = arguments}}, .begin = begin};
    grammar::GrammarState guide(dialect_grammar(rules, {dialect, markers_}, trie).value());
    std::vector<TokenId> tokens = forced_call_opening(
        *dialect.calls, begin == TurnRules::Begin::kAnyCall ? "" : "f", markers_);
    for (int i = 0; i < 4000 && !guide.over(); ++i) {
      std::vector<uint64_t> room;
      const std::span<const uint64_t> mask = guide.mask(room);
      std::vector<TokenId> allowed;
      for (TokenId id = 0; id < markers_.vocab_size(); ++id) {
        if (grammar::may_be(mask, id)) allowed.push_back(id);
      }
      ASSERT_FALSE(allowed.empty());
      // Where the turn may end it does: another call may follow without end.
      const bool may_end = grammar::may_be(mask, dialect.stops[0]);
      tokens.push_back(may_end ? dialect.stops[0] : allowed[below(allowed.size())]);
      ASSERT_TRUE(guide.accept(tokens.back()));
    }
    ASSERT_TRUE(guide.over());
    const Reply reply = reply_to(markers_, tokens, StopCause::kStopToken);
    ASSERT_EQ(reply.tool_calls.size(), 1u) << markers_.decode(tokens);
    EXPECT_EQ(reply.tool_calls[0].name, "f");
    EXPECT_TRUE(reply.tool_calls[0].complete);
    const Result<Json> value = Json::parse(reply.tool_calls[0].arguments);
    ASSERT_TRUE(value.ok()) << reply.tool_calls[0].arguments;
    EXPECT_TRUE(grammar::SchemaChecker(schema).satisfies(*value)) << value->dump();
  }
}

}  // namespace
}  // namespace pelton::chat
