#include "cluster/kubernetes_objects.h"

#include <utility>

namespace pelton::cluster {
namespace {

constexpr size_t kMessageBytesMax = 300;

Error bad(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message), {}};
}

std::string of_metadata(const Json& object, std::string_view key) {
  const Json* metadata = object.find("metadata");
  if (metadata == nullptr || !metadata->is_object()) return "";
  return metadata->string(key).value_or("");
}

}  // namespace

std::string kubernetes_name(const Json& object) {
  return of_metadata(object, "name");
}

std::string kubernetes_version(const Json& object) {
  return of_metadata(object, "resourceVersion");
}

std::string kubernetes_message(std::string_view body) {
  const Result<Json> json = Json::parse(body);
  if (!json.ok() || !json->is_object()) return "";
  return json->string("message").value_or("").substr(0, kMessageBytesMax);
}

Result<KubernetesList> parse_kubernetes_list(std::string_view text) {
  TRY_ASSIGN(Json json, Json::parse(text));
  const Json* items = json.is_object() ? json.find("items") : nullptr;
  if (items == nullptr || !items->is_array()) return bad("the API server's answer is no list");
  KubernetesList list{.resource_version = kubernetes_version(json),
                      .next = of_metadata(json, "continue"),
                      .items = {}};
  for (const Json& item : items->as_array()) {
    if (!item.is_object()) return bad("an item of the API server's list is no object");
  }
  list.items = items->as_array();
  return list;
}

Result<KubernetesEvent> parse_kubernetes_event(std::string_view line) {
  TRY_ASSIGN(const Json json, Json::parse(line));
  const Json* object = json.is_object() ? json.find("object") : nullptr;
  if (object == nullptr || !object->is_object()) return bad("no event of a watch");
  const std::string type = json.string("type").value_or("");
  if (type == "ERROR") {
    if (object->integer("code") == std::optional<int64_t>(410)) {
      return KubernetesEvent{
          .kind = KubernetesEvent::Kind::kExpired, .resource_version = {}, .object = {}};
    }
    return Error{
        ErrorCode::kIo, "the watch is over: " + object->string("message").value_or(""), {}};
  }
  KubernetesEvent event{.resource_version = kubernetes_version(*object), .object = {}};
  if (type == "BOOKMARK") return event;
  if (type != "ADDED" && type != "MODIFIED" && type != "DELETED") {
    return bad("an event of a watch has the type '" + type.substr(0, 32) + "'");
  }
  event.kind = type == "DELETED" ? KubernetesEvent::Kind::kDeleted : KubernetesEvent::Kind::kPut;
  event.object = *object;
  if (kubernetes_name(*object).empty()) return bad("an object of a watch has no name");
  return event;
}

}  // namespace pelton::cluster
