// POST /sleep, POST /wake_up, GET /is_sleeping: vLLM's. Without "?model=NAME" all models are meant.
#include <algorithm>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "net/query_check.h"
#include "net/url.h"
#include "server/endpoints.h"
#include "server/erase.h"
#include "server/joined_work.h"
#include "server/reply.h"
#include "server/waiting_call.h"

namespace pelton::server {
namespace {

using Entry = ModelCatalogue::Entry;

api::ApiError not_allowed_here() {
  return {.status = 403,
          .message =
              "Callers may not put this server's models to sleep; it is started with "
              "--enable-sleep-mode where they may",
          .type = "invalid_request_error",
          .param = {},
          .code = "sleep_mode_disabled"};
}

struct Asked {
  std::vector<std::string> ids;       // of the models that are meant
  std::optional<int64_t> drain_ms;    // of their answers; none: to their ends
  std::vector<std::string> sleeping;  // of them, those that do not answer at once
};

Error bad_value(std::string_view name, std::string_view value, std::string_view words) {
  return {ErrorCode::kInvalidArgument,
          fmt::format("'{}' is '{}'; it may be {}", name, value.substr(0, 64), words),
          std::string(name)};
}

// vLLM's: level 1 keeps the weights in the machine's memory, 2 does not; here they are in files,
// and both give all memory back. `tags` say what is to be woken first, which is all of it.
Result<void> check_value(std::string_view name, std::string_view value, Asked& asked) {
  if (name == "level") {
    if (value != "1" && value != "2") return bad_value(name, value, "1 or 2");
  } else if (name == "mode") {
    if (value != "wait" && value != "abort") return bad_value(name, value, "'wait' or 'abort'");
    if (value == "abort") asked.drain_ms = 0;
  } else if (name == "tags") {
    if (value != "weights" && value != "kv_cache") {
      return bad_value(name, value, "'weights' or 'kv_cache'");
    }
  }
  return {};
}

// Of "model=a&level=1"; `known`: what may stand there beside "model".
Result<Asked> read_query(const Call& call, const ModelCatalogue& catalogue,
                         std::initializer_list<std::string_view> known) {
  Asked asked;
  std::optional<std::string> model;
  std::vector<std::string> seen;
  for (const auto& [name, value] : net::parse_query(call.request.query)) {
    if (name == "model") {
      model = value;
    } else if (std::ranges::find(known, name) == known.end()) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("there is no query parameter '{}' here", name.substr(0, 64)),
                   name.substr(0, 64)};
    }
    // Of two models one would be meant; tags come as often as there are tags.
    if (name != "tags" && std::ranges::find(seen, name) != seen.end()) {
      return Error{ErrorCode::kInvalidArgument, fmt::format("'{}' is given twice", name), name};
    }
    seen.push_back(name);
    TRY(check_value(name, value, asked));
  }
  const auto table = catalogue.table();
  for (const Entry& entry : table->entries) {
    const bool is_meant =
        model ? entry.answers_to(*model)
              : entry.is_dormant() || entry.state == ModelCatalogue::State::kServing;
    if (!is_meant) continue;
    asked.ids.push_back(entry.names.id);
    if (entry.is_dormant()) asked.sleeping.push_back(entry.names.id);
  }
  if (model && asked.ids.empty()) {
    return Error{ErrorCode::kNotFound, fmt::format("There is no model '{}'", model->substr(0, 256)),
                 "model"};
  }
  return asked;
}

// Each outcome goes to its `done`; gives what cancels the waiting.
using Begin = std::function<Result<CancelWork>(const std::string& id, ModelSleep::Done done)>;

void for_all(Call call, const std::vector<std::string>& ids, const Begin& begin) {
  const auto answer = [](const Call& one, const std::optional<Error>& error) {
    if (!error) return one.send(json_reply("{}"));
    // What keeps a model from it is a fault of the server's.
    one.send(error->code == ErrorCode::kInvalidArgument ? api::api_error(*error)
                                                        : not_ready(error->message));
  };
  if (ids.empty()) return answer(call, std::nullopt);
  const auto submit = [&](const WorkDone& done) -> Result<CancelWork> {
    const auto joined = std::make_shared<JoinedWork>(ids.size(), done);
    std::vector<CancelWork> cancels;
    for (const std::string& id : ids) {
      Result<CancelWork> cancel =
          begin(id, [joined](const Result<void>& outcome) { joined->one(outcome); });
      if (!cancel.ok()) {
        joined->one(cancel.error());
        continue;
      }
      cancels.push_back(*std::move(cancel));
    }
    return CancelWork([cancels = std::move(cancels)] {
      for (const CancelWork& cancel : cancels) cancel();
    });
  };
  wait_for_work(std::move(call), submit, answer);
}

}  // namespace

void sleep(Call call, Services& services) {
  if (!services.options.sleep_mode) return call.send(not_allowed_here());
  const Result<Asked> asked = read_query(call, services.catalogue, {"level", "mode"});
  if (!asked.ok()) return call.send(api::api_error(asked.error()));
  for_all(std::move(call), asked->ids,
          [&](const std::string& id, ModelSleep::Done done) -> Result<CancelWork> {
            TRY(services.model_sleep.sleep(id, asked->drain_ms, std::move(done)));
            return CancelWork([] {});  // it sleeps, though nobody waits for it
          });
}

void wake_up(Call call, Services& services) {
  if (!services.options.sleep_mode) return call.send(not_allowed_here());
  const Result<Asked> asked = read_query(call, services.catalogue, {"tags"});
  if (!asked.ok()) return call.send(api::api_error(asked.error()));
  const std::string tenant = call.tenant;
  for_all(std::move(call), asked->sleeping, [&](const std::string& id, ModelSleep::Done done) {
    return services.model_sleep.wait(
        {.id = id, .tenant = tenant, .bytes = 0, .done = std::move(done)});
  });
}

void is_sleeping(Call call, Services& services) {
  const Result<Asked> asked = read_query(call, services.catalogue, {});
  if (!asked.ok()) return call.send(api::api_error(asked.error()));
  const bool all = !asked->ids.empty() && asked->sleeping.size() == asked->ids.size();
  call.send(json_reply(fmt::format("{{\"is_sleeping\":{}}}", all)));
}

// As vLLM's and SGLang's: of all models, and whether they run or not. "?tenant=NAME": of one's.
void reset_prefix_cache(Call call, Services& services) {
  // Of what it does not know more would be erased than was asked for.
  const Result<void> known = net::check_query(call.request.query, {"tenant"});
  if (!known.ok()) return call.send(api::api_error(known.error()));
  const Result<void> no_body = net::check_no_body(call.request.body);
  if (!no_body.ok()) return call.send(api::api_error(no_body.error()));
  const std::optional<std::string> tenant = net::query_value(call.request.query, "tenant");
  forget_computed(std::move(call), services, tenant,
                  [](const Call& one) { one.send(json_reply("{\"success\":true}")); });
}

}  // namespace pelton::server
