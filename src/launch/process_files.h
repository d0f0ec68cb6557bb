// What the local launcher and its replicas write into files and the kernel says in others: text in,
// values out, and the reverse. What is no such text gives nothing. Pure but for the last.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "launch/launcher.h"
#include "net/url.h"

namespace pelton::launch {

struct WrittenOrder {
  ReplicaOrder order;
  int64_t unix_ms = 0;  // when it was given
};

// "POOL\nORDINAL TOKEN MILLISECONDS\n".
std::string order_text(const WrittenOrder& written);
std::optional<WrittenOrder> parse_order(std::string_view text);

// A pool's name where only a file's name may stand: no '/', no '.', nothing hidden.
std::string file_name_of(std::string_view pool);

// Of what `pelton serve` prints: where it listens for gateways ("fleet on HOST:PORT").
std::optional<net::HostPort> fleet_address_of(std::string_view output);

// Memory pages of a process that are resident; 0: it cannot be seen.
int64_t resident_pages_of(int pid);

}  // namespace pelton::launch
