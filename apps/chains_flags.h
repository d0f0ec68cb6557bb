// What `pelton serve` and `pelton gateway` say of chains (/v1/chains): the flags, and the service
// that they ask for.
#pragma once

#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "chain_http/chain_service.h"
#include "cli/command_line.h"

namespace pelton::apps {

// --chains --chain-hosts.
std::vector<cli::Flag> chains_flags();
cli::Flag chain_hosts_flag();

// What is wrong with the files of --chains and the hosts that they ask; nothing without it. Errors:
// kBadConfig.
Result<void> check_chains(const cli::Arguments& arguments);

// Null: the flags name no folder. Errors: kBadConfig, of a file that is no chain, with its line.
Result<std::unique_ptr<chain_http::ChainService>> open_chains(const cli::Arguments& arguments,
                                                              chain_http::ChainService::Send send,
                                                              const base::Clock& clock);

}  // namespace pelton::apps
