#include "checkpoint/synthetic.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <sys/statvfs.h>

#include "base/file.h"
#include "checkpoint/hash_stream.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/sized_file.h"
#include "checkpoint/weight_scales.h"
#include "families/model_config.h"
#include "families/published_config.h"
#include "families/tensor_names.h"
#include "tensor/bits.h"

namespace pelton::checkpoint {
namespace {

using tensor::DType;

constexpr int64_t kPieceBytes = int64_t{4} << 20;  // one write
constexpr int64_t kPiecesPerReport = 64;

// How one tensor's bytes follow from its hash stream: eight bytes from each hash.
struct Recipe {
  enum class Kind { kUniformBits, kScales, kBf16, kF8, kF8Scales };
  Kind kind;
  HashStream hashes;
  float scale = 0.0f;  // of a signed 16-bit lane; kF8Scales: every value
  float mean = 0.0f;
  int exponent = 0;
  uint8_t limit = 0;  // a byte lane below it gets exponent + 1
};

// Of logits that are as peaked as over running text, about 2 nats: normal logits of deviation d
// have ln(vocab) - d^2/2. The golden models' 2.5 would leave a vocabulary of 201 088 nearly
// flat, 8.9 nats, with 12 400 tokens of a probability of 1e-5 or more instead of 1 200, which a
// approximate lm_head computes twice: the speed of no model that anyone serves.
// Ahead of what they are multiplied with.
double logit_deviation(const families::ModelConfig& config) {
  const double size = std::log(static_cast<double>(config.vocab_size));
  return std::sqrt(2.0 * std::max(size - 2.1, 0.5)) / config.logit_scale;
}

// An embedding that is the head, too, and multiplied on its way in (Gemma): a token's own logit
// would outweigh all others, and the model say its last token without end. So what comes in is
// small beside what layers add, and the last norm gives the logits their size.
std::optional<Normal> scaled_embedding(const families::ModelConfig& config, std::string_view name) {
  constexpr double kIncoming = 0.1;
  if (!config.tied_head || config.embedding_scale == 1.0) return std::nullopt;
  const double deviation = kIncoming * config.residual_scale / config.embedding_scale;
  if (name == "model.embed_tokens.weight") return Normal{.deviation = deviation, .mean = 0.0};
  if (name != "model.norm.weight") return std::nullopt;
  const double gain =
      logit_deviation(config) / (deviation * std::sqrt(static_cast<double>(config.hidden_size)));
  return Normal{.deviation = 0.1 * gain, .mean = config.norm_adds_one ? gain - 1.0 : gain};
}

Normal synthetic_distribution(const families::ModelConfig& config, std::string_view name) {
  if (config.is_encoder()) return weight_distribution(config, name);
  if (const std::optional<Normal> scaled = scaled_embedding(config, name)) return *scaled;
  const bool is_head =
      config.tied_head ? name == "model.embed_tokens.weight" : name.ends_with("lm_head.weight");
  if (!is_head) return weight_distribution(config, name);
  return {.deviation = logit_deviation(config) / std::sqrt(static_cast<double>(config.hidden_size)),
          .mean = 0.0};
}

// FP8 codes are uniform but for their highest exponent bit, which is 0: below 2, and never NaN.
constexpr uint64_t kF8CodeMask = 0xBFBFBFBFBFBFBFBF;

float f8_code_rms() {
  double squares = 0;
  for (int code = 0; code < 64; ++code) {
    const double value = tensor::e4m3_to_float(static_cast<uint8_t>(code));
    squares += value * value;
  }
  return static_cast<float>(std::sqrt(squares / 64));
}

Recipe recipe(const families::ExpectedTensor& tensor, const families::ModelConfig& config,
              uint64_t seed) {
  Recipe recipe{.kind = Recipe::Kind::kUniformBits, .hashes = HashStream(seed, tensor.name)};
  if (tensor.dtype == DType::kF8E4m3) {
    recipe.kind = Recipe::Kind::kF8;
  } else if (tensor.dtype == DType::kF32) {
    const std::string_view name = tensor.name;
    const Normal normal = synthetic_distribution(config, name.substr(0, name.rfind("_scale")));
    recipe.kind = Recipe::Kind::kF8Scales;
    recipe.scale = static_cast<float>(normal.deviation) / f8_code_rms();
  } else if (tensor.is_scales) {
    const Mxfp4Scale scale = mxfp4_scale(config, tensor.name);
    recipe.kind = Recipe::Kind::kScales;
    recipe.exponent = scale.exponent;
    recipe.limit = static_cast<uint8_t>(scale.share_of_next * 256.0);
  } else if (tensor.dtype == DType::kBf16) {
    const Normal normal = synthetic_distribution(config, tensor.name);
    recipe.kind = Recipe::Kind::kBf16;
    // Uniform over +-sqrt(3) deviations: cheaper than normal, and a dot product shows no
    // difference.
    recipe.scale = static_cast<float>(normal.deviation * std::sqrt(3.0) / 32768.0);
    recipe.mean = static_cast<float>(normal.mean);
  }
  return recipe;
}

void fill_bf16(const Recipe& recipe, uint64_t first, uint64_t count, uint8_t* out) {
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t hash = recipe.hashes.at(first + i);
    uint16_t lanes[4];
    for (int lane = 0; lane < 4; ++lane) {
      const auto signed_lane = static_cast<int16_t>(hash >> (16 * lane));
      // The half keeps the mean at zero: lanes are -32768 to 32767.
      const float value = (static_cast<float>(signed_lane) + 0.5f) * recipe.scale + recipe.mean;
      lanes[lane] = tensor::float_to_bf16(value);
    }
    std::memcpy(out + 8 * i, lanes, sizeof lanes);
  }
}

void fill_scales(const Recipe& recipe, uint64_t first, uint64_t count, uint8_t* out) {
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t hash = recipe.hashes.at(first + i);
    for (int lane = 0; lane < 8; ++lane) {
      const bool next = static_cast<uint8_t>(hash >> (8 * lane)) < recipe.limit;
      out[8 * i + static_cast<uint64_t>(lane)] =
          static_cast<uint8_t>(recipe.exponent + (next ? 1 : 0));
    }
  }
}

// Words [first, first + count) of eight bytes.
void fill(const Recipe& recipe, uint64_t first, uint64_t count, uint8_t* out) {
  switch (recipe.kind) {
    case Recipe::Kind::kBf16:
      return fill_bf16(recipe, first, count, out);
    case Recipe::Kind::kScales:
      return fill_scales(recipe, first, count, out);
    case Recipe::Kind::kF8Scales:
      for (uint64_t i = 0; i < 2 * count; ++i) {
        std::memcpy(out + 4 * i, &recipe.scale, sizeof recipe.scale);
      }
      return;
    case Recipe::Kind::kF8:
      for (uint64_t i = 0; i < count; ++i) {
        const uint64_t codes = recipe.hashes.at(first + i) & kF8CodeMask;
        std::memcpy(out + 8 * i, &codes, sizeof codes);
      }
      return;
    case Recipe::Kind::kUniformBits:
      for (uint64_t i = 0; i < count; ++i) {
        const uint64_t hash = recipe.hashes.at(first + i);
        std::memcpy(out + 8 * i, &hash, sizeof hash);
      }
  }
}

// Bytes [begin, begin + out.size()) of a tensor.
void fill_range(const Recipe& recipe, int64_t begin, std::span<uint8_t> out) {
  uint8_t word[8];
  auto at = static_cast<uint64_t>(begin);
  while (!out.empty()) {
    const uint64_t skip = at % 8;
    if (skip == 0 && out.size() >= 8) {
      const uint64_t words = out.size() / 8;
      fill(recipe, at / 8, words, out.data());
      out = out.subspan(words * 8);
      at += words * 8;
      continue;
    }
    fill(recipe, at / 8, 1, word);
    const size_t count = std::min<size_t>(out.size(), 8 - skip);
    std::memcpy(out.data(), word + skip, count);
    out = out.subspan(count);
    at += count;
  }
}

// All recipes of a model, by tensor.
class Recipes {
 public:
  Recipes(const families::ModelConfig& config, uint64_t seed) {
    for (const families::ExpectedTensor& tensor :
         families::expected_tensors(config, families::WeightLayout::kPublished)) {
      recipes_.emplace(tensor.name, recipe(tensor, config, seed));
    }
  }
  void operator()(const families::ExpectedTensor& tensor, int64_t begin,
                  std::span<uint8_t> out) const {
    fill_range(recipes_.find(tensor.name)->second, begin, out);
  }

 private:
  std::map<std::string, Recipe> recipes_;
};

struct Piece {
  size_t tensor;
  int64_t begin;  // in the tensor
  int64_t end;
};

struct PlacedTensor {
  Recipe recipe;
  const SizedFile* file;
  int64_t offset;  // in the file
};

// Files, tensors and pieces of a run; filled once, then read by all workers.
class Run {
 public:
  Run(const families::ModelConfig& config, uint64_t seed) : config_(config), seed_(seed) {}

  Result<void> create_files(const std::vector<ShardPlan>& shards, const std::string& folder) {
    files_.reserve(shards.size());  // tensors point into it
    for (const ShardPlan& shard : shards) {
      std::vector<PlannedTensor> planned;
      int64_t data_bytes = 0;
      for (const families::ExpectedTensor& tensor : shard.tensors) {
        planned.push_back(
            {families::published_name(config_, tensor.name), tensor.dtype, tensor.shape});
        data_bytes += tensor.bytes();
      }
      const std::string header = safetensors_header(planned);
      auto offset = static_cast<int64_t>(header.size());
      TRY_ASSIGN(SizedFile file, SizedFile::create(folder + "/" + shard.file, offset + data_bytes));
      files_.push_back(std::move(file));
      TRY(files_.back().write_at(0, reinterpret_cast<const uint8_t*>(header.data()), offset));
      for (const families::ExpectedTensor& tensor : shard.tensors) {
        add_pieces(tensor.bytes());
        tensors_.push_back({recipe(tensor, config_, seed_), &files_.back(), offset});
        offset += tensor.bytes();
      }
    }
    return {};
  }

  Result<void> write(base::ThreadPool& pool, base::FunctionRef<void(int64_t, int64_t)> progress) {
    std::vector<std::vector<uint8_t>> buffers(static_cast<size_t>(pool.size()));
    std::mutex mutex;
    std::optional<Error> failure;
    int64_t done = 0;
    const auto count = static_cast<int64_t>(pieces_.size());
    for (int64_t first = 0; first < count && !failure; first += kPiecesPerReport) {
      const int64_t last = std::min(count, first + kPiecesPerReport);
      pool.parallel_for(last - first, 1, [&](int64_t begin, int64_t end, int worker) {
        std::vector<uint8_t>& buffer = buffers[static_cast<size_t>(worker)];
        buffer.resize(kPieceBytes);
        for (int64_t i = begin; i < end; ++i) {
          const Result<void> written = write_piece(pieces_[static_cast<size_t>(first + i)], buffer);
          if (written.ok()) continue;
          const std::lock_guard<std::mutex> lock(mutex);
          failure = written.error();
        }
      });
      for (int64_t i = first; i < last; ++i) {
        done += pieces_[static_cast<size_t>(i)].end - pieces_[static_cast<size_t>(i)].begin;
      }
      progress(done, total_);
    }
    if (failure) return *failure;
    return {};
  }

 private:
  void add_pieces(int64_t bytes) {
    for (int64_t begin = 0; begin < bytes; begin += kPieceBytes) {
      pieces_.push_back({tensors_.size(), begin, std::min(bytes, begin + kPieceBytes)});
    }
    total_ += bytes;
  }

  Result<void> write_piece(const Piece& piece, std::vector<uint8_t>& buffer) const {
    const PlacedTensor& tensor = tensors_[piece.tensor];
    const int64_t bytes = piece.end - piece.begin;
    fill(tensor.recipe, static_cast<uint64_t>(piece.begin / 8),
         static_cast<uint64_t>((bytes + 7) / 8), buffer.data());
    return tensor.file->write_at(tensor.offset + piece.begin, buffer.data(), bytes);
  }

  const families::ModelConfig& config_;
  const uint64_t seed_;
  std::vector<SizedFile> files_;
  std::vector<PlacedTensor> tensors_;
  std::vector<Piece> pieces_;
  int64_t total_ = 0;
};

int64_t bytes_of(const std::vector<families::ExpectedTensor>& tensors) {
  int64_t bytes = 0;
  for (const families::ExpectedTensor& tensor : tensors) bytes += tensor.bytes();
  return bytes;
}

Result<void> prepare_folder(const std::string& folder, int64_t bytes) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    return Error{ErrorCode::kIo, fmt::format("{}: cannot create: {}", folder, error.message())};
  }
  if (std::filesystem::exists(folder + "/config.json", error)) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}: already holds a model; name a new folder, or remove it", folder),
                 "OUT"};
  }
  struct statvfs disk {};
  if (::statvfs(folder.c_str(), &disk) == 0 &&
      static_cast<int64_t>(disk.f_bavail * disk.f_frsize) < bytes) {
    return Error{ErrorCode::kDoesNotFit,
                 fmt::format("{}: the model needs {} bytes, but the disk has {} free", folder,
                             bytes, disk.f_bavail * disk.f_frsize)};
  }
  return {};
}

std::string index_text(const families::ModelConfig& config, const std::vector<ShardPlan>& shards,
                       int64_t total) {
  Json metadata;
  metadata.set("total_size", total);
  Json::Object map;
  for (const ShardPlan& shard : shards) {
    for (const families::ExpectedTensor& tensor : shard.tensors)
      map.push_back({families::published_name(config, tensor.name), shard.file});
  }
  Json index;
  index.set("metadata", std::move(metadata)).set("weight_map", std::move(map));
  return index.dump();
}

Json generation_for(const Json& config) {
  if (std::optional<Json> published = families::published_generation(config)) return *published;
  Json generation;
  generation.set("do_sample", true);
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    if (const Json* value = config.find(key); value != nullptr) generation.set(key, *value);
  }
  return generation;
}

}  // namespace

std::vector<ShardPlan> plan_shards(std::vector<families::ExpectedTensor> tensors,
                                   int64_t shard_bytes_max) {
  std::vector<ShardPlan> shards(1);
  int64_t bytes = 0;
  for (families::ExpectedTensor& tensor : tensors) {
    if (!shards.back().tensors.empty() && bytes + tensor.bytes() > shard_bytes_max) {
      shards.emplace_back();
      bytes = 0;
    }
    bytes += tensor.bytes();
    shards.back().tensors.push_back(std::move(tensor));
  }
  if (shards.size() == 1) {
    shards[0].file = "model.safetensors";
    return shards;
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    // The published files count from 0, and name the last number behind "of".
    shards[i].file = fmt::format("model-{:05}-of-{:05}.safetensors", i, shards.size() - 1);
  }
  return shards;
}

Result<SyntheticOptions> synthetic_like(const std::string& like, int layers) {
  constexpr int kLayersMax = 1024;  // as families::parse_model_config has it
  if (layers < 0 || layers > kLayersMax) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("must be in [0, {}], found {}", kLayersMax, layers), "--layers"};
  }
  SyntheticOptions options;
  Result<Json> published = families::published_config(like);
  if (published.ok()) {
    options.config = std::move(published).value();
  } else {
    if (!std::filesystem::exists(like)) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("expected {} or a config.json, found \"{}\"",
                               families::published_model_names(), like),
                   "--like"};
    }
    TRY_ASSIGN(const std::string text, base::read_file(like, size_t{1} << 20));
    Result<Json> parsed = Json::parse(text);
    if (!parsed.ok() || !parsed->is_object()) {
      return Error{
          ErrorCode::kInvalidArgument,
          fmt::format("{}: {}", like, parsed.ok() ? "expected an object" : parsed.error().message),
          "--like"};
    }
    options.config = std::move(parsed).value();
  }
  if (layers > 0) families::set_layer_count(options.config, layers);
  options.generation = generation_for(options.config);
  return options;
}

SyntheticOptions synthetic_tiny(int vocab_size) {
  SyntheticOptions options;
  options.config = families::published_config("gpt-oss-20b").value();
  Json& config = options.config;
  config.set("hidden_size", 128).set("intermediate_size", 128).set("head_dim", 32);
  config.set("num_attention_heads", 4).set("num_key_value_heads", 2);
  config.set("num_local_experts", 8).set("num_experts_per_tok", 2).set("experts_per_token", 2);
  config.set("vocab_size", vocab_size).set("eos_token_id", vocab_size - 2);
  config.set("pad_token_id", vocab_size - 1);
  families::set_layer_count(config, 2);
  options.generation = generation_for(config);
  return options;
}

Result<void> write_synthetic(const SyntheticOptions& options, const std::string& folder,
                             base::ThreadPool& pool,
                             base::FunctionRef<void(int64_t, int64_t)> progress) {
  TRY_ASSIGN(const families::ModelConfig config,
             families::parse_model_config(options.config, &options.generation,
                                          folder + "/config.json", *options.registry));
  if (config.quantization >= families::WeightQuantization::kGptq) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("{}: integer weights are not made up; take quantization_config out",
                             folder + "/config.json")};
  }
  std::vector<families::ExpectedTensor> tensors =
      families::expected_tensors(config, families::WeightLayout::kPublished);
  const int64_t total = bytes_of(tensors);
  TRY(prepare_folder(folder, total));
  const std::vector<ShardPlan> shards = plan_shards(std::move(tensors), options.shard_bytes_max);
  Run run(config, options.seed);
  TRY(run.create_files(shards, folder));
  TRY(run.write(pool, progress));
  if (shards.size() > 1) {
    TRY(base::write_file(folder + "/model.safetensors.index.json",
                         index_text(config, shards, total)));
  }
  TRY(base::write_file(folder + "/generation_config.json", options.generation.dump()));
  return base::write_file(folder + "/config.json", options.config.dump());
}

Result<void> write_synthetic_original(const SyntheticOptions& options, const std::string& folder,
                                      base::ThreadPool& pool, WriteProgress progress) {
  TRY_ASSIGN(
      const families::ModelConfig config,
      families::parse_model_config(options.config, &options.generation, folder + "/config.json"));
  const Recipes recipes(config, options.seed);
  return write_original(options.config, recipes, folder + "/original", pool, progress);
}

Result<void> write_synthetic_gguf(const SyntheticOptions& options, const GgufOptions& gguf,
                                  const std::string& file, base::ThreadPool& pool,
                                  WriteProgress progress) {
  TRY_ASSIGN(const families::ModelConfig config,
             families::parse_model_config(options.config, &options.generation, file));
  const Recipes recipes(config, options.seed);
  return write_gguf(options.config, gguf, recipes, file, pool, progress);
}

}  // namespace pelton::checkpoint
