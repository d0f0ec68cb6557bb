// That a pool's workers make images or videos, and how much a request may ask of them
// ([pool.media], docs/images.md). A value; what is wrong is refused with its line.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "gateway/config_table.h"
#include "gateway/scaling_config.h"

namespace pelton::gateway {

struct MediaConfig {
  bool images = false;
  bool videos = false;
  // What its model takes where a request does not say: what such a request costs depends on it.
  int steps = 30;
  int fps = 24;
  // Limits, by whose names requests are refused.
  int steps_max = 200;
  int64_t pixels_max = int64_t{4} << 20;  // of one picture
  int images_max = 10;                    // of one request
  int frames_max = 1024;                  // of one video
  int64_t result_bytes_max = int64_t{1} << 30;
  double time_max_s = 600;  // until a worker has answered
  // What a request is priced at where its LoRA adapter is not known to be in a worker's memory.
  double lora_load_s = 5;
  int lora_places = 4;  // adapters that a worker keeps in memory
  // Images and videos that a worker is sent before one of them is made: what is beyond waits here.
  int at_once = 4;
  // Where no [pool.scale] says how much waits, and how long.
  HoldConfig queue{.requests_max = 256};
  // Whether clients may name files of the workers', and give the engine's own parameters in bags
  // that no limit is read in.
  bool trusts_clients = false;

  bool any() const { return images || videos; }
  friend bool operator==(const MediaConfig&, const MediaConfig&) = default;
};

// The table of a [[pool]] if there is one.
Result<void> read_media(const ConfigTable& pool, bool is_foreign, MediaConfig& media);
// As the file has it, behind its pool's keys; `is_scaled`: by a pool with [pool.scale].
std::string media_text(const MediaConfig& media, bool is_scaled);

}  // namespace pelton::gateway
