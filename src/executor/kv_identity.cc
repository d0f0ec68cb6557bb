#include "executor/kv_identity.h"

#include <fmt/format.h>

#include "tensor/kv_block.h"

namespace pelton::executor {

std::string KvIdentity::text() const {
  return fmt::format("{} {} {} {} {} {}", scheme, files, weights_bytes, activation_bits,
                     tensor::kv_type_name(kv), kernels);
}

}  // namespace pelton::executor
