// What a path's query may say: a parameter that is not known, or that comes twice, is refused where
// leaving it out would do more or less than was asked for; likewise a body where none is read.
// Pure.
#pragma once

#include <initializer_list>
#include <string_view>

#include "base/result.h"

namespace pelton::net {

// Errors: kInvalidArgument, with the first parameter that is none of these, or comes again.
Result<void> check_query(std::string_view query, std::initializer_list<std::string_view> known);

// What clients send that have nothing to say: nothing, or "{}". Errors: kInvalidArgument.
Result<void> check_no_body(std::string_view body);

}  // namespace pelton::net
