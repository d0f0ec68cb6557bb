#include "models/pooled_texts.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "models/sequence_runner.h"

namespace pelton::models {
namespace {

using Of = PooledRequest::Of;

Result<void> check_text(const PooledText& text, size_t index, const Model& model) {
  const families::ModelConfig& config = model.config();
  const auto refuse = [&](const std::string& what) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("text {} {}", index, what)};
  };
  if (text.tokens.empty()) return refuse("has no tokens");
  const int64_t most = config.is_encoder()
                           ? std::min(config.context_max, model.options().batch_tokens_max)
                           : config.context_max;
  if (static_cast<int64_t>(text.tokens.size()) > most) {
    return refuse(
        fmt::format("has {} tokens; the model takes at most {}", text.tokens.size(), most));
  }
  for (const TokenId id : text.tokens) {
    if (id >= 0 && id < config.vocab_size) continue;
    return refuse(
        fmt::format("has the token {}, but the vocabulary has {}", id, config.vocab_size));
  }
  return {};
}

// The states of one text as they come, in order; then its vector.
class Pool {
 public:
  Pool(Model& model, const PooledRequest& request, int token_count)
      : model_(model), request_(request), token_count_(token_count) {}

  void add(int position, const float* state) {
    const auto size = static_cast<size_t>(model_.config().hidden_size);
    if (request_.of == Of::kMean) {
      sum_.resize(size, 0.0);
      for (size_t i = 0; i < size; ++i) sum_[i] += double{state[i]};
    } else if (position == wanted()) {
      sum_.assign(state, state + size);
    }
  }

  std::vector<float> take() {
    const double count = request_.of == Of::kMean ? token_count_ : 1;
    std::vector<float> state;
    for (const double value : sum_) state.push_back(static_cast<float>(value / count));
    std::vector<float> scores;
    if (request_.of == Of::kLabels) {
      scores.resize(static_cast<size_t>(model_.config().label_count));
      model_.labels_of(state.data(), scores.data());
      return scores;
    }
    if (request_.of != Of::kTokens) return state;
    scores.resize(request_.label_tokens.size());
    model_.token_logits_of(state.data(), request_.label_tokens, scores.data());
    return scores;
  }

 private:
  int wanted() const {
    const bool first =
        request_.of == Of::kFirst || (request_.of == Of::kLabels && model_.config().is_encoder());
    return first ? 0 : token_count_ - 1;
  }

  Model& model_;
  const PooledRequest& request_;
  const int token_count_;
  std::vector<double> sum_;
};

std::vector<float> encoded(Model& model, const PooledRequest& request, int first_row, int count) {
  std::vector<int> rows(static_cast<size_t>(count));
  std::iota(rows.begin(), rows.end(), first_row);
  Pool pool(model, request, count);
  model.normed_rows(
      rows, [&](size_t index, const float* state) { pool.add(static_cast<int>(index), state); });
  return pool.take();
}

Result<void> encode_all(Model& model, std::span<const PooledText> texts,
                        const PooledRequest& request, std::vector<std::vector<float>>& vectors) {
  KvStorage::Options none;
  none.block_counts.assign(1, 0);
  TRY_ASSIGN(KvStorage kv, KvStorage::allocate(model.config(), none));
  const auto most = static_cast<size_t>(model.options().batch_tokens_max);
  for (size_t first = 0; first < texts.size();) {
    ForwardInput input;
    size_t next = first;
    for (; next < texts.size(); ++next) {
      const PooledText& text = texts[next];
      if (input.tokens.size() + text.tokens.size() > most) break;
      input.tokens.insert(input.tokens.end(), text.tokens.begin(), text.tokens.end());
      input.sequences.push_back({.count = static_cast<int>(text.tokens.size()),
                                 .tables = {},
                                 .second_text = text.second_text});
    }
    model.forward(input, kv, nullptr);
    int row = 0;
    for (; first < next; ++first) {
      const int count = static_cast<int>(texts[first].tokens.size());
      vectors.push_back(encoded(model, request, row, count));
      row += count;
    }
  }
  return {};
}

Result<std::vector<float>> decoded(Model& model, const PooledText& text,
                                   const PooledRequest& request) {
  const int length = static_cast<int>(text.tokens.size());
  TRY_ASSIGN(SequenceRunner runner, SequenceRunner::make(model, request.kv_dtype, length));
  Pool pool(model, request, length);
  for (int start = 0; start < length;) {
    const int count = std::min(model.options().batch_tokens_max, length - start);
    runner.step(
        std::span(text.tokens).subspan(static_cast<size_t>(start), static_cast<size_t>(count)), {},
        nullptr);
    std::vector<int> rows(static_cast<size_t>(count));
    std::iota(rows.begin(), rows.end(), 0);
    model.normed_rows(rows, [&](size_t index, const float* state) {
      pool.add(start + static_cast<int>(index), state);
    });
    start += count;
  }
  return pool.take();
}

}  // namespace

Result<std::vector<std::vector<float>>> pooled_texts(Model& model,
                                                     std::span<const PooledText> texts,
                                                     const PooledRequest& request) {
  for (size_t i = 0; i < texts.size(); ++i) TRY(check_text(texts[i], i, model));
  const bool is_encoder = model.config().is_encoder();
  if (request.of == Of::kLabels && model.config().label_count == 0) {
    return Error{ErrorCode::kUnsupported, "the model has no classification head"};
  }
  if (request.of == Of::kTokens && is_encoder) {
    return Error{ErrorCode::kUnsupported, "an encoder has no logits of tokens"};
  }
  std::vector<std::vector<float>> vectors;
  if (is_encoder) {
    TRY(encode_all(model, texts, request, vectors));
    return vectors;
  }
  for (const PooledText& text : texts) {
    TRY_ASSIGN(std::vector<float> vector, decoded(model, text, request));
    vectors.push_back(std::move(vector));
  }
  return vectors;
}

void normalise(std::vector<float>& vector) {
  double square = 0.0;
  for (const float value : vector) square += double{value} * double{value};
  if (square == 0.0) return;
  const double scale = 1.0 / std::sqrt(square);
  for (float& value : vector) value = static_cast<float>(double{value} * scale);
}

}  // namespace pelton::models
