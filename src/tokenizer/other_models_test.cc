// tokenizer.json as Llama 3 and Qwen 2 have it: their keys in their order and their split patterns,
// with small vocabularies of our own.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/digest.h"
#include "base/json_writer.h"
#include "base/random.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/regex_splitter.h"
#include "tokenizer/tokenizer.h"

namespace pelton::tokenizer {
namespace {

using testing::ElementsAre;

constexpr const char* kLlama3Pattern =
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";
constexpr const char* kQwen2Pattern =
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";

std::string json_text(std::string_view text) {
  std::string out;
  base::append_json_string(out, text);
  return out;
}

std::string letters(std::string_view bytes) {
  std::string out;
  append_byte_letters(bytes, out);
  return out;
}

// The 256 bytes, then `words`: ids 256 and on.
std::string vocabulary(const std::vector<std::string>& words) {
  std::string out = "{";
  int id = 0;
  for (; id < 256; ++id) {
    const char byte = static_cast<char>(id);
    out += fmt::format("{}{}: {}", id == 0 ? "" : ", ", json_text(letters({&byte, 1})), id);
  }
  for (const std::string& word : words)
    out += fmt::format(", {}: {}", json_text(letters(word)), id++);
  return out + "}";
}

std::string added_token(int id, const char* text, bool special) {
  return fmt::format(R"({{"id": {}, "content": "{}", "single_word": false, "lstrip": false,
      "rstrip": false, "normalized": false, "special": {}}})",
                     id, text, special);
}

constexpr const char* kByteLevel =
    R"({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false})";

// Pieces that are whole tokens need no merges: "ignore_merges" is true.
std::string llama3_file(const std::vector<std::string>& words) {
  const int first_added = 256 + static_cast<int>(words.size());
  return fmt::format(
      R"({{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [{}, {}],
  "normalizer": null,
  "pre_tokenizer": {{"type": "Sequence", "pretokenizers": [{{"type": "Split",
    "pattern": {{"Regex": {}}}, "behavior": "Isolated", "invert": false}}, {}]}},
  "post_processor": {{"type": "Sequence", "processors": [{{"type": "ByteLevel",
    "add_prefix_space": true, "trim_offsets": false, "use_regex": true}},
    {{"type": "TemplateProcessing", "single": [{{"SpecialToken": {{"id": "<|begin_of_text|>",
      "type_id": 0}}}}, {{"Sequence": {{"id": "A", "type_id": 0}}}}], "pair": [],
      "special_tokens": {{"<|begin_of_text|>": {{"id": "<|begin_of_text|>", "ids": [{}],
      "tokens": ["<|begin_of_text|>"]}}}}}}]}},
  "decoder": {{"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true,
    "use_regex": true}},
  "model": {{"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
    "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": true,
    "vocab": {}, "merges": []}}}})",
      added_token(first_added, "<|begin_of_text|>", true),
      added_token(first_added + 1, "<|eot_id|>", true), json_text(kLlama3Pattern), kByteLevel,
      first_added, vocabulary(words));
}

// Merges as strings, empty affixes, form C; tokens that are added but not special.
std::string qwen2_file(const std::vector<std::string>& words, const std::string& merges) {
  const int first_added = 256 + static_cast<int>(words.size());
  return fmt::format(
      R"({{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [{}, {}, {}],
  "normalizer": {{"type": "NFC"}},
  "pre_tokenizer": {{"type": "Sequence", "pretokenizers": [{{"type": "Split",
    "pattern": {{"Regex": {}}}, "behavior": "Isolated", "invert": false}}, {}]}},
  "post_processor": {{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false,
    "use_regex": false}},
  "decoder": {{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false,
    "use_regex": false}},
  "model": {{"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": "",
    "end_of_word_suffix": "", "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
    "vocab": {}, "merges": [{}]}}}})",
      added_token(first_added, "<|endoftext|>", true),
      added_token(first_added + 1, "<|im_start|>", true),
      added_token(first_added + 2, "<tool_call>", false), json_text(kQwen2Pattern), kByteLevel,
      vocabulary(words), merges);
}

TEST(OtherModels, Llama3) {
  // Each of these is a piece of the text below, and none is cut in it otherwise.
  const std::vector<std::string> words = {"Hello", ",",      " it", "'s",  " ",        "123", "45",
                                          " o",    "'clock", "I",   "'LL", "\r\n\r\n", "!?\n"};
  std::vector<std::string> many;
  for (const std::string& word : words) {
    if (word.size() > 1) many.push_back(word);
  }
  const Result<Tokenizer> loaded = Tokenizer::from_json(llama3_file(many), "tokenizer.json");
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  const auto id = [&](std::string_view word) {
    const auto found = std::find(many.begin(), many.end(), word);
    return found == many.end() ? TokenId{static_cast<unsigned char>(word[0])}
                               : static_cast<TokenId>(256 + (found - many.begin()));
  };
  EXPECT_THAT(loaded->encode("Hello, it's 12345 o'clock"),
              ElementsAre(id("Hello"), id(","), id(" it"), id("'s"), id(" "), id("123"), id("45"),
                          id(" o"), id("'clock")));
  EXPECT_THAT(loaded->encode("I'LL\r\n\r\n!?\n"),
              ElementsAre(id("I"), id("'LL"), id("\r\n\r\n"), id("!?\n")));
  EXPECT_THAT(loaded->encode_with_special("<|begin_of_text|>Hello<|eot_id|>"),
              ElementsAre(266, id("Hello"), 267));
  EXPECT_THAT(loaded->encode_prompt("Hello"), ElementsAre(266, id("Hello")));
  EXPECT_THAT(loaded->encode_prompt(""), ElementsAre(266));
  EXPECT_EQ(loaded->special_id("<|eot_id|>"), 267);
  EXPECT_GT(loaded->encode("<|eot_id|>").size(), 1u);
}

// What a prompt's text is put between stays, as long as there is room for some of the text.
TEST(OtherModels, PromptsAreCutWithinWhatStandsAroundThem) {
  using Cut = Tokenizer::Cut;
  auto tokenizer = Tokenizer::from_json(llama3_file({}), "tokenizer.json").value();
  tokenizer.set_prompt_end({257});
  const auto cut = [&](std::vector<TokenId> tokens, size_t tokens_max, Cut side) {
    tokenizer.cut_prompt(tokens, tokens_max, side);
    return tokens;
  };
  const std::vector<TokenId> whole = tokenizer.encode_prompt("abcd");
  ASSERT_THAT(whole, ElementsAre(256, 'a', 'b', 'c', 'd', 257));
  EXPECT_EQ(cut(whole, 6, Cut::kEnd), whole);
  EXPECT_THAT(cut(whole, 4, Cut::kEnd), ElementsAre(256, 'a', 'b', 257));
  EXPECT_THAT(cut(whole, 3, Cut::kBegin), ElementsAre(256, 'd', 257));
  EXPECT_THAT(cut(whole, 2, Cut::kBegin), ElementsAre('d', 257));
  EXPECT_THAT(cut(whole, 1, Cut::kEnd), ElementsAre(256));
  EXPECT_THAT(cut({'a', 'b', 'c'}, 2, Cut::kBegin), ElementsAre('b', 'c')) << "other tokens";
}

// Of two texts the second one is cut, and never to nothing.
TEST(OtherModels, OfTwoTextsTheSecondIsCut) {
  using Cut = Tokenizer::Cut;
  std::string file = llama3_file({});
  const std::string none = R"("pair": [])";
  const std::string token = R"({"SpecialToken": {"id": "<|begin_of_text|>", "type_id": 0}})";
  file.replace(file.find(none), none.size(),
               fmt::format(R"("pair": [{0}, {{"Sequence": {{"id": "A", "type_id": 0}}}}, {0},
                              {{"Sequence": {{"id": "B", "type_id": 1}}}}, {0}])",
                           token));
  const auto loaded = Tokenizer::from_json(file, "tokenizer.json");
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  const auto pair = [&](std::string_view first, std::string_view second,
                        const Tokenizer::PairRoom& room) {
    return loaded->encode_pair(first, second, room).value();
  };
  const auto whole = pair("abc", "defg", {});
  EXPECT_THAT(whole.tokens, ElementsAre(256, 'a', 'b', 'c', 256, 'd', 'e', 'f', 'g', 256));
  EXPECT_EQ(whole.second_text, 5);
  EXPECT_FALSE(whole.is_cut());
  EXPECT_THAT(pair("abc", "defg", {.tokens_max = 8}).tokens,
              ElementsAre(256, 'a', 'b', 'c', 256, 'd', 'e', 256));
  const auto end = pair("abc", "defg", {.tokens_max = 8, .cut = Cut::kBegin});
  EXPECT_THAT(end.tokens, ElementsAre(256, 'a', 'b', 'c', 256, 'f', 'g', 256));
  EXPECT_TRUE(end.is_cut());
  EXPECT_EQ(end.whole_tokens, 10u);
  EXPECT_EQ(end.first_tokens, 3u);
  EXPECT_EQ(end.framing_tokens, 3u);
  for (const size_t room : {7u, 6u, 3u, 0u}) {  // the first text stays, whether it fits or not
    EXPECT_THAT(pair("abc", "defg", {.tokens_max = room}).tokens,
                ElementsAre(256, 'a', 'b', 'c', 256, 'd', 256));
  }
  const auto bounded = pair("abc", "defg", {.tokens_max = 99, .second_tokens_max = 2});
  EXPECT_THAT(bounded.tokens, ElementsAre(256, 'a', 'b', 'c', 256, 'd', 'e', 256));
  EXPECT_FALSE(bounded.is_cut()) << "its own limit is no lack of room";
}

TEST(OtherModels, Qwen2) {
  const std::string file =
      qwen2_file({"ab", "\xC3\xA9", "ab\xC3\xA9", "12"},
                 fmt::format("\"a b\", \"{} {}\", \"ab {}\", \"1 2\"", letters("\xC3"),
                             letters("\xA9"), letters("\xC3\xA9")));
  const Result<Tokenizer> loaded = Tokenizer::from_json(file, "tokenizer.json");
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_THAT(loaded->encode("ab"), ElementsAre(256));
  EXPECT_THAT(loaded->encode("ab\xC3\xA9"), ElementsAre(258));
  EXPECT_THAT(loaded->encode("abe\xCC\x81"), ElementsAre(258));  // composed first
  EXPECT_THAT(loaded->encode("12"), ElementsAre('1', '2'));      // digits stand alone
  EXPECT_THAT(loaded->encode_with_special("<|im_start|>ab<tool_call>"), ElementsAre(261, 256, 262));
  EXPECT_TRUE(loaded->is_special(261));
  EXPECT_FALSE(loaded->is_special(262));
  EXPECT_EQ(loaded->decode(loaded->encode("e\xCC\x81 and \xFF")), "\xC3\xA9 and \xEF\xBF\xBD");
}

// The pieces that Node's own regular expressions cut 5000 random texts into, as a hash. The pattern
// was given to Node with its caseless group spelled out; U+0085 and U+FEFF, which JavaScript's \s
// takes differently, are not in the texts.
std::string digest_of_pieces(const char* pattern) {
  static constexpr std::string_view kUnits[] = {"a",
                                                "Z",
                                                "s",
                                                "T",
                                                "re",
                                                "LL",
                                                "'",
                                                "'S",
                                                " ",
                                                " ",
                                                "\n",
                                                "\r",
                                                "\t",
                                                "!",
                                                "<|",
                                                "1",
                                                "42",
                                                "7890",
                                                "\xC3\x89",
                                                "\xC3\xA9",
                                                "\xC7\x85",
                                                "\xCA\xB0",
                                                "\xE4\xB8\xAD",
                                                "\xCC\x80",
                                                "\xC2\xA0",
                                                "\xE3\x80\x80",
                                                "\xC2\xBD",
                                                "\xE2\x85\xA7",
                                                "\xF0\x9F\x92\x96",
                                                "\xE2\x80\x8D",
                                                "\xE0\xA4\xA8\xE0\xA4\xBF",
                                                "\xF0\x9D\x90\x80",
                                                "_",
                                                "./"};
  const std::unique_ptr<RegexSplitter> splitter = RegexSplitter::compile({pattern}).value();
  base::Digest digest(base::Digest::Kind::kSha256);
  for (uint64_t i = 0; i < 5000; ++i) {
    std::string text;
    const uint64_t length = base::random_bits(3, i * 64) % 24;
    for (uint64_t k = 0; k < length; ++k) {
      text += kUnits[base::random_bits(3, i * 64 + 1 + k) % std::size(kUnits)];
    }
    splitter->split(text, [&](std::string_view piece) {
      digest.update(piece);
      digest.update({"", 1});
    });
  }
  return digest.finish();
}

TEST(OtherModels, PatternsCutAsAnotherEngineCuts) {
  EXPECT_EQ(digest_of_pieces(kLlama3Pattern),
            "218e3adfd15d987fe93f3e4afe7b095627a7f027707b788520dc8c8b06eddc5c");
  EXPECT_EQ(digest_of_pieces(kQwen2Pattern),
            "dfaf0528c280f027562a26e7d51cd9d1f33bbe5272724e6f88c1bc14eaaa0f09");
}

}  // namespace
}  // namespace pelton::tokenizer
