#include "net/http_framing.h"

#include <algorithm>

namespace pelton::net {

HttpLimits limits_of(const HttpServer::Options& options) {
  HttpLimits limits;
  limits.header_bytes_max = options.header_bytes_max;
  limits.start_line_bytes_max = std::min(limits.start_line_bytes_max, options.header_bytes_max);
  limits.body_bytes_max = options.body_bytes_max;
  return limits;
}

bool is_framing_header(std::string_view name) {
  return equals_without_case(name, "Connection") || equals_without_case(name, "Content-Length") ||
         equals_without_case(name, "Transfer-Encoding") ||
         equals_without_case(name, "Keep-Alive") || equals_without_case(name, "Date");
}

bool has_no_body(int status) {
  return status == 204 || status == 304;
}

void append_header_text(std::string& out, std::string_view text) {
  for (const char c : text) {
    const bool control = (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7F;
    out += control ? ' ' : c;
  }
}

}  // namespace pelton::net
