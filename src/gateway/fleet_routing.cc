// The part of gateway::Fleet that says where a request goes: what each worker would take for it, by
// its reports, by what was sent to it since, and by what it holds of the prompt.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "base/authenticated_cipher.h"
#include "cluster/block_events.h"
#include "gateway/fleet.h"
#include "kv_transfer/peer_id.h"
#include "kv_transfer/peer_ticket.h"

namespace pelton::gateway {
namespace {

// What a worker was sent it has in its reports by then, or has never had.
constexpr int64_t kUncountedNs = 2'000'000'000;
constexpr int64_t kShortTokens = 1024;  // an estimate by the body's length is good enough
constexpr int64_t kYoungNs = 10'000'000'000;
constexpr double kTypicalOutput = 256;  // tokens, where nothing is known
constexpr double kNewestShare = 0.05;   // of the newest answer in the averages
// No step takes less: who says so is not believed.
constexpr double kStepMinS = 1e-4;
// So many times faster than the pool's middle worker may one say that it is.
constexpr double kFaster = 4;
// Requests that a worker has of ours and does not report: their ends may be on their way.
constexpr int kUnreportedMax = 2;
constexpr int64_t kDoubtedNs = 30'000'000'000;

cluster::StepCosts divided(const cluster::StepCosts& costs, double by) {
  return {.fixed_s = std::max(costs.fixed_s / by, kStepMinS),
          .prefill_token_s = costs.prefill_token_s / by,
          .row_s = costs.row_s / by,
          .context_token_s = costs.context_token_s / by};
}

cluster::StepCosts at_least(const cluster::StepCosts& costs, const cluster::StepCosts& floor) {
  return {.fixed_s = std::max(costs.fixed_s, floor.fixed_s),
          .prefill_token_s = std::max(costs.prefill_token_s, floor.prefill_token_s),
          .row_s = std::max(costs.row_s, floor.row_s),
          .context_token_s = std::max(costs.context_token_s, floor.context_token_s)};
}

// To the first token, if fetching from the peer took no time; 0: there is none.
double fed_first_s(const CostRequest& request, CostCandidate candidate,
                   const cluster::RunEnvelope::Peer& peer) {
  if (peer.port == 0 || peer.tokens <= candidate.hit_tokens) return 0;
  candidate.fetch_token_s = 0;
  candidate.fetch_tokens = peer.tokens - candidate.hit_tokens;
  return cost_of(request, candidate).first_s;
}

// What each has said itself that it has, looked up once for a request.
void note_held(const Fleet::Wanted& wanted, int tail_blocks, std::vector<CostCandidate>& all,
               BlockView& blocks) {
  if (!all.empty() && all.front().held_tokens >= 0) return;
  std::vector<int> held(all.size());
  blocks.find_held(wanted.prompt.names, tail_blocks, held);
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].held_tokens = int64_t{held[i]} * wanted.prompt.block_tokens;
  }
}

// With what each has said itself that it has: what is on its way there may be late, or be this
// request's to bring, and who waits for it has none to give.
std::vector<CostCandidate> with_held(const Fleet::Wanted& wanted, int tail_blocks,
                                     std::vector<CostCandidate> all, BlockView& blocks) {
  note_held(wanted, tail_blocks, all, blocks);
  for (CostCandidate& one : all) one.hit_tokens = std::min(one.hit_tokens, one.held_tokens);
  return all;
}

BlockView::Dispatch arriving(size_t worker, int tail_blocks, int64_t now_ns, double first_s) {
  return {.worker = static_cast<int>(worker),
          .tail_blocks = tail_blocks,
          .now_ns = now_ns,
          .until_ns = now_ns + BlockView::expected_ns(first_s)};
}

int64_t computed_tokens(const CostRequest& request, const CostCandidate& candidate) {
  const int64_t there = candidate.hit_tokens + candidate.fetch_tokens;
  return std::max<int64_t>(request.prompt_tokens - there, 0);
}

// What is typical of a pool its workers here say, if it has any: other regions' are priced by what
// the pool's middle worker there is, their way included, and say nothing of those here. They fade
// to it, so that one that was late is tried again.
template <typename Workers>
bool says_what_is_typical(const Workers& workers, const WorkerConfig& worker) {
  return worker.region.empty() || std::ranges::none_of(workers, [&](const auto& other) {
           return other != nullptr && other->config.pool == worker.pool &&
                  other->config.region.empty();
         });
}

void note_prompt(PromptShare& share, int64_t now_ns, int64_t tokens,
                 const CostCandidate& candidate) {
  share.note(now_ns, static_cast<double>(tokens) * candidate.costs.prefill_token_s);
}

}  // namespace

// Of workers that name them otherwise nothing is known.
Result<void> Fleet::note_blocks(size_t index, const Worker& worker, std::string_view payload) {
  TRY_ASSIGN(const cluster::BlockEvents announced, cluster::decode_block_events(payload));
  const int place = static_cast<int>(index);
  if (announced.clears) {
    blocks_.forget(place);
    ++index_resyncs_;
  }
  if (!worker.names_agree) return {};
  for (const cluster::BlockEvent& event : announced.events) {
    blocks_.note({.worker = place,
                  .group = event.group,
                  .stored = event.stored,
                  .name = {.low = event.name, .high = 0}},
                 worker.groups);
  }
  return {};
}

void Fleet::forget_counted(Worker& worker, int64_t now_ns) {
  const auto is_counted = [&](const Worker::Uncounted& one) {
    return one.dispatch <= worker.health.load().dispatch || now_ns - one.at_ns > kUncountedNs;
  };
  std::erase_if(worker.uncounted, is_counted);
  std::erase_if(worker.expected_adapters, [&](const auto& one) { return is_counted(one.second); });
}

bool Fleet::is_resident(const Worker& worker, std::string_view adapter) {
  const auto& adapters = worker.health.load().adapters;
  return worker.expected_adapters.contains(adapter) ||
         std::ranges::find(adapters, adapter, &cluster::ResidentAdapter::name) != adapters.end();
}

void Fleet::price_adapter(const Worker& worker, std::string_view adapter, CostCandidate& one) {
  const bool has_it = std::ranges::binary_search(worker.adapters, adapter);
  if (!has_it || is_resident(worker, adapter)) return;
  const cluster::WorkerLoad& load = worker.health.load();
  const auto on_their_way = std::ranges::count_if(worker.expected_adapters, [&](const auto& sent) {
    return std::ranges::find(load.adapters, sent.first, &cluster::ResidentAdapter::name) ==
           load.adapters.end();
  });
  price({.resident = std::ssize(load.adapters) + on_their_way,
         .places = load.adapter_places,
         .wait_s = load.adapter_wait_s,
         .hits = load.adapter_hits},
        one);
}

std::string Fleet::region_of(const Worker& worker) const {
  if (!worker.record.region.empty()) return worker.record.region;
  const auto pool = std::ranges::find(pools_, worker.config.pool, &PoolConfig::name);
  if (pool == pools_.end() || pool->region == PoolConfig::kRegionOfWorker) return {};
  return pool->region;
}

cluster::StepCosts Fleet::middle_costs(std::string_view pool) const {
  const auto median = [&](double cluster::StepCosts::*cost) {
    std::vector<double> all;
    for (const std::unique_ptr<Worker>& worker : workers_) {
      if (worker == nullptr || worker->config.pool != pool) continue;
      if (worker->kind == WorkerKind::kRegion) continue;
      all.push_back(worker->health.load().costs.*cost);
    }
    if (all.empty()) return 0.0;
    const auto middle = all.begin() + std::ssize(all) / 2;
    std::nth_element(all.begin(), middle, all.end());
    return *middle;
  };
  using cluster::StepCosts;
  return {.fixed_s = median(&StepCosts::fixed_s),
          .prefill_token_s = median(&StepCosts::prefill_token_s),
          .row_s = median(&StepCosts::row_s),
          .context_token_s = median(&StepCosts::context_token_s)};
}

bool Fleet::panics(std::string_view pool, int64_t now_ns) const {
  int all = 0;
  int serving = 0;
  for (const std::unique_ptr<Worker>& worker : workers_) {
    if (worker == nullptr || worker->leaves || worker->config.pool != pool) continue;
    if (worker->kind == WorkerKind::kRegion) continue;
    ++all;
    if (worker->health.takes_requests(now_ns)) ++serving;
  }
  return 2 * serving < all;
}

bool Fleet::is_tried_in_panic(const Worker& worker, const Wanted& wanted, int64_t now_ns) {
  return !worker.leaves && !worker.config.draining && worker.config.pool == wanted.pool &&
         has_model(worker, wanted.model) && worker.health.is_worth_a_try(now_ns);
}

std::vector<CostCandidate> Fleet::candidates(const Wanted& wanted, int64_t now_ns) {
  std::vector<int> hits(workers_.size());
  // Windows are one model's: the same for all of a pool.
  for (const std::unique_ptr<Worker>& worker : workers_) {
    if (worker == nullptr || worker->config.pool != wanted.pool || !knows_names(*worker) ||
        worker->record.block_tokens != wanted.prompt.block_tokens) {
      continue;
    }
    blocks_.find(wanted.prompt.names, worker->groups.tail_blocks, now_ns, hits);
    break;
  }
  std::vector<CostCandidate> all(workers_.size(), CostCandidate{.usable = false});
  const cluster::StepCosts middle = middle_costs(wanted.pool);
  const cluster::StepCosts floor = divided(middle, kFaster);
  const bool panic = panics(wanted.pool, now_ns);
  for (size_t i = 0; i < workers_.size(); ++i) {
    if (workers_[i] == nullptr) continue;
    Worker& worker = *workers_[i];
    const cluster::WorkerLoad& load = worker.health.load();
    const TypicalBias typical = typical_bias(worker.config.pool);
    CostCandidate& one = all[i];
    one = {
        .costs = load.costs,
        .slots = worker.record.slots,
        .rows = std::max(load.running - worker.over_since_report, 0),
        .context_tokens = load.context_tokens,
        .waiting = load.waiting,
        .waiting_tokens = load.waiting_tokens,
        .uncounted = static_cast<int>(worker.uncounted.size()),
        .slot_wait_s = load.wait_s,
        .kv_used = load.kv_used,
        // What its configuration says of it goes before what it says itself.
        .distance_s =
            zones_.distance_s(worker.config.zone.empty() ? worker.record.zone : worker.config.zone),
        .bias = worker.first_bias.at(typical.first, now_ns),
        .rest_bias = worker.rest_bias.at(typical.rest, now_ns),
        .usable =
            (serves(worker, wanted.pool, wanted.model, now_ns) ||
             (panic && is_tried_in_panic(worker, wanted, now_ns))) &&
            meets(worker.abilities, wanted.need) &&
            !(worker.kind == WorkerKind::kRegion && (wanted.stays_here || wanted.fingerprint)) &&
            (wanted.region.empty() || region_of(worker) == wanted.region) &&
            (!wanted.fingerprint || worker.fingerprint == *wanted.fingerprint) &&
            std::ranges::find(wanted.excluded, i) == wanted.excluded.end() &&
            std::ranges::find(wanted.avoided, worker.record.incarnation) == wanted.avoided.end()};
    if (worker.kind == WorkerKind::kRegion) {
      price_region(worker, wanted, one);
      continue;
    }
    // Of ours it has at least as many as have no outcome yet, whatever it says. Whose report is
    // wrong in that is not believed to be faster than others either (GW-06).
    const int unreported = std::max(worker.open - one.rows - one.waiting - one.uncounted, 0);
    if (unreported > kUnreportedMax) worker.doubted_until_ns = now_ns + kDoubtedNs;
    one.costs = at_least(one.costs, now_ns < worker.doubted_until_ns ? middle : floor);
    price_adapter(worker, wanted.model, one);
    one.rows += unreported;
    for (const Worker::Uncounted& sent : worker.uncounted) one.uncounted_tokens += sent.tokens;
    if (knows_names(worker) && worker.record.block_tokens == wanted.prompt.block_tokens) {
      one.hit_tokens = int64_t{hits[i]} * wanted.prompt.block_tokens;
    }
    one.prompt_share = worker.prompt_share.at(now_ns);
    if (wanted.media != nullptr) price_media(worker, wanted, one);
  }
  if (!wanted.source && !options_.peer_key.empty()) price_fetches_of(wanted, now_ns, all);
  return all;
}

// Of what workers have said themselves: what was only sent to one is not there yet.
void Fleet::price_fetches_of(const Wanted& wanted, int64_t now_ns,
                             std::vector<CostCandidate>& all) {
  const auto measured = fetch_paces_.find(wanted.pool);
  if (measured == fetch_paces_.end() || wanted.prompt.names.empty()) return;
  std::vector<int64_t> tokens(workers_.size());
  const std::vector<uint32_t> exchange = exchanges(wanted);
  const auto any = std::ranges::find_if(exchange, [](uint32_t number) { return number != 0; });
  if (any == exchange.end()) return;
  const Worker& one = *workers_[static_cast<size_t>(any - exchange.begin())];
  note_held(wanted, one.groups.tail_blocks, all, blocks_);
  for (size_t i = 0; i < workers_.size(); ++i) {
    if (exchange[i] == 0) continue;
    const cluster::WorkerState state = workers_[i]->health.state(now_ns);
    const bool is_there =
        state == cluster::WorkerState::kReady || state == cluster::WorkerState::kDraining;
    if (is_there) tokens[i] = all[i].held_tokens;
  }
  price_fetches({.held = tokens,
                 .exchange = exchange,
                 .token_s = measured->second.token_s(),
                 .pair_token_s =
                     [&](size_t from, size_t to) {
                       return fetch_token_s(measured->second, from, to, now_ns);
                     }},
                all);
}

std::optional<double> Fleet::fetch_token_s(const FetchPaces& paces, size_t from, size_t to,
                                           int64_t now_ns) const {
  return paces.token_s(now_ns, {.from = workers_[from]->serial, .to = workers_[to]->serial});
}

// From each of those with hits to the chosen one; empty: nothing was measured.
std::vector<double> Fleet::fetch_times(const Wanted& wanted, std::span<const int64_t> hits,
                                       size_t chosen, int64_t now_ns) const {
  const auto measured = fetch_paces_.find(wanted.pool);
  if (measured == fetch_paces_.end() || !measured->second.token_s()) return {};
  std::vector<double> times(hits.size(), 0);
  for (size_t i = 0; i < hits.size(); ++i) {
    if (hits[i] > 0) times[i] = fetch_token_s(measured->second, i, chosen, now_ns).value_or(0);
  }
  return times;
}

CostRequest Fleet::cost_request(std::string_view pool, int64_t prompt_tokens) const {
  const auto known = outputs_.find(pool);
  const double output = known == outputs_.end() ? kTypicalOutput : known->second;
  return {.prompt_tokens = prompt_tokens, .output_tokens = std::llround(output)};
}

// A worker that is being stopped is a good source: what it has is soon gone. One of another region
// is none: the same tenant's requests may be narrowed to a region or not, and what one of them left
// in a KV cache stays where it was computed.
cluster::RunEnvelope::Peer Fleet::peer_for(const Wanted& wanted, size_t chosen,
                                           const std::vector<CostCandidate>& all, int64_t now_ns,
                                           uint64_t& serial) const {
  const Worker& target = *workers_[chosen];
  const int block_tokens = wanted.prompt.block_tokens;
  if (options_.peer_key.empty() || target.record.kv_port == 0 || block_tokens == 0) return {};
  const auto names = std::ssize(wanted.prompt.names) * block_tokens;
  const bool is_split = wanted.source.has_value();
  std::vector<int64_t> hits(workers_.size(), 0);
  for (size_t i = 0; i < workers_.size(); ++i) {
    const Worker* const worker = workers_[i].get();
    if (worker == nullptr || i == chosen || worker->config.pool != wanted.pool) continue;
    if (is_split && (i != wanted.source->worker || worker->serial != wanted.source->serial)) {
      continue;
    }
    const cluster::WorkerState state = worker->health.state(now_ns);
    const bool is_there =
        state == cluster::WorkerState::kReady || state == cluster::WorkerState::kDraining;
    if (!is_there || worker->record.kv_port == 0) continue;
    if (wanted.ahead && !(worker->record.kv_ahead && target.record.kv_ahead)) continue;
    if (worker->fingerprint != target.fingerprint) continue;
    if (region_of(*worker) != region_of(target)) continue;
    if (kv_transfer::layout_of(worker->record.kv_id) !=
        kv_transfer::layout_of(target.record.kv_id)) {
      continue;
    }
    hits[i] = is_split ? names : std::min(all[i].hit_tokens, names);
  }
  const std::vector<double> times = fetch_times(wanted, hits, chosen, now_ns);
  const std::optional<PrefixSource> peer =
      choose_peer({.hits = hits,
                   .chosen = chosen,
                   .chosen_hit = all[chosen].hit_tokens,
                   .is_split = is_split,
                   .draw = wanted.draw,
                   .fetch_token_s = times,
                   .compute_token_s = all[chosen].costs.prefill_token_s});
  if (!peer) return {};
  const Worker* const source = workers_[peer->worker].get();
  serial = source->serial;
  const int64_t most = peer->tokens;
  const std::span<const kv::BlockHash> granted =
      std::span(wanted.prompt.names).first(static_cast<size_t>(most / block_tokens));
  const auto unix_now = std::chrono::system_clock::now().time_since_epoch();
  const kv_transfer::PeerTicket ticket{
      .source = source->record.kv_id,
      .target = target.record.kv_id,
      .grant = kv_transfer::grant_of(granted),
      .request_id = std::string(wanted.request_id),
      .expires_ms = std::chrono::duration_cast<std::chrono::milliseconds>(unix_now).count() +
                    kv_transfer::PeerTicket::kLifeMs,
      .nonce = base::random_bytes(16)};
  return {.host = source->config.host,
          .port = source->record.kv_port,
          .tokens = static_cast<int>(most),
          .ticket = ticket.seal(options_.peer_key),
          .ahead = wanted.ahead};
}

std::optional<Fleet::Assignment> Fleet::assign(const Wanted& wanted) {
  std::lock_guard lock(mutex_);
  const int64_t now_ns = clock_.now_ns();
  for (const std::unique_ptr<Worker>& worker : workers_) {
    if (worker != nullptr) forget_counted(*worker, now_ns);
  }
  std::vector<CostCandidate> all = candidates(wanted, now_ns);
  const CostRequest request = cost_request(wanted);
  const Choice choice = choose(wanted, request, all, nullptr);
  if (!choice.worker) return std::nullopt;
  Worker& worker = *workers_[*choice.worker];
  ++worker.requests;
  ++worker.open;
  const CostCandidate& candidate = all[*choice.worker];
  const CostTerms terms = cost_of(request, candidate);
  const bool is_counted = wanted.prompt.block_tokens > 0 || wanted.prompt.tokens < kShortTokens;
  const int tail = worker.groups.tail_blocks;
  const bool asks = !options_.peer_key.empty() && worker.record.kv_port != 0 && !wanted.source;
  Assignment assignment{.worker = *choice.worker,
                        .serial = worker.serial,
                        .host = worker.config.host,
                        .port = worker.config.port,
                        .trust = worker.is_foreign ? worker.trust : options_.trust,
                        .incarnation = worker.record.incarnation,
                        .is_foreign = worker.is_foreign,
                        .kind = worker.kind,
                        .region = worker.config.region,
                        .abilities = worker.abilities,
                        .tls = worker.is_foreign ? worker.tls : options_.trust != nullptr,
                        .api_key = worker.api_key,
                        .pairs = answers_in_pairs(worker.kind) && splits(wanted.pool),
                        .role = worker.role,
                        .bootstrap_port = worker.config.bootstrap_port,
                        .fingerprint = worker.fingerprint,
                        .beat_ms = worker.record.beat_ms,
                        .dispatch = ++dispatched_,
                        .hit_tokens = std::min(candidate.hit_tokens, request.prompt_tokens),
                        .is_counted = is_counted,
                        .has_adapter = terms.adapter_s == 0,
                        .first_s = terms.first_s,
                        .step_s = terms.step_s,
                        .token_s = terms.token_s,
                        .fetches = terms.fetch_s > 0,
                        .splits = choice.splits};
  assignment.peer =
      peer_for(wanted, *choice.worker, asks ? with_held(wanted, tail, all, blocks_) : all, now_ns,
               assignment.peer_serial);
  if (worker.health.state(now_ns) == cluster::WorkerState::kEjected) {
    worker.health.note_trial(assignment.dispatch);
  }
  if (std::ranges::binary_search(worker.adapters, wanted.model)) {
    worker.expected_adapters[std::string(wanted.model)] = {.dispatch = assignment.dispatch,
                                                           .at_ns = now_ns};
  }
  assignment.may_leave = choice.pair && !choice.splits && may_decide_late(wanted.pool);
  if (choice.splits) {
    const size_t decode = choice.pair->decode;
    assignment.decoder = {.worker = decode, .serial = workers_[decode]->serial};
  }
  const int64_t computed = wanted.ahead ? 0 : computed_tokens(request, candidate);
  if (!wanted.source) note_prompt(worker.prompt_share, now_ns, computed, candidate);
  assignment.fed_first_s = fed_first_s(request, candidate, assignment.peer);
  if (wanted.media != nullptr) note_media_sent(worker, *wanted.media, assignment);
  worker.uncounted.push_back(
      {.dispatch = assignment.dispatch, .at_ns = now_ns, .tokens = computed});
  if (knows_names(worker) && !wanted.ahead) {
    blocks_.expect(wanted.prompt.names, arriving(*choice.worker, tail, now_ns, assignment.first_s));
  }
  return assignment;
}

Fleet::Decision Fleet::explain(const Wanted& wanted) {
  std::lock_guard lock(mutex_);
  const int64_t now_ns = clock_.now_ns();
  std::vector<CostCandidate> all = candidates(wanted, now_ns);
  std::vector<CostTerms> terms;
  const Choice choice = choose(wanted, cost_request(wanted), all, &terms);
  Decision decision;
  if (choice.pair) {
    decision.pair = {.prefill = workers_[choice.pair->prefill]->shown,
                     .decode = workers_[choice.pair->decode]->shown,
                     .terms = choice.pair->terms,
                     .chosen = choice.splits};
  }
  for (size_t i = 0; i < workers_.size(); ++i) {
    if (workers_[i] == nullptr || workers_[i]->config.pool != wanted.pool) continue;
    decision.workers.push_back({.name = workers_[i]->shown,
                                .state = workers_[i]->health.state(now_ns),
                                .reason = reason_of(*workers_[i], now_ns),
                                .region = region_of(*workers_[i]),
                                .role = workers_[i]->role,
                                .candidate = all[i],
                                .terms = terms[i],
                                .chosen = choice.worker == i});
  }
  return decision;
}

int64_t Fleet::expected_output(std::string_view pool) const {
  std::lock_guard lock(mutex_);
  return cost_request(pool, 0).output_tokens;
}

Fleet::Naming Fleet::naming(std::string_view pool) const {
  std::lock_guard lock(mutex_);
  const int64_t now_ns = clock_.now_ns();
  const Worker* any = nullptr;
  for (const std::unique_ptr<Worker>& worker : workers_) {
    if (worker == nullptr || worker->config.pool != pool || !worker->names_agree) continue;
    if (any == nullptr || worker->health.takes_requests(now_ns)) any = worker.get();
    if (worker->health.takes_requests(now_ns)) break;
  }
  if (any == nullptr) return {};
  return {.block_tokens = any->record.block_tokens, .date = any->record.date};
}

// A worker that takes longer than it leads to expect, or lies about its load, prices itself out
// (GW-06).
void Fleet::note_first_token(const Assignment& assignment, double seconds) {
  std::lock_guard lock(mutex_);
  Worker* worker = at({.index = assignment.worker, .serial = assignment.serial});
  // Of a picture the first byte comes with the last one (fleet_media.cc).
  if (worker == nullptr || assignment.media_units > 0) return;
  TypicalBias typical = typical_bias(worker->config.pool);
  note_ratio(worker->first_bias, typical.first, seconds, assignment.first_s);
  if (says_what_is_typical(workers_, worker->config)) {
    typical_biases_[worker->config.pool] = typical;
  }
  // One of another kind says nothing of what waits there; of a long body without counted tokens (a
  // picture) nothing was expected; and a young one's costs are not measured yet.
  const bool is_measured =
      !worker->is_foreign && assignment.is_counted && clock_.now_ns() - worker->begun_ns > kYoungNs;
  if (worker->record.incarnation == assignment.incarnation && is_measured) {
    worker->delays.note(seconds, assignment.first_s, clock_.now_ns());
  }
}

void Fleet::note_further_tokens(const Assignment& assignment, double seconds, int64_t tokens) {
  std::lock_guard lock(mutex_);
  Worker* worker = at({.index = assignment.worker, .serial = assignment.serial});
  if (worker == nullptr || tokens < 1) return;
  TypicalBias typical = typical_bias(worker->config.pool);
  note_ratio(worker->rest_bias, typical.rest, seconds / static_cast<double>(tokens),
             assignment.token_s);
  if (says_what_is_typical(workers_, worker->config)) {
    typical_biases_[worker->config.pool] = typical;
  }
}

void Fleet::note_ratio(PredictionBias& bias, double& typical, double measured_s,
                       double predicted_s) const {
  if (!(measured_s > 0) || !(predicted_s > 0)) return;
  const double ratio = std::clamp(measured_s / predicted_s, kBiasMin / 2, 2 * kBiasMax);
  bias.note(ratio, typical, clock_.now_ns());
  typical = PredictionBias::mixed(typical, ratio);
}

Fleet::TypicalBias Fleet::typical_bias(std::string_view pool) const {
  const auto known = typical_biases_.find(pool);
  return known == typical_biases_.end() ? TypicalBias{} : known->second;
}

void Fleet::note_output(std::string_view pool, int64_t tokens) {
  std::lock_guard lock(mutex_);
  auto known = outputs_.find(pool);
  if (known == outputs_.end()) known = outputs_.emplace(pool, kTypicalOutput).first;
  known->second += kNewestShare * (static_cast<double>(tokens) - known->second);
}

Fleet::IndexSize Fleet::index_size() const {
  std::lock_guard lock(mutex_);
  return {.names = blocks_.size(),
          .evictions = blocks_.evictions(),
          .bytes = blocks_.bytes(),
          .updates = blocks_.updates(),
          .resyncs = index_resyncs_};
}

}  // namespace pelton::gateway
