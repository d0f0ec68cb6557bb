#include "checkpoint/convert.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <numbers>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/file.h"
#include "checkpoint/block_encoder.h"
#include "checkpoint/gguf.h"
#include "checkpoint/gguf_mix.h"
#include "checkpoint/gguf_names.h"
#include "checkpoint/gguf_round_trip.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/sized_file.h"
#include "families/gpt_oss_original.h"
#include "families/model_config.h"
#include "tensor/bits.h"

namespace pelton::checkpoint {
namespace {

using tensor::DType;

constexpr int64_t kPieceBytes = int64_t{1} << 20;
constexpr int64_t kPiecesPerReport = 64;

using Sources = std::map<std::string, families::ExpectedTensor, std::less<>>;

Sources sources_of(const families::ModelConfig& config) {
  Sources sources;
  for (families::ExpectedTensor& tensor :
       families::expected_tensors(config, families::WeightLayout::kPublished)) {
    std::string name = tensor.name;
    sources.emplace(std::move(name), std::move(tensor));
  }
  return sources;
}

const families::ExpectedTensor& source_of(const Sources& sources, std::string_view name) {
  const auto found = sources.find(name);
  CHECK(found != sources.end(), name);
  return found->second;
}

// How rows of the output follow from the source.
enum class Way {
  kCopy,        // as they are
  kCopyF32,     // as they are: float32
  kValues,      // no source: the output's own
  kWiden,       // bf16 -> float32
  kWidenPlus1,  // bf16 -> float32, 1 added: gains of norms whose files hold w of 1 + w
  kBlocks,      // bf16 -> blocks of the output's type
  kMxfp4,       // blocks and scales -> GGUF blocks
  kWidenEvery2  // bf16 -> float32, every second element: a half of the gate and up biases
};

struct Output {
  Way way = Way::kCopy;
  DType dtype = DType::kBf16;
  const families::ExpectedTensor* source = nullptr;
  const families::ExpectedTensor* scales = nullptr;  // of kMxfp4
  int every = 1;                                     // takes every second row, or
  int first = 0;                                     // element, from here
  // One source for each expert, one after the other; or none: all is in `source`.
  std::vector<const families::ExpectedTensor*> experts;
  int head_size = 0;          // rows of each such head in neighbours' order; 0: as they are
  std::vector<float> values;  // of kValues
  int64_t rows = 0;           // of the output
  int64_t columns = 0;
  int64_t row_bytes = 0;
  int64_t offset = 0;  // in the file
};

class Writer {
 public:
  Writer(TensorBytes source, const SizedFile& file, std::vector<Output> outputs)
      : source_(source), file_(file), outputs_(std::move(outputs)) {
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const Output& output = outputs_[i];
      const int64_t rows = std::max<int64_t>(1, kPieceBytes / output.row_bytes);
      for (int64_t row = 0; row < output.rows; row += rows) {
        pieces_.push_back({i, row, std::min(output.rows, row + rows)});
      }
      total_ += output.rows * output.row_bytes;
    }
  }

  Result<void> write(base::ThreadPool& pool, WriteProgress progress) {
    std::mutex mutex;
    std::optional<Error> failure;
    int64_t done = 0;
    const auto count = static_cast<int64_t>(pieces_.size());
    for (int64_t first = 0; first < count && !failure; first += kPiecesPerReport) {
      const int64_t last = std::min(count, first + kPiecesPerReport);
      pool.parallel_for(last - first, 1, [&](int64_t begin, int64_t end, int) {
        std::vector<uint8_t> buffer;
        std::vector<uint8_t> scratch;
        for (int64_t i = begin; i < end; ++i) {
          const Piece& piece = pieces_[static_cast<size_t>(first + i)];
          const Result<void> written = write_piece(piece, buffer, scratch);
          if (written.ok()) continue;
          const std::lock_guard<std::mutex> lock(mutex);
          failure = written.error();
        }
      });
      for (int64_t i = first; i < last; ++i) {
        const Piece& piece = pieces_[static_cast<size_t>(i)];
        done += (piece.end - piece.begin) * outputs_[piece.output].row_bytes;
      }
      progress(done, total_);
    }
    if (failure) return *failure;
    return {};
  }

 private:
  struct Piece {
    size_t output;
    int64_t begin;  // rows
    int64_t end;
  };

  Result<void> write_piece(const Piece& piece, std::vector<uint8_t>& buffer,
                           std::vector<uint8_t>& scratch) const {
    const Output& output = outputs_[piece.output];
    const int64_t bytes = (piece.end - piece.begin) * output.row_bytes;
    buffer.resize(static_cast<size_t>(bytes));
    const bool in_order = output.experts.empty() && output.head_size == 0;
    if (output.way == Way::kValues) {
      std::memcpy(buffer.data(), output.values.data(), buffer.size());  // one row
    } else if ((output.way == Way::kCopy || output.way == Way::kCopyF32) && in_order) {
      source_(*output.source, piece.begin * output.row_bytes, buffer);
    } else {
      for (int64_t row = piece.begin; row < piece.end; ++row) {
        uint8_t* to = buffer.data() + (row - piece.begin) * output.row_bytes;
        if (output.way == Way::kMxfp4) {
          fill_mxfp4(output, row, to, scratch);
        } else if (output.way == Way::kCopy) {
          const Place from = place_of(output, row);
          source_(*from.tensor, from.row * output.row_bytes,
                  {to, static_cast<size_t>(output.row_bytes)});
        } else {
          fill_from_bf16(output, row, to, scratch);
        }
      }
    }
    return file_.write_at(output.offset + piece.begin * output.row_bytes, buffer.data(), bytes);
  }

  // Where a row of the output comes from.
  struct Place {
    const families::ExpectedTensor* tensor;
    int64_t row;
  };

  // Neighbours' order of a head of D rows: 2i and 2i + 1 were i and i + D/2.
  static Place place_of(const Output& output, int64_t row) {
    if (!output.experts.empty()) {
      const int64_t each = output.rows / static_cast<int64_t>(output.experts.size());
      return {output.experts[static_cast<size_t>(row / each)], row % each};
    }
    if (output.head_size == 0) return {output.source, row};
    const int64_t within = row % output.head_size;
    return {output.source, row - within + within % 2 * (output.head_size / 2) + within / 2};
  }

  void fill_mxfp4(const Output& output, int64_t row, uint8_t* to,
                  std::vector<uint8_t>& scratch) const {
    const int64_t groups = output.columns / 32;
    const int64_t from = row * output.every + output.first;
    scratch.resize(static_cast<size_t>(groups * 17));
    const std::span<uint8_t> all(scratch);
    const auto blocks = all.first(static_cast<size_t>(groups * 16));
    const auto scales = all.subspan(static_cast<size_t>(groups * 16));
    source_(*output.source, from * groups * 16, blocks);
    source_(*output.scales, from * groups, scales);
    for (int64_t g = 0; g < groups; ++g) {
      repack_mxfp4(blocks.data() + g * 16, scales[static_cast<size_t>(g)],
                   to + g * tensor::kMxfp4BlockBytes);
    }
  }

  void fill_from_bf16(const Output& output, int64_t row, uint8_t* to,
                      std::vector<uint8_t>& scratch) const {
    const int64_t stored = output.columns * output.every;
    const Place from = place_of(output, row);
    scratch.resize(static_cast<size_t>(stored * 2));
    source_(*from.tensor, from.row * stored * 2, scratch);
    std::vector<float> values(static_cast<size_t>(output.columns));
    for (int64_t i = 0; i < output.columns; ++i) {
      uint16_t bits;
      std::memcpy(&bits, scratch.data() + 2 * (i * output.every + output.first), sizeof bits);
      values[static_cast<size_t>(i)] = tensor::bf16_to_float(bits);
      if (output.way == Way::kWidenPlus1) values[static_cast<size_t>(i)] += 1.0f;
    }
    if (output.way == Way::kBlocks) {
      encode_row(output.dtype, values, to);
    } else {
      std::memcpy(to, values.data(), values.size() * sizeof(float));
    }
  }

  TensorBytes source_;
  const SizedFile& file_;
  const std::vector<Output> outputs_;
  std::vector<Piece> pieces_;
  int64_t total_ = 0;
};

Result<void> make_folder(const std::string& folder) {
  std::error_code error;
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  if (!error) return {};
  return Error{ErrorCode::kIo, fmt::format("{}: cannot create: {}", folder, error.message())};
}

Result<void> refuse_existing(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return {};
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("{}: is there already; name another place, or remove it", path), "OUT"};
}

// Weights and biases of queries and keys, of which each element is a row.
void order_by_neighbours(std::string_view name, const families::ModelConfig& config,
                         Output& output) {
  const bool is_bias = name.ends_with("q_proj.bias") || name.ends_with("k_proj.bias");
  if (!is_bias && !name.ends_with("q_proj.weight") && !name.ends_with("k_proj.weight")) return;
  output.head_size = config.head_size;
  if (is_bias) output.rows = std::exchange(output.columns, 1);
}

// A tensor as GGUF holds it, and where it comes from.
Output gguf_output(const families::ExpectedTensor& wanted, DType matrices, const Sources& sources,
                   const families::ModelConfig& config) {
  Output output{.columns = wanted.shape.back()};
  output.rows = 1;
  for (size_t i = 0; i + 1 < wanted.shape.size(); ++i) output.rows *= wanted.shape[i];
  const std::string& name = wanted.name;
  const size_t exps = name.find("_exps");
  const bool apart = config.family->expert_files == families::ExpertFiles::kApart;
  output.dtype = wanted.dtype;
  const auto as_matrix = [&] {
    output.dtype = mixed_type(matrices, wanted, config);
    output.way = output.dtype == DType::kBf16 ? Way::kCopy : Way::kBlocks;
  };
  if (exps != std::string::npos && apart) {
    const size_t kind_at = name.rfind('.') + 1;
    const std::string kind = name.substr(kind_at, exps - kind_at);  // gate, up, down
    for (int e = 0; e < config.expert_count; ++e) {
      output.experts.push_back(&source_of(
          sources, fmt::format("{}{}.{}_proj.weight", name.substr(0, kind_at), e, kind)));
    }
    as_matrix();
  } else if (exps != std::string::npos) {
    const size_t kind_at = name.rfind('.') + 1;
    const std::string kind = name.substr(kind_at, exps - kind_at);  // gate, up, down
    const std::string from =
        name.substr(0, kind_at) + (kind == "down" ? "down_proj" : "gate_up_proj");
    output.every = kind == "down" ? 1 : 2;
    output.first = kind == "up" ? 1 : 0;
    const bool bias = name.ends_with("_bias");
    output.way = bias ? Way::kWidenEvery2 : Way::kMxfp4;
    output.dtype = bias ? DType::kF32 : DType::kMxfp4;
    output.source = &source_of(sources, from + (bias ? "_bias" : "_blocks"));
    if (!bias) output.scales = &source_of(sources, from + "_scales");
  } else {
    output.source = &source_of(sources, name);
    const bool matrix = wanted.allowed == families::AllowedTypes::kMatrix &&
                        wanted.kind != families::TensorKind::kRouter;
    output.way = output.source->dtype == DType::kF32 ? Way::kCopyF32 : Way::kWiden;
    if (matrix) as_matrix();
    const bool is_norm = name.ends_with("norm.weight");
    if (config.norm_adds_one && is_norm) output.way = Way::kWidenPlus1;
    if (config.family->gguf->turns_neighbours) order_by_neighbours(name, config, output);
  }
  output.row_bytes = tensor::row_bytes(output.dtype, output.columns);
  return output;
}

// llama.cpp's number of the kind of file (llama_ftype).
uint32_t file_type(DType matrices, const families::ModelConfig& config) {
  const bool is_mxfp4 =
      config.has_experts() && config.family->expert_files == families::ExpertFiles::kMxfp4;
  if (is_mxfp4) return 38;
  return matrices == DType::kQ4_K ? 15 : matrices == DType::kQ8_0 ? 7 : 32;
}

// What llama3's scaling divides the frequency of each pair by (layers/rotary.cc), as files hold it.
std::vector<float> rope_divisors(const families::RopeConfig& rope, int pairs) {
  std::vector<float> divisors;
  for (int i = 0; i < pairs; ++i) {
    const double wavelength =
        2 * std::numbers::pi * std::pow(rope.theta, static_cast<double>(i) / pairs);
    const double turns = rope.original_context / wavelength;
    const double kept = std::clamp(
        (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor), 0.0, 1.0);
    divisors.push_back(static_cast<float>(1.0 / (kept + (1.0 - kept) / rope.factor)));
  }
  return divisors;
}

void add_vocabulary(const Json& config, const GgufVocabulary& vocabulary, GgufHeader& header) {
  const auto id = [&](std::string_view key, std::string_view gguf) {
    const std::optional<int64_t> value = config.integer(key);
    if (value) header.u32(gguf, static_cast<uint32_t>(*value));
  };
  id("eos_token_id", "tokenizer.ggml.eos_token_id");
  id("pad_token_id", "tokenizer.ggml.padding_token_id");
  if (vocabulary.tokens.empty()) return;
  header.text("tokenizer.ggml.model", "gpt2");
  header.text("tokenizer.ggml.pre", vocabulary.split);
  if (vocabulary.begins_with_bos) {
    id("bos_token_id", "tokenizer.ggml.bos_token_id");
    header.boolean("tokenizer.ggml.add_bos_token", true);
  }
  header.texts("tokenizer.ggml.tokens", vocabulary.tokens);
  header.i32s("tokenizer.ggml.token_type", vocabulary.types);
  header.texts("tokenizer.ggml.merges", vocabulary.merges);
  if (!vocabulary.chat_template.empty()) {
    header.text("tokenizer.chat_template", vocabulary.chat_template);
  }
}

}  // namespace

void repack_mxfp4(const uint8_t* pairs, uint8_t scale, uint8_t* block) {
  uint8_t codes[32];
  for (int b = 0; b < 16; ++b) {
    codes[2 * b] = pairs[b] & 15;
    codes[2 * b + 1] = pairs[b] >> 4;
  }
  block[0] = scale;
  for (int j = 0; j < 16; ++j) {
    block[1 + j] = static_cast<uint8_t>(codes[j] | codes[j + 16] << 4);
  }
}

Result<void> write_original(const Json& config_json, TensorBytes source, const std::string& folder,
                            base::ThreadPool& pool, WriteProgress progress) {
  TRY_ASSIGN(const families::ModelConfig config,
             families::parse_model_config(config_json, nullptr, "config.json"));
  if (!families::has_original_layout(config)) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("{} has no layout of its maker's own; write the Hugging Face or the "
                             "GGUF one",
                             config.architecture)};
  }
  TRY(make_folder(folder));
  TRY(refuse_existing(folder + "/config.json"));
  const Sources sources = sources_of(config);
  std::vector<PlannedTensor> planned;
  std::vector<Output> outputs;
  Json dtypes;
  int64_t offset = 0;
  for (const std::string& name : families::original_names(config)) {
    PlannedTensor tensor{.name = name};
    for (const families::RowPart& part : families::parts_of_original(name, config)) {
      const families::ExpectedTensor& from = source_of(sources, part.name);
      const int64_t first_rows = tensor.shape.empty() ? 0 : tensor.shape[0];
      tensor.dtype = from.dtype;
      tensor.shape = from.shape;
      tensor.shape[0] += first_rows;
      outputs.push_back({.source = &from,
                         .rows = from.shape[0],
                         .row_bytes = from.bytes() / from.shape[0],
                         .offset = offset});
      offset += from.bytes();
    }
    dtypes.set(name, tensor.dtype == DType::kBf16 ? "BF16"
                     : name.ends_with(".scales")  ? "UE8"
                                                  : "FP4");
    planned.push_back(std::move(tensor));
  }
  const std::string header = safetensors_header(planned);
  const auto front = static_cast<int64_t>(header.size());
  for (Output& output : outputs) output.offset += front;
  TRY_ASSIGN(const SizedFile file,
             SizedFile::create(folder + "/model.safetensors", front + offset));
  TRY(file.write_at(0, reinterpret_cast<const uint8_t*>(header.data()), front));
  TRY(Writer(source, file, std::move(outputs)).write(pool, progress));
  TRY(base::write_file(folder + "/dtypes.json", dtypes.dump()));
  return base::write_file(folder + "/config.json",
                          families::config_to_original(config_json).dump());
}

Result<void> write_gguf(const Json& config_json, const GgufOptions& options, TensorBytes source,
                        const std::string& path, base::ThreadPool& pool, WriteProgress progress) {
  TRY_ASSIGN(const families::ModelConfig config,
             families::parse_model_config(config_json, nullptr, "config.json"));
  if (config.family->gguf == nullptr) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("no GGUF names are known for {}", config.architecture)};
  }
  TRY(make_folder(std::filesystem::path(path).parent_path().string()));
  TRY(refuse_existing(path));
  if (config.quantization != families::WeightQuantization::kNone) {
    return Error{ErrorCode::kUnsupported, "only weights in bf16 are written as GGUF"};
  }
  const Sources sources = sources_of(config);
  GgufHeader header;
  config_to_gguf(*config.family, config_json, header);
  TRY(check_gguf_says_all(config_json, config, header));
  header.u32("general.quantization_version", 2);
  header.u32("general.file_type", file_type(options.matrices, config));
  add_vocabulary(config_json, options.vocabulary, header);
  std::vector<Output> outputs;
  int64_t offset = 0;
  for (const families::ExpectedTensor& tensor :
       families::expected_tensors(config, families::WeightLayout::kGguf)) {
    Output output = gguf_output(tensor, options.matrices, sources, config);
    header.tensor(name_to_gguf(*config.family, tensor.name), output.dtype, tensor.shape);
    output.offset = offset;
    offset +=
        static_cast<int64_t>(gguf_padded(static_cast<uint64_t>(output.rows * output.row_bytes)));
    outputs.push_back(output);
  }
  if (config.rope.scaling == families::RopeScaling::kLlama3) {
    const int pairs = config.rotary_size() / 2;
    header.tensor("rope_freqs.weight", DType::kF32, std::vector<int64_t>{pairs});
    outputs.push_back({.way = Way::kValues,
                       .values = rope_divisors(config.rope, pairs),
                       .rows = 1,
                       .columns = pairs,
                       .row_bytes = int64_t{pairs} * 4,
                       .offset = offset});
    offset += static_cast<int64_t>(gguf_padded(static_cast<uint64_t>(pairs) * 4));
  }
  const std::string front = header.bytes();
  const auto front_bytes = static_cast<int64_t>(front.size());
  for (Output& output : outputs) output.offset += front_bytes;
  // A half-written file does not carry the name of a model.
  const std::string unfinished = path + ".incomplete";
  {
    TRY_ASSIGN(const SizedFile file, SizedFile::create(unfinished, front_bytes + offset));
    TRY(file.write_at(0, reinterpret_cast<const uint8_t*>(front.data()), front_bytes));
    TRY(Writer(source, file, std::move(outputs)).write(pool, progress));
  }
  std::error_code error;
  std::filesystem::rename(unfinished, path, error);
  if (error) {
    return Error{ErrorCode::kIo, fmt::format("{}: cannot rename: {}", path, error.message())};
  }
  return {};
}

}  // namespace pelton::checkpoint
