#include "cuda/device/epilogues.h"
#include "cuda/device/operations.h"
#include "cuda/device/start_product.h"

namespace pelton::cuda {

void qkv(Stream stream, const Qkv& args) {
  if (args.cache.head_size % kTileRows != 0) {
    return note_failure("qkv: the head size is no multiple of 16");
  }
  if ((args.cache.type == KvType::kFp8) != (args.staged != nullptr)) {
    return note_failure("qkv: keys and values are staged for fp8 alone");
  }
  start_dense<false>(stream, args.weights, args.input, args.config, QkvEpilogue{args});
}

}  // namespace pelton::cuda
