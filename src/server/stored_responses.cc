// /v1/responses/{id}: what was said, its input, its end. Only its owner finds it.
#include <algorithm>
#include <charconv>
#include <utility>

#include <fmt/format.h>

#include "api/response_object.h"
#include "net/url.h"
#include "server/endpoints.h"
#include "server/reply.h"
#include "store/response_store.h"

namespace pelton::server {
namespace {

constexpr std::string_view kPrefix = "/v1/responses/";

constexpr int64_t kSequenceNumberMax = int64_t{1} << 53;  // as far as JSON's numbers count

// What follows the id: "", "/cancel", "/input_items".
struct Target {
  std::string id;
  std::string action;
};
Target target_of(const net::HttpRequest& request) {
  const std::string rest = request.path.substr(kPrefix.size());
  const size_t slash = std::min(rest.find('/'), rest.size());
  return {.id = rest.substr(0, slash), .action = rest.substr(slash)};
}

api::ApiError bad_query(std::string_view name, std::string_view what) {
  return api::api_error({ErrorCode::kInvalidArgument,
                         fmt::format("the query parameter '{}' must be {}", name, what),
                         std::string(name)});
}

// Of a list, the page that the query asks for; newest first unless it says "asc".
std::variant<std::string, api::ApiError> input_page(const std::string& query, Json::Array items) {
  constexpr size_t kPageMax = 100;
  size_t limit = 20;
  if (const auto text = net::query_value(query, "limit")) {
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), limit);
    const bool number = error == std::errc() && end == text->data() + text->size();
    if (!number || limit < 1 || limit > kPageMax) {
      return bad_query("limit", fmt::format("a whole number from 1 to {}", kPageMax));
    }
  }
  const std::string order = net::query_value(query, "order").value_or("desc");
  if (order != "asc" && order != "desc") return bad_query("order", "'asc' or 'desc'");
  if (order == "desc") std::reverse(items.begin(), items.end());
  size_t first = 0;
  if (const auto after = net::query_value(query, "after")) {
    const auto found = std::find_if(items.begin(), items.end(),
                                    [&](const Json& item) { return item.string("id") == *after; });
    if (found == items.end()) return bad_query("after", "the id of an item of this list");
    first = static_cast<size_t>(found - items.begin()) + 1;
  }
  const size_t count = std::min(limit, items.size() - first);
  return api::item_list_body(
      {.items = std::span(items).subspan(first, count), .has_more = first + count < items.size()});
}

api::ApiError no_response(std::string_view id) {
  api::ApiError error = api::api_error(store::no_such_response(id));
  error.param = "response_id";
  return error;
}

Result<store::StoredResponse> stored_response(const Call& call, const Services& services,
                                              const std::string& id) {
  if (services.options.response_store == nullptr) return store::no_such_response(id);
  return services.options.response_store->find({.owner = call.tenant, .id = id});
}

// One that was asked for in the background: as it is now, or its events.
void show_background(Call call, const std::shared_ptr<BackgroundResponse>& response) {
  const std::string& query = call.request.query;
  if (net::query_value(query, "stream") != "true") return call.send(json_reply(response->body()));
  if (!response->streamed()) {
    return call.send(api::api_error(
        {ErrorCode::kInvalidArgument,
         "'stream': only a response that was created with 'stream': true can be streamed later",
         "stream"}));
  }
  int64_t after = -1;
  if (const auto text = net::query_value(query, "starting_after")) {
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), after);
    const bool whole = error == std::errc() && end == text->data() + text->size();
    if (!whole || after < 0 || after > kSequenceNumberMax) {
      return call.send(bad_query("starting_after", "the sequence number of an event"));
    }
  }
  BackgroundResponse::follow(response, std::move(call), after);
}

}  // namespace

void get_response(Call call, Services& services) {
  const Target target = target_of(call.request);
  if (!target.action.empty() && target.action != "/input_items") {
    return call.send(api::not_found(call.request.method, call.request.path));
  }
  if (target.action.empty()) {
    if (const auto running = services.background.find({.owner = call.tenant, .id = target.id})) {
      return show_background(std::move(call), running);
    }
  }
  const Result<store::StoredResponse> stored = stored_response(call, services, target.id);
  if (!stored.ok()) {
    const bool unknown = stored.error().code == ErrorCode::kNotFound;
    return call.send(unknown ? no_response(target.id) : api::api_error(stored.error()));
  }
  if (target.action.empty()) {
    if (net::query_value(call.request.query, "stream") == "true") {
      return call.send(
          api::api_error({ErrorCode::kUnsupported,
                          "'stream': a response that has ended is not streamed again", "stream"}));
    }
    return call.send(json_reply(stored->body));
  }
  Result<Json> items = Json::parse(stored->input);
  if (!items.ok() || !items->is_array()) {
    return call.send(api::api_error({ErrorCode::kInternal, "the stored input is damaged", ""}));
  }
  auto page = input_page(call.request.query, std::move(items->as_array()));
  if (const auto* error = std::get_if<api::ApiError>(&page)) return call.send(*error);
  call.send(json_reply(std::get<std::string>(std::move(page))));
}

void delete_response(Call call, Services& services) {
  const Target target = target_of(call.request);
  if (!target.action.empty()) {
    return call.send(api::not_found(call.request.method, call.request.path));
  }
  if (services.options.response_store == nullptr) return call.send(no_response(target.id));
  const BackgroundResponses::Key key{.owner = call.tenant, .id = target.id};
  if (const auto running = services.background.find(key); running != nullptr && !running->over()) {
    return call.send(api::api_error(
        {ErrorCode::kInvalidArgument,
         fmt::format("Response '{}' is being made; cancel it first.", target.id), "response_id"}));
  }
  const bool forgotten = services.background.forget(key);
  const Result<void> removed =
      services.options.response_store->remove({.owner = call.tenant, .id = target.id});
  const bool unknown = !removed.ok() && removed.error().code == ErrorCode::kNotFound;
  // One that could not be stored when it ended was there all the same.
  if (!removed.ok() && !(unknown && forgotten)) {
    return call.send(unknown ? no_response(target.id) : api::not_written());
  }
  call.send(json_reply(api::deleted_response_body(target.id)));
}

// A running one is answered when it has ended; it may have ended meanwhile by itself, or its client
// have left, and then there is none.
void cancel_response(Call call, Services& services) {
  const Target target = target_of(call.request);
  if (target.action != "/cancel") {
    return call.send(api::not_found(call.request.method, call.request.path));
  }
  const auto waiting = std::make_shared<Call>(std::move(call));
  const bool running =
      services.running_responses.cancel({.owner = waiting->tenant, .id = target.id},
                                        [waiting, id = target.id](const std::string& body) {
                                          waiting->exchange->post([waiting, id, body] {
                                            if (body.empty()) return waiting->send(no_response(id));
                                            waiting->send(json_reply(body));
                                          });
                                        });
  if (running) return;
  const Result<store::StoredResponse> stored = stored_response(*waiting, services, target.id);
  if (!stored.ok()) return waiting->send(no_response(target.id));
  const Result<Json> body = Json::parse(stored->body);
  if (body.ok() && body->string("status") == "cancelled") {
    return waiting->send(json_reply(stored->body));
  }
  waiting->send(
      api::api_error({ErrorCode::kInvalidArgument,
                      fmt::format("Response '{}' has ended already.", target.id), "response_id"}));
}

}  // namespace pelton::server
