#include "server/live_history.h"

#include <algorithm>
#include <cmath>

namespace pelton::server {
namespace {

// Within the range that the rank falls into; what is above the last bound is the last bound.
double quantile(const std::vector<double>& bounds, const std::vector<int64_t>& up_to,
                double share) {
  const double rank = share * static_cast<double>(up_to.back());
  for (size_t i = 0; i < bounds.size(); ++i) {
    const auto count = static_cast<double>(up_to[i]);
    if (count < rank) continue;
    const double below = i == 0 ? 0 : static_cast<double>(up_to[i - 1]);
    const double least = i == 0 ? 0 : bounds[i - 1];
    if (count <= below) return bounds[i];
    return least + (bounds[i] - least) * (rank - below) / (count - below);
  }
  return bounds.back();
}

void write_percentiles(base::JsonWriter& w, float p50, float p95) {
  if (p50 < 0) {
    w.null();
    return;
  }
  w.begin_array().number(p50).number(p95).end_array();
}

}  // namespace

LiveHistory::Percentiles LiveHistory::percentiles(const std::vector<double>& bounds,
                                                  const std::vector<int64_t>& now,
                                                  const std::vector<int64_t>& before) {
  if (bounds.empty() || now.size() != bounds.size() + 1) return {};
  std::vector<int64_t> gained = now;
  if (before.size() == now.size()) {
    for (size_t i = 0; i < gained.size(); ++i) gained[i] -= before[i];
  }
  // A model that has gone took its counts along.
  if (gained.back() <= 0 || std::ranges::any_of(gained, [](int64_t one) { return one < 0; })) {
    return {};
  }
  return {.p50 = static_cast<float>(quantile(bounds, gained, 0.5)),
          .p95 = static_cast<float>(quantile(bounds, gained, 0.95))};
}

void LiveHistory::note(const LiveCounters& counters, int64_t now_ns, int64_t unix_ms) {
  std::lock_guard lock(mutex_);
  const double seconds = static_cast<double>(now_ns - last_ns_) * 1e-9;
  const bool is_first = last_ns_ == 0;
  if (!is_first && seconds > 0) {
    const auto rate = [&](int64_t now, int64_t before) {
      return static_cast<float>(static_cast<double>(std::max<int64_t>(now - before, 0)) / seconds);
    };
    Sample sample{
        .number = ++newest_,
        .unix_ms = unix_ms,
        .output = rate(counters.output_tokens, last_.output_tokens),
        .prompt = rate(counters.prompt_tokens, last_.prompt_tokens),
        .steps = rate(counters.steps, last_.steps),
        .running = counters.running,
        .waiting = counters.waiting,
        .first_token = percentiles(counters.first_bounds, counters.first_token, last_.first_token),
        .inter_token = percentiles(counters.inter_bounds, counters.inter_token, last_.inter_token)};
    const int64_t asked = counters.prefix_tokens_asked - last_.prefix_tokens_asked;
    if (asked > 0) {
      const int64_t found = counters.prefix_tokens_found - last_.prefix_tokens_found;
      sample.hits = static_cast<float>(
          std::clamp(static_cast<double>(found) / static_cast<double>(asked), 0.0, 1.0));
    }
    for (const LiveCounters::Group& group : counters.kv) {
      auto known = std::ranges::find(groups_, group.name);
      if (known == groups_.end() && groups_.size() < kGroupsMax) {
        known = groups_.insert(groups_.end(), group.name);
      }
      if (known == groups_.end() || group.total <= 0) continue;
      sample.kv[static_cast<size_t>(known - groups_.begin())] =
          static_cast<float>(static_cast<double>(group.used) / static_cast<double>(group.total));
    }
    ring_[static_cast<size_t>(newest_) % kSamples] = sample;
  }
  last_ = counters;
  last_ns_ = now_ns;
}

LiveHistory::News LiveHistory::after(int64_t number) const {
  std::lock_guard lock(mutex_);
  News news{.newest = newest_};
  // One of an earlier start of the server, or of nobody's.
  if (number > newest_ || number < 0) number = 0;
  int64_t next = std::max(number, newest_ - static_cast<int64_t>(kSamples)) + 1;
  if (next > newest_) return news;
  base::JsonWriter w(news.samples);
  w.begin_array();
  for (; next <= newest_; ++next) write(w, ring_[static_cast<size_t>(next) % kSamples]);
  w.end_array();
  return news;
}

void LiveHistory::write(base::JsonWriter& w, const Sample& sample) const {
  w.begin_object().key("n").integer(sample.number).key("at").integer(sample.unix_ms);
  w.key("output").number(sample.output).key("prompt").number(sample.prompt);
  w.key("steps").number(sample.steps);
  w.key("running").integer(sample.running).key("waiting").integer(sample.waiting);
  w.key("first");
  write_percentiles(w, sample.first_token.p50, sample.first_token.p95);
  w.key("between");
  write_percentiles(w, sample.inter_token.p50, sample.inter_token.p95);
  w.key("hits");
  if (sample.hits < 0) {
    w.null();
  } else {
    w.number(sample.hits);
  }
  w.key("kv").begin_object();
  for (size_t i = 0; i < groups_.size(); ++i) w.key(groups_[i]).number(sample.kv[i]);
  w.end_object().end_object();
}

}  // namespace pelton::server
