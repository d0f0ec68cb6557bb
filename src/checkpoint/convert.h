// Writes a model's weights in another layout: OpenAI's original one, or GGUF as llama.cpp's
// converter makes it. The source is the published layout, whether opened or made up; nothing is
// rounded but to the blocks one asks for. The caller's thread owns the pool; workers only fill and
// write pieces.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "base/json.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "families/expected_tensors.h"
#include "tensor/dtype.h"

namespace pelton::checkpoint {

// Copies the bytes of a tensor (of expected_tensors' kMxfp4 layout) from `begin` on. Any thread.
using TensorBytes = base::FunctionRef<void(const families::ExpectedTensor& tensor, int64_t begin,
                                           std::span<uint8_t> out)>;

// For the metadata tokenizer.ggml.*; empty tokens: none is written.
struct GgufVocabulary {
  std::vector<std::string> tokens;
  std::vector<std::string> merges;
  std::vector<int32_t> types;
  std::string split = "gpt-4o";
  bool begins_with_bos = false;  // prompts do; its id is the configuration's
  std::string chat_template;     // empty: none
};

struct GgufOptions {
  // All that are multiplied, but routers and what is MXFP4: kBf16, kQ8_0, or kQ4_K, mixed with
  // larger types as llama.cpp's Q4_K_M is (gguf_mix.h).
  tensor::DType matrices = tensor::DType::kBf16;
  GgufVocabulary vocabulary;
};

using WriteProgress = base::FunctionRef<void(int64_t done, int64_t total)>;

// FOLDER/model.safetensors, config.json and dtypes.json. `config`: a Hugging Face config.json.
Result<void> write_original(const Json& config, TensorBytes source, const std::string& folder,
                            base::ThreadPool& pool, WriteProgress progress);

Result<void> write_gguf(const Json& config, const GgufOptions& options, TensorBytes source,
                        const std::string& file, base::ThreadPool& pool, WriteProgress progress);

// 16 bytes of Hugging Face's MXFP4 and their scale as a GGUF block.
void repack_mxfp4(const uint8_t* pairs, uint8_t scale, uint8_t* block);

}  // namespace pelton::checkpoint
