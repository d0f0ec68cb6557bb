// Any bytes are read as a content to its end, or the stream is bad; what is sealed from them is
// read as it was, and with one byte changed it is not.
#include <cstdint>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>

#include "base/check.h"
#include "store/sealed_content.h"

namespace {

using pelton::store::RowCipher;
using pelton::store::SealedContent;

const RowCipher& cipher() {
  static const RowCipher one(pelton::base::AuthenticatedCipher("key"), "row");
  return one;
}

// Nothing: it is bad.
std::unique_ptr<std::string> read(const std::string& sealed) {
  const auto stream = SealedContent::reader(std::make_unique<std::istringstream>(sealed), cipher());
  std::string text;
  for (int byte = stream->get(); byte != std::char_traits<char>::eof(); byte = stream->get()) {
    text.push_back(static_cast<char>(byte));
  }
  return stream->bad() ? nullptr : std::make_unique<std::string>(text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  (void)read(bytes);
  if (size > SealedContent::kPieceBytes) return 0;
  std::string sealed = SealedContent::seal(cipher(), {.number = 0, .is_last = true}, bytes);
  const auto text = read(sealed);
  CHECK(text != nullptr && *text == bytes);
  sealed[size == 0 ? 3 : data[0] % sealed.size()] ^= 1;
  CHECK(read(sealed) == nullptr);
  CHECK(read(SealedContent::seal(cipher(), {.number = 0}, bytes)) == nullptr);
  return 0;
}
