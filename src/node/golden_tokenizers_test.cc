// The published vocabularies' own ids, text by text. Neither vectors nor vocabularies are this
// project's: the test is skipped unless PELTON_GOLDEN_TOKENIZERS names the folder of vectors.json
// and PELTON_VOCABULARIES the folder that its paths begin in.
#include <cstdlib>

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json.h"
#include "checkpoint/checkpoint.h"
#include "node/model_tokenizer.h"

namespace pelton::node {
namespace {

TEST(GoldenTokenizers, GiveThePublishedIds) {
  const char* const golden = std::getenv("PELTON_GOLDEN_TOKENIZERS");
  const char* const vocabularies = std::getenv("PELTON_VOCABULARIES");
  if (golden == nullptr || vocabularies == nullptr) GTEST_SKIP() << "no folders are named";
  const std::string text =
      base::read_file(std::string(golden) + "/vectors.json", size_t{1} << 26).value();
  const Json vectors = Json::parse(text).value();
  for (const Json::Member& vocabulary : vectors.as_object()) {
    SCOPED_TRACE(vocabulary.key);
    const std::string path =
        std::string(vocabularies) + "/" + vocabulary.value.string("vocabulary").value();
    const std::string bytes = base::read_file(path, size_t{1} << 26).value();
    const std::span<const uint8_t> file(reinterpret_cast<const uint8_t*>(bytes.data()),
                                        bytes.size());
    const auto parsed =
        checkpoint::parse_gguf(file, path, [](const auto&) { return Result<void>(); });
    ASSERT_TRUE(parsed.ok()) << parsed.error().message;
    const auto tokenizer = ggml_tokenizer(parsed->metadata);
    if (!tokenizer.ok()) {
      EXPECT_EQ(tokenizer.error().code, ErrorCode::kUnsupported) << tokenizer.error().message;
      std::printf("%s: %s\n", vocabulary.key.c_str(), tokenizer.error().message.c_str());
      continue;
    }
    int wrong = 0;
    const Json::Array& cases = vocabulary.value.find("cases")->as_array();
    for (const Json& row : cases) {
      std::vector<TokenId> ids;
      for (const Json& id : row.find("ids")->as_array()) {
        ids.push_back(static_cast<TokenId>(id.as_integer()));
      }
      const std::vector<TokenId> ours = (*tokenizer)->encode(row.string("text").value());
      if (ours == ids) continue;
      if (++wrong > 3) continue;
      EXPECT_EQ(ours, ids) << row.string("text").value();
    }
    std::printf("%s: %zu cases, %d wrong\n", vocabulary.key.c_str(), cases.size(), wrong);
  }
}

}  // namespace
}  // namespace pelton::node
