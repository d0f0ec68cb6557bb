// The part of gateway::Fleet that says where a request goes: what each worker would take for it, by
// its reports, by what was sent to it since, and by what it holds of the prompt.
#include <algorithm>
#include <cmath>
#include <utility>

#include "cluster/block_events.h"
#include "gateway/fleet.h"

namespace pelton::gateway {
namespace {

// What a worker was sent it has in its reports by then, or has never had.
constexpr int64_t kUncountedNs = 2'000'000'000;
constexpr double kTypicalOutput = 256;  // tokens, where nothing is known
constexpr double kNewestShare = 0.05;   // of the newest answer in the averages
constexpr double kBiasMax = 4;

}  // namespace

// Of workers that name them otherwise nothing is known.
Result<void> Fleet::note_blocks(size_t index, const Worker& worker, std::string_view payload) {
  TRY_ASSIGN(const cluster::BlockEvents announced, cluster::decode_block_events(payload));
  const int place = static_cast<int>(index);
  if (announced.clears) blocks_.forget(place);
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
  std::erase_if(worker.uncounted, [&](const Worker::Uncounted& one) {
    return one.dispatch <= worker.health.load().dispatch || now_ns - one.at_ns > kUncountedNs;
  });
}

std::vector<CostCandidate> Fleet::candidates(const Wanted& wanted, int64_t now_ns) {
  std::vector<int> hits(workers_.size());
  // Windows are one model's: the same for all of a pool.
  for (const std::unique_ptr<Worker>& worker : workers_) {
    if (worker == nullptr || worker->config.pool != wanted.pool || !worker->names_agree) continue;
    blocks_.find(wanted.prompt.names, worker->groups.tail_blocks, now_ns, hits);
    break;
  }
  std::vector<CostCandidate> all(workers_.size(), CostCandidate{.usable = false});
  for (size_t i = 0; i < workers_.size(); ++i) {
    if (workers_[i] == nullptr) continue;
    const Worker& worker = *workers_[i];
    const cluster::WorkerLoad& load = worker.health.load();
    CostCandidate& one = all[i];
    one = {.costs = load.costs,
           .slots = worker.record.slots,
           .rows = load.running,
           .context_tokens = load.context_tokens,
           .waiting = load.waiting,
           .waiting_tokens = load.waiting_tokens,
           .uncounted = static_cast<int>(worker.uncounted.size()),
           .slot_wait_s = load.wait_s,
           .kv_used = load.kv_used,
           .bias = worker.bias,
           .usable = serves(worker, wanted.pool, wanted.model, now_ns) &&
                     std::ranges::find(wanted.excluded, i) == wanted.excluded.end()};
    for (const Worker::Uncounted& sent : worker.uncounted) one.uncounted_tokens += sent.tokens;
    if (worker.names_agree && worker.record.block_tokens == wanted.prompt.block_tokens) {
      one.hit_tokens = int64_t{hits[i]} * wanted.prompt.block_tokens;
    }
  }
  return all;
}

CostRequest Fleet::cost_request(std::string_view pool, int64_t prompt_tokens) const {
  const auto known = outputs_.find(pool);
  const double output = known == outputs_.end() ? kTypicalOutput : known->second;
  return {.prompt_tokens = prompt_tokens, .output_tokens = std::llround(output)};
}

std::optional<Fleet::Assignment> Fleet::assign(const Wanted& wanted) {
  std::lock_guard lock(mutex_);
  const int64_t now_ns = clock_.now_ns();
  for (const std::unique_ptr<Worker>& worker : workers_) {
    if (worker != nullptr) forget_counted(*worker, now_ns);
  }
  const std::vector<CostCandidate> all = candidates(wanted, now_ns);
  const CostRequest request = cost_request(wanted.pool, wanted.prompt.tokens);
  const std::optional<size_t> chosen = choose_by_cost(request, all, wanted.draw, nullptr);
  if (!chosen) return std::nullopt;
  Worker& worker = *workers_[*chosen];
  if (worker.health.state(now_ns) == cluster::WorkerState::kEjected) worker.health.note_trial();
  ++worker.requests;
  ++worker.open;
  const CostCandidate& candidate = all[*chosen];
  Assignment assignment{.worker = *chosen,
                        .serial = worker.serial,
                        .host = worker.config.host,
                        .port = worker.config.port,
                        .trust = worker.is_foreign ? nullptr : options_.trust,
                        .incarnation = worker.record.incarnation,
                        .is_foreign = worker.is_foreign,
                        .dispatch = ++worker.dispatched,
                        .hit_tokens = std::min(candidate.hit_tokens, request.prompt_tokens),
                        .first_s = cost_of(request, candidate).first_s};
  worker.uncounted.push_back({.dispatch = assignment.dispatch,
                              .at_ns = now_ns,
                              .tokens = request.prompt_tokens - assignment.hit_tokens});
  if (worker.names_agree) {
    blocks_.expect(wanted.prompt.names,
                   {.worker = static_cast<int>(*chosen),
                    .tail_blocks = worker.groups.tail_blocks,
                    .now_ns = now_ns,
                    .until_ns = now_ns + BlockView::expected_ns(assignment.first_s)});
  }
  return assignment;
}

std::vector<Fleet::Considered> Fleet::explain(const Wanted& wanted) {
  std::lock_guard lock(mutex_);
  const int64_t now_ns = clock_.now_ns();
  const std::vector<CostCandidate> all = candidates(wanted, now_ns);
  std::vector<CostTerms> terms;
  const std::optional<size_t> chosen =
      choose_by_cost(cost_request(wanted.pool, wanted.prompt.tokens), all, wanted.draw, &terms);
  std::vector<Considered> considered;
  for (size_t i = 0; i < workers_.size(); ++i) {
    if (workers_[i] == nullptr || workers_[i]->config.pool != wanted.pool) continue;
    considered.push_back({.name = workers_[i]->shown,
                          .state = workers_[i]->health.state(now_ns),
                          .reason = reason_of(*workers_[i], now_ns),
                          .candidate = all[i],
                          .terms = terms[i],
                          .chosen = chosen == i});
  }
  return considered;
}

int64_t Fleet::expected_output(std::string_view pool) const {
  std::lock_guard lock(mutex_);
  return cost_request(pool, 0).output_tokens;
}

Fleet::Naming Fleet::naming(std::string_view pool) const {
  std::lock_guard lock(mutex_);
  for (const std::unique_ptr<Worker>& worker : workers_) {
    if (worker == nullptr || worker->config.pool != pool || !worker->names_agree) continue;
    return {.block_tokens = worker->record.block_tokens, .date = worker->record.date};
  }
  return {};
}

// A worker that takes longer than it leads to expect, or lies about its load, prices itself out
// (GW-06).
void Fleet::note_first_token(const Assignment& assignment, double seconds) {
  std::lock_guard lock(mutex_);
  Worker* worker = at({.index = assignment.worker, .serial = assignment.serial});
  if (worker == nullptr || !(assignment.first_s > 0) || !(seconds > 0)) return;
  const double ratio = std::clamp(seconds / assignment.first_s, 1 / kBiasMax, kBiasMax);
  worker->bias *= std::pow(ratio / worker->bias, kNewestShare);
}

void Fleet::note_output(std::string_view pool, int64_t tokens) {
  std::lock_guard lock(mutex_);
  auto known = outputs_.find(pool);
  if (known == outputs_.end()) known = outputs_.emplace(pool, kTypicalOutput).first;
  known->second += kNewestShare * (static_cast<double>(tokens) - known->second);
}

Fleet::IndexSize Fleet::index_size() const {
  std::lock_guard lock(mutex_);
  return {.names = blocks_.size(), .evictions = blocks_.evictions()};
}

}  // namespace pelton::gateway
