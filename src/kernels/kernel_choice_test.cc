// Which kernels a processor gets, and which it is refused.
#include <utility>

#include <gtest/gtest.h>

#include "kernels/kernels.h"
#include "kernels/logit_rows.h"

namespace pelton::kernels {
namespace {

TEST(KernelChoice, NamesAreParsed) {
  EXPECT_EQ(*parse_kernel_choice("auto"), KernelChoice::kAuto);
  EXPECT_EQ(*parse_kernel_choice("neon"), KernelChoice::kNeon);
  EXPECT_EQ(parse_kernel_choice("cuda9").error().code, ErrorCode::kInvalidArgument);
}

TEST(KernelChoice, OtherProcessorsKernelsAreRefused) {
  base::ThreadPool pool({.threads = 1, .pin = false});
#if defined(__aarch64__)
  EXPECT_EQ((*make_kernels(KernelChoice::kAuto, pool))->name(), "neon");
  constexpr std::pair<KernelChoice, const char*> kRefused[] = {
      {KernelChoice::kAvx512, "this processor has no AVX-512; use --kernels auto"},
      {KernelChoice::kAvx2, "this processor has no AVX2; use --kernels auto"}};
#else
  constexpr std::pair<KernelChoice, const char*> kRefused[] = {
      {KernelChoice::kNeon, "this processor has no NEON; use --kernels auto"}};
#endif
  for (const auto& [choice, message] : kRefused) {
    EXPECT_EQ(make_kernels(choice, pool).error().message, message);
    EXPECT_EQ(make_logit_rows(choice).error().code, ErrorCode::kUnsupported);
  }
}

}  // namespace
}  // namespace pelton::kernels
