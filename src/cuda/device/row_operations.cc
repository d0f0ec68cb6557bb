#include <algorithm>

#include "cuda/device/launch.h"
#include "cuda/device/operations.h"
#include "cuda/device/row_kernels.h"
#include "cuda/device/store_kv.h"

namespace pelton::cuda {

// A step's first kernel: nothing before it to overlap with.
void embed(Stream stream, const Embed& args) {
  launch(stream, embed_kernel, {.x = args.rows_max}, kRowThreads, 0, args);
}

void norm(Stream stream, const Norm& args) {
  launch_dependent(stream, norm_kernel, {.x = args.rows_max}, kRowThreads,
                   kRowThreads / 32 * int64_t{sizeof(float)}, args);
}

void store_kv(Stream stream, const StoreKv& args) {
  if (args.cache.type != KvType::kFp8) return note_failure("store_kv: a cache without codes");
  constexpr int kVectors = kStoreThreads / 32;
  const Grid grid{.x = args.rows_max, .y = (2 * args.cache.kv_heads + kVectors - 1) / kVectors};
  if (args.cache.head_size == 64) {
    return launch_dependent(stream, store_kv_kernel<64>, grid, kStoreThreads, 0, args);
  }
  if (args.cache.head_size == 32) {
    return launch_dependent(stream, store_kv_kernel<32>, grid, kStoreThreads, 0, args);
  }
  note_failure("store_kv: the head size is neither 32 nor 64");
}

void choose(Stream stream, const Choose& args) {
  if (args.k > kChoicesMax || args.k > args.experts || args.experts > kExpertsMax) {
    return note_failure("choose: too many experts");
  }
  constexpr int kRows = kChooseThreads / 32;
  launch_dependent(stream, choose_kernel, {.x = (args.rows_max + kRows - 1) / kRows},
                   kChooseThreads, 0, args);
}

void group(Stream stream, const Group& args) {
  if (args.experts > kExpertsMax) return note_failure("group: too many experts");
  launch_dependent(stream, group_kernel, {}, kGroupThreads, sizeof(GroupShared), args);
}

void randomize(Stream stream, const Randomize& args) {
  constexpr int64_t kBlocksMax = 4096;
  const int64_t blocks =
      std::clamp((args.count + kRowThreads - 1) / kRowThreads, int64_t{1}, kBlocksMax);
  launch(stream, randomize_kernel, {.x = blocks}, kRowThreads, 0, args, blocks * kRowThreads);
}

}  // namespace pelton::cuda
