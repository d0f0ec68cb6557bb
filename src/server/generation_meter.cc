#include "server/generation_meter.h"

#include <algorithm>

namespace pelton::server {
namespace {

using telemetry::Histogram;

// vLLM's, so that its dashboards fit; between tokens also below its first, 10 ms.
Histogram first_token_bounds() {
  return Histogram({.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                    1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560});
}
Histogram inter_token_bounds() {
  return Histogram({.0005, .001, .002, .004, .008, .01, .025, .05, .075, .1, .15, .2,
                    .3,    .4,   .5,   .75,  1,    2.5, 5,    7.5, 10,   20, 40,  80});
}
Histogram latency_bounds() {
  return Histogram(
      {.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680});
}
// Below vLLM's first bound too: a queue is mostly empty, and a prompt often known.
Histogram phase_bounds() {
  return Histogram({.0001, .0005, .001, .005, .01, .05, .1, .3, .5,  .8,  1,   1.5, 2,    2.5,
                    5,     10,    15,   20,   30,  40,  50, 60, 120, 240, 480, 960, 1920, 7680});
}
Histogram delivery_bounds() {
  return Histogram(
      {.00002, .00005, .0001, .0002, .0003, .0005, .00075, .001, .002, .005, .01, .05, .1, 1});
}
Histogram token_bounds() {
  return Histogram(telemetry::one_two_five(200'000));
}

double seconds(int64_t ns) {
  return static_cast<double>(ns) * 1e-9;
}

GenerationMeter::End end_of(const engine::StreamEnd& end) {
  switch (end.reason) {
    case engine::FinishReason::kStop:
    case engine::FinishReason::kRepetition:
    case engine::FinishReason::kEmbedded:
      return GenerationMeter::End::kStop;
    case engine::FinishReason::kLength:
      return GenerationMeter::End::kLength;
    case engine::FinishReason::kCancelled:
      return GenerationMeter::End::kAbort;
    case engine::FinishReason::kError:
      return GenerationMeter::End::kError;
  }
  return GenerationMeter::End::kError;
}

void observe_phases(GenerationMeter::Histograms& histograms, const engine::StreamEnd& end) {
  const engine::RequestTimes& times = end.times;
  if (times.scheduled_ns == 0) return;
  histograms.queue_s.observe(seconds(times.scheduled_ns - times.queued_ns));
  histograms.computed_prompt_tokens.observe(end.prompt_tokens - end.cached_tokens);
  if (times.first_token_ns == 0) return;
  histograms.prefill_s.observe(seconds(times.first_token_ns - times.scheduled_ns));
  histograms.decode_s.observe(seconds(times.last_token_ns - times.first_token_ns));
  histograms.inference_s.observe(seconds(times.last_token_ns - times.scheduled_ns));
}

}  // namespace

GenerationMeter::GenerationMeter(const base::Clock& clock)
    : clock_(clock),
      histograms_{.first_token_s = first_token_bounds(),
                  .inter_token_s = inter_token_bounds(),
                  .whole_s = latency_bounds(),
                  .queue_s = phase_bounds(),
                  .prefill_s = phase_bounds(),
                  .decode_s = phase_bounds(),
                  .inference_s = phase_bounds(),
                  .delivery_s = delivery_bounds(),
                  .prompt_tokens = token_bounds(),
                  .computed_prompt_tokens = token_bounds(),
                  .output_tokens = token_bounds(),
                  .longest_output_tokens = token_bounds(),
                  .choices = Histogram({1, 2, 5, 10, 20, 50, 100}),
                  .output_tokens_max = token_bounds()},
      vectors_{.queue_s = phase_bounds()} {}

GenerationWatch::GenerationWatch(GenerationMeter& meter, const Start& start)
    : meter_(meter), choices_(start.choice_count, Choice{.arrived_ns = start.arrived_ns}) {
  meter_.open_.fetch_add(1);
  meter_.histograms_.choices.observe(static_cast<double>(start.choice_count));
  if (start.output_tokens_max > 0) {
    meter_.histograms_.output_tokens_max.observe(start.output_tokens_max);
  }
}

GenerationWatch::~GenerationWatch() {
  for (const Choice& choice : choices_) {
    if (!choice.ended) {
      meter_.ended_[static_cast<size_t>(GenerationMeter::End::kAbort)].fetch_add(1);
    }
  }
  if (longest_output_ > 0) {
    meter_.histograms_.longest_output_tokens.observe(static_cast<double>(longest_output_));
  }
  meter_.open_.fetch_sub(1);
}

void GenerationWatch::begin(size_t choice) {
  if (choice >= choices_.size()) choices_.resize(choice + 1);
  choices_[choice] = {.arrived_ns = meter_.clock_.now_ns()};
}

void GenerationWatch::tokens(size_t choice, size_t count) {
  if (count == 0) return;
  Choice& one = choices_[choice];
  const int64_t now_ns = meter_.clock_.now_ns();
  auto intervals = static_cast<int64_t>(count);
  if (one.tokens == 0) {
    one.last_ns = now_ns;
    meter_.histograms_.first_token_s.observe(seconds(now_ns - one.arrived_ns));
    --intervals;
  }
  if (intervals > 0) {
    const double each = seconds(now_ns - one.last_ns) / static_cast<double>(intervals);
    meter_.histograms_.inter_token_s.observe_times(each, intervals);
  }
  one.last_ns = now_ns;
  one.tokens += static_cast<int64_t>(count);
}

void GenerationWatch::end(size_t choice, const engine::StreamEnd& end) {
  Choice& one = choices_[choice];
  one.ended = true;
  const bool failed = end.reason == engine::FinishReason::kError;
  const GenerationMeter::End how =
      one.stopped && !failed ? GenerationMeter::End::kStop : end_of(end);
  meter_.ended_[static_cast<size_t>(how)].fetch_add(1);
  if (how == GenerationMeter::End::kError || how == GenerationMeter::End::kAbort) return;
  GenerationMeter::Histograms& histograms = meter_.histograms_;
  histograms.whole_s.observe(seconds(meter_.clock_.now_ns() - one.arrived_ns));
  histograms.prompt_tokens.observe(end.prompt_tokens);
  histograms.output_tokens.observe(static_cast<double>(one.tokens));
  longest_output_ = std::max(longest_output_, one.tokens);
  observe_phases(histograms, end);
}

void GenerationWatch::delivered(int64_t sampled_ns) {
  meter_.histograms_.delivery_s.observe(seconds(meter_.clock_.now_ns() - sampled_ns));
}

VectorWatch::VectorWatch(GenerationMeter& meter, int64_t texts, int64_t arrived_ns)
    : meter_(meter), arrived_ns_(arrived_ns), left_(texts) {
  meter_.vectors_.open.fetch_add(texts);
}

VectorWatch::~VectorWatch() {
  meter_.ended_[static_cast<size_t>(GenerationMeter::End::kAbort)].fetch_add(left_);
  meter_.vectors_.open.fetch_sub(left_);
}

void VectorWatch::end(const engine::StreamEnd& end) {
  --left_;
  GenerationMeter::Vectors& vectors = meter_.vectors_;
  vectors.open.fetch_sub(1);
  const GenerationMeter::End how = end_of(end);
  meter_.ended_[static_cast<size_t>(how)].fetch_add(1);
  if (how == GenerationMeter::End::kError || how == GenerationMeter::End::kAbort) return;
  vectors.texts.fetch_add(1);
  vectors.tokens.fetch_add(end.prompt_tokens);
  if (end.times.scheduled_ns != 0) {
    vectors.queue_s.observe(seconds(end.times.scheduled_ns - end.times.queued_ns));
  }
  GenerationMeter::Histograms& histograms = meter_.histograms_;
  histograms.whole_s.observe(seconds(meter_.clock_.now_ns() - arrived_ns_));
  histograms.prompt_tokens.observe(end.prompt_tokens);
  observe_phases(histograms, end);
}

}  // namespace pelton::server
