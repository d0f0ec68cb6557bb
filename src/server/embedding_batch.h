// Many prompts on their way to becoming vectors: enough of them with the engine at a time to fill
// its steps, the others held back, so that one caller's thousands do not fill its queue. One owner,
// whom `ready` tells (on the engine thread, which must only be posted from) when to pump().
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "access/request_record.h"
#include "base/result.h"
#include "engine/engine.h"
#include "request/generation_request.h"
#include "server/generation_meter.h"

namespace pelton::server {

struct Embeddings {
  std::vector<std::vector<float>> vectors;  // in the order of the prompts, as pooled
  int64_t prompt_tokens = 0;
};

class EmbeddingBatch {
 public:
  // Where its texts are counted, and since when their request has been here.
  struct Counted {
    GenerationMeter& meter;
    int64_t arrived_ns;
  };

  // `engine` and the meter outlive it.
  EmbeddingBatch(engine::Engine& engine, std::vector<request::GenerationRequest> requests,
                 Counted counted, std::function<void()> ready);

  // Takes what is there and submits what has room now. Nothing: it is not over. After a result
  // nothing more happens; what still runs is cancelled by ~EmbeddingBatch.
  std::optional<Result<Embeddings>> pump();

  // Of those that are over.
  const access::GenerationFacts& facts() const { return facts_; }

 private:
  struct Running {
    size_t index;
    engine::TokenStream stream;
  };

  engine::Engine& engine_;
  const std::function<void()> ready_;
  const size_t running_max_;
  std::vector<request::GenerationRequest> requests_;  // emptied as they are submitted
  size_t next_ = 0;
  size_t done_ = 0;
  std::vector<Running> running_;
  const Counted counted_;
  std::optional<VectorWatch> watch_;  // from when the engine has the first of them
  Embeddings embeddings_;
  access::GenerationFacts facts_;
};

// The first `dimensions` of each (all if none are named), of length one.
void normalise(std::vector<std::vector<float>>& vectors, std::optional<int> dimensions);

// The same, or of whatever length they are.
struct VectorForm {
  std::optional<int> dimensions;
  bool normalises = true;
};
void finish_vectors(std::vector<std::vector<float>>& vectors, const VectorForm& form);

// Of normalised vectors.
double cosine(const std::vector<float>& a, const std::vector<float>& b);

}  // namespace pelton::server
