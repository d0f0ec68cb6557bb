#include "console/pages.h"

#include <algorithm>

#include "base/json_writer.h"
#include "console/bundle.h"

namespace pelton::console {
namespace {

constexpr std::string_view kPath = "/console";

// Nothing but the listener's own files, and fetches of the same origin. No policy may turn text
// into HTML or script: the page builds its elements one by one.
constexpr std::string_view kContentSecurityPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'";

net::HttpResponse not_here(std::string message) {
  net::HttpResponse response =
      net::error_response({.status = 404, .code = "not_found", .message = std::move(message)});
  add_page_headers(response.headers);
  return response;
}

}  // namespace

net::HttpResponse only_for_reading(const net::HttpRequest& request) {
  net::HttpResponse response =
      net::error_response({.status = 405,
                           .code = "method_not_allowed",
                           .message = request.path + " is for GET and HEAD"});
  response.headers.add("Allow", "GET, HEAD");
  return response;
}

bool is_own_page(const net::HttpRequest& request) {
  const std::string_view site = request.headers.get("Sec-Fetch-Site");
  if (!site.empty()) return site == "same-origin" || site == "none";
  const std::string_view origin = request.headers.get("Origin");
  const size_t authority = origin.find("://");
  return origin.empty() ||
         (authority != std::string_view::npos &&
          net::equals_without_case(origin.substr(authority + 3), request.headers.get("Host")));
}

bool is_console_path(std::string_view path) {
  return path == kPath || (path.starts_with(kPath) && path[kPath.size()] == '/');
}

void add_page_headers(net::HttpHeaders& headers) {
  headers.add("Content-Security-Policy", std::string(kContentSecurityPolicy));
  headers.add("X-Content-Type-Options", "nosniff");
  headers.add("X-Frame-Options", "DENY");  // for browsers that know no frame-ancestors
  headers.add("Referrer-Policy", "no-referrer");
  headers.add("Cross-Origin-Opener-Policy", "same-origin");
  headers.add("Cross-Origin-Resource-Policy", "same-origin");
  headers.add("Permissions-Policy", "camera=(), microphone=(), geolocation=(), payment=()");
}

std::string config_body(const Config& config) {
  std::string body;
  base::JsonWriter writer(body);
  writer.begin_object().key("version").string(config.version).key("pages").begin_array();
  for (const std::string_view page : config.pages) writer.string(page);
  writer.end_array()
      .key("chat_port")
      .integer(config.chat_port)
      .key("chat_tls")
      .boolean(config.chat_tls)
      .key("what_if")
      .boolean(config.has_what_if)
      .key("sign_in")
      .boolean(config.has_sign_in)
      .key("asks_key")
      .boolean(config.asks_key);
  writer.end_object();
  return body;
}

net::HttpResponse console_reply(const net::HttpRequest& request, const Config& config) {
  if (bundle().empty()) {
    return not_here("this build has no console: esbuild was not installed when it was made");
  }
  net::HttpResponse response;
  std::string_view name = std::string_view(request.path).substr(kPath.size());
  if (name == "/") {  // the page's own addresses are relative to /console
    response.status = 308;
    response.headers.add("Location", "../console");
    return response;
  }
  if (!name.empty()) name.remove_prefix(1);
  add_page_headers(response.headers);
  if (name == "config.json") {
    response.headers.add("Content-Type", "application/json");
    response.headers.add("Cache-Control", "no-store");
    response.body = config_body(config);
    return response;
  }
  const auto file = std::ranges::find(bundle(), name, &BundleFile::name);
  if (file == bundle().end()) return not_here("the console has no such file");
  response.headers.add("ETag", std::string(file->etag));
  response.headers.add("Cache-Control", "no-cache");  // asked for again, and 304 if it is the same
  if (request.headers.get("If-None-Match") == file->etag) {
    response.status = 304;
    return response;
  }
  response.headers.add("Content-Type", std::string(file->content_type));
  response.body = file->bytes;
  return response;
}

}  // namespace pelton::console
