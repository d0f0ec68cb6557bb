#include "chain/builtin.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "chain/text_pieces.h"

namespace pelton::chain {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string called(std::string_view name, const std::string& arguments) {
  const Builtin* const builtin = find_builtin(name);
  if (builtin == nullptr) return "none";
  const Result<Json> result = builtin->function(*Json::parse(arguments));
  if (!result.ok()) return result.error().message;
  EXPECT_TRUE(holds(builtin->result, *result)) << result->dump();
  return result->dump();
}

TEST(Builtin, SplitsAndJoins) {
  EXPECT_EQ(called("split", R"({"text":"One. Two. Three.","size":10,"by":"sentences"})"),
            R"({"count":2,"pieces":["One. Two.","Three."]})");
  EXPECT_EQ(called("split", R"({"text":""})"), R"({"count":0,"pieces":[]})");
  EXPECT_EQ(called("split", R"({"text":"abcd","size":2})"), R"({"count":2,"pieces":["ab","cd"]})");
  EXPECT_THAT(called("split", R"({"text":"a","size":0})"), HasSubstr("'size' must be at least 1"));
  EXPECT_THAT(called("split", R"({"text":"a","size":2,"overlap":2})"), HasSubstr("below 'size'"));
  EXPECT_THAT(called("split", R"({"text":"a","by":"words"})"), HasSubstr("and is 'words'"));
  EXPECT_EQ(called("join", R"({"parts":["a",null,1],"separator":", "})"), R"({"text":"a, 1"})");
}

TEST(Builtin, ChoosesTheBest) {
  EXPECT_EQ(called("top_k", R"({"items":["a","b","c"],"scores":[1,3,3],"k":2})"),
            R"({"items":["b","c"],"indices":[1,2],"scores":[3.0,3.0]})");
  EXPECT_THAT(called("top_k", R"({"items":["a"],"scores":[1,2]})"),
              HasSubstr("1 items and 2 scores"));
  EXPECT_EQ(called("rank", R"({"query":[1,0],"vectors":[[0,1],[2,0]],"items":["x","y"],"k":1})"),
            R"({"items":["y"],"indices":[1],"scores":[1.0]})");
  EXPECT_THAT(called("rank", R"({"query":[1,0],"vectors":[[1]]})"), HasSubstr("vector 0 has 1"));
  EXPECT_EQ(called("rank", R"({"query":[0,0],"vectors":[[1,1]]})"),
            R"({"items":[],"indices":[0],"scores":[0.0]})");
}

TEST(Builtin, ReadsJsonAlsoInAFence) {
  EXPECT_EQ(called("json", R"({"text":"{\"a\":1}"})"), R"({"value":{"a":1}})");
  EXPECT_EQ(called("json", R"({"text":"```json\n[1]\n```"})"), R"({"value":[1]})");
  EXPECT_THAT(called("json", R"({"text":"no"})"), HasSubstr("the text is no JSON"));
}

TEST(TextPieces, CutNoCharacter) {
  EXPECT_THAT(text_pieces("\u00e9\u00e9\u00e9", {.size = 2}),
              ElementsAre("\u00e9\u00e9", "\u00e9"));
  EXPECT_THAT(text_pieces("abcdef", {.size = 4, .overlap = 2}), ElementsAre("abcd", "cdef"));
  EXPECT_THAT(text_pieces("a\n\nb\nc\n\n", {.end = PieceEnd::kParagraph, .size = 5}),
              ElementsAre("a", "b\nc"));
}

// Without overlap and ends they are the text; all together are at most about twice as long; none is
// longer than asked.
TEST(TextPieces, OfAnyTextAreBounded) {
  const uint64_t seed = 20261128;
  for (uint64_t round = 0; round < 300; ++round) {
    uint64_t draw = round * 10'000;
    const auto next = [&](uint64_t below) { return base::random_bits(seed, draw++) % below; };
    std::string text;
    const uint64_t count = next(400);
    for (uint64_t i = 0; i < count; ++i) {
      constexpr std::string_view kParts[] = {"a", ". ", "\n", "\n\n", "\u00e9", "word ", "!", " "};
      text += kParts[next(8)];
    }
    const PieceOptions options{.end = static_cast<PieceEnd>(next(4)),
                               .size = static_cast<int64_t>(1 + next(50)),
                               .overlap = static_cast<int64_t>(next(60))};
    size_t bytes = 0;
    std::string joined;
    for (const std::string_view piece : text_pieces(text, options)) {
      bytes += piece.size();
      joined += piece;
      EXPECT_LE(std::ssize(piece), options.size * 2);
    }
    EXPECT_LE(bytes, 3 * text.size() + 2);
    if (options.overlap == 0 && options.end == PieceEnd::kAnywhere) {
      EXPECT_EQ(joined, text);
    }
  }
}

}  // namespace
}  // namespace pelton::chain
