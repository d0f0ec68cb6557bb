#include "server/embedding_batch.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "server/generation_facts.h"

namespace pelton::server {
namespace {

// Of one batch; several fill an encoder's steps.
size_t running_max(const engine::ExecutorCapacity& capacity) {
  constexpr int kMost = 256;
  return static_cast<size_t>(std::clamp(2 * capacity.pooled_sequences_max, 2, kMost));
}

}  // namespace

EmbeddingBatch::EmbeddingBatch(engine::Engine& engine,
                               std::vector<request::GenerationRequest> requests, Counted counted,
                               std::function<void()> ready)
    : engine_(engine),
      ready_(std::move(ready)),
      // One step's slots are being computed, the next step's wait.
      running_max_(running_max(engine.capacity())),
      requests_(std::move(requests)),
      counted_(counted) {
  embeddings_.vectors.resize(requests_.size());
}

std::optional<Result<Embeddings>> EmbeddingBatch::pump() {
  for (size_t i = 0; i < running_.size();) {
    engine::TokenStream::Batch batch = running_[i].stream.take();
    if (!batch.end) {
      ++i;
      continue;
    }
    watch_->end(*batch.end);
    const int64_t prompt_tokens = facts_.prompt_tokens + batch.end->prompt_tokens;
    add_answer(facts_, *batch.end);
    facts_.prompt_tokens = prompt_tokens;  // each has a prompt of its own
    if (batch.end->reason != engine::FinishReason::kEmbedded) {
      return Result<Embeddings>(
          batch.end->error.value_or(Error{ErrorCode::kInternal, "no embedding came", ""}));
    }
    embeddings_.vectors[running_[i].index] = std::move(batch.end->embedding);
    embeddings_.prompt_tokens += batch.end->prompt_tokens;
    ++done_;
    std::swap(running_[i], running_.back());
    running_.pop_back();
  }
  while (next_ < requests_.size() && running_.size() < running_max_) {
    // A copy: of a full queue it is asked again when one of ours has ended.
    Result<engine::TokenStream> stream = engine_.submit(requests_[next_]);
    const bool can_wait =
        !running_.empty() && !stream.ok() && stream.error().code == ErrorCode::kOverloaded;
    if (can_wait) break;
    if (!stream.ok()) return Result<Embeddings>(stream.error());
    if (!watch_) {
      watch_.emplace(counted_.meter, static_cast<int64_t>(requests_.size()), counted_.arrived_ns);
    }
    requests_[next_] = {};
    running_.push_back({.index = next_++, .stream = std::move(stream).value()});
    running_.back().stream.on_ready(ready_);
  }
  if (done_ < requests_.size()) return std::nullopt;
  return Result<Embeddings>(std::move(embeddings_));
}

void normalise(std::vector<std::vector<float>>& vectors, std::optional<int> dimensions) {
  for (std::vector<float>& vector : vectors) {
    if (dimensions) vector.resize(static_cast<size_t>(*dimensions));
    double square = 0.0;
    for (const float value : vector) square += static_cast<double>(value) * double{value};
    if (square == 0.0) continue;
    const double scale = 1.0 / std::sqrt(square);
    for (float& value : vector) value = static_cast<float>(double{value} * scale);
  }
}

void finish_vectors(std::vector<std::vector<float>>& vectors, const VectorForm& form) {
  if (form.normalises) return normalise(vectors, form.dimensions);
  if (!form.dimensions) return;
  for (std::vector<float>& vector : vectors) vector.resize(static_cast<size_t>(*form.dimensions));
}

double cosine(const std::vector<float>& a, const std::vector<float>& b) {
  CHECK(a.size() == b.size());
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) sum += double{a[i]} * double{b[i]};
  return sum;
}

}  // namespace pelton::server
