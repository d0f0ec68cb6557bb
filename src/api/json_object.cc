#include "api/json_object.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "api/fields.h"
#include "base/json_visitor.h"
#include "base/utf8.h"

namespace pelton::api {
namespace {

constexpr size_t kShownPathMax = 200;  // bytes
// Up to so many members each is compared with each, which needs no memory.
constexpr size_t kFewMembers = 8;

const std::string* duplicate_of_few(const Json::Object& members) {
  for (size_t i = 1; i < members.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (members[i].key == members[j].key) return &members[i].key;
    }
  }
  return nullptr;
}

// One bit for each of many hashes: keys that share a bit with another one, some eighth of all, are
// sorted and compared. Whoever makes keys of one hash makes us sort them all, no more. Of the keys
// a0 to a99 and a7 once more there are 1024 bits; both a7 share theirs, and so do some ten others
// by chance: these are sorted, and the two a7 stand side by side.
const std::string* duplicate_of_many(const Json::Object& members) {
  const size_t bits = std::bit_ceil(members.size() * 8);
  const auto bit_of = [&](const std::string& key) {
    return std::hash<std::string_view>{}(key) & (bits - 1);
  };
  std::vector<bool> met(bits), met_again(bits);
  for (const Json::Member& member : members) {
    const size_t bit = bit_of(member.key);
    if (met[bit]) met_again[bit] = true;
    met[bit] = true;
  }
  std::vector<std::string_view> keys;
  for (const Json::Member& member : members) {
    if (met_again[bit_of(member.key)]) keys.push_back(member.key);
  }
  std::sort(keys.begin(), keys.end());
  const auto found = std::adjacent_find(keys.begin(), keys.end());
  if (found == keys.end()) return nullptr;
  return &std::ranges::find(members, *found, &Json::Member::key)->key;
}

bool holds_values(const Json& value) {
  return value.is_object() || value.is_array();
}

// The path of a key that stands twice in one object; nothing if none does. {"messages": [{"role":
// "user", "role": "system"}]}: found in the innermost object as ".role", on the way out "[0]" and
// ".messages" come in front; check_object drops the first dot: "messages[0].role".
std::optional<std::string> duplicate_key(const Json& value) {
  if (value.is_array()) {
    const Json::Array& items = value.as_array();
    for (size_t i = 0; i < items.size(); ++i) {
      if (!holds_values(items[i])) continue;
      if (auto path = duplicate_key(items[i])) return item_path("", i) + *std::move(path);
    }
  }
  if (!value.is_object()) return std::nullopt;
  const Json::Object& members = value.as_object();
  const std::string* twice =
      members.size() <= kFewMembers ? duplicate_of_few(members) : duplicate_of_many(members);
  if (twice != nullptr) return "." + *twice;
  for (const Json::Member& member : members) {
    if (!holds_values(member.value)) continue;
    if (auto path = duplicate_key(member.value)) return "." + member.key + *std::move(path);
  }
  return std::nullopt;
}

Error duplicate_error(std::string_view path) {
  return {ErrorCode::kInvalidArgument,
          fmt::format("'{}' stands twice in the body; give it once", path), std::string(path)};
}

// Remembers the body's own "model".
class ModelVisitor final : public base::JsonVisitor {
 public:
  bool begin_object() override { return begin("an object"); }
  bool end_object() override { return end(); }
  bool begin_array() override { return begin("an array"); }
  bool end_array() override { return end(); }
  bool key(std::string_view name) override {
    is_next_ = depth_ == 1 && name == "model";
    if (is_next_) ++count_;
    return true;
  }
  bool string(std::string_view value) override {
    if (depth_ == 0) return false;
    if (std::exchange(is_next_, false)) model_ = value;
    return true;
  }
  bool integer(int64_t /*value*/) override { return scalar("an integer"); }
  bool other(const Json& value) override {
    return scalar(value.is_null() ? std::string_view() : value.kind_name());
  }

  Result<std::string> take() {
    if (count_ > 1) return duplicate_error("model");
    if (kind_.empty()) return std::move(model_);
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("'model' must be a string, not {}", kind_), "model"};
  }

 private:
  bool begin(std::string_view kind) {
    scalar(kind);
    ++depth_;
    return true;
  }
  bool end() {
    --depth_;
    return true;
  }
  bool scalar(std::string_view kind) {
    if (std::exchange(is_next_, false)) kind_ = kind;
    return depth_ > 0;
  }

  int depth_ = 0;
  bool is_next_ = false;
  int count_ = 0;
  std::string model_;
  std::string_view kind_;  // what it is in place of a text; empty: a text, null, or nothing
};

}  // namespace

std::optional<Error> check_object(const Json& body) {
  if (!body.is_object()) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("the body must be a JSON object, not {}", body.kind_name()), ""};
  }
  const std::optional<std::string> path = duplicate_key(body);
  if (!path) return std::nullopt;
  std::string_view shown = std::string_view(*path).substr(1, kShownPathMax);
  return duplicate_error(shown.substr(0, base::valid_utf8_prefix(shown)));
}

Result<Json> parse_object(std::string_view body) {
  TRY_ASSIGN(Json json, Json::parse(body));
  if (std::optional<Error> error = check_object(json)) return *std::move(error);
  return json;
}

Result<std::string> model_asked(std::string_view body) {
  ModelVisitor visitor;
  const Result<void> visited = base::visit_json(body, visitor);
  if (!visited.ok() && visited.error().code != ErrorCode::kCancelled) return visited.error();
  return visitor.take();
}

}  // namespace pelton::api
