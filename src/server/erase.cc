// POST /erase_tenant: nothing of one tenant's is kept any more in the stores of a server that runs,
// nor in the caches of the models that serve.
#include "server/erase.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "net/query_check.h"
#include "net/url.h"
#include "server/batch_objects.h"
#include "server/batches.h"
#include "server/endpoints.h"
#include "server/joined_work.h"
#include "server/reply.h"
#include "server/waiting_call.h"

namespace pelton::server {
namespace {

Result<std::string> read_tenant(const Call& call) {
  // Of what it does not know more would be erased than was asked for.
  TRY(net::check_query(call.request.query, {"tenant"}));
  TRY(net::check_no_body(call.request.body));
  std::optional<std::string> tenant = net::query_value(call.request.query, "tenant");
  if (tenant) return *std::move(tenant);
  return Error{ErrorCode::kInvalidArgument,
               "?tenant= says whose; empty, what a server without keys has kept", "tenant"};
}

std::string unloaded(std::string_view id) {
  return fmt::format(
      "The model '{}' has been unloaded and its disk keeps what it has computed: stop this server "
      "and use 'pelton kv erase'",
      id);
}

net::HttpResponse erased_body(int64_t responses, int64_t batches) {
  return json_reply(fmt::format("{{\"success\":true,\"responses\":{},\"files_and_batches\":{}}}",
                                responses, batches));
}

// Of a model that is not in memory a disk may keep what nobody here can erase: of one that sleeps
// or has been unloaded, and of one that is being loaded, which may have read it.
std::string not_reached(const ModelCatalogue::Table& table, bool start_keeps_blocks) {
  using State = ModelCatalogue::State;
  for (const ModelCatalogue::Entry& entry : table.entries) {
    const bool keeps = entry.keeps_blocks && entry.unloading.expired();
    const bool loads = entry.state == State::kLoading && entry.at_start && start_keeps_blocks;
    if (loads || (entry.state == State::kWaking && keeps)) {
      return fmt::format("The model '{}' is being loaded; ask again when it is there",
                         entry.names.id);
    }
    if (entry.state == State::kAsleep && keeps) {
      return fmt::format(
          "The model '{}' sleeps and its disk keeps what it has computed: wake it, "
          "or stop this server and use 'pelton kv erase'",
          entry.names.id);
    }
    if (entry.state == State::kUnloading && keeps) return unloaded(entry.names.id);
  }
  return table.left_blocks.empty() ? "" : unloaded(table.left_blocks);
}

void erase_stored(Call call, Services& services, const std::string& tenant) {
  int64_t responses = 0;
  if (services.options.response_store != nullptr) {
    const Result<int64_t> erased = services.options.response_store->erase(tenant);
    if (!erased.ok()) return call.send(api::not_written());
    responses = *erased;
  }
  if (services.batches == nullptr) return call.send(erased_body(responses, 0));
  answer_on_batches_thread(
      std::move(call), services,
      [tenant, responses](Batches& batches, const Call& /*call*/) -> BatchReply {
        const Result<int64_t> erased = batches.erase(tenant);
        if (!erased.ok()) return batch_error(erased.error());
        return erased_body(responses, *erased);
      });
}

}  // namespace

void forget_computed(Call call, Services& services, const std::optional<std::string>& tenant,
                     std::function<void(Call call)> then) {
  const auto table = services.catalogue.table();
  const auto models = table->held();  // from now on none of them goes to sleep unseen
  const std::string trouble = not_reached(*table, services.options.keeps_blocks);
  if (!trouble.empty()) return call.send(not_ready(trouble));
  if (models.empty()) return then(std::move(call));
  const auto submit = [&](const WorkDone& done) -> Result<CancelWork> {
    const auto joined = std::make_shared<JoinedWork>(models.size(), done);
    for (const std::shared_ptr<const ServedModel>& model : models) {
      const auto one = [joined](const Result<void>& erased) { joined->one(erased); };
      tenant ? model->engine.erase_tenant(*tenant, one) : model->engine.reset_prefix_cache(one);
    }
    return CancelWork();  // what was begun is brought to its end, though nobody waits for it
  };
  wait_for_work(
      std::move(call), submit,
      [&log = services.log, then = std::move(then)](Call one, const std::optional<Error>& error) {
        if (!error) return then(std::move(one));
        log.error(fmt::format("erasing what is computed: {}", error->message));
        one.send(api::ApiError{.status = 507,
                               .message =
                                   "What is on the disk of keys and values is not erased: the disk "
                                   "cannot be written; the server's log says why",
                               .type = "server_error",
                               .param = {},
                               .code = "insufficient_storage"});
      });
}

// What is computed first: what is asked meanwhile may be found again, and stores last longer.
void erase_tenant(Call call, Services& services) {
  const Result<std::string> tenant = read_tenant(call);
  if (!tenant.ok()) return call.send(api::api_error(tenant.error()));
  forget_computed(std::move(call), services, *tenant, [&services, tenant = *tenant](Call one) {
    erase_stored(std::move(one), services, tenant);
  });
}

}  // namespace pelton::server
