// The functions that every template has, and the objects that they make. `lipsum`, `cycler` and
// what else Jinja has for web pages is not there.
#pragma once

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/runtime.h"
#include "jinja/value.h"

namespace pelton::jinja {

// namespace(a=1): what assignments in an inner scope reach. The only value that changes, so that it
// may come to hold itself: whoever runs a template empties those that it has made.
class Namespace final : public Object {
 public:
  std::string_view type_name() const override { return "Namespace"; }
  std::optional<Value> attribute(std::string_view name) const override;
  size_t attribute_count() const override { return members_.size(); }
  void set(std::string_view name, Value value);
  void clear() { members_.clear(); }

 private:
  std::vector<std::pair<std::string, Value>> members_;
};

// `loop` within a for.
class Loop final : public Object {
 public:
  explicit Loop(std::shared_ptr<const std::vector<Value>> items) : items_(std::move(items)) {}
  std::string_view type_name() const override { return "loop"; }
  std::optional<Value> attribute(std::string_view name) const override;
  void move_to(size_t index) { index_ = index; }

 private:
  const std::shared_ptr<const std::vector<Value>> items_;
  size_t index_ = 0;
};

// Undefined if there is none of that name. `namespace` is the interpreter's own.
Value find_function(std::string_view name);

}  // namespace pelton::jinja
