#include "server/waiting_call.h"

#include <algorithm>
#include <memory>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "server/reply.h"
#include "server/services.h"

namespace pelton::server {
namespace {

// On the exchange's net thread; `call` is gone once it goes on, or its client has left.
struct WaitingCall {
  std::optional<Call> call;
};

// When it is worth asking for a model again that many wait for.
constexpr int64_t kWakeRetryNs = 10'000'000'000;
// For an adapter.
constexpr int64_t kAdapterRetryNs = 1'000'000'000;

// Half of the processors: the other half steps and streams.
int preparing_threads() {
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()) / 2, 1, 4);
}

}  // namespace

WorkPool::Options preparation_pool_options() {
  return {.jobs = "large requests",
          .waiting = "wait to be read",
          .expired = "it was read",
          .work = "read the request",
          .thread_name = "pelton-prepare",
          .short_lane = {.cpu_us_max = 0,
                         .threads = preparing_threads(),
                         .nice = 0,
                         .waiting_max = 4096,
                         .waiting_per_tenant_max = 2048},
          .long_lane = {.threads = 0},
          .waiting_bytes_max = int64_t{256} << 20,
          .waiting_bytes_per_tenant_max = int64_t{128} << 20};
}

void wait_for_work(Call call, const SubmitWork& submit,
                   std::function<void(Call call, std::optional<Error> error)> then) {
  const std::shared_ptr<net::Exchange> exchange = call.exchange;
  const auto waiting = std::make_shared<WaitingCall>();
  waiting->call.emplace(std::move(call));
  // On a thread of the pool's.
  auto done = [exchange, waiting, then](std::optional<Error> error) {
    exchange->post([waiting, then, error = std::move(error)] {
      if (waiting->call) then(*std::exchange(waiting->call, std::nullopt), error);
    });
  };
  auto submitted = submit(std::move(done));
  if (!submitted.ok()) {
    return then(*std::exchange(waiting->call, std::nullopt), submitted.error());
  }
  if (!*submitted) return;
  exchange->on_closed([cancel = *std::move(submitted), waiting] {
    cancel();
    waiting->call.reset();
  });
}

CancelWork cancel_of(std::shared_ptr<WorkPool::Ticket> ticket) {
  return [ticket = std::move(ticket)] { ticket->cancel(); };
}

void Services::prepare_beside(Call call, Length length, std::function<void()> work,
                              std::function<void(Call call)> then) {
  if (length == Length::kByBody && call.body_bytes < options.beside_bytes_min) {
    work();
    return then(std::move(call));
  }
  WorkPool::Job job{.tenant = access::billing_account(call.tenant, ""),
                    .weight = call.caller.weight,
                    .bytes = call.body_bytes};
  job.run = [work = std::move(work)](const WorkPool::Attempt&) {
    work();
    return WorkPool::Outcome::kDone;
  };
  const auto submit = [&](WorkDone done) -> Result<CancelWork> {
    job.done = std::move(done);
    TRY_ASSIGN(std::shared_ptr<WorkPool::Ticket> ticket, preparation.submit(std::move(job)));
    return cancel_of(std::move(ticket));
  };
  wait_for_work(
      std::move(call), submit,
      [this, then = std::move(then)](Call prepared, const std::optional<Error>& error) {
        if (!error) return then(std::move(prepared));
        const int64_t retry_ns = preparation.retry_after_ns();
        if (prepared.model == nullptr) {
          return prepared.send(access_control.with_retry(*error, retry_ns));
        }
        if (error->code == ErrorCode::kOverloaded && prepared.ticket != nullptr) {
          access_control.refund_request(prepared.caller);
        }
        prepared.send(access_control.overloaded(*error, *prepared.model->state->refusals,
                                                access::RefusalCounts::By::kQueue, retry_ns));
      });
}

void Services::wait_for_model(Call call, std::string id, std::function<void(Call call)> then) {
  ModelSleep::Waiter waiter{.id = id, .tenant = call.tenant, .bytes = call.body_bytes, .done = {}};
  const auto submit = [&](const WorkDone& done) {
    waiter.done = [done](const Result<void>& outcome) {
      done(outcome.ok() ? std::nullopt : std::optional(outcome.error()));
    };
    return model_sleep.wait(std::move(waiter));
  };
  wait_for_work(std::move(call), submit,
                [this, id, then = std::move(then)](Call one, const std::optional<Error>& error) {
                  if (!error) return then(std::move(one));
                  if (error->code == ErrorCode::kOverloaded) {
                    if (const auto refusals = catalogue.refusals_of(id)) {
                      refusals->count(access::RefusalCounts::By::kQueue);
                    }
                    return one.send(access_control.with_retry(*error, kWakeRetryNs));
                  }
                  one.send(not_ready(
                      fmt::format("The model '{}' could not be woken: {}", id, error->message)));
                });
}

void Services::wait_for_adapter(Call call, std::string name, std::function<void(Call call)> then) {
  const auto table = catalogue.table();
  const ModelCatalogue::Entry* const entry = table->find_adapters_of(name);
  if (entry == nullptr) return call.send(no_model(name));
  // Written by the registry, then read on the net thread.
  const auto held = std::make_shared<std::shared_ptr<const AdapterHold>>();
  AdapterRegistry::Waiter waiter{.tenant = call.tenant, .bytes = call.body_bytes, .done = {}};
  const auto submit = [&](const WorkDone& done) {
    waiter.done = [done, held](AdapterRegistry::Held given) {
      if (!given.ok()) return done(given.error());
      *held = *std::move(given);
      done(std::nullopt);
    };
    return entry->adapters->wait(name, std::move(waiter));
  };
  wait_for_work(
      std::move(call), submit,
      [this, name, held, refusals = entry->refusals, base = entry->names.id,
       then = std::move(then)](Call one, const std::optional<Error>& error) {
        // Of a model that has been unloaded meanwhile nobody finds the adapter; it was
        // there when this was asked.
        const auto now = catalogue.table();
        const ModelCatalogue::Entry* const still = now->find(base);
        if (still == nullptr || still->adapters == nullptr) {
          return one.send(not_ready(fmt::format("The model '{}' is being unloaded", base)));
        }
        if (!error) {
          one.adapter = std::move(*held);
          return then(std::move(one));
        }
        if (error->code == ErrorCode::kOverloaded) {
          if (refusals != nullptr) refusals->count(access::RefusalCounts::By::kQueue);
          return one.send(access_control.with_retry(*error, kAdapterRetryNs));
        }
        if (error->code == ErrorCode::kNotFound && error->field == kUnknownAdapter) {
          return one.send(no_model(name));
        }
        one.send(adapter_not_loaded(name, *error));
      });
}

void Services::with_guide(Call call, GuideOrder order, GuideThen then) {
  FormatCompiler::Asked asked{.model = call.model,
                              .tenant = call.tenant,
                              .account = access::billing_account(call.tenant, order.user),
                              .weight = call.caller.weight,
                              .bytes = call.body_bytes,
                              .deadline_ns = order.deadline_ns,
                              .make = std::move(order.make)};
  const auto go_on = [this, then = std::move(then)](Call one, FormatCompiler::Guide guide) {
    if (guide.ok()) return then(std::move(one), *std::move(guide));
    const NotCompiled refused{.principal = one.caller, .model = *one.model, .error = guide.error()};
    one.send(not_compiled(access_control, refused, formats.pool()));
  };
  if (std::optional<FormatCompiler::Guide> known = formats.known(asked)) {
    return go_on(std::move(call), *std::move(known));
  }
  const int64_t began_ns = clock.now_ns();
  // Written by the pool, then read on the net thread.
  const auto made = std::make_shared<std::optional<FormatCompiler::Guide>>();
  const auto submit = [&](const WorkDone& done) -> Result<CancelWork> {
    TRY_ASSIGN(std::shared_ptr<WorkPool::Ticket> ticket,
               formats.compile(std::move(asked), [made, done](FormatCompiler::Guide guide) {
                 made->emplace(std::move(guide));
                 done(std::nullopt);
               }));
    return cancel_of(std::move(ticket));
  };
  wait_for_work(std::move(call), submit,
                [this, go_on, made, began_ns](Call one, const std::optional<Error>& error) {
                  if (error) return go_on(std::move(one), *error);
                  if (access::RequestRecord* const record = one.record()) {
                    record->compile_began_ns = began_ns;
                    record->compile_ended_ns = clock.now_ns();
                  }
                  go_on(std::move(one), std::move(**made));
                });
}

}  // namespace pelton::server
