#include "speculative/config.h"

#include <gtest/gtest.h>

namespace pelton::speculative {
namespace {

std::string refusal(std::string_view json) {
  const Result<Config> config = parse_config(json);
  EXPECT_FALSE(config.ok()) << json;
  return config.ok() ? "" : config.error().message;
}

TEST(SpeculativeConfig, reads_what_vllm_reads) {
  const Config ngram =
      parse_config(R"({"method":"ngram","num_speculative_tokens":4,"prompt_lookup_max":3})")
          .value();
  EXPECT_EQ(ngram.method, Config::Method::kNGram);
  EXPECT_EQ(ngram.tokens_max, 4);
  EXPECT_EQ(ngram.prompt_lookup_max, 3);
  EXPECT_EQ(ngram.prompt_lookup_min, 3);  // one of them alone is both
  const Config suffix =
      parse_config(R"({"method":"suffix","suffix_decoding_max_spec_factor":2})").value();
  EXPECT_EQ(suffix.method, Config::Method::kSuffix);
  EXPECT_EQ(suffix.tokens_max, 24);
  EXPECT_EQ(suffix.suffix_spec_factor, 2.0);
}

TEST(SpeculativeConfig, refuses_fields_by_name) {
  EXPECT_NE(refusal("[]").find("JSON object"), std::string::npos);
  EXPECT_NE(refusal(R"({"num_speculative_tokens":4})").find("method: give one of \"ngram\""),
            std::string::npos);
  EXPECT_NE(refusal(R"({"method":"ngram"})").find("num_speculative_tokens"), std::string::npos);
  EXPECT_NE(refusal(R"({"method":"ngram","num_speculative_tokens":65})").find("from 1 to 64"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"method":"suffix","prompt_lookup_max":3})").find("of the method \"ngram\""),
            std::string::npos);
  EXPECT_NE(refusal(R"({"method":"suffix","frobnicate":3})").find("frobnicate: there is no such"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"method":"suffix","disable_by_batch_size":3})").find("not supported"),
            std::string::npos);
  const Config oracle = parse_config(R"({"method":"oracle","num_speculative_tokens":3})").value();
  EXPECT_EQ(make_proposer(oracle, {.slot_count = 1}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(refusal(R"({"method":"ngram","num_speculative_tokens":2,"prompt_lookup_min":4,)"
                    R"("prompt_lookup_max":2})")
                .find("at most prompt_lookup_max"),
            std::string::npos);
}

TEST(SpeculativeConfig, proposers_take_what_is_said_before) {
  for (const char* json :
       {R"({"method":"ngram","num_speculative_tokens":4})", R"({"method":"suffix"})"}) {
    const Config config = parse_config(json).value();
    const auto proposer = make_proposer(config, {.slot_count = 3, .vocab_size = 100}).value();
    EXPECT_EQ(proposer->name(), name_of(config.method));
    EXPECT_EQ(proposer->bytes(), bytes_for(config, {.slot_count = 3}).value());
  }
}

}  // namespace
}  // namespace pelton::speculative
