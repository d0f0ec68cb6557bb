#include "chain_http/chain_figures.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string_view>
#include <utility>

namespace pelton::chain_http {

using telemetry::PrometheusText;

ChainFigures::ChainFigures(std::vector<std::shared_ptr<const chain::Chain>> chains)
    : chains_(std::move(chains)), sums_(chains_.size()) {
  for (size_t i = 0; i < chains_.size(); ++i) sums_[i].steps.resize(chains_[i]->steps.size());
}

ChainFigures::Sums& ChainFigures::of(const chain::Chain& chain) {
  const auto found =
      std::ranges::find_if(chains_, [&](const auto& one) { return one.get() == &chain; });
  return sums_[static_cast<size_t>(found - chains_.begin())];
}

void ChainFigures::on_begin(const chain::Chain& chain) {
  std::lock_guard lock(mutex_);
  ++of(chain).open;
}

void ChainFigures::on_refused(const chain::Chain& chain) {
  std::lock_guard lock(mutex_);
  ++of(chain).refused;
}

void ChainFigures::on_event(const chain::Chain& chain, const chain::RunEvent& event) {
  using Kind = chain::RunEvent::Kind;
  if (event.kind != Kind::kStepDone && event.kind != Kind::kStepSkipped &&
      event.kind != Kind::kRetry) {
    return;
  }
  std::lock_guard lock(mutex_);
  Step& step = of(chain).steps[event.step];
  if (event.kind == Kind::kRetry) ++step.retries;
  if (event.kind == Kind::kStepSkipped) ++step.skipped;
  if (event.kind != Kind::kStepDone) return;
  ++step.seconds.count;
  step.seconds.sum += static_cast<double>(event.duration_ns) * 1e-9;
  step.prompt_tokens += event.usage.prompt_tokens;
  step.output_tokens += event.usage.completion_tokens;
}

void ChainFigures::on_end(const chain::Chain& chain, const chain::ChainRun& run, double seconds) {
  using Kind = chain::RunFailure::Kind;
  std::lock_guard lock(mutex_);
  Sums& sums = of(chain);
  --sums.open;
  const auto& failure = run.failure();
  if (!failure) {
    ++sums.ok;
    ++sums.seconds.count;
    sums.seconds.sum += seconds;
    return;
  }
  if (failure->kind == Kind::kStep) ++sums.failed;
  if (failure->kind == Kind::kDeadline) ++sums.deadline;
  if (failure->kind == Kind::kCancelled) ++sums.left;
}

void ChainFigures::add_metrics(PrometheusText& text) const {
  std::lock_guard lock(mutex_);
  add_runs(text);
  add_steps(text);
}

void ChainFigures::add_runs(PrometheusText& text) const {
  const auto each = [&](const auto& add) {
    for (size_t i = 0; i < chains_.size(); ++i) {
      add(PrometheusText::Label{"chain", chains_[i]->name}, sums_[i]);
    }
  };
  text.family("pelton_chain_runs_total", PrometheusText::Type::kCounter,
              "Runs of a chain that have ended, by what became of them.");
  each([&](const PrometheusText::Label& chain, const Sums& sums) {
    const auto one = [&](std::string_view outcome, int64_t count) {
      text.sample({chain, {"outcome", outcome}}, static_cast<double>(count));
    };
    one("ok", sums.ok);
    one("step_failed", sums.failed);
    one("deadline", sums.deadline);
    one("left", sums.left);
    one("refused", sums.refused);
  });
  text.family("pelton_chain_runs_open", PrometheusText::Type::kGauge,
              "Runs of a chain that have not ended.");
  each([&](const PrometheusText::Label& chain, const Sums& sums) {
    text.sample({chain}, static_cast<double>(sums.open));
  });
  text.family("pelton_chain_run_seconds", PrometheusText::Type::kSummary,
              "Time of the runs of a chain that came to an output.");
  each([&](const PrometheusText::Label& chain, const Sums& sums) {
    text.summary({chain}, sums.seconds);
  });
}

void ChainFigures::add_steps(PrometheusText& text) const {
  const auto each = [&](const auto& add) {
    for (size_t i = 0; i < chains_.size(); ++i) {
      for (size_t step = 0; step < sums_[i].steps.size(); ++step) {
        add(PrometheusText::Labels{{"chain", chains_[i]->name},
                                   {"step", chains_[i]->steps[step].name}},
            sums_[i].steps[step]);
      }
    }
  };
  const auto counter = [&](std::string_view name, std::string_view help,
                           const std::function<int64_t(const Step&)>& value) {
    text.family(name, PrometheusText::Type::kCounter, help);
    each([&](const PrometheusText::Labels& labels, const Step& step) {
      text.sample(labels, static_cast<double>(value(step)));
    });
  };
  text.family("pelton_chain_step_seconds", PrometheusText::Type::kSummary,
              "Time of the steps of a chain that have ended, all their pieces together.");
  each([&](const PrometheusText::Labels& labels, const Step& step) {
    text.summary(labels, step.seconds);
  });
  counter("pelton_chain_step_skipped_total", "Steps of a chain whose condition did not hold.",
          [](const Step& step) { return step.skipped; });
  counter("pelton_chain_step_retries_total", "Calls of a chain's step that were made again.",
          [](const Step& step) { return step.retries; });
  counter("pelton_chain_step_prompt_tokens_total", "Prompt tokens of a chain's step.",
          [](const Step& step) { return step.prompt_tokens; });
  counter("pelton_chain_step_output_tokens_total", "Output tokens of a chain's step.",
          [](const Step& step) { return step.output_tokens; });
}

}  // namespace pelton::chain_http
