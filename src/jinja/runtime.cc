#include "jinja/runtime.h"

#include <algorithm>

#include <fmt/format.h>

namespace pelton::jinja {
namespace {

// A string, a method bound to a value, a list's head: what the allocator takes for the largest of
// these, without what it holds.
constexpr size_t kObjectBytes = 96;

}  // namespace

Result<void> Runtime::charge(size_t steps) {
  steps_ += std::min(steps, limits_.steps + 1);
  if (steps_ <= limits_.steps) return {};
  return failure(fmt::format("the template takes more than {} steps", limits_.steps));
}

Result<void> Runtime::allocate(size_t bytes) {
  bytes_ += std::min(bytes, limits_.bytes + 1);
  if (bytes_ > limits_.bytes) {
    return failure(fmt::format("the template makes more than {} bytes of values", limits_.bytes));
  }
  return charge(bytes / 64);
}

Result<void> Runtime::allocate(const Text& text) {
  return allocate(kObjectBytes + text.size() + text.input().size() * sizeof(Text::Range));
}

// A vector that grows holds its items twice.
Result<void> Runtime::allocate_items(size_t count) {
  return allocate(kObjectBytes + std::min(count, limits_.bytes) * 2 * sizeof(Value));
}

Result<void> Runtime::allocate_objects(size_t count) {
  return allocate(std::min(count, limits_.bytes) * (kObjectBytes + 2 * sizeof(Value)));
}

Result<size_t> find_member(Runtime& runtime, const Dict& dict, const Value& key) {
  if (key.is_string()) return find_member(runtime, dict, std::string_view(key.as_string()));
  const size_t count = dict.members.size();
  TRY(runtime.charge(count / 16));
  for (size_t i = 0; i < count; ++i) {
    const Value& name = dict.members[i].first;
    TRY(runtime.charge(std::min(name.comparison(), key.comparison()) - 1));
    if (name == key) return i;
  }
  return count;
}

// Strings of another length differ at once.
Result<size_t> find_member(Runtime& runtime, const Dict& dict, std::string_view key) {
  const size_t count = dict.members.size();
  TRY(runtime.charge(count / 16));
  for (size_t i = 0; i < count; ++i) {
    const Value& name = dict.members[i].first;
    if (!name.is_string() || name.as_string().size() != key.size()) continue;
    TRY(runtime.charge(key.size() / 64));
    if (name.as_string() == key) return i;
  }
  return count;
}

Result<std::vector<Value>> items_of(Runtime& runtime, const Value& value) {
  std::vector<Value> items;
  if (value.is_undefined()) return items;
  if (value.is_sequence()) {
    TRY(runtime.allocate_items(value.as_list().items.size()));
    TRY(runtime.charge(value.as_list().items.size()));
    items = value.as_list().items;
  } else if (value.is_dict()) {
    TRY(runtime.allocate_items(value.as_dict().members.size()));
    TRY(runtime.charge(value.as_dict().members.size()));
    for (const auto& [key, member] : value.as_dict().members) items.push_back(key);
  } else if (value.is_string()) {
    const Text& text = value.as_text();
    const size_t count = code_point_count(text.bytes());
    TRY(runtime.allocate_objects(count));
    TRY(runtime.allocate(count * sizeof(Text::Range)));
    items.reserve(count);
    for (size_t at = 0; at < text.size();) {
      const size_t size = code_point_offset(std::string_view(text.bytes()).substr(at), 1);
      items.emplace_back(text.slice(at, size));
      at += size;
    }
  } else {
    return failure(fmt::format("'{}' object is not iterable", value.type_name()));
  }
  return items;
}

}  // namespace pelton::jinja
