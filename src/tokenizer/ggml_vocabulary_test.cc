#include "tokenizer/ggml_vocabulary.h"

#include <algorithm>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tokenizer/regex_splitter.h"
#include "tokenizer/split_patterns.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_json_writer.h"

namespace pelton::tokenizer {
namespace {

struct Views {
  explicit Views(GgmlTables tables_in)
      : tables(std::move(tables_in)),
        tokens(tables.tokens.begin(), tables.tokens.end()),
        merges(tables.merges.begin(), tables.merges.end()),
        types(tables.types) {}
  Views(const Views&) = delete;
  GgmlVocabulary vocabulary() const { return {"gpt2", "gpt-4o", tokens, merges, types}; }

  const GgmlTables tables;
  std::vector<std::string_view> tokens;
  std::vector<std::string_view> merges;
  std::vector<int32_t> types;
};

GgmlTables tables(int vocab_size) {
  return ggml_tables_of(synthetic_tokenizer_json(vocab_size).value(), "synthetic", vocab_size)
      .value();
}

TEST(GgmlVocabulary, ThereAndBackGivesTheSameIds) {
  const std::string json = synthetic_tokenizer_json(3000).value();
  const Views views(tables(3000));
  const Result<std::string> again = tokenizer_json_of(views.vocabulary(), "model.gguf");
  ASSERT_TRUE(again.ok()) << again.error().message;
  const Tokenizer first = Tokenizer::from_json(json, "tokenizer.json").value();
  const Tokenizer second = Tokenizer::from_json(*again, "model.gguf").value();
  EXPECT_EQ(first.vocab_size(), second.vocab_size());
  for (const char* text : {"abcdef hello wheel <|start|>user", "Grüße, 水車! \t\n  x", ""}) {
    EXPECT_EQ(first.encode(text), second.encode(text));
    EXPECT_EQ(first.encode_with_special(text), second.encode_with_special(text));
  }
  for (TokenId id = 0; id < first.vocab_size(); ++id) {
    ASSERT_EQ(first.bytes(id), second.bytes(id)) << id;
    ASSERT_EQ(first.is_special(id), second.is_special(id)) << id;
  }
}

// Where a pattern cuts is seen in what a long token cannot reach over.
TEST(GgmlVocabulary, SplitsByTheNamedPatterns) {
  const auto pieces = [](std::string_view name, std::string_view text) {
    const NamedSplit* const split = find_split(name);
    const std::vector<std::string> patterns(split->patterns.begin(), split->patterns.end());
    std::vector<std::string> out;
    RegexSplitter::compile(patterns).value()->split(
        text, [&](std::string_view piece) { out.emplace_back(piece); });
    return out;
  };
  using Pieces = std::vector<std::string>;
  EXPECT_EQ(pieces("llama-bpe", "It's 12345 n\u00f6?!\n x"),
            (Pieces{"It", "'s", " ", "123", "45", " n\u00f6", "?!\n", " x"}));
  EXPECT_EQ(pieces("qwen2", "I'M 123"), (Pieces{"I", "'M", " ", "1", "2", "3"}));
  EXPECT_EQ(pieces("qwen35", "e\u0301a"), (Pieces{"e\u0301a"}));
  EXPECT_EQ(pieces("qwen2", "e\u0301a"), (Pieces{"e", "\u0301a"}));
  EXPECT_EQ(pieces("gpt-2", "it's 12 x"), (Pieces{"it", "'s", " 12", " x"}));
  EXPECT_EQ(pieces("refact", "it's 12 x"), (Pieces{"it", "'s", " ", "1", "2", " x"}));
  EXPECT_EQ(pieces("deepseek-v3", "a1234\u65e5\u672cx (b)"),
            (Pieces{"a", "123", "4", "\u65e5\u672c", "x", " (", "b", ")"}));
  EXPECT_EQ(pieces("tekken", "heLLo don't 12"), (Pieces{"he", "LLo", " don", "'t", " ", "1", "2"}));
  for (const char* name : {"llama-bpe", "qwen2", "deepseek-v3", "tekken"}) {
    const GgmlTables made = tables(400);
    const Views views(made);
    GgmlVocabulary vocabulary = views.vocabulary();
    vocabulary.split = name;
    const Tokenizer tokenizer =
        Tokenizer::from_json(*tokenizer_json_of(vocabulary, "g"), "g").value();
    const std::string text = "abcdef 123 \u65e5\u672c (x)\n";
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text) << name;
  }
}

TEST(GgmlVocabulary, UnusedIdsHaveNoToken) {
  GgmlTables made = tables(400);
  made.tokens.push_back("[PAD400]");
  made.types.push_back(static_cast<int32_t>(GgmlTokenType::kUnused));
  const Views views(made);
  const Tokenizer tokenizer =
      Tokenizer::from_json(*tokenizer_json_of(views.vocabulary(), "g"), "g").value();
  EXPECT_EQ(tokenizer.vocab_size(), 400);
  EXPECT_THAT(tokenizer.encode("[PAD400]"), testing::SizeIs(testing::Gt(1u)));
}

using Ids = std::vector<TokenId>;

TEST(GgmlVocabulary, PiecesWithScores) {
  // <unk>, "▁", "a", "b", "▁a" and, the likelier, "ab"; as pairs, and as the likeliest pieces.
  const std::vector<std::string_view> tokens = {"<unk>", "▁", "a", "b", "▁a", "ab"};
  const std::vector<int32_t> types = {2, 1, 1, 1, 1, 1};
  const std::vector<float> scores = {0, -1, -2, -3, -5, -4};
  GgmlVocabulary vocabulary{
      .model = "llama", .split = "default", .tokens = tokens, .merges = {}, .types = types};
  EXPECT_THAT(Tokenizer::from_ggml(vocabulary, "g").error().message, testing::HasSubstr("scores"));
  vocabulary.scores = scores;
  EXPECT_EQ(Tokenizer::from_ggml(vocabulary, "g")->encode("ab xx"), (Ids{1, 5, 1, 0}));
  vocabulary.prefixes_space = false;
  EXPECT_EQ(Tokenizer::from_ggml(vocabulary, "g")->encode("ab"), Ids{5});
  vocabulary.model = "t5";
  vocabulary.removes_extra_spaces = true;
  EXPECT_EQ(Tokenizer::from_ggml(vocabulary, "g")->encode("  ab  a "), (Ids{5, 1, 2}));
}

TEST(GgmlVocabulary, PiecesWithMerges) {
  std::vector<std::string> texts = {"<bos>", "▁", "a", "b", "ab", "▁ab"};
  std::vector<int32_t> types = {3, 1, 1, 1, 1, 1};
  for (int byte = 0; byte < 256; ++byte) {
    texts.push_back(fmt::format("<0x{:02X}>", byte));
    types.push_back(6);
  }
  const std::vector<std::string_view> tokens(texts.begin(), texts.end());
  const std::vector<std::string_view> merges = {"a b", "▁ ab"};
  const GgmlVocabulary vocabulary{
      .model = "gemma4", .split = "", .tokens = tokens, .merges = merges, .types = types};
  const Tokenizer tokenizer = Tokenizer::from_ggml(vocabulary, "g").value();
  EXPECT_EQ(tokenizer.encode("ab ab!"), (Ids{4, 5, 6 + '!'}));
  EXPECT_EQ(tokenizer.encode_with_special("<bos>a"), (Ids{0, 2}));
}

// "▁" begins a word there, and what goes on has nothing in front.
TEST(GgmlVocabulary, Words) {
  const std::vector<std::string_view> tokens = {"[UNK]", "[CLS]", "▁play", "ing", "▁,"};
  const std::vector<int32_t> types = {3, 3, 1, 1, 1};
  GgmlVocabulary vocabulary{
      .model = "bert", .split = "", .tokens = tokens, .merges = {}, .types = types, .unknown = 0};
  EXPECT_EQ(Tokenizer::from_ggml(vocabulary, "g")->encode("Playing, ing"), (Ids{2, 3, 4, 0}));
  vocabulary.unknown = 99;
  EXPECT_THAT(Tokenizer::from_ggml(vocabulary, "g").error().message,
              testing::HasSubstr("unknown_token_id"));
}

TEST(GgmlVocabulary, SaysWhatIsWrong) {
  const auto refused = [](GgmlTables made, const char* words, std::string_view model = "gpt2",
                          std::string_view split = "gpt-4o") {
    const Views views(made);
    GgmlVocabulary vocabulary = views.vocabulary();
    vocabulary.model = model;
    vocabulary.split = split;
    const Result<std::string> json = tokenizer_json_of(vocabulary, "m.gguf");
    ASSERT_FALSE(json.ok()) << words;
    EXPECT_THAT(json.error().message, testing::HasSubstr(words));
  };
  const GgmlTables good = tables(300);
  refused(good, "tokenizer.ggml.model", "llama");
  refused(good, "tokenizer.ggml.pre", "gpt2", "nonsense");
  GgmlTables bad = good;
  bad.tokens[7] = "a b";
  refused(bad, "tokenizer.ggml.tokens[7]");
  bad = good;
  bad.merges[0] = "nospace";
  refused(bad, "tokenizer.ggml.merges[0]");
  bad = good;
  bad.types.pop_back();
  refused(bad, "tokenizer.ggml.token_type");
  bad = good;
  bad.types[3] = 99;
  refused(bad, "tokenizer.ggml.token_type[3]");
}

}  // namespace
}  // namespace pelton::tokenizer
