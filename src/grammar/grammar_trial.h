// Tries a grammar out: how long it takes to compile, and how far a text's tokens are let through by
// its masks, one after the other, as sampling would be. For `pelton grammar` and for tests of
// thousands of schemas. One thread.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/result.h"
#include "base/token_id.h"
#include "grammar/grammar.h"
#include "grammar/matcher.h"
#include "grammar/token_trie.h"

namespace pelton::grammar {

struct GrammarTrial {
  Result<std::shared_ptr<const TokenGrammar>> grammar;
  double compile_us = 0;  // of processor time, without what is done for the vocabulary
};
GrammarTrial try_compile(base::FunctionRef<Result<std::shared_ptr<const Grammar>>()> compile,
                         const std::shared_ptr<const TokenTrie>& trie);

enum class MaskTiming { kNo, kYes };
struct InstanceWalk {
  bool accepted = false;  // every token was let through, and the end too
  std::optional<size_t>
      cut_at_token;             // the first that was not; how many there are: the end was not
  std::vector<double> mask_us;  // kYes: of processor time, for each mask filled
};
InstanceWalk walk_instance(const std::shared_ptr<const TokenGrammar>& grammar,
                           std::span<const TokenId> tokens, MaskTiming timing);

// One line of JSON for programs: {"file", "status", "pointer", "message", "compile_us", "tests":
// [{"valid", "accepted", "cut_at_token", "mask_us"}]}. "status": "accepted", "refused" (with what
// and where) or "error" (ours).
struct TriedInstance {
  InstanceWalk walk;
  std::optional<bool> valid;  // what whoever wrote it says of it
};
std::string trial_line(std::string_view file, const GrammarTrial& trial,
                       std::span<const TriedInstance> instances, MaskTiming timing);
// Of a file that could not be tried at all.
std::string trial_error_line(std::string_view file, const Error& error);

}  // namespace pelton::grammar
