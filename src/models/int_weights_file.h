// For tests: a small checkpoint with matrices of integers as GPTQ and compressed-tensors publish
// them, and the same weights as float32, which they stand for. Codes, zero points and scales are
// formulas of row, column and group.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/file.h"
#include "base/json.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/family_golden.h"
#include "checkpoint/safetensors.h"
#include "tensor/bits.h"

namespace pelton::models {

class IntWeightsFile {
 public:
  enum class Kind : uint8_t {
    kGptqInAnyOrder,  // 4 bits; g_idx says which input is in which group
    kPacked4,         // compressed-tensors' weight_packed of 4 bits in groups
    kPacked8,         // of 8 bits
    kBytes,           // compressed-tensors' int8, a scale for each row
  };
  struct Options {
    Kind kind = Kind::kGptqInAnyOrder;
    bool symmetric = true;  // all zero points in the middle
    bool widened = false;   // float32 in place of integers
    bool marked = true;     // GPTQ: the configuration says desc_act
    int64_t group = 32;     // inputs in a group; the last one of a row may have fewer
  };

  // config.json and model.safetensors of two layers in `folder`.
  static void write(const std::string& folder, const Options& options) {
    Json config = Json::parse(kConfig).value();
    const auto plain =
        checkpoint::family_golden_safetensors(config, Json::parse(R"({"seed": 15})").value());
    CHECK(plain.ok());
    const std::string source = folder + "/plain";
    put(source, config, {reinterpret_cast<const char*>(plain->data()), plain->size()});
    const auto checkpoint = checkpoint::Checkpoint::open(source);
    CHECK(checkpoint.ok(), checkpoint.ok() ? "" : checkpoint.error().message);
    IntWeightsFile file(options);
    for (const auto& [name, view] : checkpoint->tensors()) {
      if (!name.ends_with("_proj.weight")) {
        file.add(name, view.dtype, view.shape,
                 std::vector<uint8_t>(view.bytes.begin(), view.bytes.end()));
        continue;
      }
      file.add_matrix(name.substr(0, name.size() - std::string("weight").size()), view.shape[0],
                      view.shape[1]);
    }
    if (!options.widened) config.set("quantization_config", quantization(options));
    put(folder, config, checkpoint::safetensors_header(file.plan_) + file.data_);
    std::filesystem::remove_all(source);
  }

 private:
  static constexpr const char* kConfig = R"({"architectures": ["LlamaForCausalLM"],
    "model_type": "llama", "hidden_act": "silu", "hidden_size": 128, "intermediate_size": 160,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 48,
    "vocab_size": 256, "max_position_embeddings": 512, "rms_norm_eps": 1e-05,
    "tie_word_embeddings": false})";
  explicit IntWeightsFile(const Options& options) : options_(options) {}

  static Json quantization(const Options& options) {
    if (options.kind != Kind::kGptqInAnyOrder) return compressed(options);
    Json json;
    json.set("quant_method", "gptq").set("bits", 4).set("group_size", options.group);
    json.set("sym", options.symmetric).set("desc_act", options.marked);
    return json.set("checkpoint_format", "gptq_v2");
  }

  static Json compressed(const Options& options) {
    const bool bytes = options.kind == Kind::kBytes;
    Json weights;
    weights.set("type", "int").set("num_bits", options.kind == Kind::kPacked4 ? 4 : 8);
    weights.set("strategy", bytes ? "channel" : "group").set("symmetric", true);
    if (!bytes) weights.set("group_size", options.group).set("actorder", "weight");
    Json group;
    group.set("weights", std::move(weights)).set("targets", Json::Array{"Linear"});
    Json groups;
    groups.set("group_0", std::move(group));
    Json json;
    json.set("quant_method", "compressed-tensors").set("ignore", Json::Array{"lm_head"});
    json.set("format", bytes ? "int-quantized" : "pack-quantized");
    return json.set("config_groups", std::move(groups));
  }

  static void put(const std::string& folder, const Json& config, std::string_view tensors) {
    std::filesystem::create_directories(folder);
    CHECK(base::write_file(folder + "/config.json", config.dump()).ok());
    CHECK(base::write_file(folder + "/model.safetensors", tensors).ok());
  }

  bool in_words() const { return options_.kind != Kind::kBytes; }
  int bits() const { return options_.kind >= Kind::kPacked8 ? 8 : 4; }
  int64_t groups_of(int64_t cols) const {
    return in_words() ? (cols + options_.group - 1) / options_.group : 1;
  }
  int64_t group_of(int64_t column, int64_t cols) const {
    if (!in_words()) return 0;
    // 37 divides none of the widths, so that every place is some column's.
    const bool any = options_.kind == Kind::kGptqInAnyOrder;
    return (any ? column * 37 % cols : column) / options_.group;
  }
  int code(int64_t o, int64_t i) const {
    return static_cast<int>((o * 37 + i * 11 + o * i) % (1 << bits()));
  }
  int zero(int64_t o, int64_t g) const {
    return options_.symmetric ? 1 << (bits() - 1) : static_cast<int>(1 + (o * 3 + g) % 14);
  }
  // Of few bits: what float16 and bf16 hold alike.
  float scale(int64_t o, int64_t g) const {
    return static_cast<float>(1 + (o + 2 * g) % 5) / (bits() == 4 ? 256.0f : 4096.0f);
  }

  template <typename T>
  void add(const std::string& name, tensor::DType dtype, std::vector<int64_t> shape,
           const std::vector<T>& values) {
    plan_.push_back({name, dtype, std::move(shape)});
    data_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  }

  void add_matrix(const std::string& base, int64_t rows, int64_t cols) {
    if (options_.widened) {
      std::vector<float> values;
      for (int64_t o = 0; o < rows; ++o) {
        for (int64_t i = 0; i < cols; ++i) {
          const int64_t g = group_of(i, cols);
          values.push_back(scale(o, g) * static_cast<float>(code(o, i) - zero(o, g)));
        }
      }
      return add(base + "weight", tensor::DType::kF32, {rows, cols}, values);
    }
    if (options_.kind != Kind::kGptqInAnyOrder) return add_compressed(base, rows, cols);
    const int64_t groups = groups_of(cols);
    std::vector<uint32_t> codes(static_cast<size_t>(cols / 8 * rows));
    std::vector<int32_t> order;
    for (int64_t i = 0; i < cols; ++i) {
      order.push_back(static_cast<int32_t>(group_of(i, cols)));
      for (int64_t o = 0; o < rows; ++o) {
        codes[static_cast<size_t>(i / 8 * rows + o)] |= static_cast<uint32_t>(code(o, i))
                                                        << (4 * (i % 8));
      }
    }
    std::vector<uint32_t> zeros(static_cast<size_t>(groups * rows / 8));
    std::vector<uint16_t> scales;
    for (int64_t g = 0; g < groups; ++g) {
      for (int64_t o = 0; o < rows; ++o) {
        zeros[static_cast<size_t>((g * rows + o) / 8)] |= static_cast<uint32_t>(zero(o, g))
                                                          << (4 * (o % 8));
        scales.push_back(tensor::float_to_f16(scale(o, g)));
      }
    }
    add(base + "qweight", tensor::DType::kI32, {cols / 8, rows}, codes);
    add(base + "g_idx", tensor::DType::kI32, {cols}, order);
    add(base + "qzeros", tensor::DType::kI32, {groups, rows / 8}, zeros);
    add(base + "scales", tensor::DType::kF16, {groups, rows}, scales);
  }

  void add_compressed(const std::string& base, int64_t rows, int64_t cols) {
    const int64_t per_word = 32 / bits();
    std::vector<uint32_t> words(static_cast<size_t>(rows * cols / per_word));
    std::vector<int8_t> bytes;
    for (int64_t i = 0; i < rows * cols; ++i) {
      const int of = code(i / cols, i % cols);
      words[static_cast<size_t>(i / per_word)] |= static_cast<uint32_t>(of)
                                                  << (bits() * (i % per_word));
      bytes.push_back(static_cast<int8_t>(of - 128));
    }
    if (in_words()) {
      add(base + "weight_packed", tensor::DType::kI32, {rows, cols / per_word}, words);
      add(base + "weight_shape", tensor::DType::kI64, {2}, std::vector<int64_t>{rows, cols});
    } else {
      add(base + "weight", tensor::DType::kI8, {rows, cols}, bytes);
    }
    std::vector<uint16_t> scales;
    for (int64_t o = 0; o < rows; ++o) {
      for (int64_t g = 0; g < groups_of(cols); ++g) {
        scales.push_back(tensor::float_to_bf16(scale(o, g)));
      }
    }
    add(base + "weight_scale", tensor::DType::kBf16, {rows, groups_of(cols)}, scales);
  }

  const Options options_;
  std::vector<checkpoint::PlannedTensor> plan_;
  std::string data_;
};

}  // namespace pelton::models
