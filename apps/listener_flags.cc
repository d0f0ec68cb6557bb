#include "apps/listener_flags.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "base/file.h"
#include "gateway/key_scopes.h"
#include "net/ip_address.h"

namespace pelton::apps {

using cli::Flag;

std::vector<Flag> listener_flags() {
  return {
      {.name = "--api-key",
       .value = "KEY",
       .help = "what clients must send as bearer token; of several any one",
       .many = true,
       .secret = true,
       .may_be_empty = false},
      {.name = "--admin-api-key",
       .value = "KEY",
       .help = "an operator's key: all that --api-key may, and what changes the server "
               "(/v1/load_lora_adapter)",
       .many = true,
       .secret = true,
       .may_be_empty = false},
      {.name = "--api-key-file",
       .value = "FILE",
       .help = "more keys, a line each: KEY [TENANT [WEIGHT]] [rpm=N] [tpm=N] [concurrent=N] "
               "[role=admin]; tenants share nothing",
       .may_be_empty = false},
      {.name = "--open",
       .help = "listen beyond this machine (--host, --admin-host) though nobody is asked for a key",
       .kind = Flag::Kind::kSwitch,
       .only_with = {{"--host"}, {"--admin-host"}}},
      {.name = "--cors-origin",
       .value = "ORIGIN",
       .help = "pages of these origins may ask from a browser, as https://chat.example.org; *: "
               "any page",
       .many = true},
      {.name = "--allowed-host",
       .value = "NAME",
       .help =
           "also answer requests for this host name, as pelton.example.org; *: any. On loopback "
           "only localhost and addresses are answered without",
       .many = true},
      {.name = "--tls-cert",
       .value = "FILE",
       .help = "speak TLS at every listener: certificate chain (PEM), the server's own first",
       .aliases = {"--ssl-certfile"},
       .may_be_empty = false},
      {.name = "--tls-key",
       .value = "FILE",
       .help = "its key (PEM, without a passphrase)",
       .aliases = {"--ssl-keyfile"},
       .may_be_empty = false},
      {.name = "--tls-client-ca",
       .value = "FILE",
       .help = "require client certificates signed by one of these CAs (PEM)",
       .may_be_empty = false},
      {.name = "--http2",
       .value = "WHICH",
       .help = "HTTP/2 at the API's port too, over TLS, in the clear (with prior knowledge) and at "
               "--uds; or HTTP/1.1 alone",
       .default_text = "on",
       .choices = {"on", "off"}}};
}

Result<void> check_key(std::string_view key, std::string_view origin) {
  const auto is_control = [](unsigned char c) { return c < 0x20 || c == 0x7F; };
  const auto found = std::find_if(key.begin(), key.end(), is_control);
  const bool has_blank_end = key.starts_with(' ') || key.ends_with(' ');
  if (found == key.end() && !has_blank_end) return {};
  const std::string what = found == key.end() ? "begins or ends with a blank"
                           : *found == '\n' || *found == '\r'
                               ? "holds a line break (is a file's last line end in it?)"
                               : fmt::format("holds a control character, byte {} of {}",
                                             found - key.begin() + 1, key.size());
  return Error{
      ErrorCode::kBadConfig,
      fmt::format("{} {}, which no header can carry: no client could send it", origin, what),
      "api-key"};
}

namespace {

// Read once: between two readings it may have become another one.
Result<void> add_key_file(const std::string& file, ListenerKeys& keys) {
  constexpr size_t kKeyFileBytesMax = size_t{1} << 24;
  const Result<std::string> text = base::read_file(file, kKeyFileBytesMax);
  if (!text.ok()) return Error{ErrorCode::kBadConfig, text.error().message, ""};
  TRY(keys.all.add_file(*text, file));
  if (keys.all.empty()) return Error{ErrorCode::kBadConfig, file + ": holds no key", ""};
  TRY_ASSIGN(const gateway::KeyScopes scopes, gateway::KeyScopes::parse(*text, file));
  if (scopes.are_for_gateways()) {
    return Error{ErrorCode::kBadConfig,
                 "models=, pool= and region= of a key are for a gateway's keys_file: this server "
                 "knows no pools",
                 "api-key-file"};
  }
  keys.operators.add_file(*text);
  return {};
}

}  // namespace

Result<ListenerKeys> listener_keys(const cli::Arguments& arguments) {
  ListenerKeys keys;
  if (arguments.has("--api-key")) {
    for (const std::string& key : arguments.list("--api-key")) {
      TRY(check_key(key, arguments.origin("--api-key")));
      keys.all.add(key);
    }
  }
  if (arguments.has("--admin-api-key")) {
    for (const std::string& key : arguments.list("--admin-api-key")) {
      TRY(check_key(key, arguments.origin("--admin-api-key")));
      keys.all.add_admin(key);
    }
  }
  if (arguments.has("--api-key-file")) TRY(add_key_file(arguments.text("--api-key-file"), keys));
  if (arguments.has("--admin-api-key")) {
    for (const std::string& key : arguments.list("--admin-api-key")) {
      keys.operators.add(key, {.name = "an operator", .role = access::OperatorRole::kAdmin});
    }
  }
  if (arguments.has("--admin-keys") && keys.operators.empty()) {
    return Error{ErrorCode::kBadConfig,
                 "--admin-keys: no key has a role: give --admin-api-key, or --api-key-file with "
                 "role=view, role=operate or role=admin behind a key",
                 "admin-keys"};
  }
  return keys;
}

access::AdminGate::Keys admin_keys(const cli::Arguments& arguments) {
  return arguments.has("--admin-keys") ? access::AdminGate::Keys::kAsked
                                       : access::AdminGate::Keys::kNotAsked;
}

Result<access::CorsOrigins> cors_origins(const cli::Arguments& arguments) {
  return access::CorsOrigins::parse(arguments.list("--cors-origin"));
}

Result<net::AllowedHosts> allowed_hosts(const cli::Arguments& arguments) {
  return net::AllowedHosts::parse(arguments.list("--allowed-host"));
}

Result<net::TlsIdentity::Files> tls_files(const cli::Arguments& arguments) {
  net::TlsIdentity::Files files{.certificate = arguments.text("--tls-cert"),
                                .key = arguments.text("--tls-key"),
                                .client_ca = arguments.text("--tls-client-ca")};
  if (files.certificate.empty() != files.key.empty()) {
    return Error{ErrorCode::kInvalidArgument, "--tls-cert and --tls-key go together",
                 files.key.empty() ? "tls-cert" : "tls-key"};  // the one that is there
  }
  if (files.certificate.empty() && !files.client_ca.empty()) {
    return Error{ErrorCode::kInvalidArgument, "--tls-client-ca needs --tls-cert and --tls-key",
                 "tls-client-ca"};
  }
  return files;
}

Result<std::shared_ptr<net::TlsIdentity>> tls_identity(const cli::Arguments& arguments) {
  TRY_ASSIGN(const net::TlsIdentity::Files files, tls_files(arguments));
  if (files.certificate.empty()) return std::shared_ptr<net::TlsIdentity>();
  return net::TlsIdentity::load(files);
}

Flag replicas_flag() {
  return {.name = "--replicas",
          .value = "N",
          .help =
              "with --executor modelled:FILE: so many workers in this process, whose ports count "
              "up from the given ones",
          .kind = Flag::Kind::kInteger,
          .default_text = "1",
          .least = 1,
          .most = 1024};
}

int port_of(const cli::Arguments& arguments, std::string_view flag, int replica) {
  const auto first = static_cast<int>(arguments.integer(flag));
  return first == 0 ? 0 : first + replica;
}

Result<void> check_replicas(const cli::Arguments& arguments) {
  const auto replicas = static_cast<int>(arguments.integer("--replicas"));
  if (replicas == 1) return {};
  if (arguments.has("--uds")) {
    return Error{ErrorCode::kInvalidArgument,
                 "--uds is one socket, and each of --replicas wants one of its own", "replicas"};
  }
  if (arguments.has("--batches")) {
    return Error{ErrorCode::kInvalidArgument,
                 "--batches is one folder, and each of --replicas wants one of its own",
                 "replicas"};
  }
  if (!arguments.text("--executor").starts_with("modelled:")) {
    return Error{ErrorCode::kInvalidArgument,
                 "--replicas are workers of scripted answers (--executor modelled:FILE); a model "
                 "that computes is served by a process of its own",
                 "replicas"};
  }
  constexpr int kPortMax = 65'535;
  for (const std::string_view flag : {"--port", "--grpc-port", "--admin-port", "--fleet-port"}) {
    if (!arguments.has(flag) || port_of(arguments, flag, replicas - 1) <= kPortMax) continue;
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("{} {}: the last of {} replicas would listen at {}; there are ports up "
                    "to {}",
                    flag, arguments.integer(flag), replicas, port_of(arguments, flag, replicas - 1),
                    kPortMax),
        std::string(flag.substr(2))};
  }
  return {};
}

Result<void> with_flag(Result<void> started, std::string_view flag) {
  if (started || started.error().field != "address") return started;
  Error error = started.error();
  error.field = flag;
  return error;
}

bool is_local(const std::string& host) {
  return net::is_loopback(host);
}

namespace {

// What is no address is refused where it would be listened at.
bool is_exposed(const std::string& host) {
  return net::is_ip_address(host) && !is_local(host);
}

}  // namespace

Result<void> check_exposure(const cli::Arguments& arguments, const access::ApiKeys& keys) {
  if (arguments.has("--open")) return {};
  const bool asks_certificate = arguments.has("--tls-client-ca");
  const std::string& host = arguments.text("--host");
  if (is_exposed(host) && keys.empty() && !asks_certificate) {
    return Error{
        ErrorCode::kBadConfig,
        fmt::format("--host {} lets anyone who reaches this machine use the model, and nobody "
                    "is asked for a key: give --api-key, --api-key-file or --tls-client-ca, "
                    "or --open if that is meant",
                    host),
        "host"};
  }
  if (!arguments.has("--admin-port")) return {};
  const std::string& admin_host = arguments.text("--admin-host");
  if (!is_exposed(admin_host) || arguments.has("--admin-keys")) return {};
  if (asks_certificate && !arguments.has("--no-admin-tls")) return {};
  return Error{
      ErrorCode::kBadConfig,
      fmt::format("--admin-host {} lets anyone who reaches this machine read the operator's "
                  "reports, which ask for no key: give --admin-keys, --tls-client-ca{}, or --open "
                  "if that is meant",
                  admin_host, asks_certificate ? " without --no-admin-tls" : ""),
      "admin-host"};
}

}  // namespace pelton::apps
