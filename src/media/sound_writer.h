// Samples to the bytes of a compressed file while they come: MP3, Ogg Opus and FLAC by libsndfile,
// in this process, as the samples are our own. The same samples give the same bytes, however they
// are cut. A writer is of one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pelton::media {

class SoundWriter {
 public:
  struct Options {
    std::string_view format;  // "mp3", "opus" or "flac"
    int sample_rate = 0;
    // Nothing is handed out before finish(): what stands at a file's beginning (how long it is)
    // can be written then. Otherwise what was handed out stays as it is, and players take a file
    // without that for one of unknown length.
    bool is_whole = false;
  };

  // Errors: kUnsupported: this machine's libsndfile does not write the format at this rate.
  static Result<std::unique_ptr<SoundWriter>> create(const Options& options);
  ~SoundWriter();
  SoundWriter(const SoundWriter&) = delete;
  SoundWriter& operator=(const SoundWriter&) = delete;

  // One channel. Appends to `out` what is ready.
  void push(std::span<const int16_t> samples, std::string& out);
  // Once, at last: appends the rest.
  void finish(std::string& out);

 private:
  struct State;
  explicit SoundWriter(std::unique_ptr<State> state);

  const std::unique_ptr<State> state_;
};

// Those of the three that create() makes at this rate.
std::vector<std::string> written_formats(int sample_rate);

}  // namespace pelton::media
