// pelton snac: the codes of a SNAC model as sound.
#include "models/snac.h"

#include <fmt/format.h>

#include "apps/input.h"
#include "apps/loading.h"
#include "apps/verbs.h"
#include "audio/wav_file.h"
#include "base/file.h"
#include "base/json.h"
#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "kernels/kernels.h"
#include "tensor/npy.h"

namespace pelton::apps {
namespace {

// {"codes": [[...], [...], [...]]}, or the lists alone.
Result<std::vector<std::vector<int>>> read_codes(const std::string& file) {
  TRY_ASSIGN(const std::string text, read_input(file));
  const Result<Json> json = Json::parse(text);
  const auto bad = [&](const std::string& what) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{}: {}", file, what), "codes"};
  };
  if (!json.ok()) return bad(json.error().message);
  const Json* named = json->is_object() ? json->find("codes") : nullptr;
  const Json& books = named != nullptr ? *named : *json;
  if (!books.is_array()) return bad("expected a list of codes for each book");
  std::vector<std::vector<int>> codes;
  for (const Json& book : books.as_array()) {
    if (!book.is_array()) return bad(fmt::format("book {} is no list", codes.size()));
    std::vector<int>& to = codes.emplace_back();
    for (const Json& code : book.as_array()) {
      if (!code.is_integer() || code.as_integer() < 0 || code.as_integer() > INT32_MAX) {
        return bad(fmt::format("book {}, element {} is no code", codes.size() - 1, to.size()));
      }
      to.push_back(static_cast<int>(code.as_integer()));
    }
  }
  return codes;
}

Result<void> run_snac(const cli::Arguments& arguments) {
  const std::string& out = arguments.text("--out");
  if (!out.ends_with(".npy") && !out.ends_with(".wav")) {
    return Error{ErrorCode::kInvalidArgument, "--out wants a name in .wav or .npy", "out"};
  }
  TRY_ASSIGN(const kernels::KernelChoice choice,
             kernels::parse_kernel_choice(arguments.text("--kernels")));
  TRY_ASSIGN(const std::string folder, checkpoint::resolve_model(arguments.text("MODEL")));
  TRY_ASSIGN(const auto codes, read_codes(arguments.text("--codes")));
  base::ThreadPool pool({.threads = static_cast<int>(arguments.integer("--threads"))});
  const base::ThreadPool::PinnedCaller pinned = pool.adopt_caller();
  TRY_ASSIGN(const std::unique_ptr<kernels::Kernels> kernels, kernels::make_kernels(choice, pool));
  TRY_ASSIGN(const std::unique_ptr<models::Snac> model, models::Snac::load(folder, *kernels));
  TRY_ASSIGN(const std::vector<float> samples, model->decode(codes));
  if (out.ends_with(".npy")) {
    TRY_ASSIGN(tensor::NpyWriter writer,
               tensor::NpyWriter::create(out, {static_cast<int64_t>(samples.size())}));
    TRY(writer.append(samples));
    return writer.finish();
  }
  const std::vector<uint8_t> wav =
      audio::write_wav({.sample_rate = model->config().sample_rate, .samples = samples});
  return base::write_file(out, {reinterpret_cast<const char*>(wav.data()), wav.size()});
}

}  // namespace

cli::Verb snac_verb() {
  return {
      .name = "snac",
      .summary = "Turns the codes of a SNAC model into sound.",
      .about =
          "The decoder of SNAC, without its noise: the same codes give the same samples.\n"
          "Writes a WAV file of 16 bits, or the samples as float32.",
      .positionals = {{"MODEL", "a folder with config.json and model.safetensors, or a hub id"}},
      .flags =
          {
              {.name = "--codes",
               .value = "FILE.json",
               .help = "a list of codes for each book, or {\"codes\": [...]}",
               .required = true},
              {.name = "--out", .value = "FILE", .help = "FILE.wav or FILE.npy", .required = true},
              kernels_flag(),
              threads_flag(),
          },
      .examples = {"pelton snac ./snac_24khz --codes codes.json --out voice.wav"},
      .run = run_snac,
  };
}

}  // namespace pelton::apps
