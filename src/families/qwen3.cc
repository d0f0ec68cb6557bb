#include "families/qwen3.h"

#include "families/gguf_tables.h"

namespace pelton::families {
namespace {

Result<void> read(const ConfigFields& fields, ModelConfig& config) {
  TRY(fields.only("attention_bias", Json(false)));
  TRY(read_decoder(fields, config));
  TRY(read_upper_window(fields, config));
  config.qk_norm = true;
  return {};
}

constexpr GgufNames kGguf{.architecture = "qwen3",
                          .layer = kGgufDecoderTensors,
                          .numbers = kGgufDecoderNumbers,
                          .rope_theta = 1e6};

}  // namespace

const Family kQwen3{
    .architecture = "Qwen3ForCausalLM", .model_type = "qwen3", .read = read, .gguf = &kGguf};

}  // namespace pelton::families
