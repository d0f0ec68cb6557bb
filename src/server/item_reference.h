// Input items that a request to /v1/responses names by their ids alone ("item_reference"). An
// item's id says which response it belongs to, so nothing is kept to find it: not for long, not
// for many, and no tenant's items can push out another's. Pure but for the store that is asked; any
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "store/response_store.h"

namespace pelton::server {

struct ItemNumber {
  enum class Part : char { kInput = 'i', kOutput = 'o' } part = Part::kInput;
  uint64_t count = 0;
};
// "msg_", "resp_ABC" -> "msg_ABCi0".
std::string item_id(std::string_view prefix, std::string_view response_id,
                    const ItemNumber& number);
// The response's id; empty if it is no id of ours.
std::string response_of_item(std::string_view item_id);

// What the items that one request names may come to, as they are copied into it; and what has to be
// read to find them.
inline constexpr int kReferencesMax = 1024;
inline constexpr size_t kReferredBytesMax = size_t{32} << 20;

struct ItemSource {
  std::string_view owner;
  store::ResponseStore* store = nullptr;  // null: nothing is found
};
// The body with the items themselves where it only names them; none if it names none. Errors:
// kInvalidArgument.
Result<std::optional<Json>> with_referenced_items(const Json& body, const ItemSource& source);

}  // namespace pelton::server
