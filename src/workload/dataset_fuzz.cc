// Files of prompts are foreign bytes: whatever they hold, there is a value or an Error.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "workload/recorded.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton::workload;
  if (size == 0) return 0;
  const Vocabulary vocabulary;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const RecordedOptions options{.count = 3, .turns_max = 2};
  switch (data[0] % 6) {
    case 0: {
      const auto made = sharegpt_conversations(text, "f", options, vocabulary);
      CHECK(!made.ok() || made->size() == 3);
      break;
    }
    case 1: {
      const auto made = custom_conversations(text, "f", options, vocabulary);
      CHECK(!made.ok() || made->size() == 3);
      break;
    }
    case 2: {
      const auto made = hub_rows_conversations(text, "f", options, vocabulary);
      CHECK(!made.ok() || made->size() == 3);
      break;
    }
    case 3: {
      const auto made = burstgpt_conversations(text, "f", 3, 1, vocabulary);
      CHECK(!made.ok() || made->size() == 3);
      break;
    }
    case 4: {
      const auto made = sonnet_conversations(
          text, "f", {.input_tokens = 40, .output_tokens = 4, .prefix_tokens = 10}, 3, 1,
          vocabulary);
      CHECK(!made.ok() || made->size() == 3);
      break;
    }
    default: {
      const auto made =
          trace_conversations(text, "f", {.count = 3, .tokens_max = 10'000}, vocabulary);
      CHECK(!made.ok() || !made->conversations.empty());
    }
  }
  return 0;
}
