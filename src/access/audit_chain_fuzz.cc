// Any text is a log under this key, or has a fault; lines that are read are read again alike.
#include <cstdint>
#include <string_view>
#include <vector>

#include "access/audit_chain.h"
#include "base/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton::access;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  constexpr std::string_view kKey = "the fuzzer's own key";
  std::vector<AuditLine> seen;
  const AuditVerdict verdict = verify_audit(text, kKey, {}, &seen);
  CHECK(static_cast<int64_t>(seen.size()) == verdict.lines);
  CHECK(verdict.end.number == verdict.lines);
  if (verdict.fault) CHECK(verdict.fault->line == verdict.lines + 1);
  (void)read_audit_head(text, kKey);
  return 0;
}
