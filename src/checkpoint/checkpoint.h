// A model's files, opened: configuration and named tensors, mapped read-only, every offset checked
// before use. Immutable after open; any thread may read. Owned by whoever loads the model, and
// outlives the model, which points into the mapping.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "checkpoint/gguf.h"
#include "checkpoint/layout.h"
#include "checkpoint/tiled_tensor.h"
#include "families/expected_tensors.h"
#include "families/model_config.h"
#include "tensor/tensor_view.h"

namespace pelton::families {
class Registry;
}

namespace pelton::checkpoint {

class Checkpoint {
 public:
  // A folder in Hugging Face's or OpenAI's original layout: config.json, and model.safetensors or
  // model.safetensors.index.json with its shards (also of tiles, as `pelton pack` writes them); in
  // Mistral's own: params.json, consolidated.safetensors; or a GGUF file. Whatever the layout,
  // exactly the tensors that the configuration asks for, under the names of expected_tensors.h.
  // Errors name file, tensor, expected and found (kNotFound, kBadCheckpoint, kUnsupported).
  static Result<Checkpoint> open(const std::string& model);
  // The same, of any family in `registry`.
  static Result<Checkpoint> open(const std::string& model, const families::Registry& registry);

  const std::string& folder() const { return folder_; }
  // From here on its folder, and where texts are looked for, are those of `source`, of which these
  // are the weights.
  void take_place_of(const Checkpoint& source) {
    folder_ = source.folder_;
    layout_.text_folders = source.layout_.text_folders;
  }
  const families::ModelConfig& config() const { return config_; }
  LayoutKind layout() const { return layout_.kind; }
  families::WeightLayout weight_layout() const { return weight_layout_; }
  // What tiled weights are to be multiplied with: activations of 8 or 16 bits; 0 for other weights.
  int activation_bits() const { return tiles_.activation_bits; }
  const TilesNote& tiles() const { return tiles_; }
  // Where a tokenizer.json may be, best first.
  const std::vector<std::string>& text_folders() const { return layout_.text_folders; }

  // The vocabulary in a GGUF file's metadata; null where the file has none. Views into the mapping.
  struct Vocabulary {
    std::string_view model;  // "gpt2": byte-level BPE; "llama": SentencePiece's
    std::string_view split;  // the name of the split pattern: "gpt-4o"
    std::vector<std::string_view> tokens;
    std::vector<std::string_view> merges;
    std::vector<int32_t> types;
    std::vector<float> scores;
    std::string_view charsmap;  // tokenizer.ggml.precompiled_charsmap
    bool prefixes_space = true;
    bool removes_extra_spaces = false;
    int64_t unknown = -1;
    int64_t begins_with = -1;  // the token that prompts begin with; -1: none
    int64_t ends_with = -1;    // likewise
  };
  Result<std::optional<Vocabulary>> vocabulary() const;
  // What a GGUF file says of it, whatever model it is for.
  static Result<std::optional<Vocabulary>> vocabulary_of(const GgufMetadata& gguf);
  // What the GGUF file says of itself; null for the other layouts.
  const GgufMetadata* gguf() const { return gguf_ ? &*gguf_ : nullptr; }

  // The tensor of that name if it has exactly this type and shape. Its bytes are aligned to its
  // element size and no further: files promise nothing more.
  Result<tensor::TensorView> tensor(std::string_view name, tensor::DType dtype,
                                    std::span<const int64_t> shape) const;
  // The same, whatever its type.
  Result<tensor::TensorView> tensor(std::string_view name, std::span<const int64_t> shape) const;
  // From here on that tensor's weights lie elsewhere in memory, the same numbers in another type,
  // which `owner` keeps. Before anything points at it.
  void replace(std::string_view name, tensor::TensorView view, std::shared_ptr<const void> owner);
  bool has(std::string_view name) const { return tensors_.find(name) != tensors_.end(); }

  // What the configuration and the layout ask for, with the types that are there.
  std::vector<families::ExpectedTensor> expected() const;
  // All tensors by name, and their bytes in all.
  const std::map<std::string, tensor::TensorView, std::less<>>& tensors() const { return tensors_; }
  int64_t weight_bytes() const { return weight_bytes_; }
  // Tensors of the files that text needs none of (families/tensor_names.h).
  struct Unused {
    int tensors = 0;
    int64_t bytes = 0;
    // An output head of its own, whose weights are others than the embedding's, although the
    // configuration ties the two. Some of the weights are compared.
    bool other_head = false;
  };
  const Unused& unused() const { return unused_; }
  // The files of weights, mapped.
  const std::vector<base::MappedFile>& files() const { return files_; }
  int shard_count() const { return static_cast<int>(files_.size()); }

 private:
  Result<void> open_safetensors(const families::Registry& registry);
  Result<void> open_gguf(const families::Registry& registry);
  Result<void> map_file(const std::string& name);
  Result<void> map_shards(const std::string& path);
  Result<GgufMetadata> map_gguf(const std::string& path, const families::Registry& registry);
  Result<void> check_parts(const std::vector<GgufMetadata>& parts, size_t tensor_count) const;
  std::span<const uint8_t> aligned(std::span<const uint8_t> bytes, tensor::DType dtype);
  Result<void> note_tiles(const base::MappedFile& file);
  Result<void> add(const std::string& stored_name, const std::string& path,
                   tensor::TensorView view);
  Result<void> add_view(const std::string& name, const std::string& path, tensor::TensorView view);
  Result<void> take_rope_divisors();
  void find_weight_layout();
  void leave_out_tied_head();
  void find_f8_scales();
  std::vector<families::ExpectedTensor> asked() const;
  Result<void> check_tensors() const;

  std::string folder_;
  Layout layout_;
  families::WeightLayout weight_layout_ = families::WeightLayout::kPublished;
  TilesNote tiles_;
  std::optional<GgufMetadata> gguf_;  // of the first part
  const families::Family* gguf_family_ = nullptr;
  families::ModelConfig config_;
  std::vector<base::MappedFile> files_;
  std::vector<std::vector<uint64_t>>
      realigned_;  // copies of tensors at odd offsets; hardly ever any
  std::vector<std::shared_ptr<const void>> replacements_;  // of tensors that lie elsewhere
  std::map<std::string, tensor::TensorView, std::less<>> tensors_;
  std::map<std::string, std::string, std::less<>> file_of_tensor_;  // for messages
  std::map<std::string, std::string, std::less<>> file_of_stored_;  // by the names in the files
  int64_t weight_bytes_ = 0;
  Unused unused_;
};

// A model argument: a folder as it is, or a hub id ("openai/gpt-oss-20b") looked up in the standard
// Hugging Face cache ($HF_HUB_CACHE, $HF_HOME/hub, $XDG_CACHE_HOME/huggingface/hub,
// ~/.cache/huggingface/hub). kNotFound says exactly how to get it.
Result<std::string> resolve_model(const std::string& model);
// Of a hub id another revision than main; empty: main.
Result<std::string> resolve_model(const std::string& model, const std::string& revision);

}  // namespace pelton::checkpoint
