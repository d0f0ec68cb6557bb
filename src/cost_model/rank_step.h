// How long a step takes where ranks share out rows and sum nothing, as `pelton serve` computes one
// model by several processes (docs/parallel.md, decisions 0111 and 0118): finished numbers are
// gathered, four times a layer, or three times where each expert lies whole on one rank. What the
// usual form (sums exchanged twice a layer) takes is in step_time.h. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "cost_model/step_time.h"

namespace pelton::cost_model {

struct RankForm {
  int ranks = 2;
  bool experts_dealt = false;    // each whole on one rank (EP); else a part of each on all (TP)
  bool inner_quantized = false;  // experts' inner rows travel as packed weights multiply them, in 8
                                 // bits with a scale and a sum for each 32; else in float32
};
std::string form_name(const RankForm& form);  // "TP8", "EP8"

// What ranks exchange over.
struct RankLink {
  std::string name;
  double bytes_per_second = 0;
  double latency_seconds = 0;
  bool direct = true;       // every rank reads each other's part at once; else by doubling
  std::string source = {};  // of both figures
};
// The hardware's own link, or of processors without one, what ranks of one host and of several
// have.
std::vector<RankLink> rank_links(const Hardware& hardware);

// Of a step, all layers together. Bytes are whole rows: of them each rank receives those that the
// others computed.
struct RankExchanges {
  double exchanges = 0;    // in a step that samples: those of the layers, and the head's
  double token_bytes = 0;  // of each token
  double logit_bytes = 0;  // of each row of logits, which the leader alone receives
};
RankExchanges count_rank_exchanges(const families::ModelConfig& shape, const RankForm& form);

// The busiest rank over the mean where experts are dealt out as neighbours and chosen evenly and
// independently, by tokens in a step: expected values, drawn with a fixed seed.
class BusiestRank {
 public:
  // Nothing is lost: 1 at any number.
  BusiestRank() = default;
  BusiestRank(int experts, int chosen, int ranks);

  double experts(double tokens) const;  // whose weights a rank reads
  double rows(double tokens) const;     // that it computes

 private:
  static constexpr int kPoints = 9;  // 1, 2, 4 ... 256 tokens
  using Points = std::array<double, kPoints>;
  static double between(const Points& points, double tokens);

  Points experts_{1, 1, 1, 1, 1, 1, 1, 1, 1};
  Points rows_{1, 1, 1, 1, 1, 1, 1, 1, 1};
  double rows_at_last_ = 1;  // of endlessly many tokens
};

class RankStepModel {
 public:
  // `options.layout` and the corrections are not looked at. kInvalidArgument: what ranks refuse,
  // experts dealt to more ranks than there are experts.
  static Result<RankStepModel> make(StepTimeModel::Options options, const RankForm& form);

  // The rank with the most to do is the step's.
  StepTime time(const StepLoad& load, const RankLink& link) const;
  double exchange_seconds(const StepLoad& load, const RankLink& link) const;
  const RankForm& form() const { return form_; }
  const RankExchanges& exchanges() const { return exchanges_; }
  const BusiestRank& busiest() const { return busiest_; }
  // What a rank receives of a token's rows, without logits, in the mean.
  double received_token_bytes() const;

 private:
  RankStepModel(StepTimeModel::Options options, const RankForm& form, double rate);
  StepCost busiest_cost(const StepLoad& load) const;

  StepTimeModel::Options options_;
  RankForm form_;
  double rate_;
  StepCounter counter_;
  RankExchanges exchanges_;
  BusiestRank busiest_;
};

// Of `rows` in units, the share that the rank with the most has.
double widest_share(int64_t rows, int64_t unit, int ranks);
// Likewise of a gated MLP's parameters: two matrices go by inner rows, one by output rows.
double mlp_share(int64_t inner, int64_t hidden, int ranks);
// And of attention's: q, k and v go by heads, o by output rows.
double projection_share(const families::ModelConfig& shape, int ranks);

}  // namespace pelton::cost_model
