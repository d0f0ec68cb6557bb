// Who goes first and what that may cost the others. Plain values, set once.
#pragma once

#include "admission/fair_queue.h"

namespace pelton::engine {

struct SchedulingPolicy {
  // kPrefillFirst: beside decodes the whole budget of a step goes to prompts, and a newcomer is
  // scheduled as soon as its prompt fits. kDecodeFirst: prompts get `decode_first_prompt_tokens` of
  // a step beside decodes, and a newcomer is scheduled only where the running ones can grow to
  // their ends without giving anything back.
  enum class Order { kPrefillFirst, kDecodeFirst } order = Order::kPrefillFirst;
  int decode_first_prompt_tokens = 64;

  // Prompt tokens in a step beside decodes, in either order: how much longer a step may take, and
  // so the next token of everybody, because somebody sent a long prompt. 0: no bound.
  int prompt_tokens_beside_decodes_max = 0;

  // Between tenants, by tokens; and what a step of priority is worth, also in tokens.
  admission::FairQueue::Options fairness;
};

}  // namespace pelton::engine
