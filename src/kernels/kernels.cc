#include "kernels/kernels.h"

#include <string>
#include <utility>

#include <fmt/format.h>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/processor.h"
#include "kernels/cpu/tile_choice.h"
#include "kernels/logit_rows.h"
#include "kernels/reference/reference_kernels.h"

namespace pelton::kernels {
namespace {

#if defined(__x86_64__)
std::unique_ptr<Kernels> make_wide_kernels(base::ThreadPool& pool) {
  TileChoice choice = choose_wide_tiles(pool, ask_for_amx(), make_amx_tiles);
  return make_avx512_kernels(pool, std::move(choice.tiles), choice.kernels_name);
}
#endif

Error lacks(std::string_view set) {
  return Error{ErrorCode::kUnsupported,
               fmt::format("this processor has no {}; use --kernels auto", set), "kernels"};
}

// Whether this processor has what `choice` needs.
Result<void> check_choice(KernelChoice choice) {
#if defined(__x86_64__)
  if (choice == KernelChoice::kAvx512 && !has_avx512()) return lacks("AVX-512");
  if (choice == KernelChoice::kAvx2 && !has_avx2()) return lacks("AVX2");
#else
  if (choice == KernelChoice::kAvx512) return lacks("AVX-512");
  if (choice == KernelChoice::kAvx2) return lacks("AVX2");
#endif
#if !defined(__aarch64__)
  if (choice == KernelChoice::kNeon) return lacks("NEON");
#endif
  return {};
}

}  // namespace

Result<std::unique_ptr<Kernels>> make_kernels(KernelChoice choice, base::ThreadPool& pool) {
  TRY(check_choice(choice));
  if (choice == KernelChoice::kReference) return make_reference_kernels(pool);
#if defined(__x86_64__)
  const bool either = choice == KernelChoice::kAuto;
  if (choice == KernelChoice::kAvx512 || (either && has_avx512())) return make_wide_kernels(pool);
  if (choice == KernelChoice::kAvx2 || (either && has_avx2())) {
    return make_avx2_kernels(pool, make_narrow_tiles(pool));
  }
#elif defined(__aarch64__)
  return make_neon_kernels(pool, make_arm_tiles(pool));
#endif
  return make_reference_kernels(pool);
}

Result<std::unique_ptr<LogitRows>> make_logit_rows(KernelChoice choice) {
  TRY(check_choice(choice));
  if (choice == KernelChoice::kReference) return make_reference_logit_rows();
#if defined(__x86_64__)
  const bool either = choice == KernelChoice::kAuto;
  if (choice == KernelChoice::kAvx512 || (either && has_avx512())) return make_avx512_logit_rows();
  if (choice == KernelChoice::kAvx2 || (either && has_avx2())) return make_avx2_logit_rows();
#elif defined(__aarch64__)
  return make_neon_logit_rows();
#endif
  return make_reference_logit_rows();
}

Result<KernelChoice> parse_kernel_choice(std::string_view name) {
  if (name == "auto") return KernelChoice::kAuto;
  if (name == "reference") return KernelChoice::kReference;
  if (name == "avx512") return KernelChoice::kAvx512;
  if (name == "avx2") return KernelChoice::kAvx2;
  if (name == "neon") return KernelChoice::kNeon;
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("\"{}\" is not one of auto, reference, avx512, avx2, neon", name),
               "kernels"};
}

}  // namespace pelton::kernels
