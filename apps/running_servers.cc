#include "apps/running_servers.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <thread>

#include <fmt/format.h>
#include <unistd.h>

#include "base/json.h"
#include "cli/human_size.h"
#include "net/http_client.h"

namespace pelton::apps {
namespace {

namespace fs = std::filesystem;

constexpr size_t kProcFileBytesMax = size_t{4} << 20;

// These files have no size that could be asked for.
std::string read_proc(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str().substr(0, kProcFileBytesMax);
}

std::string link_of(const std::string& path) {
  std::error_code failed;
  const fs::path target = fs::read_symlink(path, failed);
  return failed ? std::string() : target.string();
}

// "pelton". Where the file lies is not to be read of a process that keeps others off.
std::string program_of(const std::string& process) {
  return read_proc(process + "/comm");
}

// The second word of its command line, which ends in zeros.
bool serves(const std::string& process) {
  const std::string line = read_proc(process + "/cmdline");
  const size_t begin = line.find('\0');
  return begin != std::string::npos && std::string_view(line.c_str() + begin + 1) == "serve";
}

// Words of /proc/PID/stat behind the name, which may hold anything but stands in parentheses.
std::vector<std::string> stat_of(const std::string& process) {
  const std::string text = read_proc(process + "/stat");
  std::istringstream words(text.substr(std::min(text.rfind(')') + 1, text.size())));
  std::vector<std::string> all;
  for (std::string word; words >> word;) all.push_back(word);
  return all;
}

int64_t number_of(const std::string& text, int base = 10) {
  int64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number, base);
  return number;
}

int64_t seconds_of(const std::string& process) {
  constexpr size_t kStartTime = 19;  // proc(5): field 22
  const std::vector<std::string> stat = stat_of(process);
  if (stat.size() <= kStartTime) return 0;
  const double up = std::strtod(read_proc("/proc/uptime").c_str(), nullptr);
  const int64_t begun = number_of(stat[kStartTime]) / ::sysconf(_SC_CLK_TCK);
  return std::max<int64_t>(static_cast<int64_t>(up) - begun, 0);
}

int64_t memory_of(const std::string& process) {
  constexpr size_t kResidentPages = 21;  // field 24
  const std::vector<std::string> stat = stat_of(process);
  if (stat.size() <= kResidentPages) return 0;
  return number_of(stat[kResidentPages]) * ::sysconf(_SC_PAGESIZE);
}

std::set<std::string> sockets_of(const std::string& process) {
  std::set<std::string> inodes;
  std::error_code failed;
  for (fs::directory_iterator at(process + "/fd", failed), end; !failed && at != end;
       at.increment(failed)) {
    const std::string target = link_of(at->path().string());
    constexpr std::string_view kSocket = "socket:[";
    if (!target.starts_with(kSocket)) continue;
    inodes.insert(target.substr(kSocket.size(), target.size() - kSocket.size() - 1));
  }
  return inodes;
}

// Rows are "0: 0100007F:1F90 00000000:0000 0A ... INODE": local address, state 0A (listening).
std::vector<int> ports_of(const std::string& process) {
  const std::set<std::string> inodes = sockets_of(process);
  std::set<int> ports;
  for (const char* table : {"/net/tcp", "/net/tcp6"}) {
    std::istringstream rows(read_proc(process + table));
    std::string row;
    std::getline(rows, row);  // the columns' names
    while (std::getline(rows, row)) {
      std::istringstream words(row);
      std::vector<std::string> all;
      for (std::string word; words >> word;) all.push_back(word);
      constexpr size_t kInode = 9;
      if (all.size() <= kInode || all[3] != "0A" || !inodes.contains(all[kInode])) continue;
      ports.insert(static_cast<int>(number_of(all[1].substr(all[1].rfind(':') + 1), 16)));
    }
  }
  return {ports.begin(), ports.end()};
}

std::string state_of(const Json& model) {
  const Json* const seconds = model.find("cold_start_seconds");
  const std::string cold_start = seconds == nullptr || !seconds->is_number()
                                     ? ""
                                     : "cold start " + cli::format_duration(seconds->as_number());
  if (model.find("asleep") == nullptr) return cold_start;
  return cold_start.empty() ? "asleep" : "asleep, " + cold_start;
}

// Whether somebody answered as a server does.
bool ask_models(int port, RunningServer& server) {
  constexpr std::chrono::milliseconds kPatience{1000};
  net::HttpCall call;
  call.port = port;
  call.target = "/v1/models";
  call.connect_time_max = call.head_time_max = call.quiet_time_max = kPatience;
  call.whole_time_max = kPatience;
  call.body_bytes_max = kProcFileBytesMax;
  const Result<net::HttpResponse> response = net::http_fetch(std::move(call));
  if (!response.ok()) return false;
  if (response->status == 401) {
    server.note = "asks for a key";
  } else if (response->status == 200) {
    const Result<Json> body = Json::parse(response->body);
    const Json* const data = body.ok() && body->is_object() ? body->find("data") : nullptr;
    if (data == nullptr || !data->is_array()) return false;
    for (const Json& model : data->as_array()) {
      const bool is_alias = model.string("root").value_or("") != model.string("id").value_or("");
      if (is_alias) continue;
      server.models.push_back(model.string("id").value_or(""));
      server.states.push_back(state_of(model));
    }
  } else if (response->status == 503) {
    server.note = "loading";
  } else {
    return false;
  }
  server.url = fmt::format("http://127.0.0.1:{}", port);
  return true;
}

}  // namespace

std::vector<RunningServer> running_servers() {
  const std::string own = program_of("/proc/self");
  std::vector<RunningServer> servers;
  std::error_code failed;
  for (fs::directory_iterator at("/proc", failed), end; !failed && at != end;
       at.increment(failed)) {
    const std::string process = at->path().string();
    const auto pid = static_cast<int>(number_of(at->path().filename().string()));
    if (pid == 0 || pid == ::getpid() || program_of(process) != own || !serves(process)) continue;
    RunningServer server{.pid = pid,
                         .seconds = seconds_of(process),
                         .memory_bytes = memory_of(process),
                         .ports = ports_of(process)};
    for (const int port : server.ports) {
      if (ask_models(port, server)) break;
    }
    servers.push_back(std::move(server));
  }
  std::ranges::sort(servers, {}, &RunningServer::pid);
  return servers;
}

Result<void> stop_server(int pid, int64_t seconds) {
  if (::kill(pid, SIGTERM) != 0 && errno != ESRCH) {
    return Error{ErrorCode::kIo,
                 fmt::format("process {} cannot be asked to end: {}", pid, std::strerror(errno))};
  }
  constexpr std::chrono::milliseconds kStep{50};
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  // A child of whoever started it may stay as a name alone (a zombie) until that one looks.
  const auto is_gone = [pid] {
    const std::vector<std::string> stat = stat_of(fmt::format("/proc/{}", pid));
    return stat.empty() || stat[0] == "Z" || stat[0] == "X";
  };
  while (!is_gone()) {
    if (std::chrono::steady_clock::now() >= until) {
      return Error{ErrorCode::kUnavailable,
                   fmt::format("process {} is still answering after {} s; it ends when its answers "
                               "do, or at a second 'pelton stop'",
                               pid, seconds)};
    }
    std::this_thread::sleep_for(kStep);
  }
  return {};
}

}  // namespace pelton::apps
