#include "bench/ranking.h"

#include <gmock/gmock.h>

namespace pelton::bench {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Ranking, APromptBecomesAQueryAndDocuments) {
  const RankedTexts ranked = ranked_texts("a b c d e f", 2);
  EXPECT_EQ(ranked.query, "a b");
  EXPECT_THAT(ranked.documents, ElementsAre("c d", "e f"));
  // Without blanks, and never inside a character.
  const RankedTexts letters = ranked_texts("ääöö", 1);
  EXPECT_EQ(letters.query, "ää");
  EXPECT_THAT(letters.documents, ElementsAre("öö"));
  const RankedTexts odd = ranked_texts("äöü", 1);
  EXPECT_EQ(odd.query + odd.documents[0], "äöü");
  // Fewer characters than pieces.
  EXPECT_THAT(ranked_texts("x", 3).documents, testing::SizeIs(3));
  EXPECT_THAT(ranked_texts("x", 3).documents, testing::Each("x"));
}

std::string check(std::string_view answer, int64_t documents, int64_t results) {
  const Result<void> checked = check_ranking(answer, documents, results);
  return checked.ok() ? std::string() : checked.error().message;
}

TEST(Ranking, AnAnswerRanksEachDocumentOnce) {
  const std::string whole =
      R"({"results":[{"index":1,"relevance_score":0.5},{"index":0,"relevance_score":-2}]})";
  EXPECT_EQ(check(whole, 2, 2), "");
  EXPECT_THAT(check(whole, 3, 3), HasSubstr("ranks 2 documents instead of 3"));
  EXPECT_EQ(check(whole, 3, 2), "") << "top_n of 2";
  EXPECT_THAT(
      check(R"({"results":[{"index":1,"relevance_score":0},{"index":1,"relevance_score":0}]})", 2,
            2),
      HasSubstr("ranks document 1 twice"));
  EXPECT_THAT(check(R"({"results":[{"index":2,"relevance_score":0}]})", 2, 1),
              HasSubstr("none of the 2"));
  EXPECT_THAT(check(R"({"results":[{"index":0.5,"relevance_score":0}]})", 2, 1),
              HasSubstr("none of the 2"));
  EXPECT_THAT(check(R"({"results":[{"index":0}]})", 1, 1), HasSubstr("no 'relevance_score'"));
  EXPECT_THAT(check(R"({"data":[]})", 1, 1), HasSubstr("no list of 'results'"));
  EXPECT_THAT(check("[", 1, 1), testing::Not(""));
}

}  // namespace
}  // namespace pelton::bench
