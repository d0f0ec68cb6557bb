// The bodies of POST /v1/load_lora_adapter and /v1/unload_lora_adapter, as vLLM has them. Pure
// functions.
#pragma once

#include <string>
#include <string_view>

#include "api/generation_fields.h"
#include "base/result.h"

namespace pelton::api {

struct LoadLoraRequest {
  std::string name;
  std::string path;       // a folder
  std::string base;       // base_model_name; empty: the only model that has adapters
  bool in_place = false;  // one of this name is replaced
  bool pinned = false;    // it stays in memory
};
struct UnloadLoraRequest {
  std::string name;
};

// Errors: kInvalidArgument with the field.
Result<LoadLoraRequest> parse_load_lora_request(std::string_view body, const RequestLimits& limits);
Result<UnloadLoraRequest> parse_unload_lora_request(std::string_view body,
                                                    const RequestLimits& limits);

}  // namespace pelton::api
