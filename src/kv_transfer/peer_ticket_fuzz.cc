// Any text is a ticket or is refused, also where the fleet's key has signed it: otherwise hardly
// any would come further than that. What is read is written so that it is read again, and is good
// once.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/digest.h"
#include "kv_transfer/peer_ticket.h"

namespace {

namespace transfer = pelton::kv_transfer;

void try_one(const std::string& text, const std::vector<std::string>& keys) {
  const auto ticket = transfer::PeerTicket::open(text, keys);
  if (!ticket.ok()) return;
  const auto again = transfer::PeerTicket::open(ticket->seal(keys.front()), keys);
  CHECK(again.ok());
  CHECK(*again == *ticket);
  transfer::UsedTickets used;
  const transfer::UsedTickets::Shown shown{
      .source = ticket->source, .target = ticket->target, .now_ms = 1'000'000, .steady_ms = 1'000};
  if (used.use(*ticket, shown).ok()) CHECK(!used.use(*ticket, shown).ok());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const std::vector<std::string> keys = {std::string(32, 'k')};
  try_one(text, keys);
  try_one(text + "." + pelton::base::hmac_sha256(keys.front(), "ticket " + text), keys);
  return 0;
}
