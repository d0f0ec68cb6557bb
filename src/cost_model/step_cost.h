// What a step reads and computes, counted exactly from a model's shape and from who is in the step:
// the step-time model, the planner and the simulator build on it. One unknown is left: which
// experts are chosen. They are taken to be drawn evenly and independently, an upper bound on real
// routing. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "cost_model/parameters.h"
#include "families/model_config.h"
#include "kv/group.h"

namespace pelton::cost_model {

// Of each KV group, how many tokens a query sees; 0: every token.
using Windows = kv::PerGroup<int64_t>;
Windows windows_of(const families::ModelConfig& shape);

// Who is in a step, summed up. `windows` are the model's, the same in every call.
struct StepLoad {
  // By the layers of one group.
  struct Attended {
    int64_t window = 0;
    double keys = 0;   // that a layer reads, over all rows
    double pairs = 0;  // products of a query and a key in a layer
  };
  int64_t rows = 0;
  int64_t tokens = 0;
  int64_t sampled = 0;       // rows of logits
  int64_t tokens_alone = 0;  // of rows of one token
  kv::PerGroup<Attended> attended;

  // A row computes the positions start .. start + count - 1, and logits of the last `logit_rows`: 1
  // where a token is sampled, and one for each guess behind it.
  void add_row(int64_t start, int64_t count, int64_t logit_rows, const Windows& windows);
  // `rows` rows of one token each, at a mean context of `context`.
  static StepLoad decodes(int64_t rows, int64_t context, const Windows& windows) {
    return drafts(rows, context, 0, windows);
  }
  // The same with so many guesses behind each row's token.
  static StepLoad drafts(int64_t rows, int64_t context, int64_t guesses, const Windows& windows);
  // A window that no row was added with: nothing.
  const Attended& of(int64_t window) const;
};

struct Work {
  double bytes = 0;
  double operations = 0;  // a multiplication and an addition are two
};

// Of all layers together.
struct StepCost {
  Work projections;  // of attention
  Work experts;
  Work dense;  // feed-forward without experts
  Work other;  // norms and routers
  Work head;
  Work attention;              // keys and values
  double experts_touched = 0;  // of one layer, a mean
  double tokens = 0;
  double exchanged_bytes = 0;  // activations of all tokens, one copy: what collectives carry

  double bytes() const;
  double operations() const;
};

// experts * (1 - (1 - chosen / experts) ^ tokens).
double experts_touched(double experts, double chosen, double tokens);

// What does not change from step to step is counted once: a simulated fleet counts a million steps.
class StepCounter {
 public:
  // `kv_element_bytes`: 2 for 16 bits, 1 for fp8.
  StepCounter(const families::ModelConfig& shape, double kv_element_bytes);

  StepCost count(const StepLoad& load) const;

 private:
  struct Attention {
    int64_t window = 0;          // 0: every token
    double key_bytes = 0;        // of one key and value, over the layers of a kind
    double pair_operations = 0;  // of one query with one key and value
  };

  double projections_ = 0;  // parameters
  double dense_ = 0;
  double other_ = 0;
  double head_ = 0;
  double expert_ = 0;
  double expert_layers_ = 0;
  double experts_ = 0;
  double chosen_ = 0;
  double expert_bytes_ = 0;  // of a parameter
  double other_bytes_ = 0;
  double hidden_ = 0;
  std::vector<Attention> attention_;
  std::vector<double> touched_ = std::vector<double>(1024);  // experts_touched() by tokens: a power
};

}  // namespace pelton::cost_model
