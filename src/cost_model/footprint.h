// What a model takes of memory, to the byte, before anything is allocated: the one function for the
// executor, which allocates what it says, for `pelton plan`, and for planner and simulator. Pure
// arithmetic on a configuration and the tensors' headers; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "families/expected_tensors.h"
#include "families/model_config.h"
#include "kv/group.h"
#include "tensor/dtype.h"

namespace pelton::cost_model {

// Whose arithmetic: the fast kernels keep working memory from step to step, the reference none.
enum class KernelKind { kReference, kCpu };

struct MemoryRequest {
  // What is to run.
  int sequences_max = 16;      // slots
  int draft_rows_max = 0;      // speculation: rows of guesses in a step
  int64_t draft_bytes = 0;     // and what who guesses keeps
  int batch_tokens_max = 512;  // tokens in a step
  int block_tokens = 16;
  tensor::DType kv_dtype = tensor::DType::kF16;
  KernelKind kernels = KernelKind::kCpu;
  int threads = 1;
  bool prefix_cache = true;           // blocks beyond what runs, so that hits can end
  std::optional<int> context_tokens;  // asked for by the user; empty: as long as fits
  int64_t swap_bytes = 0;             // beside the KV cache, for sequences that make room
  // LoRA adapters: the highest rank, 0 without any; whether they add to experts, too; and what is
  // kept of them.
  int adapter_rank_max = 0;
  bool expert_adapters = false;
  int64_t adapter_bytes = 0;
  // From so many bytes of them on, bf16 matrices are held in 12 bits a weight
  // (checkpoint/compact_weights.h), if the weights then fit into memory; empty: they stay as the
  // files have them.
  std::optional<int64_t> compact_from = {};

  // What it may take: one of the two, or neither (then half of what the rest leaves is for KV).
  std::optional<int64_t> kv_bytes;           // --kv-cache-memory
  std::optional<double> memory_utilization;  // of memory_bytes, for everything in Footprint
  int64_t memory_bytes = 0;                  // min(cgroup limits, RAM)
};

struct Weights {
  // The files' tensors, and the small ones once more as float32, which is how they are computed
  // with.
  int64_t embedding = 0;
  int64_t attention = 0;
  int64_t experts = 0;
  int64_t mlp = 0;  // of dense layers
  int64_t head = 0;
  int64_t other = 0;    // norms and routers
  int64_t mapped = 0;   // of all: in the files
  int64_t owned = 0;    // of all: beside them
  int64_t compact = 0;  // of owned: bf16 in 12 bits, in place of
  int64_t dropped = 0;  // so many bytes of the files, which are counted nowhere else

  int64_t bytes() const { return mapped + owned; }
};

// What the architecture asks for, whole tokens and nothing for rounding.
struct KvFormula {
  int64_t per_token = 0;     // full-attention layers: for each token of context
  int64_t per_sequence = 0;  // sliding layers: their window

  int64_t bytes(int64_t token_count, int64_t sequence_count) const {
    return per_token * token_count + per_sequence * sequence_count;
  }
};

// What is really allocated.
struct KvAllocated {
  tensor::DType dtype = tensor::DType::kF16;
  int block_tokens = 0;

  struct Group {
    kv::GroupSpec spec;
    int block_count = 0;
    int live_count = 0;  // of these, for what runs: windows, and the largest step's chunks

    int64_t bytes() const { return spec.block_bytes * block_count; }
  };
  kv::PerGroup<Group> groups;

  int64_t bytes() const;
  // Tokens that are kept at once, as the widest group counts.
  int64_t token_count() const;
};

struct Workspace {
  int64_t activations = 0;  // of the largest step
  int64_t logits = 0;
  int64_t kernels = 0;  // what they keep from call to call
  // A row of logits and its candidates for each thread, a mask for each sequence.
  int64_t sampling = 0;
  int64_t drafting = 0;  // MemoryRequest::draft_bytes
  int64_t adapters = 0;  // what steps keep for adapters

  int64_t bytes() const { return activations + logits + kernels + sampling + drafting + adapters; }
};

struct Footprint {
  Weights weights;
  Workspace workspace;
  KvFormula kv_formula;
  KvAllocated kv;
  KvAllocated swap;           // without blocks where there is none
  int64_t adapter_bytes = 0;  // the most that is kept of adapters

  int sequences_max = 0;                       // slots
  int batch_tokens_max = 0;                    // of a step
  int context_tokens_max = 0;                  // of one sequence
  int64_t memory_bytes = 0;                    // of the machine, as it was asked
  std::optional<int64_t> kv_bytes_asked = {};  // of --kv-cache-memory, kv.bytes() or more

  // False: an encoder, whose blocks are numbers and hold nothing.
  bool keeps_kv() const { return kv.bytes() > 0 || kv.token_count() == 0; }
  // Sequences of that context that fit at once without one making room for another: at most
  // sequences_max.
  int max_sequences() const;
  // The formula for the tokens that fit and as many sequences as may run.
  int64_t kv_formula_bytes() const { return kv_formula.bytes(kv.token_count(), sequences_max); }
  int64_t bytes() const {
    return weights.bytes() + workspace.bytes() + kv.bytes() + swap.bytes() + adapter_bytes;
  }
  // What is neither pages of the files nor stands in place of such pages.
  int64_t beside_weights() const { return bytes() - weights.mapped - weights.compact; }
  // The blocks, swap space being the host's.
  kv::PerGroup<kv::GroupCapacity> kv_capacity() const;
};

// kDoesNotFit and kInvalidArgument name the flag, what was asked and what would fit.
Result<Footprint> footprint(const checkpoint::Checkpoint& checkpoint, const MemoryRequest& request);

// Tokens in a step of an encoder, where nobody has said: its longest text at least, and more while
// that is little of the memory.
int encoder_step_tokens(const families::ModelConfig& config, int64_t memory_bytes);
// And the most texts that are known at once, a step's and those that come into the next.
int encoder_sequences_max(int batch_tokens_max);

// Of a model of which only the configuration is known, with weights as published.
Result<Footprint> footprint(const families::ModelConfig& config, const MemoryRequest& request);

// Of what becomes of it with --weights int8 (layers/pack_weights.h, which says of which models
// anything does).
Result<Footprint> packed_footprint(const families::ModelConfig& config,
                                   const MemoryRequest& request);

// Weights and working memory of a model that is beside another one (speculation), without keys and
// values and what sampling keeps.
int64_t model_bytes(const checkpoint::Checkpoint& checkpoint, const MemoryRequest& request);

// Whether the host's memory has what was asked for in bytes, KV cache and swap space, beside the
// rest. Weights in files that are larger than memory are read again and again
// (checkpoint/load_choice.h) and take no room of their own. Error: kDoesNotFit, with both numbers.
Result<void> check_fits(const Footprint& footprint);

// One line, to the byte: every number that `pelton plan --memory --json` gives under the same name.
std::string log_line(const Footprint& footprint);
Json to_json(const Footprint& footprint);

}  // namespace pelton::cost_model
