#include "cluster/block_events.h"

#include "base/check.h"
#include "cluster/wire_numbers.h"

namespace pelton::cluster {

std::string encode(const BlockEvents& events) {
  std::string out;
  out.reserve(1 + events.events.size() * BlockEvents::kBytesEach);
  out += events.clears ? '\1' : '\0';
  for (const BlockEvent& event : events.events) {
    CHECK(event.group >= 0 && event.group <= BlockEvents::kGroupsMax);
    out += static_cast<char>(event.group << 1 | (event.stored ? 1 : 0));
    append_u32(out, static_cast<uint32_t>(event.name));
    append_u32(out, static_cast<uint32_t>(event.name >> 32));
  }
  return out;
}

Result<BlockEvents> decode_block_events(std::string_view payload) {
  const auto bad = [](const char* what) {
    return Error{ErrorCode::kInvalidArgument, std::string("block events ") + what};
  };
  if (payload.size() % BlockEvents::kBytesEach != 1) return bad("that are cut off");
  WireReader reader(payload);
  const uint8_t clears = reader.u8();
  if (clears > 1) return bad("of another kind");
  BlockEvents events{.clears = clears == 1, .events = {}};
  events.events.reserve(reader.left() / BlockEvents::kBytesEach);
  while (reader.left() > 0) {
    const uint8_t kind = reader.u8();
    const uint64_t low = reader.u32();
    const uint64_t high = reader.u32();
    events.events.push_back(
        {.stored = (kind & 1) != 0, .group = kind >> 1, .name = low | high << 32});
  }
  return events;
}

}  // namespace pelton::cluster
