// How long a worker's steps take, fitted to what it sees of itself: a least-squares line through
// intervals in which it was busy all the time, of which newer ones count more.
//
//   seconds = fixed steps + prefill tokens + row outputs + context (tokens of context x steps)
//
// An interval that fits much worse than others did (its process was stopped, a machine was shared)
// counts less, the worse the less: Huber's weights, with three times the usual residual as bound.
// Four of them in a row, a second long, all too slow or all too fast, are a machine that has become
// another one: all times are then taken for so many times as long as they were, and what was seen
// before counts little.
//
// Where little has been seen, the coefficients stay near what is assumed at first. Example:
// intervals of 0.1 s with 25 steps, 25 outputs each and nothing else give fixed + 25 row = 4 ms.
// Pure; one owner.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace pelton::cluster {

// Seconds.
struct StepCosts {
  double fixed_s = 0.002;          // of a step
  double prefill_token_s = 50e-6;  // for each token of a prompt
  double row_s = 50e-6;            // for each sequence that decodes
  double context_token_s = 10e-9;  // for each token that these have
};

class StepFit {
 public:
  // What was done in `seconds`, all of which it was busy.
  struct Interval {
    double seconds = 0;
    int64_t steps = 0;
    int64_t prefill_tokens = 0;
    int64_t output_tokens = 0;
    int64_t context_tokens = 0;  // of those that decode, at one time
  };

  StepFit();

  void note(const Interval& interval);
  const StepCosts& costs() const { return costs_; }

 private:
  static constexpr size_t kTerms = 4;
  using Row = std::array<double, kTerms>;

  double predicted_s(const Row& x) const;
  double weight_of(double predicted_s, double seconds);
  void begin_anew();
  void solve();

  std::array<Row, kTerms> squares_{};  // sums of products, faded, with the assumption's weight
  Row products_{};
  int64_t noted_ = 0;
  double residual_s_ = 0;  // that intervals lately had, on average
  // The last intervals, all of which fit badly and to the same side.
  struct Far {
    int count = 0;
    bool is_slow = false;
    double predicted_s = 0;  // of all together
    double seconds = 0;
    double usual_residual_s = 0;  // before them
  };
  Far far_;
  StepCosts costs_;
};

}  // namespace pelton::cluster
