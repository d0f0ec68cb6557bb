// Errors across the boundary: a code, and a sentence kept for the thread that asked. Any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/function_ref.h"
#include "base/result.h"
#include "c_api/pelton.h"

namespace pelton::c_api {

// Keeps the message for pelton_error_message().
pelton_status fail(const Error& error);

// What `body` comes to; an exception that it throws is an error, too.
pelton_status guarded(base::FunctionRef<Result<pelton_status>()> body);

// kInvalidArgument: an argument that may not be null is.
Result<void> check_given(const void* argument, std::string_view name);

// `values` into a caller's buffer with room for `*count`, which becomes their number.
template <typename T>
Result<pelton_status> fill(std::span<const T> values, T* buffer, size_t* count) {
  const size_t room = buffer == nullptr ? 0 : *count;
  *count = values.size();
  if (room < values.size()) return PELTON_BUFFER_TOO_SMALL;
  std::copy(values.begin(), values.end(), buffer);
  return PELTON_OK;
}

}  // namespace pelton::c_api
