// Any bytes have a format, which has a name, and of what is not unknown there is one who reads it.
#include <cstdint>

#include "base/check.h"
#include "media/sound_format.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton::media;
  const SoundFormat format = sound_format({data, size});
  CHECK(!format_name(format).empty());
  const bool is_read = is_for_libsndfile(format) || !ffmpeg_demuxer(format).empty();
  CHECK(is_read == (format != SoundFormat::kUnknown));
  return 0;
}
