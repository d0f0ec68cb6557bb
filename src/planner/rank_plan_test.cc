#include "planner/rank_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pelton::planner {
namespace {

using cost_model::RankLink;
using cost_model::RankStepModel;
using testing::HasSubstr;
using testing::Not;

CapacityOptions capacity_of(const std::string& gpu, const std::string& model, int devices) {
  CapacityOptions options;
  options.memory = {.hardware = *cost_model::find_hardware(gpu),
                    .shape = *cost_model::find_model_config(model)};
  options.memory.batch_tokens_max = 2048;
  options.devices = devices;
  options.any_sequences = true;
  options.demand = {.input_tokens = 256, .output_tokens = 256, .requests_per_s = 1};
  return options;
}

RankPair pair_of(const CapacityOptions& options, int ranks) {
  return {
      .tp = *RankStepModel::make(timing_options(options), {.ranks = ranks}),
      .ep = *RankStepModel::make(timing_options(options), {.ranks = ranks, .experts_dealt = true})};
}

TEST(RankPlan, TheCrossoverIsWhereTheQuickerFormChanges) {
  const CapacityOptions options = capacity_of("h200", "gpt-oss-120b", 8);
  const RankPair pair = pair_of(options, 8);
  const RankLink link{.name = "quick", .bytes_per_second = 1e12, .latency_seconds = 1e-7};
  const std::vector<FormRange> ranges = form_ranges(options, pair, link, 256);
  ASSERT_GE(ranges.size(), 2U);
  EXPECT_FALSE(ranges[0].experts_dealt) << "few answers choose few experts";
  EXPECT_TRUE(ranges[1].experts_dealt);
  EXPECT_EQ(ranges[0].from, 1);
  EXPECT_EQ(ranges[1].from, ranges[0].to + 1);
  EXPECT_EQ(ranges.back().to, 256);
  const auto tp_s = [&](int rows) { return rank_itl_s(options, pair.tp, link, rows); };
  const auto ep_s = [&](int rows) { return rank_itl_s(options, pair.ep, link, rows); };
  EXPECT_LT(tp_s(1), ep_s(1));
  EXPECT_LE(tp_s(ranges[0].to), 1.001 * ep_s(ranges[0].to));
  EXPECT_LT(ep_s(ranges[1].from), tp_s(ranges[1].from));
}

// Where the number of exchanges rules, three a layer are quicker than four, from one answer on.
TEST(RankPlan, FewerExchangesWinOverASlowLink) {
  const CapacityOptions options = capacity_of("h200", "gpt-oss-120b", 8);
  const RankLink slow{.name = "slow", .bytes_per_second = 1e12, .latency_seconds = 1e-3};
  const std::vector<FormRange> ranges = form_ranges(options, pair_of(options, 8), slow, 64);
  ASSERT_EQ(ranges.size(), 1U);
  EXPECT_TRUE(ranges[0].experts_dealt);
  EXPECT_EQ(ranges[0].to, 64);
}

TEST(RankPlan, ARankHasItsWidestShareAndWhatIsWhole) {
  const MemoryOptions options = capacity_of("h200", "gpt-oss-120b", 8).memory;
  const MemoryPlan one = *plan_memory(options);
  const MemoryPlan four = *rank_memory(options, 4);
  const auto bytes = [](const MemoryPlan& plan, const std::string& name) {
    for (const MemoryLine& line : plan.lines) {
      if (line.name == name) return line.bytes;
    }
    return 0.0;
  };
  // 8 heads and 180 tiles of output rows are shared out evenly, 90 blocks of inner rows are not.
  EXPECT_DOUBLE_EQ(bytes(four, "attention"), bytes(one, "attention") / 4);
  EXPECT_DOUBLE_EQ(bytes(four, "experts"), bytes(one, "experts") * (2 * 23 / 90.0 + 1 / 4.0) / 3);
  EXPECT_GT(bytes(four, "experts"), 0);
  // The leader's head is whole.
  for (const char* const whole :
       {"embedding", "head", "norms and routers", "activations", "logits"}) {
    EXPECT_DOUBLE_EQ(bytes(four, whole), bytes(one, whole)) << whole;
  }
  EXPECT_DOUBLE_EQ(four.kv_token_bytes, one.kv_token_bytes / 4);
  EXPECT_DOUBLE_EQ(four.kv_bytes, four.allowed_bytes - four.taken_bytes);
}

std::string text_of(const CapacityOptions& capacity) {
  FleetPlanOptions options;
  options.capacity = capacity;
  options.with_load = true;
  return to_text(*plan_fleet(options), Explain::kYes, 0);
}

TEST(RankPlan, ProcessorsHaveRanksOverBothLinks) {
  const std::string text = text_of(capacity_of("cpu-zen4-2", "gpt-oss-20b", 2));
  EXPECT_THAT(text, HasSubstr("Modelled, not measured"));
  EXPECT_THAT(text, HasSubstr("24 layers x 4, and the head's"));
  EXPECT_THAT(text, HasSubstr("24 layers x 3, and the head's"));
  EXPECT_THAT(text, HasSubstr("2 ranks over shm: "));
  EXPECT_THAT(text, HasSubstr("2 ranks over 10 GbE: "));
  EXPECT_THAT(text, HasSubstr("Forecast, measured nowhere"));
  EXPECT_THAT(text, HasSubstr("Pipeline parallel is not planned"));
  EXPECT_THAT(text, Not(HasSubstr("one device, not")));
}

TEST(RankPlan, GpusAreSaidToRunNone) {
  const std::string text = text_of(capacity_of("h100", "gpt-oss-120b", 8));
  EXPECT_THAT(worth_sentence(*cost_model::find_hardware("h100"), {.tensor = 8}),
              HasSubstr("on processors alone, not among 8 GPUs (TP8)"));
  EXPECT_THAT(text, HasSubstr("8 ranks over NVLink 4: "));
  EXPECT_THAT(text, HasSubstr("On GPUs `pelton serve` runs no ranks"));
  EXPECT_THAT(text, HasSubstr("TP and EP of this table are the usual forms"));
}

// By what they are, not by their links: an Arm processor is none, a GPU without links is one.
TEST(RankPlan, ProcessorsAreKnownByTheirArchitecture) {
  cost_model::Hardware arm = *cost_model::find_hardware("cpu-zen4-2");
  arm.architecture = "aarch64";
  EXPECT_EQ(worth_sentence(arm, {}), "Modelled, not measured.");
  cost_model::Hardware gpu = *cost_model::find_hardware("l40s");
  gpu.link_bytes_per_second = 0;
  EXPECT_THAT(worth_sentence(gpu, {}), HasSubstr("never run on a GPU"));
}

TEST(RankPlan, OnlyWhereThereAreRanks) {
  EXPECT_THAT(text_of(capacity_of("h100", "gpt-oss-20b", 1)), Not(HasSubstr("share out rows")));
  EXPECT_THAT(text_of(capacity_of("h100", "deepseek-v3", 8)),
              HasSubstr("No ranks: latent attention cannot be shared out"));
  FleetPlanOptions dense;
  dense.capacity = capacity_of("h100", "llama-3.1-8b", 2);
  dense.with_load = true;
  const Section section = *rank_section(dense);
  for (const Figure& figure : section.figures) EXPECT_NE(figure.key, "ep_token_bytes");
  ASSERT_EQ(section.tables.size(), 2U);  // no crossovers of forms
  EXPECT_EQ(section.tables[1].rows.at(0).at(0).text, "TP2");
  EXPECT_DOUBLE_EQ(section.tables[1].rows.at(0).at(2).value, 32 * 4 * (3 * 4096 + 14'336) / 2.0);
}

TEST(RankPlan, WhatTheRankWithTheMostTakesIsSaid) {
  FleetPlanOptions options;
  options.capacity = capacity_of("cpu-zen4-2", "gpt-oss-20b", 4);
  const Section section = *rank_section(options);
  const Table& table = section.tables.at(0);
  EXPECT_EQ(table.key, "rank_memory");
  ASSERT_EQ(table.rows.size(), 2U);  // of 2 and of 4
  for (const std::vector<Cell>& row : table.rows) {
    const MemoryPlan memory =
        *rank_memory(options.capacity.memory, static_cast<int>(row.at(0).value));
    EXPECT_DOUBLE_EQ(row.at(1).value + row.at(2).value, memory.taken_bytes);
    EXPECT_DOUBLE_EQ(row.at(5).value, memory.kv_bytes);
  }
  EXPECT_LT(table.rows[1].at(1).value, table.rows[0].at(1).value);
}

}  // namespace
}  // namespace pelton::planner
