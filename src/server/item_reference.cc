#include "server/item_reference.h"

#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "api/fields.h"

namespace pelton::server {
namespace {

constexpr std::string_view kResponsePrefix = "resp_";
constexpr size_t kIdBytesMax = 256;

// The items of the responses that one request names, each read once.
class Finder {
 public:
  explicit Finder(const ItemSource& source) : source_(source) {}

  Result<Json> find(const std::string& id, const std::string& path) {
    if (++references_ > kReferencesMax) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("at most {} items may be named by their ids", kReferencesMax), path};
    }
    const std::string response = response_of_item(id);
    const auto unknown = [&] {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("Item with id '{}' not found.", id.substr(0, kIdBytesMax)), path};
    };
    if (response.empty() || source_.store == nullptr) return unknown();
    if (!read_.contains(response)) TRY(read(response, path));
    const auto found = items_.find(id);
    if (found == items_.end()) return unknown();
    TRY(count(found->second.bytes, path));
    return Json(found->second.item);
  }

 private:
  struct Item {
    Json item;
    size_t bytes;
  };

  Result<void> read(const std::string& response, const std::string& path) {
    read_.insert(response);
    const auto stored = source_.store->find({.owner = std::string(source_.owner), .id = response});
    if (!stored.ok()) return {};
    for (const std::string* text : {&stored->input, &stored->output}) {
      TRY(count(text->size(), path));
      Result<Json> items = Json::parse(*text);
      if (!items.ok() || !items->is_array()) continue;
      for (Json& item : items->as_array()) {
        const std::string id = item.string("id").value_or("");
        const size_t bytes = item.dump().size();
        items_.try_emplace(id, Item{.item = std::move(item), .bytes = bytes});
      }
    }
    return {};
  }

  Result<void> count(size_t bytes, const std::string& path) {
    bytes_ += bytes;
    if (bytes_ <= kReferredBytesMax) return {};
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("the items named by their ids, and the responses they are in, come to "
                             "more than {} bytes",
                             kReferredBytesMax),
                 path};
  }

  const ItemSource source_;
  std::unordered_set<std::string> read_;
  std::unordered_map<std::string, Item> items_;
  size_t bytes_ = 0;
  int references_ = 0;
};

}  // namespace

std::string item_id(std::string_view prefix, std::string_view response_id,
                    const ItemNumber& number) {
  if (response_id.starts_with(kResponsePrefix)) response_id.remove_prefix(kResponsePrefix.size());
  return fmt::format("{}{}{}{}", prefix, response_id, static_cast<char>(number.part), number.count);
}

std::string response_of_item(std::string_view item_id) {
  if (item_id.size() > kIdBytesMax) return {};
  const size_t prefix = item_id.find('_');
  const size_t number = item_id.find_last_not_of("0123456789");
  if (prefix == std::string_view::npos || number == std::string_view::npos) return {};
  const bool marked = item_id[number] == static_cast<char>(ItemNumber::Part::kInput) ||
                      item_id[number] == static_cast<char>(ItemNumber::Part::kOutput);
  if (!marked || number + 1 == item_id.size() || number <= prefix + 1) return {};
  return std::string(kResponsePrefix).append(item_id.substr(prefix + 1, number - prefix - 1));
}

Result<std::optional<Json>> with_referenced_items(const Json& body, const ItemSource& source) {
  const Json* input = body.is_object() ? body.find("input") : nullptr;
  if (input == nullptr || !input->is_array()) return std::optional<Json>();
  std::optional<Json> changed;
  Finder finder(source);
  const Json::Array& items = input->as_array();
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is_object() || items[i].string("type") != "item_reference") continue;
    const std::string path = api::item_path("input", i);
    const std::optional<std::string> id = items[i].string("id");
    if (!id || id->empty()) {
      return Error{ErrorCode::kInvalidArgument, fmt::format("'{}.id' is missing", path),
                   path + ".id"};
    }
    TRY_ASSIGN(Json item, finder.find(*id, path));
    if (!changed) changed = *input;
    changed->as_array()[i] = std::move(item);
  }
  if (!changed) return std::optional<Json>();
  Json whole = body;
  whole.set("input", *std::move(changed));
  return std::optional<Json>(std::move(whole));
}

}  // namespace pelton::server
