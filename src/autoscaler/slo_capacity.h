// How many replicas keep the time to the first token and the gaps between tokens within an
// objective, at a percentile: from what a step costs and what requests are like. Pure.
//
// A replica that gets r requests a second, of U prompt tokens to be computed, O output tokens and X
// tokens of context on average while they decode, has b = r O s rows in a step of s seconds:
//
//   s = fixed + b (row + context X) + r U s prefill
//     = fixed / (1 - r c),  c = O (row + context X) + U prefill: seconds of work in a request
//
// Who decodes there sees itself beside them (1 + b rows; for the percentile b + z sqrt(b), as rows
// are Poisson's), and the prompts that came to all replicas during a step, Poisson's as
// well, and dealt out evenly. A
// first token is waited for in a queue over the slots of all replicas (M/M/c: Sakasegawa 1977, An
// approximation formula Lq = a rho^b / (1 - rho)), and then takes a step for each piece of its
// prompt. All of it grows with the rate and falls with the replicas, so the least number that does
// is found by bisection.
//
// Example: steps of 10 ms + 0.1 ms a row + 20 us a prompt token, U 1000, O 100, no context costs:
// c = 30 ms. At 20 requests a second one replica has s = 10 / (1 - 0.6) = 25 ms, 50 rows and 500
// prompt tokens a step, gaps of 10 + 51 x 0.1 + 10 = 25.1 ms on average.
#pragma once

#include <optional>

namespace pelton::autoscaler {

struct SloObjective {
  std::optional<double> first_token_s;
  std::optional<double> gap_s;  // between two tokens
  double percentile = 0.95;     // of requests, and of gaps
};

// Seconds, and what fits: of one replica.
struct ReplicaModel {
  double fixed_s = 0;  // of a step; 0: nothing is known of its steps
  double prefill_token_s = 0;
  double row_s = 0;
  double context_token_s = 0;
  int slots = 1;
  int step_tokens = 0;   // of prompts, in a step; 0: any number
  double kv_tokens = 0;  // that its KV cache holds; 0: not known

  bool is_known() const { return fixed_s > 0; }
  friend bool operator==(const ReplicaModel&, const ReplicaModel&) = default;
};

// Means over requests, in tokens, and the percentile of what is computed of a prompt.
struct RequestShape {
  double computed = 0;  // of the prompt: what no cache holds
  double computed_at_percentile = 0;
  double context = 0;  // while it decodes: the prompt and half of the output
  double output = 0;
};

class SloCapacity {
 public:
  // Measured over predicted, of the means.
  struct Correction {
    double first_token = 1;
    double gap = 1;
  };
  SloCapacity(const ReplicaModel& replica, const RequestShape& shape, const SloObjective& objective)
      : replica_(replica), shape_(shape), objective_(objective) {}
  void set_correction(const Correction& correction) { correction_ = correction; }

  struct Forecast {
    bool is_stable = false;  // whatever comes is served, sooner or later; false: no times below
    double step_s = 0;
    double rows = 0;           // of a replica, on average
    double first_token_s = 0;  // mean
    double gap_s = 0;
    double first_token_at_percentile_s = 0;
    double gap_at_percentile_s = 0;
  };
  // `rate`: requests a second for all of `replicas`. Uncorrected.
  Forecast at(double rate, int replicas) const;

  // What no number of replicas would keep: a request that is alone takes longer.
  bool is_first_token_unattainable() const;
  bool is_gap_unattainable() const;

  // The least number, 1 to `most`, that keeps the objectives that can be kept; `most`: that, or
  // more.
  int least(double rate, int most) const;

 private:
  double prompts_at_percentile(double rate, int replicas, double decode_s) const;
  bool keeps(const Forecast& forecast, bool first_token, bool gap) const;

  ReplicaModel replica_;
  RequestShape shape_;
  SloObjective objective_;
  Correction correction_;
};

}  // namespace pelton::autoscaler
