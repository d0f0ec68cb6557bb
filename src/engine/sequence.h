// One request on its way through the engine. The scheduler's own; engine thread only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/disk_tier.h"
#include "engine/draft_controller.h"
#include "engine/peer_tier.h"
#include "engine/step_plan.h"
#include "engine/token_stream.h"
#include "kv/block_hash.h"
#include "kv/block_pools.h"
#include "kv/block_table.h"
#include "request/generation_request.h"

namespace pelton::engine {

// In the order of arrival.
using SequenceId = int64_t;
inline constexpr SequenceId kNoFamily = -1;

struct Sequence {
  enum class Stage {
    kWaiting,  // no slot, no blocks of the device
    kRunning,  // has a slot
    kEnded,    // forgotten as soon as no submitted step names it
  };

  // `pools` outlive the sequence.
  Sequence(SequenceId id, request::GenerationRequest request, kv::BlockPools& pools)
      : id(id),
        request(std::move(request)),
        mirostat_bound(this->request.sampling.mirostat.first_bound()) {
    for (int group = 0; group < pools.group_count(); ++group) {
      tables.push_back(kv::BlockTable(pools.pool(group, kv::kDevice)));
      sent_tables.push_back({});
    }
  }

  const SequenceId id;
  request::GenerationRequest request;  // its prompt has moved to `tokens`
  std::vector<TokenId> tokens;         // prompt and output, as far as known
  int prompt_count = 0;
  // Several answers to one prompt: the id of the first. They share what is computed for the prompt.
  SequenceId family = kNoFamily;
  int output_max = 0;

  int64_t rank = 0;   // see admission/fair_queue.h
  int uncharged = 0;  // output tokens that the tenant's account does not know yet

  Stage stage = Stage::kWaiting;
  Slot slot = -1;
  bool arrived = false;  // the executor knows who sits in the slot
  kv::PerGroup<kv::BlockTable> tables;
  // What the executor knows of them: so many entries, of which those before `begin` are gone.
  struct SentTable {
    int entries = 0;
    int begin = 0;
    bool cut = false;  // it has further ones, which were given back

    bool operator==(const SentTable&) const = default;
  };
  kv::PerGroup<SentTable> sent_tables;
  // What was computed before it made room, if it was copied out and not thrown away: entries as in
  // `tables`, blocks in a further tier. Empty: nothing.
  std::vector<kv::BlockTable> swapped_tables;
  kv::Tier swapped_tier = kv::kDevice;  // where those are

  kv::BlockHash origin;  // root of salt and adapter: with whom drafts may be shared
  kv::BlockHash
      first_parent;  // of block 0: origin, or the model's own root where the adapter acts later
  std::vector<kv::BlockHash> hashes;  // of the blocks that are full of known tokens
  int cached = 0;  // tokens found in the prefix cache when it was first scheduled
  // The position up to which others had computed the same then, in whole blocks, whether all of
  // their window blocks were still there or not. Others may part from it here, too.
  int parts_at = 0;
  kv::PerTier<int> cached_by_tier{};          // of these, by where they lay
  uint64_t owner = 0;                         // of its blocks, on a disk
  std::unique_ptr<DiskTier::Load> load;       // what is read for it while it waits
  bool looked_on_disk = false;                // since it is next in line
  std::unique_ptr<PeerTier::Load> peer_load;  // what is fetched for it while it waits
  int pinned_tokens = 0;                      // of its prompt, for good
  int cached_from_peer = 0;                   // of `cached`
  bool was_scheduled = false;
  // Where the prompt's log-probabilities are asked: those of its tokens but the first, as far as
  // steps are committed. They go out with the first token.
  std::vector<PromptToken> scored;

  std::unique_ptr<TokenConstraints> token_constraints;  // null: it samples freely
  size_t forced = 0;                                    // of its tokens, planned
  float mirostat_bound = 0.0f;  // behind the newest token, of request.sampling.mirostat
  bool in_quota = false;        // amid a segment that request.quota counts
  int64_t quota_used = 0;

  int computed = 0;   // positions computed by the steps submitted so far
  int settled = 0;    // of these, by the steps committed so far
  int chosen = 0;     // tokens in the step that is being planned
  int pending = 0;    // samples submitted and not committed
  int jumped = 0;     // tokens emitted with the last sample
  int emitted = 0;    // rows submitted that sample, but whose token was emitted with an earlier one
  int in_flight = 0;  // steps that compute it or copy it out, submitted and not committed
  // Speculation: guesses that the step being planned, or the one in flight, may compute behind its
  // row. Where that row ends only the result says, so nothing else of it is planned before.
  int draft_max = 0;
  int drafted = 0;             // guesses computed for it so far
  int accepted = 0;            // of these, emitted
  std::vector<int> drafts;     // [i]: rows with guesses of which the first i alone were right
  int predicted = 0;           // of those computed, from the request's prediction
  int predicted_accepted = 0;  // of those, emitted
  DraftHistory draft_history;
  // Its last row was deferred: nothing of it is planned before that is over. Rows that were in
  // flight behind that one are void.
  std::shared_ptr<const Deferral> deferral;

  bool swapped_out() const { return !swapped_tables.empty(); }

  // Whether its going would make room for others.
  bool holds_blocks() const {
    return std::any_of(tables.begin(), tables.end(),
                       [](const kv::BlockTable& table) { return table.held_count() > 0; });
  }

  // Positions [0, reach()) are covered in every group, or can be with the blocks that are free now.
  int reach() const {
    int reach = INT32_MAX;
    for (const kv::BlockTable& table : tables) reach = std::min(reach, table.reach());
    return reach;
  }

  int output_count() const { return static_cast<int>(tokens.size()) - prompt_count; }

  bool pooled() const { return request.pooling.has_value(); }
  // A sum over all tokens, or the first one's state: none of them may be found, or come back from
  // the host, computed.
  bool computes_every_token() const {
    return request.pooling == request::Pooling::kMean ||
           request.pooling == request::Pooling::kFirst ||
           request.pooling == request::Pooling::kAll ||
           request.pooling == request::Pooling::kWeights;
  }

  // What the positions from here on say of the tokens after them is still to be reported: they must
  // be computed, though somebody has their keys and values.
  bool scores_prompt() const {
    return request.sampling.prompt_logprobs >= 0 && output_count() == 0 &&
           static_cast<int>(scored.size()) < prompt_count - 1;
  }

  // Rows that sample may be deferred where there is a guide: their last positions are computed
  // again.
  int computed_for_sure() const {
    return request.guide && deferral == nullptr ? computed - pending : computed;
  }

  // The length once the submitted samples are known.
  int length() const { return static_cast<int>(tokens.size()) + pending; }

  // Tokens still to compute before the next sample; 0: the last sample is on its way.
  int remaining() const { return output_count() + pending >= output_max ? 0 : length() - computed; }

  // What was emitted with the last sample is computed with it.
  bool decoding() const {
    return computed >= prompt_count && remaining() >= 1 && remaining() <= 1 + jumped;
  }

  // The last position's count that it can ever need: its last token is never computed.
  int computed_max() const { return prompt_count + output_max - 1; }
};

}  // namespace pelton::engine
