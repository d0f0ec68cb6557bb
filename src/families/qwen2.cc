#include "families/qwen2.h"

#include "families/gguf_tables.h"

namespace pelton::families {
namespace {

Result<void> read(const ConfigFields& fields, ModelConfig& config) {
  TRY(read_decoder(fields, config));
  TRY(read_upper_window(fields, config));
  config.qkv_bias = true;  // whatever a key says: the published code asks none
  fields.find("attention_bias");
  return {};
}

constexpr GgufNames kGguf{.architecture = "qwen2",
                          .layer = kGgufDecoderTensors,
                          .numbers = kGgufDecoderNumbers,
                          .rope_theta = 1e6};

}  // namespace

const Family kQwen2{
    .architecture = "Qwen2ForCausalLM", .model_type = "qwen2", .read = read, .gguf = &kGguf};

}  // namespace pelton::families
