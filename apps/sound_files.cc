#include "apps/sound_files.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "apps/input.h"
#include "apps/transcription_flags.h"

namespace pelton::apps {
namespace {

namespace fs = std::filesystem;

constexpr double kSecondsMax = 86'400.0;

// What is said in a file stands beside it: talk.txt of talk.wav.
Result<std::optional<std::string>> read_reference(const fs::path& sound) {
  fs::path path = sound;
  path.replace_extension(".txt");
  std::error_code failed;
  if (path == sound || !fs::is_regular_file(path, failed)) return std::optional<std::string>();
  TRY_ASSIGN(std::string text, read_input(path.string()));
  return std::optional(std::move(text));
}

// Files as they are named; of a folder those that are no texts, by name.
Result<std::vector<std::string>> find_files(const std::vector<std::string>& names) {
  std::vector<std::string> files;
  for (const std::string& name : names) {
    std::error_code failed;
    if (!fs::is_directory(name, failed)) {
      files.push_back(name);
      continue;
    }
    std::vector<std::string> inside;
    for (const fs::directory_entry& entry : fs::directory_iterator(name, failed)) {
      const fs::path& path = entry.path();
      const bool is_sound = entry.is_regular_file(failed) && path.extension() != ".txt" &&
                            !path.filename().string().starts_with('.');
      if (is_sound) inside.push_back(path.string());
    }
    std::ranges::sort(inside);
    files.insert(files.end(), inside.begin(), inside.end());
  }
  if (!files.empty()) return files;
  return Error{ErrorCode::kInvalidArgument, "FILE: there is no file with sound", "FILE"};
}

}  // namespace

Result<std::vector<SoundFile>> read_sound_files(const std::vector<std::string>& given,
                                                const std::function<bool()>& goes_on,
                                                bool keeps_samples) {
  TRY_ASSIGN(const std::vector<std::string> names, find_files(given));
  const speech::ReadSound read = sound_reader(kSecondsMax);
  std::vector<SoundFile> files;
  for (const std::string& name : names) {
    SoundFile& file = files.emplace_back(SoundFile{.name = name});
    TRY_ASSIGN(file.bytes, read_input(name));
    auto samples = read(file.bytes, goes_on);
    if (!samples.ok()) {
      // An input that is no good, not a command line.
      const bool is_stopped = samples.error().code == ErrorCode::kCancelled;
      return Error{is_stopped ? ErrorCode::kCancelled : ErrorCode::kIo,
                   fmt::format("{}: {}", name, samples.error().message),
                   {}};
    }
    file.seconds = static_cast<double>(samples->size()) / kSoundRate;
    if (keeps_samples) file.samples = std::move(*samples);
    TRY_ASSIGN(file.reference, read_reference(name));
  }
  return files;
}

std::string word_error_text(const bench::WordErrors& words, int64_t with_reference) {
  if (with_reference == 0) {
    return fmt::format("{:<24} unknown: no text stands beside a file (talk.txt of talk.wav)\n",
                       "word error rate");
  }
  return fmt::format(
      "{:<24} {:.2f} % of {} words in {} transcripts ({} substituted, {} left out, {} added)\n",
      "word error rate", 100.0 * words.rate(), words.words, with_reference, words.substituted,
      words.left_out, words.added);
}

void add_words(base::JsonWriter& w, const bench::WordErrors& words) {
  w.key("word_error_rate").number(words.rate());
  w.key("words").integer(static_cast<int64_t>(words.words));
  w.key("substituted").integer(static_cast<int64_t>(words.substituted));
  w.key("left_out").integer(static_cast<int64_t>(words.left_out));
  w.key("added").integer(static_cast<int64_t>(words.added));
}

}  // namespace pelton::apps
