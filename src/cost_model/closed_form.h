// Closed-form memory estimates for any dense transformer, as papers and blogs compute them before
// anything is allocated. Exact products of whole numbers; cost_model/footprint.h says what is
// really taken. Pure.
#pragma once

#include <cstdint>

namespace pelton::cost_model::closed_form {

struct Batch {
  int64_t sequences = 1;
  int64_t tokens = 0;         // of each sequence
  int64_t element_bytes = 2;  // precision
};

struct Attention {
  int64_t layers = 0;
  int64_t kv_heads = 0;
  int64_t head_size = 0;
};

// precision x parameters.
constexpr int64_t parameter_bytes(int64_t parameters, int64_t element_bytes) {
  return parameters * element_bytes;
}

// batch x precision x layers x head size x kv heads x tokens x 2 (keys and values).
constexpr int64_t kv_bytes(const Batch& batch, const Attention& attention) {
  return batch.sequences * batch.element_bytes * attention.layers * attention.head_size *
         attention.kv_heads * batch.tokens * 2;
}

// One layer's, which the next layer uses again: batch x precision x tokens x hidden x 5, for input,
// queries, keys, values and output. (The much-copied worked example for Llama-3.1-405B at 8 192
// tokens prints 10 GB where the formula gives 5 GiB.)
constexpr int64_t attention_activation_bytes(const Batch& batch, int64_t hidden) {
  return batch.sequences * batch.element_bytes * batch.tokens * hidden * 5;
}

// batch x precision x tokens x (2 hidden + 2 intermediate).
constexpr int64_t ffn_activation_bytes(const Batch& batch, int64_t hidden, int64_t intermediate) {
  return batch.sequences * batch.element_bytes * batch.tokens * (2 * hidden + 2 * intermediate);
}

// Token ids in and out: batch x precision x tokens.
constexpr int64_t id_buffer_bytes(const Batch& batch) {
  return batch.sequences * batch.element_bytes * batch.tokens;
}

}  // namespace pelton::cost_model::closed_form
