// What launchers and their replicas write into files and the kernel says in others: text in,
// values out, and the reverse. What is no such text gives nothing. Pure but for what looks at files
// and processes.
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

// Of a file; 0: it cannot be seen.
int64_t bytes_of(const std::string& file);

// Whether another replica would end likewise, as `pelton serve` ends: a wrong command line, a wrong
// file, no such model, too little memory; or as shells say that there is no such program.
bool is_hopeless_exit(int code);

// Memory pages of a process that are resident; 0: it cannot be seen.
int64_t resident_pages_of(int pid);

}  // namespace pelton::launch
