// /v1/batches: many requests in one file, answered when there is room for them.
#include <utility>

#include "api/batch_request.h"
#include "server/batch_objects.h"
#include "server/batches.h"
#include "server/endpoints.h"
#include "server/reply.h"

namespace pelton::server {
namespace {

constexpr std::string_view kPrefix = "/v1/batches/";
constexpr int64_t kListMax = 100;
constexpr int64_t kListDefault = 20;

BatchReply add_batch(Batches& batches, const Call& call) {
  Result<api::BatchRequest> request = api::parse_batch_request(call.request.body, {});
  if (!request.ok()) return api::api_error(request.error());
  const Result<store::StoredFile> input =
      batches.store().find_file({.owner = call.tenant, .id = request->input_file});
  if (!input.ok()) {
    Error error = input.error();
    error.field = "input_file_id";
    return batch_error(error);
  }
  if (input->purpose != "batch") {
    return batch_error({ErrorCode::kInvalidArgument,
                        "'input_file_id' must be a file whose purpose is 'batch'",
                        "input_file_id"});
  }
  const int64_t now = batches.store().now_s();
  const store::StoredBatch batch{.id = batches.make_id("batch_"),
                                 .owner = call.tenant,
                                 .weight = call.caller.weight,
                                 .endpoint = std::move(request->endpoint),
                                 .input_file = input->id,
                                 .window = std::move(request->window),
                                 .metadata = std::move(request->metadata),
                                 .created_at = now,
                                 .expires_at = now + request->window_s,
                                 .output_age_s = request->output_age_s};
  const Result<void> added = batches.add(batch);
  if (!added.ok()) return batch_error(added.error());
  return json_reply(batch_body(batch));
}

}  // namespace

void create_batch(Call call, Services& services) {
  answer_on_batches_thread(std::move(call), services, add_batch);
}

void list_batches(Call call, Services& services) {
  answer_on_batches_thread(
      std::move(call), services, [](Batches& batches, const Call& asked) -> BatchReply {
        const Result<ListQuery> query =
            read_list_query(asked.request.query, kListMax, kListDefault);
        if (!query.ok()) return batch_error(query.error());
        Result<std::vector<store::StoredBatch>> all =
            batches.store().list_batches({.owner = asked.tenant,
                                          .after = query->after,
                                          .limit = query->limit + 1,
                                          .ascending = query->ascending});
        if (!all.ok()) return batch_error(all.error());
        // Of those that run, as they are now.
        for (store::StoredBatch& one : *all) {
          Result<store::StoredBatch> now = batches.find({.owner = asked.tenant, .id = one.id});
          if (now.ok()) one = *std::move(now);
        }
        return json_reply(batch_list_body(*std::move(all), query->limit));
      });
}

void get_batch(Call call, Services& services) {
  const BatchTarget target = batch_target(call.request.path, kPrefix);
  if (!target.action.empty()) {
    return call.send(api::not_found(call.request.method, call.request.path));
  }
  answer_on_batches_thread(std::move(call), services,
                           [id = target.id](Batches& batches, const Call& asked) -> BatchReply {
                             const Result<store::StoredBatch> found =
                                 batches.find({.owner = asked.tenant, .id = id});
                             if (!found.ok()) return batch_error(found.error());
                             return json_reply(batch_body(*found));
                           });
}

void cancel_batch(Call call, Services& services) {
  const BatchTarget target = batch_target(call.request.path, kPrefix);
  if (target.action != "/cancel") {
    return call.send(api::not_found(call.request.method, call.request.path));
  }
  answer_on_batches_thread(std::move(call), services,
                           [id = target.id](Batches& batches, const Call& asked) -> BatchReply {
                             const Result<store::StoredBatch> found =
                                 batches.cancel({.owner = asked.tenant, .id = id});
                             if (!found.ok()) return batch_error(found.error());
                             return json_reply(batch_body(*found));
                           });
}

}  // namespace pelton::server
