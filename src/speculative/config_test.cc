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
  const Config eagle3 = parse_config(R"({"model":"head","num_speculative_tokens":3,)"
                                     R"("method":"eagle3","draft_tensor_parallel_size":1})")
                            .value();
  EXPECT_EQ(eagle3.method, Config::Method::kEagle3);
  EXPECT_EQ(eagle3.model, "head");
}

TEST(SpeculativeConfig, refuses_fields_by_name) {
  EXPECT_NE(refusal("[]").find("JSON object"), std::string::npos);
  EXPECT_NE(refusal(R"({"num_speculative_tokens":4})").find("method: give one of \"ngram\""),
            std::string::npos);
  for (const char* method : {"eagle", "mtp"}) {
    const auto config = parse_config(R"({"method":")" + std::string(method) + R"("})");
    ASSERT_FALSE(config.ok());
    EXPECT_EQ(config.error().code, ErrorCode::kUnsupported);
    EXPECT_NE(config.error().message.find("\"" + std::string(method) + "\" is not supported"),
              std::string::npos)
        << config.error().message;
  }
  EXPECT_NE(refusal(R"({"method":"ngram"})").find("num_speculative_tokens"), std::string::npos);
  EXPECT_NE(refusal(R"({"method":"ngram","num_speculative_tokens":65})").find("from 1 to 64"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"method":"suffix","prompt_lookup_max":3})").find("of the method \"ngram\""),
            std::string::npos);
  EXPECT_NE(refusal(R"({"method":"suffix","frobnicate":3})").find("frobnicate: there is no such"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"method":"suffix","disable_by_batch_size":3})").find("not supported"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"method":"eagle3","model":"x","num_speculative_tokens":3,)"
                    R"("draft_tensor_parallel_size":2})")
                .find("draft_tensor_parallel_size: give 1, or leave it out"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"method":"suffix","suffix_tokens":64,"suffix_tokens":128})")
                .find("suffix_tokens: give it once"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"method":"auto","model":""})").find("model: the method \"auto\""),
            std::string::npos);
  EXPECT_NE(refusal(R"({"method":"auto","max_model_len":4096})").find("max_model_len: "),
            std::string::npos);
  EXPECT_NE(refusal(R"({"method":"suffix","method":"ngram"})").find("method: give it once"),
            std::string::npos);
  const Config oracle = parse_config(R"({"method":"oracle","num_speculative_tokens":3})").value();
  EXPECT_EQ(make_proposer(oracle, {.slot_count = 1}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(refusal(R"({"method":"ngram","num_speculative_tokens":2,"prompt_lookup_min":4,)"
                    R"("prompt_lookup_max":2})")
                .find("at most prompt_lookup_max"),
            std::string::npos);
}

TEST(SpeculativeConfig, combinations_are_made_of_parts) {
  const Config both =
      parse_config(R"({"method":"suffix+eagle3","model":"head","num_speculative_tokens":3,)"
                   R"("suffix_tokens":1000})")
          .value();
  const std::vector<Config> parts = both.parts().value();
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(name_of(parts[0].method), "suffix");
  EXPECT_EQ(parts[0].suffix_tokens, 1000);
  EXPECT_EQ(name_of(parts[1].method), "eagle3");
  EXPECT_EQ(parts[1].model, "head");
  EXPECT_NE(refusal(R"({"method":"suffix+draft_model","num_speculative_tokens":3})").find("model"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"method":"eagle3","model":"x","num_speculative_tokens":3,)"
                    R"("suffix_tokens":1000})")
                .find("of the method \"suffix\""),
            std::string::npos);
  const Config alone = parse_config(R"({"method":"auto"})").value();
  EXPECT_EQ(alone.tokens_max, 8);
  EXPECT_EQ(alone.parts()->size(), 2u);
  const auto proposer = make_proposer(alone, {.slot_count = 2, .vocab_size = 100}).value();
  EXPECT_EQ(proposer->name(), "auto");
  EXPECT_EQ(proposer->part_names(), (std::vector<std::string_view>{"suffix", "ngram"}));
  const Config with_nothing = parse_config(R"({"method":"auto","model":"/nowhere"})").value();
  EXPECT_EQ(with_nothing.parts().error().field, "speculative-config");
  const Config no_draft = parse_config(R"({"method":"suffix+draft_model","model":"/nowhere",)"
                                       R"("num_speculative_tokens":3})")
                              .value();
  const Error missing = bytes_for(no_draft, {.slot_count = 1}).error();
  EXPECT_EQ(missing.field, "speculative-config");
  EXPECT_EQ(missing.message.rfind("--speculative-config: model: /nowhere", 0), 0u)
      << missing.message;
}

// The bytes planned are those of the tokens that it sees.
TEST(SpeculativeConfig, a_draft_model_sees_no_more_than_either_context) {
  const std::string draft = std::string(PELTON_SOURCE_DIR) + "/models/pelton-box/draft";
  families::ModelConfig target;
  const auto bytes = [&](const std::string& more) {
    const std::string json = R"({"method":"draft_model","num_speculative_tokens":3,"model":")" +
                             draft + "\"" + more + "}";
    return bytes_for(parse_config(json).value(), {.slot_count = 1, .target = &target});
  };
  target.context_max = 1 << 20;
  const int64_t by_default = bytes("").value();
  EXPECT_EQ(bytes(R"(,"max_model_len":4096)").value(), by_default);
  EXPECT_GT(bytes(R"(,"max_model_len":8192)").value(), by_default);  // its whole context
  const Error beyond_own = bytes(R"(,"max_model_len":8193)").error();
  EXPECT_EQ(beyond_own.field, "speculative-config");
  EXPECT_NE(beyond_own.message.find("max_model_len: is 8193, and the draft model " + draft +
                                    " has a context of 8192 tokens: give at most 8192"),
            std::string::npos)
      << beyond_own.message;
  target.context_max = 512;
  EXPECT_LT(bytes("").value(), by_default);
  EXPECT_EQ(bytes(R"(,"max_model_len":512)").value(), bytes("").value());
  const Error beyond_target = bytes(R"(,"max_model_len":1024)").error();
  EXPECT_NE(beyond_target.message.find("the model has a context of 512 tokens"), std::string::npos)
      << beyond_target.message;
}

TEST(SpeculativeConfig, what_is_shared_is_of_its_own_method) {
  const Config shared = parse_config(R"({"method":"suffix_shared","suffix_shared_tokens":5000,)"
                                     R"("suffix_decoding_min_token_prob":0.5})")
                            .value();
  EXPECT_EQ(shared.tokens_max, 24);
  EXPECT_EQ(shared.shared_tokens, 5000);
  EXPECT_EQ(shared.shared_probability_min, 0.5);
  const auto proposer = make_proposer(shared, {.slot_count = 2, .vocab_size = 100}).value();
  EXPECT_EQ(proposer->part_names(), (std::vector<std::string_view>{"suffix", "suffix_shared"}));
  for (const char* field : {"suffix_decoding_max_cached_requests", "suffix_shared_tokens",
                            "suffix_decoding_min_token_prob"}) {
    EXPECT_NE(refusal(R"({"method":"suffix",")" + std::string(field) + R"(":1})")
                  .find(std::string(field) + ": this is a field of the method \"suffix_shared\""),
              std::string::npos);
  }
}

TEST(SpeculativeConfig, medusa_has_as_many_guesses_as_heads) {
  const std::string folder = std::string(PELTON_SOURCE_DIR) + "/models/pelton-box/medusa";
  const auto asked = [&](const std::string& fields) {
    return parse_config(R"({"method":"medusa","model":")" + folder + "\"" + fields + "}");
  };
  const Config config = asked(R"(,"num_speculative_tokens":3)").value();
  EXPECT_EQ(config.parts()->size(), 1u);
  const Error beyond = asked(R"(,"num_speculative_tokens":4)")->parts().error();
  EXPECT_NE(beyond.message.find("num_speculative_tokens: is 4"), std::string::npos)
      << beyond.message;
  EXPECT_NE(beyond.message.find("has 3 Medusa heads"), std::string::npos) << beyond.message;
  EXPECT_NE(asked(R"(,"num_speculative_tokens":3,"max_model_len":500)")
                .error()
                .message.find("max_model_len"),
            std::string::npos);
  // Found by what the folder holds.
  const Config any = parse_config(R"({"method":"auto","model":")" + folder + R"("})").value();
  EXPECT_EQ(any.parts()->back().method, Config::Method::kMedusa);
}

TEST(SpeculativeConfig, proposers_take_what_is_said_before) {
  for (const char* json :
       {R"({"method":"ngram","num_speculative_tokens":4})", R"({"method":"suffix"})",
        R"({"method":"auto"})", R"({"method":"lookahead","num_speculative_tokens":4})",
        R"({"method":"suffix_shared","suffix_decoding_max_cached_requests":50,
                               "suffix_shared_tokens":5000,"suffix_decoding_min_token_prob":0.5})"}) {
    const Config config = parse_config(json).value();
    const auto proposer = make_proposer(config, {.slot_count = 3, .vocab_size = 100}).value();
    EXPECT_EQ(proposer->name(), name_of(config.method));
    EXPECT_EQ(proposer->bytes(), bytes_for(config, {.slot_count = 3}).value());
  }
}

}  // namespace
}  // namespace pelton::speculative
