// The host names that a listener answers to: what may stand in the Host header (RFC 9110, 7.2), or
// in HTTP/2's ":authority". Against DNS rebinding: a page of attacker.example whose name suddenly
// stands for 127.0.0.1 may ask a server there and read the answers as its own, but its browser
// sends that name along. Addresses cannot be rebound. Immutable, any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pelton::net {

class AllowedHosts {
 public:
  // All of them.
  AllowedHosts() = default;

  // Of --allowed-host: "pelton.example.org", without a port; "*": any name.
  // Errors: kInvalidArgument.
  static Result<AllowedHosts> parse(const std::vector<std::string>& names);

  // For a listener at that address: on loopback, or where names are given, only those and what is
  // always allowed (localhost, names below it, addresses); elsewhere, where whoever listens means
  // to be reached by names that it does not know, any.
  AllowedHosts at(std::string_view address) const;

  // host: a well-formed Host header; empty where a client sends none, which no browser does.
  bool allow(std::string_view host) const;

 private:
  bool any_ = true;
  bool any_named_ = false;          // by "*"
  std::vector<std::string> names_;  // lower case
};

// "127.0.0.1", "::1", "localhost": only this machine's programs come in there.
bool is_loopback(std::string_view address);

}  // namespace pelton::net
