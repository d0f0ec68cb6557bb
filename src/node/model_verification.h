// Is a model whole, and does it compute what it should? Its files against the hashes that are known
// for them, its numbers one by one, and a text through the plain reference and the fast kernels,
// compared after each block. One thread, which owns the pool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/file_hashes.h"
#include "checkpoint/weight_check.h"
#include "models/self_check.h"

namespace pelton::node {

struct ModelVerification {
  std::vector<checkpoint::FileHash> hashes;
  std::vector<checkpoint::WeightFault> faults;
  std::optional<models::SelfCheck> run;  // none: nothing was computed
  std::string kernels;                   // that were compared with the reference
  size_t run_tokens = 0;
  bool real_text = false;           // the tokens are a text's
  std::vector<std::string> damage;  // one sentence each; empty: it is sound
};

struct VerificationOptions {
  bool hashes = true;
  size_t tokens = 32;  // of the text that is computed; 0: nothing is
  // "hashing", "reading", "computing": bytes or blocks so far and in all. May be empty.
  std::function<void(std::string_view what, int64_t done, int64_t total)> progress;
};

// Errors: kIo, and what keeps the model from being run.
Result<ModelVerification> verify_model(const checkpoint::Checkpoint& checkpoint,
                                       const VerificationOptions& options, base::ThreadPool& pool);

// By how much two kinds of kernels may differ after a block, relative to its values: by rounding, a
// few parts in a million for sane weights, some hundred for models with massive activations; by
// what activations of 8 bits lose, where the weights were packed for such.
double self_check_limit(int activation_bits);
// One sentence, if they differ by more.
std::optional<std::string> self_check_damage(const models::SelfCheck& run, std::string_view kernels,
                                             double limit);

// For people, line by line; for programs, with every block's difference.
std::string verification_text(const checkpoint::Checkpoint& checkpoint,
                              const ModelVerification& verification);
Json verification_json(const checkpoint::Checkpoint& checkpoint,
                       const ModelVerification& verification);
// kBadCheckpoint with the first damage and how many more there are; nothing if it is sound.
Result<void> verification_verdict(const std::string& model, const ModelVerification& verification);

}  // namespace pelton::node
