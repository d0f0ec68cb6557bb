// pelton embed: the exact vectors or scores of texts, as a .npy file or as JSON, outside the
// server.
#include <algorithm>
#include <charconv>
#include <optional>

#include <fmt/format.h>

#include "apps/input.h"
#include "apps/loading.h"
#include "apps/verbs.h"
#include "base/json_writer.h"
#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/sentence_config.h"
#include "kernels/kernels.h"
#include "models/model.h"
#include "models/pooled_texts.h"
#include "node/model_tokenizer.h"
#include "tensor/kv_block.h"
#include "tensor/npy.h"

namespace pelton::apps {
namespace {

using cli::Flag;
using Of = models::PooledRequest::Of;

constexpr int kStepTokensMin = 512;

// What is to be computed, and how the result is shown.
struct Job {
  std::vector<models::PooledText> texts;
  models::PooledRequest request;
  bool normalises = false;
  std::optional<int64_t> dimensions;
};

Result<std::vector<TokenId>> parse_label_tokens(const std::string& text) {
  std::vector<TokenId> tokens;
  for (size_t at = 0; at < text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    TokenId token = -1;
    const auto [end, failure] = std::from_chars(text.data() + at, text.data() + comma, token);
    if (failure != std::errc{} || end != text.data() + comma || token < 0) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("--label-tokens wants ids with commas between them, not '{}'", text),
                   "label-tokens"};
    }
    tokens.push_back(token);
    at = comma + 1;
  }
  return tokens;
}

// As asked for, as the files of sentence-transformers say, or as the model's kind has it.
Result<Of> pooling_of(const cli::Arguments& arguments, const checkpoint::SentenceConfig& sentences,
                      bool is_encoder) {
  const std::string& asked = arguments.text("--pooling");
  std::string_view name = asked;
  if (asked == "auto") {
    name = sentences.pooling ? checkpoint::pooling_name(*sentences.pooling)
           : is_encoder      ? "mean"
                             : "last";
  }
  if (name == "cls" && !is_encoder) {
    return Error{ErrorCode::kInvalidArgument,
                 "--pooling cls is an encoder's: a decoder's first token sees nothing but itself",
                 "pooling"};
  }
  return name == "cls" ? Of::kFirst : name == "mean" ? Of::kMean : Of::kLast;
}

Result<std::string> prompt_of(const cli::Arguments& arguments,
                              const checkpoint::SentenceConfig& sentences) {
  const std::string& name =
      arguments.has("--prompt-name") ? arguments.text("--prompt-name") : sentences.default_prompt;
  if (name.empty()) return std::string();
  if (const std::string* const found = sentences.prompt(name)) return *found;
  std::string known;
  for (const auto& [one, text] : sentences.prompts) {
    known += fmt::format("{}{}", known.empty() ? "" : ", ", one);
  }
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("--prompt-name {}: the model has {}", name,
                           known.empty() ? "no prompts" : "the prompts " + known),
               "prompt-name"};
}

// --text, or the lines of --file.
Result<std::vector<std::string>> read_texts(const cli::Arguments& arguments) {
  if (arguments.has("--text")) return arguments.list("--text");
  TRY_ASSIGN(const std::string file,
             read_input(arguments.has("--file") ? arguments.text("--file") : std::string("-")));
  std::vector<std::string> lines;
  for (size_t at = 0; at < file.size();) {
    const size_t end = std::min(file.find('\n', at), file.size());
    lines.push_back(file.substr(at, end - at));
    at = end + 1;
  }
  if (!lines.empty()) return lines;
  return Error{ErrorCode::kInvalidArgument, "no text: give --text, --file or --tokens"};
}

Result<std::vector<models::PooledText>> tokenized(const cli::Arguments& arguments,
                                                  const checkpoint::Checkpoint& checkpoint,
                                                  const checkpoint::SentenceConfig& sentences) {
  std::vector<models::PooledText> texts;
  if (arguments.has("--tokens")) {
    TRY_ASSIGN(auto sequences, read_sequences_file(arguments.text("--tokens")));
    for (std::vector<TokenId>& ids : sequences) texts.push_back({.tokens = std::move(ids)});
    return texts;
  }
  TRY_ASSIGN(const auto tokenizer, node::read_model_tokenizer(checkpoint));
  if (tokenizer == nullptr) {
    return Error{ErrorCode::kNotFound,
                 fmt::format("{} has no tokenizer; give --tokens", checkpoint.folder())};
  }
  const int most = std::min(checkpoint.config().context_max,
                            sentences.tokens_max.value_or(checkpoint.config().context_max));
  TRY_ASSIGN(const std::string prompt, prompt_of(arguments, sentences));
  TRY_ASSIGN(const std::vector<std::string> read, read_texts(arguments));
  for (const std::string& text : read) {
    if (!arguments.has("--query")) {
      texts.push_back({.tokens = tokenizer->encode_prompt(prompt + text)});
      tokenizer->cut_prompt(texts.back().tokens, static_cast<size_t>(most),
                            tokenizer::Tokenizer::Cut::kEnd);
      continue;
    }
    auto pair = tokenizer->encode_pair(arguments.text("--query"), text,
                                       {.tokens_max = static_cast<size_t>(most)});
    if (!pair) {
      return Error{ErrorCode::kUnsupported,
                   "--query: the model's tokenizer says nothing of pairs of texts", "query"};
    }
    if (pair->tokens.size() > static_cast<size_t>(most)) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("--query has {} tokens and leaves no room for a text beside it: the "
                               "model takes at most {} tokens, {} of them its own",
                               pair->first_tokens, most, pair->framing_tokens),
                   "query"};
    }
    texts.push_back({.tokens = std::move(pair->tokens), .second_text = pair->second_text});
  }
  return texts;
}

Result<Job> read_job(const cli::Arguments& arguments, const checkpoint::Checkpoint& checkpoint) {
  const families::ModelConfig& config = checkpoint.config();
  TRY_ASSIGN(const checkpoint::SentenceConfig sentences,
             checkpoint::read_sentence_config(checkpoint.folder()));
  Job job;
  TRY_ASSIGN(job.texts, tokenized(arguments, checkpoint, sentences));
  if (arguments.has("--labels") || arguments.has("--query")) {
    job.request.of = Of::kLabels;
  } else if (arguments.has("--label-tokens")) {
    job.request.of = Of::kTokens;
    TRY_ASSIGN(job.request.label_tokens, parse_label_tokens(arguments.text("--label-tokens")));
    for (const TokenId token : job.request.label_tokens) {
      if (token < config.vocab_size) continue;
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("--label-tokens: {} is beyond the vocabulary of {}", token,
                               config.vocab_size),
                   "label-tokens"};
    }
  } else {
    TRY_ASSIGN(job.request.of, pooling_of(arguments, sentences, config.is_encoder()));
    job.normalises = !arguments.has("--raw");
  }
  if (!arguments.has("--dimensions")) return job;
  job.dimensions = arguments.integer("--dimensions");
  if (*job.dimensions <= config.hidden_size) return job;
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("--dimensions {}: the model's vectors have {}", *job.dimensions,
                           config.hidden_size),
               "dimensions"};
}

Result<void> write_vectors(const std::string& out, const std::vector<std::vector<float>>& vectors) {
  if (!out.empty()) {
    TRY_ASSIGN(tensor::NpyWriter writer,
               tensor::NpyWriter::create(out, {static_cast<int64_t>(vectors.size()),
                                               static_cast<int64_t>(vectors[0].size())}));
    for (const std::vector<float>& vector : vectors) TRY(writer.append(vector));
    return writer.finish();
  }
  std::string text;
  for (const std::vector<float>& vector : vectors) {
    base::JsonWriter json(text);
    json.begin_array();
    for (const float value : vector) json.number(value);
    json.end_array();
    text += '\n';
  }
  return write_output(text);
}

int step_tokens(const Job& job) {
  size_t longest = kStepTokensMin;
  for (const models::PooledText& text : job.texts) longest = std::max(longest, text.tokens.size());
  return static_cast<int>(longest);
}

Result<void> run_embed(const cli::Arguments& arguments) {
  TRY_ASSIGN(const kernels::KernelChoice choice,
             kernels::parse_kernel_choice(arguments.text("--kernels")));
  TRY_ASSIGN(const std::optional<tensor::DType> kv,
             tensor::parse_kv_type(arguments.text("--kv-cache-dtype")));
  TRY_ASSIGN(const std::string folder, checkpoint::resolve_model(arguments.text("MODEL")));
  TRY_ASSIGN(const checkpoint::Checkpoint checkpoint, checkpoint::Checkpoint::open(folder));
  TRY_ASSIGN(Job job, read_job(arguments, checkpoint));
  base::ThreadPool pool({.threads = static_cast<int>(arguments.integer("--threads"))});
  const base::ThreadPool::PinnedCaller pinned = pool.adopt_caller();
  TRY_ASSIGN(const std::unique_ptr<kernels::Kernels> kernels, kernels::make_kernels(choice, pool));
  // Exact, unless another type is asked for: nobody keeps these keys and values.
  job.request.kv_dtype = kv.value_or(tensor::DType::kF32);
  const int longest = checkpoint.config().is_encoder()
                          ? std::min(step_tokens(job), std::max(checkpoint.config().context_max, 1))
                          : kStepTokensMin;
  TRY_ASSIGN(const std::unique_ptr<models::Model> model,
             models::load_model(
                 checkpoint, *kernels,
                 {.batch_tokens_max = std::max(longest, kStepTokensMin), .logit_rows_max = 16}));
  TRY_ASSIGN(std::vector<std::vector<float>> vectors,
             models::pooled_texts(*model, job.texts, job.request));
  for (std::vector<float>& vector : vectors) {
    if (job.dimensions) vector.resize(static_cast<size_t>(*job.dimensions));
    if (job.normalises) models::normalise(vector);
  }
  return write_vectors(arguments.text("--out"), vectors);
}

std::vector<Flag> embed_flags() {
  return {
      {.name = "--text", .value = "TEXT", .help = "a text; may be given again", .many = true},
      {.name = "--file",
       .value = "FILE",
       .help = "a file with a text on each line; - is standard input"},
      {.name = "--tokens",
       .value = "IDS.json",
       .help = "one array of ids, an array of such arrays, or {\"sequences\": [...]}"},
      {.name = "--query",
       .value = "TEXT",
       .help = "score each text beside this one, by the model's classification head",
       .not_with = {{"--tokens"}, {"--labels"}, {"--label-tokens"}}},
      {.name = "--labels",
       .help = "the logits of the model's classification head, not a vector",
       .kind = Flag::Kind::kSwitch,
       .not_with = {{"--label-tokens"}}},
      {.name = "--label-tokens",
       .value = "IDS",
       .help = "the logits of these tokens behind the last one, as 2152,9693"},
      {.name = "--pooling",
       .value = "WHAT",
       .help = "which states become the vector; auto: as 1_Pooling/config.json says, "
               "without it an encoder's mean and a decoder's last",
       .default_text = "auto",
       .choices = {"auto", "cls", "mean", "last"},
       .not_with = {{"--labels"}, {"--label-tokens"}, {"--query"}}},
      {.name = "--prompt-name",
       .value = "NAME",
       .help = "the prompt of config_sentence_transformers.json that goes ahead of each "
               "text",
       .not_with = {{"--tokens"}, {"--query"}}},
      {.name = "--dimensions",
       .value = "N",
       .help = "the first N of each vector",
       .kind = Flag::Kind::kInteger,
       .least = 1,
       .most = 1 << 20,
       .not_with = {{"--labels"}, {"--label-tokens"}, {"--query"}}},
      {.name = "--raw",
       .help = "vectors as they are pooled, not of length one",
       .kind = Flag::Kind::kSwitch,
       .not_with = {{"--labels"}, {"--label-tokens"}, {"--query"}}},
      {.name = "--out", .value = "FILE.npy", .help = "where to, instead of JSON"},
      kernels_flag(),
      threads_flag(),
      kv_type_flag(),
  };
}

}  // namespace

cli::Verb embed_verb() {
  return {
      .name = "embed",
      .summary = "Writes texts' embeddings, or their scores.",
      .about =
          "Float32 [texts, dimensions] into --out, or a JSON array a text on standard output.\n"
          "Texts are --text, the lines of --file or of standard input, or token ids (--tokens), "
          "which\n"
          "are taken as they are. Of several short texts an encoder computes many at once; a\n"
          "text's vector does not depend on that. --labels gives the logits of a classification\n"
          "head instead, --query those of each text as an answer to a question (a reranker's), "
          "and\n"
          "--label-tokens those of some tokens behind the last one (Qwen3-Reranker: no and yes).",
      .positionals = {{"MODEL", "a model folder, a .gguf file or a hub id"}},
      .flags = embed_flags(),
      .exclusive = {{"--text", "--file", "--tokens"}},
      .examples = {"pelton embed BAAI/bge-small-en-v1.5 --text 'a wheel' --text 'a tyre'",
                   "pelton embed ./reranker --query 'what turns?' --text 'A wheel turns.'",
                   "pelton embed ./model --tokens ids.json --out vectors.npy"},
      .run = run_embed,
  };
}

}  // namespace pelton::apps
