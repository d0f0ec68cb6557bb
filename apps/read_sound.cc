#include "apps/read_sound.h"

#include <cstdlib>
#include <string_view>

#include "media/sound_child.h"

namespace pelton::apps {
namespace {

constexpr int kWords = 6;  // pelton read-sound SECONDS CPU-SECONDS DEMUXER FFMPEG

}  // namespace

bool is_sound_child(int count, char** words) {
  return count == kWords && std::string_view(words[1]) == "read-sound";
}

int read_sound(char** words) {
  return media::run_sound_child({.demuxer = words[4],
                                 .ffmpeg = words[5],
                                 .seconds_max = std::strtod(words[2], nullptr),
                                 .cpu_s = std::atoi(words[3])});
}

}  // namespace pelton::apps
