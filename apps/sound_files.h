// Files with sound, and what is said in them where that is known: what `bench transcribe` measures
// with. Main thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/json_writer.h"
#include "base/result.h"
#include "bench/word_errors.h"

namespace pelton::apps {

inline constexpr double kSoundRate = 16'000.0;  // of samples

struct SoundFile {
  std::string name;
  std::string bytes;
  std::vector<float> samples = {};  // where they are kept
  double seconds = 0.0;
  std::optional<std::string> reference;  // what is said in it: of talk.wav what talk.txt holds
};

// Files, and of folders all but their .txt and hidden ones, by name. Errors: kInvalidArgument:
// there are none; kIo naming one that is no sound; kCancelled once `goes_on` is false.
Result<std::vector<SoundFile>> read_sound_files(const std::vector<std::string>& given,
                                                const std::function<bool()>& goes_on,
                                                bool keeps_samples = false);

// A line of a report, and the members of a JSON object.
std::string word_error_text(const bench::WordErrors& words, int64_t with_reference);
void add_words(base::JsonWriter& w, const bench::WordErrors& words);

}  // namespace pelton::apps
