// What this processor can run: x86-64, and 64-bit Arm, which has NEON always. Any thread.
#pragma once

#if defined(__x86_64__)
#include <cstdint>

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

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

// CPUID's leaf 7, EDX bits 24 (tiles) and 25 (products of bytes), and in XCR0 that the system keeps
// the tiles' configuration and contents (bits 17 and 18). Linux does only for who asks.
inline bool has_amx() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  constexpr unsigned kOsXsave = 1u << 27;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0 || (ecx & kOsXsave) == 0) return false;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0 || (edx >> 24 & 3) != 3) return false;
  uint32_t low = 0;
  uint32_t high = 0;
  asm("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low >> 17 & 3) == 3;
}

enum class Amx : uint8_t { kAbsent, kRefused, kThere };

// Asks Linux to let this process, all its threads, use tiles. To be called before one does; again
// is no harm. Older kernels and some sandboxes refuse.
inline Amx ask_for_amx() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;
  if (!has_amx()) return Amx::kAbsent;
  const bool granted = syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return granted ? Amx::kThere : Amx::kRefused;
}

}  // namespace pelton::kernels
#elif defined(__aarch64__)
#include <sys/auxv.h>

namespace pelton::kernels {

// Products of four bytes each, added up; and of two rows of eight with two of eight.
inline bool has_dotprod() {
  return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
}
inline bool has_i8mm() {
  return has_dotprod() && (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0;
}

}  // namespace pelton::kernels
#endif
