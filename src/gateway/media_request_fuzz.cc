// Any body is a request within its limits or refused; any answer about a video is one or is none.
#include <cstdint>
#include <string>

#include "base/check.h"
#include "gateway/media_request.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton::gateway;
  if (size < 1) return 0;
  pelton::net::HttpRequest request{
      .method = "POST",
      .path = (data[0] & 1) == 0 ? "/v1/images/edits" : "/v1/videos",
      .query = {},
      .headers = {},
      .body = std::string(reinterpret_cast<const char*>(data) + 1, size - 1),
      .remote = {}};
  if ((data[0] & 2) != 0) request.headers.add("Content-Type", "multipart/form-data; boundary=x");
  const MediaConfig limits{.trusts_clients = (data[0] & 4) != 0};
  const auto work = read_media_work(request, *media_kind_of(request), limits);
  if (work.ok()) {
    const double most = static_cast<double>(limits.pixels_max) * limits.steps_max *
                        limits.images_max * limits.frames_max /
                        static_cast<double>(MediaWork::kUnitPixels);
    CHECK(work->units >= 1 && static_cast<double>(work->units) <= most);
    CHECK(work->lora.size() <= 256);
  }
  if (const auto state = video_state(request.body)) {
    CHECK(state->progress >= 0 && state->progress <= 1);
    CHECK(!state->id.empty());
  }
  return 0;
}
