#include "checkpoint/model_card.h"

#include <gtest/gtest.h>

namespace pelton::checkpoint {
namespace {

TEST(ModelCard, ReadsTheHeadOfAReadme) {
  const ModelCard card = parse_model_card(
      "---\nlicense: other\nlicense_name: \"a licence\"\r\ntags:\n- license: none\n"
      "license_link: 'https://example.org/L'\n---\n# A model\n\nlicense: mit\n");
  EXPECT_EQ(card.license, "other");
  EXPECT_EQ(card.license_name, "a licence");
  EXPECT_EQ(card.license_link, "https://example.org/L");
  EXPECT_EQ(card.text, "# A model\n\nlicense: mit\n");
}

TEST(ModelCard, WithoutAHeadThereIsOnlyText) {
  for (const char* const readme : {"", "# A model\nlicense: mit\n", "---\nlicense: mit\n# no end\n",
                                   "----\nlicense: mit\n---\n"}) {
    const ModelCard card = parse_model_card(readme);
    EXPECT_EQ(card.license, "") << readme;
    EXPECT_EQ(card.text, readme);
  }
  EXPECT_EQ(parse_model_card("---\n---\n").text, "");
}

}  // namespace
}  // namespace pelton::checkpoint
