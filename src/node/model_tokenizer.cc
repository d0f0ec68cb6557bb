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

Result<std::unique_ptr<Tokenizer>> ggml_tokenizer(const checkpoint::GgufMetadata& gguf) {
  TRY_ASSIGN(const auto stored, checkpoint::Checkpoint::vocabulary_of(gguf));
  if (!stored) return std::unique_ptr<Tokenizer>();
  const tokenizer::GgmlVocabulary vocabulary{.model = stored->model,
                                             .split = stored->split,
                                             .tokens = stored->tokens,
                                             .merges = stored->merges,
                                             .types = stored->types,
                                             .scores = stored->scores,
                                             .charsmap = stored->charsmap,
                                             .prefixes_space = stored->prefixes_space,
                                             .removes_extra_spaces = stored->removes_extra_spaces,
                                             .unknown = stored->unknown};
  TRY_ASSIGN(Tokenizer tokenizer, Tokenizer::from_ggml(vocabulary, gguf.path()));
  return owned(std::move(tokenizer));
}

Result<std::unique_ptr<Tokenizer>> read_model_tokenizer(const checkpoint::Checkpoint& checkpoint) {
  if (checkpoint.gguf() != nullptr) {
    TRY_ASSIGN(std::unique_ptr<Tokenizer> found, ggml_tokenizer(*checkpoint.gguf()));
    if (found != nullptr) return found;
  }
  for (const std::string& folder : checkpoint.text_folders()) {
    for (const char* name :
         {"tokenizer.json", "tekken.json", "tokenizer.model", "o200k_base.tiktoken"}) {
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
