// Which other worker has so much more of a prompt than the chosen one that it may be fetched from
// there, and what fetching takes. Pure; the simulator links the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "gateway/cost_router.h"

namespace pelton::gateway {

struct PrefixSource {
  size_t worker = 0;
  int64_t tokens = 0;  // of the prompt, that it has
};

struct PeersAsked {
  std::span<const int64_t> hits;  // of the prompt, by the places of workers; 0: not to be asked
  size_t chosen = 0;
  int64_t chosen_hit = 0;
  // Who has just computed the prompt is asked for any block of it.
  bool is_split = false;
  uint64_t draw = 0;  // among those that have as much
  // What a token takes from each of them to the chosen one, by their places, and computed there;
  // empty: from all alike.
  std::span<const double> fetch_token_s = {};
  double compute_token_s = 0;
};
// Who has the most, if that is worth asking for; where links differ, of those that save the most
// time.
std::optional<PrefixSource> choose_peer(const PeersAsked& asked);

// What each worker would fetch instead of computing it, where that is quicker: of what another one
// certainly has. So a prefix that many ask for is copied where waiting for who has it costs more.
struct FetchesAsked {
  std::span<const int64_t> held;       // of the prompt, by the places of workers; 0: nothing
  std::span<const uint32_t> exchange;  // those of equal numbers exchange it; 0: nobody
  std::optional<double> token_s;       // as measured lately; none: nothing was
  // Likewise, from one place to another; unset: `token_s` between all.
  std::function<std::optional<double>(size_t from, size_t to)> pair_token_s = {};
};
void price_fetches(const FetchesAsked& asked, std::span<CostCandidate> candidates);

// For each token that is fetched, beyond the steps that it is waited for with; as measured lately.
class FetchPace {
 public:
  // A worker was warm after so long, a step of its own included; it fetched so much.
  void note(double seconds, double step_s, int64_t fetched_tokens);
  std::optional<double> token_s() const { return token_s_; }  // none: nothing was measured

 private:
  std::optional<double> token_s_;
};

// The same by who sends and who fetches, as links differ; workers are numbers of whoever owns this.
class FetchPaces {
 public:
  struct Link {
    uint64_t from = 0;
    uint64_t to = 0;
  };
  void note(int64_t now_ns, Link link, double seconds, double step_s, int64_t fetched_tokens);
  // Of this link, where it was measured within the last minute, otherwise of all of them together:
  // a link that was slow once is tried again. None: nothing was measured.
  std::optional<double> token_s(int64_t now_ns, Link link) const;
  std::optional<double> token_s() const { return all_.token_s(); }

 private:
  struct Measured {
    FetchPace pace;
    int64_t at_ns = 0;
  };
  FetchPace all_;
  std::map<std::pair<uint64_t, uint64_t>, Measured> links_;  // bounded
};

}  // namespace pelton::gateway
