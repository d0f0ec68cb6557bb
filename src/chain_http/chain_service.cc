#include "chain_http/chain_service.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include <fmt/format.h>

#include "api/chain_request.h"
#include "api/error.h"
#include "chain_http/chat_chain.h"
#include "chain_http/http_step.h"
#include "chain_http/run_driver.h"
#include "chain_http/run_report.h"
#include "cli/command_line.h"
#include "net/json_response.h"
#include "net/sse.h"

namespace pelton::chain_http {
namespace {

net::HttpResponse error_answer(const api::ApiError& error) {
  net::HttpResponse response = net::json_response(api::error_body(error), error.status);
  if (error.retry_after_s > 0) {
    response.headers.add("Retry-After", std::to_string(error.retry_after_s));
  }
  return response;
}

// The client's side of a run: on the exchange's net thread, but for what is atomic.
class ReplyLink : public std::enable_shared_from_this<ReplyLink> {
 public:
  ReplyLink(std::shared_ptr<net::Exchange> exchange, std::shared_ptr<net::WorkLoop::Queue> loop)
      : exchange_(std::move(exchange)), loop_(std::move(loop)) {}

  // From any thread: what is said on the net thread.
  void post(std::function<void(ReplyLink&)> work) {
    exchange_->post([self = shared_from_this(), work = std::move(work)] { work(*self); });
  }

  void watch(std::function<void()> left, std::function<void()> drained) {
    drained_ = std::move(drained);
    exchange_->on_closed([loop = loop_, left = std::move(left)] { loop->post(left); });
    exchange_->on_drained([weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->note_sent();
    });
  }
  void write(const std::string& bytes) {
    if (!std::exchange(begun_, true)) {
      net::HttpHeaders headers = headers_;
      headers.add("Content-Type", "text/event-stream");
      headers.add("Cache-Control", "no-cache");
      exchange_->start_stream(200, std::move(headers));
    }
    exchange_->write(bytes);
    written_ += bytes.size();
    note_sent();
  }
  void finish() { exchange_->finish(); }
  void send(net::HttpResponse response) {
    for (const auto& [name, value] : headers_.fields()) response.headers.add(name, value);
    exchange_->send(std::move(response));
  }

  // On the runs' thread, before anything is said: of the answer.
  void add_header(std::string name, std::string value) {
    headers_.add(std::move(name), std::move(value));
  }
  // On the runs' thread.
  void note_posted(size_t bytes) { posted_ += bytes; }
  size_t backlog_bytes() {
    const size_t first = posted_ - sent_;
    if (first <= kBacklogBytesMax) return first;
    // Whoever asks waits for less: it is looked at again behind that.
    awaited_ = true;
    return posted_ - sent_;
  }

 private:
  void note_sent() {
    sent_ = written_ - std::min(written_, exchange_->queued_bytes());
    if (awaited_.exchange(false)) loop_->post(drained_);
  }

  const std::shared_ptr<net::Exchange> exchange_;
  const std::shared_ptr<net::WorkLoop::Queue> loop_;
  net::HttpHeaders headers_;
  std::function<void()> drained_;
  size_t written_ = 0;
  bool begun_ = false;
  size_t posted_ = 0;             // on the runs' thread
  std::atomic<size_t> sent_ = 0;  // of what was posted
  std::atomic<bool> awaited_ = false;
};

}  // namespace

// What a run reports, as its client reads it. On the runs' thread.
class ChainService::Reply final : public RunSink {
 public:
  // The service and the chain outlive it.
  Reply(std::shared_ptr<ReplyLink> link, std::unique_ptr<RunWriter> writer, bool streamed,
        ChainService& service, const chain::Chain& chain)
      : link_(std::move(link)),
        writer_(std::move(writer)),
        streamed_(streamed),
        figures_(*service.figures_),
        chain_(chain),
        clock_(service.clock_),
        begun_ns_(clock_.now_ns()) {
    figures_.on_begin(chain_);
  }

  void on_events(const chain::ChainRun::Work& work) override {
    for (const chain::RunEvent& event : work.events) figures_.on_event(chain_, event);
    if (!streamed_) return;
    std::string events;
    for (const chain::RunEvent& event : work.events) writer_->event(event, events);
    write(std::move(events));
  }

  void on_end(const chain::ChainRun& run) override {
    figures_.on_end(chain_, run, static_cast<double>(clock_.now_ns() - begun_ns_) * 1e-9);
    const auto& failure = run.failure();
    if (!streamed_) {
      net::HttpResponse answer =
          failure ? error_answer(run_error(*failure)) : net::json_response(writer_->body(run));
      link_->post([held = std::make_shared<net::HttpResponse>(std::move(answer))](ReplyLink& link) {
        link.send(std::move(*held));
      });
    } else {
      std::string events;
      if (failure) {
        net::append_sse_event(events, "error", api::error_body(run_error(*failure)));
      } else {
        writer_->end(run, events);
      }
      net::append_sse_data(events, "[DONE]");
      write(std::move(events));
      link_->post([](ReplyLink& link) { link.finish(); });
    }
    if (on_over) on_over();
  }

  size_t backlog_bytes() override { return link_->backlog_bytes(); }

  std::function<void()> on_over;

 private:
  void write(std::string events) {
    if (events.empty()) return;
    link_->note_posted(events.size());
    link_->post([held = std::move(events)](ReplyLink& link) { link.write(held); });
  }

  const std::shared_ptr<ReplyLink> link_;
  const std::unique_ptr<RunWriter> writer_;
  const bool streamed_;
  ChainFigures& figures_;
  const chain::Chain& chain_;
  const base::Clock& clock_;
  const int64_t begun_ns_;
};

Result<std::unique_ptr<ChainService>> ChainService::open(std::vector<chain::Chain> chains,
                                                         const Options& options, Send send,
                                                         const base::Clock& clock) {
  for (const chain::Chain& chain : chains) TRY(check_http_steps(chain, options.http_hosts));
  return std::unique_ptr<ChainService>(
      new ChainService(std::move(chains), options, std::move(send), clock));
}

ChainService::ChainService(std::vector<chain::Chain> chains, const Options& options, Send send,
                           const base::Clock& clock)
    : options_(options),
      send_(std::move(send)),
      clock_(clock),
      client_(net::HttpClient::Options{}),
      loop_("pelton-chain") {
  for (chain::Chain& chain : chains) {
    chains_.push_back(std::make_shared<const chain::Chain>(std::move(chain)));
  }
  figures_ = std::make_unique<ChainFigures>(chains_);
}

ChainService::~ChainService() {
  loop_.post([this] {
    stopping_ = true;
    const auto running = runs_;
    for (const auto& [reply, run] : running) run.driver->cancel();
  });
}

std::string ChainService::list_body() const {
  return chain_list_body(chains_);
}

std::shared_ptr<const chain::Chain> ChainService::find(std::string_view name) const {
  const auto found =
      std::ranges::find_if(chains_, [&](const auto& one) { return one->name == name; });
  return found == chains_.end() ? nullptr : *found;
}

std::vector<std::string> ChainService::chat_models() const {
  std::vector<std::string> models;
  for (const auto& chain : chains_) {
    if (chat_input_field(*chain)) {
      models.push_back(fmt::format("{}{}", kChainModelPrefix, chain->name));
    }
  }
  return models;
}

api::ApiError ChainService::missing(std::string_view name) const {
  std::vector<std::string> names;
  for (const auto& chain : chains_) names.push_back(chain->name);
  const std::optional<std::string> near = cli::nearest(name, names);
  return {.status = 404,
          .message = fmt::format("there is no chain '{}'{}", name,
                                 near ? fmt::format("; did you mean '{}'?", *near) : ""),
          .type = "invalid_request_error",
          .param = {},
          .code = "chain_not_found"};
}

void ChainService::run(Request request, std::shared_ptr<net::Exchange> exchange) {
  loop_.post([this, held = std::make_shared<Request>(std::move(request)),
              exchange = std::move(exchange)] { begin(held, exchange); });
}

// What a body of either kind asks for.
struct ChainService::Asked {
  Json input;
  bool stream = false;
  std::optional<double> timeout_s;
  std::vector<std::string> ignored;
  std::unique_ptr<RunWriter> writer;
};

Result<ChainService::Asked> ChainService::read(const Request& request) {
  if (!request.as_chat) {
    TRY_ASSIGN(api::ChainRequest plain, api::parse_chain_request(request.body, nullptr));
    return Asked{.input = std::move(plain.input),
                 .stream = plain.stream,
                 .timeout_s = plain.timeout_s,
                 .ignored = {},
                 .writer = make_event_writer(request.chain, request.id)};
  }
  TRY_ASSIGN(ChatChainRequest chat, parse_chat_chain_request(request.body, *request.chain));
  return Asked{.input = std::move(chat.input),
               .stream = chat.stream,
               .timeout_s = chat.timeout_s,
               .ignored = std::move(chat.ignored),
               .writer = make_chat_writer(*request.chain, {.id = request.id,
                                                           .created_s = clock_.unix_ms() / 1000,
                                                           .include_usage = chat.include_usage})};
}

CarryOut ChainService::carry_out(const Caller& caller) {
  const auto now_ns = [this] { return clock_.now_ns(); };
  const InnerRequests inner{
      .loop = loop_.queue(),
      .send =
          [this, caller](net::HttpRequest asked, std::shared_ptr<net::Exchange> answered) {
            send_(std::move(asked), std::move(answered), caller);
          },
      .headers = caller.headers,
      .now_ns = now_ns};
  const HttpSteps http{.loop = loop_.queue(),
                       .client = &client_,
                       .models_url = {},
                       .model_headers = {},
                       .now_ns = now_ns};
  return [inner, http](const chain::StepCall& call, StepCallEvents events) {
    return call.step->kind == chain::Step::Kind::kModel
               ? start_inner_request(inner, call, std::move(events))
               : start_http_step(http, call, std::move(events));
  };
}

Result<void> ChainService::room_for(const std::string& tenant) const {
  if (stopping_ || std::ssize(runs_) >= options_.runs_max) {
    return Error{ErrorCode::kOverloaded,
                 fmt::format("{} chains run already; try again later", runs_.size())};
  }
  const auto own =
      std::ranges::count_if(runs_, [&](const auto& one) { return one.second.tenant == tenant; });
  if (tenant.empty() || own < std::max(1, options_.runs_max / 2)) return {};
  return Error{ErrorCode::kOverloaded,
               fmt::format("{} of the tenant's chains run already; try again later", own)};
}

void ChainService::begin(const std::shared_ptr<Request>& request,
                         std::shared_ptr<net::Exchange> exchange) {
  const auto link = std::make_shared<ReplyLink>(std::move(exchange), loop_.queue());
  const auto refuse = [&](const api::ApiError& error) {
    link->post([answer = error_answer(error)](ReplyLink& to) { to.send(answer); });
  };
  Result<Asked> parsed = read(*request);
  if (!parsed.ok()) return refuse(api::api_error(parsed.error()));
  for (const std::string& field : parsed->ignored) {
    link->add_header("x-pelton-warning", fmt::format("'{}' has no effect on a chain", field));
  }
  const Result<void> fits = chain::check_input(*request->chain, parsed->input);
  if (!fits.ok()) return refuse(api::api_error(fits.error()));
  const Result<void> has_room = room_for(request->caller.principal.tenant);
  if (!has_room.ok()) {
    figures_->on_refused(*request->chain);
    return refuse({.status = 429,
                   .message = has_room.error().message,
                   .type = "rate_limit_error",
                   .param = {},
                   .code = "chains_busy",
                   .retry_after_s = 1});
  }
  chain::ChainRun::Options options{.any_model = request->any_model,
                                   .streamed = parsed->stream,
                                   .deadline_ns = request->deadline_ns};
  const auto within = [&](const std::optional<double>& seconds) {
    if (!seconds) return;
    const int64_t at = clock_.now_ns() + static_cast<int64_t>(*seconds * 1e9);
    options.deadline_ns = std::min(options.deadline_ns.value_or(INT64_MAX), at);
  };
  within(parsed->timeout_s);
  within(request->chain->timeout_s);

  const auto reply = std::make_shared<Reply>(link, std::move(parsed->writer), parsed->stream, *this,
                                             *request->chain);
  const auto driver =
      std::make_shared<RunDriver>(RunDriver::Parts{.loop = loop_.queue(),
                                                   .chain = request->chain,
                                                   .carry_out = carry_out(request->caller),
                                                   .sink = reply,
                                                   .clock = clock_},
                                  parsed->input, options);
  const std::weak_ptr<RunDriver> weak = driver;
  runs_.emplace(reply.get(), Running{.driver = driver, .tenant = request->caller.principal.tenant});
  // Posted, as the driver is still at work.
  reply->on_over = [this, key = reply.get()] { loop_.post([this, key] { runs_.erase(key); }); };
  link->post([weak](ReplyLink& to) {
    to.watch(
        [weak] {
          if (const auto run = weak.lock()) run->cancel();
        },
        [weak] {
          if (const auto run = weak.lock()) run->on_drained();
        });
  });
  driver->start();
}

}  // namespace pelton::chain_http
