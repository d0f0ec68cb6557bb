#include "base/inplace_vector.h"

#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pelton::base {
namespace {

using testing::ElementsAre;

TEST(InplaceVector, holds_what_was_put_in) {
  InplaceVector<std::string, 3> words = {"a", "b"};
  words.push_back("c");
  EXPECT_THAT(words, ElementsAre("a", "b", "c"));
  EXPECT_EQ(words.back(), "c");
  words.resize(1);
  words.resize(2);
  EXPECT_THAT(words, ElementsAre("a", ""));
  words.assign(3, "d");
  EXPECT_THAT(words, ElementsAre("d", "d", "d"));
  words.clear();
  EXPECT_TRUE(words.empty());
}

TEST(InplaceVector, elements_need_not_be_copied) {
  InplaceVector<std::unique_ptr<int>, 2> owners;
  owners.push_back(std::make_unique<int>(7));
  EXPECT_EQ(*owners[0], 7);
  InplaceVector<std::unique_ptr<int>, 2> others = std::move(owners);
  EXPECT_EQ(*others[0], 7);
}

TEST(InplaceVector, compares_what_it_holds_and_not_what_it_held) {
  InplaceVector<int, 4> some = {1, 2, 3};
  some.resize(2);
  EXPECT_EQ(some, (InplaceVector<int, 4>{1, 2}));
  EXPECT_FALSE(some == (InplaceVector<int, 4>{1, 2, 3}));
  static_assert(InplaceVector<int, 4>{1, 2}.size() == 2);
}

TEST(InplaceVectorDeathTest, more_than_it_holds_is_a_bug) {
  InplaceVector<int, 1> one = {1};
  EXPECT_DEATH(one.push_back(2), "more elements");
}

}  // namespace
}  // namespace pelton::base
