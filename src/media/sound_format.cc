#include "media/sound_format.h"

#include <cstddef>

namespace pelton::media {
namespace {

bool has(std::span<const uint8_t> file, size_t at, std::string_view tag) {
  if (file.size() < at + tag.size()) return false;
  for (size_t i = 0; i < tag.size(); ++i) {
    if (file[at + i] != static_cast<uint8_t>(tag[i])) return false;
  }
  return true;
}

// Eleven bits set begin a frame of MPEG audio; of its layer there is none in AAC's.
bool begins_frame(std::span<const uint8_t> file) {
  return file.size() >= 4 && file[0] == 0xFF && (file[1] & 0xE0) == 0xE0;
}
bool has_no_layer(std::span<const uint8_t> file) {
  return (file[1] & 0xF6) == 0xF0;
}

}  // namespace

SoundFormat sound_format(std::span<const uint8_t> file) {
  if (has(file, 0, "RIFF") && has(file, 8, "WAVE")) return SoundFormat::kWav;
  if (has(file, 0, "fLaC")) return SoundFormat::kFlac;
  if (has(file, 0, "OggS")) return SoundFormat::kOgg;
  if (has(file, 0, "ID3")) return SoundFormat::kMp3;
  if (has(file, 0, "FORM") && (has(file, 8, "AIFF") || has(file, 8, "AIFC"))) {
    return SoundFormat::kAiff;
  }
  if (has(file, 0, ".snd")) return SoundFormat::kAu;
  if (has(file, 0, "caff")) return SoundFormat::kCaf;
  if (has(file, 0, "\x1A\x45\xDF\xA3")) return SoundFormat::kMatroska;
  if (has(file, 4, "ftyp")) return SoundFormat::kMp4;
  if (has(file, 0, "#!AMR")) return SoundFormat::kAmr;
  if (has(file, 0, "\x30\x26\xB2\x75\x8E\x66\xCF\x11")) return SoundFormat::kAsf;
  if (begins_frame(file)) return has_no_layer(file) ? SoundFormat::kAac : SoundFormat::kMp3;
  return SoundFormat::kUnknown;
}

std::string_view format_name(SoundFormat format) {
  switch (format) {
    case SoundFormat::kUnknown:
      return "unknown";
    case SoundFormat::kWav:
      return "WAV";
    case SoundFormat::kFlac:
      return "FLAC";
    case SoundFormat::kOgg:
      return "Ogg";
    case SoundFormat::kMp3:
      return "MP3";
    case SoundFormat::kAiff:
      return "AIFF";
    case SoundFormat::kAu:
      return "AU";
    case SoundFormat::kCaf:
      return "CAF";
    case SoundFormat::kMatroska:
      return "Matroska or WebM";
    case SoundFormat::kMp4:
      return "MP4 or M4A";
    case SoundFormat::kAac:
      return "AAC";
    case SoundFormat::kAsf:
      return "ASF or WMA";
    case SoundFormat::kAmr:
      return "AMR";
  }
  return "unknown";
}

std::string_view ffmpeg_demuxer(SoundFormat format) {
  switch (format) {
    case SoundFormat::kMatroska:
      return "matroska";
    case SoundFormat::kMp4:
      return "mov";
    case SoundFormat::kAac:
      return "aac";
    case SoundFormat::kAsf:
      return "asf";
    case SoundFormat::kAmr:
      return "amr";
    default:
      return {};
  }
}

bool is_for_libsndfile(SoundFormat format) {
  switch (format) {
    case SoundFormat::kWav:
    case SoundFormat::kFlac:
    case SoundFormat::kOgg:
    case SoundFormat::kMp3:
    case SoundFormat::kAiff:
    case SoundFormat::kAu:
    case SoundFormat::kCaf:
      return true;
    default:
      return false;
  }
}

}  // namespace pelton::media
