// The flags that say who may come in at `pelton serve`'s listeners, and in what language: keys,
// CORS, TLS.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "access/admin_gate.h"
#include "access/api_keys.h"
#include "access/cors.h"
#include "access/operator_keys.h"
#include "base/result.h"
#include "cli/command_line.h"
#include "net/allowed_hosts.h"
#include "net/tls_identity.h"

namespace pelton::apps {

// --api-key --admin-api-key --api-key-file --open --cors-origin --allowed-host --tls-cert --tls-key
// --tls-client-ca --http2.
std::vector<cli::Flag> listener_flags();

// Whether a client could send this key in a header; `origin` names it: "--api-key". Errors:
// kBadConfig.
Result<void> check_key(std::string_view key, std::string_view origin);
// Who may come in, of one reading of the file of keys, if there is one.
struct ListenerKeys {
  access::ApiKeys all;
  access::OperatorKeys operators;  // of these
};
// Errors: kBadConfig, also where the file holds no key, and where --admin-keys asks for operators'
// and none is.
Result<ListenerKeys> listener_keys(const cli::Arguments& arguments);
// --admin-keys.
access::AdminGate::Keys admin_keys(const cli::Arguments& arguments);
Result<access::CorsOrigins> cors_origins(const cli::Arguments& arguments);
Result<net::AllowedHosts> allowed_hosts(const cli::Arguments& arguments);
// Which files; reads none. Errors: kInvalidArgument where one is missing.
Result<net::TlsIdentity::Files> tls_files(const cli::Arguments& arguments);
// Null without --tls-cert.
Result<std::shared_ptr<net::TlsIdentity>> tls_identity(const cli::Arguments& arguments);

// --replicas, and the port of one of them: replicas count up from the given one; 0: any free one.
cli::Flag replicas_flag();
int port_of(const cli::Arguments& arguments, std::string_view flag, int replica);
// Only of scripted answers, and where there are so many ports. Errors: kInvalidArgument.
Result<void> check_replicas(const cli::Arguments& arguments);

// What a listener says of its address is said of the flag that gave it.
Result<void> with_flag(Result<void> started, std::string_view flag);
// The loopback interface only.
bool is_local(const std::string& host);
// Neither the API nor the admin listener is there beyond this machine without asking who comes
// (the one for a key or a certificate, the other for a certificate), unless --open says so. Errors:
// kBadConfig.
Result<void> check_exposure(const cli::Arguments& arguments, const access::ApiKeys& keys);

}  // namespace pelton::apps
