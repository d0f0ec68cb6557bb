#include "tokenizer/tokenizer.h"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json.h"
#include "base/machine.h"
#include "base/utf8.h"
#include "tokenizer/byte_pair_encoder.h"
#include "tokenizer/incremental_decoder.h"
#include "tokenizer/o200k_splitter.h"
#include "tokenizer/regex_splitter.h"
#include "tokenizer/tiktoken_file.h"

namespace pelton::tokenizer {
namespace {

using testing::ElementsAre;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double kSlowdown = 20;  // and a tenth of the text
#else
constexpr double kSlowdown = 1;
#endif

const Tokenizer& o200k() {
  static const Tokenizer tokenizer =
      Tokenizer::load(PELTON_SOURCE_DIR "/testdata/tokenizer/o200k_base.tiktoken").value();
  return tokenizer;
}

TEST(Tokenizer, ReproducesAllVectors) {
  const std::string text =
      base::read_file(PELTON_SOURCE_DIR "/testdata/tokenizer/vectors.json", 1 << 20).value();
  const Json vectors = Json::parse(text).value();
  ASSERT_EQ(vectors.as_array().size(), 121u);
  for (const Json& vector : vectors.as_array()) {
    std::vector<TokenId> expected;
    for (const Json& id : vector.find("ids")->as_array()) {
      expected.push_back(static_cast<TokenId>(id.as_integer()));
    }
    const std::string& words = vector.find("text")->as_string();
    EXPECT_EQ(o200k().encode(words), expected) << words;
    EXPECT_EQ(o200k().decode(expected), words);
  }
}

TEST(Tokenizer, AppendsToWhatIsThere) {
  std::vector<TokenId> ids{7};
  o200k().encode("hello world", ids);
  EXPECT_THAT(ids, ElementsAre(7, 24912, 2375));
}

TEST(Tokenizer, KnowsHarmonysControlTokens) {
  EXPECT_EQ(o200k().vocab_size(), 201088);
  EXPECT_EQ(o200k().special_id("<|start|>"), 200006);
  EXPECT_EQ(o200k().special_id("<|return|>"), 200002);
  EXPECT_EQ(o200k().special_id("<|endofprompt|>"), 200018);
  EXPECT_EQ(o200k().special_id("<|reserved_201087|>"), 201087);
  EXPECT_EQ(o200k().special_id("start"), std::nullopt);
  EXPECT_EQ(o200k().bytes(200012), "<|call|>");
  EXPECT_TRUE(o200k().is_special(199998));
  EXPECT_FALSE(o200k().is_special(199997));
  for (const TokenId none : {-1, 201088, INT32_MAX, INT32_MIN}) {
    EXPECT_EQ(o200k().bytes(none), "");
    EXPECT_FALSE(o200k().is_special(none));
  }
}

TEST(Tokenizer, UserTextNeverBecomesAControlToken) {
  EXPECT_THAT(o200k().encode("<|start|>"), ElementsAre(27, 91, 5236, 91, 29));
  for (TokenId id = 199998; id < 201088; ++id) {
    const std::string text(o200k().bytes(id));
    for (const TokenId token : o200k().encode(text + text)) EXPECT_LT(token, 199998) << text;
  }
}

TEST(Tokenizer, ControlTokensWhereAskedFor) {
  EXPECT_THAT(o200k().encode_with_special("<|start|>assistant<|channel|>final<|message|>"),
              ElementsAre(200006, 173781, 200005, 17196, 200008));
  EXPECT_THAT(o200k().encode_with_special("<|<|end|><|end|"),
              ElementsAre(27, 91, 200007, 27, 91, 419, 91));
  EXPECT_THAT(o200k().encode_with_special(""), ElementsAre());
}

TEST(Tokenizer, BrokenUtf8IsReadAsReplacementCharacters) {
  for (const std::string_view broken :
       {"\xFF", "a\xC0\xAF z", "\xE2\x82", "\xF0\x9F\x92 x", "\xED\xA0\x80", "\x80\x80"}) {
    const std::string repaired = base::replace_invalid_utf8(broken);
    EXPECT_EQ(o200k().encode(broken), o200k().encode(repaired));
    EXPECT_EQ(o200k().decode(o200k().encode(broken)), repaired);
  }
}

TEST(Tokenizer, DecodesWhatItEncodes) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (uint64_t length = random() % 60; length > 0; --length) {
      if (random() % 3 == 0) {
        base::append_utf8(text, static_cast<uint32_t>(random() % 0xD800));
      } else {
        text.push_back(static_cast<char>(random() % (random() % 2 == 0 ? 256 : 128)));
      }
    }
    ASSERT_EQ(o200k().decode(o200k().encode(text)), base::replace_invalid_utf8(text));
  }
}

// Words that come again, numbers, symbols, blanks, code points of all kinds, broken UTF-8.
std::string mixed_text(std::mt19937_64& random, size_t bytes) {
  static constexpr std::string_view kGlue[] = {" ", " ", " ", "\n", "  ", "\t", "'", "(", "_", ""};
  std::vector<std::string> words;
  for (int i = 0; i < 40; ++i) {
    std::string word;
    const uint64_t kind = random() % 8;
    for (uint64_t length = 1 + random() % 14; length > 0; --length) {
      if (kind < 4) word.push_back(static_cast<char>('a' + random() % 26));
      if (kind == 4) word.push_back(static_cast<char>(' ' + random() % 95));
      if (kind == 5) word.push_back(static_cast<char>('0' + random() % 10));
      if (kind == 6) base::append_utf8(word, static_cast<uint32_t>(random() % 0xD800));
      if (kind == 7) word.push_back(static_cast<char>(random()));
    }
    if (random() % 3 == 0) word[0] = static_cast<char>('A' + random() % 26);
    words.push_back(word);
  }
  std::string text;
  while (text.size() < bytes) {
    text += words[random() % words.size()];
    text += kGlue[random() % std::size(kGlue)];
  }
  return text;
}

// The pattern by PCRE2, whole pieces first, the rest by the way that is made for long pieces: none
// of it shares a line with what is fast.
std::vector<TokenId> encode_slowly(const TokenizerParts& parts, const BytePairEncoder& encoder,
                                   const Splitter& splitter, std::string_view text) {
  std::vector<TokenId> ids;
  const std::string repaired = base::replace_invalid_utf8(text);
  splitter.split(repaired, [&](std::string_view piece) {
    const TokenId whole = parts.lookup.find(parts.tokens, piece);
    if (whole != kNoToken) {
      ids.push_back(whole);
    } else {
      encoder.encode_long(piece, ids);
    }
  });
  return ids;
}

TEST(Tokenizer, FastWaysGiveWhatSlowOnesDo) {
  const std::string file = PELTON_SOURCE_DIR "/testdata/tokenizer/o200k_base.tiktoken";
  const TokenizerParts parts = read_tiktoken(base::read_file(file, 1 << 24).value(), file).value();
  std::array<TokenId, 256> byte_tokens;
  for (size_t byte = 0; byte < 256; ++byte) {
    const char letter = static_cast<char>(byte);
    byte_tokens[byte] = parts.lookup.find(parts.tokens, {&letter, 1});
  }
  const BytePairEncoder encoder(byte_tokens, parts.merges);
  const auto splitter = RegexSplitter::compile({std::string(kO200kPattern)}).value();
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 300; ++round) {
    const std::string text = mixed_text(random, random() % (round % 10 == 0 ? 30'000 : 600));
    const std::vector<TokenId> ids = o200k().encode(text);
    ASSERT_EQ(ids, encode_slowly(parts, encoder, *splitter, text)) << testing::PrintToString(text);
    ASSERT_EQ(o200k().decode(ids), base::replace_invalid_utf8(text));
  }
}

TEST(Tokenizer, DecodingAtOnceIsDecodingInSteps) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 300; ++round) {
    std::vector<TokenId> ids(random() % 60);
    // Low ids are single bytes for the most part, so characters are cut; 201100 is no token.
    for (TokenId& id : ids) id = static_cast<TokenId>(random() % (random() % 2 ? 300 : 201100));
    std::string in_steps;
    IncrementalDecoder decoder;
    for (const TokenId id : ids) decoder.push(o200k().bytes(id), in_steps);
    decoder.finish(in_steps);
    ASSERT_EQ(o200k().decode(ids), in_steps);
  }
}

TEST(Tokenizer, DecodesTokensThatCutACharacter) {
  EXPECT_EQ(o200k().decode(std::vector<TokenId>{31446, 244}), "\xF0\x9F\x92\x96");
  EXPECT_EQ(o200k().decode(std::vector<TokenId>{9552, 9552}), " \xEF\xBF\xBD \xEF\xBF\xBD");
  EXPECT_EQ(o200k().decode(std::vector<TokenId>{200006, 500000, -3, 24912}), "<|start|>hello");
}

std::string repeated(std::string_view unit, size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += unit;
  return text;
}

// Neither long pieces nor many backtracking points make encoding slower than linear in the text.
TEST(Tokenizer, WorstCasesStayLinear) {
  constexpr size_t kBytes = kSlowdown > 1 ? 100'000 : 1'000'000;
  for (const std::string_view unit : {"a",
                                      "A",
                                      " ",
                                      "!",
                                      "\n",
                                      "\r\n",
                                      " \n",
                                      "1",
                                      "/",
                                      "a'",
                                      "'s",
                                      "Aa",
                                      "A\xCC\x80",
                                      "\xE4\xB8\xAD",
                                      "\xF0\x9F\x92\x96",
                                      "\xF0\x9F\x91\xA8\xE2\x80\x8D",
                                      "\xCC\x80",
                                      "\xFF",
                                      "\xEF\xB7\xBA",
                                      "<|",
                                      "<|start|>",
                                      " a",
                                      "  a",
                                      "\t",
                                      "\xC2\xA0",
                                      "zq",
                                      "\x00\x01"}) {
    const std::string text = repeated(unit.empty() ? std::string_view("\0", 1) : unit, kBytes);
    const int64_t start_ns = base::thread_cpu_ns();
    const std::vector<TokenId> ids = o200k().encode(text);
    const double took_s = static_cast<double>(base::thread_cpu_ns() - start_ns) * 1e-9;
    EXPECT_LT(took_s, kSlowdown) << unit;
    EXPECT_EQ(o200k().decode(ids), base::replace_invalid_utf8(text)) << unit;
  }
}

TEST(Tokenizer, LookingForControlTokensStaysLinear) {
  for (const std::string_view unit : {"<", "<|", "<|reserved_20", "<|start|>", "a"}) {
    const std::string text = repeated(unit, 1'000'000);
    const int64_t start_ns = base::thread_cpu_ns();
    const std::vector<TokenId> ids = o200k().encode_with_special(text);
    const double took_s = static_cast<double>(base::thread_cpu_ns() - start_ns) * 1e-9;
    EXPECT_LT(took_s, kSlowdown) << unit;
    EXPECT_EQ(o200k().decode(ids), text) << unit;
  }
}

TEST(Tokenizer, TenThousandControlTextsInAText) {
  const std::string text = repeated("<|channel|>x<|reserved_200999|>", 31 * 10'000);
  EXPECT_EQ(o200k().encode_with_special(text).size(), 30'000u);
  EXPECT_EQ(o200k().decode(o200k().encode_with_special(text)), text);
}

TEST(Tokenizer, LoadSaysWhichFileIsMissing) {
  const Result<Tokenizer> tokenizer = Tokenizer::load("/nowhere/tokenizer.json");
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_EQ(tokenizer.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(tokenizer.error().message, testing::HasSubstr("/nowhere/tokenizer.json"));
}

}  // namespace
}  // namespace pelton::tokenizer
