// --speculative-config: vLLM's JSON object, read and checked; and the proposer that it asks for.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "cost_model/footprint.h"
#include "speculative/medusa_heads.h"
#include "speculative/proposer.h"

namespace pelton::speculative {

struct Config {
  enum class Method {
    kNone,
    kNGram,
    kSuffix,
    kSuffixShared,  // suffix, and what other sequences were answered
    kLookahead,
    kDraftModel,
    kEagle3,
    kMedusa,
    kSuffixDraftModel,  // "suffix+draft_model"
    kSuffixEagle3,
    kAuto,
    kOracle
  };

  Method method = Method::kNone;
  int tokens_max = 0;  // num_speculative_tokens: guesses behind one sequence's row
  // Only where and as many as pay (engine/draft_controller.h); otherwise always so many.
  bool adaptive = true;

  int prompt_lookup_min = 5;
  int prompt_lookup_max = 5;
  int suffix_tokens = 16'384;  // of a sequence that are looked at
  double suffix_spec_factor = 1.0;
  // Of suffix_shared: what is kept of answers, and how likely guesses have to be.
  int shared_answers = 10'000;
  int shared_tokens = 1 << 18;
  double shared_probability_min = 0.1;
  std::string model;  // of those with weights: its folder
  // Of a sequence that it sees: a longer one has no guesses of a draft model; a head looks back at
  // the latest. Not given: 4096, or the context of the model or of the draft model where that is
  // less.
  std::optional<int> model_tokens;
  std::string answers;  // of the oracle: a file
  double acceptance = 1.0;

  bool on() const { return method != Method::kNone; }
  // The folder's name is read.
  bool takes_model() const;
  // Those that are asked, in this order: itself, or what it combines. Of `auto`: suffix and ngram,
  // and what the folder holds, if one is given. Errors: those of the folder; more guesses than it
  // has Medusa heads.
  Result<std::vector<Config>> parts() const;
};

// Guesses that a row may have at most.
inline constexpr int kDraftTokensMax = 64;

// Unknown fields, fields of another method and those of vLLM's that are not supported are refused
// by name. Error: kInvalidArgument, kUnsupported.
Result<Config> parse_config(std::string_view json);

std::string_view name_of(Config::Method method);

// Of the model that guesses are for, and of the machine.
struct ModelFacts {
  int slot_count = 0;
  int vocab_size = 0;
  int sampled_vocab = 0;       // ids from here on are never sampled
  int batch_tokens_max = 512;  // rows of a step
  std::string kernels = "auto";
  // Both outlive the proposer; null where it has no weights, or none that look at the target.
  base::ThreadPool* pool = nullptr;
  const checkpoint::Checkpoint* target = nullptr;
  TargetHead target_head{};  // of Medusa heads without their own
};

// What a proposer allocates, with kernels of that kind on so many threads. Errors: those of its
// model.
struct BytesFacts {
  int slot_count = 0;
  int batch_tokens_max = 512;
  int threads = 1;
  const families::ModelConfig* target = nullptr;  // null where no proposer looks at it
  cost_model::KernelKind kernels = cost_model::KernelKind::kCpu;
  tensor::DType kv_dtype = tensor::DType::kF16;
};
Result<int64_t> bytes_for(const Config& config, const BytesFacts& facts);

// Null for kNone. Errors: those of its files.
Result<std::shared_ptr<Proposer>> make_proposer(const Config& config, const ModelFacts& facts);

}  // namespace pelton::speculative
