#include "cuda/device/launch.h"
#include "cuda/device/operations.h"
#include "cuda/device/sampling.h"

namespace pelton::cuda {
namespace {

// Launches with which any front's end is found: three times 11 bits are a key's 32.
constexpr int kNarrowings = 3;

void run(Stream stream, void (*kernel)(Sample), const Sample& args) {
  launch_dependent(stream, kernel, {.x = args.slices, .y = args.rows_max}, kSampleThreads,
                   sizeof(SampleShared), args);
}

}  // namespace

void sample(Stream stream, const Sample& given) {
  Sample args = given;
  const SamplingNeeds& needs = args.needs;
  if (needs.reports) {
    args.reports = 1;
    run(stream, scan_kernel, args);
    run(stream, weigh_kernel, args);
    for (int i = 0; needs.reports_best && i < kNarrowings; ++i) run(stream, narrow_kernel, args);
    run(stream, gather_kernel, args);
  }
  args.reports = 0;
  if (needs.edits) {
    launch_dependent(stream, edit_kernel, {.x = args.rows_max}, kSampleThreads, 0, args);
  }
  run(stream, scan_kernel, args);
  if (!needs.draws) return;
  if (needs.cuts > 0) run(stream, weigh_kernel, args);
  for (int i = 0; i < needs.cuts * kNarrowings; ++i) run(stream, narrow_kernel, args);
  run(stream, pick_kernel, args);
}

}  // namespace pelton::cuda
