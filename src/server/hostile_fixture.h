// For tests of hostile traffic: a server over real sockets, and what must hold whatever was sent to
// it: a client that asks one question again and again all the while always gets the same answer,
// and afterwards nothing is left in the books, no descriptor and no thread. One test's, on its
// thread.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include <gtest/gtest.h>

#include "net/test_socket.h"
#include "server/chat_stream_text.h"
#include "server/ledger_report.h"
#include "server/server_fixture.h"
#include "telemetry/process_usage.h"

namespace pelton::server {

// Waits for a state that comes by itself.
template <typename Condition>
bool comes_true(const Condition& condition, int limit_ms = 5000) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(limit_ms);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

// One client's question, asked until it goes out of scope.
class Witness {
 public:
  explicit Witness(const ServerFixture& fixture)
      : fixture_(fixture), thread_([this] { ask_on(); }) {}
  ~Witness() {
    over_ = true;
    thread_.join();
    EXPECT_GT(answers_, 0) << "nobody was answered meanwhile";
    EXPECT_EQ(wrong_, "") << "another client's answer was disturbed";
  }

  static constexpr std::string_view kAnswer = "I saw nothing.";

 private:
  void ask_on() {
    net::HttpClient client{{}};
    do {
      auto answer = net::http_fetch(
          client, fixture_.call("POST", "/v1/chat/completions",
                                R"({"messages":[{"role":"user","content":"witness"}],)"
                                R"("temperature":0,"stream":true})"));
      if (!answer.ok()) {
        wrong_ = answer.error().message;
      } else if (streamed_text(answer->body).content != kAnswer) {
        wrong_ = answer->body;
      } else {
        ++answers_;
      }
    } while (!over_ && wrong_.empty());
  }

  const ServerFixture& fixture_;
  std::atomic<bool> over_{false};
  int answers_ = 0;    // until joined the thread's
  std::string wrong_;  // until joined the thread's
  std::thread thread_;
};

class Hostile : public testing::Test {
 protected:
  // Whether descriptors and threads are this test's alone, and so have to be again what they were.
  enum class Counts { kProcessToo, kBooksOnly };
  explicit Hostile(Counts counts) : counts_(counts) {}
  Hostile() : Hostile(Counts::kProcessToo) {}

  static constexpr std::string_view kHostileScript = R"({"rules": [
    {"when": "", "then": "<|channel|>final<|message|>Hello.<|return|>"},
    {"when": "witness", "then": "<|channel|>final<|message|>I saw nothing.<|return|>"},
    {"when": "endless", "then": ["<|channel|>final<|message|>", {"text": "on and on ", "times": 2000}]}
  ]})";

  void SetUp() override { open({}); }
  // Anew, where a test wants another server.
  void open(ServerFixture::Options options, std::string_view script = kHostileScript) {
    witness_.reset();
    fixture_.reset();
    fixture_ = std::make_unique<ServerFixture>(script, std::move(options));
    EXPECT_EQ(fixture_->post("/v1/chat/completions", kHello).status, 200);
    before_ = telemetry::process_usage();
    connections_ = fixture_->http().connection_count();
    witness_ = std::make_unique<Witness>(*fixture_);
  }
  void TearDown() override {
    witness_.reset();
    if (fixture_ == nullptr) return;
    EXPECT_TRUE(comes_true([&] { return fixture_->http().connection_count() <= connections_; }))
        << fixture_->http().connection_count() << " connections";
    EXPECT_TRUE(comes_true([&] { return is_clean(); })) << ledger();
    EXPECT_TRUE(counts_ == Counts::kBooksOnly || comes_true([&] {
                  const telemetry::ProcessUsage now = telemetry::process_usage();
                  return now.descriptor_count() <= before_.descriptor_count() &&
                         now.thread_count() <= before_.thread_count();
                }))
        << ledger();
    EXPECT_EQ(fixture_->post("/v1/chat/completions", kHello).status, 200);
  }

  std::string ledger() const {
    return ledger_report(fixture_->server().services(), fixture_->http().connection_count());
  }
  bool is_clean() const { return parsed(ledger()).boolean("clean") == true; }
  int port() const { return fixture_->http().port(); }

  // What comes back for these bytes, up to the end of one answer.
  std::string ask(std::string_view bytes) {
    net::TestSocket socket(port());
    socket.send(bytes);
    return socket.read_response();
  }
  // The status, after a check that a refusal has the error object that OpenAI's clients read.
  static int status_of(const std::string& response) {
    if (!response.starts_with("HTTP/1.1 ")) {
      ADD_FAILURE() << "no answer: '" << response << "'";
      return 0;
    }
    const int status = std::stoi(response.substr(9, 3));
    const size_t body = response.find("\r\n\r\n");
    if (status < 400 || body + 4 == response.size()) return status;
    const Json json = parsed(response.substr(body + 4));
    const Json* error = json.find("error");
    EXPECT_TRUE(error != nullptr && error->string("message") && error->string("type") &&
                error->find("param") != nullptr && error->find("code") != nullptr)
        << response;
    return status;
  }
  int asked(std::string_view bytes) { return status_of(ask(bytes)); }
  // A POST with these extra header lines, each with its line end.
  static std::string post_text(std::string_view path, std::string_view body,
                               std::string_view lines = "") {
    return "POST " + std::string(path) + " HTTP/1.1\r\nHost: a\r\n" + std::string(lines) +
           "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + std::string(body);
  }

  static constexpr char kChat[] = "/v1/chat/completions";
  static constexpr char kHello[] = R"({"messages":[{"role":"user","content":"hi"}]})";
  static constexpr char kEndless[] =
      R"({"messages":[{"role":"user","content":"endless"}],"stream":true})";

  std::unique_ptr<ServerFixture> fixture_;

 private:
  const Counts counts_;
  telemetry::ProcessUsage before_;
  int connections_ = 0;
  std::unique_ptr<Witness> witness_;
};

}  // namespace pelton::server
