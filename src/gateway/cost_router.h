// What sending a request to a worker costs, in seconds: how much later all requests there, the new
// one included, will be answered. No weights to tune: each term is a time. Pure; the simulator
// links the same.
//
//   f                                             tokens that are fetched from another worker
//   u     = prompt - hit - f                      tokens to compute
//   d                                             sequences that decode now
//   b     = d + waiting + uncounted, at most the slots but one: that decode beside it
//   s(b,K) = a + c b + k K                        a step of b sequences with K tokens of context
//   wait  = (waiting tokens + own, uncounted) / r, or the time until a slot is free
//   first = distance + adapter + wait + fetch + u / r + s(b+1, K+n)
//   fetch = f times what fetching a token takes
//   rest  = (o - 1) s(b+1, K+n) / (1 - phi p)     p: share of its time that prompts lately took:
//         those that will come hold the answer up
//   harm  = d phi u / r + b c o + m u / r         sequences slowed down, requests behind it
//   room  = kappa v / (1 - v)                     v: share of the KV cache in use
//   adapter: 0 where the request's LoRA adapter is in memory, or it has none; otherwise what such
//         requests wait there, and, where another one makes room, that times the share of requests
//         that find theirs: so often the one pushed out would have been asked for
//   pushed out: that last term
//   far   = what sending it there costs, in seconds as configured
//   cost  = bias first + rest_bias rest + harm + room + pushed out + far
//
// Where workers stand at several distances, those of the nearest zone that has room are asked
// first: a free slot, and a tenth of the KV cache. Beyond it costs more than the way: others'
// traffic, and money.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cluster/step_fit.h"

namespace pelton::gateway {

struct CostCandidate {
  cluster::StepCosts costs;  // a, c, k and 1 / r, as the worker measures itself
  double interference = 1;   // phi: share of a prefill's time that decoding sequences lose
  int slots = 1;
  int rows = 0;                // sequences that decode
  int64_t context_tokens = 0;  // of these
  int waiting = 0;             // requests
  int64_t waiting_tokens = 0;  // of their prompts, still to be computed
  int uncounted = 0;           // requests sent and not in its report yet
  int64_t uncounted_tokens = 0;
  double slot_wait_s = 0;    // until one is free, as it reported
  double kv_used = 0;        // 0 to 1
  int64_t hit_tokens = 0;    // of this prompt
  int64_t held_tokens = -1;  // of it, as it has said itself; -1: not looked up
  int64_t fetch_tokens = 0;  // and those that it would fetch from another worker
  double fetch_token_s = 0;  // what each of them takes
  double prompt_share = 0;   // of its time, that computing prompts lately took: 0 to 1
  double distance_s = 0;     // there and back
  double adapter_s = 0;      // until its adapter is in memory
  double pushed_out_s = 0;   // what others will wait for the one that makes room for it
  double far_s = 0;          // what the way costs beyond its time
  // Measured over predicted, lately: of the time to the first token, and for each further one. One
  // that says of itself that it is idle and fast, and is not, is priced by what it does (GW-06).
  double bias = 1;
  double rest_bias = 1;
  bool usable = true;
};

inline constexpr double kBiasMin = 0.5;
inline constexpr double kBiasMax = 64;

// Where a request's adapter is not in memory at a worker: as it reported, and what was sent since.
struct AbsentAdapter {
  int64_t resident = 0;  // others, in memory or on their way
  int64_t places = 0;
  double wait_s = 0;  // what requests waited lately for what was not there
  double hits = 0;    // share of requests that found theirs
};
// What is not in memory is waited for, and may push another one out.
void price(const AbsentAdapter& adapter, CostCandidate& candidate);

struct CostRequest {
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 1;  // expected
};

struct CostTerms {
  double wait_s = 0;
  double fetch_s = 0;  // a part of first_s
  double first_s = 0;
  double step_s = 0;   // with this request in it
  double token_s = 0;  // from one further token to the next: steps, and prompts between them
  double rest_s = 0;
  double harm_s = 0;
  double room_s = 0;
  double adapter_s = 0;     // until it is in memory: a part of first_s
  double pushed_out_s = 0;  // what others will wait for the one that makes room
  double far_s = 0;
  double total_s = 0;
};

CostTerms cost_of(const CostRequest& request, const CostCandidate& candidate);

// What computing prompts takes of a worker's time, of late, by what was sent to it. One thread.
class PromptShare {
 public:
  static constexpr double kFadesS = 20;

  void note(int64_t now_ns, double seconds);
  double at(int64_t now_ns) const;  // may be above 1: more than it can do

 private:
  double seconds_ = 0;  // of late
  int64_t at_ns_ = 0;
};

// It has a free slot, and room for KV.
bool has_room(const CostCandidate& candidate);

// How far a request is sent: as far as the nearest that has room; where none has, as far as any.
double reach_of(std::span<const CostCandidate> candidates);

// Whether something is wrong with it: even with nothing to do it would take four times as long as
// that one, the way there and back included.
bool is_sick(const CostRequest& request, const CostCandidate& candidate,
             const CostCandidate& other);

// So little more is no difference.
double equal_within_s(double cost_s);

// The cheapest, of the nearest that have room. Those within 2 % or a millisecond are equal: of two
// of them, drawn, the one with fewer requests uncounted. None: none is usable. `explained`, if not
// null: each one's terms.
std::optional<size_t> choose_by_cost(const CostRequest& request,
                                     std::span<const CostCandidate> candidates, uint64_t draw,
                                     std::vector<CostTerms>* explained);

// SGLang's rule, to compare with: the least loaded if loads differ by more than 64 requests and by
// half; else the longest match if that is above 0.3 of the prompt; else the least loaded.
std::optional<size_t> choose_by_threshold(const CostRequest& request,
                                          std::span<const CostCandidate> candidates);

}  // namespace pelton::gateway
