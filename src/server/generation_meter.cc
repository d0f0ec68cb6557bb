#include "server/generation_meter.h"

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
Histogram token_bounds() {
  return Histogram(telemetry::one_two_five(200'000));
}

double seconds(int64_t ns) {
  return static_cast<double>(ns) * 1e-9;
}

GenerationMeter::End end_of(const engine::StreamEnd& end) {
  switch (end.reason) {
    case engine::FinishReason::kStop:
      return GenerationMeter::End::kStop;
    case engine::FinishReason::kLength:
      return GenerationMeter::End::kLength;
    case engine::FinishReason::kCancelled:
      return GenerationMeter::End::kStop;  // by us: a stop string ended it
    case engine::FinishReason::kError:
      return GenerationMeter::End::kError;
  }
  return GenerationMeter::End::kError;
}

}  // namespace

GenerationMeter::GenerationMeter(const base::Clock& clock)
    : clock_(clock),
      histograms_{.first_token_s = first_token_bounds(),
                  .inter_token_s = inter_token_bounds(),
                  .whole_s = latency_bounds(),
                  .decode_s = latency_bounds(),
                  .prompt_tokens = token_bounds(),
                  .output_tokens = token_bounds()} {}

GenerationWatch::GenerationWatch(GenerationMeter& meter, const Start& start)
    : meter_(meter), arrived_ns_(start.arrived_ns), choices_(start.choice_count) {
  meter_.open_.fetch_add(1);
}

GenerationWatch::~GenerationWatch() {
  for (const Choice& choice : choices_) {
    if (!choice.ended) {
      meter_.ended_[static_cast<size_t>(GenerationMeter::End::kAbort)].fetch_add(1);
    }
  }
  meter_.open_.fetch_sub(1);
}

void GenerationWatch::tokens(size_t choice, size_t count) {
  if (count == 0) return;
  Choice& one = choices_[choice];
  const int64_t now_ns = meter_.clock_.now_ns();
  auto intervals = static_cast<int64_t>(count);
  if (one.tokens == 0) {
    one.first_ns = now_ns;
    one.last_ns = now_ns;
    meter_.histograms_.first_token_s.observe(seconds(now_ns - arrived_ns_));
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
  const GenerationMeter::End how = end_of(end);
  meter_.ended_[static_cast<size_t>(how)].fetch_add(1);
  if (how == GenerationMeter::End::kError) return;
  GenerationMeter::Histograms& histograms = meter_.histograms_;
  histograms.whole_s.observe(seconds(meter_.clock_.now_ns() - arrived_ns_));
  if (one.tokens > 0) histograms.decode_s.observe(seconds(one.last_ns - one.first_ns));
  histograms.prompt_tokens.observe(end.prompt_tokens);
  histograms.output_tokens.observe(static_cast<double>(one.tokens));
}

}  // namespace pelton::server
