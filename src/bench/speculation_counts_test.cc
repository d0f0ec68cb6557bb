#include "bench/speculation_counts.h"

#include <gmock/gmock.h>

namespace pelton::bench {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::string_view kPage =
    "# HELP vllm:spec_decode_num_drafts_total Rows with guesses.\n"
    "vllm:spec_decode_num_drafts_total{engine=\"0\"} 10\n"
    "vllm:spec_decode_num_drafts_total{engine=\"1\"} 5\n"
    "vllm:spec_decode_num_draft_tokens_total{engine=\"0\"} 30\n"
    "vllm:spec_decode_num_accepted_tokens_total{engine=\"0\"} 21\n"
    "vllm:spec_decode_num_accepted_tokens_per_pos_total{position=\"0\"} 12\n"
    "vllm:spec_decode_num_accepted_tokens_per_pos_total{position=\"1\"} 9\n"
    "vllm:spec_decode_num_accepted_tokens_per_pos_total{position=\"640\"} 9\n"
    "pelton_spec_decode_draft_seconds_total 0.5\n"
    "pelton_spec_decode_step_seconds_total 2\n"
    "something_else 7\n"
    "vllm:spec_decode_num_drafts_total nan";

TEST(SpeculationCounts, are_read_from_metrics) {
  const SpeculationCounts counts = parse_speculation(kPage).value();
  EXPECT_EQ(counts.drafts, 15);
  EXPECT_EQ(counts.draft_tokens, 30);
  EXPECT_EQ(counts.accepted_tokens, 21);
  EXPECT_THAT(counts.accepted_by_place, ElementsAre(12, 9));
  EXPECT_EQ(counts.draft_s, 0.5);
  EXPECT_FALSE(parse_speculation("vllm:num_requests_running 3\n").has_value());
  EXPECT_FALSE(parse_speculation("").has_value());
}

TEST(SpeculationCounts, are_those_of_the_run) {
  const SpeculationCounts after = parse_speculation(kPage).value();
  const SpeculationCounts counts = after.since({.drafts = 5,
                                                .draft_tokens = 10,
                                                .accepted_tokens = 1,
                                                .accepted_by_place = {2},
                                                .draft_s = 0.25,
                                                .step_s = 1});
  EXPECT_EQ(counts.drafts, 10);
  EXPECT_THAT(counts.accepted_by_place, ElementsAre(10, 9));
  const std::string text = speculation_text(counts);
  EXPECT_THAT(text, HasSubstr("Acceptance length:                       3.00"));
  EXPECT_THAT(text, HasSubstr("Acceptance rate (%):                     100.00"));
  EXPECT_THAT(text, HasSubstr("Time spent drafting (%):                 25.00"));
  EXPECT_THAT(text, HasSubstr("  Position 1:                            90.00"));
  EXPECT_EQ(speculation_text({}), "");
}

}  // namespace
}  // namespace pelton::bench
