// Where a model's files are and in which of the known layouts: decided from what lies there, before
// anything is opened. Looks at names and at config.json only.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace pelton::checkpoint {

enum class LayoutKind {
  kHuggingFace,  // config.json, model*.safetensors
  kOriginal,     // OpenAI's original/: its own config.json and names
  kMistral,      // Mistral's own: params.json, consolidated*.safetensors
  kGguf,         // one file, or the parts of one (NAME-00001-of-00003.gguf)
};

struct Layout {
  LayoutKind kind = LayoutKind::kHuggingFace;
  std::string folder;                     // of the weights
  std::string config_folder;              // of config.json or params.json; not for GGUF
  std::vector<std::string> gguf_files;    // paths, in the order of the parts
  std::vector<std::string> text_folders;  // where a tokenizer.json may be
};

// `model`: a folder, or a GGUF file. Errors: kNotFound, kBadCheckpoint.
Result<Layout> find_layout(const std::string& model);

std::string_view layout_name(LayoutKind kind);  // "Hugging Face", "GGUF", ...

}  // namespace pelton::checkpoint
