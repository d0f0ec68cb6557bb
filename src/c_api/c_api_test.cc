// What pelton.h promises, on the model in the box: structures of other versions, buffers, errors,
// events, grammars, cancelling, handles freed in any order, many threads.
#include <atomic>
#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "c_api/pelton.h"

namespace pelton::c_api {
namespace {

using ::testing::HasSubstr;

std::string box() {
  return std::string(PELTON_SOURCE_DIR) + "/models/pelton-box";
}

struct Events {
  std::string text;
  std::string reasoning;
  std::vector<std::string> calls;
  std::vector<std::string> arguments;
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  int events_left = -1;  // then it stops; negative: never
};

int collect(void* data, const pelton_event* event) {
  Events& events = *static_cast<Events*>(data);
  EXPECT_EQ(event->text[event->bytes], '\0');
  if (event->token >= 0) {
    events.tokens.push_back(event->token);
    events.logprobs.push_back(event->logprob);
  }
  if (event->kind == PELTON_TEXT) events.text += event->text;
  if (event->kind == PELTON_REASONING) events.reasoning += event->text;
  if (event->kind == PELTON_TOOL_CALL) {
    events.calls.emplace_back(event->text);
    events.arguments.emplace_back();
  }
  if (event->kind == PELTON_TOOL_ARGUMENTS) {
    events.arguments[static_cast<size_t>(event->call)] += event->text;
  }
  return events.events_left-- == 0 ? 1 : 0;
}

class CApi : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    pelton_load_options options;
    pelton_load_options_init(&options, sizeof options);
    options.threads = 2;
    options.context_tokens = 1024;
    ASSERT_EQ(pelton_load(box().c_str(), &options, &model_), PELTON_OK) << pelton_error_message();
  }
  static void TearDownTestSuite() {
    pelton_free(model_);
    model_ = nullptr;
  }

  static pelton_request request_of(const char* prompt) {
    pelton_request request;
    pelton_request_init(model_, &request, sizeof request);
    request.prompt = prompt;
    request.temperature = 0;
    request.max_tokens = 24;
    return request;
  }
  static Events events_of(const pelton_request& request, pelton_result* result = nullptr) {
    Events events;
    EXPECT_EQ(pelton_generate(model_, &request, collect, &events, result), PELTON_OK)
        << pelton_error_message();
    return events;
  }
  static std::vector<int32_t> tokens_of(const std::string& text, int how = PELTON_TOKENIZE_PLAIN) {
    size_t count = 0;
    pelton_tokenize(model_, text.data(), text.size(), how, nullptr, &count);
    std::vector<int32_t> tokens(count);
    EXPECT_EQ(pelton_tokenize(model_, text.data(), text.size(), how, tokens.data(), &count),
              PELTON_OK);
    return tokens;
  }

  static inline pelton_model* model_ = nullptr;
};

TEST_F(CApi, VersionsAreThoseOfTheHeader) {
  EXPECT_EQ(pelton_abi_version(), PELTON_ABI_VERSION);
  EXPECT_THAT(pelton_version(), HasSubstr("."));
}

TEST_F(CApi, TextGoesToTokensAndBack) {
  const std::string text("wheel \0 \xED\x95\x9C, caf\xC3\xA9", 18);
  const std::vector<int32_t> tokens = tokens_of(text);
  ASSERT_FALSE(tokens.empty());
  size_t bytes = 0;
  EXPECT_EQ(pelton_detokenize(model_, tokens.data(), tokens.size(), nullptr, &bytes),
            PELTON_BUFFER_TOO_SMALL);
  ASSERT_EQ(bytes, text.size());
  std::string back(bytes, ' ');
  bytes = text.size() - 1;
  EXPECT_EQ(pelton_detokenize(model_, tokens.data(), tokens.size(), back.data(), &bytes),
            PELTON_BUFFER_TOO_SMALL);
  EXPECT_EQ(back, std::string(text.size(), ' ')) << "nothing is written";
  EXPECT_EQ(pelton_detokenize(model_, tokens.data(), tokens.size(), back.data(), &bytes),
            PELTON_OK);
  EXPECT_EQ(back, text);
}

TEST_F(CApi, ControlTokensComeFromTextOnlyIfAskedFor) {
  EXPECT_EQ(tokens_of("<|start|>", PELTON_TOKENIZE_SPECIAL).size(), 1u);
  EXPECT_GT(tokens_of("<|start|>").size(), 1u);
  size_t count = 0;
  EXPECT_EQ(pelton_tokenize(model_, "a", 1, 7, nullptr, &count), PELTON_INVALID_ARGUMENT);
}

TEST_F(CApi, EveryTokenIsInAnEventAndTextIsTheirBytes) {
  pelton_request request = request_of("A Pelton wheel is");
  request.logprobs = 1;
  request.ignore_stop_tokens = 1;
  pelton_result result;
  pelton_result_init(&result, sizeof result);
  const Events events = events_of(request, &result);
  EXPECT_EQ(events.tokens.size(), 24u);
  EXPECT_EQ(result.output_tokens, 24);
  EXPECT_EQ(result.finish, PELTON_FINISH_LENGTH);
  EXPECT_GT(result.first_token_ns, 0);
  EXPECT_GE(result.total_ns, result.first_token_ns);
  for (const float logprob : events.logprobs) EXPECT_LE(logprob, 0.0f);
  // By tokens the same prompt has the same answer.
  const std::vector<int32_t> prompt = tokens_of("A Pelton wheel is", PELTON_TOKENIZE_PROMPT);
  request.prompt = nullptr;
  request.tokens = prompt.data();
  request.token_count = prompt.size();
  EXPECT_EQ(events_of(request).tokens, events.tokens);
}

TEST_F(CApi, ASeedRepeatsAnAnswer) {
  pelton_request request = request_of("Once");
  request.temperature = 2.0f;
  request.has_seed = 1;
  request.seed = 7;
  const Events first = events_of(request);
  EXPECT_EQ(events_of(request).tokens, first.tokens);
  request.seed = 8;
  EXPECT_NE(events_of(request).tokens, first.tokens);
}

TEST_F(CApi, MessagesAreWrittenInTheModelsFormatAndReadFromIt) {
  pelton_request request = request_of(nullptr);
  request.messages = R"([{"role":"user","content":"What is a Pelton wheel?"}])";
  request.max_tokens = 0;
  pelton_result result;
  pelton_result_init(&result, sizeof result);
  const Events events = events_of(request, &result);
  EXPECT_EQ(result.finish, PELTON_FINISH_STOP);
  EXPECT_THAT(events.text, HasSubstr("water"));
  EXPECT_EQ(events.text.find("<|"), std::string::npos);
  size_t count = 0;
  EXPECT_EQ(pelton_prompt_tokens(model_, &request, nullptr, &count), PELTON_BUFFER_TOO_SMALL);
  EXPECT_EQ(count, static_cast<size_t>(result.prompt_tokens));
}

TEST_F(CApi, ToolsMayBeOffered) {
  pelton_request request = request_of(nullptr);
  request.messages = R"([{"role":"user","content":"I fly to Lisbon. How is the weather there?"}])";
  request.tools =
      R"([{"type":"function","function":{"name":"get_weather","description":"Weather of a city.",
          "parameters":{"type":"object","properties":{"location":{"type":"string"}},
          "required":["location"]}}},
          {"type":"function","function":{"name":"play_song","description":"Plays a song.",
          "parameters":{"type":"object","properties":{"title":{"type":"string"}},
          "required":["title"]}}}])";
  request.max_tokens = 200;
  pelton_result result;
  pelton_result_init(&result, sizeof result);
  const Events events = events_of(request, &result);
  ASSERT_EQ(events.calls, std::vector<std::string>{"get_weather"}) << events.text;
  EXPECT_EQ(Json::parse(events.arguments[0])->dump(), R"({"location":"Lisbon"})");
  EXPECT_EQ(result.finish, PELTON_FINISH_TOOL_CALLS);
}

TEST_F(CApi, AGrammarHoldsWithAndWithoutAChatFormat) {
  pelton_grammar* grammar = nullptr;
  ASSERT_EQ(pelton_grammar_compile(model_, PELTON_REGEX, "(red|green)[0-9]{3}", &grammar),
            PELTON_OK);
  pelton_request request = request_of("A colour: ");
  request.grammar = grammar;
  EXPECT_THAT(events_of(request).text, ::testing::MatchesRegex("(red|green)[0-9][0-9][0-9]"));
  request.prompt = nullptr;
  request.messages = R"([{"role":"user","content":"A colour?"}])";
  request.max_tokens = 0;
  EXPECT_THAT(events_of(request).text, ::testing::MatchesRegex("(red|green)[0-9][0-9][0-9]"));
  pelton_grammar_free(grammar);
}

TEST_F(CApi, GrammarsThatAreNoneSayWhereAndWhy) {
  pelton_grammar* grammar = nullptr;
  EXPECT_EQ(pelton_grammar_compile(model_, PELTON_JSON_SCHEMA, R"({"type":"nothing"})", &grammar),
            PELTON_INVALID_ARGUMENT);
  EXPECT_THAT(pelton_error_message(), HasSubstr("/type"));
  EXPECT_EQ(pelton_grammar_compile(model_, PELTON_JSON_SCHEMA, "{", &grammar),
            PELTON_INVALID_ARGUMENT);
  EXPECT_EQ(pelton_grammar_compile(model_, PELTON_REGEX, "(", &grammar), PELTON_INVALID_ARGUMENT);
  EXPECT_EQ(pelton_grammar_compile(model_, PELTON_EBNF, "root ::= other", &grammar),
            PELTON_INVALID_ARGUMENT);
  EXPECT_EQ(pelton_grammar_compile(model_, static_cast<pelton_grammar_kind>(9), "x", &grammar),
            PELTON_INVALID_ARGUMENT);
  EXPECT_EQ(pelton_grammar_compile(model_, PELTON_REGEX, nullptr, &grammar),
            PELTON_INVALID_ARGUMENT);
  EXPECT_EQ(grammar, nullptr);
}

TEST_F(CApi, AReaderMayStopAndAnotherThreadMayCancel) {
  pelton_request request = request_of("Once upon a time");
  request.ignore_stop_tokens = 1;
  request.max_tokens = 0;
  Events events{.events_left = 3};
  pelton_result result;
  pelton_result_init(&result, sizeof result);
  ASSERT_EQ(pelton_generate(model_, &request, collect, &events, &result), PELTON_OK);
  EXPECT_EQ(result.finish, PELTON_FINISH_CANCELLED);
  EXPECT_EQ(events.tokens.size(), 4u);

  pelton_generation* generation = nullptr;
  ASSERT_EQ(pelton_start(model_, &request, &generation), PELTON_OK);
  std::thread other([&] { pelton_cancel(generation); });
  ASSERT_EQ(pelton_read(generation, nullptr, nullptr, &result), PELTON_OK);
  other.join();
  EXPECT_EQ(result.finish, PELTON_FINISH_CANCELLED);
  EXPECT_EQ(pelton_read(generation, nullptr, nullptr, &result), PELTON_INVALID_ARGUMENT);
  pelton_generation_free(generation);
  // One that nobody reads.
  ASSERT_EQ(pelton_start(model_, &request, &generation), PELTON_OK);
  pelton_generation_free(generation);
}

TEST_F(CApi, AnswersAtATimeAreThoseOfOneByOne) {
  const char* const prompts[] = {"A Pelton wheel is", "Once upon a time", "The capital of France"};
  std::vector<Events> alone;
  for (const char* prompt : prompts) alone.push_back(events_of(request_of(prompt)));
  std::vector<std::thread> threads;
  std::atomic<int> equal{0};
  for (int i = 0; i < 12; ++i) {
    threads.emplace_back([&, i] {
      const auto which = static_cast<size_t>(i % 3);
      if (events_of(request_of(prompts[which])).tokens == alone[which].tokens) ++equal;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(equal, 12);
}

TEST_F(CApi, HandlesMayBeFreedInAnyOrder) {
  pelton_model* other = nullptr;
  pelton_load_options options;
  pelton_load_options_init(&options, sizeof options);
  options.threads = 1;
  options.context_tokens = 256;
  ASSERT_EQ(pelton_load(box().c_str(), &options, &other), PELTON_OK);
  pelton_grammar* grammar = nullptr;
  ASSERT_EQ(pelton_grammar_compile(other, PELTON_JSON_OBJECT, nullptr, &grammar), PELTON_OK);
  pelton_request request = request_of("{");
  request.grammar = grammar;
  Events events;
  EXPECT_EQ(pelton_generate(model_, &request, collect, &events, nullptr), PELTON_INVALID_ARGUMENT);
  EXPECT_THAT(pelton_error_message(), HasSubstr("another model"));
  pelton_generation* generation = nullptr;
  ASSERT_EQ(pelton_start(other, &request, &generation), PELTON_OK);
  pelton_free(other);
  pelton_grammar_free(grammar);
  EXPECT_EQ(pelton_read(generation, collect, &events, nullptr), PELTON_OK)
      << pelton_error_message();
  EXPECT_FALSE(events.tokens.empty());
  pelton_generation_free(generation);
}

TEST_F(CApi, StructuresOfOtherVersions) {
  // An older program's, which knows no more than the prompt.
  pelton_request request = request_of("A Pelton wheel is");
  const Events full = events_of(request);
  struct {
    pelton_request known;
    uint64_t more;
  } newer{.known = request, .more = 0};
  newer.known.size = sizeof newer;
  EXPECT_EQ(events_of(newer.known).tokens, full.tokens);
  newer.more = 1;
  Events events;
  EXPECT_EQ(pelton_generate(model_, &newer.known, collect, &events, nullptr), PELTON_UNSUPPORTED);
  EXPECT_THAT(pelton_error_message(), HasSubstr("too old"));
  // Its last fields are not read.
  pelton_request older = request;
  older.size = offsetof(pelton_request, temperature) / 8 * 8;
  older.temperature = NAN;
  older.has_seed = 1;
  EXPECT_EQ(pelton_generate(model_, &older, collect, &events, nullptr), PELTON_OK)
      << pelton_error_message();
  for (const size_t size : {size_t{0}, size_t{8}, size_t{20}, sizeof request - 4}) {
    request.size = size;
    EXPECT_EQ(pelton_generate(model_, &request, collect, &events, nullptr),
              PELTON_INVALID_ARGUMENT);
    EXPECT_THAT(pelton_error_message(), HasSubstr("pelton_request_init"));
  }
  // A new field never hides in what fills a structure up.
  EXPECT_EQ(offsetof(pelton_request, reserved) + sizeof request.reserved, sizeof request);
  EXPECT_EQ(offsetof(pelton_event, reserved) + sizeof(int32_t), sizeof(pelton_event));
  EXPECT_EQ(offsetof(pelton_result, total_ns) + sizeof(int64_t), sizeof(pelton_result));
  EXPECT_EQ(offsetof(pelton_load_options, progress_data) + sizeof(void*),
            sizeof(pelton_load_options));
}

TEST_F(CApi, WhatIsWrongIsNamed) {
  Events events;
  const auto refused = [&](pelton_request request, const char* word) {
    const pelton_status status = pelton_generate(model_, &request, collect, &events, nullptr);
    EXPECT_NE(status, PELTON_OK) << word;
    EXPECT_THAT(pelton_error_message(), HasSubstr(word));
    return status;
  };
  pelton_request request = request_of(nullptr);
  refused(request, "messages");
  request = request_of("a");
  request.messages = "[]";
  refused(request, "one of");
  request = request_of("a");
  request.temperature = NAN;
  refused(request, "temperature");
  request = request_of("a");
  request.top_p = 0;
  refused(request, "top_p");
  request = request_of("a");
  request.top_k = -1;
  refused(request, "top_k");
  request = request_of("a");
  request.max_tokens = -5;
  refused(request, "max_tokens");
  request.max_tokens = 1 << 30;
  EXPECT_EQ(refused(request, "context"), PELTON_DOES_NOT_FIT);
  request = request_of("");
  refused(request, "");
  request = request_of("a");
  request.tools = "[]";
  refused(request, "messages");
  request = request_of("a");
  request.reserved = 1;
  EXPECT_EQ(refused(request, "reserved"), PELTON_UNSUPPORTED);
  request.reserved = 0;
  pelton_result unsized{};
  EXPECT_EQ(pelton_generate(model_, &request, collect, &events, &unsized), PELTON_INVALID_ARGUMENT);
  EXPECT_THAT(pelton_error_message(), HasSubstr("pelton_result_init"));
  request = request_of(nullptr);
  request.messages = "[{";
  refused(request, "messages");
  request.messages = R"({"role":"user"})";
  refused(request, "array");
  request.messages = R"([{"role":"nobody","content":"x"}])";
  refused(request, "role");
  request = request_of(nullptr);
  request.messages = R"([{"role":"user","content":"x"}])";
  request.tools = R"([{"type":"web_search"}])";
  refused(request, "tools");
  request = request_of(nullptr);
  const int32_t beyond[] = {1 << 29};
  request.tokens = beyond;
  request.token_count = 1;
  refused(request, "token");
  EXPECT_EQ(pelton_generate(nullptr, &request, collect, &events, nullptr), PELTON_INVALID_ARGUMENT);
  EXPECT_EQ(pelton_generate(model_, nullptr, collect, &events, nullptr), PELTON_INVALID_ARGUMENT);
}

TEST_F(CApi, NothingThrownLeavesIt) {
  pelton_request request = request_of("Once");
  const pelton_callback thrower = [](void*, const pelton_event*) -> int { throw 42; };
  EXPECT_EQ(pelton_generate(model_, &request, thrower, nullptr, nullptr), PELTON_INTERNAL);
}

TEST_F(CApi, NullsAreNothing) {
  EXPECT_EQ(pelton_context_tokens(nullptr), 0);
  EXPECT_EQ(pelton_vocabulary_size(nullptr), 0);
  EXPECT_EQ(pelton_embedding_size(nullptr), 0);
  EXPECT_EQ(pelton_has_chat_format(nullptr), 0);
  pelton_request request;
  pelton_request_init(nullptr, &request, sizeof request);
  EXPECT_EQ(request.prompt, nullptr);
  pelton_free(nullptr);
  pelton_grammar_free(nullptr);
  pelton_generation_free(nullptr);
  pelton_cancel(nullptr);
  size_t count = 0;
  EXPECT_EQ(pelton_tokenize(model_, nullptr, 0, PELTON_TOKENIZE_PLAIN, nullptr, &count), PELTON_OK);
  const int32_t beyond[] = {-1};
  EXPECT_EQ(pelton_detokenize(model_, beyond, 1, nullptr, &count), PELTON_INVALID_ARGUMENT);
}

TEST_F(CApi, LoadsThatFailSayWhy) {
  pelton_model* model = nullptr;
  EXPECT_NE(pelton_load("/nowhere", nullptr, &model), PELTON_OK);
  EXPECT_THAT(pelton_error_message(), HasSubstr("/nowhere"));
  EXPECT_EQ(model, nullptr);
  const auto refused = [&](auto change, const char* word) {
    pelton_load_options options;
    pelton_load_options_init(&options, sizeof options);
    change(options);
    EXPECT_NE(pelton_load(box().c_str(), &options, &model), PELTON_OK) << word;
    EXPECT_THAT(pelton_error_message(), HasSubstr(word));
    EXPECT_EQ(model, nullptr);
  };
  refused([](auto& options) { options.weights = "int3"; }, "int3");
  refused([](auto& options) { options.weights = "zz"; }, "'mapped'");
  refused([](auto& options) { options.load_mode = "never"; }, "never");
  refused([](auto& options) { options.kv_cache_dtype = "f64"; }, "f64");
  refused([](auto& options) { options.threads = -1; }, "threads");
  refused([](auto& options) { options.sequences = 0; }, "sequences");
  refused([](auto& options) { options.log_level = 9; }, "log_level");
  refused([](auto& options) { options.device = "abacus"; }, "abacus");
}

TEST_F(CApi, VectorsHaveLengthOne) {
  const auto size = static_cast<size_t>(pelton_embedding_size(model_));
  ASSERT_GT(size, 0u);
  std::vector<float> vector(size);
  size_t count = size;
  ASSERT_EQ(pelton_embed(model_, "a wheel", "mean", vector.data(), &count), PELTON_OK);
  double square = 0;
  for (const float value : vector) square += static_cast<double>(value) * value;
  EXPECT_NEAR(square, 1.0, 1e-5);
  count = size - 1;
  EXPECT_EQ(pelton_embed(model_, "a wheel", nullptr, vector.data(), &count),
            PELTON_BUFFER_TOO_SMALL);
  EXPECT_EQ(count, size);
  EXPECT_EQ(pelton_embed(model_, "a wheel", "cls", vector.data(), &count), PELTON_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace pelton::c_api
