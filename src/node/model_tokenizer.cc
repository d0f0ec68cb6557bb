#include "node/model_tokenizer.h"

#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/json.h"
#include "node/tokenizer_config.h"
#include "tokenizer/ggml_vocabulary.h"

namespace pelton::node {
namespace {

using tokenizer::Tokenizer;

// The id of config's `key`, a token's text or an object with its "content"; nothing if it has none.
Result<std::optional<TokenId>> token_of(const Json& config, const char* key,
                                        const std::string& file, const Tokenizer& tokenizer) {
  const Json* const token = config.find(key);
  if (token == nullptr || token->is_null()) return std::optional<TokenId>();
  const std::string name =
      token->is_string() ? token->as_string() : token->string("content").value_or("");
  const std::optional<TokenId> id = tokenizer.special_id(name);
  if (id) return id;
  return Error{ErrorCode::kBadCheckpoint,
               fmt::format("{}: {} \"{}\" is no control token of the vocabulary", file, key, name)};
}

// `add_bos_token` overrules what the tokenizer's own file says, as the classes that read it do. So
// does an `add_eos_token` that is true; one that is false stands in files of models whose class
// does not read it, and whose tokenizer.json has an end (Qwen's embedding models).
Result<void> take_config(const std::string& folder, Tokenizer& tokenizer) {
  TRY_ASSIGN(const std::optional<Json> config, read_tokenizer_config(folder));
  if (!config) return {};
  const std::string file = (std::filesystem::path(folder) / "tokenizer_config.json").string();
  const std::optional<bool> adds_bos = config->boolean("add_bos_token");
  if (adds_bos == false) tokenizer.set_prompt_begin({});
  if (adds_bos == true) {
    TRY_ASSIGN(const auto bos, token_of(*config, "bos_token", file, tokenizer));
    if (bos) tokenizer.set_prompt_begin({*bos});
  }
  if (config->boolean("add_eos_token") == true) {
    TRY_ASSIGN(const auto eos, token_of(*config, "eos_token", file, tokenizer));
    if (eos) tokenizer.set_prompt_end({*eos});
  }
  return {};
}

std::unique_ptr<Tokenizer> owned(Tokenizer tokenizer) {
  return std::make_unique<Tokenizer>(std::move(tokenizer));
}

// Null: there is none.
Result<std::unique_ptr<Tokenizer>> tokenizer_in(const std::string& folder) {
  for (const char* name :
       {"tokenizer.json", "tekken.json", "tokenizer.model", "o200k_base.tiktoken"}) {
    const std::string file = folder + "/" + name;
    std::error_code ignored;
    if (!std::filesystem::exists(file, ignored)) continue;
    TRY_ASSIGN(Tokenizer tokenizer, read_tokenizer_file(file));
    return owned(std::move(tokenizer));
  }
  return std::unique_ptr<Tokenizer>();
}

}  // namespace

Result<Tokenizer> read_tokenizer_file(const std::string& file) {
  TRY_ASSIGN(Tokenizer tokenizer, Tokenizer::load(file));
  const std::filesystem::path folder = std::filesystem::path(file).parent_path();
  TRY(take_config(folder.string(), tokenizer));
  return tokenizer;
}

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
  if (stored->begins_with >= 0) {
    tokenizer.set_prompt_begin({static_cast<TokenId>(stored->begins_with)});
  }
  if (stored->ends_with >= 0) {
    tokenizer.set_prompt_end({static_cast<TokenId>(stored->ends_with)});
  }
  return owned(std::move(tokenizer));
}

Result<std::unique_ptr<Tokenizer>> read_model_tokenizer(const checkpoint::Checkpoint& checkpoint) {
  if (checkpoint.gguf() != nullptr) {
    TRY_ASSIGN(std::unique_ptr<Tokenizer> found, ggml_tokenizer(*checkpoint.gguf()));
    if (found != nullptr) return found;
  }
  for (const std::string& folder : checkpoint.text_folders()) {
    TRY_ASSIGN(std::unique_ptr<Tokenizer> found, tokenizer_in(folder));
    if (found != nullptr) return found;
  }
  return std::unique_ptr<Tokenizer>();
}

Result<std::unique_ptr<Tokenizer>> read_other_tokenizer(const std::string& place, int vocab_size) {
  const auto refusal = [&](std::string_view why) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("--tokenizer {}: {}", place, why),
                 "tokenizer"};
  };
  const auto unreadable = [](Error error) {
    error.field = "tokenizer";
    return error;
  };
  std::error_code ignored;
  std::unique_ptr<Tokenizer> found;
  if (std::filesystem::is_regular_file(place, ignored)) {
    Result<Tokenizer> tokenizer = read_tokenizer_file(place);
    if (!tokenizer.ok()) return unreadable(tokenizer.error());
    found = owned(*std::move(tokenizer));
  } else {
    const Result<std::string> folder = checkpoint::resolve_model(place);
    if (!folder.ok()) return refusal(folder.error().message);
    Result<std::unique_ptr<Tokenizer>> in_folder = tokenizer_in(*folder);
    if (!in_folder.ok()) return unreadable(in_folder.error());
    found = *std::move(in_folder);
    if (found == nullptr) {
      return refusal("there is no tokenizer.json, tekken.json or tokenizer.model");
    }
  }
  if (found->vocab_size() <= vocab_size) return found;
  return refusal(fmt::format("it has {} tokens, and the model knows {}: it belongs to another one",
                             found->vocab_size(), vocab_size));
}

}  // namespace pelton::node
