// serve --kv-events-endpoint and --kv-events-form.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "cli/command_line.h"
#include "server/kv_event_publisher.h"

namespace pelton::apps {

std::vector<cli::Flag> kv_event_flags();

// Who publishes has to know its engines' seed of block names: that of this process, drawn once;
// none: nothing is published.
std::optional<uint64_t> kv_events_seed(const cli::Arguments& arguments);

// `block_seed`: as engines have it.
Result<std::unique_ptr<server::KvEventPublisher>> open_kv_events(const cli::Arguments& arguments,
                                                                 uint64_t block_seed,
                                                                 const base::Clock& clock,
                                                                 base::Log& log);

}  // namespace pelton::apps
