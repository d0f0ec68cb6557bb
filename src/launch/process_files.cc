#include "launch/process_files.h"

#include <array>
#include <charconv>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace pelton::launch {
namespace {

constexpr int kOrdinalMax = 9'999;

template <typename Integer>
bool take_number(std::string_view& text, Integer& into) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), into);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}

bool take(std::string_view& text, char wanted) {
  if (!text.starts_with(wanted)) return false;
  text.remove_prefix(1);
  return true;
}

}  // namespace

std::string order_text(const WrittenOrder& written) {
  return fmt::format("{}\n{} {} {}\n", written.order.pool, written.order.ordinal,
                     written.order.token, written.unix_ms);
}

std::optional<WrittenOrder> parse_order(std::string_view text) {
  const size_t line = text.find('\n');
  if (line == 0 || line == std::string_view::npos) return std::nullopt;
  WrittenOrder written;
  written.order.pool = text.substr(0, line);
  text.remove_prefix(line + 1);
  const bool is_whole = take_number(text, written.order.ordinal) && take(text, ' ') &&
                        take_number(text, written.order.token) && take(text, ' ') &&
                        take_number(text, written.unix_ms) && text == "\n";
  const bool fits = written.order.ordinal >= 0 && written.order.ordinal <= kOrdinalMax;
  if (!is_whole || !fits || written.unix_ms < 0) return std::nullopt;
  return written;
}

std::string file_name_of(std::string_view pool) {
  std::string name;
  for (const char c : pool) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') || c == '-' || c == '_';
    name += is_plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<uint8_t>(c));
  }
  return name;
}

std::optional<net::HostPort> fleet_address_of(std::string_view output) {
  constexpr std::string_view kSaid = "fleet on ";
  for (size_t at = 0; at < output.size();) {
    const size_t end = output.find('\n', at);
    if (end == std::string_view::npos) return std::nullopt;  // half a line so far
    const std::string_view line = output.substr(at, end - at);
    at = end + 1;
    if (!line.starts_with(kSaid)) continue;
    const Result<net::HostPort> address = net::parse_host_port(line.substr(kSaid.size()));
    if (address.ok() && address->port > 0) return *address;
  }
  return std::nullopt;
}

int64_t bytes_of(const std::string& file) {
  struct stat status {};
  return ::stat(file.c_str(), &status) == 0 ? status.st_size : 0;
}

bool is_hopeless_exit(int code) {
  return (code >= 2 && code <= 5) || code == 126 || code == 127;
}

int64_t resident_pages_of(int pid) {
  const int file = ::open(fmt::format("/proc/{}/statm", pid).c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  std::array<char, 256> text;
  const ssize_t count = ::read(file, text.data(), text.size());
  ::close(file);
  if (count <= 0) return 0;
  std::string_view left(text.data(), static_cast<size_t>(count));
  int64_t all = 0;
  int64_t resident = 0;
  const bool is_whole = take_number(left, all) && take(left, ' ') && take_number(left, resident);
  return is_whole ? resident : 0;
}

}  // namespace pelton::launch
