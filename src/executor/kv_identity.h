// What a KV block's content depends on besides its tokens: a disk tier's file of another one holds
// nothing that may be taken for one's own. Values; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "tensor/dtype.h"

namespace pelton::executor {

struct KvIdentity {
  // How blocks are named by their tokens, and how a block's bytes lie: what changes either counts
  // it up, so that an upgrade begins with an empty tier.
  static constexpr int kScheme = 1;

  int scheme = kScheme;
  std::string files;  // of the weights
  int64_t weights_bytes = 0;
  int activation_bits = 0;
  tensor::DType kv = tensor::DType::kF32;
  std::string kernels;

  std::string text() const;
};

}  // namespace pelton::executor
