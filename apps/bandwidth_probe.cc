#include "apps/bandwidth_probe.h"

#include <algorithm>
#include <atomic>

#include <sys/mman.h>

#include "base/check.h"
#include "base/machine.h"

namespace pelton::apps {
namespace {

// Threads claim chunks, so that a slower one does not hold up the pass; streams run within a chunk.
constexpr int64_t kChunkBytes = int64_t{64} << 20;
constexpr int64_t kLineBytes = 64;
constexpr int64_t kPageBytes = 4096;

// A cache line; the compiler cuts it to the registers that the target has.
using Line = uint64_t __attribute__((vector_size(kLineBytes)));

// `bytes` from `from`, as kStreams streams that advance side by side by kLines lines a step;
// kAhead lines ahead of each read the line is asked for (0: left to the processor), kFar lines
// ahead also, into the second level of the cache.
template <int kStreams, int kLines, int kAhead, int kFar>
[[gnu::always_inline]] inline uint64_t read_streams(const char* from, int64_t bytes) {
  constexpr int kSums = 8;  // more than the additions' latency
  Line sums[kSums] = {};
  const int64_t stream_bytes = bytes / kStreams;
  for (int64_t at = 0; at < stream_bytes; at += kLines * kLineBytes) {
#pragma GCC unroll 64
    for (int i = 0; i < kStreams * kLines; ++i) {
      const char* line = from + i / kLines * stream_bytes + at + i % kLines * kLineBytes;
      if (kAhead > 0) __builtin_prefetch(line + kAhead * kLineBytes);
      if (kFar > 0) __builtin_prefetch(line + kFar * kLineBytes, 0, 2);
      sums[i % kSums] ^= *reinterpret_cast<const Line*>(line);
    }
  }
  for (int i = 1; i < kSums; ++i) sums[0] ^= sums[i];
  uint64_t sum = 0;
  for (int i = 0; i < 8; ++i) sum ^= sums[0][i];
  return sum;
}

using Read = uint64_t (*)(const char* from, int64_t bytes);

template <int kStreams, int kLines, int kAhead, int kFar>
uint64_t read_plain(const char* from, int64_t bytes) {
  return read_streams<kStreams, kLines, kAhead, kFar>(from, bytes);
}

#if defined(__x86_64__)
template <int kStreams, int kLines, int kAhead, int kFar>
[[gnu::target("avx2")]] uint64_t read_avx2(const char* from, int64_t bytes) {
  return read_streams<kStreams, kLines, kAhead, kFar>(from, bytes);
}

template <int kStreams, int kLines, int kAhead, int kFar>
[[gnu::target("avx512f")]] uint64_t read_avx512(const char* from, int64_t bytes) {
  return read_streams<kStreams, kLines, kAhead, kFar>(from, bytes);
}
#endif

template <int kStreams, int kLines, int kAhead, int kFar>
Read widest() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return read_avx512<kStreams, kLines, kAhead, kFar>;
  if (__builtin_cpu_supports("avx2")) return read_avx2<kStreams, kLines, kAhead, kFar>;
#endif
  return read_plain<kStreams, kLines, kAhead, kFar>;
}

struct Way {
  std::string_view name;
  Read read;
};

// Those that were the fastest at some time on some machine, of the twenty tried
// (docs/log/performance-2026.md).
std::vector<Way> ways() {
  return {{"1 stream", widest<1, 8, 0, 0>()},
          {"1 stream, 128 lines ahead", widest<1, 8, 128, 0>()},
          {"2 streams", widest<2, 4, 0, 0>()},
          {"2 streams, 32 and 128 lines ahead", widest<2, 4, 32, 128>()},
          {"4 streams, 32 lines ahead", widest<4, 4, 32, 0>()},
          {"4 streams of 16 lines", widest<4, 16, 0, 0>()}};
}

char* map_zeros(int64_t bytes) {
  void* memory = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED, "no memory for the bandwidth probe");
  madvise(memory, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  return static_cast<char*>(memory);
}

}  // namespace

cli::Flag BandwidthProbe::buffer_size_flag() {
  return {.name = "--buffer-size",
          .value = "BYTES",
          .help = "what a probe of the memory reads; 0: 4 GiB, or a fifth of the memory",
          .kind = cli::Flag::Kind::kSize,
          .default_text = "0",
          .least = 0,
          .most = 1e12};
}

int64_t BandwidthProbe::bytes_of(const cli::Arguments& arguments) {
  const int64_t asked = arguments.integer("--buffer-size");
  return asked > 0 ? asked : std::min(int64_t{4} << 30, base::memory_limit_bytes() / 5);
}

BandwidthProbe::BandwidthProbe(base::ThreadPool& pool, int64_t buffer_bytes)
    : pool_(pool),
      bytes_(std::max(buffer_bytes / kChunkBytes, int64_t{1}) * kChunkBytes),
      memory_(map_zeros(bytes_)) {
  // A number of its own for every page: untouched pages would all be the one page of zeros.
  pool_.parallel_for(bytes_ / kChunkBytes, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t at = begin * kChunkBytes; at < end * kChunkBytes; at += kPageBytes) {
      *reinterpret_cast<int64_t*>(memory_ + at) = at + 1;
    }
  });
}

BandwidthProbe::~BandwidthProbe() {
  CHECK(sum_ != 1);  // never so: every number of a page is odd, and there are evenly many
  munmap(memory_, static_cast<size_t>(bytes_));
}

std::vector<BandwidthProbe::Pass> BandwidthProbe::measure(const base::Clock& clock) {
  std::vector<Pass> passes;
  for (const Way& way : ways()) {
    std::atomic<uint64_t> sum{0};
    const int64_t start_ns = clock.now_ns();
    pool_.parallel_for(bytes_ / kChunkBytes, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t chunk = begin; chunk < end; ++chunk) {
        sum ^= way.read(memory_ + chunk * kChunkBytes, kChunkBytes);
      }
    });
    const double seconds = static_cast<double>(clock.now_ns() - start_ns) * 1e-9;
    passes.push_back({.way = way.name, .bytes_per_second = static_cast<double>(bytes_) / seconds});
    sum_ |= sum;
  }
  return passes;
}

double BandwidthProbe::bytes_per_second(const base::Clock& clock) {
  double best = 0;
  for (const Pass& pass : measure(clock)) best = std::max(best, pass.bytes_per_second);
  return best;
}

}  // namespace pelton::apps
