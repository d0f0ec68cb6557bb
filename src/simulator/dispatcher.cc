#include "simulator/dispatcher.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/random.h"

namespace pelton::simulator {
namespace {

using Policy = Dispatcher::Policy;

constexpr std::array<std::pair<std::string_view, Policy>, 6> kNames = {
    {{"round-robin", Policy::kRoundRobin},
     {"least-busy", Policy::kLeastBusy},
     {"session", Policy::kSession},
     {"two-choices", Policy::kTwoChoices},
     {"prefix-threshold", Policy::kPrefixThreshold},
     {"cost", Policy::kCost}}};

int first_up(std::span<const ReplicaState> replicas, size_t from) {
  for (size_t i = 0; i < replicas.size(); ++i) {
    const size_t index = (from + i) % replicas.size();
    if (replicas[index].is_up) return static_cast<int>(index);
  }
  return -1;
}

int busy(const ReplicaState& replica) {
  return replica.running + replica.queued + replica.uncounted;
}

int least_busy(std::span<const ReplicaState> replicas) {
  int best = -1;
  for (size_t i = 0; i < replicas.size(); ++i) {
    const bool is_less = best < 0 || busy(replicas[i]) < busy(replicas[static_cast<size_t>(best)]);
    if (replicas[i].is_up && is_less) best = static_cast<int>(i);
  }
  return best;
}

int two_choices(std::span<const ReplicaState> replicas, uint64_t draw) {
  const int one = first_up(replicas, base::random_bits(draw, 0) % replicas.size());
  const int other = first_up(replicas, base::random_bits(draw, 1) % replicas.size());
  if (one < 0) return -1;
  const bool is_less =
      busy(replicas[static_cast<size_t>(other)]) < busy(replicas[static_cast<size_t>(one)]);
  return is_less ? other : one;
}

void add_adapter(int64_t adapter, std::vector<int64_t>& adapters) {
  if (std::ranges::find(adapters, adapter) == adapters.end()) adapters.push_back(adapter);
}

void price_adapter(const ReplicaState& replica, int64_t adapter,
                   gateway::CostCandidate& candidate) {
  if (adapter == 0 || std::ranges::find(replica.adapters, adapter) != replica.adapters.end()) {
    return;
  }
  gateway::price({.resident = std::ssize(replica.adapters),
                  .places = replica.adapter_places,
                  .wait_s = replica.adapter_wait_s,
                  .hits = replica.adapter_hits},
                 candidate);
}

}  // namespace

Dispatcher::Dispatcher(const Options& options)
    : options_(options),
      hasher_(options.hash_seed),
      view_(looks_at_prefixes() ? options.index_bytes : 0),
      sent_(static_cast<size_t>(options.replicas)),
      shares_(static_cast<size_t>(options.replicas)) {}

void Dispatcher::note_report() {
  std::fill(sent_.begin(), sent_.end(), Sent{});
}

int Dispatcher::choose(std::span<const ReplicaState> replicas, const Asked& asked) {
  predicted_s_ = 0;
  chosen_ = {};
  if (!options_.knows_reports_only) return choose_one(replicas, asked);
  known_.assign(replicas.begin(), replicas.end());
  for (size_t i = 0; i < known_.size(); ++i) {
    known_[i].uncounted = sent_[i].requests;
    known_[i].uncounted_tokens = sent_[i].tokens;
    for (const int64_t adapter : sent_[i].adapters) add_adapter(adapter, known_[i].adapters);
  }
  const int chosen = choose_one(known_, asked);
  if (chosen < 0) return chosen;
  Sent& sent = sent_[static_cast<size_t>(chosen)];
  ++sent.requests;
  if (asked.adapter != 0) add_adapter(asked.adapter, sent.adapters);
  if (!looks_at_prefixes()) sent.tokens += std::ssize(asked.prompt);
  return chosen;
}

int Dispatcher::choose_one(std::span<const ReplicaState> replicas, const Asked& asked) {
  if (replicas.empty()) return -1;
  switch (options_.policy) {
    case Policy::kRoundRobin: {
      const int chosen = first_up(replicas, next_ % replicas.size());
      if (chosen >= 0) next_ = static_cast<size_t>(chosen) + 1;
      return chosen;
    }
    case Policy::kLeastBusy:
      return least_busy(replicas);
    case Policy::kTwoChoices:
      return two_choices(replicas, asked.draw);
    case Policy::kSession: {
      const uint64_t name = base::mix64(static_cast<uint64_t>(asked.conversation) + 1);
      return first_up(replicas, name % replicas.size());
    }
    case Policy::kPrefixThreshold:
    case Policy::kCost:
      return choose_by_prefix(replicas, asked);
  }
  return -1;
}

std::vector<gateway::CostCandidate> Dispatcher::candidates(std::span<const ReplicaState> replicas,
                                                           const Asked& asked,
                                                           std::span<const int> hits) {
  std::vector<gateway::CostCandidate> all;
  for (size_t i = 0; i < replicas.size(); ++i) {
    const ReplicaState& replica = replicas[i];
    all.push_back({.costs = options_.costs,
                   .slots = replica.slots,
                   .rows = replica.running,
                   .context_tokens = replica.context_tokens,
                   .waiting = replica.queued,
                   .waiting_tokens = replica.prompt_tokens_left,
                   .uncounted = replica.uncounted,
                   .uncounted_tokens = replica.uncounted_tokens,
                   .kv_used = replica.kv_used,
                   .hit_tokens = int64_t{hits[i]} * options_.block_tokens,
                   .prompt_share = shares_[i].at(asked.now_ns),
                   .distance_s = is_far(i) ? options_.distance_s : 0,
                   .usable = replica.is_up && static_cast<int>(i) != asked.excluded});
    price_adapter(replica, asked.adapter, all.back());
  }
  return all;
}

// What each has said itself that it has.
void Dispatcher::note_held(std::span<const kv::BlockHash> names,
                           std::span<gateway::CostCandidate> all) {
  std::vector<int> blocks(all.size());
  view_.find_held(names, options_.groups.tail_blocks, blocks);
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].held_tokens = int64_t{blocks[i]} * options_.block_tokens;
  }
}

// As gateway::Fleet::price_fetches_of().
void Dispatcher::price_fetches(int64_t now_ns, std::span<gateway::CostCandidate> all) {
  if (!paces_.token_s()) return;
  std::vector<int64_t> held;
  for (const gateway::CostCandidate& one : all) held.push_back(one.held_tokens);
  const std::vector<uint32_t> exchange(all.size(), 1);
  gateway::price_fetches(
      {.held = held,
       .exchange = exchange,
       .token_s = paces_.token_s(),
       .pair_token_s = [&](size_t from, size_t to) { return fetch_token_s(now_ns, from, to); }},
      all);
}

// All of them compute alike and exchange what they have computed.
std::optional<gateway::SplitPair> Dispatcher::best_pair(
    std::span<const ReplicaState> replicas, const Asked& asked, const gateway::CostRequest& request,
    int64_t named, std::span<const gateway::CostCandidate> all) const {
  if (options_.split.mode == gateway::SplitConfig::Mode::kOff || !asked.may_split || named == 0) {
    return std::nullopt;
  }
  std::vector<gateway::CostCandidate> prefill(all.begin(), all.end());
  std::vector<gateway::CostCandidate> decode = prefill;
  for (size_t i = 0; i < all.size(); ++i) {
    prefill[i].usable = all[i].usable && cluster::computes_prompts(replicas[i].role);
    decode[i].usable = all[i].usable && cluster::decodes(replicas[i].role);
  }
  const std::vector<uint32_t> exchange(all.size(), options_.exchanges ? 1 : 0);
  return gateway::choose_pair(
      {.request = request,
       .block_tokens = named,
       .fetch_token_s = paces_.token_s(),
       .handoff = options_.split.handoff},
      {.prefill = prefill,
       .decode = decode,
       .exchange = exchange,
       .fetch_token_s = [&](size_t from,
                            size_t to) { return fetch_token_s(asked.now_ns, from, to); }},
      asked.draw);
}

// As gateway::Fleet::choose().
std::optional<size_t> Dispatcher::choose_by_cost(std::span<const ReplicaState> replicas,
                                                 const Asked& asked,
                                                 const gateway::CostRequest& request, int64_t named,
                                                 std::vector<gateway::CostCandidate>& all) {
  const std::optional<gateway::SplitPair> pair = best_pair(replicas, asked, request, named, all);
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].usable = all[i].usable && cluster::decodes(replicas[i].role);
  }
  const auto preferred = static_cast<size_t>(asked.preferred);
  if (asked.preferred >= 0 && all[preferred].usable) return preferred;
  if (asked.source >= 0) {
    std::vector<gateway::CostCandidate> fed = all;
    for (gateway::CostCandidate& one : fed) one.hit_tokens = std::max(one.hit_tokens, named);
    return gateway::choose_by_cost(request, fed, asked.draw, nullptr);
  }
  const std::optional<size_t> whole = gateway::choose_by_cost(request, all, asked.draw, nullptr);
  if (!pair ||
      !gateway::is_split(options_.split.mode, *pair, request, whole ? &all[*whole] : nullptr)) {
    return whole;
  }
  chosen_.decoder = static_cast<int>(pair->decode);
  return pair->prefill;
}

bool Dispatcher::stays(const Asked& asked, const gateway::CostRequest& request, int64_t named,
                       std::span<const gateway::CostCandidate> all, size_t chosen) const {
  return asked.may_stay && asked.source >= 0 &&
         !gateway::is_left({.request = request,
                            .block_tokens = named,
                            .fetch_token_s = fetch_token_s(
                                asked.now_ns, static_cast<size_t>(asked.source), chosen),
                            .handoff = options_.split.handoff},
                           all[static_cast<size_t>(asked.source)], all[chosen]);
}

void Dispatcher::name_peer(const Asked& asked, int64_t named, size_t chosen,
                           std::span<const gateway::CostCandidate> all) {
  if (!options_.exchanges) return;
  std::vector<int64_t> hits(all.size(), 0);
  std::vector<double> times;
  if (paces_.token_s()) times.resize(all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    const bool is_source = asked.source == static_cast<int>(i);
    if (asked.source >= 0 && !is_source) continue;
    // What was only sent to one is not there yet.
    hits[i] = is_source ? named : std::min({all[i].hit_tokens, all[i].held_tokens, named});
    if (!times.empty()) times[i] = fetch_token_s(asked.now_ns, i, chosen).value_or(0);
  }
  const std::optional<gateway::PrefixSource> peer =
      gateway::choose_peer({.hits = hits,
                            .chosen = chosen,
                            .chosen_hit = all[chosen].hit_tokens,
                            .is_split = asked.source >= 0,
                            .draw = asked.draw,
                            .fetch_token_s = times,
                            .compute_token_s = all[chosen].costs.prefill_token_s});
  if (!peer) return;
  chosen_.peer = static_cast<int>(peer->worker);
  chosen_.peer_tokens = peer->tokens;
}

int Dispatcher::choose_by_prefix(std::span<const ReplicaState> replicas, const Asked& asked) {
  const std::vector<kv::BlockHash> names = gateway::block_names(
      hasher_, {.salt = {}, .adapter = asked.adapter}, asked.prompt, options_.block_tokens);
  std::vector<int> hits(replicas.size());
  view_.find(names, options_.groups.tail_blocks, asked.now_ns, hits);
  std::vector<gateway::CostCandidate> all = candidates(replicas, asked, hits);
  if (options_.exchanges && asked.source < 0) {
    note_held(names, all);
    price_fetches(asked.now_ns, all);
  }
  gateway::CostRequest request{.prompt_tokens = std::ssize(asked.prompt),
                               .output_tokens = static_cast<int64_t>(typical_output_)};
  const bool splits = options_.split.mode != gateway::SplitConfig::Mode::kOff;
  if (splits && asked.output_max > 0) {
    request.output_tokens = std::min(request.output_tokens, asked.output_max);
  }
  const int64_t named = std::ssize(names) * int64_t{options_.block_tokens};
  const std::optional<size_t> chosen = options_.policy == Policy::kCost
                                           ? choose_by_cost(replicas, asked, request, named, all)
                                           : gateway::choose_by_threshold(request, all);
  if (!chosen || stays(asked, request, named, all, *chosen)) return -1;
  const gateway::CostCandidate& taken = all[*chosen];
  const gateway::CostTerms terms = gateway::cost_of(request, taken);
  if (asked.source < 0) {
    const int64_t computed = request.prompt_tokens -
                             std::min(taken.hit_tokens + taken.fetch_tokens, request.prompt_tokens);
    shares_[*chosen].note(asked.now_ns,
                          static_cast<double>(computed) * taken.costs.prefill_token_s);
  }
  chosen_.hit_tokens = std::min(taken.hit_tokens, request.prompt_tokens);
  chosen_.step_s = terms.step_s;
  name_peer(asked, named, *chosen, all);
  if (!asked.ahead) {
    sent_[*chosen].tokens += std::max<int64_t>(request.prompt_tokens - taken.hit_tokens, 0);
  }
  if (options_.policy == Policy::kCost) predicted_s_ = terms.first_s;
  if (asked.ahead) return static_cast<int>(*chosen);
  view_.expect(names, {.worker = static_cast<int>(*chosen),
                       .tail_blocks = options_.groups.tail_blocks,
                       .now_ns = asked.now_ns,
                       .until_ns = asked.now_ns + gateway::BlockView::expected_ns(terms.first_s)});
  return static_cast<int>(*chosen);
}

void Dispatcher::note_events(int replica, std::span<const kv::Event> events) {
  constexpr size_t kAhead = 8;
  const auto seen = [&](const kv::Event& event) {
    return gateway::BlockView::Event{.worker = replica,
                                     .group = event.group,
                                     .stored = event.kind == kv::Event::Kind::kStored,
                                     .name = event.block};
  };
  for (size_t i = 0; i < events.size(); ++i) {
    if (i + kAhead < events.size()) view_.prefetch(seen(events[i + kAhead]), options_.groups);
    if (events[i].tier == kv::kDevice) view_.note(seen(events[i]), options_.groups);
  }
}

void Dispatcher::note_lost(int replica) {
  if (looks_at_prefixes()) view_.forget(replica);
}

void Dispatcher::note_output(int64_t tokens) {
  constexpr double kShare = 0.02;  // of the newest answer in the average
  typical_output_ += kShare * (static_cast<double>(tokens) - typical_output_);
}

std::vector<std::string> router_names() {
  std::vector<std::string> names;
  for (const auto& [name, policy] : kNames) names.emplace_back(name);
  return names;
}

Result<Dispatcher::Policy> parse_router(std::string_view name) {
  for (const auto& [known, policy] : kNames) {
    if (known == name) return policy;
  }
  return Error{ErrorCode::kInvalidArgument, fmt::format("'{}' is no router", name), "router"};
}

}  // namespace pelton::simulator
