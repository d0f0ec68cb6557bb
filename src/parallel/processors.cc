#include "parallel/processors.h"

#include <algorithm>

#include <pthread.h>

namespace pelton::parallel {

std::vector<std::vector<int>> share_processors(const std::vector<int>& processors, int ranks) {
  std::vector<std::vector<int>> shares(static_cast<size_t>(ranks));
  const size_t count = processors.size();
  if (count < shares.size()) {
    for (size_t rank = 0; rank < shares.size(); ++rank) {
      shares[rank].push_back(processors[rank % count]);
    }
    return shares;
  }
  for (size_t rank = 0; rank < shares.size(); ++rank) {
    const auto begin = static_cast<std::ptrdiff_t>(count * rank / shares.size());
    const auto end = static_cast<std::ptrdiff_t>(count * (rank + 1) / shares.size());
    shares[rank].assign(processors.begin() + begin, processors.begin() + end);
  }
  return shares;
}

int64_t spin_ns_for(const std::vector<std::vector<int>>& shares) {
  constexpr int64_t kSpinNs = 200'000;
  const auto shared = std::count(shares.begin(), shares.end(), shares.front());
  return shared > 1 ? 0 : kSpinNs;
}

ProcessorScope::ProcessorScope(const std::vector<int>& processors) {
  CPU_ZERO(&before_);
  if (processors.empty()) return;
  if (pthread_getaffinity_np(pthread_self(), sizeof before_, &before_) != 0) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int processor : processors) CPU_SET(processor, &set);
  narrowed_ = pthread_setaffinity_np(pthread_self(), sizeof set, &set) == 0;
}

ProcessorScope::~ProcessorScope() {
  if (narrowed_) pthread_setaffinity_np(pthread_self(), sizeof before_, &before_);
}

}  // namespace pelton::parallel
