#include "api/llama_slots.h"

#include <algorithm>

#include "base/json_writer.h"

namespace pelton::api {

std::string llama_slots_body(std::span<const LlamaSlots> all) {
  std::string body;
  base::JsonWriter writer(body);
  writer.begin_array();
  int id = 0;
  for (const LlamaSlots& slots : all) {
    for (int i = 0; i < slots.count; ++i) {
      writer.begin_object().key("id").integer(id++).key("n_ctx").integer(slots.context_tokens);
      writer.key("is_processing").boolean(i < slots.running).end_object();
    }
  }
  writer.end_array();
  return body;
}

bool has_free_slot(std::span<const LlamaSlots> all) {
  return std::ranges::any_of(all,
                             [](const LlamaSlots& slots) { return slots.running < slots.count; });
}

ApiError no_free_slot() {
  return {.status = 503,
          .message = "no slot is free",
          .type = "unavailable_error",
          .param = {},
          .code = "no_slot",
          .retry_after_s = 1};
}

}  // namespace pelton::api
