// Foreign bytes as either side of an exchange between autoscaler and gateway.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "launch/exchange.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton::launch;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (const auto order = parse_order_body(bytes); order.ok()) {
    for (const ScaledFleet::Address& one : order->launched) CHECK(one.port > 0);
    // What was read is written as it was read.
    const auto again = parse_order_body(order_body(*order));
    CHECK(again.ok() && *again == *order);
  }
  if (const auto report = parse_report_body(bytes); report.ok()) {
    CHECK(parse_report_body(report_body(*report)).ok());
  }
  return 0;
}
