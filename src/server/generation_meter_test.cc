#include "server/generation_meter.h"

#include <gtest/gtest.h>

#include "access/request_statistics.h"

namespace pelton::server {
namespace {

constexpr int64_t kMs = 1'000'000;
using engine::FinishReason;

TEST(GenerationMeter, TimesTokensFromTheArrival) {
  base::VirtualClock clock;
  GenerationMeter meter(clock);
  clock.advance_ns(5 * kMs);
  {
    GenerationWatch watch(meter, {.choice_count = 2, .arrived_ns = 1 * kMs});
    EXPECT_EQ(meter.open(), 1);
    watch.tokens(0, 0);
    clock.advance_ns(16 * kMs);  // 20 after the arrival
    watch.tokens(0, 1);
    clock.advance_ns(30 * kMs);
    watch.tokens(0, 3);  // 10 each
    clock.advance_ns(50 * kMs);
    watch.end(0, {.reason = FinishReason::kStop,
                  .prompt_tokens = 7,
                  .cached_tokens = 4,
                  .times = {.queued_ns = 2 * kMs,
                            .scheduled_ns = 5 * kMs,
                            .first_token_ns = 12 * kMs,
                            .last_token_ns = 42 * kMs}});
    watch.delivered(100 * kMs);
  }
  const GenerationMeter::Histograms& all = meter.histograms();
  EXPECT_EQ(all.first_token_s.read().count(), 1);
  EXPECT_NEAR(all.first_token_s.read().sum, 0.020, 1e-9);
  EXPECT_EQ(all.inter_token_s.read().count(), 3);
  EXPECT_NEAR(all.inter_token_s.read().sum, 0.030, 1e-9);
  EXPECT_NEAR(all.queue_s.read().sum, 0.003, 1e-9);
  EXPECT_NEAR(all.prefill_s.read().sum, 0.007, 1e-9);
  EXPECT_NEAR(all.decode_s.read().sum, 0.030, 1e-9);
  EXPECT_NEAR(all.inference_s.read().sum, 0.037, 1e-9);
  EXPECT_NEAR(all.delivery_s.read().sum, 0.001, 1e-9);
  EXPECT_EQ(all.computed_prompt_tokens.read().sum, 3);
  EXPECT_EQ(all.longest_output_tokens.read().sum, 4);
  EXPECT_EQ(all.choices.read().sum, 2);
  EXPECT_NEAR(all.whole_s.read().sum, 0.100, 1e-9);
  EXPECT_EQ(all.prompt_tokens.read().sum, 7);
  EXPECT_EQ(all.output_tokens.read().sum, 4);
  EXPECT_EQ(meter.ended(GenerationMeter::End::kStop), 1);
  EXPECT_EQ(meter.ended(GenerationMeter::End::kAbort), 1);  // the other choice
  EXPECT_EQ(meter.open(), 0);
}

TEST(GenerationMeter, CountsTextsOfWhichVectorsAreMade) {
  base::VirtualClock clock;
  GenerationMeter meter(clock);
  clock.advance_ns(5 * kMs);
  {
    VectorWatch watch(meter, 4, 1 * kMs);
    EXPECT_EQ(meter.vectors().open, 4);
    clock.advance_ns(16 * kMs);  // 20 after the arrival
    watch.end({.reason = FinishReason::kEmbedded,
               .prompt_tokens = 7,
               .times = {.queued_ns = 2 * kMs, .scheduled_ns = 5 * kMs}});
    watch.end({.reason = FinishReason::kEmbedded,
               .prompt_tokens = 5,
               .times = {.queued_ns = 2 * kMs, .scheduled_ns = 6 * kMs}});
    watch.end({.reason = FinishReason::kError, .prompt_tokens = 9});
    EXPECT_EQ(meter.vectors().open, 1);
  }
  const GenerationMeter::Vectors& vectors = meter.vectors();
  EXPECT_EQ(vectors.open, 0);
  EXPECT_EQ(vectors.texts, 2);
  EXPECT_EQ(vectors.tokens, 12);
  EXPECT_EQ(vectors.queue_s.read().count(), 2);
  EXPECT_NEAR(vectors.queue_s.read().sum, 0.007, 1e-9);
  EXPECT_EQ(meter.ended(GenerationMeter::End::kStop), 2);
  EXPECT_EQ(meter.ended(GenerationMeter::End::kError), 1);
  EXPECT_EQ(meter.ended(GenerationMeter::End::kAbort), 1);  // whose client left
  const GenerationMeter::Histograms& all = meter.histograms();
  EXPECT_EQ(all.whole_s.read().count(), 2);
  EXPECT_NEAR(all.whole_s.read().sum, 0.040, 1e-9);
  EXPECT_NEAR(all.queue_s.read().sum, 0.007, 1e-9);
  EXPECT_EQ(all.prompt_tokens.read().sum, 12);
  EXPECT_EQ(all.first_token_s.read().count(), 0);
}

TEST(GenerationMeter, CountsEachEnd) {
  base::VirtualClock clock;
  GenerationMeter meter(clock);
  {
    GenerationWatch watch(meter, {.choice_count = 6, .arrived_ns = 0});
    watch.end(0, {.reason = FinishReason::kLength});
    watch.end(1, {.reason = FinishReason::kError});
    watch.stopped(2);
    watch.end(2, {.reason = FinishReason::kCancelled});
    watch.stopped(3);  // which the engine did not know when its last token came
    watch.end(3, {.reason = FinishReason::kLength});
    watch.end(4, {.reason = FinishReason::kCancelled});  // by its client's request
    watch.stopped(5);
    watch.end(5, {.reason = FinishReason::kError});
  }
  EXPECT_EQ(meter.ended(GenerationMeter::End::kLength), 1);
  EXPECT_EQ(meter.ended(GenerationMeter::End::kError), 2);
  EXPECT_EQ(meter.ended(GenerationMeter::End::kStop), 2);
  EXPECT_EQ(meter.ended(GenerationMeter::End::kAbort), 1);
  EXPECT_EQ(meter.histograms().whole_s.read().count(), 3);
}

TEST(RequestStatistics, EveryRequestEndsOnce) {
  base::VirtualClock clock;
  access::RequestStatistics book(clock);
  const access::TrackedRequest::Route route{.handler = "/x", .method = "GET"};
  {
    access::TrackedRequest open(book, route);
    EXPECT_EQ(book.counts().open(), 1);
    access::TrackedRequest answered(book, route);
    answered.note_response_bytes(1);  // of one whose bytes nobody counts
    clock.advance_ns(300'000'000);
    answered.answered(200);
    answered.answered(500);  // too late
    access::TrackedRequest refused(book, route);
    refused.note_request_bytes(7);
    refused.note_response_bytes(30);
    refused.note_response_bytes(4);
    refused.answered(404);
    access::TrackedRequest failed(book, route);
    failed.answered(503);
  }
  const access::RequestStatistics::Counts counts = book.counts();
  EXPECT_EQ(counts.received, 4);
  EXPECT_EQ(counts.ok, 1);
  EXPECT_EQ(counts.client_errors, 1);
  EXPECT_EQ(counts.server_errors, 1);
  EXPECT_EQ(counts.cancelled, 1);
  EXPECT_EQ(counts.open(), 0);
  EXPECT_EQ(book.by_key().size(), 4u);
  const access::RequestStatistics::Sums sums = book.by_route().at(route);
  EXPECT_EQ(sums.seconds.count(), 4);
  EXPECT_NEAR(sums.seconds.sum, 0.6, 1e-9);  // the open one as long as the first
  EXPECT_EQ(sums.sized, 1);
  EXPECT_EQ(sums.bytes.asked, 7);
  EXPECT_EQ(sums.bytes.answered, 34);
}

}  // namespace
}  // namespace pelton::server
