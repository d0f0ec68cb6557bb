// The body of POST /v1/chains/NAME.
#pragma once

#include <optional>
#include <string_view>

#include "api/field_table.h"
#include "base/json.h"
#include "base/result.h"

namespace pelton::api {

struct ChainRequest {
  Json input;  // an object; what it must hold the chain knows
  bool stream = false;
  std::optional<double> timeout_s;
};

// `fields_read`: may be null. Errors: kInvalidArgument.
Result<ChainRequest> parse_chain_request(std::string_view body, FieldTable* fields_read);

}  // namespace pelton::api
