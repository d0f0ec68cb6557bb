// Structures of pelton.h as programs have them that were compiled against another version of it:
// shorter, with fewer fields, or longer. Pure functions; any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "base/result.h"

namespace pelton::c_api {

// `defaults` and zeros behind it into the caller's `size` bytes.
template <typename T>
void init_struct(T defaults, T* out, size_t size) {
  if (out == nullptr || size < sizeof(size_t)) return;
  defaults.size = size;
  std::memset(static_cast<void*>(out), 0, size);
  std::memcpy(static_cast<void*>(out), &defaults, std::min(size, sizeof(T)));
}

// kInvalidArgument of one that was not initialised.
template <typename T>
Result<void> check_sized(const T* given, std::string_view name) {
  // Sizes end where a field does: all are filled up to whole words.
  const bool is_sized = given->size >= 2 * sizeof(size_t) && given->size % sizeof(size_t) == 0 &&
                        given->size <= 64 * sizeof(T);
  if (is_sized) return {};
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("'{0}' has no size: begin with pelton_{0}_init", name),
               std::string(name)};
}

// The caller's values over `defaults`. Errors: kInvalidArgument of one that was not initialised,
// kUnsupported where it sets a field that comes after those known here.
template <typename T>
Result<T> read_struct(T defaults, const T* given, std::string_view name) {
  TRY(check_sized(given, name));
  const auto* const bytes = reinterpret_cast<const unsigned char*>(given);
  const bool sets_more =
      given->size > sizeof(T) && std::any_of(bytes + sizeof(T), bytes + given->size,
                                             [](unsigned char byte) { return byte != 0; });
  if (sets_more) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("'{}' sets a field that this libpelton is too old for", name),
                 std::string(name)};
  }
  std::memcpy(static_cast<void*>(&defaults), given, std::min(given->size, sizeof(T)));
  return defaults;
}

// As much of `values` as the caller, whose structure is sized, has room for.
template <typename T>
void write_struct(T values, T* out) {
  if (out == nullptr) return;
  values.size = out->size;
  std::memcpy(static_cast<void*>(out), &values, std::min(out->size, sizeof(T)));
}

}  // namespace pelton::c_api
