// The part of gateway::Fleet that looks after workers which are no Peltons: whether they answer,
// how loaded they are, and what they can do with an answer that another one began.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/json.h"
#include "gateway/fleet.h"

namespace pelton::gateway {
namespace {

constexpr int64_t kPollAgainNs = 500'000'000;
constexpr int64_t kLoadAgeNs = 2'000'000'000;  // what it said longer ago counts for nothing
constexpr size_t kModelsBytesMax = size_t{1} << 20;
constexpr size_t kMetricsBytesMax = size_t{4} << 20;
constexpr size_t kModelsMax = 256;
constexpr int kForeignSlots = 64;  // nobody knows
constexpr std::chrono::milliseconds kConnectTime{1'000};
constexpr std::chrono::milliseconds kPollTime{2'000};
constexpr std::chrono::milliseconds kAbilityTime{30'000};  // it may have to wait for its turn
constexpr std::string_view kBegun = "1 2 3 4";             // that it is to go on with

// A request of one token that goes on with an answer.
std::string ability_body(ForeignNeed ability, WorkerKind kind, const std::string& model) {
  Json body{Json::Object{}};
  body.set("model", Json(model)).set("max_tokens", Json(1)).set("temperature", Json(0));
  switch (ability) {
    case ForeignNeed::kChat: {
      Json user{Json::Object{}};
      user.set("role", Json("user")).set("content", Json("Count."));
      Json said{Json::Object{}};
      said.set("role", Json("assistant")).set("content", Json(kBegun));
      body.set("messages", Json(Json::Array{std::move(user), std::move(said)}));
      if (kind == WorkerKind::kLlamaCpp) return body.dump();
      body.set("add_generation_prompt", Json(false)).set("continue_final_message", Json(true));
      return body.dump();
    }
    case ForeignNeed::kTokens:
      body.set("prompt", Json(Json::Array{Json(1), Json(2), Json(3)}));
      body.set("return_token_ids", Json(true));
      return body.dump();
    case ForeignNeed::kText:
    case ForeignNeed::kNone:
      break;
  }
  body.set("prompt", Json(kBegun));
  return body.dump();
}

// It has gone on: what it was given is not said again; of tokens it says which they are.
bool shows_ability(ForeignNeed ability, std::string_view answer) {
  const Result<Json> json = Json::parse(answer);
  const Json* choices = json.ok() ? json->find("choices") : nullptr;
  if (choices == nullptr || !choices->is_array() || choices->as_array().empty()) return false;
  const Json& choice = choices->as_array().front();
  if (ability == ForeignNeed::kChat) {
    const Json* message = choice.find("message");
    const auto text = message == nullptr ? std::nullopt : message->string("content");
    return text && !text->starts_with(kBegun);
  }
  const auto text = choice.string("text");
  if (!text) return false;
  if (ability == ForeignNeed::kText) return !text->starts_with(kBegun);
  const Json* prompt = choice.find("prompt_token_ids");
  const Json* said = choice.find("token_ids");
  return prompt != nullptr && *prompt == Json(Json::Array{Json(1), Json(2), Json(3)}) &&
         said != nullptr && said->is_array() && !said->as_array().empty();
}

// An answer as it comes, whole.
struct Whole {
  int status = 0;
  std::string body;
};

net::HttpCallEvents gather(const std::shared_ptr<Whole>& whole,
                           std::function<void(const Result<void>&)> done) {
  net::HttpCallEvents events;
  events.on_head = [whole](int status, const net::HttpHeaders&) { whole->status = status; };
  events.on_body = [whole](std::string_view bytes) { whole->body += bytes; };
  events.on_done = [done = std::move(done)](const Result<void>& result) { done(result); };
  return events;
}

}  // namespace

void Fleet::set_foreign(size_t index, Worker& worker, const PoolConfig* pool) {
  if (pool == nullptr) return;
  if (!worker.config.region.empty()) {
    worker.kind = WorkerKind::kRegion;
    worker.tls = worker.config.tls;
    worker.trust = worker.config.trust;
    worker.api_key = worker.config.api_key;
    worker.continues = false;
    worker.abilities = {};
    return;
  }
  if (worker.kv_events_port != pool->kv_events_port ||
      worker.kv_replay_port != pool->kv_replay_port) {
    retire(index, worker);
  }
  worker.kv_events_port = pool->kv_events_port;
  worker.kv_replay_port = pool->kv_replay_port;
  worker.kind = pool->kind;
  worker.tls = worker.config.tls || (pool->is_foreign() && pool->tls);
  worker.trust = pool->trust;
  worker.api_key = pool->api_key;
  worker.continues = pool->continues;
  if (pool->is_foreign()) worker.role = worker.config.role;
  if (!worker.continues) worker.abilities = {};
}

net::HttpCall Fleet::foreign_call(const Worker& worker, std::string method, std::string target) {
  net::HttpCall call{.method = std::move(method),
                     .host = worker.config.host,
                     .port = worker.config.port,
                     .tls = worker.tls,
                     .trust = worker.trust,
                     .target = std::move(target),
                     .headers = {},
                     .body = {},
                     .repeatable = true,
                     .connect_time_max = kConnectTime,
                     .whole_time_max = kPollTime};
  if (!worker.api_key.empty()) call.headers.add("Authorization", "Bearer " + worker.api_key);
  return call;
}

Result<Fleet::ForeignModels> Fleet::models_of_list(std::string_view body) {
  const Result<Json> json = Json::parse(body);
  const Json* data = json.ok() ? json->find("data") : nullptr;
  if (data == nullptr || !data->is_array()) {
    return Error{ErrorCode::kIo, "/v1/models is no list of models", {}};
  }
  ForeignModels listed;
  for (const Json& card : data->as_array()) {
    if (listed.models.size() == kModelsMax) break;
    const std::string& id = listed.models.emplace_back(card.string("id").value_or(""));
    if (!card.string("parent").value_or("").empty()) listed.adapters.push_back(id);
  }
  return listed;
}

void Fleet::poll(Worker& worker, const Place& place) {
  net::HttpCall call = foreign_call(worker, "GET", "/v1/models");
  call.body_bytes_max = kModelsBytesMax;
  const auto answer = std::make_shared<Whole>();
  worker.watch = client_.start(
      std::move(call), gather(answer, [this, place, answer](const Result<void>& result) {
        if (!result.ok()) return on_polled(place, result.error());
        if (answer->status == 200) return on_polled(place, models_of_list(answer->body));
        on_polled(place,
                  Error{ErrorCode::kIo, fmt::format("/v1/models answers {}", answer->status), {}});
      }));
  ask_load(worker, place);
}

void Fleet::on_polled(const Place& place, const Result<ForeignModels>& listed) {
  std::lock_guard lock(mutex_);
  Worker* worker = at(place);
  if (worker == nullptr) return;
  const int64_t now_ns = clock_.now_ns();
  worker->watch.reset();
  worker->watch_again_ns = now_ns + kPollAgainNs;
  if (!listed.ok()) {
    worker->trouble = listed.error().message;
    // Another one may answer there next.
    worker->abilities = {};
    worker->abilities_asked = false;
    return worker->health.note_watch_lost(listed.error().code == ErrorCode::kUnavailable, now_ns);
  }
  worker->trouble.clear();
  worker->record = {.name = worker->shown,
                    .incarnation = fmt::format("foreign {}", worker->serial),
                    .models = listed->models,
                    .slots = kForeignSlots,
                    .block_tokens = worker->kv_block_tokens};
  if (makes_media(*worker)) {
    worker->adapters = listed->adapters;
    std::ranges::sort(worker->adapters);
  }
  worker->health.note_record(worker->record, now_ns);
  worker->health.note_probe(true);
  const bool is_fresh = worker->said_ns > 0 && now_ns - worker->said_ns < kLoadAgeNs;
  // Of ours it has at least those without an outcome.
  const int own = worker->open + static_cast<int>(worker->making.videos.size());
  const int running = is_fresh ? std::max(worker->said_load.running, own) : own;
  worker->health.note_load({.progress = worker->health.load().progress + 1,
                            .running = running,
                            .waiting = is_fresh ? worker->said_load.waiting : 0,
                            .dispatch = dispatched_,
                            .kv_used = is_fresh ? worker->said_load.kv_used : 0},
                           now_ns);
  worker->over_since_report = 0;
  forget_counted(*worker, now_ns);
  ask_abilities(*worker, place);
  subscribe(*worker, place);
}

void Fleet::subscribe(Worker& worker, const Place& place) {
  if (worker.kv_events_port == 0 || !hasher_) return;
  std::unique_ptr<cluster::VllmSubscriber>& subscriber = subscribers_[worker.serial];
  if (subscriber != nullptr) return;
  worker.kv_subscription = ++subscriptions_;
  subscriber = std::make_unique<cluster::VllmSubscriber>(cluster::VllmSubscriber::Options{
      .host = worker.config.host,
      .port = worker.kv_events_port,
      .replay_port = worker.kv_replay_port,
      // Names are computed on the subscriber's thread, which owns them: that takes no lock.
      .on_news = [this, place, subscription = worker.kv_subscription,
                  blocks = std::make_shared<VllmBlocks>()](
                     const cluster::VllmSubscriber::Options::News& said) {
        KvNews news{.reset = said.reset};
        if (said.reset) blocks->clear();
        blocks->apply(said.events, *hasher_, news.changes);
        news.block_tokens = blocks->block_tokens();
        on_kv_news(place, subscription, news);
      }});
}

void Fleet::retire(size_t index, Worker& worker) {
  const auto found = subscribers_.find(worker.serial);
  if (found == subscribers_.end()) return;
  retired_.push_back(std::move(found->second));
  subscribers_.erase(found);
  worker.kv_subscription = 0;
  worker.kv_block_tokens = 0;
  worker.names_agree = false;
  worker.record.block_tokens = 0;
  blocks_.forget(static_cast<int>(index));
}

void Fleet::on_kv_news(const Place& place, uint64_t subscription, const KvNews& news) {
  std::lock_guard lock(mutex_);
  Worker* worker = at(place);
  if (worker == nullptr || worker->kv_subscription != subscription) return;
  const int index = static_cast<int>(place.index);
  ++kv_events_.batches;
  if (news.reset) {
    ++kv_events_.resets[static_cast<size_t>(*news.reset)];
    log_.warning(fmt::format("worker {}: what its prefix cache holds is not known any more ({})",
                             worker->shown, name_of(*news.reset)));
  }
  if (news.reset || news.changes.clears) {
    blocks_.forget(index);
    ++index_resyncs_;
  }
  for (const VllmBlocks::Change& change : news.changes.changes) {
    change.stored ? blocks_.note_stored(index, BlockView::Group::kWidest, change.name)
                  : blocks_.note_removed(index, BlockView::Group::kWidest, change.name);
  }
  // Whatever it calls them: here they have our names.
  worker->kv_block_tokens = news.block_tokens;
  worker->names_agree = news.block_tokens > 0;
  worker->record.block_tokens = news.block_tokens;
}

Fleet::KvEvents Fleet::kv_events() const {
  std::lock_guard lock(mutex_);
  return kv_events_;
}

void Fleet::ask_load(Worker& worker, const Place& place) {
  const std::string_view path = foreign_load_path(worker.kind);
  if (path.empty() || worker.scraping) return;
  worker.scraping = true;
  net::HttpCall call = foreign_call(worker, "GET", std::string(path));
  call.body_bytes_max = kMetricsBytesMax;
  const auto page = std::make_shared<Whole>();
  client_.start(std::move(call), gather(page, [this, place, page](const Result<void>& result) {
                  std::lock_guard lock(mutex_);
                  Worker* worker = at(place);
                  if (worker == nullptr) return;
                  worker->scraping = false;
                  if (!result.ok() || page->status != 200) return;
                  const auto load = parse_foreign_load(worker->kind, page->body);
                  if (!load) return;
                  worker->said_load = *load;
                  worker->said_ns = clock_.now_ns();
                }));
}

void Fleet::ask_abilities(Worker& worker, const Place& place) {
  const bool may = worker.continues && worker.kind != WorkerKind::kOpenAi && !makes_media(worker);
  if (!may || worker.abilities_asked || worker.record.models.empty()) return;
  worker.abilities_asked = true;
  ask_ability(worker, place, ForeignNeed::kChat);
  ask_ability(worker, place, ForeignNeed::kText);
  if (worker.kind == WorkerKind::kVllm) ask_ability(worker, place, ForeignNeed::kTokens);
}

void Fleet::ask_ability(Worker& worker, const Place& place, ForeignNeed ability) {
  const bool is_chat = ability == ForeignNeed::kChat;
  net::HttpCall call =
      foreign_call(worker, "POST", is_chat ? "/v1/chat/completions" : "/v1/completions");
  call.headers.add("Content-Type", "application/json");
  call.body = ability_body(ability, worker.kind, worker.record.models.front());
  call.whole_time_max = kAbilityTime;
  call.body_bytes_max = kModelsBytesMax;
  const auto answer = std::make_shared<Whole>();
  client_.start(std::move(call),
                gather(answer, [this, place, ability, answer](const Result<void>& result) {
                  std::lock_guard lock(mutex_);
                  Worker* worker = at(place);
                  if (worker == nullptr || !worker->continues) return;
                  const bool can =
                      result.ok() && answer->status == 200 && shows_ability(ability, answer->body);
                  if (ability == ForeignNeed::kChat) worker->abilities.chat = can;
                  if (ability == ForeignNeed::kText) worker->abilities.text = can;
                  if (ability == ForeignNeed::kTokens) worker->abilities.tokens = can;
                  log_.info(fmt::format("worker {} goes on with answers: {}", worker->shown,
                                        worker->abilities.level()));
                }));
}

}  // namespace pelton::gateway
