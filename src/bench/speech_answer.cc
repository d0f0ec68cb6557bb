#include "bench/speech_answer.h"

#include <algorithm>
#include <cstdint>

#include <fmt/format.h>

namespace pelton::bench {
namespace {

constexpr size_t kHeaderBytes = 44;  // RIFF, fmt of 16 bytes, data: as all streams have it
constexpr size_t kErrorBytesMax = 300;

uint32_t number_at(std::string_view bytes, size_t at) {
  uint32_t number = 0;
  for (size_t i = 0; i < 4; ++i) {
    number |= static_cast<uint32_t>(static_cast<uint8_t>(bytes[at + i])) << (8 * i);
  }
  return number;
}

}  // namespace

void SpeechAnswer::head(int status, const net::HttpHeaders&) {
  status_ = status;
}

void SpeechAnswer::read_header() {
  constexpr size_t kRateAt = 28;  // bytes for each second
  const bool is_wav = begin_.starts_with("RIFF") && begin_.substr(8, 8) == "WAVEfmt " &&
                      begin_.substr(36, 4) == "data" && number_at(begin_, kRateAt) > 0;
  if (!is_wav) {
    failure_ = "what came is no WAV file with a header of 44 bytes";
    return;
  }
  bytes_per_second_ = number_at(begin_, kRateAt);
}

void SpeechAnswer::piece(std::string_view bytes, double at_s) {
  if (status_ != 200) {
    begin_ += bytes.substr(0, kErrorBytesMax - std::min(kErrorBytesMax, begin_.size()));
    return;
  }
  if (!failure_.empty()) return;
  if (bytes_per_second_ == 0.0) {
    const size_t taken = std::min(kHeaderBytes - begin_.size(), bytes.size());
    begin_ += bytes.substr(0, taken);
    bytes.remove_prefix(taken);
    if (begin_.size() < kHeaderBytes) return;
    read_header();
  }
  if (bytes.empty() || !failure_.empty()) return;
  if (!first_sound_s_) first_sound_s_ = at_s;
  player_.arrive(at_s, static_cast<double>(bytes.size()) / bytes_per_second_);
}

void SpeechAnswer::end(const Result<void>& result, double at_s) {
  whole_s_ = at_s;
  if (!result.ok()) {
    failure_ = result.error().message;
  } else if (status_ != 200) {
    failure_ = fmt::format("HTTP {}: {}", status_, begin_);
  } else if (failure_.empty() && !first_sound_s_) {
    failure_ = "an answer without sound";
  }
}

}  // namespace pelton::bench
