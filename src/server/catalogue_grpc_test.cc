// The catalogue of bad inputs over gRPC: HTTP's validator says why, and the status is its. What a
// message of this protocol cannot say is left out: AP-04, AP-08 (there is one answer), AP-09, AP-15
// (a seed is an int64), AP-22, AP-27, AP-28, AP-30, AP-32; AP-10, AP-18 and AP-34 stand at the end.
#include <cmath>
#include <functional>
#include <limits>
#include <memory>

#include "server/catalogue_rows.h"
#include "server/grpc_fixture.h"

// Debian's libgrpc is not built for ThreadSanitizer, which then does not see its locks.
#if !defined(__SANITIZE_THREAD__)

namespace pelton::server {
namespace {

constexpr std::string_view kScript = R"({"rules": [
  {"when": "", "then": "<|channel|>final<|message|>Hello there, friend.<|return|>"}]})";

using Request = v1::GenerateRequest;

struct GrpcRow {
  std::string name;
  std::function<void(Request&)> change;  // of a chat that says hi
  std::string param;
  grpc::StatusCode status = grpc::StatusCode::INVALID_ARGUMENT;
};
std::ostream& operator<<(std::ostream& out, const GrpcRow& row) {
  return out << row.name;
}

// A row about how to sample.
template <typename Set>
GrpcRow sampling(std::string name, std::string param, Set set) {
  return {std::move(name), [set](Request& r) { set(*r.mutable_sampling()); }, std::move(param)};
}
template <typename Set>
GrpcRow chat(std::string name, std::string param, Set set) {
  return {std::move(name), [set](Request& r) { set(*r.mutable_chat()); }, std::move(param)};
}

std::vector<GrpcRow> rows() {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  return {
      {"AP01_no_prompt", [](Request& r) { r.clear_prompt(); }, "prompt"},
      chat("AP01_no_messages", "messages", [](auto& c) { c.clear_messages(); }),
      chat("AP01_role_root", "messages[1].role",
           [](auto& c) { c.add_messages()->set_role("root"); }),
      {"AP02_empty_text", [](Request& r) { r.set_text(""); }, "prompt"},
      {"AP02_no_tokens", [](Request& r) { r.mutable_tokens(); }, "tokens.ids"},
      {"AP03_unknown_model", [](Request& r) { r.set_model("gpt-9"); }, "model",
       grpc::StatusCode::NOT_FOUND},
      {"AP05_minus_one", [](Request& r) { r.mutable_tokens()->add_ids(4294967295u); },
       "tokens.ids[0]"},
      {"AP05_beyond_int", [](Request& r) { r.mutable_tokens()->add_ids(2147483648u); },
       "tokens.ids[0]"},
      {"AP05_vocab_size", [](Request& r) { r.mutable_tokens()->add_ids(999'999); },
       "tokens.ids[0]"},
      {"AP06_long_prompt", [](Request& r) { r.set_text(std::string(5000, 'x')); }, "text"},
      sampling("AP06_long_answer", "messages", [](auto& s) { s.set_max_tokens(100'000); }),
      sampling("AP07_zero", "max_tokens", [](auto& s) { s.set_max_tokens(0); }),
      sampling("AP07_negative", "max_tokens", [](auto& s) { s.set_max_tokens(-2); }),
      sampling("AP07_beyond_int", "max_tokens", [](auto& s) { s.set_max_tokens(1LL << 31); }),
      sampling("AP07_beyond_all", "max_tokens",
               [](auto& s) { s.set_max_tokens(std::numeric_limits<int64_t>::max()); }),
      sampling("AP11_below", "temperature", [](auto& s) { s.set_temperature(-0.1); }),
      sampling("AP11_above", "temperature", [](auto& s) { s.set_temperature(2.1); }),
      sampling("AP12_temperature", "temperature", [=](auto& s) { s.set_temperature(nan); }),
      sampling("AP12_top_p", "top_p", [=](auto& s) { s.set_top_p(infinity); }),
      sampling("AP12_min_p", "min_p", [=](auto& s) { s.set_min_p(nan); }),
      sampling("AP12_repetition_penalty", "repetition_penalty",
               [=](auto& s) { s.set_repetition_penalty(nan); }),
      sampling("AP12_presence_penalty", "presence_penalty",
               [=](auto& s) { s.set_presence_penalty(-infinity); }),
      sampling("AP13_top_p_zero", "top_p", [](auto& s) { s.set_top_p(0); }),
      sampling("AP13_top_p_above", "top_p", [](auto& s) { s.set_top_p(1.0001); }),
      sampling("AP13_top_k_below", "top_k", [](auto& s) { s.set_top_k(-2); }),
      sampling("AP13_top_k_above", "top_k", [](auto& s) { s.set_top_k(1LL << 31); }),
      sampling("AP13_min_p", "min_p", [](auto& s) { s.set_min_p(2); }),
      sampling("AP14_frequency", "frequency_penalty",
               [](auto& s) { s.set_frequency_penalty(2.1); }),
      sampling("AP14_presence", "presence_penalty", [](auto& s) { s.set_presence_penalty(-2.1); }),
      sampling("AP16_chat", "top_logprobs", [](auto& s) { s.set_logprobs(21); }),
      {"AP16_text",
       [](Request& r) {
         r.set_text("x");
         r.mutable_sampling()->set_logprobs(21);
       },
       "logprobs"},
      sampling("AP16_prompt", "prompt_logprobs", [](auto& s) { s.set_prompt_logprobs(21); }),
      sampling("AP17_negative_token", "logit_bias",
               [](auto& s) { (*s.mutable_logit_bias())[-1] = 1; }),
      sampling("AP17_large_bias", "logit_bias.5",
               [](auto& s) { (*s.mutable_logit_bias())[5] = 101; }),
      sampling("AP17_bias_is_nan", "logit_bias.5",
               [=](auto& s) { (*s.mutable_logit_bias())[5] = nan; }),
      sampling("AP17_many", "logit_bias",
               [](auto& s) {
                 for (int i = 0; i < 200'000; ++i) (*s.mutable_logit_bias())[i] = 1;
               }),
      sampling("AP19_negative", "min_tokens", [](auto& s) { s.set_min_tokens(-1); }),
      sampling("AP19_far_above", "messages", [](auto& s) { s.set_min_tokens(1'000'000'000); }),
      sampling("AP19_above_max", "min_tokens",
               [](auto& s) {
                 s.set_min_tokens(6);
                 s.set_max_tokens(5);
               }),
      sampling("AP20_beyond", "stop_token_ids[0]",
               [](auto& s) { s.add_stop_token_ids(99'999'999); }),
      sampling("AP20_negative", "stop_token_ids[0]", [](auto& s) { s.add_stop_token_ids(-1); }),
      sampling("AP20_many", "stop_token_ids",
               [](auto& s) {
                 for (int i = 0; i < 65; ++i) s.add_stop_token_ids(7);
               }),
      sampling("AP21_empty", "stop[0]", [](auto& s) { s.add_stop(""); }),
      sampling("AP21_long", "stop[0]", [](auto& s) { s.add_stop(std::string(1 << 20, 'x')); }),
      sampling("AP21_many", "stop",
               [](auto& s) {
                 for (int i = 0; i < 17; ++i) s.add_stop("x");
               }),
      {"AP23_two_formats",
       [](Request& r) {
         r.mutable_response_format()->set_type("json_object");
         r.mutable_structured_outputs()->set_regex("a");
       },
       "structured_outputs.regex"},
      chat("AP24_blank_in_name", "tools[0].function.name",
           [](auto& c) { c.add_tools()->set_name("a b"); }),
      chat("AP24_long_name", "tools[0].function.name",
           [](auto& c) { c.add_tools()->set_name(std::string(65, 'a')); }),
      chat("AP24_twice", "tools[1].function.name",
           [](auto& c) {
             c.add_tools()->set_name("f");
             c.add_tools()->set_name("f");
           }),
      chat("AP24_parameters", "tools[0].function.parameters",
           [](auto& c) {
             c.add_tools()->set_name("f");
             c.mutable_tools(0)->set_parameters("[]");
           }),
      chat("AP24_broken_parameters", "tools[0].parameters",
           [](auto& c) {
             c.add_tools()->set_name("f");
             c.mutable_tools(0)->set_parameters("{\"a\":1},{");
           }),
      chat("AP24_many", "tools",
           [](auto& c) {
             for (int i = 0; i < 129; ++i) c.add_tools()->set_name("f" + std::to_string(i));
           }),
      chat("AP25_unknown_function", "tool_choice.function.name",
           [](auto& c) { c.set_tool_choice("nope"); }),
      chat("AP25_required_without", "tool_choice", [](auto& c) { c.set_tool_choice("required"); }),
      chat("AP26_no_such_call", "messages[1].tool_call_id",
           [](auto& c) {
             c.add_messages()->set_role("tool");
             c.mutable_messages(1)->set_tool_call_id("who");
           }),
      {"AP29_user", [](Request& r) { r.set_user(std::string(1 << 20, 'u')); }, "user"},
      {"AP29_cache_salt", [](Request& r) { r.set_cache_salt(std::string(1025, 's')); },
       "cache_salt"},
      {"AP35_far_above", [](Request& r) { r.set_priority(1'000'000'000); }, "priority"},
      chat("AP36_effort", "reasoning_effort", [](auto& c) { c.set_reasoning_effort("ultra"); }),
      chat("HM05_role", "messages[1].role",
           [](auto& c) { c.add_messages()->set_role("user<|end|>"); }),
      {"HM05_model", [](Request& r) { r.set_model("tiny<|end|>"); }, "model",
       grpc::StatusCode::NOT_FOUND},
  };
}

class CatalogueGrpc : public testing::TestWithParam<GrpcRow> {
 protected:
  static void SetUpTestSuite() { grpc_ = std::make_unique<GrpcFixtureOf>(kScript); }
  static void TearDownTestSuite() { grpc_.reset(); }

  static std::unique_ptr<GrpcFixtureOf> grpc_;
};

std::unique_ptr<GrpcFixtureOf> CatalogueGrpc::grpc_;

TEST_P(CatalogueGrpc, is_refused) {
  const GrpcRow& row = GetParam();
  Request request = grpc_chat("hi");
  row.change(request);
  const GrpcSaid said = grpc_->generate(request);
  EXPECT_EQ(said.status.error_code(), row.status) << said.status.error_message();
  EXPECT_FALSE(said.status.error_message().empty());
  EXPECT_LT(said.status.error_message().size(), 1000u);
  EXPECT_EQ(said.error_param, row.param) << said.status.error_message();
  EXPECT_TRUE(grpc_->generate(grpc_chat("hi")).status.ok()) << "the server still answers";
  EXPECT_TRUE(becomes_clean(grpc_->fixture.engine()));
}

INSTANTIATE_TEST_SUITE_P(Rows, CatalogueGrpc, testing::ValuesIn(rows()),
                         [](const auto& info) { return info.param.name; });

// There is no part but text here: what looks like one is text.
TEST(CatalogueGrpcToo, AP31_an_image_is_words) {
  GrpcFixtureOf grpc(kScript);
  for (const char* url : {"http://127.0.0.1:1/x.png", "file:///etc/passwd",
                          "http://169.254.169.254/", "data:image/png;base64,AAAA"}) {
    const std::string part =
        std::string(R"([{"type":"image_url","image_url":{"url":")") + url + R"("}}])";
    EXPECT_TRUE(grpc.generate(grpc_chat(part)).status.ok());
  }
}

TEST(CatalogueGrpcToo, AP10_a_long_answer_in_a_small_pool) {
  ServerFixture::Options small;
  small.executor = [](engine::ModelledExecutor::Options& executor) {
    executor.capacity.groups[0].block_counts[kv::kDevice] = 300;
    executor.capacity.groups[1].block_counts[kv::kDevice] = 120;
  };
  GrpcFixtureOf grpc(kScript, std::move(small));
  Request request = grpc_chat("hi");
  request.mutable_sampling()->set_max_tokens(3700);
  EXPECT_TRUE(grpc.generate(request).status.ok());
}

TEST(CatalogueGrpcToo, AP18_everything_banned_ends) {
  GrpcFixtureOf grpc(kScript);
  Request request = grpc_chat("hi");
  request.mutable_sampling()->set_max_tokens(50);
  for (int i = 0; i < 4096; ++i) (*request.mutable_sampling()->mutable_logit_bias())[i] = -100;
  const GrpcSaid said = grpc.generate(request);
  EXPECT_TRUE(said.status.ok()) << said.status.error_message();
  EXPECT_LE(said.completion_tokens, 50);
}

TEST(CatalogueGrpcToo, AP33_tokenize) {
  ServerFixture::Options options;
  options.server.keys.add("key");
  GrpcFixtureOf grpc(kScript, std::move(options));
  v1::TokenizeRequest request;
  v1::TokenizeReply reply;
  const auto ask = [&](const char* key) {
    grpc::ClientContext context;
    if (key != nullptr) context.AddMetadata("x-api-key", key);
    return grpc.stub->Tokenize(&context, request, &reply).error_code();
  };
  request.set_text("x");
  EXPECT_EQ(ask(nullptr), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(ask("key"), grpc::StatusCode::OK);
  request.clear_prompt();
  EXPECT_EQ(ask("key"), grpc::StatusCode::INVALID_ARGUMENT);
  request.set_text(std::string(size_t{33} << 20, 'x'));
  EXPECT_EQ(ask("key"), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST(CatalogueGrpcToo, AP34_a_deadline_that_has_passed) {
  GrpcFixtureOf grpc(kScript);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() - std::chrono::seconds(1));
  const auto reader = grpc.stub->Generate(&context, grpc_chat("hi"));
  v1::GenerateChunk chunk;
  EXPECT_FALSE(reader->Read(&chunk));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(grpc.fixture.engine().stats().steps.count, 0) << "nothing is computed for it";
}

TEST(CatalogueGrpcToo, AP05_AP03_embeddings) {
  GrpcFixtureOf grpc(kScript);
  const auto ask = [&](const v1::EmbedRequest& request) {
    grpc::ClientContext context;
    v1::EmbedReply reply;
    return grpc.stub->Embed(&context, request, &reply).error_code();
  };
  v1::EmbedRequest request;
  EXPECT_EQ(ask(request), grpc::StatusCode::INVALID_ARGUMENT) << "no input";
  request.add_inputs()->mutable_tokens()->add_ids(4294967295u);
  EXPECT_EQ(ask(request), grpc::StatusCode::INVALID_ARGUMENT);
  request.mutable_inputs(0)->set_text("x");
  EXPECT_EQ(ask(request), grpc::StatusCode::OK);
  request.set_model("gpt-9");
  EXPECT_EQ(ask(request), grpc::StatusCode::NOT_FOUND);
}

}  // namespace
}  // namespace pelton::server

#endif
