#include "apps/config_worker.h"

#include <utility>

#include <fmt/format.h>

#include "api/error.h"
#include "gateway/interruption.h"

namespace pelton::apps {
namespace {

net::HttpResponse too_many() {
  return gateway::error_answer(
      {},
      {.status = 503,
       .message = fmt::format("{} requests about the configuration are waiting already",
                              ConfigWorker::kRequestsMax),
       .type = "server_error",
       .param = {},
       .code = "config_busy",
       .retry_after_s = 1},
      {});
}

}  // namespace

void ConfigWorker::answer(const std::shared_ptr<net::Exchange>& exchange, Work work) {
  if (++requests_ > kRequestsMax) {
    --requests_;
    return exchange->send(too_many());
  }
  loop_->post([this, exchange, work = std::move(work)] {
    if (stops_) return;
    auto response = std::make_shared<net::HttpResponse>(work());
    --requests_;
    exchange->post([exchange, response] { exchange->send(std::move(*response)); });
  });
}

void ConfigWorker::stop() {
  stops_ = true;
  loop_.reset();
}

}  // namespace pelton::apps
