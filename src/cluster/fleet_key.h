// The secret that a fleet's gateways and workers share: 32 random bytes in a file, of which all
// other keys are derived (HKDF-SHA256, RFC 5869), each under a label of its own.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pelton::cluster {

class FleetKey {
 public:
  static constexpr size_t kBytes = 32;

  // From a file of one or two lines of 64 hexadecimal digits; empty lines and those that begin with
  // # are skipped. The first key makes, both are accepted. Errors: kBadConfig with file and line.
  static Result<FleetKey> parse(std::string_view text, const std::string& file);
  static Result<FleetKey> read(const std::string& file);
  // A new file, mode 0600. kIo: it exists, or cannot be written.
  static Result<void> create(const std::string& file);

  // 32 bytes for that purpose; the first of them makes, all are accepted.
  std::vector<std::string> derive(std::string_view label) const;

 private:
  std::vector<std::string> keys_;
};

// The label of the connections' pre-shared key.
inline constexpr std::string_view kConnectionLabel = "pelton fleet connection v1";

}  // namespace pelton::cluster
