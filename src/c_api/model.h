// What stands behind the handles of pelton.h. Each shares what it needs, so that handles may be
// freed in any order. Any thread.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "c_api/pelton.h"
#include "grammar/matcher.h"
#include "grammar/token_trie.h"
#include "node/loaded_model.h"

namespace pelton::c_api {

struct Model {
  explicit Model(base::LogLevel level) : log(clock, {.level = level}) {}

  const tokenizer::Tokenizer& text() const { return loaded->any_tokenizer(); }
  // What grammars are matched with, made for the first one.
  std::shared_ptr<const grammar::TokenTrie> trie();

  const base::SystemClock clock;
  base::Log log;
  std::unique_ptr<node::LoadedModel> loaded;
  pelton_request defaults{};  // as its files said when it was loaded

 private:
  std::mutex trie_making_;
  std::shared_ptr<const grammar::TokenTrie> trie_;  // guarded by trie_making_
};

// The model's own sampling, as far as a request may ask for it.
pelton_request default_request(const node::LoadedModel& model);

// Prompts and answers of a request, without what is sampled how.
struct Prompt {
  std::vector<TokenId> tokens;
  std::vector<TokenId> opening = {};  // of messages: what the prompt writes of the model's turn
  bool is_chat = false;
  bool has_tools = false;
  std::shared_ptr<const std::vector<chat::FunctionTool>> functions = nullptr;
};
// Errors: kInvalidArgument naming the field; those of the tokenizer and the chat format.
Result<Prompt> prompt_of(const Model& model, const pelton_request& request);
// `request` over the model's defaults. Errors: read_struct's, a null request.
Result<pelton_request> read_request(const Model& model, const pelton_request* request);

}  // namespace pelton::c_api

struct pelton_model {
  std::shared_ptr<pelton::c_api::Model> shared;
};

struct pelton_grammar {
  std::shared_ptr<pelton::c_api::Model> model;
  std::shared_ptr<const pelton::grammar::TokenGrammar> compiled;
};
