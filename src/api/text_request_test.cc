#include "api/text_request.h"

#include <string>

#include <gtest/gtest.h>

namespace pelton::api {
namespace {

std::string generate(std::string_view body) {
  const auto request = parse_any_generate(body, {});
  return request.ok() ? request->body : request.error().field;
}
std::string llama(std::string_view body) {
  const auto request = parse_llama_completion(body, {});
  return request.ok() ? request->body : request.error().field;
}

TEST(TextRequest, LlamasIsACompletionsWithAnotherLength) {
  EXPECT_EQ(llama(R"({"prompt":"a","temperature":0,"return_tokens":true})"),
            R"({"prompt":"a","temperature":0,"n_predict":-1})");
  EXPECT_EQ(llama(R"({"prompt":[1,2],"n_predict":3})"), R"({"prompt":[1,2],"n_predict":3})");
  EXPECT_EQ(llama(R"({"prompt":["a","b"]})"), "prompt");
  EXPECT_EQ(llama(R"({"prompt":"a","n":2})"), "n");
  EXPECT_EQ(llama(R"({"prompt":"a","n_cmpl":2})"), "n_cmpl");
  EXPECT_EQ(llama(R"({"prompt":"a","n":1,"n_cmpl":1})"), R"({"prompt":"a","n_predict":-1})");
  EXPECT_EQ(llama(R"({"prompt":"a","max_tokens":0})"), "max_tokens");
}

TEST(TextRequest, TgisTakesTheLikeliestTokenUnlessItSaysHowToSample) {
  EXPECT_EQ(generate(R"({"inputs":"a"})"),
            R"({"prompt":"a","stream":false,"max_tokens":100,"temperature":0,"logprobs":0})");
  EXPECT_EQ(generate(R"({"inputs":"a","parameters":{"do_sample":true,"max_new_tokens":3}})"),
            R"({"prompt":"a","stream":false,"max_tokens":3,"logprobs":0})");
  EXPECT_EQ(generate(R"({"inputs":"a","parameters":{"top_p":0.5,"watermark":false,"best_of":1}})"),
            R"({"prompt":"a","stream":false,"max_tokens":100,"top_p":0.5,"logprobs":0})");
  EXPECT_EQ(generate(R"({"inputs":"a","parameters":{"watermark":true}})"), "parameters.watermark");
  EXPECT_EQ(generate(R"({"inputs":"a","parameters":{"colour":1}})"), "parameters.colour");
  EXPECT_EQ(generate(R"({"inputs":"a","colour":1})"), "colour");
  EXPECT_EQ(generate(R"({"parameters":{}})"), "inputs");
}

TEST(TextRequest, SglangsBySamplingParams) {
  EXPECT_EQ(generate(R"({"text":"a","sampling_params":{"max_new_tokens":2,"no_stop_trim":true}})"),
            R"({"prompt":"a","stream":false,"max_tokens":2,"include_stop_str_in_output":true})");
  EXPECT_EQ(generate(R"({"input_ids":[1,2],"stream":true,"return_logprob":false})"),
            R"({"prompt":[1,2],"stream":true,"max_tokens":128})");
  EXPECT_EQ(generate(R"({"input_ids":[[1],[2]]})"), "input_ids");
  EXPECT_EQ(generate(R"({"input_ids":["a","b"]})"), "input_ids[0]") << "two prompts";
  EXPECT_EQ(generate(R"({"input_ids":[1,2.5]})"), "input_ids[1]");
  EXPECT_EQ(generate(R"({"text":"a","top_logprobs_num":0,"logprob_start_len":-1,)"
                     R"("log_metrics":true})"),
            R"({"prompt":"a","stream":false,"max_tokens":128})")
      << "its defaults";
  EXPECT_EQ(generate(R"({"text":"a","top_logprobs_num":2})"), "top_logprobs_num");
  EXPECT_EQ(generate(R"({"text":"a","logprob_start_len":0})"), "logprob_start_len");
  EXPECT_EQ(generate(R"({"text":"a","log_metrics":"zork"})"), "log_metrics");
  EXPECT_EQ(generate(R"({"text":["a","b"]})"), "text");
  EXPECT_EQ(generate(R"({"text":"a","input_ids":[1]})"), "input_ids");
  EXPECT_EQ(generate(R"({"text":"a","return_logprob":true})"), "return_logprob");
  EXPECT_EQ(generate(R"({"text":"a","inputs":"b"})"), "text") << "which server's is it?";
  EXPECT_EQ(generate(R"({"text":"a","sampling_params":{"n":2}})"), "sampling_params.n");
}

TEST(TextRequest, ErrorsNameTheFieldAsItWasGiven) {
  TextRequest request = parse_any_generate(R"({"inputs":"a"})", {}).value();
  const auto field = [&](const char* ours) {
    return named_as_given(request, {ErrorCode::kInvalidArgument, "", ours}).field;
  };
  EXPECT_EQ(field("max_tokens"), "parameters.max_new_tokens");
  EXPECT_EQ(field("prompt"), "inputs");
  request = parse_any_generate(R"({"input_ids":[1]})", {}).value();
  EXPECT_EQ(field("prompt"), "input_ids");
  EXPECT_EQ(named_as_given(request, {ErrorCode::kInvalidArgument, "'prompt[1]' must", "prompt[1]"})
                .message,
            "'input_ids[1]' must");
  request = parse_any_generate(R"({"text":"a"})", {}).value();
  EXPECT_EQ(field("prompt"), "text");
  EXPECT_EQ(field("min_tokens"), "sampling_params.min_new_tokens");
  EXPECT_EQ(
      named_as_given(request, {ErrorCode::kInvalidArgument, "'top_p' must be", "top_p"}).message,
      "'sampling_params.top_p' must be");
}

TEST(TextRequest, TheirAdapterIsKnownBeforeTheRest) {
  const auto asked = [](std::string_view body) { return generate_model_asked(body).value(); };
  EXPECT_EQ(asked(R"({"inputs":"a","parameters":{"adapter_id":"sql"}})"), "sql");
  EXPECT_EQ(asked(R"({"inputs":"a","model":"m"})"), "");
  EXPECT_EQ(asked(R"({"inputs":"a","parameters":{"adapter_id":null}})"), "");
  EXPECT_EQ(asked(R"({"inputs":"a","parameters":7})"), "");
  EXPECT_EQ(asked(R"({"text":"a","model":"m"})"), "m");
  EXPECT_EQ(asked(R"({"text":"a","model":"m","lora_path":"sql"})"), "sql");
  EXPECT_EQ(asked(R"({"input_ids":[1],"lora_path":["sql"]})"), "");
  EXPECT_FALSE(generate_model_asked(R"({"text":"a")").ok());
  EXPECT_FALSE(generate_model_asked(R"({"lora_path":"a","lora_path":"b"})").ok());
}

}  // namespace
}  // namespace pelton::api
