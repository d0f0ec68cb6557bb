// The part of gateway::Fleet that splits requests: which worker computes a prompt, which one goes
// on, and what each of them is for.
#include <algorithm>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "gateway/context_choice.h"
#include "gateway/fleet.h"
#include "kv_transfer/peer_id.h"

namespace pelton::gateway {
namespace {

// KV-17: it has room for the prompt and all of its answer. An answer without a bound ends where the
// context of whoever began it does, `began_context`; 0: that is not known. Of servers of another
// kind no context is.
bool holds_answer(const cluster::WorkerRecord& record, const RoutedPrompt& prompt,
                  int64_t began_context) {
  if (record.context_tokens == 0) return true;
  const int64_t whole = prompt.output_max > 0 ? prompt.tokens + prompt.output_max : began_context;
  return record.context_tokens >= std::max(whole, prompt.tokens + 2);
}

// Each has blocks of the other's kind.
bool understands(const cluster::WorkerRecord& one, const cluster::WorkerRecord& other) {
  return kv_transfer::layout_of(one.kv_id) == kv_transfer::layout_of(other.kv_id);
}

}  // namespace

const PoolConfig* Fleet::find_pool(std::string_view name) const {
  const auto pool = std::ranges::find(pools_, name, &PoolConfig::name);
  return pool == pools_.end() ? nullptr : &*pool;
}

bool Fleet::splits(std::string_view pool) const {
  const PoolConfig* const known = find_pool(pool);
  return known != nullptr && known->split.mode != SplitConfig::Mode::kOff;
}

SplitConfig Fleet::split_of(std::string_view pool) const {
  std::lock_guard lock(mutex_);
  const PoolConfig* const known = find_pool(pool);
  return known == nullptr ? SplitConfig{} : known->split;
}

CostRequest Fleet::cost_request(const Wanted& wanted) const {
  if (wanted.media != nullptr) return {.prompt_tokens = wanted.media->units, .output_tokens = 1};
  CostRequest request = cost_request(wanted.pool, wanted.prompt.tokens);
  if (splits(wanted.pool) && wanted.prompt.output_max > 0) {
    request.output_tokens = std::min(request.output_tokens, wanted.prompt.output_max);
  }
  return request;
}

Fleet::Choice Fleet::choose(const Wanted& wanted, const CostRequest& request,
                            std::vector<CostCandidate>& all,
                            std::vector<CostTerms>* explained) const {
  Choice choice;
  if (wanted.computes_prompt) {
    for (size_t i = 0; i < all.size(); ++i) {
      const bool may = all[i].usable && answers_in_pairs(workers_[i]->kind) &&
                       workers_[i]->role != cluster::WorkerRole::kDecode;
      all[i].usable = may && !workers_[i]->next_role;
    }
    choice.worker = choose_by_cost(request, all, wanted.draw, explained);
    return choice;
  }
  const bool any_role = keep_to_contexts(wanted, all);
  if (wanted.may_split) choice.pair = best_pair(wanted, request, all);
  if (!any_role) keep_to_roles(wanted, all);
  const auto& preferred = wanted.preferred;
  const bool is_there = preferred && preferred->worker < all.size() &&
                        all[preferred->worker].usable &&
                        workers_[preferred->worker]->serial == preferred->serial;
  if (is_there) {
    choice.worker = preferred->worker;
    return choice;
  }
  if (wanted.source) {
    // What it lacks it fetches.
    const auto named = std::ssize(wanted.prompt.names) * int64_t{wanted.prompt.block_tokens};
    std::vector<CostCandidate> fed = all;
    for (CostCandidate& one : fed) one.hit_tokens = std::max<int64_t>(one.hit_tokens, named);
    choice.worker = choose_by_cost(request, fed, wanted.draw, explained);
    const bool stays = choice.worker && wanted.may_stay &&
                       !is_left(split_request(wanted, request, *choice.worker),
                                all[wanted.source->worker], all[*choice.worker]);
    if (stays) choice.worker.reset();
    return choice;
  }
  choice.worker =
      kept_near(request, all, choose_by_cost(request, all, wanted.draw, explained), wanted.draw);
  if (!choice.pair) return choice;
  choice.splits = is_split(find_pool(wanted.pool)->split.mode, *choice.pair, request,
                           choice.worker ? &all[*choice.worker] : nullptr);
  if (choice.splits) choice.worker = choice.pair->prefill;
  return choice;
}

bool Fleet::may_take_over(const Worker& worker, const Wanted& wanted) {
  return worker.record.kv_port != 0 && worker.record.block_tokens == wanted.prompt.block_tokens;
}

// Whose context is too small for the request would answer 400, though others have room. True: of
// those that take whole requests none has, and somebody else does.
bool Fleet::keep_to_contexts(const Wanted& wanted, std::vector<CostCandidate>& all) const {
  if (wanted.source || !wanted.prompt.is_counted) return false;
  std::vector<WorkerContext> contexts;
  for (size_t i = 0; i < all.size(); ++i) {
    if (workers_[i] == nullptr) continue;
    const Worker& worker = *workers_[i];
    // What is away comes back.
    const bool has_said = worker.record.context_tokens > 0 && !worker.leaves &&
                          worker.mismatch.empty() && worker.config.pool == wanted.pool &&
                          has_model(worker, wanted.model);
    if (!all[i].usable && !has_said) continue;
    contexts.push_back({.tokens = worker.record.context_tokens, .usable = all[i].usable});
  }
  const int64_t least = context_to_ask(wanted.prompt.tokens, wanted.prompt.output_max, contexts);
  bool takes = false;  // somebody takes whole requests
  bool holds = false;  // and has room
  bool any = false;
  for (size_t i = 0; i < all.size(); ++i) {
    if (!all[i].usable) continue;
    const Worker& worker = *workers_[i];
    const bool decodes = cluster::decodes(worker.role) && !worker.next_role;
    const int64_t context = worker.record.context_tokens;
    all[i].usable = context == 0 || context >= least;
    takes = takes || decodes;
    holds = holds || (decodes && all[i].usable);
    any = any || all[i].usable;
  }
  return takes && !holds && any;
}

// Whole requests, and answers that go on, are for those that decode. Where none of them is there
// any more, an answer that has begun is not lost for that.
void Fleet::keep_to_roles(const Wanted& wanted, std::vector<CostCandidate>& all) const {
  const Worker* const source = wanted.source ? workers_[wanted.source->worker].get() : nullptr;
  const int64_t began_context = source == nullptr ? 0 : source->record.context_tokens;
  // Where its end is not known whoever goes on ends it as its own context does.
  const bool is_counted = wanted.source || (wanted.fingerprint && wanted.prompt.output_max > 0);
  for (size_t i = 0; is_counted && i < all.size(); ++i) {
    const bool fits =
        workers_[i] != nullptr && holds_answer(workers_[i]->record, wanted.prompt, began_context);
    all[i].usable = all[i].usable && fits;
  }
  const auto takes = [&](size_t i) {
    if (workers_[i] == nullptr || !cluster::decodes(workers_[i]->role)) return false;
    if (workers_[i]->next_role) return false;
    return source == nullptr || (may_take_over(*workers_[i], wanted) &&
                                 understands(workers_[i]->record, source->record) &&
                                 region_of(*workers_[i]) == region_of(*source));
  };
  bool any = false;
  for (size_t i = 0; i < all.size() && !any; ++i) any = all[i].usable && takes(i);
  if (!any && wanted.fingerprint && !wanted.source) return;
  for (size_t i = 0; i < all.size(); ++i) all[i].usable = all[i].usable && takes(i);
}

// Equal numbers: the one computes what the other does, in the same region, and both exchange it.
std::vector<uint32_t> Fleet::exchanges(const Wanted& wanted) const {
  std::vector<uint32_t> numbers(workers_.size());
  std::vector<std::tuple<std::string_view, std::string_view, std::string>> known;
  for (size_t i = 0; i < workers_.size(); ++i) {
    if (workers_[i] == nullptr || workers_[i]->config.pool != wanted.pool) continue;
    const Worker& worker = *workers_[i];
    if (worker.record.kv_port == 0 || worker.fingerprint.empty() ||
        worker.record.block_tokens != wanted.prompt.block_tokens) {
      continue;
    }
    std::tuple kind(std::string_view(worker.fingerprint),
                    kv_transfer::layout_of(worker.record.kv_id), region_of(worker));
    const auto found = std::ranges::find(known, kind);
    numbers[i] = static_cast<uint32_t>(found - known.begin()) + 1;
    if (found == known.end()) known.push_back(std::move(kind));
  }
  return numbers;
}

// Whether a request is split when it has said its first token. Ending with that is decided before.
bool Fleet::may_decide_late(std::string_view pool) const {
  const PoolConfig* const known = find_pool(pool);
  return known != nullptr && known->split.mode == SplitConfig::Mode::kAuto &&
         known->split.handoff == SplitConfig::Handoff::kWarm;
}

// `decode`: whoever is to go on with what wanted.source computes; none: any pair.
SplitRequest Fleet::split_request(const Wanted& wanted, const CostRequest& request,
                                  std::optional<size_t> decode) const {
  const auto measured = fetch_paces_.find(wanted.pool);
  const PoolConfig* const pool = find_pool(wanted.pool);
  std::optional<double> token_s;
  if (measured != fetch_paces_.end()) {
    token_s = decode
                  ? fetch_token_s(measured->second, wanted.source->worker, *decode, clock_.now_ns())
                  : measured->second.token_s();
  }
  return {.request = request,
          .block_tokens = std::ssize(wanted.prompt.names) * int64_t{wanted.prompt.block_tokens},
          .fetch_token_s = token_s,
          .handoff = pool == nullptr ? SplitConfig::Handoff::kWarm : pool->split.handoff};
}

std::optional<SplitPair> Fleet::best_pair(const Wanted& wanted, const CostRequest& request,
                                          const std::vector<CostCandidate>& all) const {
  const PoolConfig* const pool = find_pool(wanted.pool);
  if (pool == nullptr || pool->split.mode == SplitConfig::Mode::kOff || options_.peer_key.empty() ||
      !wanted.prompt.is_splittable) {
    return std::nullopt;
  }
  std::vector<CostCandidate> prefill = all;
  std::vector<CostCandidate> decode = all;
  int64_t began_context = 0;  // the longest, as it is not known yet who begins
  for (size_t i = 0; i < all.size(); ++i) {
    if (!all[i].usable) continue;
    const Worker& worker = *workers_[i];
    prefill[i].usable = !worker.next_role && cluster::computes_prompts(worker.role);
    if (!prefill[i].usable) continue;
    began_context = std::max<int64_t>(began_context, worker.record.context_tokens);
  }
  for (size_t i = 0; i < all.size(); ++i) {
    if (!all[i].usable) continue;
    const Worker& worker = *workers_[i];
    decode[i].usable = !worker.next_role && cluster::decodes(worker.role) &&
                       may_take_over(worker, wanted) &&
                       holds_answer(worker.record, wanted.prompt, began_context);
  }
  const std::vector<uint32_t> exchange = exchanges(wanted);
  SplitSides sides{.prefill = prefill, .decode = decode, .exchange = exchange};
  const auto measured = fetch_paces_.find(wanted.pool);
  if (measured != fetch_paces_.end()) {
    sides.fetch_token_s = [this, paces = &measured->second, now_ns = clock_.now_ns()](size_t from,
                                                                                      size_t to) {
      return fetch_token_s(*paces, from, to, now_ns);
    };
  }
  return choose_pair(split_request(wanted, request, std::nullopt), sides, wanted.draw);
}

// What fetching takes beyond the steps that it is waited for with.
void Fleet::note_hand_over(const Assignment& target, double seconds, int64_t fetched_tokens) {
  std::lock_guard lock(mutex_);
  const Worker* const worker = at({.index = target.worker, .serial = target.serial});
  if (worker == nullptr) return;
  fetch_paces_[worker->config.pool].note(clock_.now_ns(),
                                         {.from = target.peer_serial, .to = worker->serial},
                                         seconds, target.step_s, fetched_tokens);
}

// Of a request that nobody else had begun: what it waited beyond what the rest would have taken.
// Predictions are what they are, so no less than a part of computing it.
void Fleet::note_fetched(const Assignment& at_worker, double seconds, int64_t fetched_tokens) {
  constexpr double kLeastShare = 0.05;
  std::lock_guard lock(mutex_);
  const Worker* const worker = at({.index = at_worker.worker, .serial = at_worker.serial});
  if (worker == nullptr || fetched_tokens < 1 || at_worker.fed_first_s <= 0) return;
  const double least_s = kLeastShare * worker->health.load().costs.prefill_token_s *
                         static_cast<double>(fetched_tokens);
  const double took_s = std::max(seconds - at_worker.fed_first_s, least_s);
  fetch_paces_[worker->config.pool].note(clock_.now_ns(),
                                         {.from = at_worker.peer_serial, .to = worker->serial},
                                         took_s, 0, fetched_tokens);
}

Result<void> Fleet::set_role(std::string_view name, cluster::WorkerRole role) {
  std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(workers_, [&](const std::unique_ptr<Worker>& worker) {
    return worker != nullptr && worker->shown == name;
  });
  if (found == workers_.end()) return Error{ErrorCode::kNotFound, "no worker has this name"};
  Worker& worker = **found;
  if (role != cluster::WorkerRole::kBoth && worker.record.kv_port == 0) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("the role '{}' needs a KV port, which the worker has not (--kv-port)",
                             worker_role_name(role)),
                 "role"};
  }
  worker.next_role.reset();
  if (role != worker.role) worker.next_role = role;
  return {};
}

void Fleet::take_role(Worker& worker) {
  if (!worker.next_role || worker.open > 0) return;
  worker.role = *std::exchange(worker.next_role, std::nullopt);
  log_.info(fmt::format("worker {} has the role {} from now on", worker.shown,
                        worker_role_name(worker.role)));
}

std::string Fleet::role_trouble(const Worker& worker, int64_t now_ns) const {
  if (worker.next_role) {
    return fmt::format("it is drained to become {}", worker_role_name(*worker.next_role));
  }
  if (cluster::decodes(worker.role)) return "";
  const PoolConfig* const pool = find_pool(worker.config.pool);
  if (pool == nullptr || pool->split.mode == SplitConfig::Mode::kOff) {
    return "it computes prompts only, and its pool does not split requests ('split')";
  }
  const auto decodes = [&](const std::unique_ptr<Worker>& other) {
    return other != nullptr && cluster::decodes(other->role) &&
           serves(*other, worker.config.pool, {}, now_ns);
  };
  if (std::ranges::none_of(workers_, decodes)) {
    return "it computes prompts only, and no worker of its pool goes on with answers";
  }
  const bool any = std::ranges::any_of(workers_, [&](const std::unique_ptr<Worker>& other) {
    return decodes(other) && understands(other->record, worker.record);
  });
  const bool can_be_reached = std::ranges::any_of(
      workers_, [&](const auto& other) { return decodes(other) && other->record.kv_port > 0; });
  if (!can_be_reached) {
    return "it computes prompts only, and no worker that goes on with answers has a KV port "
           "(--kv-port)";
  }
  return any ? ""
             : "it computes prompts only, and its blocks are of no use to any worker that goes on "
               "with answers: their kernels, weights, KV type or block size differ";
}

}  // namespace pelton::gateway
