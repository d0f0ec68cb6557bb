// Requests for images and videos (OpenAI's /v1/images and /v1/videos, with the fields that
// diffusion engines add): which of them one is, whether it keeps to its pool's limits, and how much
// work it is. What is read here goes on to the worker as it came. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "gateway/media_config.h"
#include "net/http_message.h"

namespace pelton::gateway {

enum class MediaKind {
  kImage,         // POST /v1/images/generations, /edits, /variations: answered when it is made
  kVideo,         // POST /v1/videos, /v1/videos/ID/remix: begins a job
  kVideoJob,      // /v1/videos/ID: what has become of it; or its end
  kVideoContent,  // GET /v1/videos/ID/content: its bytes
  kVideoList,     // GET /v1/videos
};
// None: it asks for neither.
std::optional<MediaKind> media_kind_of(const net::HttpRequest& request);
// It begins work, and has fields that say how much.
constexpr bool makes_media(MediaKind kind) {
  return kind == MediaKind::kImage || kind == MediaKind::kVideo;
}
constexpr bool makes(const MediaConfig& media, MediaKind kind) {
  return kind == MediaKind::kImage ? media.images : media.videos;
}
// ID of /v1/videos/ID and what lies below; empty: it names none.
std::string_view video_of_path(std::string_view path);

struct MediaWork {
  // Pictures times steps times pixels, in units of kUnitPixels: what a worker's time is measured
  // by. A video's frames are pictures.
  static constexpr int64_t kUnitPixels = 65'536;
  int64_t units = 1;
  std::string lora;  // the adapter that it names beside its model; empty: none
};

// Of one that makes_media(). Errors: kInvalidArgument with the field, and the limit's name.
Result<MediaWork> read_media_work(const net::HttpRequest& request, MediaKind kind,
                                  const MediaConfig& limits);

// What a worker says of a video: of its answer to the request that began it, or asks for it.
struct VideoState {
  enum class Phase { kUnderWay, kDone, kFailed };
  std::string id;
  Phase phase = Phase::kUnderWay;
  double progress = 0;  // 0 to 1
};
// None: it is no such object.
std::optional<VideoState> video_state(std::string_view body);

}  // namespace pelton::gateway
