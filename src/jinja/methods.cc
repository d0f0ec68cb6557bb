#include "jinja/methods.h"

#include <algorithm>

#include <fmt/format.h>

namespace pelton::jinja {
namespace {

class BoundMethod final : public Object {
 public:
  BoundMethod(Value self, Method method) : self_(std::move(self)), method_(method) {}
  std::string_view type_name() const override { return "method"; }
  bool is_callable() const override { return true; }
  Result<Value> call(Runtime& runtime, Arguments arguments) override {
    return method_(runtime, self_, arguments);
  }

 private:
  const Value self_;
  const Method method_;
};

Result<Value> keys(Runtime& runtime, const Value& self, const Arguments& arguments) {
  TRY(bind("keys", arguments, {}, 0));
  TRY_ASSIGN(std::vector<Value> items, items_of(runtime, self));
  return Value::list(std::move(items));
}

Result<Value> values(Runtime& runtime, const Value& self, const Arguments& arguments) {
  TRY(bind("values", arguments, {}, 0));
  TRY(runtime.allocate_items(self.as_dict().members.size()));
  std::vector<Value> items;
  for (const auto& [key, value] : self.as_dict().members) items.push_back(value);
  return Value::list(std::move(items));
}

Result<Value> items(Runtime& runtime, const Value& self, const Arguments& arguments) {
  TRY(bind("items", arguments, {}, 0));
  std::vector<Value> pairs;
  TRY(runtime.allocate_objects(2 * self.as_dict().members.size()));
  for (const auto& [key, value] : self.as_dict().members) {
    TRY_ASSIGN(Value pair, Value::tuple({key, value}));
    pairs.push_back(std::move(pair));
  }
  return Value::list(std::move(pairs));
}

Result<Value> get(Runtime& runtime, const Value& self, const Arguments& arguments) {
  TRY_ASSIGN(const auto bound, bind("get", arguments, {"key", "default"}, 1));
  const auto& members = self.as_dict().members;
  TRY_ASSIGN(const size_t at, find_member(runtime, self.as_dict(), *bound[0]));
  if (at < members.size()) return members[at].second;
  return bound[1] != nullptr ? *bound[1] : Value(None{});
}

Result<Value> copy(Runtime&, const Value& self, const Arguments& arguments) {
  TRY(bind("copy", arguments, {}, 0));
  return self;
}

Result<Value> index(Runtime& runtime, const Value& self, const Arguments& arguments) {
  TRY_ASSIGN(const auto bound, bind("index", arguments, {"value"}, 1));
  TRY(runtime.charge(std::min(self.comparison(), self.weight() * bound[0]->comparison())));
  const std::vector<Value>& list = self.as_list().items;
  const auto found = std::find(list.begin(), list.end(), *bound[0]);
  if (found == list.end()) return failure("index(): the list has no such item");
  return Value(static_cast<int64_t>(found - list.begin()));
}

Result<Value> count(Runtime& runtime, const Value& self, const Arguments& arguments) {
  TRY_ASSIGN(const auto bound, bind("count", arguments, {"value"}, 1));
  TRY(runtime.charge(std::min(self.comparison(), self.weight() * bound[0]->comparison())));
  const std::vector<Value>& list = self.as_list().items;
  return Value(static_cast<int64_t>(std::count(list.begin(), list.end(), *bound[0])));
}

constexpr NamedMethod kDictMethods[] = {
    {"keys", keys}, {"values", values}, {"items", items}, {"get", get}, {"copy", copy}};
constexpr NamedMethod kListMethods[] = {{"index", index}, {"count", count}, {"copy", copy}};
constexpr std::string_view kChangesDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::string_view kChangesList[] = {"append", "clear",  "extend",  "insert",
                                             "pop",    "remove", "reverse", "sort"};

template <size_t size>
Method find_in(const NamedMethod (&methods)[size], std::string_view name) {
  const auto* const found = std::find_if(std::begin(methods), std::end(methods),
                                         [&](const NamedMethod& m) { return m.name == name; });
  return found == std::end(methods) ? nullptr : found->method;
}

template <size_t size>
bool has(const std::string_view (&names)[size], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

}  // namespace

std::optional<Value> method_of(const Value& value, std::string_view name) {
  Method method = nullptr;
  bool changes = false;
  if (value.is_string()) {
    method = find_string_method(name);
  } else if (value.is_dict()) {
    method = find_in(kDictMethods, name);
    changes = has(kChangesDict, name);
  } else if (value.is_sequence()) {
    method = find_in(kListMethods, name);
    changes = value.is_list() && has(kChangesList, name);
  }
  if (changes) {
    return Value::undefined(
        fmt::format("access to attribute '{}' of '{}' object is unsafe: values cannot be changed",
                    name, value.type_name()));
  }
  if (method == nullptr) return std::nullopt;
  return Value(std::static_pointer_cast<Object>(std::make_shared<BoundMethod>(value, method)));
}

}  // namespace pelton::jinja
