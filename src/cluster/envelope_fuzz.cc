// Foreign bytes as each of the things that frames carry: what is taken can be written and taken
// again, as the same.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "cluster/envelope.h"
#include "cluster/fleet_key.h"
#include "cluster/token_list.h"

namespace {

template <typename Decode>
void round_trip(std::string_view bytes, const Decode& decode) {
  const auto got = decode(bytes);
  if (!got.ok()) return;
  const auto wire = encode(*got);
  const auto again = decode(wire);
  CHECK(again.ok());
  CHECK(encode(*again) == wire);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton::cluster;
  if (size < 1) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 9) {
    case 0:
      round_trip(bytes, decode_run_envelope);
      break;
    case 1:
      round_trip(bytes, decode_answer_head);
      break;
    case 2:
      round_trip(bytes, decode_choice_end);
      break;
    case 3:
      round_trip(bytes, decode_answer_error);
      break;
    case 4:
      round_trip(bytes, decode_worker_record);
      break;
    case 5:
      round_trip(bytes, decode_worker_load);
      break;
    case 6:
      round_trip(bytes, decode_token_list);
      break;
    case 8:
      round_trip(bytes, decode_prompt_found);
      round_trip(bytes, decode_said_envelope);
      break;
    default:
      (void)FleetKey::parse(bytes, "f").ok();
      break;
  }
  return 0;
}
