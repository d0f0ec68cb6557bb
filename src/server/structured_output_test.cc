// Output formats and strict tools over HTTP, against a model that says anything its request allows:
// a token drawn among the allowed ones, closing ones likelier the longer it goes on.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <set>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json_writer.h"
#include "grammar/json_schema.h"
#include "grammar/matcher.h"
#include "server/any_turns.h"
#include "server/chat_stream_text.h"
#include "server/server_fixture.h"

namespace pelton::server {
namespace {

constexpr std::string_view kNoScript = R"({"rules":[{"when":"","then":"x"}]})";

std::string asked(std::string_view more) {
  return R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":2000,)" + std::string(more) +
         "}";
}

std::string schema_asked(std::string_view schema, std::string_view more) {
  return asked(
      R"("response_format":{"type":"json_schema","json_schema":{"name":"it","strict":true,)"
      R"("schema":)" +
      std::string(schema) + "}}" + std::string(more));
}

std::string json_string(std::string_view text) {
  std::string out;
  base::append_json_string(out, text);
  return out;
}

bool follows(std::string_view schema, std::string_view text) {
  const auto compiled = grammar::compile_json_schema(Json::parse(schema).value(), {});
  const std::string bytes(text);
  const tokenizer::Tokenizer tokenizer = chat::tiny_tokenizer();
  const auto made =
      grammar::TokenGrammar::make(compiled.value(), grammar::TokenTrie::of(tokenizer));
  grammar::Matcher matcher(made.value());
  return matcher.accept_bytes(bytes) && matcher.can_end();
}

constexpr std::string_view kPerson =
    R"({"type":"object","properties":{"name":{"type":"string","maxLength":9},)"
    R"("age":{"type":"integer","minimum":0,"maximum":150},"tags":{"type":"array","maxItems":2,)"
    R"("items":{"enum":["a","b","cc"]}}},"required":["name","age"],"additionalProperties":false})";

struct Answered {
  std::string finish;
  std::string content;
  std::string reasoning;
  std::string call;
  std::string arguments;
};

Answered answered(const Json& body) {
  const Json& choice = body.find("choices")->as_array().at(0);
  const Json& message = *choice.find("message");
  Answered answer{.finish = choice.string("finish_reason").value_or("")};
  answer.content = message.string("content").value_or("");
  answer.reasoning = message.string("reasoning_content").value_or("");
  if (const Json* calls = message.find("tool_calls"); calls != nullptr && calls->is_array()) {
    const Json& function = *calls->as_array().at(0).find("function");
    answer.call = function.string("name").value_or("");
    answer.arguments = function.string("arguments").value_or("");
  }
  return answer;
}

Answered ask(ServerFixture& fixture, const std::string& body) {
  const net::HttpResponse response = fixture.post("/v1/chat/completions", body);
  EXPECT_EQ(response.status, 200) << response.body;
  if (response.status != 200) return {};
  return answered(parsed(response.body));
}

// JS-26 with it: what was cut off says so.
TEST(StructuredOutput, EveryFinishedDocumentFollowsItsSchema) {
  ServerFixture fixture(kNoScript, any_options());
  int finished = 0;
  constexpr int kAsked = 60;
  for (int seed = 0; seed < kAsked; ++seed) {
    SCOPED_TRACE(seed);
    const Answered answer =
        ask(fixture, schema_asked(kPerson, ",\"temperature\":2,\"seed\":" + std::to_string(seed)));
    if (answer.finish == "length") continue;
    EXPECT_EQ(answer.finish, "stop");
    ++finished;
    EXPECT_TRUE(follows(kPerson, answer.content)) << answer.content;
  }
  EXPECT_GE(finished, kAsked * 95 / 100);
}

TEST(StructuredOutput, StreamedIsWhatIsSentWhole) {
  ServerFixture fixture(kNoScript, any_options());
  for (int seed = 0; seed < 10; ++seed) {
    SCOPED_TRACE(seed);
    const std::string more = ",\"seed\":" + std::to_string(seed);
    const Answered whole = ask(fixture, schema_asked(kPerson, more));
    const net::HttpResponse response =
        fixture.post("/v1/chat/completions", schema_asked(kPerson, more + ",\"stream\":true"));
    ASSERT_EQ(response.status, 200);
    const ChatText text = streamed_text(response.body);
    EXPECT_EQ(text.content, whole.content);
    EXPECT_EQ(text.reasoning, whole.reasoning);
    EXPECT_EQ(text.finish_reason, whole.finish);
  }
}

TEST(StructuredOutput, EachOfSeveralAnswersFollowsTheSchema) {
  ServerFixture fixture(kNoScript, any_options());
  const net::HttpResponse response =
      fixture.post("/v1/chat/completions", schema_asked(kPerson, ",\"seed\":4,\"n\":6"));
  ASSERT_EQ(response.status, 200) << response.body;
  const Json body = parsed(response.body);
  std::set<std::string> different;
  for (const Json& choice : body.find("choices")->as_array()) {
    if (choice.string("finish_reason") != "stop") continue;
    const std::string content = choice.find("message")->string("content").value_or("");
    EXPECT_TRUE(follows(kPerson, content)) << content;
    different.insert(content);
  }
  EXPECT_GE(different.size(), 4u);
}

TEST(StructuredOutput, OtherFormatsHold) {
  ServerFixture fixture(kNoScript, any_options());
  for (int seed = 0; seed < 8; ++seed) {
    SCOPED_TRACE(seed);
    const std::string more = ",\"seed\":" + std::to_string(seed);
    Answered answer =
        ask(fixture, asked(R"("structured_outputs":{"regex":"[ab]{3,5}-[0-9]+x"})" + more));
    if (answer.finish == "stop") {
      EXPECT_GE(answer.content.size(), 6u);
      EXPECT_EQ(answer.content.back(), 'x') << answer.content;
    }
    answer = ask(fixture, asked(R"("structured_outputs":{"choice":["yes","no","né"]})" + more));
    EXPECT_TRUE(answer.content == "yes" || answer.content == "no" || answer.content == "né")
        << answer.content;
    answer = ask(fixture, asked(R"("guided_choice":["one"])" + more));
    EXPECT_EQ(answer.content, "one");
    answer = ask(fixture,
                 asked(R"("structured_outputs":{"grammar":"root ::= \"(\" [0-9] \")\""})" + more));
    ASSERT_EQ(answer.content.size(), 3u);
    EXPECT_EQ(answer.content[0], '(');
    answer = ask(fixture, asked(R"("response_format":{"type":"json_object"})" + more));
    if (answer.finish == "stop") {
      EXPECT_TRUE(Json::parse(answer.content).ok()) << answer.content;
    }
  }
}

const std::string kTool =
    R"("tools":[{"type":"function","function":{"name":"f.x","strict":true,"parameters":)" +
    std::string(kPerson) +
    R"(}},{"type":"function","function":{"name":"g","parameters":{"type":"object",)"
    R"("properties":{"ok":{"type":"boolean"}},"required":["ok"],)"
    R"("additionalProperties":false}}}])";
constexpr std::string_view kOk =
    R"({"type":"object","properties":{"ok":{"type":"boolean"}},"required":["ok"],)"
    R"("additionalProperties":false})";

TEST(StructuredOutput, CallsFollowTheirFunctionsParameters) {
  ServerFixture fixture(kNoScript, any_options());
  int called = 0;
  for (int seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(seed);
    const std::string more = ",\"seed\":" + std::to_string(seed);
    for (const std::string choice :
         {R"("required")", R"({"type":"function","function":{"name":"g"}})"}) {
      const Answered answer = ask(fixture, asked(kTool + ",\"tool_choice\":" + choice + more));
      if (answer.finish != "tool_calls") {
        EXPECT_EQ(answer.finish, "length");
        continue;
      }
      ++called;
      EXPECT_TRUE(answer.call == "f.x" || answer.call == "g") << answer.call;
      if (choice[0] == '{') {
        EXPECT_EQ(answer.call, "g");
      }
      EXPECT_TRUE(follows(answer.call == "g" ? kOk : kPerson, answer.arguments))
          << answer.arguments;
    }
  }
  EXPECT_GE(called, 22);
}

// A strict function that the model calls by itself; the other one's arguments are free.
TEST(StructuredOutput, StrictHoldsWhenTheModelCallsByItself) {
  ServerFixture fixture(kNoScript, any_options());
  int strict_calls = 0;
  for (int seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    const Answered answer = ask(fixture, asked(kTool + ",\"seed\":" + std::to_string(seed)));
    if (answer.finish != "tool_calls" || answer.call != "f.x") continue;
    ++strict_calls;
    EXPECT_TRUE(follows(kPerson, answer.arguments)) << answer.arguments;
  }
  EXPECT_GT(strict_calls, 0);
}

// Tokens that a budget of reasoning puts into the answer are gone over like sampled ones.
TEST(StructuredOutput, ABudgetOfReasoningLeavesTheFormatWhole) {
  ServerFixture fixture(kNoScript, any_options());
  int reasoned = 0;
  for (int seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    const Answered answer =
        ask(fixture,
            schema_asked(kPerson, ",\"thinking_token_budget\":4,\"seed\":" + std::to_string(seed)));
    ASSERT_EQ(answer.finish, "stop");
    if (!answer.reasoning.empty()) ++reasoned;
    EXPECT_TRUE(follows(kPerson, answer.content)) << answer.content;
  }
  EXPECT_GT(reasoned, 0);
}

// What must follow is emitted without being computed: the same text, counted the same, and cut
// where it is to be cut. Logarithms of chances are asked for, so there it is computed.
TEST(StructuredOutput, JumpsChangeNoCount) {
  ServerFixture fixture(kNoScript, any_options());
  for (int seed = 0; seed < 8; ++seed) {
    for (const int most : {200, 33, 32, 31, 9}) {
      const auto answer_to = [&](const std::string& more) {
        const net::HttpResponse response = fixture.post(
            "/v1/completions",
            R"({"prompt":"x","structured_outputs":{"regex":"[ab]{2} so that is that, no more[.!]"},)"
            R"("seed":)" +
                std::to_string(seed) + ",\"max_tokens\":" + std::to_string(most) + more + "}");
        EXPECT_EQ(response.status, 200) << response.body;
        const Json answer = parsed(response.body);
        const Json& choice = answer.find("choices")->as_array().at(0);
        return std::tuple(choice.string("text").value_or(""),
                          choice.string("finish_reason").value_or(""),
                          answer.find("usage")->integer("completion_tokens").value_or(-1));
      };
      const auto jumped = answer_to("");
      EXPECT_EQ(jumped, answer_to(",\"logprobs\":0"));
      if (std::get<1>(jumped) == "length") {
        EXPECT_EQ(std::get<2>(jumped), most);
      }
    }
  }
}

// A script that does not obey is told so, and the server goes on.
TEST(StructuredOutput, AnAnswerThatBreaksTheGrammarFailsAlone) {
  ServerFixture fixture(
      R"({"rules":[{"when":"","then":"<|channel|>final<|message|>Not JSON.<|return|>"}]})", {});
  const net::HttpResponse response =
      fixture.post("/v1/chat/completions", asked(R"("response_format":{"type":"json_object"})"));
  EXPECT_EQ(response.status, 500) << response.body;
  EXPECT_EQ(ask(fixture, asked(R"("seed":1)")).content, "Not JSON.");
}

TEST(StructuredOutput, AScriptThatObeysIsHeard) {
  ServerFixture fixture(
      R"({"rules":[{"when":"","then":"<|channel|>analysis<|message|>Hm, {.<|end|><|start|>assistant<|channel|>final<|message|>{\"ok\": true}<|return|>"}]})",
      {});
  const Answered answer = ask(fixture, schema_asked(kOk, ""));
  EXPECT_EQ(answer.content, R"({"ok": true})");
  EXPECT_EQ(answer.reasoning, "Hm, {.");
  EXPECT_EQ(answer.finish, "stop");
}

// vLLM's two spellings, and the tree of formats.
TEST(StructuredOutput, StructuralTagsHold) {
  const std::string old =
      R"({"type":"structural_tag","triggers":["<f="],"structures":[{"begin":"<f=a>","schema":)" +
      std::string(kOk) + R"(,"end":"</f>"}]})";
  const std::string tree =
      R"({"type":"structural_tag","format":{"type":"tag","begin":"<f=a>","content":)"
      R"({"type":"json_schema","json_schema":)" +
      std::string(kOk) + R"(},"end":"</f>"}})";
  ServerFixture obeys(
      R"({"rules":[{"when":"","then":"<|channel|>final<|message|>It is <f=a>{\"ok\": true}</f>, I say.<|return|>"}]})",
      {});
  EXPECT_EQ(ask(obeys, asked("\"response_format\":" + old)).content,
            R"(It is <f=a>{"ok": true}</f>, I say.)");
  ServerFixture disobeys(
      R"({"rules":[{"when":"","then":"<|channel|>final<|message|>It is <f=b>.<|return|>"}]})", {});
  EXPECT_EQ(disobeys.post("/v1/chat/completions", asked("\"response_format\":" + old)).status, 500);

  ServerFixture fixture(kNoScript, any_options());
  int finished = 0;
  for (int seed = 0; seed < 8; ++seed) {
    for (const std::string& format :
         {"\"response_format\":" + tree, R"("structured_outputs":{"structural_tag":)" + tree + "}",
          R"("structured_outputs":{"structural_tag":)" + json_string(tree) + "}"}) {
      const Answered answer = ask(fixture, asked(format + ",\"seed\":" + std::to_string(seed)));
      if (answer.finish != "stop") continue;
      ++finished;
      ASSERT_TRUE(answer.content.starts_with("<f=a>") && answer.content.ends_with("</f>"))
          << answer.content;
      EXPECT_TRUE(follows(kOk, answer.content.substr(5, answer.content.size() - 9)))
          << answer.content;
    }
  }
  EXPECT_GE(finished, 22);
  const std::tuple<std::string, std::string, std::string> bad[] = {
      {R"("response_format":{"type":"structural_tag"})", "response_format", "at '/'"},
      {R"("response_format":{"type":"structural_tag","format":{"type":"token","token":1}})",
       "response_format", "at '/format'"},
      {R"("structured_outputs":{"structural_tag":{"format":{"type":"json_schema","json_schema":)"
       R"({"properties":{"a":{"type":"foo"}}}}}})",
       "structured_outputs.structural_tag", "at '/format/json_schema/properties/a/type'"},
      {R"("structured_outputs":{"structural_tag":{"format":{"type":"any_text"}},"regex":"a"})",
       "structured_outputs.structural_tag", "both say"},
  };
  for (const auto& [more, param, message] : bad) {
    const net::HttpResponse response = fixture.post("/v1/chat/completions", asked(more));
    EXPECT_EQ(response.status, 400) << response.body;
    const Json body = parsed(response.body);
    EXPECT_EQ(body.find("error")->string("param"), param) << response.body;
    EXPECT_NE(response.body.find(message), std::string::npos) << response.body;
  }
}

TEST(StructuredOutput, MessagesFollowTheirFormat) {
  ServerFixture fixture(kNoScript, any_options());
  for (const std::string_view key : {R"("output_config":{"format":)", R"("output_format":)"}) {
    const std::string end = key.find("config") != std::string_view::npos ? "}}" : "}";
    const std::string begin =
        R"({"max_tokens":2000,"seed":1,"messages":[{"role":"user","content":"hi"}],)" +
        std::string(key) + R"({"type":"json_schema","schema":)";
    const net::HttpResponse response =
        fixture.post("/v1/messages", begin + std::string(kOk) + "}" + end);
    ASSERT_EQ(response.status, 200) << response.body;
    const Json body = parsed(response.body);
    ASSERT_EQ(body.string("stop_reason"), "end_turn") << response.body;
    EXPECT_TRUE(follows(kOk, body.find("content")->as_array().back().string("text").value_or("")))
        << response.body;
    const net::HttpResponse bad =
        fixture.post("/v1/messages", begin + R"({"type":"foo"})" + "}" + end);
    EXPECT_EQ(bad.status, 400) << bad.body;
    EXPECT_NE(bad.body.find("/type"), std::string::npos) << bad.body;
  }
}

// AP-23, and what else contradicts itself.
TEST(StructuredOutput, AP23_ContradictionsAreRefused) {
  ServerFixture fixture(kNoScript, any_options());
  const std::pair<std::string, std::string> bodies[] = {
      {kTool +
           R"(,"response_format":{"type":"json_object"},"structured_outputs":{"grammar":"r ::= \"a\""})",
       "structured_outputs.grammar"},
      {R"("structured_outputs":{"regex":"a"},"guided_json":{})", "guided_json"},
      {R"("structured_outputs":{"regex":"a"},"ignore_eos":true)", "ignore_eos"},
      {R"("structured_outputs":{"regex":"a["})", "structured_outputs.regex"},
      {R"("structured_outputs":{"grammar":"root ::= nothing"})", "structured_outputs.grammar"},
  };
  for (const auto& [more, param] : bodies) {
    SCOPED_TRACE(more);
    const net::HttpResponse response = fixture.post("/v1/chat/completions", asked(more));
    EXPECT_EQ(response.status, 400) << response.body;
    const Json body = parsed(response.body);
    EXPECT_EQ(body.find("error")->string("param"), param) << response.body;
  }
  const net::HttpResponse tokens =
      fixture.post("/inference/v1/generate",
                   R"({"token_ids":[1],"sampling_params":{"structured_outputs":{"regex":"a"}}})");
  EXPECT_EQ(tokens.status, 400) << tokens.body;
}

// JS-24, in small: what is held is bounded by entries and by bytes.
TEST(GrammarStore, ForgetsWhatWasNotAskedForLately) {
  GrammarStore store({.bytes_max = size_t{64} << 20, .entries_max = 8});
  const tokenizer::Tokenizer tokenizer = chat::tiny_tokenizer();
  const auto choice = [](int i) {
    return api::OutputFormat{.kind = api::OutputFormat::Kind::kChoice,
                             .field = "x",
                             .choices = {"word " + std::to_string(i)}};
  };
  grammar::CompileDeadline deadline({.cpu_us_max = int64_t{3600} * 1'000'000});
  const auto known = store.known_of("");
  EXPECT_EQ(known.grammar(choice(0), tokenizer).error().code, ErrorCode::kNotFound);
  const auto compiling = store.compiling_of("", {.deadline = deadline});
  const auto first = compiling.grammar(choice(0), tokenizer).value();
  const int count = std::getenv("PELTON_FULL") != nullptr ? 100'000 : 200;
  for (int i = 1; i < count; ++i) {
    ASSERT_TRUE(compiling.grammar(choice(i), tokenizer).ok());
    ASSERT_EQ(known.grammar(choice(0), tokenizer).value(), first);  // asked for again and again
    EXPECT_LE(store.entry_count(), 8u);
  }
  EXPECT_EQ(store.entry_count(), 8u);
  EXPECT_LE(store.bytes_held(), size_t{64} << 20);
}

api::OutputFormat grammar_format(std::string text, std::string field) {
  return {.kind = api::OutputFormat::Kind::kGrammar,
          .field = std::move(field),
          .text = std::move(text)};
}

// D2: what took long to refuse is refused at once when it is asked for again, in the words of the
// field that asks.
TEST(GrammarStore, D2_RefusalsAreRemembered) {
  GrammarStore store({.refusals_max = 4, .refusal_us_min = 0});
  const tokenizer::Tokenizer tokenizer = chat::tiny_tokenizer();
  grammar::CompileDeadline deadline({.cpu_us_max = int64_t{3600} * 1'000'000});
  const auto broken = [](int i, const char* field) {
    return grammar_format("root ::= nothing" + std::to_string(i), field);
  };
  const auto known = store.known_of("a");
  EXPECT_EQ(known.grammar(broken(0, "x"), tokenizer).error().code, ErrorCode::kNotFound);
  const auto compiling = store.compiling_of("a", {.deadline = deadline});
  const Error refused = compiling.grammar(broken(0, "x"), tokenizer).error();
  EXPECT_EQ(refused.code, ErrorCode::kInvalidArgument);
  const Error again = known.grammar(broken(0, "y"), tokenizer).error();
  EXPECT_EQ(again.code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(again.field, "y");
  EXPECT_THAT(again.message, testing::HasSubstr("nothing0"));
  // A tenant's own, as grammars are, and no more than so many.
  EXPECT_EQ(store.known_of("b").grammar(broken(0, "x"), tokenizer).error().code,
            ErrorCode::kNotFound);
  for (int i = 1; i < 20; ++i) EXPECT_FALSE(compiling.grammar(broken(i, "x"), tokenizer).ok());
  EXPECT_EQ(store.refusal_count(), 4u);
  EXPECT_EQ(store.entry_count(), 0u);
  EXPECT_EQ(known.grammar(broken(0, "x"), tokenizer).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(known.grammar(broken(19, "x"), tokenizer).error().code, ErrorCode::kInvalidArgument);
}

TEST(GrammarStore, D2_WhatTakesTooLongIsRememberedIfItHadAllTheTime) {
  GrammarStore store({});
  const tokenizer::Tokenizer tokenizer = chat::tiny_tokenizer();
  std::string lark = "start: a0\n";
  for (int i = 0; i < 300; ++i) {
    lark += fmt::format("a{}: /([ab]*a[ab]{{11}}|[ab]*)c{}/ a{}\n", i, i, i + 1);
  }
  const api::OutputFormat costly = grammar_format(lark + "a300: \"x\"", "x");
  const auto known = [&] { return store.known_of("").grammar(costly, tokenizer).error().code; };
  grammar::CompileDeadline first({.cpu_us_max = 5'000});
  EXPECT_EQ(store.compiling_of("", {.deadline = first, .is_last = false})
                .grammar(costly, tokenizer)
                .error()
                .code,
            ErrorCode::kDeadline);
  EXPECT_EQ(known(), ErrorCode::kNotFound);
  std::atomic<bool> stopped = true;
  grammar::CompileDeadline left({.cpu_us_max = 5'000, .stopped = &stopped});
  EXPECT_FALSE(store.compiling_of("", {.deadline = left}).grammar(costly, tokenizer).ok());
  EXPECT_EQ(known(), ErrorCode::kNotFound);
  grammar::CompileDeadline last({.cpu_us_max = 5'000});
  const Error refused =
      store.compiling_of("", {.deadline = last}).grammar(costly, tokenizer).error();
  EXPECT_EQ(refused.code, ErrorCode::kDeadline);
  EXPECT_EQ(known(), ErrorCode::kDeadline);
}

// That the vocabulary is read for the first time is not the first request's fault.
TEST(GrammarStore, D2_TheVocabularyCountsAgainstNoDeadline) {
  GrammarStore store({});
  const tokenizer::Tokenizer tokenizer = chat::tiny_tokenizer();
  grammar::CompileDeadline deadline({.cpu_us_max = 100'000});
  const int64_t before = grammar::CompileDeadline::thread_cpu_us();
  ASSERT_NE(store.compiling_of("", {.deadline = deadline}).trie(tokenizer), nullptr);
  const int64_t spent = grammar::CompileDeadline::thread_cpu_us() - before;
  EXPECT_GE(deadline.left_us() + spent, 100'000 + spent / 2);
}

TEST(StructuredOutput, CompletionsFollowTheirFormat) {
  ServerFixture fixture(kNoScript, any_options());
  const net::HttpResponse response =
      fixture.post("/v1/completions", R"({"prompt":"x","max_tokens":300,"seed":3,)"
                                      R"("structured_outputs":{"choice":["left","right"]}})");
  ASSERT_EQ(response.status, 200) << response.body;
  const std::string text =
      parsed(response.body).find("choices")->as_array().at(0).string("text").value_or("");
  EXPECT_TRUE(text == "left" || text == "right") << text;
}

TEST(StructuredOutput, ResponsesFollowTheirTextFormat) {
  ServerFixture fixture(kNoScript, any_options());
  const std::string format = R"("text":{"format":{"type":"json_schema","name":"it","schema":)";
  const net::HttpResponse response =
      fixture.post("/v1/responses", R"({"input":"hi","max_output_tokens":2000,)" + format +
                                        std::string(kOk) + "}}}");
  ASSERT_EQ(response.status, 200) << response.body;
  bool found = false;
  const Json body = parsed(response.body);
  for (const Json& item : body.find("output")->as_array()) {
    if (item.string("type") != "message") continue;
    found = true;
    const std::string text = item.find("content")->as_array().at(0).string("text").value_or("");
    EXPECT_TRUE(follows(kOk, text)) << text;
  }
  EXPECT_TRUE(found || body.string("status") == "incomplete") << response.body;
  const net::HttpResponse bad =
      fixture.post("/v1/responses", R"({"input":"hi",)" + format + R"({"type":"foo"}}}})");
  EXPECT_EQ(bad.status, 400);
  const Json bad_body = parsed(bad.body);
  EXPECT_EQ(bad_body.find("error")->string("param"), "text.format.schema");
}

// A body without reasoning must not stop before min_tokens, but the grammar knows better.
TEST(StructuredOutput, TheGrammarsEndComesBeforeMinTokens) {
  ServerFixture fixture(kNoScript, any_options());
  const Answered answer =
      ask(fixture, asked(R"("min_tokens":500,"structured_outputs":{"choice":["one"]},"seed":2)"));
  EXPECT_EQ(answer.content, "one");
}

}  // namespace
}  // namespace pelton::server
