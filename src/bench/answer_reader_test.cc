// What goes out and what comes back, without a server.
#include "bench/answer_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/question.h"
#include "bench/target.h"

namespace pelton::bench {
namespace {

using report::RequestRecord;
using testing::ElementsAre;
using testing::HasSubstr;

Target target_at(int port, const std::string& backend) {
  const auto target = make_target({.backend = backend,
                                   .base_url = "http://127.0.0.1:" + std::to_string(port),
                                   .endpoint = {},
                                   .model = "m",
                                   .headers = {}});
  EXPECT_TRUE(target.ok());
  return *target;
}

workload::Conversation one_turn(std::string prompt, int output_tokens) {
  workload::Conversation conversation;
  conversation.turns.push_back({.prompt = std::move(prompt),
                                .ids = {},
                                .output_tokens = output_tokens,
                                .messages_json = {}});
  return conversation;
}

TEST(Target, Urls) {
  const auto path = [](const std::string& url, const std::string& endpoint) {
    const auto target = make_target({.backend = "openai-chat",
                                     .base_url = url,
                                     .endpoint = endpoint,
                                     .model = {},
                                     .headers = {}});
    return target.ok() ? target->call.target : target.error().message;
  };
  EXPECT_EQ(path("http://h:1", ""), "/v1/chat/completions");
  EXPECT_EQ(path("http://h:1/", ""), "/v1/chat/completions");
  EXPECT_EQ(path("http://h:1/v1", ""), "/v1/chat/completions");
  EXPECT_EQ(path("http://h:1/deep/v1/", ""), "/deep/v1/chat/completions");
  EXPECT_EQ(path("http://h:1/deep", "chat"), "/deep/chat");
  EXPECT_THAT(path("ftp://h", ""), HasSubstr("ftp"));
  EXPECT_FALSE(parse_backend("sglang-native").ok());
  EXPECT_EQ(parse_pair("a=b=c", "header").value(), std::pair(std::string("a"), std::string("b=c")));
  EXPECT_FALSE(parse_pair("a", "header").ok());
}

TEST(Question, Bodies) {
  QuestionOptions options;
  options.ignore_eos = true;
  options.sampling = {{"temperature", 0.5}};
  const workload::Conversation conversation = one_turn("hi \"you\"", 7);
  const auto body = [&](const char* backend, const std::vector<Said>& before) {
    return question_body(target_at(1, backend), options, conversation, before,
                         conversation.turns[0], "m");
  };
  EXPECT_EQ(body("openai", {}),
            R"({"model":"m","prompt":"hi \"you\"","max_tokens":7,"ignore_eos":true,)"
            R"("temperature":0.5,"stream":true,)"
            R"("stream_options":{"include_usage":true,"continuous_usage_stats":true}})");
  options.counts = Counts::kAtEnd;
  EXPECT_EQ(body("openai-chat", {{true, "a"}, {false, "b"}}),
            R"({"model":"m","messages":[{"role":"user","content":"a"},)"
            R"({"role":"assistant","content":"b"},{"role":"user","content":"hi \"you\""}],)"
            R"("max_completion_tokens":7,"ignore_eos":true,"temperature":0.5,"stream":true,)"
            R"("stream_options":{"include_usage":true}})");
  EXPECT_EQ(body("openai-embeddings", {}), R"({"model":"m","input":"hi \"you\""})");
  options.rerank_documents = 2;
  EXPECT_EQ(body("vllm-rerank", {}), R"({"model":"m","query":"hi","documents":["\"y","ou\""]})");
  options.extra = Json::parse(R"({"query":"q","documents":["a","b","c"],"top_n":2})").value();
  EXPECT_EQ(body("vllm-rerank", {}),
            R"({"model":"m","query":"q","documents":["a","b","c"],"top_n":2})");
  const AnswerLimits limits =
      answer_limits(target_at(1, "vllm-rerank"), options, conversation.turns[0]);
  EXPECT_EQ(limits.documents, 3);
  EXPECT_EQ(limits.results, 2);
  options.extra = Json::parse(R"({"max_output_tokens":3,"user":"u"})").value();
  options.sampling.clear();
  options.ignore_eos = false;
  EXPECT_EQ(body("openai-responses", {}),
            R"({"model":"m","input":[{"role":"user","content":"hi \"you\""}],"stream":true,)"
            R"("max_output_tokens":3,"user":"u"})");
}

TEST(Question, E5_AskedTokensAreThoseOfTheBody) {
  const workload::Conversation conversation = one_turn("hi", 7);
  const auto asked = [&](const char* backend, const char* extra) {
    QuestionOptions options;
    options.extra = Json::parse(extra).value();
    return asked_tokens(target_at(1, backend), options, conversation.turns[0]);
  };
  EXPECT_EQ(asked("openai", "{}"), 7);
  EXPECT_EQ(asked("openai", R"({"max_tokens":4000})"), 4000);
  EXPECT_EQ(asked("openai-chat", R"({"max_completion_tokens":4000})"), 4000);
  EXPECT_EQ(asked("openai-chat", R"({"max_tokens":4000})"), 4000);
  EXPECT_EQ(asked("openai-responses", R"({"max_output_tokens":3})"), 3);
  EXPECT_EQ(asked("openai", R"({"max_tokens":null,"n":3})"), 0) << "as the model likes";
  EXPECT_EQ(asked("openai", R"({"n":3})"), 21);
  EXPECT_EQ(asked("openai", R"({"n":2,"best_of":4})"), 28);
  EXPECT_EQ(asked("openai", R"({"prompt":["a","b","c"],"n":2})"), 42);
  EXPECT_EQ(asked("openai", R"({"prompt":[1,2,3]})"), 7) << "one prompt in tokens";
  // Foreign numbers neither overflow nor take all memory.
  const int64_t huge = asked("openai", R"({"max_tokens":9223372036854775807,"n":1e300})");
  EXPECT_GT(huge, 0);
  EXPECT_LE(AnswerLimits::for_asked(huge).tokens_max, 1 << 24);
  EXPECT_GE(AnswerLimits::for_asked(4000).tokens_max, 4000);
}

TEST(Question, ExtraReplacesThePrompt) {
  QuestionOptions options;
  options.extra = Json::parse(R"({"prompt":"mine"})").value();
  const workload::Conversation conversation = one_turn("hi", 7);
  const std::string body =
      question_body(target_at(1, "openai"), options, conversation, {}, conversation.turns[0], "m");
  EXPECT_EQ(body.find("\"hi\""), std::string::npos) << body;
  EXPECT_EQ(Json::parse(body)->string("prompt"), "mine");
}

AnswerFields fields_of(std::string_view json) {
  AnswerFields fields;
  EXPECT_TRUE(read_answer_fields(json, fields).ok());
  return fields;
}

TEST(AnswerFields, ChatChunks) {
  const AnswerFields text =
      fields_of(R"({"id":"x","choices":[{"index":0,"delta":{"role":"assistant","content":"Grüße"},)"
                R"("logprobs":{"content":[{"token":"a","content":"b"}]},"finish_reason":null}],)"
                R"("usage":{"prompt_tokens":9,"completion_tokens":4,"total_tokens":13,)"
                R"("prompt_tokens_details":{"cached_tokens":8},)"
                R"("completion_tokens_details":{"reasoning_tokens":2}}})");
  EXPECT_EQ(text.text, "Grüße");
  EXPECT_EQ(text.text_bytes, 7);
  EXPECT_EQ(text.characters, 5);
  EXPECT_TRUE(text.has_choices);
  EXPECT_EQ(text.prompt_tokens, 9);
  EXPECT_EQ(text.cached_tokens, 8);
  EXPECT_EQ(text.completion_tokens, 4);
  EXPECT_EQ(text.reasoning_tokens, 2);
  for (const char* key : {"reasoning", "reasoning_content"}) {
    const AnswerFields reasoning =
        fields_of(std::string(R"({"choices":[{"delta":{")") + key + R"(":"hm","content":null}}]})");
    EXPECT_EQ(reasoning.reasoning_bytes, 2);
    EXPECT_EQ(reasoning.text_bytes, 0);
  }
  const AnswerFields tool =
      fields_of(R"({"choices":[{"delta":{"tool_calls":[{"index":0,"id":"call_x","type":"function",)"
                R"("function":{"name":"f","arguments":"{\"a\""}}]}}]})");
  EXPECT_EQ(tool.tool_bytes, 5);
  const AnswerFields usage = fields_of(R"({"choices":[],"usage":{"completion_tokens":3}})");
  EXPECT_FALSE(usage.has_choices);
  EXPECT_EQ(usage.completion_tokens, 3);
}

TEST(AnswerFields, OtherShapes) {
  const AnswerFields completion =
      fields_of(R"({"choices":[{"index":0,"text":" wheel","token_ids":[5,6,7],"logprobs":null}]})");
  EXPECT_EQ(completion.text, " wheel");
  EXPECT_EQ(completion.token_ids, 3);
  EXPECT_EQ(fields_of(R"({"delta":"Hi","type":"response.output_text.delta"})").text, "Hi");
  EXPECT_EQ(fields_of(R"({"type":"response.reasoning_text.delta","delta":"Hi"})").reasoning_bytes,
            2);
  EXPECT_EQ(
      fields_of(R"({"type":"response.function_call_arguments.delta","delta":"{}"})").tool_bytes, 2);
  const AnswerFields done = fields_of(
      R"({"type":"response.completed","response":{"error":null,"output":[{"content":)"
      R"([{"type":"output_text","text":"Hi"}]}],"usage":{"input_tokens":3,"output_tokens":2,)"
      R"("input_tokens_details":{"cached_tokens":1},)"
      R"("output_tokens_details":{"reasoning_tokens":1}}}})");
  EXPECT_EQ(done.bytes(), 0);
  EXPECT_EQ(done.prompt_tokens, 3);
  EXPECT_EQ(done.completion_tokens, 2);
  EXPECT_EQ(fields_of(R"({"error":{"message":"busy","type":"t"}})").error, "busy");
  EXPECT_EQ(fields_of(R"({"error":"busy"})").error, "busy");
  EXPECT_EQ(fields_of(R"({"type":"error","message":"gone"})").error, "gone");
  AnswerFields fields;
  EXPECT_FALSE(read_answer_fields("{", fields).ok());
}

// Feeds events, 10 ms apart.
RequestRecord read_events(const std::vector<std::string>& events) {
  RequestRecord record;
  AnswerReader reader(record, {});
  net::HttpHeaders headers;
  headers.add("Content-Type", "text/event-stream; charset=utf-8");
  reader.head(200, headers, 0);
  int64_t now = 0;
  for (const std::string& event : events) {
    now += 10'000'000;
    reader.bytes("data: " + event + "\n\n", now);
  }
  reader.end({}, now + 1'000'000);
  return record;
}

std::vector<std::pair<int64_t, int>> pieces_of(const RequestRecord& record) {
  std::vector<std::pair<int64_t, int>> pieces;
  for (const report::Piece& piece : record.pieces) {
    pieces.emplace_back(piece.at_ns / 1'000'000, piece.tokens);
  }
  return pieces;
}

// Harmony's headers are tokens that no piece shows: counts report them.
TEST(AnswerReader, CountsAreExactWhereTold) {
  const RequestRecord record = read_events(
      {R"({"choices":[{"delta":{"role":"assistant","content":""}}],"usage":{"completion_tokens":1}})",
       R"({"choices":[{"delta":{"reasoning_content":"a"}}],"usage":{"completion_tokens":4}})",
       R"({"choices":[{"delta":{"reasoning_content":"b"}}],"usage":{"completion_tokens":4}})",
       R"({"choices":[{"delta":{"content":"c"}}],"usage":{"completion_tokens":9}})",
       R"({"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"completion_tokens":10}})",
       R"({"choices":[],"usage":{"prompt_tokens":20,"completion_tokens":10}})", "[DONE]"});
  EXPECT_TRUE(record.ok) << record.error;
  EXPECT_TRUE(record.tokens_told);
  EXPECT_THAT(pieces_of(record),
              ElementsAre(std::pair(10, 1), std::pair(20, 3), std::pair(40, 5), std::pair(50, 1)));
  EXPECT_EQ(record.output_tokens, 10);
  EXPECT_EQ(record.input_tokens, 20);
  EXPECT_EQ(record.first_reasoning_ns, 20'000'000);
  EXPECT_EQ(record.first_text_ns, 40'000'000);
  EXPECT_EQ(record.end_ns, 71'000'000);
}

TEST(AnswerReader, PieceByPieceWhereNot) {
  const RequestRecord record = read_events(
      {R"({"choices":[{"delta":{"role":"assistant","content":""}}]})",
       R"({"choices":[{"delta":{"content":"a"}}]})", R"({"choices":[{"delta":{"content":"b c"}}]})",
       R"({"choices":[{"delta":{},"finish_reason":"stop"}]})",
       R"({"choices":[],"usage":{"prompt_tokens":20,"completion_tokens":7}})", "[DONE]"});
  EXPECT_FALSE(record.tokens_told);
  EXPECT_THAT(pieces_of(record), ElementsAre(std::pair(20, 1), std::pair(30, 1)));
  EXPECT_EQ(record.output_tokens, 7);
}

TEST(AnswerReader, TokenIdsTellToo) {
  const RequestRecord record =
      read_events({R"({"choices":[{"text":"a","token_ids":[1,2]}]})",
                   R"({"choices":[{"text":"b","token_ids":[3]}]})", "[DONE]"});
  EXPECT_TRUE(record.tokens_told);
  EXPECT_THAT(pieces_of(record), ElementsAre(std::pair(10, 2), std::pair(20, 1)));
  EXPECT_EQ(record.output_tokens, 3);
}

TEST(AnswerReader, Responses) {
  const RequestRecord record = read_events(
      {R"({"type":"response.created","response":{"id":"resp_1","usage":null,"error":null}})",
       R"({"type":"response.reasoning_text.delta","delta":"hm"})",
       R"({"type":"response.output_text.delta","delta":"Hi"})",
       R"({"type":"response.function_call_arguments.delta","delta":"{}"})",
       R"({"type":"response.completed","response":{"usage":{"input_tokens":7,"output_tokens":9,)"
       R"("output_tokens_details":{"reasoning_tokens":4}}}})"});
  EXPECT_TRUE(record.ok) << record.error;
  EXPECT_FALSE(record.tokens_told);
  EXPECT_THAT(pieces_of(record), ElementsAre(std::pair(20, 1), std::pair(30, 1), std::pair(40, 1)));
  EXPECT_EQ(record.first_reasoning_ns, 20'000'000);
  EXPECT_EQ(record.first_text_ns, 30'000'000);
  EXPECT_EQ(record.input_tokens, 7);
  EXPECT_EQ(record.output_tokens, 9);
  EXPECT_EQ(record.reasoning_tokens, 4);
  EXPECT_EQ(
      read_events({R"({"type":"response.failed","response":{"error":{"message":"no"}}})"}).error,
      "no");
}

TEST(AnswerReader, Embeddings) {
  RequestRecord record;
  AnswerReader reader(record, {});
  reader.head(200, {}, 0);
  reader.bytes(R"({"object":"list","data":[{"embedding":[0.1,0.2],"index":0}],"model":"e",)", 5);
  reader.bytes(R"("usage":{"prompt_tokens":8,"total_tokens":8}})", 6);
  reader.end({}, 7);
  EXPECT_TRUE(record.ok) << record.error;
  EXPECT_EQ(record.input_tokens, 8);
  EXPECT_EQ(record.output_tokens, 0);
  EXPECT_TRUE(record.pieces.empty());
  EXPECT_EQ(record.end_ns, 7);
}

TEST(AnswerReader, DocumentsInOrder) {
  const auto read = [](std::string_view body) {
    RequestRecord record;
    AnswerReader reader(record, {.documents = 2, .results = 2});
    reader.head(200, {}, 0);
    reader.bytes(body, 5);
    reader.end({}, 7);
    return record;
  };
  const RequestRecord whole = read(
      R"({"usage":{"prompt_tokens":8},"results":[{"index":1,"relevance_score":1},{"index":0,"relevance_score":0}]})");
  EXPECT_TRUE(whole.ok) << whole.error;
  EXPECT_EQ(whole.input_tokens, 8);
  EXPECT_THAT(read(R"({"results":[{"index":1,"relevance_score":1}]})").error,
              HasSubstr("ranks 1 documents"));
  EXPECT_THAT(read(R"({"error":{"message":"busy"}})").error, "busy");
}

TEST(AnswerReader, Failures) {
  EXPECT_EQ(read_events({R"({"error":{"message":"out of breath"}})"}).error, "out of breath");
  EXPECT_THAT(read_events({"{"}).error, HasSubstr("no JSON"));
  EXPECT_THAT(read_events({}).error, HasSubstr("without an answer"));
  RequestRecord record;
  AnswerReader reader(record, {});
  reader.head(503, {}, 0);
  reader.bytes(R"({"error":{"message":"busy"}})", 5);
  reader.end({}, 6);
  EXPECT_EQ(record.error, "HTTP 503: busy");
  EXPECT_FALSE(record.ok);
  RequestRecord broken;
  AnswerReader cut(broken, {});
  cut.end(Error{ErrorCode::kIo, "broke off", {}}, 7);
  EXPECT_EQ(broken.error, "broke off");
}

TEST(AnswerReader, E5_ClaimsAreNotBelievedWithoutABound) {
  for (const char* claim :
       {"\"completion_tokens\":9223372036854775807", "\"completion_tokens\":-9223372036854775808",
        "\"completion_tokens\":5,\"prompt_tokens\":9223372036854775807",
        "\"output_tokens\":2000000",
        "\"completion_tokens\":5,\"prompt_tokens_details\":"
        "{\"cached_tokens\":9223372036854775807}",
        "\"completion_tokens\":5,\"completion_tokens_details\":"
        "{\"reasoning_tokens\":9223372036854775807}"}) {
    const RequestRecord record =
        read_events({std::string(R"({"choices":[{"text":"on"}],"usage":{)") + claim + "}}"});
    EXPECT_FALSE(record.ok) << claim;
    EXPECT_THAT(record.error, HasSubstr("not believed")) << claim;
    EXPECT_TRUE(record.pieces.empty());
  }
  // No integers: as if nothing was said.
  for (const char* odd : {"1e300", "18446744073709551615", "\"5\"", "2.5", "null", "[9]"}) {
    const RequestRecord record = read_events(
        {std::string(R"({"choices":[{"text":"on"}],"usage":{"completion_tokens":)") + odd + "}}"});
    EXPECT_EQ(record.output_tokens, 1) << odd;
  }
}

TEST(AnswerReader, E6_AnErrorCannotSteerTheTerminal) {
  EXPECT_EQ(read_events({R"({"error":{"message":"a\u001b[2J\u007fb\u009bc\nd"}})"}).error,
            "a[2Jbc d");
  EXPECT_EQ(read_events({R"({"error":{"message":"\u001b"}})"}).error, "an error without words");
}

}  // namespace
}  // namespace pelton::bench
