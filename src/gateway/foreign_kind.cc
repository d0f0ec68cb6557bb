#include "gateway/foreign_kind.h"

namespace pelton::gateway {

std::string_view worker_kind_name(WorkerKind kind) {
  switch (kind) {
    case WorkerKind::kPelton:
      return "pelton";
    case WorkerKind::kOpenAi:
      return "openai";
    case WorkerKind::kVllm:
      return "vllm";
    case WorkerKind::kSglang:
      return "sglang";
    case WorkerKind::kLlamaCpp:
      return "llamacpp";
    case WorkerKind::kRegion:
      return "region";
  }
  return "pelton";
}

std::string_view ForeignAbilities::level() const {
  if (tokens) return "L2";
  if (text) return "L1";
  return chat ? "L0" : "opaque";
}

bool meets(const ForeignAbilities& abilities, ForeignNeed need) {
  switch (need) {
    case ForeignNeed::kNone:
      return true;
    case ForeignNeed::kChat:
      return abilities.chat;
    case ForeignNeed::kText:
      return abilities.text;
    case ForeignNeed::kTokens:
      return abilities.tokens;
  }
  return false;
}

}  // namespace pelton::gateway
