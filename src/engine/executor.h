// The seam between deciding and doing. Real: executor/local_executor (CPU). Modelled:
// engine/modelled_executor (tests, simulator). Engine thread only; work may run elsewhere.
//
// submit and collect are two verbs so that step n+1 can be planned while step n runs: a plan may
// name "the token the step before sampled in this slot" (ScheduledRow::tokens empty).
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/step_plan.h"
#include "kv/block_transfers.h"
#include "kv/group.h"
#include "kv/peer_transfers.h"

namespace pelton::engine {

// What the executor has allocated: the scheduler plans within it.
struct ExecutorCapacity {
  int block_tokens = 16;
  // The model's KV groups, one at least, and their blocks. Those beyond the device are for
  // sequences that make room: their blocks are copied out and back instead of computed again. A
  // tier in which some group has none takes no sequence.
  kv::PerGroup<kv::GroupCapacity> groups;
  int sequences_max = 16;  // slots of sequences that sample
  // More slots, for sequences of which an embedding is made: they need no logits, so many short
  // ones fill a step. 0, and embedding_size 0: this executor makes none.
  int pooled_sequences_max = 0;
  int embedding_size = 0;
  int label_count = 0;         // of a classification head; 0: there is none
  bool weighs_tokens = false;  // there is a sparse head: Pooling::kWeights
  // An encoder: it makes embeddings only, and each prompt is computed whole, in one step.
  bool whole_prompts = false;
  int batch_tokens_max = 512;  // tokens in one step
  int context_tokens_max = 0;  // longest sequence, prompt and output
  // Speculation: guesses behind one sequence's row, and in one step. 0: none is computed.
  int draft_tokens_max = 0;
  int draft_rows_max = 0;
  std::vector<std::string> proposers = {};  // names, kProposersMax at most
  int adapters_max = 0;                     // distinct ones in a step; 0: it computes without any
  int vocab_size = INT32_MAX;               // token ids a prompt may hold are below it

  // Not an encoder, nor one with a classification head in place of its output head.
  bool generates() const { return !whole_prompts && label_count == 0; }
  int slot_count() const { return sequences_max + pooled_sequences_max; }

  int blocks(int group, kv::Tier tier) const {
    return groups[group].block_counts[static_cast<size_t>(tier)];
  }
  // Tokens that the device keeps at once, as its widest group counts.
  int64_t kv_tokens() const {
    return int64_t{blocks(kv::widest_group(groups), kv::kDevice)} * block_tokens;
  }
  // The longest sequence that the device's blocks hold: groups that slide bound none.
  int64_t sequence_tokens_max() const {
    int64_t most = INT64_MAX;
    for (int group = 0; group < groups.size(); ++group) {
      if (groups[group].spec.slides()) continue;
      most = std::min(most, int64_t{blocks(group, kv::kDevice)} * block_tokens);
    }
    return most;
  }
};

class Executor {
 public:
  virtual ~Executor() = default;

  virtual const ExecutorCapacity& capacity() const = 0;

  // Starts a step. At most two may be submitted and not collected.
  virtual void submit(StepPlan plan) = 0;

  // Waits for the oldest submitted step.
  virtual StepResult collect() = 0;

  // Nothing is submitted and not collected, and no block of the device or the host holds anything
  // that is needed: their memory may go back to whoever gave it, until blocks are written again.
  // How much at most, in bytes; 0: none.
  virtual int64_t release_kv_memory() { return 0; }
  // False: nothing goes back, so that what is cached there is better kept.
  virtual bool releases_kv_memory() const { return false; }

  // The disk of the furthest tier, where some group has blocks on it; otherwise null.
  virtual kv::BlockTransfers* disk() { return nullptr; }

  // Other workers' caches, where there is a way to them; otherwise null.
  virtual kv::PeerTransfers* peers() { return nullptr; }
};

}  // namespace pelton::engine
