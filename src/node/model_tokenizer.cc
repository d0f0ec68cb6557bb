#include "node/model_tokenizer.h"

#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "tokenizer/ggml_vocabulary.h"

namespace pelton::node {
namespace {

using tokenizer::Tokenizer;

std::unique_ptr<Tokenizer> owned(Tokenizer tokenizer) {
  return std::make_unique<Tokenizer>(std::move(tokenizer));
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> read_model_tokenizer(const checkpoint::Checkpoint& checkpoint) {
  TRY_ASSIGN(const auto stored, checkpoint.vocabulary());
  if (stored) {
    const std::string& name = checkpoint.gguf()->path();
    const tokenizer::GgmlVocabulary vocabulary{stored->model, stored->split, stored->tokens,
                                               stored->merges, stored->types};
    TRY_ASSIGN(const std::string json, tokenizer::tokenizer_json_of(vocabulary, name));
    TRY_ASSIGN(Tokenizer tokenizer, Tokenizer::from_json(json, name));
    return owned(std::move(tokenizer));
  }
  for (const std::string& folder : checkpoint.text_folders()) {
    for (const char* name : {"tokenizer.json", "o200k_base.tiktoken"}) {
      const std::string file = folder + "/" + name;
      std::error_code ignored;
      if (!std::filesystem::exists(file, ignored)) continue;
      TRY_ASSIGN(Tokenizer tokenizer, Tokenizer::load(file));
      return owned(std::move(tokenizer));
    }
  }
  return std::unique_ptr<Tokenizer>();
}

}  // namespace pelton::node
