#include "bench/expected_duration.h"

#include <algorithm>

#include "base/check.h"

namespace pelton::bench {

ExpectedDuration expected_duration(const Target& target, const QuestionOptions& question,
                                   const std::vector<workload::Conversation>& conversations,
                                   const std::vector<double>& at_s, const Probed& probed) {
  CHECK(conversations.size() == at_s.size());
  ExpectedDuration expected;
  bool is_spread = false;
  double last_end_s = 0;
  for (size_t i = 0; i < conversations.size(); ++i) {
    double end_s = at_s[i];
    is_spread |= at_s[i] > 0;
    for (const workload::Turn& turn : conversations[i].turns) {
      int64_t tokens = 0;
      if (generates(target.backend)) {
        tokens = asked_tokens(target, question, turn);
        if (tokens == 0) tokens = workload::kOutputTokensOtherwise;
      }
      const double answer_s = probed.first_token_s + static_cast<double>(tokens) * probed.token_s;
      ++expected.requests;
      expected.one_by_one_s += answer_s;
      is_spread |= turn.think_s > 0;
      end_s += turn.think_s + answer_s;
    }
    last_end_s = std::max(last_end_s, end_s);
  }
  if (is_spread) expected.least_s = last_end_s;
  return expected;
}

}  // namespace pelton::bench
