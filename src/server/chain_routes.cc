// /v1/chains: the chains that are served, and one run; a run as a chat's answer.
#include "server/chain_routes.h"

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "api/json_object.h"
#include "chain_http/chain_service.h"
#include "chain_http/chat_chain.h"
#include "server/endpoints.h"
#include "server/random_id.h"
#include "server/reply.h"

namespace pelton::server {
namespace {

constexpr std::string_view kPrefix = "/v1/chains/";

// The way back of a run, which is recorded like any other answer. What the call holds goes on its
// net thread, where all of this is.
class RunExchange final : public net::Exchange, public std::enable_shared_from_this<RunExchange> {
 public:
  explicit RunExchange(Call call) : exchange_(call.exchange), call_(std::move(call)) {}

  void send(net::HttpResponse response) override {
    if (!call_) return;
    call_->send(std::move(response));
    call_.reset();
  }
  void start_stream(int status, net::HttpHeaders headers) override {
    if (!call_) return;
    status_ = status;
    for (const auto& [name, value] : call_->headers.fields()) headers.add(name, value);
    exchange_->start_stream(status, std::move(headers));
  }
  void write(std::string_view bytes) override {
    if (!call_) return;
    call_->note_written(bytes.size());
    exchange_->write(bytes);
  }
  void finish() override {
    if (!call_) return;
    call_->note_answered(status_);
    exchange_->finish();
    call_.reset();
  }
  size_t queued_bytes() const override { return exchange_->queued_bytes(); }
  void on_drained(std::function<void()> drained) override {
    exchange_->on_drained(std::move(drained));
  }
  void on_closed(std::function<void()> closed) override {
    exchange_->on_closed([self = shared_from_this(), closed = std::move(closed)] {
      self->call_.reset();
      closed();
    });
  }
  bool closed() const override { return exchange_->closed(); }
  void post(std::function<void()> work) override { exchange_->post(std::move(work)); }
  void post_after(std::chrono::milliseconds delay, std::function<void()> work) override {
    exchange_->post_after(delay, std::move(work));
  }

 private:
  const std::shared_ptr<net::Exchange> exchange_;
  std::optional<Call> call_;  // none: it has been answered, or its client has left
  int status_ = 200;
};

api::ApiError chains_off() {
  return {.status = 403,
          .message = "this server was started without chains (--chains FOLDER)",
          .type = "invalid_request_error",
          .param = {},
          .code = "chains_disabled"};
}

}  // namespace

void list_chains(Call call, Services& services) {
  if (services.chains == nullptr) return call.send(chains_off());
  call.send(json_reply(services.chains->list_body()));
}

namespace {

void run_named(Call call, Services& services, const std::string& name, bool as_chat) {
  chain_http::ChainService& chains = *services.chains;
  std::shared_ptr<const chain::Chain> chain = chains.find(name);
  if (chain == nullptr) return call.send(chains.missing(name));
  if (const auto error = services.refusal()) return call.send(*error);
  const auto deadline_ns = call.deadline_ns(std::nullopt, Call::Whole::kNo);
  if (!deadline_ns.ok()) return call.send(api::api_error(deadline_ns.error()));
  chain_http::ChainService::Request request{
      .chain = std::move(chain),
      .id = random_id(as_chat ? "chatcmpl-" : "chain_", {.seed = services.draw(), .counter = 0}),
      .body = std::move(call.request.body),
      .caller = {.principal = call.caller, .headers = {}},
      .deadline_ns = *deadline_ns,
      .as_chat = as_chat};
  // What its requests do is one trace with it.
  if (call.headers.has("traceparent")) {
    request.caller.headers.add("traceparent", std::string(call.headers.get("traceparent")));
  }
  chains.run(std::move(request), std::make_shared<RunExchange>(std::move(call)));
}

}  // namespace

void run_chain(Call call, Services& services) {
  if (services.chains == nullptr) return call.send(chains_off());
  const std::string name = call.request.path.substr(kPrefix.size());
  run_named(std::move(call), services, name, false);
}

bool run_chain_as_chat(Call& call, Services& services) {
  if (services.chains == nullptr) return false;
  const Result<std::string> model = api::model_asked(call.request.body);
  if (!model.ok() || !model->starts_with(chain_http::kChainModelPrefix)) return false;
  run_named(std::move(call), services, model->substr(chain_http::kChainModelPrefix.size()), true);
  return true;
}

}  // namespace pelton::server
