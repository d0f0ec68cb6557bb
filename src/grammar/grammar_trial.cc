#include "grammar/grammar_trial.h"

#include <cstdint>
#include <ctime>
#include <utility>

#include <fmt/format.h>

#include "base/json_writer.h"

namespace pelton::grammar {
namespace {

double thread_cpu_us() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

void write_instance(base::JsonWriter& writer, const TriedInstance& instance, MaskTiming timing) {
  writer.begin_object().key("valid");
  if (instance.valid) {
    writer.boolean(*instance.valid);
  } else {
    writer.null();
  }
  writer.key("accepted").boolean(instance.walk.accepted).key("cut_at_token");
  if (instance.walk.cut_at_token) {
    writer.integer(static_cast<int64_t>(*instance.walk.cut_at_token));
  } else {
    writer.null();
  }
  if (timing == MaskTiming::kYes) {
    writer.key("mask_us").begin_array();
    for (const double us : instance.walk.mask_us) writer.raw(fmt::format("{:.2f}", us));
    writer.end_array();
  }
  writer.end_object();
}

}  // namespace

GrammarTrial try_compile(base::FunctionRef<Result<std::shared_ptr<const Grammar>>()> compile,
                         const std::shared_ptr<const TokenTrie>& trie) {
  const double begin = thread_cpu_us();
  Result<std::shared_ptr<const Grammar>> made = compile();
  const double us = thread_cpu_us() - begin;
  if (!made.ok()) return {.grammar = made.error(), .compile_us = us};
  return {.grammar = TokenGrammar::make(std::move(*made), trie), .compile_us = us};
}

InstanceWalk walk_instance(const std::shared_ptr<const TokenGrammar>& grammar,
                           std::span<const TokenId> tokens, MaskTiming timing) {
  InstanceWalk walk;
  Matcher matcher(grammar);
  std::vector<uint64_t> mask(grammar->trie().mask_words());
  for (size_t i = 0; i < tokens.size(); ++i) {
    const bool timed = timing == MaskTiming::kYes;
    const double begin = timed ? thread_cpu_us() : 0;
    matcher.fill_mask(mask);
    if (timed) walk.mask_us.push_back(thread_cpu_us() - begin);
    const auto token = static_cast<size_t>(tokens[i]);
    const bool allowed = (mask[token / 64] >> (token % 64) & 1) != 0;
    if (!allowed || !matcher.accept(tokens[i])) {
      walk.cut_at_token = i;
      return walk;
    }
  }
  walk.accepted = matcher.can_end();
  if (!walk.accepted) walk.cut_at_token = tokens.size();
  return walk;
}

std::string trial_line(std::string_view file, const GrammarTrial& trial,
                       std::span<const TriedInstance> instances, MaskTiming timing) {
  std::string out;
  base::JsonWriter writer(out);
  writer.begin_object().key("file").string(file);
  if (!trial.grammar.ok()) {
    const Error& error = trial.grammar.error();
    writer.key("status").string(error.code == ErrorCode::kInternal ? "error" : "refused");
    writer.key("pointer").string(error.field);
    writer.key("message").string(error.message);
    writer.key("compile_us").number(trial.compile_us);
    writer.key("tests").begin_array().end_array().end_object();
    return out + "\n";
  }
  writer.key("status").string("accepted").key("pointer").null();
  writer.key("compile_us").number(trial.compile_us).key("tests").begin_array();
  for (const TriedInstance& instance : instances) write_instance(writer, instance, timing);
  writer.end_array().end_object();
  return out + "\n";
}

std::string trial_error_line(std::string_view file, const Error& error) {
  std::string out;
  base::JsonWriter writer(out);
  writer.begin_object().key("file").string(file).key("status").string("error");
  writer.key("pointer").string(error.field).key("message").string(error.message);
  writer.key("compile_us").integer(0).key("tests").begin_array().end_array().end_object();
  return out + "\n";
}

}  // namespace pelton::grammar
