#include "workload/offered_load.h"

#include <algorithm>

namespace pelton::workload {
namespace {

// 0: all at once.
double conversations_per_s(const std::vector<double>& at_s) {
  if (at_s.empty() || at_s.back() <= 0) return 0;
  // Times that are drawn begin with a gap, a trace begins at 0.
  const size_t gaps = at_s.front() > 0 ? at_s.size() : at_s.size() - 1;
  return static_cast<double>(gaps) / at_s.back();
}

}  // namespace

OfferedLoad offered_load(const Workload& workload) {
  double requests = 0;
  double prompts = 0;
  double repeated = 0;
  double outputs = 0;
  double later = 0;  // turns that are not the first
  double pauses = 0;
  for (const Conversation& conversation : workload.conversations) {
    double before = 0;
    for (const Turn& turn : conversation.turns) {
      const double prompt = std::max(turn.prompt_tokens, 1);
      const double output = turn.output_tokens > 0 ? turn.output_tokens : kOutputTokensOtherwise;
      ++requests;
      repeated += before;
      if (before > 0) ++later, pauses += turn.think_s;
      prompts += before + prompt;
      outputs += output;
      before += prompt + output;
    }
  }
  if (requests == 0) return {};
  const auto conversations = static_cast<double>(workload.conversations.size());
  return {.requests_per_s = conversations_per_s(workload.at_s) * requests / conversations,
          .prompt_tokens = prompts / requests,
          .repeated_tokens = repeated / requests,
          .pause_s = later > 0 ? pauses / later : 0,
          .output_tokens = outputs / requests};
}

}  // namespace pelton::workload
