#include "gateway/served_figures.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace pelton::gateway {
namespace {

using telemetry::PrometheusText;
using Type = PrometheusText::Type;

std::vector<double> first_token_bounds() {
  return {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5,
          0.75,  1,     2.5,  5,    7.5,  10,   20,   40,  80};
}

std::vector<double> whole_bounds() {
  return {0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480};
}

struct Sum {
  int running = 0;
  int waiting = 0;
  double kv_used = 0;
  int workers = 0;
};

Sum sum_of(std::span<const Fleet::Row> rows, std::string_view pool) {
  Sum sum;
  for (const Fleet::Row& row : rows) {
    if (row.pool != pool || row.state == cluster::WorkerState::kDown) continue;
    sum.running += row.load.running;
    sum.waiting += row.load.waiting;
    sum.kv_used += row.load.kv_used;
    ++sum.workers;
  }
  return sum;
}

}  // namespace

PoolServed::PoolServed(std::string model)
    : model_(std::move(model)), first_token_s_(first_token_bounds()), whole_s_(whole_bounds()) {}

void PoolServed::note_choice(const Choice& choice) {
  prompt_tokens_ += choice.prompt_tokens;
  cached_tokens_ += choice.cached_tokens;
  output_tokens_ += choice.output_tokens;
  if (choice.reason == kReasons[kStop]) ++reasons_[kStop];
  if (choice.reason == kReasons[kLength]) ++reasons_[kLength];
}

void PoolServed::note_end(const End& end) {
  output_tokens_ += end.further_tokens;
  if (end.how == End::How::kLeft) ++reasons_[kAbort];
  if (end.how == End::How::kFailed) ++reasons_[kError];
  first_token_s_.observe(end.first_token_s);
  if (end.how == End::How::kAnswered) whole_s_.observe(end.whole_s);
}

std::shared_ptr<PoolServed> ServedFigures::find(std::string_view pool, std::string_view model) {
  std::lock_guard lock(mutex_);
  const auto found = pools_.find(pool);
  if (found != pools_.end()) return found->second;
  if (pools_.size() == kPoolsMax) return nullptr;
  return pools_.emplace(std::string(pool), std::make_shared<PoolServed>(std::string(model)))
      .first->second;
}

void ServedFigures::add_metrics(std::span<const Fleet::Row> rows, PrometheusText& text) const {
  std::lock_guard lock(mutex_);
  for (const auto& [pool, served] : pools_) {
    const PrometheusText::Labels labels = {{"model_name", served->model_}, {"pool", pool}};
    const auto sample = [&](std::string_view name, Type type, std::string_view help, double value) {
      text.family(name, type, help);
      text.sample(labels, value);
    };
    const Sum sum = sum_of(rows, pool);
    sample("vllm:num_requests_running", Type::kGauge, "Requests with a slot, of all workers.",
           sum.running);
    sample("vllm:num_requests_waiting", Type::kGauge, "Requests that wait for a slot.",
           sum.waiting);
    sample("vllm:kv_cache_usage_perc", Type::kGauge,
           "Share of KV blocks in use, 0 to 1: the workers' mean.",
           sum.workers == 0 ? 0.0 : sum.kv_used / sum.workers);
    sample("vllm:prompt_tokens_total", Type::kCounter, "Tokens of prompts that were answered.",
           static_cast<double>(served->prompt_tokens_));
    sample("vllm:prefix_cache_hits_total", Type::kCounter,
           "Of these, found in a worker's prefix cache.",
           static_cast<double>(served->cached_tokens_));
    sample("vllm:generation_tokens_total", Type::kCounter, "Tokens that clients were sent.",
           static_cast<double>(served->output_tokens_));
    text.family("vllm:request_success_total", Type::kCounter, "Answers by what ended them.");
    for (size_t i = 0; i < PoolServed::kReasons.size(); ++i) {
      PrometheusText::Labels all = labels;
      all.push_back({"finished_reason", PoolServed::kReasons[i]});
      text.sample(all, static_cast<double>(served->reasons_[i]));
    }
    text.family("vllm:time_to_first_token_seconds", Type::kHistogram,
                "From a request's arrival to its first token.");
    text.histogram(labels, served->first_token_s_);
    text.family("vllm:e2e_request_latency_seconds", Type::kHistogram,
                "From a request's arrival to its last token.");
    text.histogram(labels, served->whole_s_);
  }
}

}  // namespace pelton::gateway
