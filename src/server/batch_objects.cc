#include "server/batch_objects.h"

#include <algorithm>
#include <charconv>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "base/json_writer.h"
#include "net/url.h"
#include "server/batches.h"
#include "server/reply.h"

namespace pelton::server {
namespace {

using base::JsonWriter;
using store::BatchStatus;
using store::StoredBatch;
using store::StoredFile;

void write_file(JsonWriter& writer, const StoredFile& file) {
  writer.begin_object().key("id").string(file.id).key("object").string("file");
  writer.key("bytes").integer(file.bytes).key("created_at").integer(file.created_at);
  writer.key("expires_at");
  file.expires_at == 0 ? writer.null() : writer.integer(file.expires_at);
  writer.key("filename").string(file.name).key("purpose").string(file.purpose);
  writer.key("status").string("processed").key("status_details").null().end_object();
}

void write_time(JsonWriter& writer, std::string_view key, int64_t seconds) {
  writer.key(key);
  seconds == 0 ? writer.null() : writer.integer(seconds);
}

void write_id(JsonWriter& writer, std::string_view key, const std::string& id) {
  writer.key(key);
  id.empty() ? writer.null() : writer.string(id);
}

void write_batch(JsonWriter& writer, const StoredBatch& batch) {
  const auto ended_as = [&](BatchStatus status) {
    return batch.status == status ? batch.ended_at : 0;
  };
  writer.begin_object().key("id").string(batch.id).key("object").string("batch");
  writer.key("endpoint").string(batch.endpoint).key("errors");
  if (batch.errors == "[]") {
    writer.null();
  } else {
    writer.begin_object().key("object").string("list").key("data").raw(batch.errors).end_object();
  }
  writer.key("input_file_id").string(batch.input_file);
  writer.key("completion_window").string(batch.window);
  writer.key("status").string(store::batch_status_name(batch.status));
  write_id(writer, "output_file_id", batch.output_file);
  write_id(writer, "error_file_id", batch.error_file);
  writer.key("created_at").integer(batch.created_at);
  write_time(writer, "in_progress_at", batch.in_progress_at);
  write_time(writer, "expires_at", batch.expires_at);
  write_time(writer, "finalizing_at", batch.finalizing_at);
  write_time(writer, "completed_at", ended_as(BatchStatus::kCompleted));
  write_time(writer, "failed_at", ended_as(BatchStatus::kFailed));
  write_time(writer, "expired_at", ended_as(BatchStatus::kExpired));
  write_time(writer, "cancelling_at", batch.cancelling_at);
  write_time(writer, "cancelled_at", ended_as(BatchStatus::kCancelled));
  writer.key("request_counts").begin_object().key("total").integer(batch.total);
  writer.key("completed").integer(batch.completed).key("failed").integer(batch.failed);
  writer.end_object().key("metadata");
  batch.metadata == "{}" ? writer.null() : writer.raw(batch.metadata);
  writer.end_object();
}

template <typename Item, typename Write>
std::string list_body(std::vector<Item> items, int64_t limit, const Write& write) {
  const bool has_more = std::ssize(items) > limit;
  if (has_more) items.resize(static_cast<size_t>(limit));
  std::string body;
  JsonWriter writer(body);
  writer.begin_object().key("object").string("list").key("data").begin_array();
  for (const Item& item : items) write(writer, item);
  writer.end_array();
  write_id(writer, "first_id", items.empty() ? std::string() : items.front().id);
  write_id(writer, "last_id", items.empty() ? std::string() : items.back().id);
  writer.key("has_more").boolean(has_more).end_object();
  return body;
}

}  // namespace

std::string file_body(const StoredFile& file) {
  std::string body;
  JsonWriter writer(body);
  write_file(writer, file);
  return body;
}

std::string deleted_file_body(std::string_view id) {
  std::string body;
  JsonWriter writer(body);
  writer.begin_object().key("id").string(id).key("object").string("file");
  writer.key("deleted").boolean(true).end_object();
  return body;
}

std::string batch_body(const StoredBatch& batch) {
  std::string body;
  JsonWriter writer(body);
  write_batch(writer, batch);
  return body;
}

std::string file_list_body(std::vector<StoredFile> files, int64_t limit) {
  return list_body(std::move(files), limit, write_file);
}

std::string batch_list_body(std::vector<StoredBatch> batches, int64_t limit) {
  return list_body(std::move(batches), limit, write_batch);
}

Result<ListQuery> read_list_query(std::string_view query, int64_t limit_max,
                                  int64_t limit_default) {
  const auto bad = [](std::string_view name, std::string_view what) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("the query parameter '{}' must be {}", name, what), std::string(name)};
  };
  ListQuery read{.after = net::query_value(query, "after").value_or(""),
                 .purpose = net::query_value(query, "purpose").value_or(""),
                 .limit = limit_default};
  if (const auto text = net::query_value(query, "limit")) {
    const auto [end, error] =
        std::from_chars(text->data(), text->data() + text->size(), read.limit);
    const bool is_number = error == std::errc() && end == text->data() + text->size();
    if (!is_number || read.limit < 1 || read.limit > limit_max) {
      return bad("limit", fmt::format("a whole number from 1 to {}", limit_max));
    }
  }
  const std::string order = net::query_value(query, "order").value_or("desc");
  if (order != "asc" && order != "desc") return bad("order", "'asc' or 'desc'");
  read.ascending = order == "asc";
  return read;
}

BatchTarget batch_target(std::string_view path, std::string_view prefix) {
  const std::string_view rest = path.substr(prefix.size());
  const size_t slash = std::min(rest.find('/'), rest.size());
  return {.id = std::string(rest.substr(0, slash)), .action = std::string(rest.substr(slash))};
}

api::ApiError batch_error(const Error& error) {
  api::ApiError answer = api::api_error(error);
  if (error.code == ErrorCode::kDoesNotFit) {
    answer.status = 413;
    answer.code = "batch_storage_full";
  } else if (error.code == ErrorCode::kIo) {
    answer = api::not_written();
    answer.message =
        "The folder of files and batches cannot be used just now; the server's log "
        "says why";
  }
  return answer;
}

api::ApiError batches_off() {
  return {.status = 403,
          .message =
              "This server keeps no files and runs no batches; it is started with "
              "--batches FOLDER where it does",
          .type = "invalid_request_error",
          .param = {},
          .code = "batches_disabled"};
}

void answer_on_batches_thread(Call call, Services& services,
                              std::function<BatchReply(Batches& batches, const Call& call)> work) {
  Batches* const batches = services.batches;
  if (batches == nullptr) return call.send(batches_off());
  batches->post(
      [held = std::make_shared<Call>(std::move(call)), batches, work = std::move(work)]() mutable {
        const auto reply = std::make_shared<BatchReply>(work(*batches, *held));
        const std::shared_ptr<net::Exchange> exchange = held->exchange;
        // What the call holds goes on its own thread.
        exchange->post([held = std::move(held), reply]() mutable {
          const std::shared_ptr<Call> answered = std::move(held);
          if (auto* const error = std::get_if<api::ApiError>(reply.get())) {
            answered->send(*error);
          } else {
            answered->send(std::get<net::HttpResponse>(std::move(*reply)));
          }
        });
      });
}

}  // namespace pelton::server
