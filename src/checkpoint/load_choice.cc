#include "checkpoint/load_choice.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/machine.h"

namespace pelton::checkpoint {
namespace {

// What we leave to others before weights are locked without being asked for: heap, page cache, the
// system and its other processes. More would make small machines useless to us, and large ones do
// not need more.
constexpr int64_t kReserveMax = int64_t{4} << 30;
constexpr int64_t kReserveShare = 5;  // a fifth of memory

constexpr std::string_view kWaysOut =
    "raise `ulimit -l` (LimitMEMLOCK= of a service, --ulimit memlock=-1 of a container), or use "
    "--load-mode read";

std::string human(int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes >= int64_t{1} << 30) return fmt::format("{:.1f} GiB", value / (1 << 30));
  if (bytes >= 1 << 20) return fmt::format("{:.1f} MiB", value / (1 << 20));
  return fmt::format("{:.0f} KiB", value / 1024);
}

int64_t reserve_of(int64_t memory_bytes) {
  return std::min(memory_bytes / kReserveShare, kReserveMax);
}

LoadChoice choose_for_auto(const LoadFacts& facts) {
  if (facts.weight_bytes > facts.lock_limit_bytes) {
    return {.reason =
                fmt::format("{} of weights may not be locked into memory, only {}; {}",
                            human(facts.weight_bytes), human(facts.lock_limit_bytes), kWaysOut)};
  }
  const int64_t reserve = reserve_of(facts.memory_bytes);
  if (facts.weight_bytes > facts.memory_bytes - reserve - facts.beside_bytes) {
    return {.reason = fmt::format(
                "{} of weights and {} beside them, of {} of memory, leave less than {} to others; "
                "take less (--kv-cache-memory), or --load-mode lock all the same",
                human(facts.weight_bytes), human(facts.beside_bytes), human(facts.memory_bytes),
                human(reserve))};
  }
  return {.mode = LoadMode::kLock,
          .keep_available = facts.beside_bytes + reserve / 2,
          .floor_bytes = reserve / 4,
          .reason = "weights stay in memory, and what is left is enough for others"};
}

}  // namespace

Result<LoadMode> parse_load_mode(std::string_view name) {
  for (const LoadMode mode : {LoadMode::kAuto, LoadMode::kMap, LoadMode::kLock, LoadMode::kRead}) {
    if (name == load_mode_name(mode)) return mode;
  }
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("--load-mode is 'auto', 'mmap', 'lock' or 'read', not '{}'", name)};
}

std::string_view load_mode_name(LoadMode mode) {
  switch (mode) {
    case LoadMode::kAuto:
      return "auto";
    case LoadMode::kMap:
      return "mmap";
    case LoadMode::kLock:
      return "lock";
    case LoadMode::kRead:
      return "read";
  }
  return "?";
}

LoadFacts load_facts(int64_t weight_bytes, int64_t beside_bytes) {
  return {.weight_bytes = weight_bytes,
          .beside_bytes = beside_bytes,
          .memory_bytes = base::memory_limit_bytes(),
          .lock_limit_bytes = base::raise_lock_limit()};
}

std::string LoadChoice::text() const {
  return fmt::format("{}{}{}", load_mode_name(mode), reason.empty() ? "" : ": ", reason);
}

Result<LoadChoice> choose_load_mode(LoadMode asked, const LoadFacts& facts) {
  if (asked == LoadMode::kLock) {
    if (facts.weight_bytes <= facts.memory_bytes) return LoadChoice{.mode = asked};
    return Error{ErrorCode::kDoesNotFit,
                 fmt::format("--load-mode lock: {} of weights do not fit into {} of memory",
                             human(facts.weight_bytes), human(facts.memory_bytes))};
  }
  // They would push each other out of memory.
  if (facts.weight_bytes > facts.memory_bytes / 10 * 9) {
    return LoadChoice{.ahead = false,
                      .reason = fmt::format("{} of weights in {} of memory are read when they are "
                                            "needed, again and again",
                                            human(facts.weight_bytes), human(facts.memory_bytes))};
  }
  return asked == LoadMode::kAuto ? choose_for_auto(facts) : LoadChoice{.mode = asked};
}

LoadChoice without_lock(const LoadChoice& choice, int64_t available_bytes) {
  return {.ahead = choice.ahead,
          .reason = fmt::format("weights are not locked: with them in memory the system has {} "
                                "left, and {} are wanted for what is beside them and for others",
                                human(available_bytes), human(choice.keep_available.value_or(0)))};
}

LoadChoice without_lock(const LoadChoice& choice, std::string_view refusal) {
  return {
      .ahead = choice.ahead,
      .reason = fmt::format("weights may not be locked into memory ({}); {}", refusal, kWaysOut)};
}

}  // namespace pelton::checkpoint
