#include "grammar/grammar_trial.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "grammar/test_vocabulary.h"

namespace pelton::grammar {
namespace {

// Byte by byte: the first 256 tokens of the test vocabulary are the bytes.
std::vector<TokenId> bytes_of(std::string_view text) {
  std::vector<TokenId> tokens;
  for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

GrammarTrial trial_of(std::string_view schema) {
  return try_compile([&] { return compiled(schema); }, test_trie());
}

TEST(GrammarTrial, AnInstanceIsLetThroughOrCutAtItsFirstWrongToken) {
  const GrammarTrial trial = trial_of(R"({"type":"integer"})");
  ASSERT_TRUE(trial.grammar.ok());
  EXPECT_GT(trial.compile_us, 0);
  const auto walk = [&](std::string_view text) {
    return walk_instance(*trial.grammar, bytes_of(text), MaskTiming::kNo);
  };
  EXPECT_TRUE(walk("12").accepted);
  EXPECT_EQ(walk("12").cut_at_token, std::nullopt);
  EXPECT_FALSE(walk("1x2").accepted);
  EXPECT_EQ(walk("1x2").cut_at_token, 1u);
  EXPECT_FALSE(walk("-").accepted);
  EXPECT_EQ(walk("-").cut_at_token, 1u) << "all of it, but it may not end there";
  EXPECT_EQ(walk("").cut_at_token, 0u);
  EXPECT_TRUE(walk("12").mask_us.empty());
  EXPECT_EQ(walk_instance(*trial.grammar, bytes_of("12"), MaskTiming::kYes).mask_us.size(), 2u);
}

TEST(GrammarTrial, ALineSaysWhatBecameOfIt) {
  const GrammarTrial trial = trial_of(R"({"type":"integer"})");
  const TriedInstance good{.walk = walk_instance(*trial.grammar, bytes_of("7"), MaskTiming::kYes),
                           .valid = true};
  const TriedInstance bad{.walk = walk_instance(*trial.grammar, bytes_of("x"), MaskTiming::kYes)};
  const std::vector<TriedInstance> tried = {good, bad};
  const std::string text = trial_line("a.json", trial, tried, MaskTiming::kYes);
  EXPECT_TRUE(text.ends_with("}\n"));
  const Json line = Json::parse(text).value();
  EXPECT_EQ(line.string("file"), "a.json");
  EXPECT_EQ(line.string("status"), "accepted");
  const Json::Array& tests = line.find("tests")->as_array();
  ASSERT_EQ(tests.size(), 2u);
  EXPECT_EQ(tests[0].boolean("valid"), true);
  EXPECT_EQ(tests[0].boolean("accepted"), true);
  EXPECT_TRUE(tests[0].find("cut_at_token")->is_null());
  EXPECT_EQ(tests[0].find("mask_us")->as_array().size(), 1u);
  EXPECT_TRUE(tests[1].find("valid")->is_null());
  EXPECT_EQ(tests[1].integer("cut_at_token"), 0);
  const Json untimed = Json::parse(trial_line("a", trial, tried, MaskTiming::kNo)).value();
  EXPECT_EQ(untimed.find("tests")->as_array()[0].find("mask_us"), nullptr);
}

TEST(GrammarTrial, ARefusalSaysWhereAndWhy) {
  const GrammarTrial trial = trial_of(R"({"properties":{"a":{"type":"spoon"}}})");
  ASSERT_FALSE(trial.grammar.ok());
  const Json line = Json::parse(trial_line("a.json", trial, {}, MaskTiming::kNo)).value();
  EXPECT_EQ(line.string("status"), "refused");
  EXPECT_THAT(line.string("pointer").value(), testing::HasSubstr("/properties/a"));
  EXPECT_FALSE(line.string("message").value().empty());
  const Json ours =
      Json::parse(trial_error_line("b.json", {ErrorCode::kIo, "cannot be read", "x"})).value();
  EXPECT_EQ(ours.string("status"), "error");
  EXPECT_EQ(ours.string("message"), "cannot be read");
}

}  // namespace
}  // namespace pelton::grammar
