// Measures a model's arithmetic without server and scheduler: prefill and decode of B sequences of
// random tokens, on top of a given depth. Main thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "lora/adapter.h"
#include "models/kv_storage.h"
#include "models/model.h"
#include "sampling/sampler.h"

namespace pelton::apps {

class DecodeBench {
 public:
  struct Options {
    int batch_size = 1;
    int depth = 0;  // tokens of context before the measured ones
    int input_len = 512;
    int output_len = 64;
    uint64_t seed = 1;
    // Which sequence is computed with which, in turn; empty: all are the model's. They outlive the
    // bench.
    std::vector<const lora::Adapter*> adapters = {};
  };

  // What one sequence may have at most besides the context: enough rows for a whole batch.
  static models::Model::Options model_options(const Options& options);

  // `model` outlives it. Errors: kInvalidArgument (beyond the context), kDoesNotFit.
  static Result<DecodeBench> make(models::Model& model, tensor::DType kv_dtype,
                                  const Options& options);

  // Computes the depth, of the first sequence; the others get copies of their own, which take a
  // step as long to read. Once, before the first measured run.
  void fill_depth();

  // In seconds: each sequence's prefill, each step of decoding. With adapters each piece is
  // computed by the model alone, too, right beside and from the same tokens, so that both meet the
  // same machine; of every other pair the model's is the later.
  struct Times {
    std::vector<double> measured;
    std::vector<double> of_base;  // empty without adapters
  };
  // A run is one of each, in this order.
  Times time_prefill(const base::Clock& clock);
  Times time_decode(const base::Clock& clock);

 private:
  DecodeBench(models::Model& model, models::KvStorage kv, const Options& options);

  // The first `blocks` of the first sequence's in this group become those of `tables`.
  void copy_first(const kv::PerGroup<std::vector<int32_t>>& tables, int group, int blocks);
  TokenId random_token();
  TokenId best_of(float* logits);
  void prefill(int sequence, int from, int to);  // positions [from, to)
  void decode(int position);                     // one token for every sequence
  template <typename Piece>
  void time_piece(const base::Clock& clock, const Piece& piece, Times& times);
  models::ForwardInput::Sequence sequence(int index, int start, int count) const;

  models::Model* model_;
  models::KvStorage kv_;
  Options options_;
  sampling::Sampler sampler_;
  std::vector<kv::PerGroup<std::vector<int32_t>>> tables_;  // by sequence
  std::vector<TokenId> next_;                               // each sequence's newest token
  uint64_t draws_ = 0;
  bool uses_adapters_ = false;
};

}  // namespace pelton::apps
