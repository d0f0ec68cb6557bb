#include "tokenizer/sentence_pieces.h"

#include <cstdio>

#include <gtest/gtest.h>

#include "base/json.h"
#include "base/json_writer.h"
#include "tokenizer/tokenizer.h"

namespace pelton::tokenizer {
namespace {

constexpr std::string_view kPrepend =
    R"("normalizer":{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"▁"},)"
    R"({"type":"Replace","pattern":{"String":" "},"content":"▁"}]},"pre_tokenizer":null)";
constexpr std::string_view kNoPrefix =
    R"("normalizer":{"type":"Replace","pattern":{"String":" "},"content":"▁"},)"
    R"("pre_tokenizer":{"type":"Split","pattern":{"String":" "},"behavior":"MergedWithPrevious"})";
constexpr std::string_view kFirst =
    R"("normalizer":null,"pre_tokenizer":{"type":"Metaspace","replacement":"▁",)"
    R"("prepend_scheme":"first","split":false})";

// <s> 0, the bytes 1 to 256, then these.
const char* const kPieces[] = {"▁", "h", "i", "ö", "▁h", "hi", "▁hi", "▁▁", "\n"};

TokenId piece(std::string_view text) {
  for (size_t i = 0; i < std::size(kPieces); ++i) {
    if (text == kPieces[i]) return static_cast<TokenId>(257 + i);
  }
  return kNoToken;
}
TokenId byte(uint8_t value) {
  return 1 + value;
}

std::string file(std::string_view spaces, bool all_bytes = true) {
  std::string vocab = R"("<s>":0)";
  char name[16];
  for (int value = 0; value < (all_bytes ? 256 : 255); ++value) {
    std::snprintf(name, sizeof name, "<0x%02X>", value);
    vocab += ",\"" + std::string(name) + "\":" + std::to_string(1 + value);
  }
  for (const char* text : kPieces) {
    vocab += ',';
    base::append_json_string(vocab, text);
    vocab += ":" + std::to_string(piece(text));
  }
  return R"({"added_tokens":[{"id":0,"content":"<s>","special":true}],)" + std::string(spaces) +
         R"(,"model":{"type":"BPE","byte_fallback":true,"vocab":{)" + vocab +
         R"(},"merges":["▁ ▁","▁ h","h i","▁h i"]}})";
}

Tokenizer tokenizer(std::string_view spaces) {
  return Tokenizer::from_json(file(spaces), "tokenizer.json").value();
}

using Ids = std::vector<TokenId>;

TEST(SentencePieces, MergeOverTheWholeText) {
  const Tokenizer t = tokenizer(kPrepend);
  EXPECT_EQ(t.encode("hi"), (Ids{piece("▁hi")}));
  EXPECT_EQ(t.encode("hi hi"), (Ids{piece("▁hi"), piece("▁hi")}));
  EXPECT_EQ(t.encode(" hi"), (Ids{piece("▁▁"), piece("hi")}));
  EXPECT_EQ(t.encode(""), Ids{});
  EXPECT_EQ(t.encode("\n"), (Ids{piece("▁"), piece("\n")}));
  EXPECT_EQ(t.decode(t.encode("hi hi\nö")), " hi hi\nö");
}

TEST(SentencePieces, WhatIsNoTokenIsItsBytes) {
  const Tokenizer t = tokenizer(kNoPrefix);
  EXPECT_EQ(t.encode("木i"), (Ids{byte(0xE6), byte(0x9C), byte(0xA8), piece("i")}));
  EXPECT_EQ(t.decode(t.encode("木i")), "木i");
  EXPECT_EQ(t.bytes(byte(0x41)), "A");
  EXPECT_EQ(t.encode("\xFF"), t.encode("\xEF\xBF\xBD"));
}

TEST(SentencePieces, APrefixIsNeverAlwaysOrFirst) {
  EXPECT_EQ(tokenizer(kNoPrefix).encode("h"), (Ids{piece("h")}));
  EXPECT_EQ(tokenizer(kPrepend).encode_with_special("<s>h<s>h"),
            (Ids{0, piece("▁h"), 0, piece("▁h")}));
  EXPECT_EQ(tokenizer(kFirst).encode_with_special("h<s>h"), (Ids{piece("▁h"), 0, piece("h")}));
  EXPECT_EQ(tokenizer(kFirst).encode_with_special("<s>h"), (Ids{0, piece("h")}));
}

// As Hugging Face's Metaspace has it, unlike a Prepend and unlike SentencePiece's dummy prefix: a
// space at the beginning is the prefix.
TEST(SentencePieces, MetaspacePrependsWhereNoSpaceStands) {
  for (const char* scheme : {"first", "always"}) {
    std::string spaces(kFirst);
    spaces.replace(spaces.find("first"), 5, scheme);
    const Tokenizer t = tokenizer(spaces);
    EXPECT_EQ(t.encode("hi"), (Ids{piece("▁hi")})) << scheme;
    EXPECT_EQ(t.encode(" hi"), (Ids{piece("▁hi")})) << scheme;
    EXPECT_EQ(t.encode("▁hi"), (Ids{piece("▁hi")})) << scheme;
    EXPECT_EQ(t.encode("  hi"), (Ids{piece("▁▁"), piece("hi")})) << scheme;
  }
  EXPECT_EQ(tokenizer(kPrepend).encode(" hi"), (Ids{piece("▁▁"), piece("hi")}));
}

TEST(SentencePieces, OrdinaryTextIsNoControlToken) {
  const Tokenizer t = tokenizer(kPrepend);
  for (const TokenId id : t.encode("<s>")) EXPECT_NE(id, 0);
  EXPECT_TRUE(t.is_special(0));
}

TEST(SentencePieces, SayWhatIsWrong) {
  const auto refused = [](const std::string& text, std::string_view words) {
    const auto made = Tokenizer::from_json(text, "t.json");
    ASSERT_FALSE(made.ok()) << words;
    EXPECT_NE(made.error().message.find(words), std::string::npos) << made.error().message;
  };
  refused(file(kPrepend, false), "<0xFF>");
  refused(file(R"("normalizer":{"type":"NFKC"},"pre_tokenizer":null)"), "NFKC");
  refused(file(R"("normalizer":null,"pre_tokenizer":null)"), "spaces");
  std::string bad = file(kPrepend);
  bad.replace(bad.find("\"h i\""), 5, "\"h q\"");
  refused(bad, "model.merges[2]");
}

TEST(SentencePieces, LongTextsTakeLittleTime) {
  const Tokenizer t = tokenizer(kPrepend);
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += "hi ";
  EXPECT_EQ(t.encode(text).size(), 100'001u);
}

}  // namespace
}  // namespace pelton::tokenizer
