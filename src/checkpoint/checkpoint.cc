#include "checkpoint/checkpoint.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/json.h"
#include "checkpoint/config_file.h"
#include "checkpoint/foreign_text.h"
#include "checkpoint/gguf_names.h"
#include "checkpoint/safetensors.h"
#include "families/gpt_oss_original.h"
#include "families/mistral_original.h"
#include "families/tensor_names.h"

namespace pelton::checkpoint {
namespace {

using tensor::DType;
using tensor::TensorView;

constexpr const char* kSingleFile = "model.safetensors";
constexpr size_t kIndexBytesMax = size_t{16} << 20;  // the largest published ones have 9 MB
constexpr size_t kShardsMax = 4096;

// AutoGPTQ gives every layer that it quantizes a bias, of zeros where the model has none.
bool is_zero_bias(const families::ModelConfig& config, std::string_view name,
                  const TensorView& view) {
  return config.quantization == families::WeightQuantization::kGptq && name.ends_with(".bias") &&
         view.shape.size() == 1 &&
         std::ranges::all_of(view.bytes, [](uint8_t byte) { return byte == 0; });
}

Error bad(const std::string& path, const std::string& what) {
  return Error{ErrorCode::kBadCheckpoint, fmt::format("{}: {}", path, what)};
}

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

std::string type_text(DType dtype, std::span<const int64_t> shape) {
  return fmt::format("{} {}", tensor::dtype_name(dtype), tensor::shape_text(shape));
}

// A shard stands in the model's folder: a plain name, so that an index cannot make us open anything
// else. (The file itself may be a link: the hub's cache keeps the bytes elsewhere.)
bool is_plain_file_name(std::string_view name) {
  return !name.empty() && name.size() <= 255 && name != "." && name != ".." &&
         name.find('/') == std::string_view::npos && name.find('\0') == std::string_view::npos;
}

// Asked before opening: to open a pipe would wait for somebody to write to it.
Result<base::MappedFile> map_regular_file(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) {
    return Error{ErrorCode::kNotFound, fmt::format("{}: there is no such file", path)};
  }
  if (!std::filesystem::is_regular_file(status)) return bad(path, "is not a regular file");
  return base::MappedFile::open(path);
}

// Whether two matrices of one type hold other values: at places all over them, so that little of
// their files is read. Of different types nothing is said.
bool differ(const TensorView& a, const TensorView& b) {
  constexpr size_t kPlaces = 256;
  constexpr size_t kBytes = 64;
  if (a.dtype != b.dtype) return false;
  if (a.bytes.size() != b.bytes.size()) return true;
  const size_t size = std::min(kBytes, a.bytes.size());
  for (size_t i = 0; i < kPlaces; ++i) {
    const size_t at = (a.bytes.size() - size) / (kPlaces - 1) * i;
    if (std::memcmp(a.bytes.data() + at, b.bytes.data() + at, size) != 0) return true;
  }
  return false;
}

struct Index {
  std::map<std::string, std::string, std::less<>> file_of_tensor;
  std::vector<std::string> files;  // each once, sorted
  std::optional<int64_t> total_bytes;
};

Result<Index> read_index(const std::string& path) {
  TRY_ASSIGN(const std::string text, base::read_file(path, kIndexBytesMax));
  const Result<Json> parsed = Json::parse(text);
  if (!parsed.ok()) return bad(path, parsed.error().message);
  const Json* map = parsed->find("weight_map");
  if (map == nullptr || !map->is_object()) return bad(path, "weight_map is missing or no object");
  Index index;
  for (const Json::Member& member : map->as_object()) {
    if (!member.value.is_string() || !is_plain_file_name(member.value.as_string())) {
      return bad(path, fmt::format("weight_map[{}] must be the name of a file in the same folder, "
                                   "found {}",
                                   shown(member.key), member.value.dump().substr(0, 200)));
    }
    if (!index.file_of_tensor.emplace(member.key, member.value.as_string()).second) {
      return bad(path, fmt::format("weight_map names tensor {} twice", shown(member.key)));
    }
    index.files.push_back(member.value.as_string());
  }
  std::sort(index.files.begin(), index.files.end());
  index.files.erase(std::unique(index.files.begin(), index.files.end()), index.files.end());
  if (index.files.size() > kShardsMax) {
    return bad(path,
               fmt::format("names {} shards; the limit is {}", index.files.size(), kShardsMax));
  }
  if (const Json* metadata = parsed->find("metadata"); metadata != nullptr) {
    index.total_bytes = metadata->integer("total_size");
  }
  return index;
}

// "bos" or "eos", if the file, or else `adds`, says that it is put beside a prompt; -1: it is not.
Result<int64_t> added_token(const GgufMetadata& gguf, const char* name, bool adds,
                            int64_t token_count) {
  const std::string key = fmt::format("tokenizer.ggml.{}_token_id", name);
  TRY_ASSIGN(const auto said, gguf.boolean(fmt::format("tokenizer.ggml.add_{}_token", name)));
  TRY_ASSIGN(const auto id, gguf.integer(key));
  if (!id || !said.value_or(adds)) return int64_t{-1};
  if (*id >= 0 && *id < token_count) return *id;
  return gguf.bad(key, fmt::format("is {}, but there are {} tokens", *id, token_count));
}

}  // namespace

Result<Checkpoint> Checkpoint::open(const std::string& model) {
  return open(model, families::Registry::built_in());
}

Result<Checkpoint> Checkpoint::open(const std::string& model, const families::Registry& registry) {
  Checkpoint checkpoint;
  TRY_ASSIGN(checkpoint.layout_, find_layout(model));
  checkpoint.folder_ = checkpoint.layout_.folder;
  if (checkpoint.layout_.kind == LayoutKind::kGguf) {
    TRY(checkpoint.open_gguf(registry));
  } else {
    TRY(checkpoint.open_safetensors(registry));
  }
  checkpoint.weight_bytes_ -= checkpoint.unused_.bytes;
  checkpoint.find_weight_layout();
  checkpoint.leave_out_tied_head();
  checkpoint.find_f8_scales();
  TRY(checkpoint.check_tensors());
  return checkpoint;
}

Result<void> Checkpoint::open_safetensors(const families::Registry& registry) {
  TRY_ASSIGN(config_, read_model_config(layout_.config_folder, registry));
  const bool own = layout_.kind == LayoutKind::kMistral;
  if (own) config_.rope.pairs = families::RopePairs::kNeighbours;
  const std::string single = own ? "consolidated.safetensors" : kSingleFile;
  const std::string index = single + ".index.json";
  if (exists(folder_ + "/" + index)) return map_shards(folder_ + "/" + index);
  if (exists(folder_ + "/" + single)) return map_file(single);
  return Error{ErrorCode::kNotFound,
               fmt::format("{}: holds neither {} nor {}", folder_, single, index)};
}

Result<void> Checkpoint::map_file(const std::string& name) {
  const std::string path = folder_ + "/" + name;
  TRY_ASSIGN(base::MappedFile file, map_regular_file(path));
  TRY_ASSIGN(std::vector<StoredTensor> stored, parse_safetensors(file.bytes(), path));
  bool has_tiles = false;
  for (StoredTensor& tensor : stored) {
    const auto bytes = file.bytes().subspan(tensor.begin, tensor.end - tensor.begin);
    if (std::optional<TiledTensor> tiled = tiled_tensor(tensor.name, tensor.dtype, tensor.shape)) {
      has_tiles = true;
      TRY(add(tiled->name, path, {tiled->dtype, std::move(tiled->shape), bytes}));
      continue;
    }
    TRY(add(tensor.name, path,
            {tensor.dtype, std::move(tensor.shape), aligned(bytes, tensor.dtype)}));
  }
  if (has_tiles) TRY(note_tiles(file));
  files_.push_back(std::move(file));
  return {};
}

// A file of tiles says how it was made, and how it is to be used.
Result<void> Checkpoint::note_tiles(const base::MappedFile& file) {
  const std::string version = safetensors_metadata(file.bytes(), kTilesVersionKey);
  if (version != kTilesVersion) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("{}: holds tiles of version {}; this program reads version {}; make "
                             "it anew with pelton pack",
                             file.path(), shown(version), kTilesVersion)};
  }
  const std::string activations = safetensors_metadata(file.bytes(), kActivationsKey);
  if (activations != "int8" && activations != "int16") {
    return bad(file.path(), fmt::format("__metadata__ {} must be int8 or int16, found {}",
                                        kActivationsKey, shown(activations)));
  }
  tiles_ = {.activation_bits = activations == "int8" ? 8 : 16,
            .source = safetensors_metadata(file.bytes(), kSourceKey),
            .source_fingerprint = safetensors_metadata(file.bytes(), kFingerprintKey),
            .weights = safetensors_metadata(file.bytes(), kWeightsKey),
            .sha256 = safetensors_metadata(file.bytes(), kSha256Key)};
  return {};
}

// The bytes, or a copy of them where their address does not suit the type: hardly ever.
std::span<const uint8_t> Checkpoint::aligned(std::span<const uint8_t> bytes, DType dtype) {
  if (bytes.empty() || tensor::is_block_type(dtype) ||
      reinterpret_cast<uintptr_t>(bytes.data()) % tensor::dtype_bytes(dtype) == 0) {
    return bytes;
  }
  std::vector<uint64_t>& copy = realigned_.emplace_back((bytes.size() + 7) / 8);
  std::memcpy(copy.data(), bytes.data(), bytes.size());
  return {reinterpret_cast<const uint8_t*>(copy.data()), bytes.size()};
}

// Takes in a tensor of a file, under our name or names.
Result<void> Checkpoint::add(const std::string& stored_name, const std::string& path,
                             TensorView view) {
  const auto [owner, is_new] = file_of_stored_.emplace(stored_name, path);
  if (!is_new) {
    return bad(path, fmt::format("tensor {} is also in {}", shown(stored_name), owner->second));
  }
  weight_bytes_ += static_cast<int64_t>(view.bytes.size());
  if (layout_.kind == LayoutKind::kHuggingFace) {
    const std::string name = families::tensor_name(config_, stored_name);
    if (!name.empty()) return add_view(name, path, std::move(view));
    ++unused_.tensors;
    unused_.bytes += static_cast<int64_t>(view.bytes.size());
    return {};
  }
  if (layout_.kind == LayoutKind::kMistral) {
    const std::string name = families::name_from_mistral(stored_name);
    return add_view(name.empty() ? stored_name : name, path, std::move(view));
  }
  if (layout_.kind == LayoutKind::kGguf) {
    const std::string name = name_from_gguf(*gguf_family_, stored_name);
    return add_view(name.empty() ? stored_name : name, path, std::move(view));
  }
  const std::vector<families::RowPart> parts = families::parts_of_original(stored_name, config_);
  if (parts.empty()) return add_view(stored_name, path, std::move(view));
  if (parts.size() == 1) return add_view(parts[0].name, path, std::move(view));
  int64_t rows = 0;
  for (const families::RowPart& part : parts) rows += part.row_count;
  if (view.shape.empty() || view.shape[0] != rows) {
    return bad(path, fmt::format("tensor {}: expected {} rows (queries, keys, values) from "
                                 "config.json, found the shape {}",
                                 shown(stored_name), rows, tensor::shape_text(view.shape)));
  }
  const size_t row_bytes = view.bytes.size() / static_cast<size_t>(rows);
  size_t first = 0;
  for (const families::RowPart& part : parts) {
    TensorView slice = view;
    slice.shape[0] = part.row_count;
    const auto count = static_cast<size_t>(part.row_count);
    slice.bytes = view.bytes.subspan(first * row_bytes, count * row_bytes);
    first += count;
    TRY(add_view(part.name, path, std::move(slice)));
  }
  return {};
}

Result<void> Checkpoint::add_view(const std::string& name, const std::string& path,
                                  TensorView view) {
  if (view.shape.empty()) view.shape = {1};  // a scalar
  if (!tensors_.emplace(name, std::move(view)).second) {
    return bad(path, fmt::format("tensor {} is there twice, under two names", shown(name)));
  }
  file_of_tensor_.emplace(name, path);
  return {};
}

Result<GgufMetadata> Checkpoint::map_gguf(const std::string& path,
                                          const families::Registry& registry) {
  TRY_ASSIGN(base::MappedFile file, map_regular_file(path));
  // The later parts of a split model have no architecture of their own.
  const bool first = files_.empty();
  TRY_ASSIGN(GgufFile parsed,
             parse_gguf(file.bytes(), path, [&](const GgufMetadata& metadata) -> Result<void> {
               if (!first) return {};
               TRY_ASSIGN(gguf_family_, gguf_family(metadata, registry));
               return {};
             }));
  for (GgufTensor& tensor : parsed.tensors) {
    const auto bytes = file.bytes().subspan(tensor.begin, tensor.end - tensor.begin);
    TRY(add(tensor.name, path,
            {tensor.dtype, std::move(tensor.shape), aligned(bytes, tensor.dtype)}));
  }
  files_.push_back(std::move(file));
  return std::move(parsed.metadata);
}

Result<void> Checkpoint::open_gguf(const families::Registry& registry) {
  std::vector<GgufMetadata> parts;
  for (const std::string& path : layout_.gguf_files) {
    TRY_ASSIGN(GgufMetadata metadata, map_gguf(path, registry));
    parts.push_back(std::move(metadata));
  }
  TRY(check_parts(parts, file_of_stored_.size()));
  gguf_ = std::move(parts[0]);
  const auto embedding = tensors_.find("model.embed_tokens.weight");
  const bool has_embedding = embedding != tensors_.end() && embedding->second.shape.size() == 2;
  TRY_ASSIGN(const Json json,
             config_from_gguf(*gguf_family_, *gguf_,
                              {.vocab_size = has_embedding ? embedding->second.shape[0] : 0,
                               .has_head = has("lm_head.weight"),
                               .has_mlp_bias = has("model.layers.0.mlp.up_proj.bias"),
                               .has_attention_bias = has("model.layers.0.self_attn.o_proj.bias")}));
  if (!has_embedding) {
    return bad(gguf_->path(), "tensor \"token_embd.weight\" is missing or no matrix");
  }
  Result<families::ModelConfig> config =
      families::parse_model_config(json, nullptr, gguf_->path(), registry);
  if (!config.ok()) {
    // In GGUF's words.
    Error error = config.error();
    const std::string key = gguf_key_of(*gguf_family_, error.field);
    const size_t at = error.message.find(error.field);
    if (!key.empty() && at != std::string::npos) {
      error.message.replace(at, error.field.size(), key);
      error.field = key;
    }
    return error;
  }
  config_ = std::move(config).value();
  if (gguf_family_->gguf->turns_neighbours) config_.rope.pairs = families::RopePairs::kNeighbours;
  TRY(take_rope_divisors());
  TRY(vocabulary());  // a broken one is found now
  return {};
}

// rope_freqs.weight is no weight of a layer: it belongs to the rotation.
Result<void> Checkpoint::take_rope_divisors() {
  constexpr std::string_view kName = "rope_freqs.weight";
  const auto found = tensors_.find(kName);
  if (found == tensors_.end()) return {};
  const std::array<int64_t, 1> pairs{config_.rotary_size() / 2};
  TRY_ASSIGN(const TensorView view, tensor(kName, DType::kF32, pairs));
  const auto* from = view.as<float>();
  for (int64_t i = 0; i < pairs[0]; ++i) {
    if (!(from[i] > 0.0f && from[i] <= 1e6f)) {
      return bad(gguf_->path(), fmt::format("tensor {}: element {} is {}; expected a divisor in "
                                            "(0, 1e6]",
                                            kName, i, from[i]));
    }
  }
  config_.rope.divisors.assign(from, from + pairs[0]);
  weight_bytes_ -= static_cast<int64_t>(view.bytes.size());
  tensors_.erase(found);
  return {};
}

// split.no, split.count and split.tensors.count of a model in several files.
Result<void> Checkpoint::check_parts(const std::vector<GgufMetadata>& parts,
                                     size_t tensor_count) const {
  for (size_t i = 0; i < parts.size(); ++i) {
    TRY_ASSIGN(const auto count, parts[i].integer("split.count"));
    TRY_ASSIGN(const auto number, parts[i].integer("split.no"));
    TRY_ASSIGN(const auto tensors, parts[i].integer("split.tensors.count"));
    if (count.value_or(1) != static_cast<int64_t>(parts.size())) {
      return parts[i].bad("split.count", fmt::format("is {}, but there are {} files by name",
                                                     count.value_or(1), parts.size()));
    }
    if (number.value_or(0) != static_cast<int64_t>(i)) {
      return parts[i].bad("split.no", fmt::format("is {}, but by name this is part {} of {}",
                                                  number.value_or(0), i + 1, parts.size()));
    }
    if (tensors && *tensors != static_cast<int64_t>(tensor_count)) {
      return parts[i].bad("split.tensors.count",
                          fmt::format("is {}, but the parts hold {}", *tensors, tensor_count));
    }
  }
  return {};
}

Result<std::optional<Checkpoint::Vocabulary>> Checkpoint::vocabulary_of(const GgufMetadata& gguf) {
  if (!gguf.has("tokenizer.ggml.tokens")) return std::optional<Vocabulary>();
  Vocabulary vocabulary;
  TRY_ASSIGN(const auto model, gguf.text("tokenizer.ggml.model"));
  TRY_ASSIGN(const auto split, gguf.text("tokenizer.ggml.pre"));
  TRY_ASSIGN(vocabulary.tokens, gguf.texts("tokenizer.ggml.tokens"));
  TRY_ASSIGN(vocabulary.merges, gguf.texts("tokenizer.ggml.merges"));
  TRY_ASSIGN(vocabulary.types, gguf.integers("tokenizer.ggml.token_type"));
  TRY_ASSIGN(vocabulary.scores, gguf.floats("tokenizer.ggml.scores"));
  TRY_ASSIGN(vocabulary.charsmap, gguf.bytes("tokenizer.ggml.precompiled_charsmap"));
  TRY_ASSIGN(const auto prefixes, gguf.boolean("tokenizer.ggml.add_space_prefix"));
  TRY_ASSIGN(const auto removes, gguf.boolean("tokenizer.ggml.remove_extra_whitespaces"));
  TRY_ASSIGN(const auto unknown, gguf.integer("tokenizer.ggml.unknown_token_id"));
  vocabulary.prefixes_space = prefixes.value_or(true);
  vocabulary.removes_extra_spaces = removes.value_or(false);
  vocabulary.unknown = unknown.value_or(-1);
  vocabulary.model = model.value_or("");
  // As ggml has it where the file is silent: SentencePiece's models begin with theirs, and so do
  // those with Llama 3's and Mistral's newer vocabularies.
  const std::string_view pre = split.value_or("");
  const bool adds_bos = vocabulary.model == "llama" || vocabulary.model == "gemma4" ||
                        pre == "llama-bpe" || pre == "llama3" || pre == "llama-v3" ||
                        pre == "tekken";
  const auto token_count = static_cast<int64_t>(vocabulary.tokens.size());
  TRY_ASSIGN(vocabulary.begins_with, added_token(gguf, "bos", adds_bos, token_count));
  TRY_ASSIGN(vocabulary.ends_with, added_token(gguf, "eos", false, token_count));
  vocabulary.split = split.value_or("");
  if (gguf.has("tokenizer.ggml.token_type") &&
      vocabulary.types.size() != vocabulary.tokens.size()) {
    return gguf.bad("tokenizer.ggml.token_type",
                    fmt::format("has {} entries, but tokenizer.ggml.tokens has {}",
                                vocabulary.types.size(), vocabulary.tokens.size()));
  }
  return std::optional(std::move(vocabulary));
}

Result<std::optional<Checkpoint::Vocabulary>> Checkpoint::vocabulary() const {
  if (!gguf_) return std::optional<Vocabulary>();
  // Before they are listed.
  const auto listed = gguf_->values().find("tokenizer.ggml.tokens");
  const bool has_tokens = listed != gguf_->values().end();
  if (has_tokens && listed->second.count > static_cast<uint64_t>(config_.vocab_size)) {
    return gguf_->bad("tokenizer.ggml.tokens",
                      fmt::format("has {} entries, but the embedding has {} rows",
                                  listed->second.count, config_.vocab_size));
  }
  TRY_ASSIGN(auto found, vocabulary_of(*gguf_));
  if (!found) return found;
  for (const char* key : {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.padding_token_id"}) {
    TRY_ASSIGN(const auto id, gguf_->integer(key));
    if (id && (*id < 0 || *id >= config_.vocab_size)) {
      return gguf_->bad(
          key, fmt::format("must be a token id below {}, found {}", config_.vocab_size, *id));
    }
  }
  return found;
}

Result<void> Checkpoint::map_shards(const std::string& path) {
  TRY_ASSIGN(const Index index, read_index(path));
  for (const std::string& file : index.files) TRY(map_file(file));
  for (const auto& [tensor, file] : index.file_of_tensor) {
    const auto found = file_of_stored_.find(tensor);
    if (found == file_of_stored_.end() || found->second != folder_ + "/" + file) {
      return bad(path, fmt::format(
                           "places tensor {} in {}, but it is {}", shown(tensor), file,
                           found == file_of_stored_.end() ? "in no shard" : "in " + found->second));
    }
  }
  for (const auto& [tensor, file] : file_of_stored_) {
    if (index.file_of_tensor.find(tensor) == index.file_of_tensor.end()) {
      return bad(path, fmt::format("does not list tensor {}, which {} holds", shown(tensor), file));
    }
  }
  if (index.total_bytes && *index.total_bytes != weight_bytes_) {
    return bad(path,
               fmt::format("metadata.total_size is {}, but the shards hold {} bytes of tensors",
                           *index.total_bytes, weight_bytes_));
  }
  return {};
}

void Checkpoint::find_weight_layout() {
  int layer = 0;  // the first with experts
  while (layer + 1 < config_.layer_count() && !config_.layers[layer].has_experts) ++layer;
  const std::string experts = fmt::format("model.layers.{}.mlp.experts.", layer);
  if (layout_.kind == LayoutKind::kGguf) {
    weight_layout_ = has(experts + "gate_up_exps") ? families::WeightLayout::kGgufFused
                                                   : families::WeightLayout::kGguf;
  } else if (has(experts + "gate_up_proj")) {
    const bool apart = config_.family->expert_files == families::ExpertFiles::kApart;
    weight_layout_ =
        apart ? families::WeightLayout::kFusedExperts : families::WeightLayout::kBf16Experts;
  } else if (has("model.layers.0.self_attn.qkv_proj.weight")) {
    weight_layout_ = families::WeightLayout::kTiled;
  }
}

// Some files hold the embedding a second time, as the head that it is tied to.
void Checkpoint::leave_out_tied_head() {
  const auto head = tensors_.find("lm_head.weight");
  if (!config_.tied_head || head == tensors_.end()) return;
  const auto embedding = tensors_.find("model.embed_tokens.weight");
  unused_.other_head = embedding != tensors_.end() && differ(head->second, embedding->second);
  weight_bytes_ -= static_cast<int64_t>(head->second.bytes.size());
  tensors_.erase(head);
}

// "fp8" leaves open whether a scale belongs to a row or to the whole tensor: their number says it.
// Those of rows may be (rows) or (rows, 1).
void Checkpoint::find_f8_scales() {
  using families::WeightQuantization;
  const bool by_rows = config_.quantization == WeightQuantization::kF8Rows;
  if (!by_rows && config_.quantization != WeightQuantization::kF8Tensor) return;
  for (auto& [name, view] : tensors_) {
    if (!name.ends_with(".weight_scale")) continue;
    if (!by_rows && view.element_count() <= 1) continue;
    config_.quantization = WeightQuantization::kF8Rows;
    if (view.shape.size() == 1) view.shape.push_back(1);
  }
}

void Checkpoint::replace(std::string_view name, TensorView view,
                         std::shared_ptr<const void> owner) {
  const auto found = tensors_.find(name);
  CHECK(found != tensors_.end() && found->second.shape == view.shape, name);
  weight_bytes_ += std::ssize(view.bytes) - std::ssize(found->second.bytes);
  found->second = std::move(view);
  if (replacements_.empty() || replacements_.back() != owner) {
    replacements_.push_back(std::move(owner));
  }
}

std::vector<families::ExpectedTensor> Checkpoint::expected() const {
  std::vector<families::ExpectedTensor> tensors = asked();
  for (families::ExpectedTensor& tensor : tensors)
    tensor.dtype = tensors_.find(tensor.name)->second.dtype;
  return tensors;
}

std::vector<families::ExpectedTensor> Checkpoint::asked() const {
  std::vector<families::ExpectedTensor> tensors =
      families::expected_tensors(config_, weight_layout_);
  if (weight_layout_ == families::WeightLayout::kTiled && has(families::kCoarseHead)) {
    tensors.push_back(families::coarse_head_tensor(config_));
  }
  return tensors;
}

// A missing tensor could not be computed with; one that we do not know would be left out of the
// computation in silence.
Result<void> Checkpoint::check_tensors() const {
  const std::vector<families::ExpectedTensor> expected = asked();
  std::map<std::string_view, const families::ExpectedTensor*> wanted;
  for (const families::ExpectedTensor& tensor : expected) {
    if (tensor.allowed == families::AllowedTypes::kExact) {
      TRY(this->tensor(tensor.name, tensor.dtype, tensor.shape));
    } else {
      TRY_ASSIGN(const TensorView view, this->tensor(tensor.name, tensor.shape));
      if (!tensor.allows(view.dtype)) {
        Error error = bad(file_of_tensor_.find(tensor.name)->second,
                          fmt::format("tensor {} is {}, which is not supported there",
                                      shown(tensor.name), tensor::dtype_name(view.dtype)));
        error.code = ErrorCode::kUnsupported;
        return error;
      }
    }
    wanted.emplace(tensor.name, &tensor);
  }
  for (const auto& [name, view] : tensors_) {
    if (wanted.find(name) == wanted.end()) {
      if (is_zero_bias(config_, name, view)) continue;
      return bad(file_of_tensor_.find(name)->second,
                 fmt::format("tensor {} ({}) has no place in a {} of {} layers", shown(name),
                             type_text(view.dtype, view.shape), config_.architecture,
                             config_.layer_count()));
    }
  }
  return {};
}

Result<TensorView> Checkpoint::tensor(std::string_view name, DType dtype,
                                      std::span<const int64_t> shape) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    return bad(folder_, fmt::format("tensor {} is missing; expected {}", shown(name),
                                    type_text(dtype, shape)));
  }
  const TensorView& view = found->second;
  if (view.dtype != dtype ||
      !std::equal(shape.begin(), shape.end(), view.shape.begin(), view.shape.end())) {
    return bad(file_of_tensor_.find(name)->second,
               fmt::format("tensor {}: expected {} from config.json, found {}", shown(name),
                           type_text(dtype, shape), type_text(view.dtype, view.shape)));
  }
  return view;
}

Result<TensorView> Checkpoint::tensor(std::string_view name, std::span<const int64_t> shape) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    return bad(folder_, fmt::format("tensor {} is missing; expected {}", shown(name),
                                    tensor::shape_text(shape)));
  }
  if (!std::equal(shape.begin(), shape.end(), found->second.shape.begin(),
                  found->second.shape.end())) {
    return bad(file_of_tensor_.find(name)->second,
               fmt::format("tensor {}: expected the shape {}, found {}", shown(name),
                           tensor::shape_text(shape), tensor::shape_text(found->second.shape)));
  }
  return found->second;
}

}  // namespace pelton::checkpoint
