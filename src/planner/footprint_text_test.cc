#include "planner/footprint_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pelton::planner {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr int64_t kMiB = int64_t{1} << 20;

// Of a dense model with one KV group: 2 GiB of weights, 1 GiB of KV cache, in 8 GiB.
cost_model::Footprint dense() {
  cost_model::Footprint footprint{
      .weights = {.embedding = 512 * kMiB, .mlp = 1536 * kMiB, .mapped = 2048 * kMiB},
      .kv_formula = {.per_token = 65'536},
      .kv = {.block_tokens = 16},
      .sequences_max = 4,
      .context_tokens_max = 4096,
      .memory_bytes = 8192 * kMiB};
  footprint.kv.groups.push_back(
      {.spec = {.name = "full", .block_bytes = kMiB}, .block_count = 1024});
  return footprint;
}

std::string line_of(const std::string& text, const std::string& name) {
  const size_t begin = text.find("\n" + name);
  if (begin == std::string::npos) return "";
  return text.substr(begin + 1, text.find('\n', begin + 1) - begin - 1);
}

TEST(FootprintText, EachPartHasItsShare) {
  const std::string text = footprint_text("dense", dense());
  EXPECT_TRUE(text.starts_with("dense in 8")) << text;
  EXPECT_THAT(line_of(text, "weights"), HasSubstr("########........................  25 %"));
  EXPECT_THAT(line_of(text, "KV cache"), HasSubstr("####............................  12 %"));
  EXPECT_THAT(line_of(text, "left"), HasSubstr(" 62 %"));
  EXPECT_NE(line_of(text, "  MLP"), "");
  EXPECT_EQ(line_of(text, "  experts"), "") << "it has none";
  EXPECT_EQ(line_of(text, "swap space"), "");
  EXPECT_THAT(text, HasSubstr("full layers"));
  EXPECT_THAT(
      text,
      HasSubstr("KV cache capacity: 16,384 tokens; 4 sequences of 4,096 tokens (max_num_seqs 4)"));
  EXPECT_THAT(text, Not(HasSubstr("more than there is")));
}

// 42: an encoder's blocks hold nothing, and are nobody's business.
TEST(FootprintText, OfAnEncoderNoKvCacheIsSpokenOf) {
  cost_model::Footprint footprint = dense();
  footprint.kv.groups[0].spec.block_bytes = 0;
  footprint.context_tokens_max = 512;
  footprint.batch_tokens_max = 16'384;
  const std::string text = footprint_text("encoder", footprint);
  EXPECT_THAT(text, HasSubstr("No KV cache: texts of up to 512 tokens, each computed whole; a step "
                              "of up to 16,384 tokens"));
  EXPECT_THAT(text, Not(HasSubstr("blocks of")));
  EXPECT_THAT(text, Not(HasSubstr("KV cache capacity")));
  EXPECT_EQ(line_of(text, "KV cache"), "");
}

TEST(FootprintText, WhatIsTooMuchIsSaid) {
  cost_model::Footprint footprint = dense();
  footprint.memory_bytes = 2048 * kMiB;
  EXPECT_THAT(footprint_text("dense", footprint), HasSubstr("more than there is"));
  EXPECT_THAT(line_of(footprint_text("dense", footprint), "left"), HasSubstr("  0 %"));
}

TEST(FootprintText, AModelsNameSteersNoTerminal) {
  EXPECT_THAT(footprint_text("a\x1b[2J", dense()), Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace pelton::planner
