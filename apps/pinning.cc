#include "apps/pinning.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "apps/input.h"
#include "apps/stream_reader.h"
#include "base/file.h"
#include "engine/pinned_at_start.h"
#include "server/pinned_prefix.h"

namespace pelton::apps {
namespace {

constexpr size_t kFileBytesMax = size_t{16} << 20;

bool pins_any(const engine::Ledger& ledger) {
  const auto& blocks = ledger.blocks[kv::kDevice];
  return std::any_of(blocks.begin(), blocks.end(),
                     [](const engine::Ledger::Blocks& counted) { return counted.pinned > 0; });
}

// The engine reports its blocks at the end of a turn, a moment after the tokens are out. What has
// not been reported by then has not been pinned.
engine::Ledger ledger_with_pins(const engine::Engine& engine, const base::Clock& clock) {
  constexpr int64_t kPatienceNs = 2'000'000'000;
  const int64_t start_ns = clock.now_ns();
  for (;;) {
    const engine::Ledger ledger = engine.ledger();
    if (pins_any(ledger) || clock.now_ns() - start_ns > kPatienceNs) return ledger;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

Result<void> compute(const std::string& file, std::vector<TokenId> tokens,
                     server::ServedModel& model, const cli::Interrupt& interrupt) {
  request::GenerationRequest request{.id = std::string(engine::kPinnedAtStart),
                                     .prompt = std::move(tokens)};
  request.sampling.temperature = 0.0f;
  request.stop.max_new_tokens = 1;
  request.pin_prefix = true;
  Result<engine::TokenStream> stream = model.engine.submit(std::move(request));
  if (!stream.ok()) {
    return Error{ErrorCode::kDoesNotFit,
                 fmt::format("--pin-prefix {}: {}", file, stream.error().message), "pin-prefix"};
  }
  StreamReader reader(std::move(stream).value(), interrupt);
  for (;;) {
    std::optional<engine::TokenStream::Batch> batch = reader.next();
    if (!batch) return Error{ErrorCode::kCancelled, "interrupted while pinning " + file};
    if (!batch->end) continue;
    if (batch->end->error) return *batch->end->error;
    return {};
  }
}

}  // namespace

Result<void> pin_prefix(const std::string& file, server::ServedModel& model,
                        const cli::Interrupt& interrupt, const base::Clock& clock, base::Log& log) {
  const Result<std::string> text = base::read_file(file, kFileBytesMax);
  if (!text.ok()) {
    return Error{ErrorCode::kBadConfig, "--pin-prefix " + text.error().message, "pin-prefix"};
  }
  TRY_ASSIGN(std::vector<TokenId> tokens,
             server::pinned_prefix({.name = file, .text = *text}, model,
                                   model.current_date.value_or(base::local_date(clock.unix_ms()))));
  const engine::ExecutorCapacity& capacity = model.engine.capacity();
  const int64_t whole = static_cast<int64_t>(tokens.size()) / capacity.block_tokens;
  if (whole == 0) {
    return Error{ErrorCode::kBadConfig,
                 fmt::format("--pin-prefix {}: {} tokens are less than a block of {}", file,
                             tokens.size(), capacity.block_tokens),
                 "pin-prefix"};
  }
  const int64_t start_ns = clock.now_ns();
  TRY(compute(file, std::move(tokens), model, interrupt));
  const engine::Ledger ledger = ledger_with_pins(model.engine, clock);
  if (!pins_any(ledger)) {
    const int widest = kv::widest_group(capacity.groups);
    return Error{ErrorCode::kDoesNotFit,
                 fmt::format("--pin-prefix {}: {} blocks of the {} there are would have to be "
                             "pinned",
                             file, whole, ledger.of(widest, kv::kDevice).total),
                 "pin-prefix"};
  }
  engine::ExecutorCapacity left = capacity;
  for (int group = 0; group < left.groups.size(); ++group) {
    left.groups[group].block_counts[kv::kDevice] -= ledger.of(group, kv::kDevice).pinned;
  }
  model.context_max =
      static_cast<int>(std::min<int64_t>(model.context_max, left.sequence_tokens_max()));
  log.info(fmt::format("pinned {} tokens of {} in {:.2f} s", whole * capacity.block_tokens, file,
                       static_cast<double>(clock.now_ns() - start_ns) * 1e-9));
  return {};
}

}  // namespace pelton::apps
