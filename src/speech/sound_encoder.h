// Sound as the bytes of a file while it comes. An encoder is of one answer, one thread at a time.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace pelton::speech {

class SoundEncoder {
 public:
  virtual ~SoundEncoder() = default;

  // `pcm`: of 16 bits, one channel, whole samples. Appends what has become of it; compressed
  // formats hold back some, as they code several samples together.
  virtual void push(std::string_view pcm, std::string& out) = 0;
  // Nothing more comes: appends the rest. Once.
  virtual void finish(std::string& out) = 0;
};

struct EncoderOptions {
  int sample_rate = 0;
  // Nothing is appended before finish(), so that the file's beginning can say how long it is.
  bool is_whole = false;
};

// A WAV file. As it comes its header has the largest size; without samples it has the right one.
std::unique_ptr<SoundEncoder> wav_encoder(const EncoderOptions& options);
// The samples alone.
std::unique_ptr<SoundEncoder> pcm_encoder();

// What else can be written on this machine: filled by whoever has a library for it.
struct CompressedSound {
  std::vector<std::string> formats = {};  // "mp3"
  // `format`: one of those. Any thread.
  std::function<std::unique_ptr<SoundEncoder>(std::string_view format,
                                              const EncoderOptions& options)>
      make = nullptr;
};

}  // namespace pelton::speech
