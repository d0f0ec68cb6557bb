#include "server/item_places.h"

#include <utility>

#include <fmt/format.h>

#include "api/fields.h"
#include "base/json.h"
#include "server/server.h"

namespace pelton::server {
namespace {

// No owner's name can be mistaken for a part of an id.
std::string name_of(const ItemPlaces::Key& item) {
  return fmt::format("{}:{}{}", item.owner.size(), item.owner, item.id);
}

constexpr size_t kIdBytesMax = 256;

const Json* item_of(const Json& items, std::string_view id) {
  if (!items.is_array()) return nullptr;
  for (const Json& item : items.as_array()) {
    if (item.string("id") == id) return &item;
  }
  return nullptr;
}

}  // namespace

void ItemPlaces::note(const Key& item, std::string_view response_id) {
  if (item.id.empty() || item.id.size() > kIdBytesMax) return;
  std::string name = name_of(item);
  const std::lock_guard lock(mutex_);
  const auto [place, is_new] = responses_.insert_or_assign(name, std::string(response_id));
  if (!is_new) return;
  order_.push_back(std::move(name));
  if (order_.size() <= kItemsMax) return;
  responses_.erase(order_.front());
  order_.pop_front();
}

std::string ItemPlaces::find(const Key& item) const {
  const std::lock_guard lock(mutex_);
  const auto found = responses_.find(name_of(item));
  return found == responses_.end() ? std::string() : found->second;
}

void Server::note_items(const store::StoredResponse& stored) {
  for (const std::string* text : {&stored.input, &stored.output}) {
    const Result<Json> items = Json::parse(*text);
    if (!items.ok() || !items->is_array()) continue;
    for (const Json& item : items->as_array()) {
      item_places_.note({.owner = stored.owner, .id = item.string("id").value_or("")}, stored.id);
    }
  }
}

// The item itself, as it was said.
Result<Json> Server::referenced_item(const Call& call, const std::string& id,
                                     const std::string& path) {
  const Error unknown{ErrorCode::kInvalidArgument,
                      fmt::format("Item with id '{}' not found.", id.substr(0, kIdBytesMax)), path};
  const std::string response = item_places_.find({.owner = call.tenant, .id = id});
  if (response.empty() || options_.response_store == nullptr) return unknown;
  const Result<store::StoredResponse> stored = stored_response(call, response);
  if (!stored.ok()) return unknown;
  for (const std::string* text : {&stored->input, &stored->output}) {
    const Result<Json> items = Json::parse(*text);
    const Json* item = items.ok() ? item_of(*items, id) : nullptr;
    if (item != nullptr) return Json(*item);
  }
  return unknown;
}

Result<std::optional<Json>> Server::with_referenced_items(const Call& call, const Json& body) {
  const Json* input = body.is_object() ? body.find("input") : nullptr;
  if (input == nullptr || !input->is_array()) return std::optional<Json>();
  std::optional<Json> changed;
  const Json::Array& items = input->as_array();
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is_object() || items[i].string("type") != "item_reference") continue;
    const std::string path = api::item_path("input", i);
    const std::optional<std::string> id = items[i].string("id");
    if (!id || id->empty()) {
      return Error{ErrorCode::kInvalidArgument, fmt::format("'{}.id' is missing", path),
                   path + ".id"};
    }
    TRY_ASSIGN(Json item, referenced_item(call, *id, path));
    if (!changed) changed = *input;
    changed->as_array()[i] = std::move(item);
  }
  if (!changed) return std::optional<Json>();
  Json whole = body;
  whole.set("input", *std::move(changed));
  return std::optional<Json>(std::move(whole));
}

}  // namespace pelton::server
