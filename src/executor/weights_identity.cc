#include "executor/weights_identity.h"

#include <algorithm>
#include <string_view>

#include "base/digest.h"
#include "executor/rank_job.h"

namespace pelton::executor {

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
