#include "executor/weights_identity.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "base/digest.h"

namespace pelton::executor {
namespace {

constexpr size_t kSampleBytes = 64;

}  // namespace

std::string model_digest(const checkpoint::Checkpoint& checkpoint) {
  base::Digest digest(base::Digest::Kind::kSha256);
  for (const auto& [name, view] : checkpoint.tensors()) {
    digest.update(fmt::format("{} {}", name, tensor::dtype_name(view.dtype)));
    for (const int64_t size : view.shape) digest.update(fmt::format(" {}", size));
    const auto* const bytes = reinterpret_cast<const char*>(view.bytes.data());
    const size_t size = view.bytes.size();
    const size_t sample = std::min(size, kSampleBytes);
    for (const size_t at : {size_t{0}, (size - sample) / 2, size - sample}) {
      digest.update({bytes + at, sample});
    }
  }
  return digest.finish();
}

std::string weights_identity(const checkpoint::Checkpoint& checkpoint,
                             const WeightsSampling& sampling) {
  int64_t total = 0;
  for (const auto& [name, view] : checkpoint.tensors()) total += std::ssize(view.bytes);
  const bool is_whole = total <= sampling.whole_max;
  const int64_t stride = std::max(total / sampling.pages, kSampledPageBytes);
  base::Digest digest(base::Digest::Kind::kSha256);
  digest.update(model_digest(checkpoint));
  int64_t next = 0;  // sample, counted over all tensors
  int64_t begin = 0;
  for (const auto& [name, view] : checkpoint.tensors()) {
    const std::string_view bytes(reinterpret_cast<const char*>(view.bytes.data()),
                                 view.bytes.size());
    if (is_whole) digest.update(bytes);
    for (; !is_whole && next < begin + std::ssize(bytes); next += stride) {
      digest.update(bytes.substr(static_cast<size_t>(next - begin), kSampledPageBytes));
    }
    begin += std::ssize(bytes);
  }
  return digest.finish();
}

}  // namespace pelton::executor
