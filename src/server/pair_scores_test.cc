// What a model that answers yes or no is asked: of a question that is too long the document alone
// is cut.
#include "server/pair_scores.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "chat/rerank_prompt.h"
#include "server/server_fixture.h"

namespace pelton::server {
namespace {

using chat::RerankPrompt;
using Cut = tokenizer::Tokenizer::Cut;

constexpr const char* kScript = R"({"rules": [{"when": "", "then": "x"}]})";
constexpr int kContext = 600;

class PairScoresOfAnswers : public testing::Test {
 protected:
  PairScoresOfAnswers() : fixture_(kScript, options()) {}

  static ServerFixture::Options options() {
    ServerFixture::Options options;
    options.model = [](ServedModel& model) {
      model.context_max = kContext;
      model.vectors.score_by = ScoreBy::kTokens;
    };
    return options;
  }

  // The prompt's text, or the field that is refused.
  std::string asked(const std::string& query, const std::string& document, std::optional<Cut> cut,
                    const std::string& instruction = "",
                    std::optional<int64_t> document_tokens_max = {}) {
    auto made = PairScores::of({.query_field = "query",
                                .queries = {&query, 1},
                                .document_field = "documents",
                                .documents = {&document, 1},
                                .instruction = instruction,
                                .document_tokens_max = document_tokens_max,
                                .cut = cut},
                               fixture_.model());
    if (!made.ok()) return "refused: " + made.error().field;
    PooledPrompts prompts = made->take_prompts();
    tokens_ = prompts.tokens().at(0);
    return fixture_.model().tokenizer.decode(tokens_);
  }

  static std::string around(const std::string& query, const std::string& document) {
    return std::string(RerankPrompt::kBefore) + RerankPrompt::ahead("", query) + document +
           std::string(RerankPrompt::kBehind);
  }

  ServerFixture fixture_;
  std::vector<TokenId> tokens_;
};

TEST_F(PairScoresOfAnswers, ADocumentIsCutAtItsEndOrItsBeginning) {
  const std::string query = "what turns?";
  EXPECT_EQ(asked(query, "A wheel.", {}), around(query, " A wheel."));
  const std::string document = "first " + std::string(kContext, 'x') + " last";

  const std::string at_end = asked(query, document, Cut::kEnd);
  EXPECT_EQ(tokens_.size(), static_cast<size_t>(kContext));
  EXPECT_THAT(at_end, testing::StartsWith(std::string(RerankPrompt::kBefore) +
                                          RerankPrompt::ahead("", query) + " first xx"));
  EXPECT_THAT(at_end, testing::EndsWith("xx" + std::string(RerankPrompt::kBehind)));

  const std::string at_begin = asked(query, document, Cut::kBegin);
  EXPECT_EQ(tokens_.size(), static_cast<size_t>(kContext));
  EXPECT_THAT(at_begin, testing::StartsWith(std::string(RerankPrompt::kBefore) +
                                            RerankPrompt::ahead("", query) + "xx"));
  EXPECT_THAT(at_begin, testing::EndsWith("xx last" + std::string(RerankPrompt::kBehind)));

  EXPECT_EQ(asked(query, document, {}), "refused: documents[0]");
}

TEST_F(PairScoresOfAnswers, ALimitOfTheDocumentsOwnIsObeyed) {
  const tokenizer::Tokenizer& tokenizer = fixture_.model().tokenizer;
  const std::vector<TokenId> document = tokenizer.encode(" A wheel turns.");
  ASSERT_GT(document.size(), 3u);
  const std::string first = tokenizer.decode(std::span(document).first(3));
  EXPECT_EQ(asked("q", "A wheel turns.", Cut::kEnd, "", 3), around("q", first));
}

TEST_F(PairScoresOfAnswers, AQuestionIsNeverCut) {
  const tokenizer::Tokenizer& tokenizer = fixture_.model().tokenizer;
  asked("q", "x", {});
  // As long as leaves room for one token of the document, and one more.
  const std::string letters(kContext, 'q');
  const size_t around_it = tokenizer.encode_with_special(RerankPrompt::kBefore).size() +
                           tokenizer.encode_with_special(RerankPrompt::kBehind).size();
  size_t length = 1;
  const auto kept = [&](size_t count) {
    return around_it + tokenizer.encode(RerankPrompt::ahead("", letters.substr(0, count))).size();
  };
  while (kept(length + 1) < static_cast<size_t>(kContext)) ++length;
  const std::string fits = letters.substr(0, length);
  EXPECT_THAT(asked(fits, "x y z", Cut::kEnd), testing::HasSubstr(fits + "\n<Document>:"));
  EXPECT_LE(tokens_.size(), static_cast<size_t>(kContext));
  for (const std::optional<Cut> cut :
       {std::optional(Cut::kEnd), std::optional(Cut::kBegin), std::optional<Cut>()}) {
    EXPECT_EQ(asked(fits + "q", "x y z", cut), "refused: query");
    EXPECT_EQ(asked(letters, "x", cut), "refused: query");
    EXPECT_EQ(asked("q", "x", cut, letters), "refused: instruction");
  }
}

}  // namespace
}  // namespace pelton::server
