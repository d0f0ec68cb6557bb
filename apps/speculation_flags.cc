#include "apps/speculation_flags.h"

#include <utility>

namespace pelton::apps {

cli::Flag speculation_flag() {
  return {.name = "--speculative-config",
          .value = "JSON",
          .help =
              "speculative decoding: proposes draft tokens and verifies them in one step, which "
              "changes no answer; as vLLM's: '{\"method\":\"suffix\"}' or "
              "'{\"method\":\"eagle3\",\"model\":\"./head\",\"num_speculative_tokens\":3}'"};
}

std::vector<cli::Flag> modelled_speculation_flags() {
  return {{.name = "--speculative-tokens",
           .value = "K",
           .help = "maximum draft tokens per sequence (num_speculative_tokens), where they pay",
           .kind = cli::Flag::Kind::kInteger,
           .default_text = "0",
           .most = 64},
          {.name = "--speculative-acceptance",
           .value = "SHARE",
           .help = "acceptance rate of a draft token whose predecessor was accepted; also one for "
                   "each place (0.9,0.7,0.5), one drawn for each request (beta:5:2), or a mixture "
                   "(0.3*0.95+0.7*beta:2:5)",
           .default_text = "0.7",
           .only_with = {{"--speculative-tokens"}}},
          {.name = "--speculative-draft-ms",
           .value = "T",
           .help = "time per draft token",
           .kind = cli::Flag::Kind::kNumber,
           .default_text = "0",
           .most = 1e4,
           .only_with = {{"--speculative-tokens"}}}};
}

Result<planner::Speculation> read_modelled_speculation(const cli::Arguments& arguments) {
  TRY_ASSIGN(cost_model::DraftAcceptance acceptance,
             cost_model::DraftAcceptance::parse(arguments.text("--speculative-acceptance")));
  return planner::Speculation{
      .tokens_max = static_cast<int>(arguments.integer("--speculative-tokens")),
      .acceptance = std::move(acceptance),
      .draft_token_s = arguments.number("--speculative-draft-ms") * 1e-3};
}

Result<void> read_speculation_flag(const cli::Arguments& arguments,
                                   executor::LocalExecutor::Options& options) {
  if (!arguments.has("--speculative-config")) return {};
  TRY_ASSIGN(options.speculation,
             speculative::parse_config(arguments.text("--speculative-config")));
  return {};
}

}  // namespace pelton::apps
