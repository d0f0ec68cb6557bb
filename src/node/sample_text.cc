#include "node/sample_text.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "node/model_tokenizer.h"

namespace pelton::node {
namespace {

constexpr std::string_view kText =
    "A Pelton wheel is a water turbine that takes its power from the speed of a free jet. Water "
    "falls from a high lake through a long pipe, and at the end of the pipe a nozzle turns its "
    "pressure into motion. The jet strikes a row of buckets on the rim of the wheel. Each bucket "
    "has a sharp ridge in the middle that cuts the jet in two, and each half runs around the curve "
    "of its cup and leaves it almost backwards. When the rim moves at half the speed of the jet, "
    "the water that leaves has hardly any speed left, and nearly all of its energy has gone into "
    "the wheel. The engineer Lester Allan Pelton found the shape in the mining towns of "
    "California in the 1870s, and it is still used wherever there is little water and a long way "
    "to fall. To change the power, a needle inside the nozzle moves forwards or backwards, so that "
    "the jet becomes thinner or thicker while its speed stays the same.";

}  // namespace

Result<SampleTokens> sample_tokens(const checkpoint::Checkpoint& checkpoint, size_t count) {
  SampleTokens sample;
  const auto vocab = static_cast<size_t>(checkpoint.config().vocab_size);
  TRY_ASSIGN(const auto tokenizer, read_model_tokenizer(checkpoint));
  if (tokenizer == nullptr) {
    for (size_t i = 0; i < count; ++i) {
      sample.tokens.push_back(static_cast<TokenId>((i * 7919 + 17) % vocab));
    }
    return sample;
  }
  sample.real_text = true;
  sample.tokens = tokenizer->encode(kText);
  for (const TokenId token : sample.tokens) {
    if (static_cast<size_t>(token) < vocab) continue;
    return Error{ErrorCode::kBadCheckpoint,
                 fmt::format("the tokenizer has token {}, but the model's vocabulary ends at {}",
                             token, vocab - 1)};
  }
  sample.tokens.resize(std::min(sample.tokens.size(), count));
  return sample;
}

}  // namespace pelton::node
