// The bodies of POST /v1/load_lora_adapter and /v1/unload_lora_adapter, as vLLM has them. Pure
// functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "api/generation_fields.h"
#include "base/result.h"

namespace pelton::api {

inline constexpr size_t kAdapterNameBytesMax = 256;
// Whether an adapter may be named so: as the name stands in paths (GET /v1/models/NAME), none of
// its parts between slashes is empty, "." or "..", and it is UTF-8 without control characters.
bool is_adapter_name(std::string_view name);

struct LoadLoraRequest {
  std::string name;
  std::string path;       // a folder
  std::string base;       // base_model_name; empty: the only model that has adapters
  bool in_place = false;  // one of this name is replaced
  bool pinned = false;    // it stays in memory
  // Whether its experts' matrices are said to lie in one tensor each (is_3d_lora_weight).
  std::optional<bool> is_3d = {};
};
struct UnloadLoraRequest {
  std::string name;
  std::string base;  // base_model_name; empty: whichever model has it
};

// Errors: kInvalidArgument with the field.
Result<LoadLoraRequest> parse_load_lora_request(std::string_view body, const RequestLimits& limits);
Result<UnloadLoraRequest> parse_unload_lora_request(std::string_view body,
                                                    const RequestLimits& limits);

}  // namespace pelton::api
