// Any bytes as a GGUF file: the container is read, and what was accepted is looked at as the loader
// does, inside the file's bounds.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "checkpoint/gguf.h"
#include "checkpoint/gguf_names.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton;
  using namespace pelton::checkpoint;
  // A copy of its own, so that the sanitizer sees a read behind the end.
  const std::vector<uint8_t> file(data, data + size);
  const Result<GgufFile> parsed =
      parse_gguf(file, "fuzz.gguf", [](const GgufMetadata&) -> Result<void> { return {}; });
  if (!parsed.ok()) {
    CHECK(!parsed.error().message.empty());
    return 0;
  }
  uint64_t last = 0;
  for (const GgufTensor& tensor : parsed->tensors) {
    CHECK(tensor.begin <= tensor.end && tensor.end <= file.size(), tensor.name);
    CHECK(tensor.begin >= last, tensor.name);
    last = tensor.end;
  }
  const GgufMetadata& metadata = parsed->metadata;
  for (const auto& [key, value] : metadata.values()) {
    // Each accessor answers for each type, one way or the other.
    (void)metadata.integer(key);
    (void)metadata.number(key);
    (void)metadata.text(key);
    const auto texts = metadata.texts(key);
    if (texts.ok()) {
      for (const std::string_view text : *texts) CHECK(text.size() <= file.size());
    }
    (void)metadata.integers(key);
  }
  const auto family = gguf_family(metadata);
  if (family.ok()) (void)config_from_gguf(**family, metadata, {.vocab_size = 512});
  return 0;
}
