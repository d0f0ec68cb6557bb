// What a drafter guesses behind every token of a sequence, as a .npy file: to compare an EAGLE-3
// head, Medusa heads or a draft model with other programs. Main thread.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "base/token_id.h"
#include "checkpoint/checkpoint.h"
#include "kernels/kernels.h"
#include "models/model.h"

namespace pelton::apps {

struct DraftLogits {
  std::vector<TokenId> ids;
  std::string folder;  // of the drafter
  int chain = 1;       // guesses behind each token
  int chunk = 256;     // tokens that the target computes at a time
  kernels::KernelChoice kernels = kernels::KernelChoice::kAuto;
  tensor::DType kv_dtype = tensor::DType::kF16;
  std::string out;
};

// float32 [tokens, chain, draft vocabulary]: row p's guesses stand behind tokens 0 to p, of which
// the target has computed those before p; guess j + 1 behind the likeliest of guess j. Row 0 of an
// EAGLE-3 head holds zeros. Of Medusa heads the target has computed p, too, and guess j is head
// j's, the token at p + 2 + j. `target` is the model's checkpoint. Errors: those of the drafter's
// files.
Result<void> write_draft_logits(const DraftLogits& job, const checkpoint::Checkpoint& target,
                                models::Model& model, base::ThreadPool& pool);

}  // namespace pelton::apps
