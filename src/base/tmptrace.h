// TEMPORARY: timeline.
#pragma once
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <sched.h>
#include <time.h>
namespace tmptrace {
struct Entry { long ns; int tag; int cpu; int n; };
inline constexpr int kMax = 1 << 19;
inline Entry entries[kMax];
inline std::atomic<int> at{0};
inline void put(int tag, int n) {
  timespec t; clock_gettime(CLOCK_MONOTONIC, &t);
  int i = at.fetch_add(1, std::memory_order_relaxed);
  if (i < kMax) entries[i] = {t.tv_sec * 1000000000L + t.tv_nsec, tag, sched_getcpu(), n};
}
struct Dump {
  ~Dump() {
    const char* file = getenv("TMPTRACE");
    if (!file) return;
    FILE* f = fopen(file, "w");
    int n = at.load() < kMax ? at.load() : kMax;
    for (int i = 0; i < n; ++i) fprintf(f, "%ld %d %d %d\n", entries[i].ns, entries[i].tag, entries[i].cpu, entries[i].n);
    fclose(f);
  }
};
inline Dump dump;
}
