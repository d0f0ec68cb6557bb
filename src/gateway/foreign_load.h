// What a foreign server's /metrics say of its load, in the names that its kind gives them. Pure.
#pragma once

#include <optional>
#include <string_view>

#include "gateway/foreign_kind.h"

namespace pelton::gateway {

struct ForeignLoad {
  int running = 0;
  int waiting = 0;
  double kv_used = 0;  // 0 to 1
};

// The path that says it; empty: this kind says nothing of its load.
std::string_view foreign_load_path(WorkerKind kind);
// Series of one name (by model, by rank) are added up, shares taken as the largest. None: it lacks
// the number of requests that run.
std::optional<ForeignLoad> parse_foreign_load(WorkerKind kind, std::string_view page);

}  // namespace pelton::gateway
