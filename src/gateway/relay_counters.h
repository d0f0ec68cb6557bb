// What became of relayed requests, and of the file that says where they go. Any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>

#include "gateway/gateway_figures.h"
#include "gateway/region_ledger.h"
#include "gateway/served_figures.h"

namespace pelton::gateway {

// Requests that two workers were to answer.
struct SplitCounters {
  enum class Outcome {
    kHandedOver,  // the second one goes on
    kEnded,       // it was over before that
    kNoDecoder,   // there was none, or none that took it
    kFailed,      // those that were tried failed: the first one went on
    kLost,        // the first one was lost meanwhile
  };
  static constexpr std::array<std::string_view, 5> kOutcomes = {
      "handed_over", "ended", "no_decoder", "failed", "source_lost"};
  void note(Outcome outcome) { ++outcomes[static_cast<size_t>(outcome)]; }

  std::array<std::atomic<int64_t>, kOutcomes.size()> outcomes{};
  // Of what was handed over: tokens that the second worker found or fetched, and those that it
  // computed although the first one had them in whole blocks.
  std::atomic<int64_t> found_tokens{0};
  std::atomic<int64_t> recomputed_tokens{0};
};

// Of pools that make images or videos.
struct MediaCounters {
  std::atomic<int64_t> images{0};        // requests for some, answered
  std::atomic<int64_t> videos{0};        // begun
  std::atomic<int64_t> units{0};         // of work, of both (gateway/media_request.h)
  std::atomic<int64_t> result_bytes{0};  // passed on
  std::atomic<int64_t> refused{0};       // beyond a limit, or no such request
  std::atomic<int64_t> late{0};          // that their worker did not answer in time
};

struct RelayCounters {
  GatewayFigures figures;
  ServedFigures served;
  RegionLedger regions;
  MediaCounters media;
  std::atomic<int64_t> answered{0};     // wholly, whatever their status
  std::atomic<int64_t> fallbacks{0};    // sent to another pool of their route
  std::atomic<int64_t> drain_moves{0};  // sent on because their worker was being stopped
  std::atomic<int64_t> warm_moves{0};   // of these, to one that had computed what was said before
  std::atomic<int64_t> warm_tokens{0};  // said meanwhile by those that were left
  SplitCounters splits;
  std::atomic<int64_t> interrupted{0};  // ended by an error amid an answer
  std::atomic<int64_t> unserved{0};     // refused by the gateway itself
  std::atomic<int64_t> quarantined{0};
  std::atomic<int64_t> left{0};  // by their clients
  std::atomic<int64_t> open{0};
  // Of answers whose prompts had names: what their workers were expected to find of them, and did.
  std::atomic<int64_t> named{0};
  std::atomic<int64_t> expected_hit_tokens{0};
  std::atomic<int64_t> real_hit_tokens{0};
  std::atomic<int64_t> hit_mismatches{0};  // by a block or more
  // Sent to workers that had less of their prompt than others, for what they would fetch; and the
  // tokens that were fetched, whyever a worker was chosen.
  std::atomic<int64_t> prefix_copies{0};
  std::atomic<int64_t> prefix_copy_tokens{0};
  // Sent to workers with an adapter, and of these to one that had it in memory.
  std::atomic<int64_t> adapter_requests{0};
  std::atomic<int64_t> adapter_resident{0};
  std::atomic<int64_t> prompt_mismatches{0};  // the worker counted other tokens
  std::atomic<int64_t> reloads{0};            // of the configuration
  std::atomic<int64_t> reloads_refused{0};    // the file was wrong
};

}  // namespace pelton::gateway
