// pelton transcribe: speech to text by a Whisper model, outside the server; and what the model
// computes on the way, exactly, to compare with other programs.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "apps/input.h"
#include "apps/loading.h"
#include "apps/transcription_flags.h"
#include "apps/verbs.h"
#include "audio/log_mel.h"
#include "base/json_writer.h"
#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "cli/interrupt.h"
#include "kernels/kernels.h"
#include "models/whisper.h"
#include "models/whisper_decoding.h"
#include "node/model_tokenizer.h"
#include "node/whisper_recogniser.h"
#include "speech/transcript.h"
#include "tensor/npy.h"

namespace pelton::apps {
namespace {

using cli::Flag;

constexpr size_t kSoundBytesMax = size_t{1} << 31;
constexpr double kSecondsMax = 86400.0;

// Null: the folder has none.
Result<std::unique_ptr<tokenizer::Tokenizer>> read_tokenizer(const std::string& folder) {
  const std::string file = folder + "/tokenizer.json";
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return std::unique_ptr<tokenizer::Tokenizer>();
  TRY_ASSIGN(tokenizer::Tokenizer tokenizer, node::read_tokenizer_file(file));
  return std::make_unique<tokenizer::Tokenizer>(std::move(tokenizer));
}

Result<void> write_rows(const std::string& file, std::vector<int64_t> shape,
                        std::span<const float> values) {
  TRY_ASSIGN(tensor::NpyWriter writer, tensor::NpyWriter::create(file, std::move(shape)));
  TRY(writer.append(values));
  return writer.finish();
}

// What the first window comes to: for --mel-out and so on. Whether any was asked for.
Result<bool> write_exact(const cli::Arguments& arguments, models::Whisper& model,
                         std::vector<float> samples, const audio::LogMel& front) {
  const bool any = arguments.has("--mel-out") || arguments.has("--encoder-out") ||
                   arguments.has("--logits-out") || arguments.has("--language-out");
  if (!any) return false;
  const models::WhisperConfig& config = model.config();
  samples.resize(static_cast<size_t>(config.frames()) * audio::LogMel::kHop);
  const std::vector<float> mel = front.of(samples);
  if (arguments.has("--mel-out")) {
    TRY(write_rows(arguments.text("--mel-out"), {config.mel_bands, config.frames()}, mel));
  }
  const std::vector<float> states = model.encode(mel);
  if (arguments.has("--encoder-out")) {
    TRY(write_rows(arguments.text("--encoder-out"), {config.source_positions, config.hidden_size},
                   states));
  }
  models::WhisperWindow window = model.window(states);
  if (arguments.has("--language-out")) {
    const std::vector<double> shares = models::language_probabilities(model, window);
    const std::vector<float> rounded(shares.begin(), shares.end());
    TRY(write_rows(arguments.text("--language-out"), {static_cast<int64_t>(rounded.size())},
                   rounded));
  }
  if (!arguments.has("--logits-out")) return true;
  TRY_ASSIGN(const auto sequences, read_sequences_file(arguments.text("--tokens")));
  const std::vector<TokenId>& tokens = sequences[0];
  const bool fits = !tokens.empty() && static_cast<int>(tokens.size()) <= config.target_positions &&
                    std::ranges::all_of(tokens, [&](TokenId id) { return id < config.vocab_size; });
  if (!fits) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--tokens: 1 to {} ids below {} are taken", config.target_positions,
                             config.vocab_size),
                 "tokens"};
  }
  TRY(write_rows(arguments.text("--logits-out"),
                 {static_cast<int64_t>(tokens.size()), config.vocab_size},
                 model.step(window, tokens)));
  return true;
}

// What there is of each segment, in fewer words than OpenAI's verbose_json; without a tokenizer
// there is no text.
std::string segments_json(const speech::Transcript& made, bool has_text) {
  std::string out;
  base::JsonWriter writer(out);
  writer.begin_object().key("language").string(made.language);
  writer.key("duration").number(made.seconds).key("segments").begin_array();
  for (const speech::Segment& segment : made.segments) {
    writer.begin_object().key("start").number(segment.begin_s);
    writer.key("end").number(segment.end_s);
    if (has_text) writer.key("text").string(segment.text);
    writer.key("tokens").begin_array();
    for (const TokenId id : segment.tokens) writer.integer(id);
    writer.end_array().key("temperature").number(segment.temperature);
    writer.key("avg_logprob").number(segment.average_logprob);
    writer.key("no_speech_prob").number(segment.no_speech).end_object();
  }
  writer.end_array().end_object();
  return out;
}

Result<void> write_transcript(const speech::Transcript& made, const cli::Arguments& arguments,
                              bool has_text) {
  const std::string& format = arguments.text("--format");
  if (format == "json") return write_output(segments_json(made, has_text) + "\n");
  if (format == "verbose_json") {
    return write_output(speech::verbose_json(made, {.words = arguments.has("--words")}) + "\n");
  }
  if (format == "text") return write_text(speech::plain_text(made) + "\n");
  return write_text(format == "vtt" ? speech::web_vtt(made) : speech::subrip(made));
}

speech::Search search_asked(const cli::Arguments& arguments) {
  speech::Search search{.beam_size = static_cast<int>(arguments.integer("--beam-size")),
                        .patience = arguments.number("--patience"),
                        .best_of = static_cast<int>(arguments.integer("--best-of"))};
  if (arguments.has("--length-penalty")) {
    search.length_penalty = arguments.number("--length-penalty");
  }
  return search;
}

Result<void> run_transcribe(const cli::Arguments& arguments) {
  TRY_ASSIGN(const kernels::KernelChoice choice,
             kernels::parse_kernel_choice(arguments.text("--kernels")));
  TRY_ASSIGN(const std::string folder, checkpoint::resolve_model(arguments.text("MODEL")));
  const cli::Interrupt interrupt;
  const auto go_on = [&] { return !interrupt.pending(); };
  TRY_ASSIGN(const std::string file, read_input(arguments.text("FILE"), kSoundBytesMax));
  TRY_ASSIGN(std::vector<float> samples, sound_reader(kSecondsMax)(file, go_on));
  TRY_ASSIGN(const auto tokenizer, read_tokenizer(folder));
  base::ThreadPool pool({.threads = static_cast<int>(arguments.integer("--threads"))});
  const base::ThreadPool::PinnedCaller pinned = pool.adopt_caller();
  TRY_ASSIGN(const std::unique_ptr<kernels::Kernels> kernels, kernels::make_kernels(choice, pool));
  TRY_ASSIGN(const std::unique_ptr<models::Whisper> model, models::Whisper::load(folder, *kernels));
  TRY_ASSIGN(const bool is_done,
             write_exact(arguments, *model, samples, audio::LogMel(model->config().mel_bands)));
  if (is_done) return {};
  if (tokenizer == nullptr && arguments.text("--format") != "json") {
    return Error{ErrorCode::kNotFound,
                 fmt::format("{} has no tokenizer.json; --format json gives token ids", folder)};
  }
  speech::Task task{.language = arguments.text("--language"),
                    .translates = arguments.text("--task") == "translate",
                    .timestamps = !arguments.has("--without-timestamps"),
                    .uses_previous = !arguments.has("--no-previous-text"),
                    .prompt = arguments.text("--prompt"),
                    .temperature = arguments.number("--temperature"),
                    .words = arguments.has("--words"),
                    .search = search_asked(arguments)};
  if (const auto code = speech::language_code(task.language); !code.empty()) task.language = code;
  const node::WhisperRecogniser recogniser({.model = *model, .tokenizer = tokenizer.get()});
  TRY_ASSIGN(const auto recognition, recogniser.begin(std::move(samples), task, go_on));
  for (bool has_more = true; has_more;) {
    TRY_ASSIGN(has_more, recognition->step(go_on));
  }
  return write_transcript(recognition->transcript(), arguments, tokenizer != nullptr);
}

std::vector<Flag> search_flags() {
  return {
      {.name = "--beam-size",
       .value = "N",
       .help = "follow so many texts at once and take the likeliest; 1: the likeliest token each "
               "time",
       .kind = Flag::Kind::kInteger,
       .default_text = "1",
       .least = 1,
       .most = models::kWhisperBeamsMax},
      {.name = "--patience",
       .value = "X",
       .help = "of beams: until X times as many texts have ended",
       .kind = Flag::Kind::kNumber,
       .default_text = "1",
       .least = 0.1,
       .most = 10,
       .only_with = {{"--beam-size"}}},
      {.name = "--best-of",
       .value = "N",
       .help = "at higher temperatures, draw so many texts and take the likeliest",
       .kind = Flag::Kind::kInteger,
       .default_text = "1",
       .least = 1,
       .most = models::kWhisperBeamsMax},
      {.name = "--length-penalty",
       .value = "A",
       .help = "the likeliest by its log-probability over ((5 + tokens) / 6)^A; default: over "
               "its tokens",
       .kind = Flag::Kind::kNumber,
       .most = 2}};
}

// Of whoever compares with other programs.
std::vector<Flag> exact_flags() {
  return {{.name = "--mel-out", .value = "FILE.npy", .help = "the spectrogram [bands, frames]"},
          {.name = "--encoder-out",
           .value = "FILE.npy",
           .help = "the encoder's states [positions, hidden]"},
          {.name = "--language-out",
           .value = "FILE.npy",
           .help = "each language's probability, in the order of their tokens"},
          {.name = "--logits-out",
           .value = "FILE.npy",
           .help = "the logits [tokens, vocab] of --tokens",
           .only_with = {{"--tokens"}}},
          {.name = "--tokens",
           .value = "IDS.json",
           .help = "a JSON array of ids that the decoder is fed",
           .only_with = {{"--logits-out"}}}};
}

}  // namespace

cli::Verb transcribe_verb() {
  cli::Verb verb{
      .name = "transcribe",
      .summary = "Writes down what is said in a file, by a Whisper model.",
      .about =
          "MODEL is a folder of Hugging Face's layout. The sound is mixed to one channel and\n"
          "brought to 16 kHz; windows of 30 s are decoded one behind the other, the likeliest\n"
          "token each time, and anew with some drawn where the text is doubtful. FLAC, MP3 and\n"
          "Ogg are decoded by a process that can do nothing else, WebM, MP4 and more by ffmpeg\n"
          "where it is installed. pelton serve MODEL does the same for many files over HTTP.\n"
          "--mel-out and the others write what the first window comes to, as float32, and\n"
          "nothing else is done.",
      .positionals = {{"MODEL", "a model folder or a hub id"},
                      {"FILE",
                       "a file with sound: WAV, FLAC, MP3, Ogg and others; -: standard input"}},
      .flags =
          {
              {.name = "--language",
               .value = "CODE",
               .help = "what is spoken, as en; default: detected in the first window"},
              {.name = "--task",
               .value = "NAME",
               .help = "translate: into English",
               .default_text = "transcribe",
               .choices = {"transcribe", "translate"}},
              {.name = "--format",
               .value = "NAME",
               .help = "what is written",
               .default_text = "text",
               .choices = {"text", "json", "verbose_json", "srt", "vtt"}},
              {.name = "--prompt",
               .value = "TEXT",
               .help = "stands before the first window: names, and how they are written"},
              {.name = "--temperature",
               .value = "T",
               .help = "0: the likeliest token each time; doubtful windows are decoded anew at "
                       "higher ones, up to 1",
               .kind = Flag::Kind::kNumber,
               .default_text = "0",
               .most = 1},
              {.name = "--words",
               .help = "when each word was said",
               .kind = Flag::Kind::kSwitch,
               .only_with = {{"--format", {"verbose_json"}}}},
              {.name = "--without-timestamps",
               .help = "the model is not asked for times; segments are whole windows",
               .kind = Flag::Kind::kSwitch},
              {.name = "--no-previous-text",
               .help = "a window is decoded without what was said before",
               .kind = Flag::Kind::kSwitch},
              kernels_flag(),
              threads_flag(),
          },
      .examples = {"pelton transcribe openai/whisper-small talk.wav",
                   "pelton transcribe ./whisper talk.mp3 --format srt --language de",
                   "pelton transcribe ./whisper talk.wav --format json --encoder-out states.npy"},
      .run = run_transcribe,
  };
  for (Flag& flag : search_flags()) verb.flags.push_back(std::move(flag));
  for (Flag& flag : exact_flags()) verb.flags.push_back(std::move(flag));
  return verb;
}

}  // namespace pelton::apps
