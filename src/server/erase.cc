// POST /erase_tenant: nothing of one tenant's is kept any more in the stores of a server that runs,
// nor in the caches of the models that serve.
#include <string>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "net/query_check.h"
#include "net/url.h"
#include "server/batch_objects.h"
#include "server/batches.h"
#include "server/endpoints.h"
#include "server/reply.h"

namespace pelton::server {
namespace {

Result<std::string> read_tenant(const Call& call) {
  // Of what it does not know more would be erased than was asked for.
  TRY(net::check_query(call.request.query, {"tenant"}));
  std::optional<std::string> tenant = net::query_value(call.request.query, "tenant");
  if (tenant) return *std::move(tenant);
  return Error{ErrorCode::kInvalidArgument,
               "?tenant= says whose; empty, what a server without keys has kept", "tenant"};
}

net::HttpResponse erased_body(int64_t responses, int64_t batches) {
  return json_reply(fmt::format("{{\"success\":true,\"responses\":{},\"files_and_batches\":{}}}",
                                responses, batches));
}

}  // namespace

// What is computed first: what is asked meanwhile may be found again, and stores last longer.
void erase_tenant(Call call, Services& services) {
  const Result<std::string> tenant = read_tenant(call);
  if (!tenant.ok()) return call.send(api::api_error(tenant.error()));
  for (const std::shared_ptr<const ServedModel>& model : services.catalogue.serving()) {
    model->engine.erase_tenant(*tenant);
  }
  int64_t responses = 0;
  if (services.options.response_store != nullptr) {
    const Result<int64_t> erased = services.options.response_store->erase(*tenant);
    if (!erased.ok()) return call.send(api::not_written());
    responses = *erased;
  }
  if (services.batches == nullptr) return call.send(erased_body(responses, 0));
  answer_on_batches_thread(
      std::move(call), services,
      [tenant = *tenant, responses](Batches& batches, const Call& /*call*/) -> BatchReply {
        const Result<int64_t> erased = batches.erase(tenant);
        if (!erased.ok()) return batch_error(erased.error());
        return erased_body(responses, *erased);
      });
}

}  // namespace pelton::server
