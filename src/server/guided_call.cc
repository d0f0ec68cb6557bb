// A call whose output formats have to be compiled before anything else is done for it.
#include <memory>
#include <utility>

#include "server/generation_request.h"
#include "server/server.h"

namespace pelton::server {
namespace {

// On the exchange's net thread; `call` is gone once it goes on, or its client has left.
struct WaitingCall {
  std::optional<Call> call;
  int64_t began_ns = 0;
};

}  // namespace

void Server::with_guide(Call call, GuideOrder order, GuideThen then) {
  FormatCompiler::Asked asked{.model = call.model,
                              .tenant = call.tenant,
                              .account = access::billing_account(call.tenant, order.user),
                              .weight = call.caller.weight,
                              .bytes = call.body_bytes,
                              .deadline_ns = order.deadline_ns,
                              .make = std::move(order.make)};
  std::string().swap(call.request.body);  // it may be large, and is said
  const auto go_on = [this, then = std::move(then)](Call one, FormatCompiler::Guide guide) {
    if (guide.ok()) return then(std::move(one), *std::move(guide));
    one.send(not_compiled(access_, one.caller, guide.error(), formats_.pool()));
  };
  if (std::optional<FormatCompiler::Guide> known = formats_.known(asked)) {
    return go_on(std::move(call), *std::move(known));
  }
  const std::shared_ptr<net::Exchange> exchange = call.exchange;
  const auto waiting = std::make_shared<WaitingCall>();
  waiting->began_ns = clock_.now_ns();
  waiting->call.emplace(std::move(call));
  // On a thread of the pool's.
  auto done = [this, exchange, waiting, go_on](FormatCompiler::Guide guide) {
    const auto made = std::make_shared<FormatCompiler::Guide>(std::move(guide));
    exchange->post([this, waiting, go_on, made] {
      if (!waiting->call) return;
      Call one = *std::exchange(waiting->call, std::nullopt);
      if (access::RequestRecord* const record =
              one.entry == nullptr ? nullptr : one.entry->record()) {
        record->compile_began_ns = waiting->began_ns;
        record->compile_ended_ns = clock_.now_ns();
      }
      go_on(std::move(one), std::move(*made));
    });
  };
  auto submitted = formats_.compile(std::move(asked), std::move(done));
  if (!submitted.ok()) {
    return go_on(*std::exchange(waiting->call, std::nullopt), submitted.error());
  }
  exchange->on_closed([ticket = *std::move(submitted), waiting] {
    ticket->cancel();
    waiting->call.reset();
  });
}

}  // namespace pelton::server
