#include "api/llama_slots.h"

#include <vector>

#include <gtest/gtest.h>

#include "base/json.h"

namespace pelton::api {
namespace {

TEST(LlamaSlots, AreNumberedThroughOverAllWorkers) {
  const std::vector<LlamaSlots> all = {{.count = 2, .running = 1, .context_tokens = 4096},
                                       {.count = 1, .running = 3, .context_tokens = 2048}};
  const Result<Json> list = Json::parse(llama_slots_body(all));
  ASSERT_TRUE(list.ok());
  const auto& slots = list->as_array();
  ASSERT_EQ(slots.size(), 3u);
  for (size_t i = 0; i < slots.size(); ++i) EXPECT_EQ(slots[i].integer("id"), i);
  EXPECT_EQ(slots[0].boolean("is_processing"), true);
  EXPECT_EQ(slots[1].boolean("is_processing"), false);
  EXPECT_EQ(slots[2].boolean("is_processing"), true);
  EXPECT_EQ(slots[2].integer("n_ctx"), 2048);
}

TEST(LlamaSlots, OneIsFreeWhereFewerRunThanThereAre) {
  EXPECT_TRUE(has_free_slot(std::vector<LlamaSlots>{{.count = 1, .running = 1}, {.count = 1}}));
  EXPECT_FALSE(has_free_slot(std::vector<LlamaSlots>{{.count = 1, .running = 1}}));
  EXPECT_FALSE(has_free_slot({}));
  EXPECT_EQ(no_free_slot().status, 503);
}

}  // namespace
}  // namespace pelton::api
