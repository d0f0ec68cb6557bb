#include "apps/bandwidth_probe.h"

#include <algorithm>
#include <vector>

#include <sys/mman.h>

#include "base/check.h"
#include "base/thread_pool.h"

namespace pelton::apps {
namespace {

constexpr int kPasses = 7;
constexpr int64_t kPageWords = 4096 / sizeof(uint64_t);

// Eight independent sums: enough that the additions never wait for each other.
uint64_t sum_of(const uint64_t* words, int64_t count) {
  uint64_t sums[8] = {};
  for (int64_t i = 0; i + 8 <= count; i += 8) {
    for (int lane = 0; lane < 8; ++lane) sums[lane] += words[i + lane];
  }
  uint64_t sum = 0;
  for (const uint64_t lane : sums) sum += lane;
  return sum;
}

}  // namespace

BandwidthProbe probe_bandwidth(int threads, int64_t buffer_bytes, const base::Clock& clock) {
  base::ThreadPool pool({.threads = threads});
  void* memory = mmap(nullptr, static_cast<size_t>(buffer_bytes), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED, "no memory for the bandwidth probe");
  madvise(memory, static_cast<size_t>(buffer_bytes), MADV_HUGEPAGE);
  auto* words = static_cast<uint64_t*>(memory);
  const int64_t share = buffer_bytes / static_cast<int64_t>(sizeof(uint64_t)) / pool.size();

  // Touch every page with a number of its own: untouched pages would all be the one page of zeros.
  pool.run([&](int worker) {
    for (int64_t i = 0; i < share; i += kPageWords)
      words[worker * share + i] = static_cast<uint64_t>(i + 1);
  });

  std::vector<double> rates;
  std::vector<uint64_t> sums(static_cast<size_t>(pool.size()) * 8);  // a cache line each
  for (int pass = 0; pass < kPasses; ++pass) {
    const int64_t start = clock.now_ns();
    pool.run([&](int worker) {
      sums[static_cast<size_t>(worker) * 8] += sum_of(words + worker * share, share);
    });
    const double seconds = static_cast<double>(clock.now_ns() - start) * 1e-9;
    rates.push_back(static_cast<double>(share * pool.size()) * sizeof(uint64_t) / seconds);
  }
  uint64_t total = 0;
  for (const uint64_t sum : sums) total += sum;
  CHECK(total != 0);  // keeps the reading from being optimised away
  munmap(memory, static_cast<size_t>(buffer_bytes));

  std::sort(rates.begin(), rates.end());
  return {.best_bytes_per_second = rates.back(),
          .median_bytes_per_second = rates[rates.size() / 2],
          .threads = pool.size()};
}

}  // namespace pelton::apps
