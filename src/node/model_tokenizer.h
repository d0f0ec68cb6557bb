// The tokenizer that belongs to a checkpoint: of a GGUF file its metadata's, otherwise the first
// there is beside the weights of tokenizer.json, tekken.json, tokenizer.model and a rank file. Pure
// but for reading the file.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "tokenizer/tokenizer.h"

namespace pelton::node {

// Of one of these files, with what the tokenizer_config.json beside it says of how prompts begin.
// Errors: the file's, kBadCheckpoint of the configuration.
Result<tokenizer::Tokenizer> read_tokenizer_file(const std::string& file);

// Null if the checkpoint has none, which is no error here; a broken one is.
Result<std::unique_ptr<tokenizer::Tokenizer>> read_model_tokenizer(
    const checkpoint::Checkpoint& checkpoint);

// Another one than the model's own: a folder, one of its files or a hub id that is on this machine.
// Errors: kInvalidArgument where there is none, or where it has more tokens than the model.
Result<std::unique_ptr<tokenizer::Tokenizer>> read_other_tokenizer(const std::string& place,
                                                                   int vocab_size);

// Of a GGUF file alone.
Result<std::unique_ptr<tokenizer::Tokenizer>> ggml_tokenizer(const checkpoint::GgufMetadata& gguf);

}  // namespace pelton::node
