#include "api/field_table.h"

#include <gtest/gtest.h>

#include "api/chat_request.h"

namespace pelton::api {
namespace {

using Kind = FieldTable::Kind;

TEST(FieldTable, HasWhatAParserReadsOfAnEmptyBody) {
  FieldTable table;
  EXPECT_FALSE(parse_chat_request("{}", {.vocab_size = 10, .fields_read = &table}).ok());
  const FieldTable::Field* temperature = table.find("temperature");
  ASSERT_NE(temperature, nullptr);
  EXPECT_EQ(temperature->kind, Kind::kNumber);
  EXPECT_EQ(temperature->numbers.low, 0);
  EXPECT_EQ(temperature->numbers.high, 2);
  ASSERT_NE(table.find("messages"), nullptr);
  EXPECT_EQ(table.find("messages")->kind, Kind::kArray);
  ASSERT_NE(table.find("model"), nullptr);
  EXPECT_EQ(table.find("model")->kind, Kind::kText);
  EXPECT_EQ(table.find("no such field"), nullptr);
}

TEST(FieldTable, AFieldStandsOnceWithTheKindThatIsKnown) {
  FieldTable table;
  table.note({.name = "n"});
  table.note({.name = "n", .kind = Kind::kInteger, .integers = {.low = 1, .high = 8}});
  table.note({.name = "n", .kind = Kind::kText});
  table.note({.name = "n"});
  ASSERT_EQ(table.fields().size(), 1u);
  EXPECT_EQ(table.fields()[0].kind, Kind::kInteger);
  EXPECT_EQ(table.fields()[0].integers.high, 8);
}

}  // namespace
}  // namespace pelton::api
