#include "apps/own_server.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <sstream>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace pelton::apps {
namespace {

constexpr std::string_view kListening = "listening on ";
constexpr int kLookMs = 100;
constexpr size_t kLinesMax = size_t{64} << 10;

Error io_error(const std::string& what) {
  return {ErrorCode::kIo, what, {}};
}

// In the child: becomes the server, or ends.
[[noreturn]] void become(const std::string& program, std::vector<std::string>& words, int output) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  ::setpgid(0, 0);  // Ctrl-C is its owner's business
  ::dup2(output, STDOUT_FILENO);
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  ::execv(program.c_str(), pointers.data());
  ::_exit(127);
}

// What stands behind `beginning` in what it has printed so far; empty: it has not said it yet.
std::string line_in(std::string_view text, std::string_view beginning) {
  const size_t at = text.find(beginning);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = text.substr(at + beginning.size());
  const size_t end = rest.find('\n');
  return end == std::string_view::npos ? std::string() : std::string(rest.substr(0, end));
}

// All that it has printed once its URL is among that.
Result<std::string> read_until_url(int output, const cli::Interrupt& interrupt) {
  std::string said;
  std::array<char, 4096> piece;
  while (line_in(said, kListening).empty()) {
    if (interrupt.pending()) return Error{ErrorCode::kCancelled, "interrupted", {}};
    pollfd polled{.fd = output, .events = POLLIN, .revents = 0};
    if (::poll(&polled, 1, kLookMs) <= 0) continue;
    const ssize_t size = ::read(output, piece.data(), piece.size());
    if (size <= 0 || said.size() > kLinesMax) {
      return Error{
          ErrorCode::kUnavailable, "the server that was started ended; its log is above", {}};
    }
    said.append(piece.data(), static_cast<size_t>(size));
  }
  return said;
}

}  // namespace

Result<std::string> own_program() {
  std::array<char, 4096> path;
  const ssize_t size = ::readlink("/proc/self/exe", path.data(), path.size());
  if (size > 0 && static_cast<size_t>(size) < path.size()) {
    return std::string(path.data(), static_cast<size_t>(size));
  }
  return io_error("/proc/self/exe does not say which program this is");
}

Result<OwnServer> OwnServer::start(const std::string& model, const std::vector<std::string>& flags,
                                   const cli::Interrupt& interrupt) {
  std::vector<std::string> words = {"serve", model, "--port", "0"};
  words.insert(words.end(), flags.begin(), flags.end());
  return start(words, interrupt);
}

Result<OwnServer> OwnServer::start(const std::vector<std::string>& verb,
                                   const cli::Interrupt& interrupt) {
  TRY_ASSIGN(const std::string program, own_program());
  std::vector<std::string> words = {program};
  words.insert(words.end(), verb.begin(), verb.end());
  std::array<int, 2> pipe;
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) return io_error("a pipe could not be made");
  const pid_t pid = ::fork();
  if (pid == 0) become(program, words, pipe[1]);
  ::close(pipe[1]);
  if (pid < 0) {
    ::close(pipe[0]);
    return io_error("a process could not be started");
  }
  OwnServer server(pid);
  Result<std::string> said = read_until_url(pipe[0], interrupt);
  ::close(pipe[0]);
  if (!said.ok()) return std::move(said).error();
  server.said_ = std::move(*said);
  server.url_ = server.said(kListening);
  return server;
}

std::string OwnServer::said(std::string_view beginning) const {
  return line_in(said_, beginning);
}

Result<double> OwnServer::cpu_seconds() const {
  std::ifstream file(fmt::format("/proc/{}/stat", pid_));
  std::string text;
  std::getline(file, text);
  // Behind the name, which may hold anything: the 12th and 13th are user and system time.
  std::istringstream fields(text.substr(text.rfind(')') + 1));
  std::string skipped;
  for (int i = 0; i < 11; ++i) fields >> skipped;
  int64_t user = 0;
  int64_t system = 0;
  if (!(fields >> user >> system)) return io_error("/proc does not say what a process has used");
  return static_cast<double>(user + system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

OwnServer::OwnServer(OwnServer&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      url_(std::move(other.url_)),
      said_(std::move(other.said_)) {}

OwnServer::~OwnServer() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGTERM);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace pelton::apps
