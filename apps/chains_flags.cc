#include "apps/chains_flags.h"

#include <utility>

#include "chain_http/http_step.h"

namespace pelton::apps {

using cli::Flag;

Flag chain_hosts_flag() {
  return {.name = "--chain-hosts",
          .value = "HOST",
          .help =
              "hosts that http: steps of chains may ask, as search.example or "
              "127.0.0.1:9000; none: such steps are refused",
          .many = true,
          .may_be_empty = false};
}

std::vector<Flag> chains_flags() {
  std::vector<Flag> flags = {{.name = "--chains",
                              .value = "FOLDER",
                              .help = "serve the chains of this folder's *.toml at "
                                      "/v1/chains/NAME; a file with an error ends the start",
                              .may_be_empty = false},
                             chain_hosts_flag()};
  flags[1].only_with = {{"--chains"}};
  return flags;
}

Result<void> check_chains(const cli::Arguments& arguments) {
  if (!arguments.has("--chains")) return {};
  TRY_ASSIGN(const std::vector<chain::Chain> chains,
             chain::read_chains(arguments.text("--chains")));
  for (const chain::Chain& chain : chains) {
    TRY(chain_http::check_http_steps(chain, arguments.list("--chain-hosts")));
  }
  return {};
}

Result<std::unique_ptr<chain_http::ChainService>> open_chains(const cli::Arguments& arguments,
                                                              chain_http::ChainService::Send send,
                                                              const base::Clock& clock) {
  if (!arguments.has("--chains")) return std::unique_ptr<chain_http::ChainService>();
  TRY_ASSIGN(std::vector<chain::Chain> chains, chain::read_chains(arguments.text("--chains")));
  return chain_http::ChainService::open(
      std::move(chains), {.http_hosts = arguments.list("--chain-hosts")}, std::move(send), clock);
}

}  // namespace pelton::apps
