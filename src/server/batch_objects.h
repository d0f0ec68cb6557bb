// Files and batches as OpenAI's clients read them, and what their endpoints share: the query of a
// list, the errors of the store, answers that are made on the batches' thread. Any thread, unless
// said otherwise.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "api/error.h"
#include "base/result.h"
#include "net/http_message.h"
#include "server/call.h"
#include "server/services.h"
#include "store/batch_store.h"

namespace pelton::server {

std::string file_body(const store::StoredFile& file);
std::string deleted_file_body(std::string_view id);
std::string batch_body(const store::StoredBatch& batch);
// One more than `limit` were asked for, to know whether there are more.
std::string file_list_body(std::vector<store::StoredFile> files, int64_t limit);
std::string batch_list_body(std::vector<store::StoredBatch> batches, int64_t limit);

// "?after=…&limit=…", of files also "order" and "purpose".
struct ListQuery {
  std::string after;
  std::string purpose;
  int64_t limit = 0;
  bool ascending = false;
};
Result<ListQuery> read_list_query(std::string_view query, int64_t limit_max, int64_t limit_default);

// What follows `prefix` in a path: "file-1" and "/content" of "file-1/content".
struct BatchTarget {
  std::string id;
  std::string action;
};
BatchTarget batch_target(std::string_view path, std::string_view prefix);

api::ApiError batch_error(const Error& error);
// 403: this server was started without a folder for them.
api::ApiError batches_off();

// Sends what `work` gives, which it does on the batches' thread. On the call's net thread. Where
// there are no batches the call is answered so.
using BatchReply = std::variant<net::HttpResponse, api::ApiError>;
void answer_on_batches_thread(Call call, Services& services,
                              std::function<BatchReply(Batches& batches, const Call& call)> work);

}  // namespace pelton::server
