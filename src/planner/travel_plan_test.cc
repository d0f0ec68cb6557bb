// What keys and values that travel bring, where it can be reckoned by hand.
#include "planner/travel_plan.h"

#include <algorithm>
#include <optional>

#include <gtest/gtest.h>

#include "families/model_config.h"

namespace pelton::planner {
namespace {

FleetPlanOptions options_of(double input, double output, double repeated) {
  FleetPlanOptions options;
  options.capacity.memory = {.hardware = *cost_model::find_hardware("h200"),
                             .shape = *cost_model::find_model_config("gpt-oss-120b"),
                             .layout = {}};
  options.capacity.demand = {.input_tokens = input, .output_tokens = output, .requests_per_s = 8};
  options.repeated_tokens = repeated;
  options.with_load = true;
  return options;
}

TravelPlan travel_of(const FleetPlanOptions& options) {
  const Result<CapacityPlan> plan = plan_capacity(options.capacity);
  EXPECT_TRUE(plan.ok());
  const Result<TravelPlan> travel = plan_travel(options, *plan);
  EXPECT_TRUE(travel.ok());
  return *travel;
}

// fleet.md 11.1: 36 KiB a token of the full layers and 4.5 MiB of the others, not 72 KiB a token.
TEST(TravelPlan, ASplitMovesTheFullGroupsAndOneWindow) {
  const TravelPlan travel = travel_of(options_of(32'768, 256, 0));
  EXPECT_EQ(travel.token_bytes, 36 << 10);
  EXPECT_EQ(travel.sequence_bytes, 4.5 * (1 << 20));
  EXPECT_EQ(travel.split_bytes, 32'768.0 * (36 << 10) + 4.5 * (1 << 20));
  EXPECT_LE(travel.split_bytes / (32'768.0 * (72 << 10)), 0.505);
  // A link that carries as much as is computed in the same time.
  EXPECT_NEAR(travel.split_rate, travel.split_bytes / (32'768 * travel.prompt_token_s), 1);
}

TEST(TravelPlan, LongPromptsTakeMoreCopiesThanLongAnswers) {
  const TravelPlan prompts = travel_of(options_of(16'384, 128, 0));
  const TravelPlan answers = travel_of(options_of(256, 2'048, 0));
  if (prompts.prompt_copies > 0 && answers.prompt_copies > 0) {
    const auto share = [](const TravelPlan& travel) {
      return static_cast<double>(travel.prompt_copies) /
             static_cast<double>(travel.prompt_copies + travel.answer_copies);
    };
    EXPECT_GT(share(prompts), share(answers));
  }
}

// A split that answers less with the same copies, or no sooner, is none. Where prompts and answers
// share a copy's steps as the objectives allow, apart they lose wherever nobody minds the gaps.
TEST(TravelPlan, NoSplitIsProposedThatLoses) {
  for (const std::optional<double> itl_s : {std::optional<double>(), std::optional(0.008)}) {
    for (const double input : {256.0, 2'048.0, 16'384.0, 32'768.0}) {
      for (const double output : {64.0, 256.0, 2'048.0}) {
        FleetPlanOptions options = options_of(input, output, 0);
        options.capacity.objectives.itl_s = itl_s;
        options.capacity.demand.requests_per_s = 40;
        const Result<CapacityPlan> plan = plan_capacity(options.capacity);
        ASSERT_TRUE(plan.ok());
        if (plan->chosen < 0) continue;
        const Result<TravelPlan> travel = plan_travel(options, *plan);
        ASSERT_TRUE(travel.ok());
        if (travel->prompt_copies == 0) {
          EXPECT_EQ(plan->prefill_per_decode, 0);
          continue;
        }
        EXPECT_GE(travel->output_kept, 1) << input << " " << output;
        EXPECT_GT(travel->split_gain, 1) << input << " " << output;
        EXPECT_EQ(travel->prompt_copies + travel->answer_copies,
                  std::max<int64_t>(plan->copies, 2));
      }
    }
  }
}

// Few answers at once on each copy, as memory for few allows: the weights are read for prompts and
// answers alike, and a copy that computes prompts alone has room for none of the others' gaps.
TEST(TravelPlan, ASplitThatBringsAsMuchSoonerIsFound) {
  const CapacityOptions capacity = options_of(32'768, 2'048, 0).capacity;
  const SplitCopiesAsked asked{
      .copies = 8, .concurrency = 4, .chunk_tokens = 32'768, .rows_max = 48};
  const Result<SplitCopies> split = split_copies(capacity, asked);
  ASSERT_TRUE(split.ok()) << split.error().message;
  EXPECT_EQ(split->prompts + split->answers, 8);
  EXPECT_GE(split->output_kept, 1);
  EXPECT_GT(split->gain, 1);
}

TEST(TravelPlan, ATierHoldsWhatIsComputedMeanwhile) {
  const FleetPlanOptions options = options_of(4'096, 256, 2'048);
  const TravelPlan travel = travel_of(options);
  EXPECT_NEAR(travel.hour_bytes, 60 * travel.minute_bytes, 1);
  EXPECT_NEAR(travel.saved_s, 2'048 * travel.prompt_token_s, 1e-9);
  // Reading a token at that rate takes 0.8 of computing it.
  EXPECT_NEAR(travel.token_bytes / travel.least_rate, 0.8 * travel.prompt_token_s, 1e-12);
  const Section section = travel_section(options, travel);
  EXPECT_EQ(section.figures.back().key, "hit_saves");
  EXPECT_EQ(travel_section(options_of(4'096, 256, 0), travel_of(options_of(4'096, 256, 0)))
                .figures.back()
                .key,
            "disk_bytes");
}

TEST(TravelPlan, WhereNoLayoutServesThereIsNone) {
  CapacityPlan none;
  EXPECT_FALSE(plan_travel(options_of(100, 100, 0), none).ok());
}

}  // namespace
}  // namespace pelton::planner
