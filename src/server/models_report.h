// All models by name, also those that are being loaded or could not be, as JSON: what GET
// /admin/models says. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/result.h"
#include "server/services.h"

namespace pelton::server {

// What models take of this machine's memory, by their names, in bytes.
struct ModelMemory {
  int64_t budget = 0;  // of all together
  int64_t left = 0;
  std::map<std::string, int64_t, std::less<>> by_model;
};

// {"models": [{"name", "aliases", "default", "state", "memory_bytes", "error"}, ...], "memory":
// {"budget_bytes", "left_bytes"}}. "default": answers requests that name no model; "error" is null
// but of one that failed, "memory_bytes" of one that has none.
std::string models_report(const Services& services, const ModelMemory& memory);
// One of them, by its own name: the element of that array. Errors: entry_named()'s.
Result<std::string> model_report(const Services& services, const ModelMemory& memory,
                                 std::string_view id);

}  // namespace pelton::server
