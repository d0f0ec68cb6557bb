#include "speculative/config.h"

#include <algorithm>
#include <array>
#include <limits>
#include <set>

#include <fmt/format.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/json.h"
#include "speculative/combined.h"
#include "speculative/draft_model.h"
#include "speculative/eagle3.h"
#include "speculative/lookahead.h"
#include "speculative/medusa.h"
#include "speculative/ngram.h"
#include "speculative/oracle.h"
#include "speculative/suffix.h"
#include "speculative/suffix_shared.h"

namespace pelton::speculative {
namespace {

using Method = Config::Method;

constexpr const char* kFlag = "speculative-config";

// What a proposer with weights sees of a sequence, unless max_model_len says otherwise.
constexpr int kModelTokens = 4096;

// Shorter than the longest match that suffix follows: where that one leads astray.
constexpr int kAutoLookupMin = 3;

struct MethodName {
  Method method;
  std::string_view name;
  int tokens_default;  // num_speculative_tokens, where it may be left out; 0: it may not
};
constexpr std::array kMethods = {
    MethodName{Method::kNGram, "ngram", 0},
    MethodName{Method::kSuffix, "suffix", 24},
    MethodName{Method::kSuffixShared, "suffix_shared", 24},
    MethodName{Method::kLookahead, "lookahead", 0},
    MethodName{Method::kDraftModel, "draft_model", 0},
    MethodName{Method::kEagle3, "eagle3", 0},
    MethodName{Method::kMedusa, "medusa", 0},
    MethodName{Method::kSuffixDraftModel, "suffix+draft_model", 0},
    MethodName{Method::kSuffixEagle3, "suffix+eagle3", 0},
    MethodName{Method::kAuto, "auto", 8},
    MethodName{Method::kOracle, "oracle", 0},
};

// Those of vLLM's and of the literature without a counterpart here.
constexpr std::array<std::string_view, 5> kForeignMethods = {"eagle", "mtp", "mlp_speculator",
                                                             "ngram_gpu", "custom_class"};

Error refusal(ErrorCode code, std::string_view field, std::string_view why) {
  return Error{code, fmt::format("--speculative-config: {}: {}", field, why), kFlag};
}

// vLLM's, without a counterpart here.
constexpr std::array<std::string_view, 10> kUnsupported = {
    "quantization",      "revision",
    "code_revision",     "disable_by_batch_size",
    "disable_logprobs",  "disable_padded_drafter_batch",
    "enforce_eager",     "speculative_token_tree",
    "parallel_drafting", "rejection_sample_method",
};

// The fields one after the other; what is wrong first is what is said.
class Reader {
 public:
  explicit Reader(const Json& json) : json_(json) {}

  Result<Config> read() {
    TRY(read_method());
    std::set<std::string_view> seen;
    for (const Json::Member& member : json_.as_object()) {
      if (!seen.insert(member.key).second) {
        return refusal(ErrorCode::kInvalidArgument, member.key, "give it once");
      }
      TRY(read_field(member.key, member.value));
    }
    TRY(check());
    return config_;
  }

 private:
  Result<void> read_method() {
    const std::optional<std::string> method = json_.string("method");
    const bool is_foreign = method && std::find(kForeignMethods.begin(), kForeignMethods.end(),
                                                *method) != kForeignMethods.end();
    std::string names;
    for (const MethodName& known : kMethods) {
      names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", known.name);
      if (method != known.name) continue;
      config_.method = known.method;
      config_.tokens_max = known.tokens_default;
    }
    if (config_.method != Method::kNone) return {};
    if (is_foreign) {
      return refusal(
          ErrorCode::kUnsupported, "method",
          fmt::format("\"{}\" is not supported by this version; give one of {}", *method, names));
    }
    return refusal(ErrorCode::kInvalidArgument, "method", fmt::format("give one of {}", names));
  }

  Result<void> read_field(std::string_view name, const Json& value) {
    if (name == "method") return {};
    if (name == "num_speculative_tokens") {
      return read_integer(name, value, 1, kDraftTokensMax, config_.tokens_max);
    }
    if (name == "adaptive") {
      if (!value.is_bool()) return wrong(name, "true or false");
      config_.adaptive = value.as_bool();
      return {};
    }
    if (name == "prompt_lookup_min" || name == "prompt_lookup_max") {
      TRY(needs(name, Method::kNGram));
      int& bound =
          name == "prompt_lookup_min" ? config_.prompt_lookup_min : config_.prompt_lookup_max;
      return read_integer(name, value, 1, NGram::kLengthMax, bound);
    }
    if (name.starts_with("suffix_")) return read_suffix_field(name, value);
    if (name == "model") {
      TRY(needs_model(name));
      if (!value.is_string()) return wrong(name, "a folder's name");
      config_.model = value.as_string();
      return {};
    }
    if (name == "draft_tensor_parallel_size") {  // in most of vLLM's recipes
      TRY(needs_model(name));
      int ranks = 0;
      return read_integer(name, value, 1, 1, ranks);
    }
    if (name == "max_model_len") {
      TRY(needs_model(name));
      if (config_.method == Method::kMedusa) {
        return refusal(ErrorCode::kInvalidArgument, name,
                       "Medusa heads look at one state, whatever the text's length");
      }
      int tokens = 0;
      TRY(read_integer(name, value, 2 * kDraftTokensMax, 1 << 20, tokens));
      config_.model_tokens = tokens;
      return {};
    }
    if (name == "answers") {
      TRY(needs(name, Method::kOracle));
      if (!value.is_string()) return wrong(name, "a file's name");
      config_.answers = value.as_string();
      return {};
    }
    if (name == "acceptance") {
      TRY(needs(name, Method::kOracle));
      return read_number(name, value, 0.0, 1.0, config_.acceptance);
    }
    return no_such(name);
  }

  Result<void> read_suffix_field(std::string_view name, const Json& value) {
    if (name == "suffix_decoding_max_tree_depth") {
      TRY(needs_suffix(name));
      return read_integer(name, value, 1, kDraftTokensMax, tree_depth_);
    }
    if (name == "suffix_decoding_max_spec_factor") {
      TRY(needs_suffix(name));
      return read_number(name, value, 0.0, 64.0, config_.suffix_spec_factor);
    }
    if (name == "suffix_tokens") {
      TRY(needs_suffix(name));
      return read_integer(name, value, 64, 1 << 20, config_.suffix_tokens);
    }
    if (name == "suffix_decoding_max_cached_requests") {
      TRY(needs(name, Method::kSuffixShared));
      return read_integer(name, value, 1, 1'000'000, config_.shared_answers);
    }
    if (name == "suffix_shared_tokens") {
      TRY(needs(name, Method::kSuffixShared));
      return read_integer(name, value, 1 << 10, 1 << 28, config_.shared_tokens);
    }
    if (name == "suffix_decoding_min_token_prob") {
      TRY(needs(name, Method::kSuffixShared));
      return read_number(name, value, 0.0, 1.0, config_.shared_probability_min);
    }
    return no_such(name);
  }

  static Result<void> no_such(std::string_view name) {
    const bool is_known =
        std::find(kUnsupported.begin(), kUnsupported.end(), name) != kUnsupported.end();
    if (is_known) return refusal(ErrorCode::kUnsupported, name, "this is not supported");
    return refusal(ErrorCode::kInvalidArgument, name, "there is no such field");
  }

  Result<void> check() {
    if (tree_depth_ > 0) {
      config_.tokens_max = std::min(config_.tokens_max, tree_depth_);
    }
    if (config_.tokens_max == 0) {
      return refusal(ErrorCode::kInvalidArgument, "num_speculative_tokens",
                     fmt::format("the method \"{}\" needs it", name_of(config_.method)));
    }
    // As in vLLM: one of them alone is both.
    const bool has_min = json_.find("prompt_lookup_min") != nullptr;
    const bool has_max = json_.find("prompt_lookup_max") != nullptr;
    if (has_min && !has_max) config_.prompt_lookup_max = config_.prompt_lookup_min;
    if (has_max && !has_min) config_.prompt_lookup_min = config_.prompt_lookup_max;
    if (config_.prompt_lookup_min > config_.prompt_lookup_max) {
      return wrong("prompt_lookup_min", "at most prompt_lookup_max");
    }
    if (config_.takes_model() && config_.model.empty() && config_.method != Method::kAuto) {
      return refusal(
          ErrorCode::kInvalidArgument, "model",
          fmt::format("the method \"{}\" needs a model's folder", name_of(config_.method)));
    }
    for (const std::string_view name : {"model", "max_model_len", "draft_tensor_parallel_size"}) {
      if (config_.takes_model() && config_.model.empty() && json_.find(name) != nullptr) {
        return refusal(ErrorCode::kInvalidArgument, name,
                       "the method \"auto\" has a use for it with a \"model\" only, a folder");
      }
    }
    return {};
  }

  Result<void> needs(std::string_view field, Method method) const {
    if (config_.method == method) return {};
    return refusal(ErrorCode::kInvalidArgument, field,
                   fmt::format("this is a field of the method \"{}\"", name_of(method)));
  }

  Result<void> needs_model(std::string_view field) const {
    if (config_.takes_model()) return {};
    return refusal(ErrorCode::kInvalidArgument, field,
                   "this is a field of the methods \"draft_model\", \"eagle3\" and \"medusa\"");
  }

  Result<void> needs_suffix(std::string_view field) const {
    const Method method = config_.method;
    const bool has_suffix = method == Method::kSuffix || method == Method::kSuffixShared ||
                            method == Method::kSuffixDraftModel ||
                            method == Method::kSuffixEagle3 || method == Method::kAuto;
    if (has_suffix) return {};
    return refusal(ErrorCode::kInvalidArgument, field, "this is a field of the method \"suffix\"");
  }

  static Result<void> wrong(std::string_view field, std::string_view wanted) {
    return refusal(ErrorCode::kInvalidArgument, field, fmt::format("give {}", wanted));
  }

  static Result<void> read_integer(std::string_view name, const Json& value, int least, int most,
                                   int& into) {
    const bool fits =
        value.is_integer() && value.as_integer() >= least && value.as_integer() <= most;
    if (!fits && least == most) return wrong(name, fmt::format("{}, or leave it out", least));
    if (!fits) return wrong(name, fmt::format("an integer from {} to {}", least, most));
    into = static_cast<int>(value.as_integer());
    return {};
  }

  static Result<void> read_number(std::string_view name, const Json& value, double least,
                                  double most, double& into) {
    const bool fits = value.is_number() && value.as_number() >= least && value.as_number() <= most;
    if (!fits) return wrong(name, fmt::format("a number from {} to {}", least, most));
    into = value.as_number();
    return {};
  }

  const Json& json_;
  Config config_;
  int tree_depth_ = 0;
};

Suffix::Options suffix_options(const Config& config, int slot_count) {
  return {.slot_count = slot_count,
          .tokens_max = config.suffix_tokens,
          .guesses_per_matched_token = config.suffix_spec_factor};
}

SuffixShared::Options shared_options(const Config& config, int slot_count) {
  return {.slot_count = slot_count,
          .pool = {.tokens_max = config.shared_tokens, .answers_max = config.shared_answers},
          .guesses_per_matched_token = config.suffix_spec_factor,
          .probability_min = config.shared_probability_min};
}

NGram::Options ngram_options(const Config& config, int slot_count) {
  return {.slot_count = slot_count,
          .shortest = config.prompt_lookup_min,
          .longest = config.prompt_lookup_max};
}

// Room for tokens at whose positions nobody computes would never be used; where a context ends
// guesses are no longer what the model was trained for. `whose` is named by errors.
Result<int> within_context(const Config& config, int tokens, std::string_view whose, int context) {
  if (tokens <= context) return tokens;
  if (!config.model_tokens) return context;
  return refusal(ErrorCode::kInvalidArgument, "max_model_len",
                 fmt::format("is {}, and {} has a context of {} tokens: give at most {}", tokens,
                             whose, context, context));
}

// target: null where nothing is known of it.
Result<int> model_tokens(const Config& config, const families::ModelConfig* target) {
  const int asked = config.model_tokens.value_or(kModelTokens);
  if (target == nullptr) return asked;
  return within_context(config, asked, "the model", target->context_max);
}

Result<int> draft_model_tokens(const Config& config, const families::ModelConfig* target) {
  TRY_ASSIGN(const int tokens, model_tokens(config, target));
  TRY_ASSIGN(const int context, DraftModel::context_of(config.model));
  return within_context(config, tokens, fmt::format("the draft model {}", config.model), context);
}

Result<Eagle3::Options> eagle3_options(const Config& config, int slot_count, int batch_tokens_max,
                                       const families::ModelConfig& target) {
  TRY_ASSIGN(const int tokens, model_tokens(config, &target));
  return Eagle3::Options{.head = config.model,
                         .slot_count = slot_count,
                         .tokens_max = std::max(tokens, config.tokens_max + 1),
                         .batch_tokens_max = batch_tokens_max,
                         .guesses_max = config.tokens_max};
}

// What is wrong with a folder is of the field that names it.
template <typename T>
Result<T> of_its_model(const Config& config, Result<T> result) {
  if (result.ok() || !config.takes_model() || result.error().field == kFlag) return result;
  return refusal(result.error().code, "model", result.error().message);
}

Result<std::shared_ptr<Proposer>> make_draft_model(const Config& config, const ModelFacts& facts) {
  CHECK(facts.pool != nullptr);
  TRY_ASSIGN(const kernels::KernelChoice kernels, kernels::parse_kernel_choice(facts.kernels));
  const families::ModelConfig* const target =
      facts.target == nullptr ? nullptr : &facts.target->config();
  TRY_ASSIGN(const int tokens, draft_model_tokens(config, target));
  TRY_ASSIGN(std::shared_ptr<DraftModel> model,
             DraftModel::load({.model = config.model,
                               .slot_count = facts.slot_count,
                               .vocab_size = facts.vocab_size,
                               .sampled_vocab = facts.sampled_vocab,
                               .tokens_max = tokens,
                               .kernels = kernels},
                              *facts.pool));
  return std::shared_ptr<Proposer>(std::move(model));
}

Result<std::shared_ptr<Proposer>> make_eagle3(const Config& config, const ModelFacts& facts) {
  CHECK(facts.pool != nullptr && facts.target != nullptr);
  TRY_ASSIGN(
      Eagle3::Options options,
      eagle3_options(config, facts.slot_count, facts.batch_tokens_max, facts.target->config()));
  options.sampled_vocab = facts.sampled_vocab;
  TRY_ASSIGN(options.kernels, kernels::parse_kernel_choice(facts.kernels));
  TRY_ASSIGN(std::shared_ptr<Eagle3> head, Eagle3::load(options, *facts.target, *facts.pool));
  return std::shared_ptr<Proposer>(std::move(head));
}

Medusa::Options medusa_options(const Config& config, int slot_count, int batch_tokens_max) {
  return {.heads = config.model, .slot_count = slot_count, .batch_tokens_max = batch_tokens_max};
}

Result<std::shared_ptr<Proposer>> make_medusa(const Config& config, const ModelFacts& facts) {
  CHECK(facts.pool != nullptr && facts.target != nullptr);
  Medusa::Options options = medusa_options(config, facts.slot_count, facts.batch_tokens_max);
  options.sampled_vocab = facts.sampled_vocab;
  TRY_ASSIGN(options.kernels, kernels::parse_kernel_choice(facts.kernels));
  TRY_ASSIGN(std::shared_ptr<Medusa> heads,
             Medusa::load(options, *facts.target, facts.target_head, *facts.pool));
  return std::shared_ptr<Proposer>(std::move(heads));
}

// More guesses than heads would never come.
Result<void> check_heads(const Config& config) {
  TRY_ASSIGN(const int heads, of_its_model(config, MedusaHeads::count_in(config.model)));
  if (config.tokens_max <= heads) return {};
  return refusal(ErrorCode::kInvalidArgument, "num_speculative_tokens",
                 fmt::format("is {}, and {} has {} Medusa heads: give at most {}",
                             config.tokens_max, config.model, heads, heads));
}

// With weights: a head of either kind, or else a draft model.
Result<Method> method_in(const Config& config) {
  TRY_ASSIGN(const bool is_eagle3, of_its_model(config, Eagle3Head::is_in(config.model)));
  if (is_eagle3) return Method::kEagle3;
  TRY_ASSIGN(const bool is_medusa, of_its_model(config, MedusaHeads::is_in(config.model)));
  return is_medusa ? Method::kMedusa : Method::kDraftModel;
}

Result<std::shared_ptr<Proposer>> make_oracle(const Config& config, const ModelFacts& facts) {
  if (config.answers.empty()) {
    return refusal(ErrorCode::kInvalidArgument, "answers", "the method \"oracle\" needs a file");
  }
  TRY_ASSIGN(Oracle::Answers answers, Oracle::read_answers(config.answers));
  return std::shared_ptr<Proposer>(
      std::make_shared<Oracle>(Oracle::Options{.acceptance = config.acceptance,
                                               .vocab_size = facts.vocab_size,
                                               .slot_count = facts.slot_count},
                               std::move(answers)));
}

}  // namespace

Result<Config> parse_config(std::string_view json) {
  const Result<Json> parsed = Json::parse(json);
  if (!parsed.ok() || !parsed->is_object()) {
    return Error{ErrorCode::kInvalidArgument,
                 "--speculative-config: give a JSON object, as "
                 "'{\"method\":\"ngram\",\"num_speculative_tokens\":4}'",
                 kFlag};
  }
  return Reader(*parsed).read();
}

bool Config::takes_model() const {
  switch (method) {
    case Method::kDraftModel:
    case Method::kEagle3:
    case Method::kMedusa:
    case Method::kSuffixDraftModel:
    case Method::kSuffixEagle3:
    case Method::kAuto:
      return true;
    default:
      return false;
  }
}

Result<std::vector<Config>> Config::parts() const {
  std::vector<Config> parts;
  const auto add = [&](Method part) {
    parts.push_back(*this);
    parts.back().method = part;
  };
  switch (method) {
    case Method::kNone:
      break;
    case Method::kSuffixShared:
      add(Method::kSuffix);
      add(Method::kSuffixShared);
      break;
    case Method::kSuffixDraftModel:
      add(Method::kSuffix);
      add(Method::kDraftModel);
      break;
    case Method::kSuffixEagle3:
      add(Method::kSuffix);
      add(Method::kEagle3);
      break;
    case Method::kAuto: {
      add(Method::kSuffix);
      add(Method::kNGram);
      parts.back().prompt_lookup_min = kAutoLookupMin;
      if (model.empty()) break;
      TRY_ASSIGN(const Method with_weights, method_in(*this));
      add(with_weights);
      break;
    }
    case Method::kMedusa:
      TRY(check_heads(*this));
      add(method);
      break;
    default:
      add(method);
  }
  return parts;
}

std::string_view name_of(Config::Method method) {
  for (const MethodName& known : kMethods) {
    if (known.method == method) return known.name;
  }
  return "none";
}

namespace {

// Of one that is no combination.
Result<int64_t> bytes_of_one(const Config& config, const BytesFacts& facts) {
  const int slot_count = facts.slot_count;
  switch (config.method) {
    case Method::kNGram:
      return NGram::bytes_for(ngram_options(config, slot_count));
    case Method::kSuffix:
      return Suffix::bytes_for(suffix_options(config, slot_count));
    case Method::kSuffixShared:
      return SuffixShared::bytes_for(shared_options(config, slot_count));
    case Method::kLookahead:
      return Lookahead::bytes_for(slot_count);
    case Method::kDraftModel: {
      TRY_ASSIGN(const int tokens, draft_model_tokens(config, facts.target));
      return DraftModel::bytes_for(
          {.model = config.model, .slot_count = slot_count, .tokens_max = tokens}, facts.kernels,
          facts.kv_dtype, facts.threads);
    }
    case Method::kEagle3: {
      CHECK(facts.target != nullptr);
      TRY_ASSIGN(const Eagle3::Options options,
                 eagle3_options(config, slot_count, facts.batch_tokens_max, *facts.target));
      return Eagle3::bytes_for(options, *facts.target,
                               {.is_reference = facts.kernels == cost_model::KernelKind::kReference,
                                .kv_dtype = facts.kv_dtype,
                                .threads = facts.threads});
    }
    case Method::kMedusa:
      CHECK(facts.target != nullptr);
      return Medusa::bytes_for(medusa_options(config, slot_count, facts.batch_tokens_max),
                               *facts.target,
                               {.is_reference = facts.kernels == cost_model::KernelKind::kReference,
                                .threads = facts.threads});
    default:
      return int64_t{0};
  }
}

Result<std::shared_ptr<Proposer>> make_one(const Config& config, const ModelFacts& facts) {
  switch (config.method) {
    case Method::kNGram:
      return std::shared_ptr<Proposer>(
          std::make_shared<NGram>(ngram_options(config, facts.slot_count)));
    case Method::kSuffixShared:
      return std::shared_ptr<Proposer>(
          std::make_shared<SuffixShared>(shared_options(config, facts.slot_count)));
    case Method::kSuffix:
      return std::shared_ptr<Proposer>(
          std::make_shared<Suffix>(suffix_options(config, facts.slot_count)));
    case Method::kLookahead:
      return std::shared_ptr<Proposer>(std::make_shared<Lookahead>(facts.slot_count));
    case Method::kDraftModel:
      return make_draft_model(config, facts);
    case Method::kEagle3:
      return make_eagle3(config, facts);
    case Method::kMedusa:
      return make_medusa(config, facts);
    case Method::kOracle:
      return make_oracle(config, facts);
    default:
      CHECK(false, "a combination is made of its parts");
  }
  return std::shared_ptr<Proposer>();
}

bool has_weights(const Config& part) {
  return part.method == Method::kDraftModel || part.method == Method::kEagle3 ||
         part.method == Method::kMedusa;
}

}  // namespace

Result<int64_t> bytes_for(const Config& config, const BytesFacts& facts) {
  TRY_ASSIGN(const std::vector<Config> parts, config.parts());
  int64_t bytes = 0;
  for (const Config& part : parts) {
    TRY_ASSIGN(const int64_t of_part, of_its_model(part, bytes_of_one(part, facts)));
    bytes += of_part;
  }
  return bytes;
}

Result<std::shared_ptr<Proposer>> make_proposer(const Config& config, const ModelFacts& facts) {
  static const base::SystemClock clock;
  TRY_ASSIGN(const std::vector<Config> configs, config.parts());
  std::vector<Combined::Part> parts;
  for (const Config& part : configs) {
    TRY_ASSIGN(std::shared_ptr<Proposer> made, of_its_model(part, make_one(part, facts)));
    parts.push_back({std::move(made), has_weights(part)});
  }
  if (parts.empty()) return std::shared_ptr<Proposer>();
  if (parts.size() == 1) return parts[0].proposer;
  const auto rule = config.method == Method::kAuto || config.method == Method::kSuffixShared
                        ? Combined::Rule::kBest
                        : Combined::Rule::kLongMatch;
  return std::shared_ptr<Proposer>(std::make_shared<Combined>(
      Combined::Options{
          .name = name_of(config.method), .rule = rule, .slot_count = facts.slot_count},
      std::move(parts), clock));
}

}  // namespace pelton::speculative
