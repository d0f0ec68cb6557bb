// What a file with sound is, by how it begins: its name says nothing here. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace pelton::media {

enum class SoundFormat : uint8_t {
  kUnknown,
  kWav,  // RIFF; RF64 and Wave64 are not among them
  // libsndfile's
  kFlac,
  kOgg,  // Vorbis, Opus, FLAC
  kMp3,
  kAiff,
  kAu,
  kCaf,
  // ffmpeg's
  kMatroska,  // and WebM
  kMp4,       // and M4A, QuickTime
  kAac,       // ADTS
  kAsf,       // WMA
  kAmr,
};

SoundFormat sound_format(std::span<const uint8_t> file);

std::string_view format_name(SoundFormat format);  // "FLAC", for messages
// ffmpeg's name of the demuxer, which is the only one that runs: none of those that open other
// files. Empty: the format is not ffmpeg's.
std::string_view ffmpeg_demuxer(SoundFormat format);
bool is_for_libsndfile(SoundFormat format);

}  // namespace pelton::media
