#include "cuda/device/attention.h"
#include "cuda/device/launch.h"
#include "cuda/device/operations.h"

namespace pelton::cuda {
namespace {

template <int kHead, KvType kType>
void attend(Stream stream, const Attention& args) {
  constexpr int kWarps = kAttentionThreads / 32;
  launch_dependent(stream, attention_kernel<kHead, kType>,
                   {.x = (args.items_max + kWarps - 1) / kWarps, .y = args.cache.kv_heads},
                   kAttentionThreads, 0, args);
  if (args.spans_max == 0) return;
  launch_dependent(stream, merge_kernel<kHead>,
                   {.x = args.rows_max, .y = (args.heads + kWarps - 1) / kWarps}, kAttentionThreads,
                   0, args);
}

template <int kHead>
void attend_by_type(Stream stream, const Attention& args) {
  switch (args.cache.type) {
    case KvType::kF16:
      return attend<kHead, KvType::kF16>(stream, args);
    case KvType::kBf16:
      return attend<kHead, KvType::kBf16>(stream, args);
    case KvType::kFp8:
      return attend<kHead, KvType::kFp8>(stream, args);
  }
  note_failure("attention: keys and values of a type that there is not");
}

}  // namespace

void attention(Stream stream, const Attention& args) {
  const int group = args.heads / args.cache.kv_heads;
  if (group > kQueryRows) return note_failure("attention: too many heads share a key");
  if (args.cache.head_size == 64) return attend_by_type<64>(stream, args);
  if (args.cache.head_size == 32) return attend_by_type<32>(stream, args);
  note_failure("attention: the head size is neither 32 nor 64");
}

}  // namespace pelton::cuda
