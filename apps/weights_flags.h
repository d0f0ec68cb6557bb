// The flags that say where weights are fetched from and to whom they are given on, of `serve` and
// `weights mirror`, and what they come to.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "cli/command_line.h"
#include "weights/fetch.h"
#include "weights/mirror.h"
#include "weights/share_server.h"

namespace pelton::apps {

// --weights-key --weights-endpoint --weights-connections --weights-share-port --weights-share-host.
std::vector<cli::Flag> weights_source_flags();

// `from`: peers first, the origin last. Lines of what goes wrong go to the log, which outlives it.
// Errors: kInvalidArgument.
Result<weights::FetchOptions> weights_fetch_options(const cli::Arguments& arguments,
                                                    const std::vector<std::string>& from,
                                                    const base::Clock& clock, base::Log& log);

// At --weights-share-port; null without it. Fills in what the options say of sharing. Errors:
// kBadConfig where anybody could come, those of the listener.
Result<std::unique_ptr<weights::ShareServer>> open_weights_share(const cli::Arguments& arguments,
                                                                 weights::FetchOptions& options,
                                                                 const base::Clock& clock,
                                                                 base::Log& log);

// "fetching weights" and the like, for a progress bar; empty: nothing is to be shown.
std::string_view weights_phase(const weights::MirrorProgress& progress);
// "12.9 GiB: 1.6 GiB from the origin, 11.3 GiB from peers, 0 B were there".
std::string weights_report(const weights::MirrorReport& report);

}  // namespace pelton::apps
