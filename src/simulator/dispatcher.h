// Who of several replicas gets a request: plain rules to compare with, and the gateway's router
// (gateway/cost_router.h) with its index of what replicas hold. One gateway's: what replicas
// reported to it, and what it has sent since. Owned by the simulation; one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"
#include "cluster/block_names.h"
#include "cluster/worker_role.h"
#include "gateway/block_view.h"
#include "gateway/cost_router.h"
#include "gateway/peer_choice.h"
#include "gateway/split_choice.h"
#include "kv/block_hash.h"
#include "kv/event_log.h"

namespace pelton::simulator {

struct ReplicaState {
  bool is_up = true;
  cluster::WorkerRole role = cluster::WorkerRole::kBoth;
  int slots = 1;
  int running = 0;
  int queued = 0;
  int64_t prompt_tokens_left = 0;  // to be computed, of those that run and wait
  int64_t context_tokens = 0;      // of those that run
  double kv_used = 0;              // 0 to 1
  std::vector<int64_t> adapters;   // in memory, or on their way there
  int64_t adapter_places = 0;
  double adapter_wait_s = 0;
  double adapter_hits = 0;
  // Sent by this gateway since that was reported.
  int uncounted = 0;
  int64_t uncounted_tokens = 0;
};

class Dispatcher {
 public:
  enum class Policy {
    kRoundRobin,
    kLeastBusy,        // the fewest requests running and waiting
    kSession,          // a conversation stays with one replica while that is up
    kTwoChoices,       // of two that are drawn the less busy one
    kPrefixThreshold,  // SGLang's rule: the longest match, unless loads are too uneven
    kCost,             // the gateway's: the least time lost, of all requests
  };

  struct Options {
    Policy policy = Policy::kLeastBusy;
    int replicas = 1;
    int block_tokens = 16;
    uint64_t hash_seed = 0;  // as the replicas name their blocks
    size_t index_bytes = size_t{512} << 20;
    cluster::StepCosts costs;  // of each replica
    cluster::RoutedGroups groups;
    // Replica i stands in zone i % zones, the gateway in this one; others are so far away.
    int zones = 1;
    int zone = 0;
    double distance_s = 0;
    // What it knows of replicas is their last report; otherwise it sees them as they are.
    bool knows_reports_only = false;
    bool exchanges = false;      // replicas have links to each other
    gateway::SplitConfig split;  // kOff: no request is split
  };

  explicit Dispatcher(const Options& options);
  Dispatcher(const Dispatcher&) = delete;
  Dispatcher& operator=(const Dispatcher&) = delete;

  struct Asked {
    int64_t conversation = 0;
    std::span<const TokenId> prompt;
    int64_t adapter = 0;  // its identity; 0: none
    uint64_t draw = 0;
    int64_t now_ns = 0;
    int64_t output_max = 0;  // tokens that its answer may have; 0: it does not say
    bool may_split = false;  // nothing has been said yet, and more than one token may be
    // Of an answer that goes on: who has computed its prompt, who is not to, and who is, if that
    // one is up. -1, -1, -1: none.
    int source = -1;
    int excluded = -1;
    int preferred = -1;
    bool may_stay = false;  // with who has computed it, where that is sooner
    bool ahead = false;     // what `source` computes is to be fetched while it does
  };
  // What the last choice came with.
  struct Chosen {
    int decoder = -1;  // who goes on once it has said something; -1: it is not split
    int peer = -1;     // who has more of the prompt; -1: nobody
    int64_t peer_tokens = 0;
    int64_t hit_tokens = 0;
    double step_s = 0;  // of a further token, predicted
  };
  const Chosen& chosen() const { return chosen_; }
  // A replica went on with another one's answer after so long; it fetched so much from there.
  void note_hand_over(int64_t now_ns, gateway::FetchPaces::Link link, double seconds, double step_s,
                      int64_t fetched_tokens) {
    paces_.note(now_ns, link, seconds, step_s, fetched_tokens);
  }
  // The replica's index; -1: none is up.
  int choose(std::span<const ReplicaState> replicas, const Asked& asked);
  // Until the first token of the last one that was chosen, by cost; 0: nothing was predicted.
  double predicted_s() const { return predicted_s_; }
  // All of them have reported: what it had sent before is in that.
  void note_report();
  void note_report(int replica) { sent_[static_cast<size_t>(replica)] = {}; }
  bool is_far(size_t replica) const {
    return static_cast<int>(replica) % options_.zones != options_.zone;
  }

  // It routes by what replicas hold.
  bool looks_at_prefixes() const {
    return options_.policy == Policy::kCost || options_.policy == Policy::kPrefixThreshold;
  }
  // What has become and ceased to be findable at a replica.
  void note_events(int replica, std::span<const kv::Event> events);
  void note_lost(int replica);
  // An answer had so many tokens.
  void note_output(int64_t tokens);

 private:
  int choose_one(std::span<const ReplicaState> replicas, const Asked& asked);
  int choose_by_prefix(std::span<const ReplicaState> replicas, const Asked& asked);
  std::vector<gateway::CostCandidate> candidates(std::span<const ReplicaState> replicas,
                                                 const Asked& asked, std::span<const int> hits);
  std::optional<size_t> choose_by_cost(std::span<const ReplicaState> replicas, const Asked& asked,
                                       const gateway::CostRequest& request, int64_t named,
                                       std::vector<gateway::CostCandidate>& all);
  void note_held(std::span<const kv::BlockHash> names, std::span<gateway::CostCandidate> all);
  void price_fetches(int64_t now_ns, std::span<gateway::CostCandidate> all);
  std::optional<double> fetch_token_s(int64_t now_ns, size_t from, size_t to) const {
    return paces_.token_s(now_ns, {.from = from, .to = to});
  }
  bool stays(const Asked& asked, const gateway::CostRequest& request, int64_t named,
             std::span<const gateway::CostCandidate> all, size_t chosen) const;
  std::optional<gateway::SplitPair> best_pair(std::span<const ReplicaState> replicas,
                                              const Asked& asked,
                                              const gateway::CostRequest& request, int64_t named,
                                              std::span<const gateway::CostCandidate> all) const;
  void name_peer(const Asked& asked, int64_t named, size_t chosen,
                 std::span<const gateway::CostCandidate> all);

  const Options options_;
  const kv::BlockHasher hasher_;
  gateway::BlockView view_;
  double typical_output_ = 256;
  double predicted_s_ = 0;
  Chosen chosen_;
  gateway::FetchPaces paces_;  // replicas are their indices
  struct Sent {
    int requests = 0;
    int64_t tokens = 0;
    std::vector<int64_t> adapters;
  };
  std::vector<Sent> sent_;  // by replica, since the last report
  std::vector<gateway::PromptShare> shares_;
  std::vector<ReplicaState> known_;  // as reported, with these
  size_t next_ = 0;
};

// "round-robin", "least-busy", "session", "two-choices", "prefix-threshold", "cost".
std::vector<std::string> router_names();
Result<Dispatcher::Policy> parse_router(std::string_view name);

}  // namespace pelton::simulator
