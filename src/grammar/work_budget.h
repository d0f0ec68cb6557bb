// How much work it may cost to follow a text: counted in elementary steps of the machine (a frame
// made or compared, a parent visited, some nodes of the vocabulary's tree), not in time, so that a
// text ends the same way on every machine and beside every load. One thread at a time.
#pragma once

#include <atomic>
#include <cstdint>

#include "grammar/compile_deadline.h"

namespace pelton::grammar {

// For one mask, or for going over one token and what must follow it. A step takes some 10 to 30 ns:
// this is about half a second. Masks of real schemas over a vocabulary of 200 000 tokens take less
// than a million.
inline constexpr int64_t kWorkMax = 20'000'000;

class WorkBudget {
 public:
  struct Limits {
    // Work that is done. Less than `total_max` where somebody waits for it: what is given up there
    // is done elsewhere.
    int64_t done_max = kWorkMax;
    // With work that was saved because masks were cached: whether a request exceeds it does not
    // depend on what others have asked before.
    int64_t total_max = kWorkMax;
    const std::atomic<bool>* cancelled = nullptr;  // nobody wants it any more
    // While a format is compiled: the time of the request. Used on the deadline's thread.
    const CompileDeadline* deadline = nullptr;
  };

  WorkBudget() : WorkBudget(Limits{}) {}
  explicit WorkBudget(const Limits& limits) : limits_(limits) {}
  static WorkBudget unlimited() {
    return WorkBudget({.done_max = INT64_MAX / 2, .total_max = INT64_MAX / 2});
  }

  void spend(uint64_t steps) {
    done_ += static_cast<int64_t>(steps);
    if (done_ >= look_at_) look();
  }
  // What was found in a cache had cost so much.
  void save(int64_t steps) {
    saved_ += steps;
    look();
  }
  // What is asked for exceeds a limit other than of work, such as memory: for good.
  void exceed() {
    saved_ = limits_.total_max + 1;
    look();
  }
  // Nothing that was computed since counts.
  bool exhausted() const { return exhausted_; }
  // Not because others wait, but for good.
  bool exceeds_total() const { return done_ + saved_ > limits_.total_max; }
  int64_t done() const { return done_; }

 private:
  static constexpr int64_t kLookEvery = 1 << 16;

  void look() {
    const bool is_cancelled =
        (limits_.cancelled != nullptr && limits_.cancelled->load(std::memory_order_relaxed)) ||
        (limits_.deadline != nullptr && limits_.deadline->passed());
    exhausted_ = exhausted_ || is_cancelled || done_ > limits_.done_max || exceeds_total();
    const int64_t left = limits_.done_max - done_ < limits_.total_max - done_ - saved_
                             ? limits_.done_max - done_
                             : limits_.total_max - done_ - saved_;
    look_at_ = done_ + (left < 0 ? 0 : left < kLookEvery ? left + 1 : kLookEvery);
  }

  Limits limits_;
  int64_t done_ = 0;
  int64_t saved_ = 0;
  int64_t look_at_ = 0;
  bool exhausted_ = false;
};

}  // namespace pelton::grammar
