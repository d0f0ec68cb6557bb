// Thousands of streams at once against the program itself, a process of its own: every token of
// every stream, what a stream costs in memory, clients that do not read, connections without
// number.
//
// usage: many_streams_test [gtest flags] PELTON. 200 streams; 5 000 with PELTON_FULL=1.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/json.h"
#include "base/machine.h"
#include "base/sanitized.h"
#include "net/http_client.h"

namespace {

using pelton::Json;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

std::string pelton_binary;

bool is_full() {
  const char* full = std::getenv("PELTON_FULL");
  return full != nullptr && std::string_view(full) == "1";
}

// ---- the server

// What stream `number` says: its own number and a place in each word, so that no token can be lost,
// doubled, moved or another's without being seen.
std::string words_of(int number, int count) {
  std::string words;
  for (int i = 0; i < count; ++i) words += fmt::format("{}:{} ", number, i);
  return words;
}

struct Script {
  int streams = 1;
  int words = 1;  // of each
  int step_ms = 0;
};

std::string to_json(const Script& script) {
  std::string text = fmt::format(
      R"({{"step_ms": {}, "context": 2048, "slots": {}, "rules": [{{"when": "", "then": "no"}},)"
      R"({{"when": "endless", "then": ["<|channel|>final<|message|>", {{"text": "on and on ", "times": 600}}]}})",
      script.step_ms, script.streams);
  for (int i = 0; i < script.streams; ++i) {
    text += fmt::format(",\n{{\"when\": \"#{};\", \"then\": \"<|channel|>final<|message|>{}\"}}", i,
                        words_of(i, script.words));
  }
  return text + "]}";
}

class Server {
 public:
  struct Options {
    Script script;
    std::vector<std::string> flags;
    rlim_t descriptors_max = 0;  // 0: as this process
  };

  explicit Server(const Options& options) {
    char folder[] = "/tmp/pelton-many-XXXXXX";
    EXPECT_NE(::mkdtemp(folder), nullptr);
    folder_ = folder;
    const std::string like = PELTON_SOURCE_DIR "/testdata/golden/tiny/config.json";
    EXPECT_EQ(std::system(
                  fmt::format("{} synth --like {} {}/tiny >/dev/null", pelton_binary, like, folder_)
                      .c_str()),
              0);
    std::ofstream(folder_ + "/script.json") << to_json(options.script);
    start(options);
  }
  ~Server() {
    if (process_ > 0) {
      ::kill(process_, SIGKILL);
      ::waitpid(process_, nullptr, 0);
    }
    EXPECT_EQ(std::system(("rm -rf " + folder_).c_str()), 0);
  }

  int port() const { return port_; }

  std::optional<Json> ledger() const {
    const pelton::Result<pelton::net::HttpResponse> reply = pelton::net::http_fetch(
        {.host = "127.0.0.1", .port = admin_port_, .target = "/debug/ledger"});
    if (!reply.ok() || reply->status != 200) return std::nullopt;
    pelton::Result<Json> json = Json::parse(reply->body);
    return json.ok() ? std::optional(std::move(json).value()) : std::nullopt;
  }
  int64_t resident_bytes() const { return number({"process", "resident_bytes"}); }
  int64_t number(const std::vector<std::string>& path) const {
    const std::optional<Json> json = ledger();
    const Json* at = json ? &*json : nullptr;
    for (size_t i = 0; i + 1 < path.size() && at != nullptr; ++i) at = at->find(path[i]);
    EXPECT_NE(at, nullptr);
    return at == nullptr ? -1 : at->integer(path.back()).value_or(-1);
  }
  bool is_clean_soon() const {
    for (int i = 0; i < 500; ++i) {
      const std::optional<Json> json = ledger();
      if (json && json->boolean("clean").value_or(false)) return true;
      std::this_thread::sleep_for(milliseconds(20));
    }
    return false;
  }

 private:
  void start(const Options& options) {
    int out[2];
    ASSERT_EQ(::pipe2(out, O_CLOEXEC), 0);
    std::vector<std::string> words = {
        pelton_binary, "serve",      folder_ + "/tiny",
        "--port",      "0",          "--admin-port",
        "0",           "--executor", "modelled:" + folder_ + "/script.json"};
    words.insert(words.end(), options.flags.begin(), options.flags.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    process_ = ::fork();
    ASSERT_GE(process_, 0);
    if (process_ == 0) {
      ::dup2(out[1], STDOUT_FILENO);
      if (options.descriptors_max > 0) {
        const rlimit limit{options.descriptors_max, options.descriptors_max};
        ::setrlimit(RLIMIT_NOFILE, &limit);
      }
      ::execv(argv[0], argv.data());
      std::_Exit(127);
    }
    ::close(out[1]);
    FILE* const lines = ::fdopen(out[0], "r");
    char line[256];
    while ((port_ == 0 || admin_port_ == 0) && std::fgets(line, sizeof line, lines) != nullptr) {
      const std::string_view text(line);
      const int port = std::atoi(line + text.rfind(':') + 1);
      (text.starts_with("admin") ? admin_port_ : port_) = port;
    }
    std::fclose(lines);
    ASSERT_TRUE(port_ > 0 && admin_port_ > 0) << "the server has not come up";
  }

  std::string folder_;
  pid_t process_ = -1;
  int port_ = 0;
  int admin_port_ = 0;
};

// ---- its clients

int connect_to(int port) {
  const int descriptor = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return -1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
    return descriptor;
  }
  ::close(descriptor);
  return -1;
}

void send_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(descriptor, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    ASSERT_GT(sent, 0);
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
}

std::string chat_request(std::string_view words) {
  const std::string body =
      fmt::format(R"({{"stream":true,"messages":[{{"role":"user","content":"{}"}}]}})", words);
  return fmt::format(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Content-Length: {}\r\n\r\n{}",
      body.size(), body);
}

// One stream's reader: the bytes as they come, checked word by word.
class Reader {
 public:
  Reader(int descriptor, std::string expected)
      : descriptor_(descriptor), expected_(std::move(expected)) {}

  int descriptor() const { return descriptor_; }
  bool begun() const { return at_ > 0; }
  bool done() const { return done_; }
  int64_t events() const { return events_; }
  const std::string& problem() const { return problem_; }

  // False: nothing more comes.
  bool read() {
    char bytes[16 * 1024];
    const ssize_t count = ::recv(descriptor_, bytes, sizeof bytes, 0);
    if (count <= 0) {
      if (!done_) problem_ = fmt::format("broken off after {} of {}", at_, expected_.size());
      return false;
    }
    unread_.append(bytes, static_cast<size_t>(count));
    size_t line = 0;
    for (size_t end; problem_.empty() && (end = unread_.find('\n', line)) != std::string::npos;
         line = end + 1) {
      take(std::string_view(unread_).substr(line, end - line));
    }
    unread_.erase(0, line);
    return problem_.empty() && !done_;
  }

 private:
  void take(std::string_view line) {
    if (line.starts_with("HTTP/1.1 ") && !line.starts_with("HTTP/1.1 200")) {
      problem_ = line;
      return;
    }
    if (!line.starts_with("data: ")) return;  // heads, chunk sizes, empty lines
    if (line == "data: [DONE]") {
      done_ = true;
      if (at_ != expected_.size()) problem_ = fmt::format("only {} of {}", at_, expected_.size());
      return;
    }
    constexpr std::string_view kContent = "\"content\":\"";
    const size_t begin = line.find(kContent);
    if (begin == std::string_view::npos) return;
    // Digits, colons and spaces need no escapes.
    std::string_view content = line.substr(begin + kContent.size());
    content = content.substr(0, content.find('"'));
    if (content.empty()) return;
    ++events_;
    if (expected_.compare(at_, content.size(), content) != 0) {
      problem_ = fmt::format("'{}' instead of '{}' at {}", content,
                             expected_.substr(at_, content.size()), at_);
    }
    at_ += content.size();
  }

  const int descriptor_;
  const std::string expected_;
  std::string unread_;
  size_t at_ = 0;
  int64_t events_ = 0;
  bool done_ = false;
  std::string problem_;
};

class Epoll {
 public:
  Epoll() : descriptor_(::epoll_create1(EPOLL_CLOEXEC)) {}
  ~Epoll() { ::close(descriptor_); }

  void add(int descriptor, size_t number) const {
    epoll_event event{.events = EPOLLIN, .data = {.u64 = number}};
    EXPECT_EQ(::epoll_ctl(descriptor_, EPOLL_CTL_ADD, descriptor, &event), 0);
  }
  std::vector<size_t> wait(int limit_ms) const {
    epoll_event ready[512];
    const int count = ::epoll_wait(descriptor_, ready, 512, limit_ms);
    std::vector<size_t> numbers;
    for (int i = 0; i < count; ++i) numbers.push_back(ready[i].data.u64);
    return numbers;
  }

 private:
  const int descriptor_;
};

class ManyStreams : public testing::Test {
 protected:
  static void SetUpTestSuite() { ASSERT_GT(pelton::base::raise_descriptor_limit(), 0); }
  ~ManyStreams() override {
    for (const int descriptor : open_) ::close(descriptor);
  }

  int open(int port) {
    open_.push_back(connect_to(port));
    EXPECT_GE(open_.back(), 0);
    return open_.back();
  }
  void close_all() {
    for (const int descriptor : open_) ::close(descriptor);
    open_.clear();
  }

  std::vector<int> open_;
};

// ---- what must hold

TEST_F(ManyStreams, each_gets_all_its_tokens_and_no_other) {
  const int count = is_full() ? 5000 : 200;
  Server server(
      {.script = {.streams = count, .words = is_full() ? 150 : 40, .step_ms = is_full() ? 50 : 10},
       .flags = {"--http-threads", "2", "--max-num-queued-reqs", "8192", "--max-num-queued-tokens",
                 "64M"}});
  const int64_t before = server.resident_bytes();
  Epoll epoll;
  std::vector<Reader> readers;
  for (int i = 0; i < count; ++i) {
    readers.emplace_back(open(server.port()), words_of(i, is_full() ? 150 : 40));
    send_all(readers.back().descriptor(), chat_request(fmt::format("#{};", i)));
    epoll.add(readers.back().descriptor(), static_cast<size_t>(i));
  }
  int left = count;
  int begun = 0;
  int together = 0;  // at most: begun and not ended
  int64_t during = 0;
  const auto start = steady_clock::now();
  while (left > 0) {
    const std::vector<size_t> ready = epoll.wait(30'000);
    ASSERT_FALSE(ready.empty()) << left << " streams stand still";
    for (const size_t i : ready) {
      Reader& reader = readers[i];
      const bool was_begun = reader.begun();
      const bool goes_on = reader.read();
      begun += !was_begun && reader.begun() ? 1 : 0;
      if (goes_on) continue;
      ASSERT_EQ(reader.problem(), "") << "stream " << i;
      ::shutdown(reader.descriptor(), SHUT_RDWR);
      --left;
    }
    together = std::max(together, begun - (count - left));
    if (during == 0 && begun == count) during = server.resident_bytes();
  }
  const std::chrono::duration<double> took = steady_clock::now() - start;
  int64_t events = 0;
  for (const Reader& reader : readers) events += reader.events();
  EXPECT_EQ(together, count) << "they were not all there at once";
  close_all();
  EXPECT_TRUE(server.is_clean_soon());
  const int64_t each = (during - before) / count;
  fmt::print(
      "{} streams at once, {} events in {:.1f} s; resident {:.1f} MiB before, {:.1f} with all "
      "streams open ({:.1f} KiB each), {:.1f} after\n",
      together, events, took.count(), static_cast<double>(before) / (1 << 20),
      static_cast<double>(during) / (1 << 20), static_cast<double>(each) / 1024,
      static_cast<double>(server.resident_bytes()) / (1 << 20));
  if (!pelton::base::kSanitized) {
    EXPECT_LT(each, 100 * 1024);
  }
}

// The clients ask and never read; one among them reads and gets everything, soon.
TEST_F(ManyStreams, clients_that_never_read_cost_little_and_hold_nobody_up) {
  const int count = is_full() ? 5000 : 200;
  Server server({.script = {.streams = count + 1, .words = 100, .step_ms = 0},
                 .flags = {"--http-threads", "2", "--max-num-queued-reqs", "8192",
                           "--max-num-queued-tokens", "64M"}});
  const int64_t before = server.resident_bytes();
  for (int i = 0; i < count; ++i) send_all(open(server.port()), chat_request("endless"));
  const auto start = steady_clock::now();
  Reader witness(open(server.port()), words_of(7, 100));
  send_all(witness.descriptor(), chat_request("#7;"));
  while (witness.read()) {
  }
  const std::chrono::duration<double> took = steady_clock::now() - start;
  EXPECT_EQ(witness.problem(), "");
  EXPECT_TRUE(witness.done());
  // All is sampled that is asked for; what nobody reads waits in the server and in the kernel.
  for (int i = 0; i < 3000 && server.number({"engine", "streams"}) > 0; ++i) {
    std::this_thread::sleep_for(milliseconds(20));
  }
  const int64_t each = (server.resident_bytes() - before) / count;
  fmt::print("{} clients that do not read: {:.1f} KiB each; another's answer took {:.2f} s\n",
             count, static_cast<double>(each) / 1024, took.count());
  if (!pelton::base::kSanitized) {
    EXPECT_LT(each, 400 * 1024);
  }
  close_all();
  EXPECT_TRUE(server.is_clean_soon());
}

// HT-20: they are taken as far as descriptors reach, the rest is told so; the admin port answers
// all the while, and when they leave the public one does again.
TEST_F(ManyStreams, Ht20IdleConnectionsLeaveDescriptorsForTheAdminPort) {
  const rlim_t descriptors = is_full() ? 9000 : 600;
  const int count = is_full() ? 10'000 : 700;
  Server server({.script = {.streams = 8}, .flags = {}, .descriptors_max = descriptors});
  for (int i = 0; i < count; ++i) open(server.port());
  // Of very few descriptors half are spared, of more 320; some are in use already, and a few are
  // for those who hear of it.
  const auto all = static_cast<int64_t>(descriptors);
  const int64_t taken = std::max(all - 320 - 128, all / 2 - 128);
  int64_t connections = 0;
  for (int i = 0; i < 500 && connections < taken; ++i) {
    connections = server.number({"server", "connections"});
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_GE(connections, taken);
  // Some are just being told that there are too many; the admin port counts its own too.
  EXPECT_LE(connections, taken + 256);
  EXPECT_LE(connections, std::max(all - 320, all / 2) + 64);
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(server.ledger().has_value());
  close_all();
  for (int i = 0; i < 500 && server.number({"server", "connections"}) > 0; ++i) {
    std::this_thread::sleep_for(milliseconds(10));
  }
  Reader reader(open(server.port()), words_of(3, 1));
  send_all(reader.descriptor(), chat_request("#3;"));
  while (reader.read()) {
  }
  EXPECT_EQ(reader.problem(), "");
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc != 2) {
    fmt::print(stderr, "usage: many_streams_test [gtest flags] PELTON\n");
    return 2;
  }
  pelton_binary = argv[1];
  return RUN_ALL_TESTS();
}
