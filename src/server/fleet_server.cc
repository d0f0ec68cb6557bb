#include "server/fleet_server.h"

#include <algorithm>
#include <iterator>
#include <random>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/random.h"
#include "cluster/block_events.h"
#include "cluster/block_names.h"
#include "cluster/frame.h"
#include "cluster/token_list.h"
#include "engine/engine.h"
#include "server/audited_requests.h"
#include "server/health.h"
#include "server/reply.h"
#include "server/resumed_answers.h"
#include "speech/transcriber.h"

namespace pelton::server {
namespace {

using cluster::append_frame;
using cluster::Frame;
using cluster::FrameType;

constexpr std::chrono::milliseconds kReportTime{100};
constexpr std::chrono::milliseconds kSessionsTime{10};  // between two looks whether any is left
constexpr size_t kGatewaysMax = 256;
constexpr size_t kDispatchesMax = 4096;  // of a gateway, that are known again
// So many at one report: a frame of some ten kilobytes, and a moment of the event log's lock.
constexpr int kBlockEventsMax = 4096;
constexpr int64_t kFitNs = 80'000'000;  // between two looks at what the engines have done
constexpr size_t kChoicesMax = 4096;    // of one request: prompts times n

// What a gateway sends with POST /fleet/v1/run.
struct Run {
  cluster::RunEnvelope envelope;
  ResumedAnswers resumed;
  std::vector<size_t> said;  // tokens, by choice
  std::string body;
};

Error bad_run(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message)};
}

engine::FinishReason reason_of(const std::string& name) {
  if (name == "length") return engine::FinishReason::kLength;
  if (name == "repetition") return engine::FinishReason::kRepetition;
  return name == "cancelled" ? engine::FinishReason::kCancelled : engine::FinishReason::kStop;
}

Result<void> add_tokens(const Frame& frame, ResumedChoice& choice) {
  TRY_ASSIGN(cluster::TokenList list, cluster::decode_token_list(frame.payload));
  if (list.first != choice.tokens.size()) {
    return bad_run(fmt::format("choice {} has {} tokens, and those from {} on follow", frame.choice,
                               choice.tokens.size(), list.first));
  }
  for (cluster::WireToken& token : list.tokens) {
    choice.tokens.push_back(
        {.token = token.token, .logprob = token.logprob, .top = std::move(token.top)});
  }
  return {};
}

Result<void> add_end(const Frame& frame, ResumedChoice& choice) {
  TRY_ASSIGN(const cluster::ChoiceEnd end, cluster::decode_choice_end(frame.payload));
  choice.end = engine::StreamEnd{.reason = reason_of(end.reason),
                                 .prompt_tokens = end.prompt_tokens,
                                 .cached_tokens = end.cached_tokens,
                                 .output_tokens = end.output_tokens};
  return {};
}

Result<void> add_found(const Frame& frame, ResumedChoice& choice) {
  TRY_ASSIGN(const cluster::PromptFound found, cluster::decode_prompt_found(frame.payload));
  choice.found =
      engine::PromptFound{.cached_tokens = found.cached_tokens, .from_peer = found.peer_tokens};
  kv::PerTier<int>& tiers = choice.found->by_tier;
  tiers[kv::kHost] = found.host_tokens;
  tiers[kv::kDisk] = found.disk_tokens;
  tiers[kv::kDevice] =
      found.cached_tokens - found.host_tokens - found.disk_tokens - found.peer_tokens;
  return {};
}

Result<void> add_prompt(const Frame& frame, ResumedAnswers& resumed) {
  TRY_ASSIGN(const cluster::TokenList list, cluster::decode_token_list(frame.payload));
  if (resumed.prompts.size() <= frame.choice) resumed.prompts.resize(frame.choice + 1u);
  std::vector<TokenId>& prompt = resumed.prompts[frame.choice];
  prompt.clear();
  for (const cluster::WireToken& token : list.tokens) prompt.push_back(token.token);
  return {};
}

Result<void> add_frame(const Frame& frame, Run& run, bool& enveloped) {
  if (frame.type == FrameType::kRun) {
    TRY_ASSIGN(run.envelope, cluster::decode_run_envelope(frame.payload));
    enveloped = true;
    return {};
  }
  if (frame.type == FrameType::kBody) {
    run.body = frame.payload;
    return {};
  }
  if (frame.type == FrameType::kAdapter) {
    run.resumed.adapter = frame.payload;
    return {};
  }
  if (frame.choice >= kChoicesMax) return bad_run("too many choices");
  if (frame.type == FrameType::kPrompt) return add_prompt(frame, run.resumed);
  const bool is_of_choice = frame.type == FrameType::kTokens ||
                            frame.type == FrameType::kFinished || frame.type == FrameType::kFound;
  if (!is_of_choice) return {};
  if (run.resumed.choices.size() <= frame.choice) run.resumed.choices.resize(frame.choice + 1u);
  ResumedChoice& choice = run.resumed.choices[frame.choice];
  if (frame.type == FrameType::kFound) return add_found(frame, choice);
  return frame.type == FrameType::kTokens ? add_tokens(frame, choice) : add_end(frame, choice);
}

Result<Run> parse_run(std::string_view body) {
  cluster::FrameReader reader;
  reader.push(body);
  Run run;
  bool enveloped = false;
  for (;;) {
    TRY_ASSIGN(const std::optional<Frame> frame, reader.next());
    if (!frame) break;
    TRY(add_frame(*frame, run, enveloped));
  }
  if (!enveloped || reader.left() > 0) return bad_run("half a request");
  run.resumed.delivered = run.envelope.delivered;
  run.resumed.further_max = run.envelope.further_max;
  run.resumed.warmed = run.envelope.warmed;
  for (const ResumedChoice& choice : run.resumed.choices) run.said.push_back(choice.tokens.size());
  return run;
}

// What a gateway sends with POST /fleet/v1/say.
struct Said {
  cluster::SaidEnvelope envelope;
  std::vector<std::string> messages;
};

Result<Said> parse_said(std::string_view body) {
  cluster::FrameReader reader;
  reader.push(body);
  Said said;
  bool enveloped = false;
  for (;;) {
    TRY_ASSIGN(const std::optional<Frame> frame, reader.next());
    if (!frame) break;
    if (frame->type == FrameType::kSaid) {
      TRY_ASSIGN(said.envelope, cluster::decode_said_envelope(frame->payload));
      enveloped = true;
    } else if (frame->type == FrameType::kBody) {
      said.messages.emplace_back(frame->payload);
    }
  }
  if (!enveloped || reader.left() > 0) return bad_run("half of what a client has said");
  return said;
}

bool opens_websocket(const net::HttpRequest& request) {
  return request.method == "GET" && request.headers.has("Upgrade");
}

std::string random_incarnation() {
  std::random_device random;
  std::string text;
  for (int i = 0; i < 4; ++i) text += fmt::format("{:08x}", random());
  return text;
}

void fail_on_purpose(std::shared_ptr<net::Exchange> exchange, std::vector<size_t> said) {
  const api::ApiError error{.status = 500,
                            .message = "this request was to fail (/admin/faults)",
                            .type = "server_error",
                            .param = {},
                            .code = "injected_fault"};
  std::make_shared<FleetExchange>(std::move(exchange), std::move(said))->send(error_reply(error));
}

void lie(double number, cluster::WorkerLoad& load) {
  const auto whole = static_cast<int>(std::clamp(number, -1.0, 1e9));
  load.running = load.waiting = whole;
  load.waiting_tokens = load.context_tokens = static_cast<int64_t>(number);
  load.wait_s = load.kv_used = number;
  load.costs = {
      .fixed_s = number, .prefill_token_s = number, .row_s = number, .context_token_s = number};
}

void add_adapters(const AdapterRegistry& adapters, cluster::WorkerLoad& load) {
  const AdapterRegistry::Stats stats = adapters.stats();
  const size_t left = cluster::WorkerLoad::kAdaptersMax - load.adapters.size();
  for (AdapterRegistry::Resident& one : adapters.residents(left)) {
    load.adapters.push_back({.name = std::move(one.name), .digest = std::move(one.digest)});
  }
  load.adapter_places += adapters.resident_max();
  load.adapter_wait_s = std::max(load.adapter_wait_s, stats.wait_s);
  const double asked = static_cast<double>(stats.hits + stats.misses);
  if (asked > 0) load.adapter_hits = static_cast<double>(stats.hits) / asked;
}

api::ApiError already_begun() {
  return {.status = 425,
          .message = "this attempt has come before",
          .type = "server_error",
          .param = {},
          .code = "already_begun"};
}

api::ApiError wrong_incarnation() {
  return {.status = 409,
          .message = "another start of this worker was meant",
          .type = "server_error",
          .param = {},
          .code = "wrong_incarnation"};
}

}  // namespace

// One gateway's watch. Its exchange holds it until the gateway leaves.
class FleetServer::Watch : public std::enable_shared_from_this<Watch> {
 public:
  Watch(FleetServer& server, std::shared_ptr<net::Exchange> exchange, std::string gateway)
      : server_(server), exchange_(std::move(exchange)), gateway_(std::move(gateway)) {}

  void begin() {
    exchange_->on_closed([self = shared_from_this()] { self->over_ = true; });
    net::HttpHeaders headers;
    headers.add("Content-Type", "application/x-pelton-frames");
    exchange_->start_stream(200, std::move(headers));
    report();
  }

 private:
  void send(FrameType type, const std::string& payload) {
    std::string frames;
    append_frame(frames, {.type = type, .payload = payload});
    exchange_->write(frames);
  }

  void report() {
    if (over_) return;
    if (server_.closing_) return exchange_->finish();
    // A gateway that does not read is sent nothing more until it does. Of what is sent here the
    // load goes with the record: without it nothing is known of the worker.
    const bool is_read = exchange_->queued_bytes() == 0 || record_.empty();
    // Models and adapters come and go while it serves.
    if (const FleetServer::Served served = server_.served(); !(served == served_)) {
      served_ = served;
      std::string record = encode(server_.record());
      if (record != record_) send(FrameType::kRecord, record_ = std::move(record));
    }
    if (is_read) {
      send(FrameType::kLoad, encode(server_.load(gateway_)));
      report_blocks();
    }
    exchange_->post_after(kReportTime, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->report();
    });
  }

  // Where one model is served, whose blocks are named as the fleet's.
  void report_blocks() {
    const auto models = server_.server_.services().catalogue.serving();
    if (!server_.options_.block_seed || models.size() != 1) return;
    const ServedModel& model = *models.front();
    cluster::BlockEvents announced{.clears = model.serial != blocks_of_, .events = {}};
    if (announced.clears) next_event_ = 0;
    blocks_of_ = model.serial;
    const auto reading =
        model.engine.kv_events().read({.from = next_event_, .events_max = kBlockEventsMax});
    const FaultInjection* faults = server_.options_.faults;
    const double dropped = faults == nullptr ? 0 : faults->now().drop_events;
    // What was removed unheard would be taken for held.
    announced.clears = announced.clears || reading.missed > 0;
    next_event_ = reading.next;
    for (const auto& event : reading.events) {
      if (event.tier != 0) continue;  // on the device only
      if (server_.draws_below(dropped)) continue;
      announced.events.push_back({.stored = event.kind == decltype(event.kind)::kStored,
                                  .group = event.group,
                                  .name = event.block.low});
    }
    if (!announced.clears && announced.events.empty()) return;
    std::string frames;
    append_frame(
        frames,
        {.type = FrameType::kBlocks, .flags = Frame::kOptional, .payload = encode(announced)});
    exchange_->write(frames);
  }

  FleetServer& server_;
  const std::shared_ptr<net::Exchange> exchange_;
  const std::string gateway_;
  FleetServer::Served served_;  // of which the record was sent last
  std::string record_;
  uint64_t blocks_of_ = 0;  // the model whose events are being announced, by its serial
  int64_t next_event_ = 0;
  bool over_ = false;
};

Result<void> FleetServer::open(const Options& options) {
  options_ = options;
  incarnation_ = random_incarnation();
  net::HttpServer::Options http{
      .address = options.address,
      .port = options.port,
      .threads = options.threads,
      // A page of a browser's has no fleet key.
      .hosts = options.keys.empty() ? net::AllowedHosts().at(options.address) : net::AllowedHosts(),
      .tls = options.keys.empty() ? nullptr : net::TlsIdentity::of_shared_keys(options.keys),
      .body_bytes_max = cluster::kFramePayloadMax + (size_t{1} << 20)};
  http_ = std::make_unique<net::HttpServer>(
      http,
      [this](net::HttpRequest request, const std::shared_ptr<net::Exchange>& exchange) {
        handle(std::move(request), exchange);
      },
      log_);
  Result<void> started = http_->start();
  if (!started) http_.reset();
  return started;
}

std::vector<std::shared_ptr<FleetExchange>> FleetServer::sessions() {
  std::vector<std::shared_ptr<FleetExchange>> open;
  std::lock_guard lock(mutex_);
  for (const auto& [key, session] : sessions_) {
    if (auto alive = session.lock()) open.push_back(std::move(alive));
  }
  return open;
}

void FleetServer::drain_sessions() {
  for (const std::shared_ptr<FleetExchange>& session : sessions()) {
    session->post([session] { session->drain(); });
  }
}

void FleetServer::close(std::chrono::milliseconds grace) {
  const auto end = std::chrono::steady_clock::now() + grace;
  while (std::chrono::steady_clock::now() < end && !sessions().empty()) {
    std::this_thread::sleep_for(kSessionsTime);
  }
  grace = std::max(
      std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now()),
      std::chrono::milliseconds(0));
  closing_ = true;
  if (http_ != nullptr) http_->stop(grace);
  http_.reset();
}

void FleetServer::handle(net::HttpRequest request, std::shared_ptr<net::Exchange> exchange) {
  if (request.path == "/fleet/v1/run" && request.method == "POST") return run(request, exchange);
  if (request.path == "/fleet/v1/say" && request.method == "POST") return say(request, exchange);
  exchange = audited_command(request, exchange, "a gateway", options_.audit);
  if (request.path == "/fleet/v1/watch" && request.method == "GET") {
    const std::string gateway(request.headers.get("x-pelton-gateway"));
    return std::make_shared<Watch>(*this, exchange, gateway)->begin();
  }
  if (request.path == "/fleet/v1/metrics" && request.method == "GET") {
    request.path = "/metrics";
    return server_.handle_as(std::move(request), exchange, {});
  }
  const bool erases =
      request.path == "/fleet/v1/reset_prefix_cache" || request.path == "/fleet/v1/erase_tenant";
  if (erases && request.method == "POST") {
    request.path = request.path.substr(request.path.rfind('/'));
    return server_.handle_as(std::move(request), exchange, {.is_admin = true});
  }
  if (request.path == "/fleet/v1/release" && request.method == "POST") {
    release();
    return exchange->send({.status = 202});
  }
  exchange->send(error_reply(api::not_found(request.method, request.path)));
}

void FleetServer::release() {
  for (const std::shared_ptr<const ServedModel>& model : server_.services().catalogue.serving()) {
    model->engine.release_kv_memory();
  }
}

void FleetServer::run(const net::HttpRequest& request, std::shared_ptr<net::Exchange> exchange) {
  Result<Run> run = parse_run(request.body);
  if (!run.ok()) return exchange->send(error_reply(api::api_error(run.error())));
  cluster::RunEnvelope& envelope = run->envelope;
  if (envelope.incarnation != incarnation_) return exchange->send(error_reply(wrong_incarnation()));
  if (!note_dispatch(envelope)) return exchange->send(error_reply(already_begun()));
  const bool is_probe = envelope.method == "GET";
  if (!is_probe && is_to_fail()) return fail_on_purpose(exchange, std::move(run->said));
  net::HttpRequest inner{.method = std::move(envelope.method),
                         .path = std::move(envelope.path),
                         .query = std::move(envelope.query),
                         .headers = {},
                         .body = std::move(run->body),
                         .remote = std::move(envelope.remote)};
  for (auto& [name, value] : envelope.headers) inner.headers.add(std::move(name), std::move(value));
  Server::Forwarded forwarded{.principal = {.tenant = envelope.tenant, .weight = envelope.weight},
                              .identity = {.seed = envelope.seed,
                                           .created_ms = envelope.created_ms,
                                           .date = std::move(envelope.date)},
                              .deadline_ns = {},
                              .resumed = {},
                              .observer = {},
                              .peer = {}};
  if (envelope.peer.port != 0) {
    forwarded.peer = request::PrefixPeer{.host = std::move(envelope.peer.host),
                                         .port = envelope.peer.port,
                                         .tokens = envelope.peer.tokens,
                                         .ticket = std::move(envelope.peer.ticket),
                                         .ahead = envelope.peer.ahead};
  }
  if (envelope.deadline_ms > 0) {
    forwarded.deadline_ns = server_.services().clock.now_ns() + envelope.deadline_ms * 1'000'000;
  }
  const auto answer = std::make_shared<FleetExchange>(std::move(exchange), std::move(run->said));
  const bool is_resumed = !run->resumed.choices.empty() || !run->resumed.prompts.empty();
  if (is_resumed || run->resumed.delivered || run->resumed.further_max > 0) {
    forwarded.resumed = std::make_shared<const ResumedAnswers>(std::move(run->resumed));
  }
  forwarded.observer = answer;
  answer->begin_beats([this] { return leaves(); });
  if (opens_websocket(inner)) note_session({envelope.gateway, envelope.dispatch}, answer);
  server_.handle_forwarded(std::move(inner), answer, std::move(forwarded));
}

bool FleetServer::leaves() const {
  return closing_ || server_.services().leaving;
}

void FleetServer::note_session(SessionKey key, const std::shared_ptr<FleetExchange>& session) {
  std::lock_guard lock(mutex_);
  std::erase_if(sessions_, [](const auto& one) { return one.second.expired(); });
  sessions_.insert_or_assign(std::move(key), session);
}

// Its messages are heard on the session's thread, one request's after the other's.
void FleetServer::say(const net::HttpRequest& request,
                      const std::shared_ptr<net::Exchange>& exchange) {
  Result<Said> said = parse_said(request.body);
  if (!said.ok()) return exchange->send(error_reply(api::api_error(said.error())));
  const cluster::SaidEnvelope& envelope = said->envelope;
  if (envelope.incarnation != incarnation_) return exchange->send(error_reply(wrong_incarnation()));
  std::shared_ptr<FleetExchange> session;
  {
    std::lock_guard lock(mutex_);
    const auto found = sessions_.find({envelope.gateway, envelope.dispatch});
    if (found != sessions_.end()) session = found->second.lock();
  }
  if (session == nullptr) return exchange->send(error_reply(FleetExchange::session_unknown()));
  const auto heard = std::make_shared<FleetExchange::Heard>(FleetExchange::Heard{
      .first = envelope.first, .messages = std::move(said->messages), .drains = envelope.drains});
  session->post([session, heard, exchange] {
    const std::optional<api::ApiError> refused =
        session->closed() ? FleetExchange::session_unknown() : session->hear(std::move(*heard));
    exchange->post([exchange, refused] {
      exchange->send(refused ? error_reply(*refused) : net::HttpResponse{.status = 202});
    });
  });
}

bool FleetServer::is_to_fail() {
  return options_.faults != nullptr && draws_below(options_.faults->now().errors);
}

bool FleetServer::draws_below(double share) {
  constexpr uint64_t kSeed = 0x1A7C;
  const uint64_t bits = base::random_bits(kSeed, draws_.fetch_add(1));
  return static_cast<double>(bits >> 11) * 0x1p-53 < share;
}

bool FleetServer::note_dispatch(const cluster::RunEnvelope& envelope) {
  if (envelope.dispatch < 1) return true;  // a probe
  std::lock_guard lock(mutex_);
  if (dispatches_.size() >= kGatewaysMax && !dispatches_.contains(envelope.gateway)) {
    dispatches_.clear();  // of gateways that are long gone, nearly all
  }
  Dispatches& seen = dispatches_[envelope.gateway];
  seen.highest = std::max(seen.highest, envelope.dispatch);
  const bool is_new = seen.latest.insert(envelope.dispatch).second;
  if (seen.latest.size() > kDispatchesMax) seen.latest.erase(seen.latest.begin());
  return is_new;
}

FleetServer::Served FleetServer::served() const {
  const auto table = server_.services().catalogue.table();
  Served served{.models = table};
  for (const ModelCatalogue::Entry& entry : table->entries) {
    if (entry.adapters != nullptr) served.adapter_names += entry.adapters->names_version();
  }
  return served;
}

cluster::WorkerRecord FleetServer::record() const {
  cluster::WorkerRecord record{.name = options_.name,
                               .incarnation = incarnation_,
                               .models = {},
                               .version = server_.services().options.version,
                               .zone = options_.zone,
                               .region = options_.region,
                               .role = options_.role,
                               .beat_ms = static_cast<int>(FleetExchange::kBeatTime.count())};
  const auto models = server_.services().catalogue.serving();
  for (const std::shared_ptr<const ServedModel>& model : models) {
    record.models.push_back(model->id);
    record.models.insert(record.models.end(), model->aliases.begin(), model->aliases.end());
    if (!model->fingerprint.empty()) {
      record.fingerprints[model->id] = model->fingerprint;
      for (const std::string& alias : model->aliases) {
        record.fingerprints[alias] = model->fingerprint;
      }
    }
    record.slots += model->engine.capacity().sequences_max;
    record.batch_tokens = std::max(record.batch_tokens, model->engine.capacity().batch_tokens_max);
    record.context_tokens =
        std::max(record.context_tokens, static_cast<int>(model->context_limit()));
    record.date = model->current_date.value_or("");
    if (model->adapters == nullptr) continue;
    const size_t left = cluster::WorkerRecord::kAdapterBytesMax / models.size();
    std::ranges::move(model->adapters->names(left), std::back_inserter(record.adapters));
  }
  if (!options_.block_seed || models.size() != 1) return record;
  const engine::ExecutorCapacity& capacity = models.front()->engine.capacity();
  record.block_tokens = capacity.block_tokens;
  record.block_name = cluster::block_name_check(*options_.block_seed, capacity.block_tokens);
  for (const auto& group : capacity.groups) record.windows.push_back(group.spec.sliding_window);
  if (const kv::PeerTransfers::Place* const place = models.front()->engine.peer_place()) {
    record.kv_port = place->port;
    record.kv_id = place->id;
    record.kv_ahead = true;
  }
  return record;
}

void FleetServer::fit_steps(const cluster::WorkerLoad& load) {
  Look now{.at_ns = server_.services().clock.now_ns(), .busy = load.busy_ms > 0};
  for (const std::shared_ptr<const ServedModel>& model : server_.services().catalogue.serving()) {
    const engine::StepCounts steps = model->engine.stats().steps;
    now.steps += steps.count;
    now.tokens += steps.tokens;
    now.output_tokens += steps.output_tokens;
  }
  std::lock_guard lock(mutex_);
  if (now.at_ns - looked_.at_ns < kFitNs) return;
  // A step that takes longer than that belongs to the interval in which it ends, with all its time.
  if (looked_.busy && now.busy && now.steps == looked_.steps) return;
  const Look before = std::exchange(looked_, now);
  // Only what it was busy with all the time shows how long that takes.
  if (!before.busy || !now.busy || now.steps < before.steps) return;
  const int64_t outputs = now.output_tokens - before.output_tokens;
  fit_.note({.seconds = static_cast<double>(now.at_ns - before.at_ns) * 1e-9,
             .steps = now.steps - before.steps,
             .prefill_tokens = std::max<int64_t>(now.tokens - before.tokens - outputs, 0),
             .output_tokens = outputs,
             .context_tokens = load.context_tokens});
}

// Of all models together: a slow step of one of them is the worker's.
cluster::WorkerLoad FleetServer::load(const std::string& gateway) {
  const Services& services = server_.services();
  cluster::WorkerLoad load;
  {
    std::lock_guard lock(mutex_);
    const auto found = dispatches_.find(gateway);
    if (found != dispatches_.end()) load.dispatch = found->second.highest;
  }
  load.ready = ready(services);
  load.draining = services.leaving;
  const int64_t now_ns = services.clock.now_ns();
  for (const std::shared_ptr<const ServedModel>& model : services.catalogue.serving()) {
    const engine::EngineStats stats = model->engine.stats();
    const int64_t busy_since_ns = model->engine.busy_since_ns();
    load.progress += stats.steps.count;
    load.running += stats.running;
    const engine::ExecutorCapacity& capacity = model->engine.capacity();
    for (int group = 0; group < capacity.groups.size(); ++group) {
      const int blocks = capacity.blocks(group, 0);
      if (blocks == 0) continue;
      const double used = static_cast<double>(stats.blocks_used[group]) / blocks;
      load.kv_used = std::max(load.kv_used, std::min(used, 1.0));
      if (capacity.groups[group].spec.slides()) continue;
      load.context_tokens += int64_t{stats.blocks_used[group]} * capacity.block_tokens;
    }
    load.waiting += std::max(stats.queued, stats.waiting);
    load.waiting_tokens += stats.queued_tokens;
    load.wait_s = std::max(load.wait_s, static_cast<double>(stats.queue_wait_ns) * 1e-9);
    if (model->transcriber != nullptr) {
      const speech::Transcriber::Stats heard = model->transcriber->stats();
      load.progress += heard.windows;
      load.running += heard.running;
      load.waiting += heard.waiting;
    }
    if (model->adapters != nullptr) add_adapters(*model->adapters, load);
    if (busy_since_ns > 0) {
      load.busy_ms = std::max<int64_t>({load.busy_ms, (now_ns - busy_since_ns) / 1'000'000, 1});
    }
  }
  fit_steps(load);
  {
    std::lock_guard lock(mutex_);
    load.costs = fit_.costs();
  }
  const std::optional<double> lied =
      options_.faults == nullptr ? std::nullopt : options_.faults->now().lie_load;
  if (lied) lie(*lied, load);
  return load;
}

}  // namespace pelton::server
