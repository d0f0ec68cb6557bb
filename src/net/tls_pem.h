// Certificates and keys from PEM files into OpenSSL's contexts. Internal to this room; pure
// functions.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"

struct ssl_ctx_st;

namespace pelton::net {

// The text of a PEM file; `flag` is what the user called it. Errors: kBadConfig.
Result<std::string> read_pem(const std::string& file);

struct PemText {
  const std::string& text;
  const std::string& file;  // for messages
};

// A context of ours: TLS 1.2 at least, no renegotiation, no compression.
std::shared_ptr<ssl_ctx_st> make_tls_context();

// The chain's first certificate is the holder's own; its end in seconds since 1970 is returned.
Result<int64_t> use_certificates(ssl_ctx_st& context, const PemText& chain, const PemText& key);
// Peers are believed if one of these vouches for them.
Result<void> use_authorities(ssl_ctx_st& context, const PemText& authorities);

// OpenSSL's latest complaint in words, which it then forgets.
std::string tls_complaint();

}  // namespace pelton::net
