#include "cluster/fleet_key.h"

#include <random>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/file.h"

namespace pelton::cluster {
namespace {

constexpr size_t kFileBytesMax = 4096;
constexpr size_t kKeysMax = 2;

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Empty: no hexadecimal digits, or an odd number of them.
std::string from_hex(std::string_view digits) {
  std::string bytes;
  if (digits.size() % 2 != 0) return bytes;
  for (size_t i = 0; i < digits.size(); i += 2) {
    const int high = digit_of(digits[i]);
    const int low = digit_of(digits[i + 1]);
    if (high < 0 || low < 0) return {};
    bytes += static_cast<char>(high * 16 + low);
  }
  return bytes;
}

}  // namespace

Result<FleetKey> FleetKey::parse(std::string_view text, const std::string& file) {
  FleetKey key;
  for (int line = 1; !text.empty(); ++line) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    while (!word.empty() && (word.back() == '\r' || word.back() == ' ')) word.remove_suffix(1);
    if (word.empty() || word.front() == '#') continue;
    std::string bytes = from_hex(word);
    if (bytes.size() != kBytes) {
      return Error{ErrorCode::kBadConfig,
                   fmt::format("{}:{}: a fleet key is {} hexadecimal digits; make one with pelton "
                               "gateway --new-key FILE",
                               file, line, 2 * kBytes)};
    }
    if (key.keys_.size() == kKeysMax) {
      return Error{ErrorCode::kBadConfig,
                   fmt::format("{}:{}: a third key; a file holds the one that is used and the one "
                               "before",
                               file, line)};
    }
    key.keys_.push_back(std::move(bytes));
  }
  if (key.keys_.empty()) {
    return Error{ErrorCode::kBadConfig, fmt::format("{}: holds no fleet key", file)};
  }
  return key;
}

Result<FleetKey> FleetKey::read(const std::string& file) {
  const Result<std::string> text = base::read_file(file, kFileBytesMax);
  if (!text.ok()) return Error{ErrorCode::kBadConfig, text.error().message};
  return parse(*text, file);
}

Result<void> FleetKey::create(const std::string& file) {
  std::random_device random;
  std::string text;
  for (size_t i = 0; i < kBytes / 4; ++i) text += fmt::format("{:08x}", random());
  text += '\n';
  const int descriptor = ::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (descriptor < 0) {
    return Error{ErrorCode::kIo, fmt::format("{}: a new file cannot be made there", file)};
  }
  const bool written =
      ::write(descriptor, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (::close(descriptor) == 0 && written) return {};
  return Error{ErrorCode::kIo, fmt::format("{}: cannot be written", file)};
}

// HKDF with an empty salt, one block of output: PRK = HMAC(0^32, key), OKM = HMAC(PRK, label | 1).
std::vector<std::string> FleetKey::derive(std::string_view label) const {
  std::vector<std::string> derived;
  for (const std::string& key : keys_) {
    const std::string prk = from_hex(base::hmac_sha256(std::string(32, '\0'), key));
    derived.push_back(from_hex(base::hmac_sha256(prk, std::string(label) + '\1')));
  }
  return derived;
}

}  // namespace pelton::cluster
