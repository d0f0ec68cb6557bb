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
// sorted and compared. Whoever makes keys of one hash makes us sort them all, no more.
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

// The path of a key that stands twice in one object, "messages[0].role"; nothing if none does.
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

// Remembers the body's own "model": of several the last (whoever parses it refuses them).
class ModelVisitor final : public base::JsonVisitor {
 public:
  bool begin_object() override { return begin(); }
  bool end_object() override { return end(); }
  bool begin_array() override { return begin(); }
  bool end_array() override { return end(); }
  bool key(std::string_view name) override {
    is_next_ = depth_ == 1 && name == "model";
    return true;
  }
  bool string(std::string_view value) override {
    if (depth_ == 0) return false;
    if (std::exchange(is_next_, false)) model_ = value;
    return true;
  }
  bool integer(int64_t /*value*/) override { return scalar(); }
  bool other(const Json& /*value*/) override { return scalar(); }

  std::string take() { return std::move(model_); }

 private:
  bool begin() {
    if (std::exchange(is_next_, false)) model_.clear();
    ++depth_;
    return true;
  }
  bool end() {
    --depth_;
    return true;
  }
  bool scalar() {
    if (std::exchange(is_next_, false)) model_.clear();
    return depth_ > 0;
  }

  int depth_ = 0;
  bool is_next_ = false;
  std::string model_;
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
  shown = shown.substr(0, base::valid_utf8_prefix(shown));
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("'{}' stands twice in the body; give it once", shown),
               std::string(shown)};
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
