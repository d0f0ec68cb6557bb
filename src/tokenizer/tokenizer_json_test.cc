#include "tokenizer/tokenizer_json.h"

#include <filesystem>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "tokenizer/harmony_tokens.h"
#include "tokenizer/o200k_splitter.h"
#include "tokenizer/tiktoken_file.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_json_writer.h"

namespace pelton::tokenizer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// The 256 bytes, then these: ids 256 and on.
TokenizerFile file_with(const std::vector<TokenizerFile::Merge>& merges) {
  TokenizerFile file;
  file.split_pattern = "[a-z]+|[^a-z]";
  for (int byte = 0; byte < 256; ++byte) file.tokens.emplace_back(1, static_cast<char>(byte));
  for (const TokenizerFile::Merge& merge : merges) file.tokens.push_back(merge.left + merge.right);
  file.merges = merges;
  return file;
}

Tokenizer load(const TokenizerFile& file) {
  return Tokenizer::from_json(write_tokenizer_json(file), "tokenizer.json").value();
}

TEST(TokenizerJson, BothFormsOfMerges) {
  TokenizerFile file = file_with({{"a", "b"}, {"ab", "c"}, {" ", "\xC3"}});
  for (const MergeForm form : {MergeForm::kPairs, MergeForm::kStrings}) {
    file.merge_form = form;
    const Tokenizer tokenizer = load(file);
    EXPECT_EQ(tokenizer.vocab_size(), 259);
    EXPECT_THAT(tokenizer.encode("abcab"), ElementsAre(257, 256));
    EXPECT_EQ(tokenizer.bytes(257), "abc");
    EXPECT_EQ(tokenizer.bytes(258), " \xC3");
  }
}

TEST(TokenizerJson, TheMergeListOrdersTheMergesNotTheIds) {
  TokenizerFile file = file_with({{"b", "c"}, {"a", "b"}});  // ids 256, 257
  EXPECT_THAT(load(file).encode("xabc"), ElementsAre('x', 'a', 256));
  std::swap(file.merges[0], file.merges[1]);
  EXPECT_THAT(load(file).encode("xabc"), ElementsAre('x', 257, 'c'));
}

TEST(TokenizerJson, IgnoreMergesTakesAWholePieceFirst) {
  TokenizerFile file = file_with({{"b", "c"}, {"a", "b"}, {"ab", "c"}});
  EXPECT_THAT(load(file).encode("abc"), ElementsAre(258));
  file.ignore_merges = false;
  EXPECT_THAT(load(file).encode("abc"), ElementsAre('a', 256));
}

TEST(TokenizerJson, AddedTokens) {
  TokenizerFile file = file_with({{"a", "b"}});
  file.added = {{257, "<x>", true}, {258, "word", false}, {300, "<xy>", true}};
  const Tokenizer tokenizer = load(file);
  EXPECT_EQ(tokenizer.vocab_size(), 301);
  EXPECT_EQ(tokenizer.bytes(299), "");
  EXPECT_TRUE(tokenizer.is_special(257));
  EXPECT_FALSE(tokenizer.is_special(258));
  EXPECT_EQ(tokenizer.special_id("word"), 258);
  EXPECT_THAT(tokenizer.encode_with_special("<x>ab<xy>word"), ElementsAre(257, 256, 300, 258));
  EXPECT_THAT(tokenizer.encode("<x>word"), ElementsAre('<', 'x', '>', 'w', 'o', 'r', 'd'));
}

TEST(TokenizerJson, AControlTokenThatTheVocabularyHasTooIsNeverOrdinary) {
  TokenizerFile file = file_with({{"a", "b"}});
  file.added = {{256, "ab", true}};
  file.merges.clear();
  EXPECT_THAT(load(file).encode("ab"), ElementsAre('a', 'b'));
  file.added[0].special = false;
  EXPECT_THAT(load(file).encode("ab"), ElementsAre(256));
}

TEST(TokenizerJson, KeysMayComeInAnyOrder) {
  const Json json = Json::parse(write_tokenizer_json(file_with({{"a", "b"}}))).value();
  Json reversed{Json::Object{}};
  Json model{Json::Object{}};
  const Json::Object& model_members = json.find("model")->as_object();
  for (auto member = model_members.rbegin(); member != model_members.rend(); ++member) {
    model.set(member->key, member->value);
  }
  for (auto member = json.as_object().rbegin(); member != json.as_object().rend(); ++member) {
    reversed.set(member->key, member->key == "model" ? model : member->value);
  }
  const Tokenizer tokenizer = Tokenizer::from_json(reversed.dump(), "f").value();
  EXPECT_THAT(tokenizer.encode("ab"), ElementsAre(256));
}

// The real vocabulary, written as gpt-oss' tokenizer.json states it, is the rank file's again.
TEST(TokenizerJson, O200kFromAFileEqualsTheRankFile) {
  const std::string ranks = PELTON_SOURCE_DIR "/testdata/tokenizer/o200k_base.tiktoken";
  const std::string text = base::read_file(ranks, 1 << 24).value();
  const TokenizerParts parts = read_tiktoken(text, ranks).value();
  TokenizerFile file;
  file.split_pattern = kO200kPattern;
  for (TokenId id = 0; id < kHarmonyFirstControlId; ++id) {
    const std::string_view bytes = parts.tokens[id];
    file.tokens.emplace_back(bytes);
    for (size_t cut = 1; cut < bytes.size(); ++cut) {
      const std::string_view left = bytes.substr(0, cut);
      const std::string_view right = bytes.substr(cut);
      if (parts.lookup.find(parts.tokens, left) == kNoToken) continue;
      if (parts.lookup.find(parts.tokens, right) == kNoToken) continue;
      file.merges.push_back({std::string(left), std::string(right)});
    }
  }
  EXPECT_EQ(file.merges.size(), 446'189u);  // as many as gpt-oss' own file has
  for (ControlToken& control : harmony_control_tokens(kHarmonyFirstControlId)) {
    file.added.push_back({control.id, control.text, true});
  }
  const std::string written =
      fmt::format("{}/pelton_{}_tokenizer.json", testing::TempDir(), ::getpid());
  ASSERT_TRUE(base::write_file(written, write_tokenizer_json(file)).ok());
  const Tokenizer from_json = Tokenizer::load(written).value();
  std::filesystem::remove(written);
  const Tokenizer from_ranks = Tokenizer::from_tiktoken(text, ranks).value();

  EXPECT_EQ(from_json.vocab_size(), 200'019);
  for (TokenId id = 0; id < 200'019; ++id) ASSERT_EQ(from_json.bytes(id), from_ranks.bytes(id));
  const std::string vectors =
      base::read_file(PELTON_SOURCE_DIR "/testdata/tokenizer/vectors.json", 1 << 20).value();
  EXPECT_EQ(from_json.encode(vectors), from_ranks.encode(vectors));
  EXPECT_EQ(from_json.encode_with_special("<|start|>x<|end|>"),
            from_ranks.encode_with_special("<|start|>x<|end|>"));
}

TEST(SyntheticTokenizer, EncodesAnythingInAnySize) {
  for (const int size : {277, 278, 1000, 5000, 201'088}) {
    const Tokenizer tokenizer =
        Tokenizer::from_json(synthetic_tokenizer_json(size).value(), "synthetic").value();
    const TokenId first = size == 201'088 ? 199'998 : size - 21;
    EXPECT_EQ(tokenizer.vocab_size(), first + 21);
    EXPECT_EQ(tokenizer.special_id("<|start|>"), first + 8);
    EXPECT_EQ(tokenizer.special_id("<|endofprompt|>"), first + 20);
    for (TokenId id = 0; id < first + 21; ++id) {
      ASSERT_FALSE(tokenizer.bytes(id).empty()) << id;
      ASSERT_EQ(tokenizer.is_special(id), id >= first) << id;
    }
    const std::string text = "Hello <|start|> w\xC3\xB6rld, \xF0\x9F\x92\x96 thewordswalk\n\t 123";
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
    if (first == 256) continue;  // no runs of letters
    EXPECT_THAT(tokenizer.encode(tokenizer.bytes(first - 1)), ElementsAre(first - 1));
  }
}

TEST(SyntheticTokenizer, SaysWhichSizesThereAre) {
  for (const int size : {-1, 0, 276, kTokenIdsMax + 1}) {
    const Result<std::string> json = synthetic_tokenizer_json(size);
    ASSERT_FALSE(json.ok());
    EXPECT_EQ(json.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(json.error().field, "vocab_size");
  }
}

// --- damaged files -------------------------------------------------------------------------------

class DamagedTokenizerJson : public testing::Test {
 protected:
  DamagedTokenizerJson() {
    TokenizerFile file = file_with({{"a", "b"}, {"ab", "c"}});
    file.added = {{258, "<x>", true}, {259, "<y>", true}};
    text_ = write_tokenizer_json(file);
  }

  // The file with the one occurrence of `from` replaced.
  std::string with(const std::string& from, const std::string& to) const {
    std::string text = text_;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    EXPECT_EQ(text.find(from, at + 1), std::string::npos) << from << " is there twice";
    return text.replace(at, from.size(), to);
  }

  void expect_error(ErrorCode code, const std::string& text, const std::string& field,
                    const std::string& what) {
    const Result<Tokenizer> tokenizer = Tokenizer::from_json(text, "dir/tokenizer.json");
    ASSERT_FALSE(tokenizer.ok()) << field << ": " << what;
    EXPECT_EQ(tokenizer.error().code, code) << tokenizer.error().message;
    EXPECT_EQ(tokenizer.error().field, field) << tokenizer.error().message;
    EXPECT_THAT(tokenizer.error().message, HasSubstr("dir/tokenizer.json: " + field));
    EXPECT_THAT(tokenizer.error().message, HasSubstr(what));
  }
  void expect_bad(const std::string& text, const std::string& field, const std::string& what) {
    expect_error(ErrorCode::kBadCheckpoint, text, field, what);
  }
  void expect_unsupported(const std::string& text, const std::string& field,
                          const std::string& what) {
    expect_error(ErrorCode::kUnsupported, text, field, what);
  }

  std::string text_;
};

TEST_F(DamagedTokenizerJson, IsFineUndamaged) {
  EXPECT_TRUE(Tokenizer::from_json(text_, "f").ok());
}

TEST_F(DamagedTokenizerJson, NoJson) {
  expect_bad("", "file", "not valid JSON");
  expect_bad("{", "file", "not valid JSON");
  expect_bad(text_ + "}", "file", "not valid JSON");
  expect_bad("[1]", "file", "expected an object");
  expect_bad("3", "file", "expected an object");
  expect_bad("{\"x\":" + std::string(100'000, '['), "file", "deeper than 256");
  expect_bad("{}", "model", "is not there");
}

TEST_F(DamagedTokenizerJson, Vocabulary) {
  const std::string ab = "\"ab\":256";
  expect_bad(with(ab, "\"ab\":255"), "model.vocab", "id 255 is there twice");
  expect_bad(with(ab, "\"ab\":-1"), "model.vocab", "\"ab\" is -1");
  expect_bad(with(ab, "\"ab\":2147483648"), "model.vocab", "2147483648");
  expect_bad(with(ab, "\"ab\":1.5"), "model.vocab", "a number");
  expect_bad(with(ab, "\"ab\":\"x\""), "model.vocab", "a string");
  expect_bad(with(ab, "\"ab\":null"), "model.vocab", "null");
  expect_bad(with(ab, "\"ab\":{}"), "model.vocab", "an object");
  expect_bad(with(ab, "\"ab\":[]"), "model.vocab", "an array");
  expect_bad(with(ab, "\"\":256"), "model.vocab", "empty");
  expect_bad(with(ab, "\"a b\":256"), "model.vocab", "byte alphabet");
  expect_bad(with(ab, ab + ",\"ab\":300"), "model.vocab", "the same token");
  expect_bad(with(ab, "\"" + std::string(1025, 'a') + "\":256"), "model.vocab", "1025 bytes");
  expect_bad(with(ab, "\"" + std::string(9999, 'a') + "\":256"), "model.vocab", "9999 bytes");
  expect_bad(with("\"q\":113,", ""), "vocab", "no token for the byte 0x71");
  expect_bad(with("\"vocab\":{", "\"vocab\":{},\"vocab\":{"), "model.vocab", "twice");
  expect_bad(with("\"vocab\":{", "\"vocab\":3,\"v\":{"), "model.vocab", "an integer");
}

TEST_F(DamagedTokenizerJson, Merges) {
  const std::string merge = "[\"ab\",\"c\"]";
  const std::string field = "model.merges[1]";
  expect_bad(with(merge, "[\"ab\"]"), field, "1 strings, expected two");
  expect_bad(with(merge, "[]"), field, "0 strings");
  expect_bad(with(merge, "[\"ab\",\"c\",\"d\"]"), field, "over two");
  expect_bad(with(merge, "[\"ab\",3]"), field, "an integer");
  expect_bad(with(merge, "[\"ab\",[\"c\"]]"), field, "an array");
  expect_bad(with(merge, "[\"ab\",\"\"]"), field, "empty");
  expect_bad(with(merge, "\"abc\""), field, "one space");
  expect_bad(with(merge, "\"ab c d\""), field, "one space");
  expect_bad(with(merge, "\" c\""), field, "empty");
  expect_bad(with(merge, "7"), field, "an integer");
  expect_bad(with(merge, "{}"), field, "an object");
  expect_bad(with(merge, "[\"zz\",\"c\"]"), field, "its left side is not");
  expect_bad(with(merge, "[\"c\",\"zz\"]"), field, "its right side is not");
  expect_bad(with(merge, "[\"c\",\"ab\"]"), field, "its result is not");
  expect_bad(with(merge, "[\"a\",\"b\"]"), field, "twice");
  expect_bad(with(merge, "[\"ab\",\"\xE4\xB8\xAD\"]"), field, "byte alphabet");
  expect_bad(with("\"merges\":[", "\"merges\":[],\"merges\":["), "model.merges", "twice");
  expect_bad(with("\"merges\":[", "\"merges\":null,\"m\":["), "model.merges", "null");
}

TEST_F(DamagedTokenizerJson, AddedTokens) {
  const std::string entry = "\"id\":258,\"content\":\"<x>\"";
  const std::string field = "added_tokens[0]";
  expect_bad(with(entry, "\"id\":258"), field + ".content", "1 to 1024 bytes");
  expect_bad(with(entry, "\"id\":258,\"content\":\"\""), field + ".content", "1 to 1024 bytes");
  expect_bad(with(entry, "\"id\":-258,\"content\":\"<x>\""), field + ".id", "integer from 0");
  expect_bad(with(entry, "\"id\":\"258\",\"content\":\"<x>\""), field + ".id", "integer from 0");
  expect_bad(with(entry, "\"id\":2097152,\"content\":\"<x>\""), field + ".id", "2097151");
  expect_bad(with(entry, "\"id\":259,\"content\":\"<x>\""), "added_tokens[1].id", "twice");
  expect_bad(with(entry, "\"id\":258,\"content\":\"<y>\""), "added_tokens",
             "\"<y>\" is there twice");
  expect_bad(with(entry, "\"id\":256,\"content\":\"<x>\""), "model.vocab",
             "\"ab\" here and \"<x>\"");
  expect_bad(with("\"added_tokens\":[", "\"added_tokens\":3,\"x\":["), "added_tokens",
             "not an array");
  expect_unsupported(with("\"<x>\",\"single_word\":false", "\"<x>\",\"single_word\":true"),
                     field + ".single_word", "is true");
}

TEST_F(DamagedTokenizerJson, PreTokenizer) {
  const std::string pattern = "[a-z]+|[^a-z]";
  expect_bad(with(pattern, "([a-z]"), "pre_tokenizer pattern 0", "regular expression");
  expect_unsupported(with("\"Split\"", "\"Mecab\""), "pre_tokenizer.pretokenizers[0].type",
                     "\"Mecab\"");
  expect_unsupported(with("\"Isolated\"", "\"Removed\""), "pre_tokenizer.pretokenizers[0].behavior",
                     "Removed");
  expect_unsupported(with("\"Regex\"", "\"String\""), "pre_tokenizer.pretokenizers[0].pattern",
                     "not a Regex");
  expect_unsupported(with("\"pre_tokenizer\":{", "\"pre_tokenizer\":null,\"x\":{"), "pre_tokenizer",
                     "there is none");
  expect_bad(with("\"pretokenizers\":[", "\"x\":["), "pre_tokenizer.pretokenizers", "not an array");
}

TEST_F(DamagedTokenizerJson, OtherKindsOfModels) {
  expect_unsupported(with("\"type\":\"BPE\"", "\"type\":\"WordLevel\""), "model.type", "WordLevel");
  expect_unsupported(with("\"byte_fallback\":false", "\"byte_fallback\":true"),
                     "pre_tokenizer.type", "Metaspace");
  expect_unsupported(with("\"end_of_word_suffix\":null", "\"end_of_word_suffix\":\"</w>\""),
                     "model.end_of_word_suffix", "is set");
  expect_unsupported(with("\"dropout\":null", "\"dropout\":0.1"), "model.dropout", "is set");
  expect_unsupported(with("\"normalizer\":null", "\"normalizer\":{\"type\":\"NFKC\"}"),
                     "normalizer", "NFKC");
  expect_bad(with("\"model\":{", "\"model\":{},\"model\":{"), "model", "twice");
  expect_bad(with("\"model\":{", "\"model\":[],\"m\":{"), "model", "array");
  expect_bad(with("\"model\":{", "\"model\":true,\"m\":{"), "model", "boolean");
}

TEST_F(DamagedTokenizerJson, HugeTablesEndAtTheirLimit) {
  std::string merges = "[\"a\",\"b\"]";
  while (merges.size() < 12u * kTokenIdsMax) merges += ",[\"a\",\"b\"]";
  expect_bad(with("[\"ab\",\"c\"]", merges), "model.merges", "over 2097152 merges");
  std::string values = "0";
  while (values.size() < 2'100'000) values += ",0";
  expect_bad(with("\"added_tokens\":[", "\"added_tokens\":[" + values + ","), "added_tokens",
             "over 1000000 values");
}

TEST(PreTokenizer, ByteLevelsOwnPatternAndDigits) {
  TokenizerFile file = file_with({{" ", "a"}});
  std::string text = write_tokenizer_json(file);
  const size_t begin = text.find("\"pre_tokenizer\":") + 16;
  const size_t end = text.find(",\"post_processor\"");
  text.replace(begin, end - begin,
               R"({"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},)"
               R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":true}]})");
  const Tokenizer tokenizer = Tokenizer::from_json(text, "f").value();
  EXPECT_THAT(tokenizer.encode("a a 12"), ElementsAre('a', 256, ' ', '1', '2'));
}

}  // namespace
}  // namespace pelton::tokenizer
