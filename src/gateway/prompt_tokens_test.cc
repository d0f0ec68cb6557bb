#include "gateway/prompt_tokens.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "chat/format_of.h"

namespace pelton::gateway {
namespace {

ModelText box() {
  ModelText text;
  text.tokenizer = std::make_unique<const tokenizer::Tokenizer>(*tokenizer::Tokenizer::load(
      std::string(PELTON_SOURCE_DIR) + "/models/pelton-box/tokenizer.json"));
  text.chat = *chat::format_of(*text.tokenizer);
  return text;
}

size_t count(const ModelText& text, std::string_view path, std::string_view body) {
  const auto tokens = prompt_tokens(text, {.path = path, .body = body, .date = "2026-11-23"});
  return tokens ? tokens->tokens.size() : 0;
}

TEST(PromptTokens, OfEachEndpointThatHasAPromptOfItsOwn) {
  const ModelText text = box();
  const size_t chat =
      count(text, "/v1/chat/completions", R"({"messages":[{"role":"user","content":"Hello"}]})");
  EXPECT_GT(chat, 5u);
  EXPECT_EQ(count(text, "/v1/messages",
                  R"({"max_tokens":9,"messages":[{"role":"user","content":"Hello"}]})"),
            chat);
  EXPECT_EQ(count(text, "/v1/completions", R"({"prompt":"Hello"})"),
            text.tokenizer->encode("Hello").size());
  EXPECT_EQ(count(text, "/v1/responses", R"({"input":"Hello"})"), chat);
  EXPECT_EQ(count(text, "/v1/responses",
                  R"({"input":[{"type":"message","role":"user","content":"Hello"}]})"),
            chat);
  // What the model has said is a matter of the worker that has it.
  EXPECT_EQ(count(text, "/v1/responses", R"({"input":"Hello","previous_response_id":"resp_1"})"),
            0u);
  EXPECT_EQ(count(text, "/v1/responses",
                  R"({"input":[{"type":"message","role":"assistant","content":"Hi"},
                               {"type":"message","role":"user","content":"Hello"}]})"),
            0u);
  EXPECT_EQ(count(text, "/v1/completions", R"({"prompt":[1,2,3]})"), 3u);
  EXPECT_EQ(count(text, "/inference/v1/generate", R"({"token_ids":[1,2,3,4]})"), 4u);
}

TEST(PromptTokens, ATextBeginsAsItsWorkersHaveIt) {
  tokenizer::Tokenizer tokenizer = *tokenizer::Tokenizer::load(std::string(PELTON_SOURCE_DIR) +
                                                               "/models/pelton-box/tokenizer.json");
  const std::vector<TokenId> plain = tokenizer.encode("Hello");
  tokenizer.set_prompt_begin({7});
  ModelText text;
  text.tokenizer = std::make_unique<const tokenizer::Tokenizer>(std::move(tokenizer));
  EXPECT_EQ(count(text, "/v1/completions", R"({"prompt":"Hello"})"), plain.size() + 1);
  EXPECT_EQ(count(text, "/v1/completions", R"({"prompt":"Hello","add_special_tokens":false})"),
            plain.size());
}

TEST(PromptTokens, ARequestsOwnSaltIsRead) {
  const ModelText text = box();
  const auto salt = [&](std::string_view path, std::string_view body) {
    return prompt_tokens(text, {.path = path, .body = body, .date = {}})->cache_salt;
  };
  EXPECT_EQ(salt("/v1/completions", R"({"prompt":"a","cache_salt":"pepper"})"), "pepper");
  EXPECT_EQ(salt("/v1/completions", R"({"prompt":"a"})"), "");
  EXPECT_EQ(salt("/v1/chat/completions",
                 R"({"messages":[{"role":"user","content":"a"}],"cache_salt":"pepper"})"),
            "pepper");
  EXPECT_EQ(salt("/inference/v1/generate", R"({"token_ids":[1,2],"cache_salt":"pepper"})"),
            "pepper");
}

TEST(PromptTokens, WhatOnlyAWorkerKnowsHasNone) {
  const ModelText text = box();
  EXPECT_EQ(count(text, "/v1/completions", R"({"prompt":"a","suffix":"b"})"), 0u);
  EXPECT_EQ(count(text, "/v1/completions", R"({"prompt":["a","b"]})"), 0u);
  EXPECT_EQ(count(text, "/v1/chat/completions", "no JSON"), 0u);
  EXPECT_EQ(count(text, "/v1/responses", R"({"input":7})"), 0u);
  EXPECT_EQ(count(text, "/v1/embeddings", R"({"input":"Hello"})"), 0u);
}

}  // namespace
}  // namespace pelton::gateway
