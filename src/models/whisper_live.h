// One window of sound that is still being said: the text so far, with what of it stands already as
// its beginning. Nothing is kept between two windows. One thread at a time, that of the model.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"
#include "models/whisper_fallback.h"
#include "models/whisper_transcription.h"

namespace pelton::models {

struct LiveWindowTask {
  std::string language;           // empty: detected
  std::vector<TokenId> previous;  // text before the window, or a prompt
  std::vector<TokenId> begun;     // its first tokens, which stand already
  bool falls_back = false;        // doubtful text is decoded anew at higher temperatures
};

struct LiveWindowText {
  std::vector<TokenId> tokens;  // of text alone, with `begun` before all else
  std::string language;         // as it was named or detected; empty: the model knows only one
  bool is_repetitive = false;
};

// samples: of 16 kHz. Errors: kCancelled; kUnsupported: more than a window's; check_task()'s of the
// language.
Result<LiveWindowText> hear_live_window(Whisper& model, std::vector<float> samples,
                                        const LiveWindowTask& task, const MelOf& mel,
                                        const CompressionOf& compression,
                                        const std::function<bool()>& go_on);

}  // namespace pelton::models
