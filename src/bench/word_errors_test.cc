#include "bench/word_errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pelton::bench {
namespace {

using testing::ElementsAre;

WordErrors between(std::string_view reference, std::string_view heard) {
  return word_errors(spoken_words(reference), spoken_words(heard));
}

TEST(SpokenWords, AreWhatIsSaid) {
  EXPECT_THAT(spoken_words("It's 3 p.m., \"isn\u2019t\" it?"),
              ElementsAre("it's", "3", "p", "m", "isn't", "it"));
  EXPECT_THAT(spoken_words("'Tis the dogs' way"), ElementsAre("tis", "the", "dogs", "way"));
  EXPECT_THAT(spoken_words("\u00dcBER Stra\u00dfe"), ElementsAre("\u00fcber", "stra\u00dfe"));
  // Composed and decomposed are one.
  EXPECT_EQ(spoken_words("cafe\u0301"), spoken_words("caf\u00e9"));
  EXPECT_THAT(spoken_words(" ... "), ElementsAre());
  EXPECT_THAT(spoken_words("a\xff"
                           "b"),
              ElementsAre("a", "b"));
}

TEST(WordErrors, CountsEachKind) {
  EXPECT_EQ(between("the wheel turns slowly", "The wheel turns, slowly.").errors(), 0u);
  // big is left out, turns is burns, very is added; no other three edits do it.
  const WordErrors all = between("the big wheel turns in the water slowly",
                                 "the wheel burns in the very water slowly");
  EXPECT_EQ(all.left_out, 1u);
  EXPECT_EQ(all.substituted, 1u);
  EXPECT_EQ(all.added, 1u);
  EXPECT_EQ(all.words, 8u);
  EXPECT_DOUBLE_EQ(all.rate(), 0.375);
}

TEST(WordErrors, NothingHeardAndNothingSaid) {
  EXPECT_DOUBLE_EQ(between("one two", "").rate(), 1.0);
  EXPECT_EQ(between("", "one two").added, 2u);
  EXPECT_DOUBLE_EQ(between("", "one two").rate(), 0.0);
  EXPECT_DOUBLE_EQ(between("one", "one two three").rate(), 2.0);
}

TEST(WordErrors, SumsAreOfTheWordsTogether) {
  WordErrors sum = between("a b c d", "a b c d");
  sum += between("e", "f");
  EXPECT_DOUBLE_EQ(sum.rate(), 0.2);
}

}  // namespace
}  // namespace pelton::bench
