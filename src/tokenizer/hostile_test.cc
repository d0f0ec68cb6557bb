// The rows TK of docs/formats/hostile_files.md, each by its number. Rows that are properties of
// encoding and decoding are in their own tests, which the page names.
#include <ctime>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "tokenizer/incremental_decoder.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_json_writer.h"

namespace pelton::tokenizer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double kSlowdown = 20;
#else
constexpr double kSlowdown = 1;
#endif

// Of this thread: a busy machine is not a slow parser.
double cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// The 256 bytes, "ab", "abc", and two control tokens.
TokenizerFile small_file() {
  TokenizerFile file;
  file.split_pattern = "[a-z]+|[^a-z]";
  for (int byte = 0; byte < 256; ++byte) file.tokens.emplace_back(1, static_cast<char>(byte));
  file.tokens.insert(file.tokens.end(), {"ab", "abc"});
  file.merges = {{"a", "b"}, {"ab", "c"}};
  file.added = {{258, "<x>", true}, {259, "<xy>", true}};
  return file;
}

class Hostile : public testing::Test {
 protected:
  // The small file with the one occurrence of `from` replaced.
  std::string with(const std::string& from, const std::string& to) const {
    std::string text = text_;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  }

  void expect_refused(std::string_view text, const std::string& field,
                      ErrorCode code = ErrorCode::kBadCheckpoint) {
    const double start = cpu_seconds();
    const Result<Tokenizer> tokenizer = Tokenizer::from_json(text, "dir/tokenizer.json");
    EXPECT_LT(cpu_seconds() - start, kSlowdown) << field;
    ASSERT_FALSE(tokenizer.ok()) << "accepted: " << field;
    EXPECT_EQ(tokenizer.error().code, code) << tokenizer.error().message;
    EXPECT_THAT(tokenizer.error().message, HasSubstr("dir/tokenizer.json"));
    EXPECT_THAT(tokenizer.error().field, HasSubstr(field)) << tokenizer.error().message;
    EXPECT_LT(tokenizer.error().message.size(), 3000u);
  }
  void expect_ranks_refused(const std::string& text, const std::string& field) {
    const Result<Tokenizer> tokenizer = Tokenizer::from_tiktoken(text, "x.tiktoken");
    ASSERT_FALSE(tokenizer.ok()) << text;
    EXPECT_EQ(tokenizer.error().code, ErrorCode::kBadCheckpoint);
    EXPECT_EQ(tokenizer.error().field, field) << tokenizer.error().message;
  }

  const std::string text_ = write_tokenizer_json(small_file());
};

TEST_F(Hostile, TK_01_NoJson) {
  for (const char* text : {"", "{", "[]", "3", "{\"model\":", "\xFF"}) expect_refused(text, "file");
  expect_refused("{\"model\":" + std::string(100'000, '['), "");
  expect_refused("{\"x\":" + std::string(100'000, '{'), "file");
}
TEST_F(Hostile, TK_02_AnIdTwice) {
  expect_refused(with("\"abc\":257", "\"abc\":256"), "model.vocab");
  expect_refused(with("\"id\":259", "\"id\":258"), "added_tokens[1].id");
  expect_refused(with("\"id\":259", "\"id\":257"), "model.vocab");
}
// A gap is legal: such an id has no bytes, and is never sampled nor encoded.
TEST_F(Hostile, TK_03_IdsThatAreNone) {
  for (const char* id : {"-1", "2147483648", "2097152", "1.5", "1e400", "18446744073709551616"}) {
    expect_refused(with("\"abc\":257", fmt::format("\"abc\":{}", id)), "");
  }
  const Result<Tokenizer> gap =
      Tokenizer::from_json(with("\"abc\":257", "\"abc\":300"), "tokenizer.json");
  ASSERT_TRUE(gap.ok()) << gap.error().message;
  EXPECT_EQ(gap->bytes(257), "");
  EXPECT_THAT(gap->encode("abc"), ElementsAre(300));
}
TEST_F(Hostile, TK_04_MergesOfTokensThatAreNotThere) {
  expect_refused(with("[\"ab\",\"c\"]", "[\"zz\",\"c\"]"), "model.merges[1]");
  expect_refused(with("[\"ab\",\"c\"]", "[\"c\",\"zz\"]"), "model.merges[1]");
  expect_refused(with("[\"ab\",\"c\"]", "[\"c\",\"ab\"]"), "model.merges[1]");
}
TEST_F(Hostile, TK_05_TablesWithoutEnd) {
  std::string merges;
  for (int i = 0; i < 3'000'000; ++i) merges += "[\"a\",\"b\"],";
  expect_refused(with("[\"ab\",\"c\"]", merges + "[\"ab\",\"c\"]"), "model.merges");
  // A gigabyte: refused for its size, before it is looked at (and never touched: no memory).
  const std::string_view huge(text_.data(), size_t{1} << 30);
  expect_refused(huge, "size");
}
TEST_F(Hostile, TK_06_APatternThatIsNone) {
  for (const char* pattern : {"(", "[a", "a{2,1}", "(?<x", "\\\\p{Nonsense}", "(?R)(", "\\\\C"}) {
    expect_refused(with("[a-z]+|[^a-z]", pattern), "pre_tokenizer");
  }
}
TEST_F(Hostile, TK_07_APatternThatBacktracksForEver) {
  const std::string text(100'000, 'a');
  for (const char* pattern : {"(a+)+$", "(a|aa)+$", "(a*)*b", "(.*)*x"}) {
    const Result<Tokenizer> tokenizer =
        Tokenizer::from_json(with("[a-z]+|[^a-z]", pattern), "tokenizer.json");
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    const double start = cpu_seconds();
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text + "!")), text + "!");
    EXPECT_LT(cpu_seconds() - start, 0.5 * kSlowdown) << pattern;
  }
}
TEST_F(Hostile, TK_08_OtherKindsOfTokenizers) {
  expect_refused(with("\"type\":\"BPE\"", "\"type\":\"WordLevel\""), "model.type",
                 ErrorCode::kUnsupported);
  expect_refused(
      with("\"normalizer\":null",
           "\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAAA\"}"),
      "normalizer", ErrorCode::kUnsupported);
  expect_ranks_refused(std::string("\x0A\x0E\x0A\x05<unk>\x15\x00\x00\x00\x00", 14), "line 1");
}
TEST_F(Hostile, TK_09_AnAddedTokenWithoutText) {
  expect_refused(with("\"content\":\"<x>\"", "\"content\":\"\""), "added_tokens[0].content");
}
TEST_F(Hostile, TK_10_TheLongerAddedTokenWins) {
  const Tokenizer tokenizer = Tokenizer::from_json(text_, "f").value();
  EXPECT_THAT(tokenizer.encode_with_special("<x><xy><x"), ElementsAre(258, 259, 0x3C, 0x78));
}
// Against the file's own limits here; against the model's vocabulary in node/loaded_model.
TEST_F(Hostile, TK_11_ASpecialIdOutOfRange) {
  expect_refused(with("\"id\":259", "\"id\":2097152"), "added_tokens[1].id");
  expect_refused(with("\"id\":259", "\"id\":-1"), "added_tokens[1].id");
}
TEST_F(Hostile, TK_12_DamagedRankFiles) {
  expect_ranks_refused("YQ== 0\nY!== 1\n", "line 2");
  expect_ranks_refused("YQ== 0\nYg== 0\n", "line 2");
  expect_ranks_refused("YQ== 0\nYg== 2\n", "line 2");
  expect_ranks_refused("YQ== 0\nYQ== 1\n", "line 2");
  expect_ranks_refused("YQ== -1\n", "line 1");
  expect_ranks_refused(std::string(4000, 'A') + " 0\n", "line 1");
}
// Every byte has a token, or the file is refused: there is no text that cannot be encoded.
TEST_F(Hostile, TK_13_AByteWithoutAToken) {
  expect_refused(with("\"q\":113,", ""), "vocab");
  expect_ranks_refused("YQ== 0\n", "vocab");
}
TEST_F(Hostile, TK_17_HalfACharacterAtTheEnd) {
  std::string streamed;
  IncrementalDecoder decoder;
  decoder.push("\xF0\x9F", streamed);
  EXPECT_EQ(streamed, "");
  decoder.finish(streamed);
  EXPECT_EQ(streamed, Tokenizer::from_json(text_, "f")->decode(std::vector<TokenId>{0xF0, 0x9F}));
  EXPECT_EQ(streamed, "\xEF\xBF\xBD");
}
TEST_F(Hostile, TK_19_AVocabularyEntryWithoutEnd) {
  expect_refused(with("\"abc\":257", "\"" + std::string(1025, 'a') + "\":257"), "model.vocab");
  expect_refused(with("\"abc\":257", "\"" + std::string(100'000'000, 'a') + "\":257"),
                 "model.vocab");
  expect_refused(with("\"content\":\"<x>\"", "\"content\":\"" + std::string(5000, 'x') + "\""),
                 "added_tokens[0].content");
}

}  // namespace
}  // namespace pelton::tokenizer
