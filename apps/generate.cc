// pelton generate: continues a prompt, as text or as token ids.
#include <fmt/format.h>

#include "apps/input.h"
#include "apps/loading.h"
#include "apps/stream_reader.h"
#include "apps/verbs.h"
#include "base/json_writer.h"
#include "cli/human_size.h"
#include "cli/terminal.h"
#include "tokenizer/incremental_decoder.h"

namespace pelton::apps {
namespace {

using cli::Flag;

struct Prompt {
  std::vector<TokenId> ids;
  bool from_text = false;
};

// --prompt, --file or standard input. Nothing is waited for on a terminal.
Result<std::string> prompt_text(const cli::Arguments& arguments) {
  if (arguments.has("--prompt")) return arguments.text("--prompt");
  if (!arguments.has("--file") && cli::is_terminal(stdin)) {
    return Error{ErrorCode::kInvalidArgument,
                 "what shall it continue? Give --prompt, --file, --tokens or standard input"};
  }
  TRY_ASSIGN(std::string text,
             read_input(arguments.has("--file") ? arguments.text("--file") : "-"));
  if (text.ends_with('\n')) text.pop_back();  // the line's end, not the prompt's
  if (!text.empty()) return text;
  return Error{ErrorCode::kInvalidArgument,
               "the prompt is empty: give --prompt, --file, --tokens or standard input"};
}

Result<Prompt> read_prompt(const cli::Arguments& arguments, const std::string& text,
                           const node::LoadedModel& model) {
  Prompt prompt;
  if (arguments.has("--tokens")) {
    // Of a file with a continuation only the prompt: the continuation is what we are to write.
    TRY_ASSIGN(IdsFile file, read_ids_file(arguments.text("--tokens")));
    prompt.ids = std::move(file.prompt);
  } else {
    TRY_ASSIGN(const tokenizer::Tokenizer* tokenizer, model.tokenizer());
    prompt.ids = arguments.has("--special") ? tokenizer->encode_with_special(text)
                                            : tokenizer->encode_prompt(text);
    prompt.from_text = true;
  }
  for (const TokenId id : prompt.ids) {
    if (id >= model.config().vocab_size) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("the prompt has token {}, but the vocabulary ends at {}", id,
                               model.config().vocab_size - 1)};
    }
  }
  return prompt;
}

// Prints what arrives: text as soon as it is certain, or at the end one JSON array of ids.
class Output {
 public:
  enum class Controls { kLeftOut, kShown };
  // `tokenizer` null: ids. `controls`: of the tokens that are no text.
  Output(const tokenizer::Tokenizer* tokenizer, Controls controls)
      : tokenizer_(tokenizer), controls_(controls), to_terminal_(cli::is_terminal(stdout)) {}

  Result<void> add(const std::vector<engine::SampledToken>& tokens) {
    for (const engine::SampledToken& token : tokens) {
      ids_.push_back(token.token);
      if (tokenizer_ == nullptr) continue;
      if (controls_ == Controls::kLeftOut && tokenizer_->is_special(token.token)) continue;
      decoder_.push(tokenizer_->bytes(token.token), text_);
    }
    return write_text();
  }

  Result<void> finish() {
    if (tokenizer_ != nullptr) {
      decoder_.finish(text_);
      text_ += '\n';
      return write_text();
    }
    std::string json;
    base::JsonWriter writer(json);
    writer.begin_array();
    for (const TokenId id : ids_) writer.integer(id);
    writer.end_array();
    return write_output(json + "\n");
  }

  size_t token_count() const { return ids_.size(); }

 private:
  Result<void> write_text() {
    if (text_.empty()) return {};
    const Result<void> written = write_output(to_terminal_ ? cli::without_controls(text_) : text_);
    text_.clear();
    return written;
  }

  const tokenizer::Tokenizer* tokenizer_;
  const Controls controls_;
  const bool to_terminal_;
  tokenizer::IncrementalDecoder decoder_;
  std::string text_;
  std::vector<TokenId> ids_;
};

Result<void> print_stream(StreamReader& reader, Output& output) {
  while (true) {
    const auto batch = reader.next();
    if (!batch) {
      TRY(output.finish());
      return Error{ErrorCode::kCancelled, "interrupted"};
    }
    TRY(output.add(batch->tokens));
    if (!batch->end) continue;
    TRY(output.finish());
    if (batch->end->error) return *batch->end->error;
    return {};
  }
}

Result<void> run_generate(const cli::Arguments& arguments) {
  std::string text;
  if (!arguments.has("--tokens")) {
    TRY_ASSIGN(text, prompt_text(arguments));
  }
  const base::SystemClock clock;
  base::Log log(clock, {.level = base::LogLevel::kWarning});
  TRY_ASSIGN(node::LoadedModel::Options options, model_options(arguments, clock));
  options.executor.sequences_max = 1;
  const cli::Interrupt interrupt;  // also while it loads: what is half written is taken away
  TRY_ASSIGN(const std::unique_ptr<node::LoadedModel> model,
             load_model(arguments.text("MODEL"), options, stopped_by(interrupt), clock, log));
  TRY_ASSIGN(Prompt prompt, read_prompt(arguments, text, *model));

  const tokenizer::Tokenizer* tokenizer = nullptr;
  // Where there is none ids are all that can be shown.
  const bool shows_text = !arguments.has("--ids");
  if (const auto found = model->tokenizer(); found && shows_text) tokenizer = *found;
  request::GenerationRequest request;
  request.id = "generate";
  request.prompt = std::move(prompt.ids);
  request.sampling = sampling_params(arguments);
  request.stop.max_new_tokens = static_cast<int>(arguments.integer("--max-tokens"));
  // Ids are continued as they are, to the last token asked for: that is what comparisons need.
  if (prompt.from_text && !arguments.has("--ignore-eos")) {
    request.stop.stop_tokens = model->stop_tokens();
  }

  const int64_t start_ns = clock.now_ns();
  TRY_ASSIGN(engine::TokenStream stream, model->engine().submit(std::move(request)));
  StreamReader reader(std::move(stream), interrupt);
  if (prompt.from_text && !arguments.has("--special") && model->chat_format().ok()) {
    fmt::print(stderr,
               "note: this model was made for conversations, and this is none: `pelton chat` puts "
               "its format around a question\n");
  }
  Output output(tokenizer,
                arguments.has("--special") ? Output::Controls::kShown : Output::Controls::kLeftOut);
  TRY(print_stream(reader, output));
  if (cli::is_terminal(stderr)) {
    const double seconds = static_cast<double>(clock.now_ns() - start_ns) * 1e-9;
    fmt::print(stderr, "{} tokens in {}\n", output.token_count(), cli::format_duration(seconds));
  }
  return {};
}

}  // namespace

cli::Verb generate_verb() {
  cli::Verb verb{
      .name = "generate",
      .summary = "Continues a prompt, given as text or as token ids.",
      .about =
          "The prompt is --prompt, --file, --tokens or standard input. No chat format is put "
          "around\n"
          "it; 'pelton chat MODEL QUESTION' does that. A text prompt's continuation ends at a "
          "stop\n"
          "token; one of --tokens has exactly --max-tokens tokens. Control tokens are left out.",
      .positionals = {{"MODEL", "a model folder, a .gguf file or a hub id"}},
      .flags = {{.name = "--prompt", .value = "TEXT", .help = "the text to continue"},
                {.name = "--file",
                 .value = "FILE",
                 .help = "the text to continue; - is standard input, as without any of these"},
                {.name = "--tokens",
                 .value = "IDS.json",
                 .help = "the token ids to continue: a JSON array, or {\"prompt\": [...]}"},
                {.name = "--max-tokens",
                 .value = "N",
                 .help = "at most so many new tokens",
                 .kind = Flag::Kind::kSize,
                 .default_text = "128",
                 .least = 1,
                 .most = 1 << 30}},
      .exclusive = {{"--prompt", "--file", "--tokens"}},
      .examples = {"pelton generate ./model --prompt 'Once upon a time' --max-tokens 64",
                   "pelton generate ./model --max-tokens 200 < beginning.txt",
                   "pelton generate ./model --tokens ids.json --max-tokens 64 --kernels reference "
                   "--ids"},
      .run = run_generate,
  };
  for (Flag& flag : sampling_flags("0")) verb.flags.push_back(std::move(flag));
  verb.flags.push_back(
      {.name = "--ids", .help = "print token ids, as one JSON array", .kind = Flag::Kind::kSwitch});
  verb.flags.push_back({.name = "--special",
                        .help = "read the texts of control tokens in the prompt as control tokens, "
                                "and print those that come",
                        .kind = Flag::Kind::kSwitch,
                        .not_with = {{"--tokens"}}});
  verb.flags.push_back({.name = "--ignore-eos",
                        .help = "do not end at a stop token",
                        .kind = Flag::Kind::kSwitch,
                        .not_with = {{"--tokens"}}});
  for (Flag& flag : model_flags()) verb.flags.push_back(std::move(flag));
  return verb;
}

}  // namespace pelton::apps
