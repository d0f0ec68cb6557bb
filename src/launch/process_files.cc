#include "launch/process_files.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <map>
#include <set>

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/descriptor.h"
#include "base/terminal_text.h"

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

// By flag, what stands behind it; what stands before the first is the model's.
std::map<std::string, std::string> flags_of(const std::vector<std::string>& words) {
  std::map<std::string, std::string> flags;
  std::string flag = "the model";
  for (size_t i = 1; i < words.size(); ++i) {
    const std::string& word = words[i];
    std::string value = word;
    if (word.starts_with("--")) {
      flag = word.substr(0, word.find('='));
      value = word.size() > flag.size() ? word.substr(flag.size() + 1) : "";
    }
    flags[flag] += value.empty() ? "" : value + '\n';
  }
  return flags;
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

std::string holder_text(const FolderHolder& holder) {
  return fmt::format("{} {} {}\n", holder.epoch, holder.pid, holder.identity);
}

std::optional<FolderHolder> parse_holder(std::string_view text) {
  FolderHolder holder;
  if (!text.ends_with('\n')) return std::nullopt;
  text.remove_suffix(1);
  const bool is_whole = take_number(text, holder.epoch) && take(text, ' ') &&
                        take_number(text, holder.pid) && take(text, ' ');
  if (!is_whole || holder.pid <= 0 || text.empty() || text.find('\n') != std::string_view::npos) {
    return std::nullopt;
  }
  holder.identity = text;
  return holder;
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

std::string exit_text(int code) {
  constexpr std::array<std::string_view, 4> kMeanings = {", wrong usage", ", bad configuration",
                                                         ", model not found or unreadable",
                                                         ", it does not fit in memory"};
  const bool has_meaning = code >= 2 && code < 2 + std::ssize(kMeanings);
  return fmt::format("exit code {}{}", code,
                     has_meaning ? kMeanings[static_cast<size_t>(code - 2)] : "");
}

std::string last_said(const std::string& log_file) {
  constexpr int64_t kTail = 16 << 10;
  constexpr size_t kMost = 500;
  const base::Descriptor opened(::open(log_file.c_str(), O_RDONLY | O_CLOEXEC));
  if (!opened.ok()) return "";
  std::array<char, kTail> bytes;
  const int64_t begin = std::max<int64_t>(bytes_of(log_file) - kTail, 0);
  const ssize_t count = ::pread(opened.get(), bytes.data(), bytes.size(), begin);
  if (count <= 0) return "";
  const std::string text = "\n" + std::string(bytes.data(), static_cast<size_t>(count));
  constexpr std::string_view kName = "\npelton: ";
  const size_t at = text.rfind(kName);
  if (at == std::string::npos) return "";
  const size_t from = at + kName.size();
  return base::one_line(text.substr(from, std::min(text.find('\n', from) - from, kMost)));
}

std::string kernel_text(const std::string& file) {
  constexpr size_t kMost = size_t{4} << 20;  // a command line may have two
  const base::Descriptor opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  std::array<char, 4096> bytes;
  while (opened.ok() && text.size() < kMost) {
    const ssize_t count = ::read(opened.get(), bytes.data(), bytes.size());
    if (count <= 0) break;
    text.append(bytes.data(), static_cast<size_t>(count));
  }
  return text;
}

int64_t start_ticks_of(int pid) {
  const std::string text = kernel_text(fmt::format("/proc/{}/stat", pid));
  // Behind the name, which may hold anything: the state, and 18 numbers before this one.
  const size_t name = text.rfind(')');
  if (name == std::string::npos) return 0;
  std::string_view left = std::string_view(text).substr(name + 1);
  constexpr int kFieldsBefore = 20;
  for (int i = 0; i < kFieldsBefore; ++i) {
    const size_t blank = left.find(' ');
    if (blank == std::string_view::npos) return 0;
    left.remove_prefix(blank + 1);
  }
  int64_t ticks = 0;
  return take_number(left, ticks) ? ticks : 0;
}

std::vector<std::string> command_line_of(int pid) {
  const std::string text = kernel_text(fmt::format("/proc/{}/cmdline", pid));
  std::vector<std::string> words;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\0', at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

bool is_program_replaced(int pid, const std::string& program) {
  std::array<char, 4096> path{};
  const ssize_t size =
      ::readlink(fmt::format("/proc/{}/exe", pid).c_str(), path.data(), path.size() - 1);
  if (size <= 0) return false;  // it cannot be seen
  std::error_code unknown;
  const std::string now = std::filesystem::canonical(program, unknown).string();
  return !unknown && now != path.data();  // which ends in " (deleted)" if its file is gone
}

std::string differing_words(const std::vector<std::string>& was,
                            const std::vector<std::string>& now) {
  if (was.empty() || now.empty()) return "";
  const std::map<std::string, std::string> before = flags_of(was);
  const std::map<std::string, std::string> after = flags_of(now);
  std::set<std::string> differing;
  const auto note = [&differing](const auto& all, const auto& other) {
    for (const auto& [name, values] : all) {
      const auto same = other.find(name);
      if (same == other.end() || same->second != values) differing.insert(name);
    }
  };
  note(before, after);
  note(after, before);
  return differing.empty() ? "" : fmt::format("other {}", fmt::join(differing, ", "));
}

int64_t resident_pages_of(int pid) {
  const std::string text = kernel_text(fmt::format("/proc/{}/statm", pid));
  std::string_view left = text;
  int64_t all = 0;
  int64_t resident = 0;
  const bool is_whole = take_number(left, all) && take(left, ' ') && take_number(left, resident);
  return is_whole ? resident : 0;
}

}  // namespace pelton::launch
