// Token ids as callers write them: integers below the vocabulary's size, each one checked. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "api/fields.h"
#include "api/generation_fields.h"
#include "base/token_id.h"

namespace pelton::api {

// Nothing, and a complaint that names the item, if one is none.
std::optional<std::vector<TokenId>> read_token_ids(const Json::Array& items,
                                                   const std::string& path, const Fields& body,
                                                   const RequestLimits& limits);

}  // namespace pelton::api
