#include <algorithm>

#include <fmt/format.h>

#include "jinja/filters.h"
#include "jinja/operators.h"
#include "jinja/python_format.h"

namespace pelton::jinja {
namespace {

// "a.b.0" of a value, as map(attribute=...) has it.
Result<Value> attribute_path(Runtime& runtime, Value value, const Value& path) {
  if (!path.is_string()) return item_of(runtime, value, path);
  std::string_view left = path.as_string();
  while (true) {
    const size_t dot = left.find('.');
    const std::string_view name = left.substr(0, dot);
    const bool is_index = !name.empty() && std::all_of(name.begin(), name.end(),
                                                       [](char c) { return c >= '0' && c <= '9'; });
    const Value key = is_index && name.size() < 10 ? Value(int64_t{std::stoi(std::string(name))})
                                                   : Value::own(name);
    TRY_ASSIGN(value, item_of(runtime, value, key));
    if (dot == std::string_view::npos) return value;
    left.remove_prefix(dot + 1);
  }
}

Result<Value> as_list(Runtime& runtime, const Value& value, const Arguments& arguments) {
  TRY(bind("list", arguments, {}, 0));
  TRY_ASSIGN(std::vector<Value> items, items_of(runtime, value));
  return Value::list(std::move(items));
}

Result<Value> pairs(Runtime& runtime, const Value& value, const Arguments& arguments) {
  TRY(bind("items", arguments, {}, 0));
  if (value.is_undefined()) return Value::list({});
  if (!value.is_dict()) return failure("items: can only get item pairs from a mapping");
  TRY(runtime.charge(value.as_dict().members.size()));
  TRY(runtime.allocate_objects(2 * value.as_dict().members.size()));
  std::vector<Value> out;
  for (const auto& [key, member] : value.as_dict().members) {
    TRY_ASSIGN(Value pair, Value::tuple({key, member}));
    out.push_back(std::move(pair));
  }
  return Value::list(std::move(out));
}

Result<Value> join(Runtime& runtime, const Value& value, const Arguments& arguments) {
  TRY_ASSIGN(const auto bound, bind("join", arguments, {"d", "attribute"}, 0));
  TRY_ASSIGN(std::vector<Value> items, items_of(runtime, value));
  Text separator;
  if (bound[0] != nullptr) {
    TRY_ASSIGN(separator, to_text(runtime, *bound[0]));
  }
  Text out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (bound[1] != nullptr) {
      TRY_ASSIGN(items[i], attribute_path(runtime, items[i], *bound[1]));
    }
    TRY_ASSIGN(const Text text, to_text(runtime, items[i]));
    TRY(runtime.allocate(3 * (text.size() + separator.size())));
    TRY(runtime.allocate(separator.input().size() * 2 * sizeof(Text::Range)));
    if (i > 0) out.append(separator);
    out.append(text);
  }
  return Value(std::move(out));
}

// map('upper'), map('replace', 'a', 'b'), map(attribute='role', default='user').
Result<Value> map(Runtime& runtime, const Value& value, const Arguments& arguments) {
  if (!value.truth()) return Value::list({});  // none, too
  TRY_ASSIGN(std::vector<Value> items, items_of(runtime, value));
  const Value* attribute = nullptr;
  const Value* otherwise = nullptr;
  for (const auto& [name, given] : arguments.named) {
    if (name == "attribute") attribute = &given;
    if (name == "default") otherwise = &given;
  }
  if (attribute == nullptr &&
      (arguments.positional.empty() || !arguments.positional[0].is_string())) {
    return failure("map() needs a filter's name or attribute=");
  }
  for (Value& item : items) {
    if (attribute != nullptr) {
      TRY_ASSIGN(item, attribute_path(runtime, std::move(item), *attribute));
      if (item.is_undefined() && otherwise != nullptr) item = *otherwise;
      continue;
    }
    TRY(runtime.charge(arguments.positional.size() + arguments.named.size()));
    Arguments rest;
    rest.positional.assign(arguments.positional.begin() + 1, arguments.positional.end());
    rest.named = arguments.named;
    TRY_ASSIGN(item, runtime.apply_filter(arguments.positional[0].as_string(), std::move(item),
                                          std::move(rest)));
  }
  return Value::list(std::move(items));
}

enum class Keep { kIf, kUnless };
enum class By { kItem, kAttribute };

// select('odd'), selectattr('role', 'equalto', 'user') and their opposites.
template <Keep keep, By by>
Result<Value> choose(Runtime& runtime, const Value& value, const Arguments& arguments) {
  if (!value.truth()) return Value::list({});
  TRY_ASSIGN(const std::vector<Value> items, items_of(runtime, value));
  const size_t skipped = by == By::kAttribute ? 1 : 0;
  if (arguments.positional.size() < skipped) return failure("selectattr() needs an attribute");
  Arguments rest;
  std::string test;
  if (arguments.positional.size() > skipped) {
    const Value& name = arguments.positional[skipped];
    if (!name.is_string()) return failure("select() needs a test's name");
    test = name.as_string();
    rest.positional.assign(arguments.positional.begin() + static_cast<std::ptrdiff_t>(skipped) + 1,
                           arguments.positional.end());
    rest.named = arguments.named;
  }
  TRY(runtime.allocate_items(items.size()));
  std::vector<Value> kept;
  for (const Value& item : items) {
    Value tested = item;
    if (by == By::kAttribute) {
      TRY_ASSIGN(tested, attribute_path(runtime, item, arguments.positional[0]));
    }
    bool holds = tested.truth();
    if (!test.empty()) {
      TRY_ASSIGN(holds, runtime.apply_test(test, tested, rest));
    }
    if (holds == (keep == Keep::kIf)) kept.push_back(item);
  }
  return Value::list(std::move(kept));
}

// What items are ordered and compared by: an attribute, in lower case unless asked otherwise.
Result<Value> sort_key(Runtime& runtime, const Value& item, const Value* attribute, bool exact) {
  Value key = item;
  if (attribute != nullptr && !attribute->is_none()) {
    TRY_ASSIGN(key, attribute_path(runtime, item, *attribute));
  }
  if (exact || !key.is_string()) return key;
  TRY(runtime.allocate(key.as_text()));
  return Value(key.as_text().transformed(to_case(key.as_string(), LetterCase::kLower)));
}

struct Keyed {
  Value key;
  Value item;
};

Result<std::vector<Keyed>> keyed_items(Runtime& runtime, const Value& value, const Value* attribute,
                                       const Value* case_sensitive) {
  TRY_ASSIGN(const std::vector<Value> items, items_of(runtime, value));
  const bool exact = case_sensitive != nullptr && case_sensitive->truth();
  TRY(runtime.allocate_items(8 * items.size()));  // sorted, and taken out again
  std::vector<Keyed> keyed;
  for (const Value& item : items) {
    TRY_ASSIGN(Value key, sort_key(runtime, item, attribute, exact));
    keyed.push_back({std::move(key), item});
  }
  return keyed;
}

// Stable. An insertion into a sorted list by halves: comparisons may fail, which std::sort cannot
// say.
Result<void> sort_keyed(Runtime& runtime, std::vector<Keyed>& all, bool reverse) {
  std::vector<Keyed> sorted;
  for (Keyed& next : all) {
    size_t begin = 0;
    size_t end = sorted.size();
    while (begin < end) {
      const size_t middle = (begin + end) / 2;
      TRY(runtime.charge(1 + std::min(next.key.comparison(), sorted[middle].key.comparison())));
      TRY_ASSIGN(const bool before, reverse ? is_less(sorted[middle].key, next.key)
                                            : is_less(next.key, sorted[middle].key));
      (before ? end : begin) = before ? middle : middle + 1;
    }
    TRY(runtime.charge((sorted.size() - begin) / 16));
    sorted.insert(sorted.begin() + static_cast<std::ptrdiff_t>(begin), std::move(next));
  }
  all = std::move(sorted);
  return {};
}

Result<Value> sort(Runtime& runtime, const Value& value, const Arguments& arguments) {
  TRY_ASSIGN(const auto bound,
             bind("sort", arguments, {"reverse", "case_sensitive", "attribute"}, 0));
  TRY_ASSIGN(std::vector<Keyed> keyed, keyed_items(runtime, value, bound[2], bound[1]));
  TRY(sort_keyed(runtime, keyed, bound[0] != nullptr && bound[0]->truth()));
  std::vector<Value> items;
  for (Keyed& item : keyed) items.push_back(std::move(item.item));
  return Value::list(std::move(items));
}

Result<Value> dictsort(Runtime& runtime, const Value& value, const Arguments& arguments) {
  TRY_ASSIGN(const auto bound, bind("dictsort", arguments, {"case_sensitive", "by", "reverse"}, 0));
  if (value.is_undefined()) return failure(value.why_undefined());
  TRY_ASSIGN(const Value items, pairs(runtime, value, {}));
  const bool by_value = bound[1] != nullptr && *bound[1] == Value::own("value");
  const Value position(int64_t{by_value ? 1 : 0});
  TRY_ASSIGN(std::vector<Keyed> keyed, keyed_items(runtime, items, &position, bound[0]));
  TRY(sort_keyed(runtime, keyed, bound[2] != nullptr && bound[2]->truth()));
  std::vector<Value> out;
  for (Keyed& item : keyed) out.push_back(std::move(item.item));
  return Value::list(std::move(out));
}

Result<Value> unique(Runtime& runtime, const Value& value, const Arguments& arguments) {
  TRY_ASSIGN(const auto bound, bind("unique", arguments, {"case_sensitive", "attribute"}, 0));
  TRY_ASSIGN(std::vector<Keyed> keyed, keyed_items(runtime, value, bound[1], bound[0]));
  std::vector<Keyed> kept;
  for (Keyed& item : keyed) {
    for (const Keyed& other : kept) {
      TRY(runtime.charge(std::min(other.key.comparison(), item.key.comparison())));
    }
    const bool is_new = std::none_of(kept.begin(), kept.end(),
                                     [&](const Keyed& other) { return other.key == item.key; });
    if (is_new) kept.push_back(std::move(item));
  }
  std::vector<Value> items;
  for (Keyed& item : kept) items.push_back(std::move(item.item));
  return Value::list(std::move(items));
}

Result<Value> groupby(Runtime& runtime, const Value& value, const Arguments& arguments) {
  TRY_ASSIGN(const auto bound,
             bind("groupby", arguments, {"attribute", "default", "case_sensitive"}, 1));
  TRY_ASSIGN(std::vector<Keyed> keyed, keyed_items(runtime, value, bound[0], bound[2]));
  TRY(sort_keyed(runtime, keyed, false));
  std::vector<Value> groups;
  for (size_t begin = 0; begin < keyed.size();) {
    TRY(runtime.allocate_objects(3));
    std::vector<Value> items;
    size_t end = begin;
    while (end < keyed.size() && keyed[end].key == keyed[begin].key) {
      items.push_back(keyed[end++].item);
    }
    TRY_ASSIGN(Value list, Value::list(std::move(items)));
    TRY_ASSIGN(Value group, Value::tuple({keyed[begin].key, std::move(list)}));
    groups.push_back(std::move(group));
    begin = end;
  }
  return Value::list(std::move(groups));
}

template <Keep keep>  // kIf: the least
Result<Value> extreme(Runtime& runtime, const Value& value, const Arguments& arguments) {
  TRY_ASSIGN(const auto bound, bind("min", arguments, {"case_sensitive", "attribute"}, 0));
  TRY_ASSIGN(std::vector<Keyed> keyed, keyed_items(runtime, value, bound[1], bound[0]));
  if (keyed.empty()) return Value::undefined("an empty list has no least or greatest item");
  size_t best = 0;
  for (size_t i = 1; i < keyed.size(); ++i) {
    TRY(runtime.charge(std::min(keyed[i].key.comparison(), keyed[best].key.comparison())));
    TRY_ASSIGN(const bool better, keep == Keep::kIf ? is_less(keyed[i].key, keyed[best].key)
                                                    : is_less(keyed[best].key, keyed[i].key));
    if (better) best = i;
  }
  return keyed[best].item;
}

Result<Value> sum(Runtime& runtime, const Value& value, const Arguments& arguments) {
  TRY_ASSIGN(const auto bound, bind("sum", arguments, {"attribute", "start"}, 0));
  TRY_ASSIGN(const std::vector<Value> items, items_of(runtime, value));
  Value total = bound[1] != nullptr ? *bound[1] : Value(int64_t{0});
  for (const Value& item : items) {
    Value added = item;
    if (bound[0] != nullptr && !bound[0]->is_none()) {
      TRY_ASSIGN(added, attribute_path(runtime, item, *bound[0]));
    }
    TRY_ASSIGN(total, arithmetic(runtime, "+", total, added));
  }
  return total;
}

Result<Value> first(Runtime& runtime, const Value& value, const Arguments& arguments) {
  TRY(bind("first", arguments, {}, 0));
  TRY_ASSIGN(const std::vector<Value> items, items_of(runtime, value));
  return items.empty() ? Value::undefined("an empty list has no first item") : items.front();
}

Result<Value> last(Runtime& runtime, const Value& value, const Arguments& arguments) {
  TRY(bind("last", arguments, {}, 0));
  TRY_ASSIGN(const std::vector<Value> items, items_of(runtime, value));
  return items.empty() ? Value::undefined("an empty list has no last item") : items.back();
}

Result<Value> reverse(Runtime& runtime, const Value& value, const Arguments& arguments) {
  TRY(bind("reverse", arguments, {}, 0));
  const Value step(int64_t{-1});
  if (value.is_string()) return slice_of(runtime, value, nullptr, nullptr, &step);
  TRY_ASSIGN(std::vector<Value> items, items_of(runtime, value));
  std::reverse(items.begin(), items.end());
  return Value::list(std::move(items));
}

Result<int64_t> positive(std::string_view filter, const Value& value) {
  if (value.is_integer() && value.as_integer() > 0) return value.as_integer();
  return failure(fmt::format("{}() needs a positive integer", filter));
}

Result<Value> batch(Runtime& runtime, const Value& value, const Arguments& arguments) {
  TRY_ASSIGN(const auto bound, bind("batch", arguments, {"linecount", "fill_with"}, 1));
  TRY_ASSIGN(const int64_t size, positive("batch", *bound[0]));
  TRY_ASSIGN(const std::vector<Value> items, items_of(runtime, value));
  std::vector<Value> batches;
  for (size_t at = 0; at < items.size();) {
    std::vector<Value> part;
    while (at < items.size() && static_cast<int64_t>(part.size()) < size)
      part.push_back(items[at++]);
    TRY(runtime.allocate_objects(2));
    if (bound[1] != nullptr) TRY(runtime.allocate_items(static_cast<size_t>(size)));
    while (bound[1] != nullptr && static_cast<int64_t>(part.size()) < size)
      part.push_back(*bound[1]);
    TRY_ASSIGN(Value list, Value::list(std::move(part)));
    batches.push_back(std::move(list));
  }
  return Value::list(std::move(batches));
}

// In `slices` lists, the first ones longer by one.
Result<Value> slice(Runtime& runtime, const Value& value, const Arguments& arguments) {
  TRY_ASSIGN(const auto bound, bind("slice", arguments, {"slices"}, 1));
  TRY_ASSIGN(const int64_t count, positive("slice", *bound[0]));
  TRY(runtime.allocate_objects(static_cast<size_t>(std::min<int64_t>(count, int64_t{1} << 32))));
  TRY_ASSIGN(const std::vector<Value> items, items_of(runtime, value));
  const size_t slices = static_cast<size_t>(count);
  std::vector<Value> out;
  size_t at = 0;
  for (size_t i = 0; i < slices; ++i) {
    const size_t size = items.size() / slices + (i < items.size() % slices ? 1 : 0);
    const auto begin = items.begin() + static_cast<std::ptrdiff_t>(at);
    TRY_ASSIGN(Value list, Value::list({begin, begin + static_cast<std::ptrdiff_t>(size)}));
    out.push_back(std::move(list));
    at += size;
  }
  return Value::list(std::move(out));
}

constexpr NamedFilter kFilters[] = {
    {"list", as_list},
    {"items", pairs},
    {"join", join},
    {"map", map},
    {"select", choose<Keep::kIf, By::kItem>},
    {"reject", choose<Keep::kUnless, By::kItem>},
    {"selectattr", choose<Keep::kIf, By::kAttribute>},
    {"rejectattr", choose<Keep::kUnless, By::kAttribute>},
    {"sort", sort},
    {"dictsort", dictsort},
    {"unique", unique},
    {"groupby", groupby},
    {"min", extreme<Keep::kIf>},
    {"max", extreme<Keep::kUnless>},
    {"sum", sum},
    {"first", first},
    {"last", last},
    {"reverse", reverse},
    {"batch", batch},
    {"slice", slice},
};

}  // namespace

Filter find_list_filter(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kFilters), std::end(kFilters),
                                         [&](const NamedFilter& f) { return f.name == name; });
  return found == std::end(kFilters) ? nullptr : found->filter;
}

}  // namespace pelton::jinja
