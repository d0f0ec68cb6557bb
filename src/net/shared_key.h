// TLS 1.3 with a key that both sides hold (RFC 8446, 2.2) instead of certificates: each proves to
// the other that it has it. Internal to this room; pure functions on contexts.
#pragma once

#include <memory>
#include <string>
#include <vector>

struct ssl_ctx_st;

namespace pelton::net {

// Of a key.
inline constexpr size_t kSharedKeyBytes = 32;

// Server: a client is believed that holds one of `keys`, each of kSharedKeyBytes.
void accept_shared_keys(ssl_ctx_st& context, const std::vector<std::string>& keys);
// Client: shows the first of `keys`.
void show_shared_key(ssl_ctx_st& context, const std::vector<std::string>& keys);

}  // namespace pelton::net
