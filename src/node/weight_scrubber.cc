#include "node/weight_scrubber.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

namespace pelton::node {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kTickNs = kSecondNs / 4;
// Bytes a second. The first time over is what all others are compared with, so it should not take
// a day; and with a doubt somebody waits for the answer. Memory gives a hundred times as much.
constexpr int64_t kFirstSpeed = int64_t{32} << 20;
constexpr int64_t kDoubtSpeed = int64_t{1} << 30;

}  // namespace

bool ErrorWindow::too_many(int64_t now_ns, int64_t total) {
  if (options_.errors_max == 0) return false;
  if (counts_.empty() || counts_.back().total != total) counts_.push_back({now_ns, total});
  while (counts_.size() > 1 && counts_[1].at_ns <= now_ns - options_.window_ns) {
    counts_.pop_front();
  }
  return total - counts_.front().total > options_.errors_max;
}

WeightScrubber::WeightScrubber(Options options, const checkpoint::WeightRanges& weights,
                               const base::Clock& clock, base::Log& log)
    : options_(std::move(options)),
      clock_(clock),
      log_(log),
      window_(options_.errors),
      last_ns_(clock_.now_ns()) {
  window_.too_many(clock_.now_ns(), options_.error_count());  // what came before does not count
  if (!weights.empty()) sums_ = std::make_unique<WeightSums>(weights);
  constexpr int kLeastPriority = 19;
  thread_.emplace(base::PeriodicThread::Options{.name = "pelton-scrub",
                                                .interval = std::chrono::nanoseconds(kTickNs),
                                                .nice = kLeastPriority},
                  [this] { turn(); });
}

void WeightScrubber::turn() {
  const int64_t now_ns = clock_.now_ns();
  // Of a time in which nothing ran, not all is made up for.
  const int64_t passed_ns = std::min(now_ns - last_ns_, kSecondNs);
  last_ns_ = now_ns;
  if (state_ == State::kDamaged) return;
  count_errors();
  if (sums_ != nullptr) look_at_weights(passed_ns);
}

void WeightScrubber::count_errors() {
  const bool doubted = window_.too_many(clock_.now_ns(), options_.error_count());
  if (doubted && state_ == State::kSound) {
    log_.error(fmt::format(
        "more than {} requests have ended with numbers that are not finite within {} seconds; not "
        "ready until that is over, and the weights are looked at",
        options_.errors.errors_max, options_.errors.window_ns / kSecondNs));
    doubted_pieces_ = sums_ == nullptr ? 0 : sums_->piece_count();
    compared_ = 0;
    become(State::kDoubted);
  } else if (!doubted && state_ == State::kDoubted && doubted_pieces_ == 0) {
    log_.info("ready again: no more numbers that are not finite");
    become(State::kSound);
  }
}

void WeightScrubber::look_at_weights(int64_t passed_ns) {
  int64_t speed = options_.period_ns == 0
                      ? 0
                      : static_cast<int64_t>(static_cast<double>(sums_->bytes()) * kSecondNs /
                                             static_cast<double>(options_.period_ns));
  if (options_.period_ns > 0 && !sums_->all_known()) speed = std::max(speed, kFirstSpeed);
  if (doubted_pieces_ > 0) speed = kDoubtSpeed;
  bytes_due_ +=
      static_cast<int64_t>(static_cast<double>(speed) * static_cast<double>(passed_ns) / kSecondNs);
  while (bytes_due_ > 0) {
    const WeightSums::Look look = sums_->look();
    bytes_due_ -= std::max<int64_t>(look.bytes, 1);
    if (!look.changed.empty()) {
      log_.error(
          fmt::format("the weights have changed in memory: {}; nothing more is answered with them "
                      "('pelton verify' says whether the files are whole)",
                      look.changed));
      return become(State::kDamaged);
    }
    if (doubted_pieces_ == 0) continue;
    compared_ += look.known ? look.bytes : 0;
    if (--doubted_pieces_ == 0) {
      log_.info(fmt::format("the weights are what they were, as far as they were known ({}%)",
                            compared_ * 100 / std::max<int64_t>(1, sums_->bytes())));
    }
  }
}

void WeightScrubber::become(State state) {
  state_ = state;
  if (options_.on_change) options_.on_change(state);
}

}  // namespace pelton::node
