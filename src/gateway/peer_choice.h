// Which other worker has so much more of a prompt than the chosen one that it may be fetched from
// there, and what fetching takes. Pure; the simulator links the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

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
};
// Who has the most, if that is worth asking for.
std::optional<PrefixSource> choose_peer(const PeersAsked& asked);

// For each token that is fetched, beyond the steps that it is waited for with; as measured lately.
class FetchPace {
 public:
  // A worker was warm after so long, a step of its own included; it fetched so much.
  void note(double seconds, double step_s, int64_t fetched_tokens);
  std::optional<double> token_s() const { return token_s_; }  // none: nothing was measured

 private:
  std::optional<double> token_s_;
};

}  // namespace pelton::gateway
