// What a template's run may cost, and what it knows of the world: the time. The interpreter and
// everything that it calls share one. One run's; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "jinja/value.h"

namespace pelton::jinja {

struct Limits {
  // Of work: a node of the tree, an item of a list, 64 bytes of a string.
  size_t steps = 5'000'000;
  // Of all that is made, together, with what it takes beside its contents. No run holds more.
  size_t bytes = size_t{256} << 20;
  size_t output_bytes = size_t{64} << 20;
  int depth = 800;  // of expressions, blocks and macros within each other
};

class Runtime {
 public:
  Runtime(const Limits& limits, int64_t unix_seconds)
      : limits_(limits), unix_seconds_(unix_seconds) {}
  virtual ~Runtime() = default;

  // Errors name the limit.
  // For work that makes nothing.
  Result<void> charge(size_t steps);
  // Ahead of what is made.
  Result<void> allocate(size_t bytes);
  Result<void> allocate(const Text& text);
  // A list of so many values that there are already, while it grows.
  Result<void> allocate_items(size_t count);
  // Small ones, each in a list: strings without their bytes, pairs, methods bound to a value.
  Result<void> allocate_objects(size_t count);

  const Limits& limits() const { return limits_; }
  int64_t unix_seconds() const { return unix_seconds_; }

  // What a filter that takes another's name does ("map", "select").
  virtual Result<Value> apply_filter(std::string_view name, Value value, Arguments arguments) = 0;
  virtual Result<bool> apply_test(std::string_view name, const Value& value,
                                  const Arguments& arguments) = 0;

 private:
  const Limits limits_;
  const int64_t unix_seconds_;
  size_t steps_ = 0;
  size_t bytes_ = 0;
};

// Which member of a dict has this key; as many as there are: none. Charged for what is compared:
// keys may be long.
Result<size_t> find_member(Runtime& runtime, const Dict& dict, const Value& key);
Result<size_t> find_member(Runtime& runtime, const Dict& dict, std::string_view key);

// The items that a loop goes over: of a list; a dict's keys; a string's characters; none of an
// undefined value. Error: anything else.
Result<std::vector<Value>> items_of(Runtime& runtime, const Value& value);

}  // namespace pelton::jinja
