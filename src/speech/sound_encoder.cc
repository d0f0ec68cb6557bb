#include "speech/sound_encoder.h"

#include <optional>
#include <utility>

#include "speech/sound_bytes.h"

namespace pelton::speech {
namespace {

class WavEncoder final : public SoundEncoder {
 public:
  explicit WavEncoder(const EncoderOptions& options) : options_(options) {}

  void push(std::string_view pcm, std::string& out) override {
    if (options_.is_whole) {
      whole_ += pcm;
      return;
    }
    if (!std::exchange(has_header_, true)) out += wav_header(options_.sample_rate, std::nullopt);
    out += pcm;
  }

  void finish(std::string& out) override {
    if (has_header_) return;
    out += wav_header(options_.sample_rate, whole_.size());
    out += std::exchange(whole_, {});
  }

 private:
  const EncoderOptions options_;
  bool has_header_ = false;
  std::string whole_;
};

class PcmEncoder final : public SoundEncoder {
 public:
  void push(std::string_view pcm, std::string& out) override { out += pcm; }
  void finish(std::string&) override {}
};

}  // namespace

std::unique_ptr<SoundEncoder> wav_encoder(const EncoderOptions& options) {
  return std::make_unique<WavEncoder>(options);
}

std::unique_ptr<SoundEncoder> pcm_encoder() {
  return std::make_unique<PcmEncoder>();
}

}  // namespace pelton::speech
