#include "tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json.h"

namespace pelton::tokenizer {
namespace {

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

}  // namespace
}  // namespace pelton::tokenizer
