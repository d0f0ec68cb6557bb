// What this processor can run. x86-64 only; any thread.
#pragma once

#if defined(__x86_64__)
#include <cpuid.h>

namespace pelton::kernels {

inline bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
inline bool has_vnni() {
  return has_avx512() && __builtin_cpu_supports("avx512vnni");
}
inline bool has_vbmi() {
  return has_vnni() && __builtin_cpu_supports("avx512vbmi");
}
// g++ 12 cannot ask for F16C, but every processor with AVX2 and FMA has it.
inline bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
// clang 14 cannot ask for this: CPUID's leaf 7, subleaf 1, EAX bit 4 (Intel's manual, volume 2).
inline bool has_avxvnni() {
  unsigned eax = 0;
  unsigned rest[3];
  return has_avx2() && __get_cpuid_count(7, 1, &eax, &rest[0], &rest[1], &rest[2]) != 0 &&
         (eax >> 4 & 1) != 0;
}

}  // namespace pelton::kernels
#endif
