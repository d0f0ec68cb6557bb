#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "families/kv_groups.h"
#include "planner/capacity_plan.h"
#include "planner/fleet_plan.h"
#include "planner/memory_plan.h"
#include "planner/published.h"

namespace pelton::planner {
namespace {

using cost_model::Layout;
using testing::HasSubstr;

constexpr double kGiB = 1 << 30;

MemoryOptions memory_of(const std::string& gpu, const std::string& model, const Layout& layout) {
  return {.hardware = *cost_model::find_hardware(gpu),
          .shape = *cost_model::find_model_config(model),
          .layout = layout};
}

MemoryPlan plan_of(const MemoryOptions& options) {
  const Result<MemoryPlan> plan = plan_memory(options);
  EXPECT_TRUE(plan.ok()) << plan.error().message;
  return *plan;
}

double line(const MemoryPlan& plan, const std::string& name) {
  for (const MemoryLine& one : plan.lines) {
    if (one.name == name) return one.bytes;
  }
  return -1;
}

TEST(MemoryPlan, The120bFitsOnOneCardOf80GBWithAStatedBudget) {
  MemoryOptions options = memory_of("h100", "gpt-oss-120b", {});
  options.batch_tokens_max = 2048;
  const MemoryPlan plan = plan_of(options);
  EXPECT_TRUE(plan.fits());
  EXPECT_NEAR(plan.kv_bytes / kGiB, 4.95, 0.05);
  EXPECT_EQ(plan.kv_token_bytes, 36 << 10);
  EXPECT_EQ(plan.kv_sequence_bytes, 4.5 * (1 << 20));
  EXPECT_EQ(plan.longest_context(options), 131072);
  EXPECT_EQ(plan.sequences_at(131072, options), 1);
  EXPECT_EQ(plan.sequences_at(8192, options), 17);
  options.hardware = *cost_model::find_hardware("a100-40");
  EXPECT_FALSE(plan_of(options).fits());
}

// The instance types of the AWS tables: eight cards each, all of them cut by tensors.
TEST(MemoryPlan, The120bFitsOnBothInstancesCutInEight) {
  for (const char* name : {"p4de.24xlarge", "g6.48xlarge"}) {
    const cost_model::Instance instance = *cost_model::find_instance(name);
    EXPECT_EQ(instance.count, 8);
    const MemoryOptions options = memory_of(instance.gpu, "gpt-oss-120b", {.tensor = 8});
    const MemoryPlan plan = plan_of(options);
    EXPECT_TRUE(plan.fits()) << name;
    EXPECT_EQ(plan.kv_token_bytes, (36 << 10) / 8) << name;
    EXPECT_GT(plan.sequences_at(2348, options), 200) << name;
  }
}

TEST(MemoryPlan, LayoutsCutWhatTheyCut) {
  const MemoryPlan one = plan_of(memory_of("h200", "gpt-oss-120b", {}));
  const MemoryPlan tensor = plan_of(memory_of("h200", "gpt-oss-120b", {.tensor = 4}));
  const MemoryPlan expert = plan_of(memory_of("h200", "gpt-oss-120b", {.expert = 4}));
  const MemoryPlan pipeline = plan_of(memory_of("h200", "gpt-oss-120b", {.pipeline = 2}));
  EXPECT_DOUBLE_EQ(line(tensor, "attention"), line(one, "attention") / 4);
  EXPECT_DOUBLE_EQ(line(expert, "attention"), line(one, "attention"));
  EXPECT_DOUBLE_EQ(line(expert, "experts"), line(one, "experts") / 4);
  EXPECT_DOUBLE_EQ(line(pipeline, "experts"), line(one, "experts") / 2);
  EXPECT_EQ(expert.kv_token_bytes, one.kv_token_bytes);
  EXPECT_EQ(expert.sequence_groups, 4);
  // Eight kv heads cannot be cut in sixteen: they are kept twice.
  MemoryOptions rack = memory_of("gb200-nvl72", "gpt-oss-120b", {.tensor = 16});
  EXPECT_EQ(plan_of(rack).kv_token_bytes, one.kv_token_bytes / 8);
}

// A compressed row is shared by all heads: no cut, and little of it.
TEST(MemoryPlan, LatentKeysAndValuesAreNotCut) {
  const MemoryPlan plan = plan_of(memory_of("h200", "deepseek-v3", {.tensor = 8}));
  EXPECT_EQ(plan.kv_token_bytes, 61 * 576 * 2);
}

CapacityOptions capacity_of(const std::string& gpu, int devices) {
  CapacityOptions options;
  options.memory = memory_of(gpu, "gpt-oss-120b", {});
  options.memory.batch_tokens_max = 2048;
  options.devices = devices;
  options.demand = {.input_tokens = 1024, .output_tokens = 256, .requests_per_s = 40};
  return options;
}

TEST(Capacity, TensorParallelForLatencyExpertParallelForThroughput) {
  CapacityOptions options = capacity_of("h100", 8);
  options.objectives.itl_s = 0.1;
  const CapacityPlan loose = *plan_capacity(options);
  ASSERT_GE(loose.chosen, 0);
  EXPECT_GT(loose.layouts[static_cast<size_t>(loose.chosen)].layout.expert, 1) << loose.why;
  // What only a cut of every matrix reaches.
  options.objectives.itl_s = 0.0022;
  const CapacityPlan tight = *plan_capacity(options);
  ASSERT_GE(tight.chosen, 0) << tight.why;
  EXPECT_GT(tight.layouts[static_cast<size_t>(tight.chosen)].layout.tensor, 1) << tight.why;
  EXPECT_THAT(tight.why, HasSubstr("shortens the step"));
  options.objectives.itl_s = 1e-5;
  const CapacityPlan impossible = *plan_capacity(options);
  EXPECT_EQ(impossible.chosen, -1);
  EXPECT_THAT(impossible.why, HasSubstr("no layout"));
}

// A tighter objective never needs fewer machines, more load never fewer copies.
TEST(Capacity, IsMonotone) {
  CapacityOptions options = capacity_of("h200", 8);
  double before = 0;
  for (const double itl_ms : {8.0, 12.0, 20.0, 40.0, 100.0}) {
    options.objectives.itl_s = itl_ms * 1e-3;
    options.memory.layout = {.tensor = 4};
    const CopyCapacity copy = copy_capacity(options);
    EXPECT_GE(copy.requests_per_s, before) << itl_ms;
    EXPECT_LE(copy.itl_s, itl_ms * 1e-3);
    before = copy.requests_per_s;
  }
  EXPECT_GT(before, 0);
  options.objectives.itl_s = 0.03;
  int64_t copies = 0;
  for (const double rate : {1.0, 50.0, 500.0, 5000.0}) {
    options.demand.requests_per_s = rate;
    const CapacityPlan plan = *plan_capacity(options);
    EXPECT_GE(plan.copies, copies);
    EXPECT_LE(plan.utilization, 1 - options.headroom + 1e-9);
    copies = plan.copies;
  }
  EXPECT_GT(copies, 10);
}

TEST(Capacity, A6_TheBestBatchIsSearchedAndItsLimitNamed) {
  CapacityOptions options = capacity_of("h100", 8);
  options.objectives.itl_s = 0.03;
  options.memory.sequences_max = 16;
  const CapacityPlan capped = *plan_capacity(options);
  ASSERT_GE(capped.chosen, 0);
  EXPECT_EQ(capped.layouts[0].copy.limited_by, "--max-num-seqs 16");
  options.any_sequences = options.any_step_tokens = true;
  const CapacityPlan best = *plan_capacity(options);
  ASSERT_GE(best.chosen, 0);
  for (const LayoutChoice& choice : best.layouts) {
    if (!choice.copy.possible) continue;
    EXPECT_NE(choice.copy.limited_by, "--max-num-seqs 16");
    EXPECT_FALSE(choice.copy.limited_by.empty());
    EXPECT_LE(choice.copy.itl_s, 0.03);
    EXPECT_LT(choice.copy.concurrency, choice.copy.step_tokens);
  }
  const auto requests = [](const CapacityPlan& plan) {
    return plan.layouts[static_cast<size_t>(plan.chosen)].copy.requests_per_s;
  };
  EXPECT_GT(requests(best), 2 * requests(capped));
  EXPECT_LE(best.quick_copies, best.copies);
  EXPECT_GE(best.slow_copies, best.copies);
}

// What is named as a limit is one: more of it serves more.
TEST(Capacity, A6_WhatIsNamedIsTheLimit) {
  int step_limits = 0;
  for (const char* gpu : {"h100", "a100-80", "l40s"}) {
    for (const double input : {64.0, 1024.0, 16000.0}) {
      for (const double output : {16.0, 256.0}) {
        for (const double itl_s : {0.0, 0.02, 0.2}) {
          for (const int tokens : {0, 256, 2048}) {
            CapacityOptions options = capacity_of(gpu, 8);
            options.memory.layout = {.tensor = 8};
            options.demand.input_tokens = input;
            options.demand.output_tokens = output;
            if (itl_s > 0) options.objectives.itl_s = itl_s;
            options.any_sequences = true;
            options.any_step_tokens = tokens == 0;
            if (tokens > 0) options.memory.batch_tokens_max = tokens;
            const CopyCapacity copy = copy_capacity(options);
            if (!copy.possible) continue;
            if (copy.limited_by == "--max-num-seqs 4096") continue;  // serve's own
            const bool by_step_tokens = copy.limited_by.starts_with("--max-num-batched-tokens");
            step_limits += by_step_tokens ? 1 : 0;
            CapacityOptions more = options;
            more.any_step_tokens = false;
            more.memory.batch_tokens_max = std::max(2 * copy.step_tokens, 16384);
            if (!by_step_tokens) {
              more.memory.hardware.memory_bytes *= 2;
              more.objectives = {};
            }
            const bool helps = copy_capacity(more).requests_per_s > 1.01 * copy.requests_per_s;
            EXPECT_EQ(helps, copy.limited_by != "step time")
                << gpu << " " << input << " in " << output << " out, " << itl_s << " s, " << tokens
                << ": " << copy.limited_by;
          }
        }
      }
    }
  }
  EXPECT_GT(step_limits, 0);
}

TEST(Capacity, ALayoutThatIsGivenIsTheOnlyOne) {
  CapacityOptions options = capacity_of("h100", 8);
  const CapacityPlan any = *plan_capacity(options);
  ASSERT_GE(any.chosen, 0);
  options.any_layout = false;
  options.memory.layout = {.tensor = 8};
  const CapacityPlan one = *plan_capacity(options);
  ASSERT_EQ(one.layouts.size(), 1u);
  ASSERT_EQ(one.chosen, 0);
  EXPECT_EQ(one.layouts[0].layout.tensor, 8);
  EXPECT_NE(any.layouts[static_cast<size_t>(any.chosen)].layout.tensor, 8);
  EXPECT_THAT(one.why, HasSubstr("TP8"));
  EXPECT_THAT(one.why, testing::Not(HasSubstr("most")));
}

// One stream has one time between its tokens, whatever the sentence that names it.
TEST(Capacity, ARefusalAgreesWithTheTable) {
  CapacityOptions options = capacity_of("h100", 1);
  options.objectives.itl_s = 1e-6;
  const CapacityPlan none = *plan_capacity(options);
  ASSERT_EQ(none.chosen, -1);
  const LayoutChoice& only = none.layouts.at(0);
  const std::string lone = fmt::format("every {:.2g} ms at best", only.latency_itl_s * 1e3);
  EXPECT_THAT(only.copy.why_not, HasSubstr(lone));
  EXPECT_THAT(none.why, HasSubstr(lone));
  // A lone stream would do, the prompts beside it would not.
  options.objectives.itl_s = only.latency_itl_s * 1.2;
  options.demand.output_tokens = 8;
  const CapacityPlan beside = *plan_capacity(options);
  ASSERT_EQ(beside.chosen, -1);
  EXPECT_THAT(beside.layouts.at(0).copy.why_not, HasSubstr("beside the prompts"));
}

TEST(Capacity, WhatTheCacheHoldsIsNotComputed) {
  CapacityOptions options = capacity_of("h100", 1);
  options.demand = {.input_tokens = 4096, .output_tokens = 16};
  const double whole = copy_capacity(options).requests_per_s;
  options.demand.cached_tokens = 4000;
  EXPECT_GT(copy_capacity(options).requests_per_s, 1.5 * whole);
}

// Where reading weights rules, guesses bring more of the same; none where they are never right, and
// never less than without.
TEST(Capacity, SpeculationTakesAnAcceptance) {
  CapacityOptions options = capacity_of("h200", 1);
  options.demand.cached_tokens = options.demand.input_tokens;
  options.memory.sequences_max = 4;
  const CopyCapacity without = copy_capacity(options);
  const double lone_s = plan_capacity(options)->layouts.at(0).latency_itl_s;
  options.speculation = {.tokens_max = 6, .acceptance = cost_model::DraftAcceptance(0.9)};
  EXPECT_DOUBLE_EQ(options.speculation.tokens_per_row(2), 1 + 0.9 + 0.81);
  const CopyCapacity with = copy_capacity(options);
  EXPECT_GE(with.guesses, 2);
  EXPECT_GT(with.requests_per_s, 1.2 * without.requests_per_s);
  EXPECT_LT(plan_capacity(options)->layouts.at(0).latency_itl_s, 0.8 * lone_s);
  options.speculation.draft_token_s = 1.0;
  EXPECT_EQ(copy_capacity(options).guesses, 0);
  EXPECT_DOUBLE_EQ(copy_capacity(options).requests_per_s, without.requests_per_s);
  options.speculation = {.tokens_max = 6, .acceptance = cost_model::DraftAcceptance(0.0)};
  EXPECT_EQ(copy_capacity(options).guesses, 0);
  EXPECT_DOUBLE_EQ(copy_capacity(options).itl_s, without.itl_s);
}

TEST(Capacity, CostIsMachinesByTheHour) {
  CapacityOptions options = capacity_of("a100-80", 8);
  options.price_per_hour = 27.45;
  const CapacityPlan plan = *plan_capacity(options);
  ASSERT_GE(plan.chosen, 0);
  EXPECT_NEAR(plan.cost_per_million,
              static_cast<double>(plan.machines) * 27.45 / (40 * 256 * 3600) * 1e6, 1e-9);
}

TEST(Capacity, ObjectivesAreReadWithTheirUnits) {
  const Objectives objectives = *parse_objectives("ttft=1.5s,itl=50");
  EXPECT_DOUBLE_EQ(*objectives.ttft_s, 1.5);
  EXPECT_DOUBLE_EQ(*objectives.itl_s, 0.05);
  EXPECT_FALSE(parse_objectives("")->ttft_s);
  for (const char* bad : {"ttft", "ttft=", "ttft=-1", "ttft=5h", "e2e=5", "itl=nan"}) {
    EXPECT_FALSE(parse_objectives(bad).ok()) << bad;
  }
}

// Modelled beside published (docs/plan_and_simulate.md): the order of things must be theirs.
TEST(Published, TheRackAndTheSplitAreWhereTheyShouldBe) {
  const RackThroughput rack = rack_throughput();
  EXPECT_NEAR(rack.per_device_per_s, 20'833, 1);
  EXPECT_GT(rack.implied_of_replicas, 0.2);
  EXPECT_LT(rack.implied_of_replicas, 0.7);
  EXPECT_LT(rack.implied_of_experts, rack.implied_of_replicas);
  const std::vector<SplitPoint> points = split_interactivity();
  ASSERT_GE(points.size(), 5u);
  for (const SplitPoint& point : points) {
    EXPECT_GT(point.gain, 1.2) << point.concurrency;
    EXPECT_LT(point.gain, 30) << point.concurrency;
  }
  fmt::print("{}", to_text({.title = "", .sections = {published_section()}}, Explain::kYes, 80));
}

TEST(PlanReport, NamesNoLengthBeyondTheModelsContext) {
  FleetPlanOptions options;
  options.capacity = capacity_of("h100", 1);
  options.capacity.memory.shape = *cost_model::find_model_config("qwen3-0.6b");  // 40 960 tokens
  const std::string text = to_text(*plan_fleet(options), Explain::kNo, 0);
  EXPECT_THAT(text, HasSubstr("at 32K"));
  EXPECT_THAT(text, testing::Not(HasSubstr("128K")));
}

TEST(PlanReport, SaysTheSameAsTextAsJsonAndAsAPage) {
  FleetPlanOptions options;
  options.capacity = capacity_of("h100", 8);
  options.capacity.memory.shape.name = "<b>&\x1b[31m";
  options.with_load = true;
  const PlanReport report = *plan_fleet(options);
  const std::string text = to_text(report, Explain::kYes, 0);
  EXPECT_THAT(text, HasSubstr("left for the KV cache"));
  EXPECT_THAT(text, HasSubstr("= allowed - together"));
  const Json json = to_json(report);
  EXPECT_NEAR(json.find("memory")->find("kv_bytes")->number("value").value() / kGiB, 4.95, 0.05);
  EXPECT_EQ(json.find("memory")->find("kv_bytes")->string("unit"), "bytes");
  EXPECT_GE(json.find("what_fits")->find("hardware")->as_array().size(), 13u);
  EXPECT_TRUE(Json::parse(json.dump()).ok());
  const std::string page = to_html(report);
  EXPECT_THAT(page, HasSubstr("&lt;b&gt;&amp; [31m"));
  EXPECT_THAT(page, testing::Not(HasSubstr("http")));
  // Every figure has a formula: that is what --explain is for.
  for (const Section& section : report.sections) {
    for (const Figure& figure : section.figures) EXPECT_FALSE(figure.formula.empty()) << figure.key;
  }
}

TEST(PlanReport, A5_ModelledNumbersHaveTwoDigitsAndARange) {
  EXPECT_EQ(format_modelled(0.028163, Unit::kSeconds), "28 ms");
  EXPECT_EQ(format_modelled(3.4567, Unit::kPerSecond), "3.5/s");
  EXPECT_EQ(format_modelled(20'833, Unit::kPerSecond), "21,000/s");
  EXPECT_EQ(format_modelled(1.1938, Unit::kDollars), "$1.2");
  EXPECT_EQ(format_modelled(0.6529, Unit::kShare), "65 %");
  FleetPlanOptions options;
  options.capacity = capacity_of("h100", 8);
  options.with_load = true;
  const PlanReport report = *plan_fleet(options);
  const Json json = to_json(report);
  const Json* requests = json.find("capacity")->find("copy_requests");
  EXPECT_LT(requests->number("low").value(), requests->number("value").value());
  EXPECT_GT(requests->number("high").value(), requests->number("value").value());
}

TEST(PlanReport, C6_TheAnswerIsFirst) {
  FleetPlanOptions options;
  options.capacity = capacity_of("l4", 1);
  const PlanReport report = *plan_fleet(options);
  EXPECT_FALSE(report.fits);
  EXPECT_THAT(report.headline.at(1), HasSubstr("does not fit on one NVIDIA L4"));
  EXPECT_THAT(report.headline.at(1), HasSubstr("4 of them hold it"));
  EXPECT_THAT(to_html(report), HasSubstr("4 of them hold it"));
}

TEST(PlanReport, BytesAreSaidInBothUnits) {
  EXPECT_EQ(format(810e9, Unit::kBytes), "754.37 GiB (810.00 GB)");
  EXPECT_EQ(format(15.75 * kGiB, Unit::kBytes), "15.75 GiB (16.91 GB)");
  EXPECT_EQ(format(131072, Unit::kTokens), "131,072");
}

// A simulated engine on other hardware has the blocks that the plan leaves room for, and no more.
TEST(KvCapacity, StaysWithinTheBudget) {
  for (const char* model : {"gpt-oss-120b", "gpt-oss-20b", "llama-3.1-8b", "deepseek-v3"}) {
    MemoryOptions options = memory_of("b200", model, {.tensor = 8});
    const MemoryPlan plan = plan_of(options);
    double used = 0;
    for (const kv::GroupCapacity& group : kv_capacity(options, plan)) {
      const double token = group.spec.slides() ? plan.kv_sequence_bytes / group.spec.sliding_window
                                               : plan.kv_token_bytes;
      used += group.block_counts[kv::kDevice] * 16 * token;
    }
    EXPECT_LE(used, plan.kv_bytes) << model;
    EXPECT_GT(used, 0.95 * plan.kv_bytes) << model;
  }
  const MemoryOptions llama = memory_of("b200", "llama-3.1-8b", {});
  EXPECT_EQ(kv_capacity(llama, plan_of(llama)).size(), 1) << "no layer of it slides";
}

// The groups are the model's own, whatever they are called; and shared out as in the engine.
TEST(KvCapacity, HasTheModelsGroups) {
  for (const char* model : {"gpt-oss-120b", "llama-3.1-8b", "deepseek-v3"}) {
    const MemoryOptions options = memory_of("b200", model, {.tensor = 8});
    const auto groups = kv_capacity(options, plan_of(options));
    const auto specs = families::kv_groups(options.shape, {}).specs;
    ASSERT_EQ(groups.size(), specs.size()) << model;
    for (int i = 0; i < groups.size(); ++i) {
      EXPECT_EQ(groups[i].spec.name, specs[i].name) << model;
      EXPECT_EQ(groups[i].spec.sliding_window, specs[i].sliding_window) << model;
    }
  }
}

// BERT-base as published: 109 482 240 parameters without its pooler's 590 592.
families::ModelConfig bert_base() {
  families::ModelConfig shape;
  shape.name = "bert-base";
  shape.hidden_size = 768;
  shape.vocab_size = 30'522;
  shape.context_max = 512;
  shape.head_count = shape.kv_head_count = 12;
  shape.head_size = 64;
  shape.intermediate_size = 3072;
  shape.layers.resize(12);
  shape.tied_head = true;
  shape.encoder.position_rows = 512;
  shape.encoder.type_rows = 2;
  return shape;
}

// 42: no KV cache is planned for a model that keeps none, and no length that it does not take.
TEST(PlanReport, OfAnEncoderNoKvCacheIsSpokenOf) {
  FleetPlanOptions options;
  options.capacity = capacity_of("h100", 1);
  options.capacity.memory.shape = bert_base();
  options.capacity.memory.batch_tokens_max = 4096;
  const Result<PlanReport> report = plan_fleet(options);
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_TRUE(report->fits);
  const std::string text = to_text(*report, Explain::kNo, 0);
  EXPECT_THAT(text, HasSubstr("it keeps no KV cache; texts have up to 512 tokens, each computed "
                              "whole, and a step of 4096 tokens takes"));
  EXPECT_THAT(text, HasSubstr("longest text"));
  for (const char* absent : {"left for the KV", "8K", "for KV", "KV in 8 bits", "a token of"}) {
    EXPECT_THAT(text, testing::Not(HasSubstr(absent))) << absent;
  }
  EXPECT_EQ(cost_model::count_parameters(bert_base()).total(), 109'482'240 - 590'592);
}

TEST(KvCapacity, OfAnEncoderBlocksAreNumbers) {
  MemoryOptions options = memory_of("h100", "llama-3.1-8b", {});
  options.shape = bert_base();
  options.batch_tokens_max = 4096;
  const auto groups = kv_capacity(options, plan_of(options));
  ASSERT_EQ(groups.size(), 1);
  EXPECT_EQ(groups[0].spec.block_bytes, 0);
  EXPECT_EQ(groups[0].block_counts[kv::kDevice], 8192);
}

}  // namespace
}  // namespace pelton::planner
