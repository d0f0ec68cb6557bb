// Both ways of encoding a piece against the definition.
#include "tokenizer/byte_pair_encoder.h"

#include <random>
#include <string>

#include <gtest/gtest.h>

#include "base/file.h"
#include "tokenizer/tiktoken_file.h"

namespace pelton::tokenizer {
namespace {

const TokenizerParts& o200k() {
  static const TokenizerParts parts = [] {
    const std::string file = PELTON_SOURCE_DIR "/testdata/tokenizer/o200k_base.tiktoken";
    return read_tiktoken(base::read_file(file, 1 << 24).value(), file).value();
  }();
  return parts;
}

std::array<TokenId, 256> byte_tokens() {
  std::array<TokenId, 256> ids;
  for (size_t byte = 0; byte < 256; ++byte) {
    const char letter = static_cast<char>(byte);
    ids[byte] = o200k().lookup.find(o200k().tokens, {&letter, 1});
  }
  return ids;
}

// Merge the two neighbours whose bytes together are the token of the lowest id; repeat.
std::vector<TokenId> by_definition(std::string_view piece) {
  std::vector<std::string> parts;
  for (const char byte : piece) parts.emplace_back(1, byte);
  const auto id = [](const std::string& bytes) {
    return o200k().lookup.find(o200k().tokens, bytes);
  };
  while (true) {
    TokenId lowest = INT32_MAX;
    size_t at = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const TokenId merged = id(parts[i] + parts[i + 1]);
      if (merged == kNoToken || merged >= lowest) continue;
      lowest = merged;
      at = i;
    }
    if (lowest == INT32_MAX) break;
    parts[at] += parts[at + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
  std::vector<TokenId> ids;
  for (const std::string& part : parts) ids.push_back(id(part));
  return ids;
}

TEST(BytePairEncoder, BothWaysFollowTheDefinition) {
  const BytePairEncoder encoder(byte_tokens(), o200k().merges);
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  static constexpr std::string_view kAlphabets[] = {
      "a", "ab", "etaoinshr", "\xE4\xB8\xAD", " ", "!=-", "\xF0\x9F\x92\x96\x80"};
  for (int round = 0; round < 1500; ++round) {
    const std::string_view alphabet = kAlphabets[random() % std::size(kAlphabets)];
    std::string piece;
    for (uint64_t length = 1 + random() % 150; length > 0; --length) {
      piece.push_back(random() % 50 == 0 ? static_cast<char>(random())
                                         : alphabet[random() % alphabet.size()]);
    }
    const std::vector<TokenId> expected = by_definition(piece);
    std::vector<TokenId> ids;
    encoder.encode(piece, ids);
    ASSERT_EQ(ids, expected) << testing::PrintToString(piece);
    ids.clear();
    encoder.encode_long(piece, ids);
    ASSERT_EQ(ids, expected) << testing::PrintToString(piece);
  }
}

TEST(BytePairEncoder, NothingGivesNothing) {
  const BytePairEncoder encoder(byte_tokens(), o200k().merges);
  std::vector<TokenId> ids;
  encoder.encode("", ids);
  encoder.encode_long("", ids);
  EXPECT_TRUE(ids.empty());
}

}  // namespace
}  // namespace pelton::tokenizer
