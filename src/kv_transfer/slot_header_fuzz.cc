// Any bytes are a slot's or a file's header or are refused; what is read is written so that it is
// read again. The sum is made right first: otherwise hardly any bytes would come further.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "kv_transfer/slot_header.h"

namespace {

std::string summed(std::string bytes, size_t size) {
  bytes.resize(size - 4, '\0');
  const uint32_t sum = pelton::kv_transfer::crc32c(bytes);
  for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<char>(sum >> (8 * i)));
  return bytes;
}

template <typename Header>
void try_one(const std::string& bytes) {
  (void)Header::decode(bytes);
  const auto header = Header::decode(summed(bytes, Header::kBytes));
  if (header) CHECK(Header::decode(header->encode()) == *header);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  try_one<pelton::kv_transfer::SlotHeader>(bytes);
  try_one<pelton::kv_transfer::FileHeader>(bytes);
  return 0;
}
