#include "jinja/functions.h"

#include <algorithm>
#include <ctime>

#include <fmt/format.h>

namespace pelton::jinja {
namespace {

// As the sandbox has it.
constexpr int64_t kRangeMax = 100'000;

using Call = Result<Value> (*)(Runtime& runtime, const Arguments& arguments);

class Function final : public Object {
 public:
  explicit Function(Call call) : call_(call) {}
  std::string_view type_name() const override { return "function"; }
  bool is_callable() const override { return true; }
  Result<Value> call(Runtime& runtime, Arguments arguments) override {
    return call_(runtime, arguments);
  }

 private:
  const Call call_;
};

// joiner(', ')(): nothing the first time, then the separator.
class Joiner final : public Object {
 public:
  explicit Joiner(Value separator) : separator_(std::move(separator)) {}
  std::string_view type_name() const override { return "joiner"; }
  bool is_callable() const override { return true; }
  Result<Value> call(Runtime&, Arguments arguments) override {
    TRY(bind("joiner", arguments, {}, 0));
    if (std::exchange(used_, true)) return separator_;
    return Value(Text());
  }

 private:
  const Value separator_;
  bool used_ = false;
};

class Cycle final : public Object {
 public:
  explicit Cycle(size_t index) : index_(index) {}
  std::string_view type_name() const override { return "function"; }
  bool is_callable() const override { return true; }
  Result<Value> call(Runtime&, Arguments arguments) override {
    if (arguments.positional.empty()) return failure("loop.cycle() needs values");
    return arguments.positional[index_ % arguments.positional.size()];
  }

 private:
  const size_t index_;
};

Result<Value> raise(Runtime&, const Arguments& arguments) {
  TRY_ASSIGN(const auto bound, bind("raise_exception", arguments, {"message"}, 1));
  const bool has_words = bound[0]->is_string() && !bound[0]->as_text().empty();
  return failure(has_words ? bound[0]->as_string() : "the template raised an exception");
}

Result<Value> format_time(Runtime& runtime, const Arguments& arguments) {
  TRY_ASSIGN(const auto bound, bind("strftime_now", arguments, {"format"}, 1));
  if (!bound[0]->is_string()) return failure("strftime_now() needs a format");
  const std::time_t seconds = runtime.unix_seconds();
  std::tm time = {};
  gmtime_r(&seconds, &time);
  const std::string& format = bound[0]->as_string();
  // A leading word makes the empty text differ from one that does not fit.
  char buffer[512];
  const size_t size = std::strftime(buffer, sizeof buffer, (" " + format).c_str(), &time);
  if (size == 0) return failure("strftime_now(): the format is too long");
  return Value(Text(std::string(buffer + 1, size - 1)));
}

Result<Value> range(Runtime& runtime, const Arguments& arguments) {
  TRY_ASSIGN(const auto bound, bind("range", arguments, {"start", "stop", "step"}, 1));
  int64_t numbers[3] = {0, 0, 1};
  for (size_t i = 0; i < 3; ++i) {
    if (bound[i] == nullptr) continue;
    if (!bound[i]->is_integer()) {
      return failure(bound[i]->is_undefined() ? bound[i]->why_undefined()
                                              : "range() needs integers");
    }
    numbers[i] = bound[i]->as_integer();
  }
  auto [begin, end, step] = numbers;
  if (bound[1] == nullptr) std::swap(begin, end);
  if (step == 0) return failure("range(): the step cannot be zero");
  std::vector<Value> items;
  for (int64_t at = begin; step > 0 ? at < end : at > end;) {
    items.emplace_back(at);
    if (static_cast<int64_t>(items.size()) > kRangeMax) {
      return failure(fmt::format("range() has more than {} numbers", kRangeMax));
    }
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  TRY(runtime.charge(items.size()));
  TRY(runtime.allocate_items(items.size()));
  return Value::list(std::move(items));
}

Result<Value> make_dict(Runtime& runtime, const Arguments& arguments) {
  Dict dict;
  if (!arguments.positional.empty()) {
    if (arguments.positional.size() > 1 || !arguments.positional[0].is_dict()) {
      return failure("dict() takes a dict and named values");
    }
    TRY(runtime.allocate_items(2 * arguments.positional[0].as_dict().members.size()));
    dict.members = arguments.positional[0].as_dict().members;
  }
  for (const auto& [name, value] : arguments.named) {
    TRY(runtime.allocate_objects(2));
    TRY(runtime.allocate(name.size()));
    TRY_ASSIGN(const size_t at, find_member(runtime, dict, std::string_view(name)));
    if (at < dict.members.size()) {
      dict.members[at].second = value;
    } else {
      dict.members.emplace_back(Value::own(name), value);
    }
  }
  return Value::dict(std::move(dict));
}

Result<Value> make_joiner(Runtime&, const Arguments& arguments) {
  TRY_ASSIGN(const auto bound, bind("joiner", arguments, {"sep"}, 0));
  Value separator = bound[0] != nullptr ? *bound[0] : Value::own(", ");
  return Value(std::static_pointer_cast<Object>(std::make_shared<Joiner>(std::move(separator))));
}

struct NamedFunction {
  std::string_view name;
  Call call;
};

constexpr NamedFunction kFunctions[] = {
    {"raise_exception", raise}, {"strftime_now", format_time}, {"range", range},
    {"dict", make_dict},        {"joiner", make_joiner},
};

}  // namespace

std::optional<Value> Namespace::attribute(std::string_view name) const {
  for (const auto& [member, value] : members_) {
    if (member == name) return value;
  }
  return std::nullopt;
}

void Namespace::set(std::string_view name, Value value) {
  for (auto& [member, held] : members_) {
    if (member != name) continue;
    held = std::move(value);
    return;
  }
  members_.emplace_back(name, std::move(value));
}

std::optional<Value> Loop::attribute(std::string_view name) const {
  const size_t size = items_->size();
  if (name == "index") return Value::count(index_ + 1);
  if (name == "index0") return Value::count(index_);
  if (name == "revindex") return Value::count(size - index_);
  if (name == "revindex0") return Value::count(size - index_ - 1);
  if (name == "first") return Value(index_ == 0);
  if (name == "last") return Value(index_ + 1 == size);
  if (name == "length") return Value::count(size);
  // Of recursion, which is not there.
  if (name == "depth") return Value(int64_t{1});
  if (name == "depth0") return Value(int64_t{0});
  if (name == "previtem") {
    return index_ > 0 ? (*items_)[index_ - 1] : Value::undefined("there is no previous item");
  }
  if (name == "nextitem") {
    return index_ + 1 < size ? (*items_)[index_ + 1] : Value::undefined("there is no next item");
  }
  if (name != "cycle") return std::nullopt;
  return Value(std::static_pointer_cast<Object>(std::make_shared<Cycle>(index_)));
}

Value find_function(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kFunctions), std::end(kFunctions),
                                         [&](const NamedFunction& f) { return f.name == name; });
  if (found == std::end(kFunctions)) return {};
  return Value(std::static_pointer_cast<Object>(std::make_shared<Function>(found->call)));
}

}  // namespace pelton::jinja
