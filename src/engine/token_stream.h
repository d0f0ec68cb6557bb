// What a request gives back, token by token, from the engine thread to one reader (a net thread).
// Bounded by the request itself: never more events than max_new_tokens and one end.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/result.h"
#include "engine/step_plan.h"
#include "kv/group.h"

namespace pelton::engine {

enum class FinishReason {
  kStop,        // a stop token, which was the last token delivered
  kLength,      // max_new_tokens or the context's end
  kRepetition,  // as request::RepetitionRule says
  kCancelled,   // the reader left
  kError,       // see StreamEnd::error
  kEmbedded,    // see StreamEnd::embedding
};

// When one request came how far, on the engine's clock; 0: never. What a preemption costs lies in
// the interval in which it happened.
struct RequestTimes {
  int64_t queued_ns = 0;
  int64_t scheduled_ns = 0;  // for the first time
  int64_t first_token_ns = 0;
  int64_t last_token_ns = 0;
};

// What of a prompt was found in the prefix cache.
struct PromptFound {
  int cached_tokens = 0;
  kv::PerTier<int> by_tier{};  // of these, by where they lay
  int from_peer = 0;           // and those that were fetched from another worker
};

struct StreamEnd {
  FinishReason reason = FinishReason::kStop;
  int prompt_tokens = 0;
  int cached_tokens = 0;              // of the prompt, found in the prefix cache
  kv::PerTier<int> cached_by_tier{};  // of these, by where they lay
  int cached_from_peer = 0;           // and those that were fetched from another worker
  int pinned_tokens = 0;              // of the prompt, where that was asked for and there was room
  int output_tokens = 0;
  int draft_tokens = 0;           // guesses that were computed for it
  int accepted_draft_tokens = 0;  // of these, emitted
  std::vector<int> drafts;        // [i]: rows with guesses of which the first i alone were right
  // Of the request's prediction: guesses that were emitted, and those that were not.
  int accepted_prediction_tokens = 0;
  int rejected_prediction_tokens = 0;
  std::optional<Error> error;
  RequestTimes times;
  std::vector<float> embedding;  // as pooled, not normalised
};

// Words put into a sequence's mouth: its reader knows something of its tokens that the engine does
// not (that it has reasoned enough, say).
struct TokenConstraints {
  std::vector<TokenId> tokens;  // instead of what would be sampled, one after the other
  int position = 0;             // after so many output tokens, or as soon after as can be
  // Not if one of these was sampled meanwhile, after the first `since` output tokens: the reader
  // had not seen it.
  std::vector<TokenId> unless;
  int since = 0;
};

// The half the reader holds. Leaving early (destruction) cancels: the engine gives the sequence's
// blocks back within one step.
class TokenStream {
 public:
  struct Batch {
    std::vector<SampledToken> tokens;  // since the last take, in order
    int64_t sampled_ns = 0;            // when the engine put the first of them here
    std::optional<StreamEnd> end;      // nothing follows
    // With the first token, if prompt_logprobs are asked for: of the prompt's tokens but its first.
    std::vector<PromptToken> prompt;
    // Likewise, if the request says so.
    std::optional<PromptFound> found;
  };

  struct State;  // shared with the engine; token_stream.cc
  explicit TokenStream(std::shared_ptr<State> state);
  TokenStream(TokenStream&&) noexcept;
  TokenStream& operator=(TokenStream&&) noexcept;
  ~TokenStream();

  // Takes what is there; may be empty.
  Batch take();
  // The same into `batch`, whose room for tokens is kept and serves those to come: a stream that is
  // taken from token by token allocates nothing.
  void take_into(Batch& batch);

  // Waits until something is there.
  Batch wait();

  // Called by the engine thread when take() would no longer be empty: it should only post to the
  // reader's own thread. Set at most once; called at once if something is there already. Not called
  // again until the next take().
  void on_ready(std::function<void()> ready);

  void cancel();

  // The last one counts, while none of its tokens has been planned.
  void force(TokenConstraints token_constraints);

 private:
  std::shared_ptr<State> state_;
};

}  // namespace pelton::engine
