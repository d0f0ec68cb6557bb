#include "gateway/media_config.h"

#include <vector>

namespace pelton::gateway {
namespace {

constexpr double kStepsMost = 10'000;
constexpr double kPixelsMost = 1 << 28;
constexpr double kImagesMost = 1000;
constexpr double kFramesMost = 1e6;
constexpr double kFpsMost = 240;
constexpr double kBytesMost = 1e12;
constexpr double kSecondsMost = 86'400;
constexpr double kLoraPlacesMost = 64;
constexpr double kAtOnceMost = 10'000;
constexpr double kQueueBytesLeast = 1 << 20;
constexpr double kQueueMost = 1e6;

Result<void> read_queue(const ConfigTable& table, bool is_scaled, MediaConfig& media) {
  TRY(table.read("at_once", {1, kAtOnceMost}, media.at_once));
  for (const std::string_view key : {"queue_requests", "queue_bytes", "queue_seconds"}) {
    if (!is_scaled || !table.has(key)) continue;
    return table.bad(key, fmt::format("is said by 'hold_{}' where the pool has [pool.scale]",
                                      key.substr(key.find('_') + 1)));
  }
  TRY(table.read("queue_requests", {1, kQueueMost}, media.queue.requests_max));
  TRY(table.read("queue_bytes", {kQueueBytesLeast, kBytesMost}, media.queue.bytes_max));
  return table.read("queue_seconds", {1, kSecondsMost}, media.queue.time_max_s);
}

Result<void> read_table(const ConfigTable& table, bool is_scaled, MediaConfig& media) {
  TRY(table.expect_only({"makes", "steps", "fps", "steps_max", "pixels_max", "images_max",
                         "frames_max", "result_bytes_max", "time_max", "lora_load", "lora_places",
                         "trust_clients", "at_once", "queue_requests", "queue_bytes",
                         "queue_seconds"}));
  std::vector<std::string> makes;
  TRY(table.read("makes", makes));
  for (const std::string& one : makes) {
    if (one != "images" && one != "videos") {
      return table.bad("makes", "must be \"images\", \"videos\" or a list of both");
    }
    (one == "images" ? media.images : media.videos) = true;
  }
  if (!media.any()) return table.bad("makes", "is missing: \"images\", \"videos\" or both");
  TRY(table.read("steps_max", {1, kStepsMost}, media.steps_max));
  media.steps = std::min(media.steps, media.steps_max);
  TRY(table.read("steps", {1, static_cast<double>(media.steps_max)}, media.steps));
  TRY(table.read("fps", {1, kFpsMost}, media.fps));
  TRY(table.read("pixels_max", {1, kPixelsMost}, media.pixels_max));
  TRY(table.read("images_max", {1, kImagesMost}, media.images_max));
  TRY(table.read("frames_max", {1, kFramesMost}, media.frames_max));
  TRY(table.read("result_bytes_max", {1, kBytesMost}, media.result_bytes_max));
  TRY(table.read("time_max", {0.1, kSecondsMost}, media.time_max_s));
  TRY(table.read("lora_load", {0, kSecondsMost}, media.lora_load_s));
  TRY(table.read("lora_places", {1, kLoraPlacesMost}, media.lora_places));
  TRY(read_queue(table, is_scaled, media));
  return table.read("trust_clients", media.trusts_clients);
}

}  // namespace

Result<void> read_media(const ConfigTable& pool, bool is_foreign, MediaConfig& media) {
  return pool.read_table("media", [&](const ConfigTable& table) -> Result<void> {
    if (!is_foreign) {
      return pool.bad("media",
                      "is for workers of other kinds (kind = \"openai\"): none of our own makes "
                      "images or videos");
    }
    return read_table(table, pool.has("scale"), media);
  });
}

std::string media_text(const MediaConfig& media, bool is_scaled) {
  if (!media.any()) return "";
  std::string makes = media.images ? "\"images\"" : "";
  if (media.videos) makes += media.images ? ", \"videos\"" : "\"videos\"";
  std::string text = fmt::format(
      "\n[pool.media]\nmakes = [{}]\nsteps = {}\nfps = {}\nsteps_max = {}\npixels_max = {}\n"
      "images_max = {}\nframes_max = {}\nresult_bytes_max = {}\ntime_max = {}\nlora_load = {}\n"
      "lora_places = {}\ntrust_clients = {}\nat_once = {}\n",
      makes, media.steps, media.fps, media.steps_max, media.pixels_max, media.images_max,
      media.frames_max, media.result_bytes_max, media.time_max_s, media.lora_load_s,
      media.lora_places, media.trusts_clients, media.at_once);
  if (is_scaled) return text;
  return text + fmt::format("queue_requests = {}\nqueue_bytes = {}\nqueue_seconds = {}\n",
                            media.queue.requests_max, media.queue.bytes_max,
                            media.queue.time_max_s);
}

}  // namespace pelton::gateway
