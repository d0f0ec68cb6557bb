// Grammars of answers, compiled once for any number of requests.
#include <fmt/format.h>

#include "base/json.h"
#include "c_api/model.h"
#include "c_api/status.h"
#include "grammar/ebnf.h"
#include "grammar/json_schema.h"
#include "grammar/regex.h"

namespace pelton::c_api {
namespace {

using GrammarPointer = std::shared_ptr<const grammar::Grammar>;

Result<GrammarPointer> compile_text(pelton_grammar_kind kind, std::string_view text) {
  switch (kind) {
    case PELTON_JSON_OBJECT:
      return grammar::any_json_object(grammar::SchemaOptions::Whitespace::kFlexible);
    case PELTON_JSON_SCHEMA: {
      TRY_ASSIGN(const Json schema, Json::parse(text));
      return grammar::compile_json_schema(schema, {});
    }
    case PELTON_REGEX: {
      TRY_ASSIGN(grammar::ByteDfa dfa,
                 grammar::compile_regex(text, {.match = grammar::RegexOptions::Match::kWhole}));
      return grammar::Grammar::from_dfa(std::move(dfa));
    }
    case PELTON_EBNF:
      return grammar::compile_ebnf(text);
  }
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("'kind' is a pelton_grammar_kind, not {}", static_cast<int>(kind)),
               "kind"};
}

}  // namespace
}  // namespace pelton::c_api

using namespace pelton::c_api;  // NOLINT: of the functions below, which stand in no namespace

pelton_status pelton_grammar_compile(pelton_model* model, pelton_grammar_kind kind,
                                     const char* text, pelton_grammar** grammar) {
  return guarded([&]() -> pelton::Result<pelton_status> {
    TRY(check_given(model, "model"));
    TRY(check_given(grammar, "grammar"));
    *grammar = nullptr;
    if (kind != PELTON_JSON_OBJECT) TRY(check_given(text, "text"));
    TRY(model->shared->loaded->tokenizer());
    pelton::Result<GrammarPointer> rules = compile_text(kind, text == nullptr ? "" : text);
    if (!rules.ok()) {
      pelton::Error error = rules.error();
      if (!error.field.empty()) error.message += fmt::format(" (at '{}')", error.field);
      return error;
    }
    TRY_ASSIGN(auto compiled, pelton::grammar::TokenGrammar::make(*rules, model->shared->trie()));
    *grammar = new pelton_grammar{model->shared, std::move(compiled)};
    return PELTON_OK;
  });
}

void pelton_grammar_free(pelton_grammar* grammar) {
  delete grammar;
}
