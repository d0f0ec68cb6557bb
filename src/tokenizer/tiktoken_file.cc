#include "tokenizer/tiktoken_file.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>

#include <fmt/format.h>

#include "tokenizer/harmony_tokens.h"
#include "tokenizer/o200k_splitter.h"

namespace pelton::tokenizer {
namespace {

// o200k_base has 3.6 million bytes.
constexpr size_t kFileBytesMax = size_t{32} << 20;

constexpr std::array<int8_t, 256> make_sextets() {
  std::array<int8_t, 256> sextets{};
  for (int8_t& sextet : sextets) sextet = -1;
  const std::string_view letters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t i = 0; i < letters.size(); ++i) {
    sextets[static_cast<uint8_t>(letters[i])] = static_cast<int8_t>(i);
  }
  return sextets;
}
constexpr std::array<int8_t, 256> kSextets = make_sextets();

// Appends the bytes; false if that is not padded base64.
bool decode_base64(std::string_view text, std::string& out) {
  if (text.empty() || text.size() % 4 != 0) return false;
  size_t padding = 0;
  while (padding < 2 && text[text.size() - 1 - padding] == '=') ++padding;
  for (size_t i = 0; i < text.size(); i += 4) {
    const size_t missing = i + 4 == text.size() ? padding : 0;
    uint32_t bits = 0;
    for (size_t k = 0; k < 4; ++k) {
      const int8_t sextet = k < 4 - missing ? kSextets[static_cast<uint8_t>(text[i + k])] : 0;
      if (sextet < 0) return false;
      bits = bits << 6 | static_cast<uint32_t>(sextet);
    }
    const char bytes[3] = {static_cast<char>(bits >> 16), static_cast<char>(bits >> 8),
                           static_cast<char>(bits)};
    out.append(bytes, 3 - missing);
  }
  return true;
}

Error bad_line(const std::string& name, size_t line, const std::string& what) {
  return bad_tokenizer(name, fmt::format("line {}", line), what);
}

// One line, without its newline, gives the token whose rank is the line's number.
Result<void> read_line(std::string_view line, const std::string& name, TokenId expected,
                       std::string& scratch, TokenBytes& tokens) {
  const size_t number = static_cast<size_t>(expected) + 1;
  const size_t space = line.find(' ');
  if (space == std::string_view::npos) {
    return bad_line(name, number, "is not \"BASE64 RANK\"");
  }
  if (space > (kTokenBytesMax + 2) / 3 * 4) {
    return bad_line(name, number, fmt::format("the token has over {} bytes", kTokenBytesMax));
  }
  scratch.clear();
  if (!decode_base64(line.substr(0, space), scratch)) {
    return bad_line(name, number, "the token is not valid base64");
  }
  const std::string_view digits = line.substr(space + 1);
  TokenId rank = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
  if (error != std::errc() || end != digits.data() + digits.size()) {
    return bad_line(name, number, "the rank is not a number");
  }
  if (rank != expected) {
    return bad_line(
        name, number,
        fmt::format("rank {}, expected {}: ranks count up from 0, without holes", rank, expected));
  }
  if (expected >= kHarmonyFirstControlId) {
    return unsupported_tokenizer(name, fmt::format("line {}", number),
                                 fmt::format("more than o200k's {} tokens: a rank file does not "
                                             "say its split pattern, use the tokenizer.json",
                                             kHarmonyFirstControlId));
  }
  CHECK(tokens.set(rank, scratch));
  return {};
}

Result<TokenBytes> read_lines(std::string_view text, const std::string& name) {
  TokenBytes tokens;
  // The shortest line is "QQ== 0\n": a small file cannot ask for much.
  tokens.reserve(std::min<size_t>(kHarmonyVocabularySize, text.size() / 7 + 1), text.size());
  std::string scratch;
  TokenId expected = 0;
  while (!text.empty()) {
    const size_t newline = text.find('\n');
    std::string_view line = text.substr(0, newline);
    text.remove_prefix(newline == std::string_view::npos ? text.size() : newline + 1);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.empty() && text.empty()) break;
    TRY(read_line(line, name, expected, scratch, tokens));
    ++expected;
  }
  return tokens;
}

}  // namespace

Result<TokenizerParts> read_tiktoken(std::string_view text, const std::string& name) {
  if (text.size() > kFileBytesMax) {
    return bad_tokenizer(
        name, "size",
        fmt::format("{} bytes, the limit for a rank file is {}", text.size(), kFileBytesMax));
  }
  TRY_ASSIGN(TokenBytes tokens, read_lines(text, name));
  TokenLookup lookup(static_cast<size_t>(tokens.size()));
  for (TokenId id = 0; id < tokens.size(); ++id) {
    const TokenId twin = lookup.insert(tokens, id);
    if (twin != kNoToken) {
      return bad_line(name, static_cast<size_t>(id) + 1,
                      fmt::format("the same token as on line {}", twin + 1));
    }
  }
  MergeTable merges = MergeTable::of_ranks(tokens, lookup);

  std::vector<AddedToken> added;
  for (ControlToken& control : harmony_control_tokens_with_reserved()) {
    CHECK(tokens.set(control.id, control.text));
    added.push_back({control.id, std::move(control.text), true});
  }
  return TokenizerParts{.tokens = std::move(tokens),
                        .lookup = std::move(lookup),
                        .merges = std::move(merges),
                        .whole_pieces_first = true,
                        .split_patterns = {std::string(kO200kPattern)},
                        .added = std::move(added)};
}

}  // namespace pelton::tokenizer
