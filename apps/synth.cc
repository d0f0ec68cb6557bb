// pelton synth: a checkpoint of random weights in the published layout.
#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "apps/verbs.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/thread_pool.h"
#include "chat/synthetic_template.h"
#include "checkpoint/synthetic.h"
#include "cli/human_size.h"
#include "cli/progress.h"
#include "families/published_config.h"
#include "lora/random_adapter.h"
#include "speculative/random_eagle3.h"
#include "speculative/random_medusa.h"
#include "tokenizer/ggml_vocabulary.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_json_writer.h"

namespace pelton::apps {
namespace {

using cli::Flag;

// Empty for a vocabulary too small for every byte and the control tokens: such a model is run on
// token ids.
Result<tokenizer::SyntheticTokenizer> make_tokenizer(int vocab_size, std::string_view model_type) {
  if (vocab_size < tokenizer::kSyntheticVocabularyMin) {
    fmt::print(stderr, "a vocabulary of {} has no room for text: no tokenizer is written\n",
               vocab_size);
    return tokenizer::SyntheticTokenizer();
  }
  return tokenizer::synthetic_tokenizer_for(model_type, vocab_size);
}

// tokenizer.json, and where the family's chats are written by a template, tokenizer_config.json.
Result<void> write_text_files(const tokenizer::SyntheticTokenizer& made,
                              std::string_view model_type, const std::string& folder) {
  TRY(base::write_file(folder + "/tokenizer.json", made.json));
  const std::string_view chat_template = chat::synthetic_template(model_type);
  if (chat_template.empty()) return {};
  Json config;
  config.set("bos_token", made.bos_token).set("eos_token", made.eos_token);
  config.set("chat_template", std::string(chat_template));
  return base::write_file(folder + "/tokenizer_config.json", config.dump());
}

// The vocabulary's own first and last tokens, whatever the shape's configuration says of the
// published one.
Result<void> set_ends(const tokenizer::SyntheticTokenizer& made,
                      checkpoint::SyntheticOptions& options) {
  if (made.json.empty()) return {};
  TRY_ASSIGN(const tokenizer::Tokenizer tokenizer,
             tokenizer::Tokenizer::from_json(made.json, "the synthetic tokenizer"));
  for (const auto& [key, text] :
       {std::pair("bos_token_id", &made.bos_token), std::pair("eos_token_id", &made.eos_token)}) {
    const std::optional<TokenId> id = tokenizer.special_id(*text);
    if (!id) continue;
    options.config.set(key, *id);
    options.generation.set(key, *id);
  }
  return {};
}

Result<checkpoint::GgufOptions> gguf_options(const cli::Arguments& arguments,
                                             const tokenizer::SyntheticTokenizer& tokenizer,
                                             int vocab_size, std::string_view model_type) {
  checkpoint::GgufOptions options;
  const std::string& type = arguments.text("--gguf-type");
  if (type == "q8_0") options.matrices = tensor::DType::kQ8_0;
  if (type == "q4_k_m") options.matrices = tensor::DType::kQ4_K;
  if (tokenizer.json.empty()) return options;
  TRY_ASSIGN(tokenizer::GgmlTables tables,
             tokenizer::ggml_tables_of(tokenizer.json, "the synthetic tokenizer", vocab_size));
  options.vocabulary.begins_with_bos = !tokenizer.bos_token.empty();
  options.vocabulary.tokens = std::move(tables.tokens);
  options.vocabulary.merges = std::move(tables.merges);
  options.vocabulary.types = std::move(tables.types);
  options.vocabulary.chat_template = chat::synthetic_template(model_type);
  return options;
}

// An EAGLE-3 head or Medusa heads for a model of that shape, instead of the model.
Result<void> write_drafter(const checkpoint::SyntheticOptions& options,
                           const cli::Arguments& arguments) {
  const std::string& out = arguments.text("OUT");
  TRY_ASSIGN(const families::ModelConfig target,
             families::parse_model_config(options.config, nullptr, arguments.text("--like")));
  if (arguments.text("--drafter") == "medusa") {
    return speculative::write_random_medusa(speculative::random_medusa_config(options.config),
                                            target, options.seed, out);
  }
  return speculative::write_random_eagle3(speculative::random_eagle3_config(options.config), target,
                                          options.seed, out);
}

// A LoRA adapter for a model of that shape, instead of the model.
Result<void> write_adapter(const checkpoint::SyntheticOptions& options,
                           const cli::Arguments& arguments) {
  TRY_ASSIGN(const families::ModelConfig base,
             families::parse_model_config(options.config, nullptr, arguments.text("--like")));
  const std::string& targets = arguments.text("--lora");
  const bool is_fused = base.glu == families::Glu::kClampedSwiglu;
  lora::RandomAdapter adapter{.base = arguments.text("--like"),
                              .seed = options.seed,
                              .rank = static_cast<int>(arguments.integer("--lora-rank"))};
  adapter.alpha = 2.0 * adapter.rank;
  if (arguments.has("--lora-alpha")) adapter.alpha = arguments.number("--lora-alpha");
  // The end of an MLP's path, and of an expert's.
  constexpr std::string_view kOfMlps = "mlp\\..*";
  if (arguments.has("--lora-experts-rank")) {
    const int64_t rank = arguments.integer("--lora-experts-rank");
    adapter.rank_pattern.set(kOfMlps, rank);
    adapter.alpha_pattern.set(kOfMlps, 2 * rank);
  }
  if (arguments.has("--lora-experts-alpha")) {
    adapter.alpha_pattern.set(kOfMlps, arguments.number("--lora-experts-alpha"));
  }
  if (targets == "experts") adapter.parts.clear();
  if (targets != "attention") {
    const std::vector<std::string> of_experts =
        is_fused ? std::vector<std::string>{"gate_up", "down"}
                 : std::vector<std::string>{"gate", "up", "down"};
    adapter.parts.insert(adapter.parts.end(), of_experts.begin(), of_experts.end());
  }
  return lora::write_random_adapter(
      adapter, base, is_fused ? lora::WrittenLayout::kPeft : lora::WrittenLayout::kApart,
      arguments.text("OUT"));
}

Result<void> run_synth(const cli::Arguments& arguments) {
  const std::string& out = arguments.text("OUT");
  const std::string& format = arguments.text("--format");
  TRY_ASSIGN(checkpoint::SyntheticOptions options,
             checkpoint::synthetic_like(arguments.text("--like"),
                                        static_cast<int>(arguments.integer("--layers"))));
  options.seed = static_cast<uint64_t>(arguments.integer("--seed"));
  if (arguments.has("--drafter")) return write_drafter(options, arguments);
  if (arguments.has("--lora")) return write_adapter(options, arguments);
  const auto vocab_size = static_cast<int>(options.config.integer("vocab_size").value_or(0));
  const std::string model_type = options.config.string("model_type").value_or("");
  TRY_ASSIGN(const tokenizer::SyntheticTokenizer tokenizer, make_tokenizer(vocab_size, model_type));
  TRY(set_ends(tokenizer, options));

  const base::SystemClock clock;
  base::ThreadPool pool({});
  const base::ThreadPool::PinnedCaller pinned = pool.adopt_caller();
  const int64_t start_ns = clock.now_ns();
  int64_t bytes = 0;
  {
    cli::Progress progress("writing", cli::Progress::Unit::kBytes, clock);
    const auto report = [&](int64_t done, int64_t total) {
      bytes = total;
      progress.update(done, total);
    };
    if (format == "gguf") {
      TRY_ASSIGN(const checkpoint::GgufOptions gguf,
                 gguf_options(arguments, tokenizer, vocab_size, model_type));
      const std::string file = out.ends_with(".gguf") ? out : out + "/model.gguf";
      TRY(checkpoint::write_synthetic_gguf(options, gguf, file, pool, report));
    } else if (format == "original") {
      TRY(checkpoint::write_synthetic_original(options, out, pool, report));
    } else {
      TRY(checkpoint::write_synthetic(options, out, pool, report));
    }
  }
  if (format != "gguf" && !tokenizer.json.empty()) {
    TRY(write_text_files(tokenizer, model_type, out));
  }
  const double seconds = static_cast<double>(clock.now_ns() - start_ns) * 1e-9;
  fmt::print(stderr, "{}: {} of random weights in {} ({}/s)\n", out,
             cli::format_bytes(static_cast<double>(bytes)), cli::format_duration(seconds),
             cli::format_bytes(static_cast<double>(bytes) / seconds));
  return {};
}

// What an adapter is made of.
std::vector<Flag> lora_flags() {
  return {{.name = "--lora",
           .value = "WHICH",
           .help = "not the model but a LoRA adapter for it, on these matrices (of dense "
                   "models 'experts' are MLPs)",
           .choices = {"attention", "experts", "all"},
           .not_with = {{"--format"}, {"--gguf-type"}, {"--drafter"}}},
          {.name = "--lora-rank",
           .value = "R",
           .help = "the adapter's rank",
           .kind = Flag::Kind::kInteger,
           .default_text = "8",
           .least = 1,
           .most = 256,
           .only_with = {{"--lora"}}},
          {.name = "--lora-alpha",
           .value = "A",
           .help = "its alpha, which the rank divides; twice the rank unless given",
           .kind = Flag::Kind::kNumber,
           .least = 0.001,
           .most = 65536,
           .only_with = {{"--lora"}}},
          {.name = "--lora-experts-rank",
           .value = "R",
           .help = "another rank for experts and MLPs",
           .kind = Flag::Kind::kInteger,
           .least = 1,
           .most = 256,
           .only_with = {{"--lora", {"all", "experts"}}}},
          {.name = "--lora-experts-alpha",
           .value = "A",
           .help = "another alpha for them; twice --lora-experts-rank unless given",
           .kind = Flag::Kind::kNumber,
           .least = 0.001,
           .most = 65536,
           .only_with = {{"--lora", {"all", "experts"}}}}};
}

}  // namespace

cli::Verb synth_verb() {
  cli::Verb verb{
      .name = "synth",
      .summary = "Writes a random-weight checkpoint of a given shape.",
      .about =
          "For measuring where the real weights cannot be had: config.json, safetensors and\n"
          "tokenizer.json in the published layout, with sane scales and the family's control "
          "tokens. Same shape and seed, same "
          "bytes.\n"
          "--format writes the same weights in OpenAI's original layout or as one GGUF file: with\n"
          "--gguf-type bf16 they compute the same bits, with q8_0 nearly so; q4_k_m mixes types "
          "by\n"
          "tensor as llama.cpp does.",
      .positionals = {{"OUT", "the folder to make, or a FILE.gguf"}},
      .flags = {{.name = "--like",
                 .value = "SHAPE",
                 .help = families::published_model_names() + " or a config.json",
                 .required = true},
                {.name = "--layers",
                 .value = "N",
                 .help = "so many layers instead of the shape's; 0 keeps them",
                 .kind = Flag::Kind::kInteger,
                 .default_text = "0",
                 .most = 1024},
                {.name = "--drafter",
                 .value = "KIND",
                 .help = "not the model but heads that draft for it: their draft tokens are worth "
                         "nothing, and cost what those of a trained one do",
                 .choices = {"eagle3", "medusa"},
                 .not_with = {{"--format"}, {"--gguf-type"}}},
                {.name = "--format",
                 .value = "F",
                 .help = "the layout",
                 .default_text = "hf",
                 .choices = {"hf", "original", "gguf"}},
                {.name = "--gguf-type",
                 .value = "T",
                 .help = "what a GGUF file holds its matrices in (MXFP4 experts stay so)",
                 .default_text = "bf16",
                 .choices = {"bf16", "q8_0", "q4_k_m"},
                 .only_with = {{"--format", {"gguf"}}}},
                {.name = "--seed",
                 .value = "S",
                 .help = "of the random weights",
                 .kind = Flag::Kind::kInteger,
                 .default_text = "0"}},
      .examples = {"pelton synth --like gpt-oss-20b /data/synthetic-20b",
                   "pelton synth --like gpt-oss-120b --layers 2 ./small",
                   "pelton synth --like ./my-config.json --seed 7 ./mine",
                   "pelton synth --like gpt-oss-20b --layers 2 --format gguf ./small.gguf",
                   "pelton synth --like qwen3-0.6b --format gguf --gguf-type q4_k_m ./q4.gguf",
                   "pelton synth --like gpt-oss-20b --drafter eagle3 ./head",
                   "pelton synth --like gpt-oss-20b --lora all --lora-rank 16 "
                   "--lora-experts-rank 8 ./adapter"},
      .run = run_synth,
  };
  // Behind --drafter: instead of the model, both.
  std::ranges::move(lora_flags(), std::inserter(verb.flags, verb.flags.begin() + 3));
  return verb;
}

}  // namespace pelton::apps
