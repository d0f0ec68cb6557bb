#include "models/self_check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include <fmt/format.h>

#include "models/sequence_runner.h"

namespace pelton::models {
namespace {

struct Recording {
  std::vector<std::vector<float>> stream;  // after each block, and the logits
};

Result<Recording> record(const checkpoint::Checkpoint& checkpoint, kernels::Kernels& kernels,
                         std::span<const TokenId> tokens, base::FunctionRef<void()> block_done) {
  const int count = static_cast<int>(tokens.size());
  TRY_ASSIGN(const std::unique_ptr<Model> model,
             load_model(checkpoint, kernels, {.batch_tokens_max = count, .logit_rows_max = count}));
  TRY_ASSIGN(SequenceRunner runner, SequenceRunner::make(*model, tensor::DType::kF32, count));
  Recording recording;
  const int64_t hidden = model->config().hidden_size;
  auto keep = [&](int /*index*/, const float* x, int rows) {
    recording.stream.emplace_back(x, x + rows * hidden);
    block_done();
  };
  HiddenTap tap(keep);
  std::vector<int> rows(tokens.size());
  for (int i = 0; i < count; ++i) rows[static_cast<size_t>(i)] = i;
  const float* logits = runner.step(tokens, rows, &tap);
  recording.stream.emplace_back(logits, logits + int64_t{count} * model->config().vocab_size);
  return recording;
}

BlockDifference compare(const std::vector<float>& got, const std::vector<float>& exact,
                        size_t positions) {
  const size_t width = exact.size() / positions;
  BlockDifference block;
  std::vector<double> errors;
  double squares = 0;
  for (size_t p = 0; p < positions; ++p) {
    double difference = 0;
    double norm = 0;
    for (size_t i = p * width; i < (p + 1) * width; ++i) {
      difference += (double{got[i]} - exact[i]) * (double{got[i]} - exact[i]);
      norm += double{exact[i]} * exact[i];
    }
    squares += norm;
    const double error = std::sqrt(difference / std::max(norm, 1e-30));
    errors.push_back(std::isfinite(error) ? error : std::numeric_limits<double>::infinity());
  }
  std::sort(errors.begin(), errors.end());
  block.error_median = errors[errors.size() / 2];
  block.error_max = errors.back();
  block.rms = std::isfinite(block.error_max)
                  ? std::sqrt(squares / static_cast<double>(exact.size()))
                  : std::numeric_limits<double>::infinity();
  return block;
}

std::string block_name(size_t index, size_t count) {
  if (index == 0) return "embedding";
  if (index + 1 == count) return "logits";
  return fmt::format("layer {} {}", (index - 1) / 2, index % 2 == 1 ? "attention" : "feed-forward");
}

void judge_logits(const std::vector<float>& got, const std::vector<float>& exact,
                  std::span<const TokenId> tokens, SelfCheck& check) {
  const size_t vocab = exact.size() / tokens.size();
  double nats = 0;
  int agreed = 0;
  for (size_t p = 0; p < tokens.size(); ++p) {
    const float* row = exact.data() + p * vocab;
    const float* other = got.data() + p * vocab;
    const float* best = std::max_element(row, row + vocab);
    agreed += best - row == std::max_element(other, other + vocab) - other ? 1 : 0;
    if (p + 1 == tokens.size()) break;
    double total = 0;
    for (size_t i = 0; i < vocab; ++i) total += std::exp(double{row[i]} - *best);
    nats += *best + std::log(total) - row[tokens[p + 1]];
  }
  check.nats_per_token = nats / static_cast<double>(tokens.size() - 1);
  check.agreement = static_cast<double>(agreed) / static_cast<double>(tokens.size());
}

}  // namespace

Result<SelfCheck> self_check(const checkpoint::Checkpoint& checkpoint, kernels::Kernels& reference,
                             kernels::Kernels& fast, std::span<const TokenId> tokens,
                             base::FunctionRef<void(int64_t, int64_t)> progress) {
  CHECK(tokens.size() >= 2);
  if (checkpoint.config().is_encoder()) {
    return Error{
        ErrorCode::kUnsupported,
        "an encoder is not compared block by block: pelton embed --kernels reference gives "
        "exact vectors to compare with",
        "model"};
  }
  const int64_t blocks = 1 + 2 * int64_t{checkpoint.config().layer_count()};
  int64_t done = 0;
  const auto block_done = [&] { progress(++done, 2 * blocks); };
  TRY_ASSIGN(const Recording got, record(checkpoint, fast, tokens, block_done));
  TRY_ASSIGN(const Recording exact, record(checkpoint, reference, tokens, block_done));
  SelfCheck check;
  for (size_t i = 0; i < exact.stream.size(); ++i) {
    check.blocks.push_back(compare(got.stream[i], exact.stream[i], tokens.size()));
    check.blocks.back().name = block_name(i, exact.stream.size());
    if (!(check.blocks[i].error_median <= check.blocks[check.worst].error_median)) check.worst = i;
  }
  judge_logits(got.stream.back(), exact.stream.back(), tokens, check);
  return check;
}

}  // namespace pelton::models
