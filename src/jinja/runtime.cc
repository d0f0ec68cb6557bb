#include "jinja/runtime.h"

#include <algorithm>

#include <fmt/format.h>

namespace pelton::jinja {

Result<void> Runtime::charge(size_t steps) {
  steps_ += std::min(steps, limits_.steps + 1);
  if (steps_ <= limits_.steps) return {};
  return failure(fmt::format("the template takes more than {} steps", limits_.steps));
}

Result<void> Runtime::allocate(size_t bytes) {
  bytes_ += std::min(bytes, limits_.bytes + 1);
  if (bytes_ > limits_.bytes) {
    return failure(fmt::format("the template makes more than {} bytes of text", limits_.bytes));
  }
  return charge(bytes / 64);
}

Result<std::vector<Value>> items_of(Runtime& runtime, const Value& value) {
  std::vector<Value> items;
  if (value.is_undefined()) return items;
  if (value.is_sequence()) {
    items = value.as_list().items;
  } else if (value.is_dict()) {
    for (const auto& [key, member] : value.as_dict().members) items.push_back(key);
  } else if (value.is_string()) {
    const Text& text = value.as_text();
    TRY(runtime.allocate(text.size() * sizeof(Value)));
    for (size_t at = 0; at < text.size();) {
      const size_t size = code_point_offset(std::string_view(text.bytes()).substr(at), 1);
      items.emplace_back(text.slice(at, size));
      at += size;
    }
  } else {
    return failure(fmt::format("'{}' object is not iterable", value.type_name()));
  }
  TRY(runtime.allocate(items.size() * sizeof(Value)));
  TRY(runtime.charge(items.size()));
  return items;
}

}  // namespace pelton::jinja
