// Which worker a request goes to. Pure: the workers as they are known, and a draw for ties. The
// simulator may call it too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace pelton::gateway {

struct Candidate {
  int slots = 1;       // sequences that the worker runs at once
  int running = 0;     // as it reported
  int waiting = 0;     // as it reported
  int uncounted = 0;   // sent to it and not in its report yet
  bool usable = true;  // false: not to be chosen
};

// The least loaded one: the fewest sequences for each slot, those sent and not reported included.
// Among equals the draw decides, so that gateways do not all choose the same. None: none is usable.
std::optional<size_t> choose_worker(std::span<const Candidate> candidates, uint64_t draw);

}  // namespace pelton::gateway
