// How long a step takes: each part's bytes over the bandwidth or operations over the rate,
// whichever binds, plus what devices say to each other and what a step costs whatever is in it.
// `Efficiency` says how much of the hardware's figures is reached: assumed, or fitted to measured
// steps (calibration.h). Pure.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "cost_model/hardware.h"
#include "cost_model/parameters.h"
#include "cost_model/step_cost.h"

namespace pelton::cost_model {

// How one copy of a model lies on several devices.
struct Layout {
  int tensor = 1;    // every matrix cut, sums exchanged twice a layer
  int expert = 1;    // experts dealt out, all else on every device for its share of the tokens
  int pipeline = 1;  // layers dealt out, and as many groups of tokens on their way at once

  int devices() const { return tensor * expert * pipeline; }
};
std::string layout_name(const Layout& layout);  // "TP8", "EP4", "TP4 PP2", "one device"

struct Efficiency {
  double bandwidth = 0.6;  // shares of the hardware's figures
  double compute = 0.4;
  double attention = 0.3;  // of the rate, of products of queries and keys
  double link = 0.7;
  double step_s = 0;    // whatever is in it
  double layer_s = 0;   // for each layer: launches
  double token_s = 0;   // for each token
  double row_s = 0;     // for each sequence
  double sample_s = 0;  // for each row of logits
  // How reading and computing overlap: t = (a^p + b^p)^(1/p). 1: one after the other; large: the
  // slower alone counts.
  double overlap = 8;

  static Efficiency of(const InstanceFit& fit);
  // Everything takes `factor` times as long.
  Efficiency slower(double factor) const;
  Json to_json() const;
  static Result<Efficiency> from_json(const Json& json, const std::string& origin);
};

// What a formula misses at a number of rows or tokens, as a factor: between the points it is drawn
// straight over the logarithm, beyond them it stays.
struct Correction {
  struct Point {
    double at = 1;
    double factor = 1;
  };
  std::vector<Point> points;  // rising

  double operator()(double at) const;
};

struct StepTime {
  double weights_s = 0;
  double attention_s = 0;
  double exchange_s = 0;
  double fixed_s = 0;
  double seconds() const { return weights_s + attention_s + exchange_s + fixed_s; }
};

class StepTimeModel {
 public:
  struct Options {
    Hardware hardware;
    families::ModelConfig shape;
    Layout layout;
    Efficiency efficiency;
    Arithmetic arithmetic = Arithmetic::kBf16;
    double kv_element_bytes = 2;
    Correction by_rows;    // of steps in which everybody brings one token
    Correction by_tokens;  // of the others
  };
  // kInvalidArgument: arithmetic the hardware lacks, a layout that cannot be.
  static Result<StepTimeModel> make(Options options);

  StepTime time(const StepLoad& load) const;
  double seconds(const StepLoad& load) const { return time(load).seconds() * correction(load); }
  // The slowest part of the roofline alone, at efficiency 1 and without overheads.
  double ideal_seconds(const StepLoad& load) const;
  const Options& options() const { return options_; }

 private:
  StepTimeModel(Options options, double rate);
  double correction(const StepLoad& load) const;
  double exchange(const StepCost& cost) const;
  StepCost stage_cost(const StepLoad& load) const;

  Options options_;
  double rate_;
  StepCounter counter_;
  double layers_;
  double expert_layers_;
  bool is_latent_;
  double negligible_;
};

// One collective's time among `devices`.
struct Exchange {
  double bytes = 0;  // each device's
  int devices = 1;
};
double all_reduce_seconds(const Exchange& exchange, const Hardware& hardware, double link_share);
double all_to_all_seconds(const Exchange& exchange, const Hardware& hardware, double link_share);
double send_seconds(double bytes, const Hardware& hardware, double link_share);

}  // namespace pelton::cost_model
