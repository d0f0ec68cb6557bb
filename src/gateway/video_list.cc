#include "gateway/video_list.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/json.h"
#include "net/url.h"

namespace pelton::gateway {
namespace {

constexpr int64_t kLimitMax = 100;

struct Listed {
  int64_t created = 0;
  std::string id;
  Json video;
};

}  // namespace

Result<VideoQuery> read_video_query(std::string_view query) {
  VideoQuery asked;
  if (const auto limit = net::query_value(query, "limit")) {
    const auto [end, error] =
        std::from_chars(limit->data(), limit->data() + limit->size(), asked.limit);
    const bool is_number = error == std::errc() && end == limit->data() + limit->size();
    if (!is_number || asked.limit < 1 || asked.limit > kLimitMax) {
      return Error{ErrorCode::kInvalidArgument, "'limit' must be a whole number from 1 to 100",
                   "limit"};
    }
  }
  asked.after = net::query_value(query, "after").value_or("");
  const std::string order = net::query_value(query, "order").value_or("desc");
  if (order != "asc" && order != "desc") {
    return Error{ErrorCode::kInvalidArgument, "'order' must be asc or desc", "order"};
  }
  asked.oldest_first = order == "asc";
  return asked;
}

Result<std::string> video_list_body(const std::vector<std::string>& bodies, const VideoQuery& query,
                                    const std::function<bool(const std::string& id)>& shows) {
  std::vector<Listed> all;
  for (const std::string& body : bodies) {
    Result<Json> json = Json::parse(body);
    const Json* const data = json.ok() ? json->find("data") : nullptr;
    if (data == nullptr || !data->is_array()) {
      return Error{ErrorCode::kIo, "a worker's list of videos is none", {}};
    }
    for (const Json& video : data->as_array()) {
      std::string id = video.string("id").value_or("");
      if (id.empty() || !shows(id)) continue;
      all.push_back({.created = video.integer("created_at").value_or(0),
                     .id = std::move(id),
                     .video = video});
    }
  }
  std::ranges::stable_sort(all, [&](const Listed& one, const Listed& other) {
    const auto key = [](const Listed& it) {
      return std::pair(it.created, std::string_view(it.id));
    };
    return query.oldest_first ? key(one) < key(other) : key(other) < key(one);
  });
  auto begin = all.begin();
  if (!query.after.empty()) {
    begin = std::ranges::find(all, query.after, &Listed::id);
    if (begin != all.end()) ++begin;
  }
  const auto left = all.end() - begin;
  const auto end = begin + std::min<std::ptrdiff_t>(left, query.limit);
  Json list{Json::Object{}};
  Json::Array data;
  for (auto one = begin; one != end; ++one) data.push_back(std::move(one->video));
  const bool is_empty = begin == end;
  list.set("object", Json("list")).set("data", Json(std::move(data)));
  list.set("first_id", is_empty ? Json() : Json(begin->id));
  list.set("last_id", is_empty ? Json() : Json((end - 1)->id));
  list.set("has_more", Json(end != all.end()));
  return list.dump();
}

}  // namespace pelton::gateway
