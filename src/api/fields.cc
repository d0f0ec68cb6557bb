#include "api/fields.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace pelton::api {
namespace {

// Beyond so many members an object gets marks.
constexpr size_t kManyMembers = 256;

// Equal for equal keys: the length, the first, the middle and the last byte. "temperature" is 11,
// t, r, e: 0x0B747265. Whoever makes many keys with one mark makes us compare them, no more.
uint32_t mark_of(std::string_view key) {
  const auto byte = [&](size_t at) { return static_cast<uint32_t>(static_cast<uint8_t>(key[at])); };
  if (key.empty()) return 0;
  const auto size = static_cast<uint32_t>(key.size() & 255);
  return size << 24 | byte(0) << 16 | byte(key.size() / 2) << 8 | byte(key.size() - 1);
}

}  // namespace

Fields::Fields(const Json& object, std::string path, std::optional<Error>& complaint, Reads reads,
               FieldTable* table)
    : object_(object), path_(std::move(path)), complaint_(complaint), reads_(reads), table_(table) {
  CHECK(object.is_object());
  const Json::Object& members = object.as_object();
  if (members.size() <= kManyMembers) return;
  marks_.reserve(members.size());
  for (const Json::Member& member : members) marks_.push_back(mark_of(member.key));
}

std::string Fields::path(std::string_view key) const {
  if (path_.empty()) return std::string(key);
  if (key.empty()) return path_;
  return fmt::format("{}.{}", path_, key);
}

void Fields::refuse(std::string_view key, std::string message) const {
  if (complaint_) return;
  complaint_ = Error{ErrorCode::kInvalidArgument, std::move(message), path(key)};
}

void Fields::refuse_unsupported(std::string_view key, std::string_view what) const {
  refuse(key, fmt::format("'{}': {} is not supported by this server", path(key), what));
}

const Json* Fields::find(std::string_view key) const {
  if (table_ != nullptr) table_->note({.name = std::string(key)});
  if (reads_ == Reads::kKept) read_keys_.emplace_back(key);
  const Json* found = nullptr;
  if (marks_.empty()) {
    found = object_.find(key);
  } else {
    const uint32_t mark = mark_of(key);
    const Json::Object& members = object_.as_object();
    for (size_t i = members.size(); i > 0 && found == nullptr; --i) {  // the last one counts
      if (marks_[i - 1] == mark && members[i - 1].key == key) found = &members[i - 1].value;
    }
  }
  return found == nullptr || found->is_null() ? nullptr : found;
}

void Fields::unread(VisitUnread visit) const {
  CHECK(reads_ == Reads::kKept, "the reads of this object were not kept");
  std::sort(read_keys_.begin(), read_keys_.end());
  for (const Json::Member& member : object_.as_object()) {
    if (member.value.is_null()) continue;
    if (std::binary_search(read_keys_.begin(), read_keys_.end(), member.key)) continue;
    visit(member.key, member.value);
  }
}

void Fields::refuse_unread(std::span<const std::string_view> harmless) const {
  unread([&](const std::string& key, const Json& value) {
    if (std::find(harmless.begin(), harmless.end(), key) != harmless.end()) return;
    const bool asks_for_nothing = (value.is_bool() && !value.as_bool()) ||
                                  (value.is_string() && value.as_string().empty()) ||
                                  (value.is_array() && value.as_array().empty());
    if (asks_for_nothing) return;
    refuse_unsupported(key.substr(0, 64), "this field");
  });
}

const Json* Fields::object(std::string_view key) const {
  if (table_ != nullptr)
    table_->note({.name = std::string(key), .kind = FieldTable::Kind::kObject});
  const Json* found = find(key);
  if (found == nullptr || found->is_object()) return found;
  refuse(key, fmt::format("'{}' must be an object, not {}", path(key), found->kind_name()));
  return nullptr;
}

const Json* Fields::array(std::string_view key, size_t items_max) const {
  if (table_ != nullptr)
    table_->note(
        {.name = std::string(key), .kind = FieldTable::Kind::kArray, .size_max = items_max});
  const Json* found = find(key);
  if (found == nullptr) return nullptr;
  if (!found->is_array()) {
    refuse(key, fmt::format("'{}' must be an array, not {}", path(key), found->kind_name()));
    return nullptr;
  }
  if (found->as_array().size() > items_max) {
    refuse(key, fmt::format("'{}' has {} items; at most {} are allowed", path(key),
                            found->as_array().size(), items_max));
    return nullptr;
  }
  return found;
}

std::optional<double> Fields::number(std::string_view key, const NumberRange& range) const {
  if (table_ != nullptr)
    table_->note({.name = std::string(key), .kind = FieldTable::Kind::kNumber, .numbers = range});
  const Json* found = find(key);
  if (found == nullptr) return std::nullopt;
  if (!found->is_number()) {
    refuse(key, fmt::format("'{}' must be a number, not {}", path(key), found->kind_name()));
    return std::nullopt;
  }
  const double value = found->as_number();
  const bool low_enough = range.low_open ? value > range.low : value >= range.low;
  if (!std::isfinite(value) || !low_enough || value > range.high) {
    refuse(key, fmt::format("'{}' must be {} {} and at most {}, not {}", path(key),
                            range.low_open ? "above" : "at least", range.low, range.high, value));
    return std::nullopt;
  }
  return value;
}

std::optional<int64_t> Fields::integer(std::string_view key, const IntegerRange& range) const {
  if (table_ != nullptr)
    table_->note({.name = std::string(key), .kind = FieldTable::Kind::kInteger, .integers = range});
  const Json* found = find(key);
  if (found == nullptr) return std::nullopt;
  const std::optional<int64_t> value = exact_integer(*found);
  if (!value) {
    refuse(key,
           found->is_number()
               ? fmt::format("'{}' must be an integer from {} to {}, not {}", path(key), range.low,
                             range.high, found->as_number())
               : fmt::format("'{}' must be an integer, not {}", path(key), found->kind_name()));
    return std::nullopt;
  }
  if (*value < range.low || *value > range.high) {
    refuse(key, range.high == std::numeric_limits<int64_t>::max()
                    ? fmt::format("'{}' must be at least {}, not {}", path(key), range.low, *value)
                    : fmt::format("'{}' must be an integer from {} to {}, not {}", path(key),
                                  range.low, range.high, *value));
    return std::nullopt;
  }
  return value;
}

std::optional<bool> Fields::boolean(std::string_view key) const {
  if (table_ != nullptr)
    table_->note({.name = std::string(key), .kind = FieldTable::Kind::kBoolean});
  const Json* found = find(key);
  if (found == nullptr) return std::nullopt;
  if (found->is_bool()) return found->as_bool();
  refuse(key, fmt::format("'{}' must be true or false, not {}", path(key), found->kind_name()));
  return std::nullopt;
}

const std::string* Fields::text(std::string_view key, size_t bytes_max) const {
  if (table_ != nullptr)
    table_->note(
        {.name = std::string(key), .kind = FieldTable::Kind::kText, .size_max = bytes_max});
  const Json* found = find(key);
  if (found == nullptr) return nullptr;
  if (!found->is_string()) {
    refuse(key, fmt::format("'{}' must be a string, not {}", path(key), found->kind_name()));
    return nullptr;
  }
  if (found->as_string().size() > bytes_max) {
    refuse(key, fmt::format("'{}' is {} bytes long; at most {} are allowed", path(key),
                            found->as_string().size(), bytes_max));
    return nullptr;
  }
  return &found->as_string();
}

void check_word(const Fields& fields, std::string_view key,
                std::span<const std::string_view> words) {
  const std::string* word = fields.text(key, 64);
  if (word == nullptr || std::ranges::find(words, *word) != words.end()) return;
  fields.refuse(key,
                fmt::format("'{}' must be '{}'", fields.path(key), fmt::join(words, "' or '")));
}

void refuse_two_values(const Fields& body, std::string_view key, std::string_view other) {
  body.refuse(key, fmt::format("'{}' and '{}' say different things of one; give one of them",
                               body.path(key), body.path(other)));
}

std::string item_path(std::string_view array_path, size_t index) {
  return fmt::format("{}[{}]", array_path, index);
}

std::optional<int64_t> exact_integer(const Json& value) {
  if (value.is_integer()) return value.as_integer();
  if (!value.is_number()) return std::nullopt;
  const double number = value.as_number();
  // Beyond 2^53 a double no longer names one integer.
  if (number != std::floor(number) || std::abs(number) > 9007199254740992.0) return std::nullopt;
  return static_cast<int64_t>(number);
}

std::optional<double> read_timeout(const Fields& body) {
  constexpr double kDaySeconds = 86'400;
  return body.number("timeout", {.low = 0.0, .high = kDaySeconds, .low_open = true});
}

}  // namespace pelton::api
