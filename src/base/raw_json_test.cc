#include "base/raw_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pelton::base {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(RawJson, AMembersValueStandsAsItIsWritten) {
  constexpr std::string_view kObject =
      R"( { "a" : 1.0 , "b":{"a":2, "x":"}"}, "\u0063" : [ 1 , "]" ], "e":null})";
  EXPECT_EQ(raw_member(kObject, "a"), "1.0");
  EXPECT_EQ(raw_member(kObject, "b"), R"({"a":2, "x":"}"})");
  EXPECT_EQ(raw_member(kObject, "c"), R"([ 1 , "]" ])") << "whose key is escaped";
  EXPECT_EQ(raw_member(kObject, "e"), "null");
  EXPECT_EQ(raw_member(kObject, "x"), std::nullopt) << "another object's";
  EXPECT_EQ(raw_member("{}", "a"), std::nullopt);
  EXPECT_EQ(raw_member("[1]", "a"), std::nullopt);
  EXPECT_EQ(raw_member("", "a"), std::nullopt);
}

TEST(RawJson, AnArraysItemsStandAsTheyAreWritten) {
  EXPECT_THAT(raw_items(R"( [ 1e2 , "a,\"]" ,{"b":[1,2]}, [ ] ] )"),
              ElementsAre("1e2", R"("a,\"]")", R"({"b":[1,2]})", "[ ]"));
  EXPECT_THAT(raw_items("[]"), IsEmpty());
  EXPECT_THAT(raw_items("{}"), IsEmpty());
}

TEST(RawJson, CompactTextKeepsNumbersAsTheyAre) {
  EXPECT_EQ(compact_json("{ \"a b\" : [ 1.0,\n 1E+2 ] , \"\\u0041\\n\\u00e9\" : true }"),
            "{\"a b\":[1.0,1E+2],\"A\\n\xC3\xA9\":true}");
  EXPECT_EQ(compact_json(R"("a \" b")"), R"("a \" b")");
}

}  // namespace
}  // namespace pelton::base
