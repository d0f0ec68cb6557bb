// What pelton inspect says of models of sound, which are no families of language models. Main
// thread.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"

namespace pelton::apps {

// Of a Whisper model or a SNAC decoder; nothing: the folder is neither.
std::optional<Result<void>> inspect_sound(const std::string& folder, bool as_json);

// Whether a language model's vocabulary has Orpheus' tokens for sound.
bool has_audio_tokens(const std::string& folder);

}  // namespace pelton::apps
