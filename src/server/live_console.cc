#include "server/live_console.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "console/pages.h"
#include "server/reply.h"

namespace pelton::server {
namespace {

constexpr std::chrono::milliseconds kTick{250};
constexpr int kQuietTicks = 20;  // then a comment, so that a client which has gone is noticed

// The counts of one more model.
void add(std::vector<int64_t>& sums, const telemetry::Histogram::Reading& reading) {
  sums.resize(reading.up_to.size());
  for (size_t i = 0; i < sums.size(); ++i) sums[i] += reading.up_to[i];
}

void add_model(LiveCounters& counters, const ServedModel& model) {
  const engine::EngineStats stats = model.engine.stats();
  const engine::Ledger ledger = model.engine.ledger();
  const engine::ExecutorCapacity& capacity = model.engine.capacity();
  counters.output_tokens += stats.steps.output_tokens;
  counters.prompt_tokens += stats.scheduler.prompt_tokens;
  counters.steps += stats.steps.count;
  counters.prefix_tokens_asked += stats.prefix_tokens_asked;
  counters.prefix_tokens_found += stats.prefix_tokens_found;
  counters.running += stats.running;
  counters.waiting += std::max(stats.waiting, stats.queued);
  const GenerationMeter::Histograms& all = model.state->meter.histograms();
  counters.first_bounds = all.first_token_s.bounds();
  add(counters.first_token, all.first_token_s.read());
  counters.inter_bounds = all.inter_token_s.bounds();
  add(counters.inter_token, all.inter_token_s.read());
  for (int group = 0; group < capacity.groups.size(); ++group) {
    const std::string name(kv::pool_name(capacity.groups[group].spec, kv::kDevice));
    auto known = std::ranges::find(counters.kv, name, &LiveCounters::Group::name);
    if (known == counters.kv.end()) known = counters.kv.insert(known, {.name = name});
    known->used += stats.blocks_used[group];
    known->total += ledger.of(group, kv::kDevice).total;
  }
}

int64_t number_of(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? number : 0;
}

net::HttpResponse refusal(int status, std::string code, std::string message) {
  return net::error_response(
      {.status = status, .code = std::move(code), .message = std::move(message)});
}

}  // namespace

// One browser's. The exchange is kept by what waits for its next turn, and by nothing else.
class LiveConsole::Stream : public std::enable_shared_from_this<Stream> {
 public:
  Stream(LiveConsole& console, std::shared_ptr<net::Exchange> exchange, int64_t sent)
      : console_(console), exchange_(std::move(exchange)), sent_(sent) {}
  ~Stream() { --console_.streams_; }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void start() {
    exchange_->on_closed([weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->over_ = true;
    });
    net::HttpHeaders headers;
    headers.add("Content-Type", "text/event-stream; charset=utf-8");
    headers.add("Cache-Control", "no-store");
    headers.add("X-Accel-Buffering", "no");  // nginx would hold events back
    exchange_->start_stream(200, std::move(headers));
    tick();
  }

 private:
  void tick() {
    if (over_) return;
    const Services& services = console_.parts_.services;
    if (services.draining || services.leaving) return exchange_->finish();
    if (exchange_->queued_bytes() == 0) write_news();
    exchange_->post_after(kTick, [self = shared_from_this()] { self->tick(); });
  }

  void write_news() {
    const LiveHistory::News news = console_.history_.after(sent_);
    if (!news.samples.empty()) {
      quiet_ = 0;
      sent_ = news.newest;
      exchange_->write(fmt::format("id: {}\ndata: {}\n\n", news.newest, news.samples));
    } else if (++quiet_ >= kQuietTicks) {
      quiet_ = 0;
      exchange_->write(": \n\n");
    }
  }

  LiveConsole& console_;
  const std::shared_ptr<net::Exchange> exchange_;
  int64_t sent_;
  int quiet_ = 0;
  bool over_ = false;
};

LiveConsole::LiveConsole(const Parts& parts)
    : parts_(parts),
      sampler_({.name = "pelton-live", .interval = std::chrono::seconds(1)}, [this] { note(); }) {}

void LiveConsole::note() {
  LiveCounters counters;
  for (const std::shared_ptr<const ServedModel>& model : parts_.services.catalogue.held()) {
    add_model(counters, *model);
  }
  const base::Clock& clock = parts_.services.clock;
  history_.note(counters, clock.now_ns(), clock.unix_ms());
}

bool LiveConsole::handle(const net::HttpRequest& request,
                         const std::shared_ptr<net::Exchange>& exchange) {
  if (!console::is_console_path(request.path)) return false;
  if (request.method != "GET" && request.method != "HEAD") {
    net::HttpResponse refused =
        refusal(405, "method_not_allowed", request.path + " is for GET and HEAD");
    refused.headers.add("Allow", "GET, HEAD");
    exchange->send(std::move(refused));
  } else if (request.path == "/console/live") {
    follow(request, exchange);
  } else {
    exchange->send(console::console_reply(request, {.version = parts_.services.options.version,
                                                    .pages = {"live"},
                                                    .chat_port = parts_.chat_port,
                                                    .chat_tls = parts_.chat_tls}));
  }
  return true;
}

void LiveConsole::follow(const net::HttpRequest& request,
                         const std::shared_ptr<net::Exchange>& exchange) {
  // Pages of other sites could take all streams that there are.
  const std::string_view site = request.headers.get("Sec-Fetch-Site");
  if (!site.empty() && site != "same-origin" && site != "none") {
    return exchange->send(refusal(403, "forbidden_origin", "this is for the console's own page"));
  }
  if (request.method == "HEAD") return exchange->send({.status = 200, .headers = {}, .body = {}});
  if (++streams_ > kStreamsMax) {
    --streams_;
    return exchange->send(refusal(503, "too_many_consoles",
                                  fmt::format("{} consoles are open already", kStreamsMax)));
  }
  const int64_t sent = number_of(request.headers.get("Last-Event-ID"));
  std::make_shared<Stream>(*this, exchange, sent)->start();
}

}  // namespace pelton::server
