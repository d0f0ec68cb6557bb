#include "tensor/kv_block.h"

namespace pelton::tensor {

int64_t kv_block_bytes(DType dtype, const KvBlockShape& shape) {
  return int64_t{2} * shape.kv_heads * shape.head_size * shape.block_tokens *
         static_cast<int64_t>(dtype_bytes(dtype));
}

}  // namespace pelton::tensor
