// Servers of others' that workers may be, and what each can do with an answer that another one has
// begun. What it can it shows in a probe (gateway/fleet_foreign.cc); nothing is believed of it.
#pragma once

#include <string_view>

namespace pelton::gateway {

// kRegion: the gateway of another region, which has workers of its own (fleet_regions.cc).
enum class WorkerKind { kPelton, kOpenAi, kVllm, kSglang, kLlamaCpp, kRegion };
std::string_view worker_kind_name(WorkerKind kind);
// Two of them may answer a request together (gateway/foreign_pair.h).
constexpr bool answers_in_pairs(WorkerKind kind) {
  return kind == WorkerKind::kVllm || kind == WorkerKind::kSglang;
}

// It goes on from ...
struct ForeignAbilities {
  bool chat = false;    // L0: a last message of the assistant's, in a chat
  bool text = false;    // L1: a prompt's text and the answer's so far
  bool tokens = false;  // L2: their tokens, which it says itself

  // "L2", "L1", "L0", "opaque".
  std::string_view level() const;
  friend bool operator==(const ForeignAbilities&, const ForeignAbilities&) = default;
};

// How an answer may go on: one of these has to be the next worker's.
enum class ForeignNeed { kNone, kChat, kText, kTokens };
bool meets(const ForeignAbilities& abilities, ForeignNeed need);

}  // namespace pelton::gateway
