// What llama.cpp's clients read at /slots: how many sequences may be at work at once, and how many
// are. Which sequence has which slot is the scheduler's. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "api/error.h"

namespace pelton::api {

// Those of one model, or of one worker.
struct LlamaSlots {
  int count = 0;
  int running = 0;
  int64_t context_tokens = 0;
};
// One list, numbered through.
std::string llama_slots_body(std::span<const LlamaSlots> all);
bool has_free_slot(std::span<const LlamaSlots> all);
// For whoever asks with "fail_on_no_slot", whatever it is, as llama.cpp reads it.
ApiError no_free_slot();

}  // namespace pelton::api
