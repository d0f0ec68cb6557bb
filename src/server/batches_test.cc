// Files and batches over HTTP, and what a process that is killed leaves to the next one.
#include "server/batches.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/random_id.h"
#include "server/server_fixture.h"
#include "store/temporary_folder.h"

namespace pelton::server {
namespace {

using testing::HasSubstr;

constexpr std::string_view kScript = R"({"rules": [
  {"when": "", "then": "<|channel|>final<|message|>Hi.<|return|>"},
  {"when": "count for ", "then": ["<|channel|>final<|message|>", {"counted": 1}, "<|return|>"]}]})";

std::string chat_line(std::string_view id, std::string_view content, std::string_view extra = "") {
  return fmt::format(R"({{"custom_id":"{}","method":"POST","url":"/v1/chat/completions","body":)"
                     R"({{"model":"tiny","messages":[{{"role":"user","content":"{}"}}]{}}}}})"
                     "\n",
                     id, content, extra);
}

class BatchesTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(
        options_.server.keys.add_file("sk-op wheel role=admin\nsk-a ann\nsk-b bob\n", "keys").ok());
    fixture_ = std::make_unique<ServerFixture>(kScript, options_);
    open();
  }
  void TearDown() override {
    batches_.reset();
    fixture_.reset();
  }

  void open() {
    auto store = store::BatchStore::open(folder_.path("batches"), bounds_, clock_, log_);
    ASSERT_TRUE(store.ok()) << store.error().message;
    store_ = std::move(store).value();
    batches_ = std::make_unique<Batches>(
        batch_options_,
        Batches::Parts{.store = *store_,
                       .send =
                           [this](net::HttpRequest request, std::shared_ptr<net::Exchange> exchange,
                                  const access::Principal& principal) {
                             fixture_->server().handle_as(std::move(request), std::move(exchange),
                                                          principal);
                           },
                       .make_id =
                           [this](std::string_view prefix) {
                             return random_id(prefix, {.seed = fixture_->server().services().draw(),
                                                       .counter = 0});
                           },
                       .log = fixture_->log()});
    fixture_->server().services().batches = batches_.get();
    batches_->start();
  }
  // As a process that is killed: what was not written down is gone.
  void reopen() {
    fixture_->server().services().batches = nullptr;
    batches_.reset();
    store_.reset();
    open();
  }

  net::HttpResponse ask(std::string method, std::string target, std::string body = "",
                        std::string_view key = "sk-a") {
    net::HttpCall call = fixture_->call(std::move(method), std::move(target), std::move(body));
    call.headers.add("Authorization", "Bearer " + std::string(key));
    return fixture_->fetch(std::move(call));
  }
  net::HttpResponse upload(std::string_view content, std::string_view more = "",
                           std::string_view purpose = "batch") {
    const std::string body = fmt::format(
        "--XX\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\n{}\r\n{}"
        "--XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"in.jsonl\"\r\n\r\n{}"
        "\r\n--XX--\r\n",
        purpose, more, content);
    net::HttpCall call = fixture_->call("POST", "/v1/files", body);
    call.headers.add("Authorization", "Bearer sk-a");
    call.headers.add("Content-Type", "multipart/form-data; boundary=XX");
    return fixture_->fetch(std::move(call));
  }
  std::string uploaded(std::string_view content) {
    const net::HttpResponse response = upload(content);
    EXPECT_EQ(response.status, 200) << response.body;
    return parsed(response.body).string("id").value_or("");
  }
  net::HttpResponse create(std::string_view file, std::string_view extra = "",
                           std::string_view window = "24h") {
    return ask("POST", "/v1/batches",
               fmt::format(R"({{"input_file_id":"{}","endpoint":"/v1/chat/completions",)"
                           R"("completion_window":"{}"{}}})",
                           file, window, extra));
  }
  std::string created(std::string_view content) {
    const net::HttpResponse response = create(uploaded(content));
    EXPECT_EQ(response.status, 200) << response.body;
    return parsed(response.body).string("id").value_or("");
  }
  Json batch(const std::string& id) { return parsed(ask("GET", "/v1/batches/" + id).body); }
  Json ended(const std::string& id) {
    for (int i = 0; i < 3000; ++i) {
      Json now = batch(id);
      const std::string status = now.string("status").value_or("failed");
      if (status != "validating" && status != "in_progress" && status != "cancelling") return now;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    ADD_FAILURE() << "the batch does not end";
    return batch(id);
  }
  int64_t count(const Json& one, std::string_view what) {
    return one.find("request_counts")->integer(what).value_or(-1);
  }
  // By custom_id; each must be there once.
  std::map<std::string, Json> lines_of(const std::string& file) {
    const net::HttpResponse content = ask("GET", "/v1/files/" + file + "/content");
    EXPECT_EQ(content.status, 200) << content.body;
    std::map<std::string, Json> lines;
    for (size_t at = 0; at < content.body.size();) {
      const size_t end = content.body.find('\n', at);
      EXPECT_NE(end, std::string::npos);
      Json line = parsed(content.body.substr(at, end - at));
      const std::string id = line.string("custom_id").value_or("");
      EXPECT_TRUE(lines.emplace(id, std::move(line)).second) << id << " stands there twice";
      at = end + 1;
    }
    return lines;
  }

  const base::SystemClock clock_{};
  base::Log log_{clock_, {.level = base::LogLevel::kNone}};
  store::TemporaryFolder folder_;
  ServerFixture::Options options_;
  Batches::Options batch_options_;
  store::BatchBounds bounds_;
  std::unique_ptr<ServerFixture> fixture_;
  std::unique_ptr<store::BatchStore> store_;
  std::unique_ptr<Batches> batches_;
};

// As `x-pelton-warning` of an answer to a client, who sees the headers.
TEST_F(BatchesTest, AFieldThatIsNotObeyedIsNamedInItsResult) {
  const Json done = ended(
      created(chat_line("odd", "hello", R"(,"no_such_field":1)") + chat_line("plain", "hello")));
  const std::map<std::string, Json> lines = lines_of(*done.string("output_file_id"));
  const Json* const odd = lines.at("odd").find("response")->find("warnings");
  ASSERT_NE(odd, nullptr) << lines.at("odd").dump();
  EXPECT_THAT(odd->dump(), HasSubstr("no_such_field"));
  EXPECT_EQ(lines.at("plain").find("response")->find("warnings"), nullptr);
}

TEST_F(BatchesTest, FilesAreTheirOwnersOnly) {
  const std::string id = uploaded("{}\n");
  const Json file = parsed(ask("GET", "/v1/files/" + id).body);
  EXPECT_EQ(file.string("object"), "file");
  EXPECT_EQ(file.string("filename"), "in.jsonl");
  EXPECT_EQ(file.integer("bytes"), 3);
  EXPECT_EQ(ask("GET", "/v1/files/" + id + "/content").body, "{}\n");
  for (const char* const path : {"", "/content"}) {
    EXPECT_EQ(ask("GET", "/v1/files/" + id + path, "", "sk-b").status, 404);
  }
  EXPECT_EQ(ask("DELETE", "/v1/files/" + id, "", "sk-b").status, 404);
  EXPECT_THAT(ask("GET", "/v1/files").body, HasSubstr(id));
  EXPECT_EQ(ask("GET", "/v1/files", "", "sk-b").body,
            R"({"object":"list","data":[],"first_id":null,"last_id":null,"has_more":false})");
  const Json deleted = parsed(ask("DELETE", "/v1/files/" + id).body);
  EXPECT_EQ(deleted.boolean("deleted"), true);
  EXPECT_EQ(ask("GET", "/v1/files/" + id).status, 404);
}

TEST_F(BatchesTest, ListsComeInPages) {
  std::vector<std::string> ids;
  for (int i = 0; i < 3; ++i) ids.push_back(uploaded("{}\n"));
  const Json first = parsed(ask("GET", "/v1/files?limit=2").body);
  EXPECT_EQ(first.string("first_id"), ids[2]);
  EXPECT_EQ(first.string("last_id"), ids[1]);
  EXPECT_EQ(first.boolean("has_more"), true);
  const Json rest = parsed(ask("GET", "/v1/files?limit=2&after=" + ids[1]).body);
  EXPECT_EQ(rest.string("first_id"), ids[0]);
  EXPECT_EQ(rest.boolean("has_more"), false);
  EXPECT_EQ(parsed(ask("GET", "/v1/files?order=asc").body).string("first_id"), ids[0]);
  EXPECT_EQ(ask("GET", "/v1/files?limit=0").status, 400);
  EXPECT_EQ(ask("GET", "/v1/files?order=up").status, 400);
  EXPECT_EQ(ask("GET", "/v1/files?after=file-none").status, 400);
  EXPECT_EQ(ask("GET", "/v1/files?after=" + ids[0], "", "sk-b").status, 400);
  EXPECT_EQ(parsed(ask("GET", "/v1/files?purpose=batch_output").body).find("first_id")->is_null(),
            true);
}

TEST_F(BatchesTest, RefusesUploadsByTheirField) {
  const auto param = [&](const net::HttpResponse& response) {
    EXPECT_GE(response.status, 400) << response.body;
    EXPECT_LT(response.status, 500) << response.body;
    return parsed(response.body).find("error")->string("param").value_or("");
  };
  EXPECT_EQ(param(upload("{}", "", "fine-tune")), "purpose");
  EXPECT_EQ(param(upload("")), "file");
  constexpr std::string_view kPart =
      "--XX\r\nContent-Disposition: form-data; name=\"{}\"\r\n\r\n{}\r\n";
  EXPECT_EQ(param(upload("{}", fmt::format(kPart, "color", "red"))), "color");
  EXPECT_EQ(param(upload("{}", fmt::format(kPart, "expires_after[seconds]", "5"))),
            "expires_after.seconds");
  EXPECT_EQ(param(upload("{}", fmt::format(kPart, "expires_after[anchor]", "now"))),
            "expires_after.anchor");
  const net::HttpResponse kept = upload("{}", fmt::format(kPart, "expires_after[seconds]", "3600"));
  const Json file = parsed(kept.body);
  EXPECT_EQ(*file.integer("expires_at"), *file.integer("created_at") + 3600);
  EXPECT_EQ(ask("POST", "/v1/files", "{}").status, 400);  // no form
}

// A browser sends a form of any page's without asking.
TEST_F(BatchesTest, TakesNoFormFromAPageWithoutLeave) {
  net::HttpCall call = fixture_->call("POST", "/v1/files", "--XX--");
  call.headers.add("Authorization", "Bearer sk-a");
  call.headers.add("Content-Type", "multipart/form-data; boundary=XX");
  call.headers.add("Origin", "https://evil.example");
  EXPECT_EQ(fixture_->fetch(std::move(call)).status, 415);
}

TEST_F(BatchesTest, StorageIsBounded) {
  bounds_.bytes_max = 100;
  reopen();
  EXPECT_EQ(upload(std::string(80, ' ')).status, 200);
  const net::HttpResponse refused = upload(std::string(80, ' '));
  EXPECT_EQ(refused.status, 413);
  EXPECT_EQ(parsed(refused.body).find("error")->string("code"), "batch_storage_full");
}

TEST_F(BatchesTest, AnswersEachLineOnce) {
  std::string input;
  for (int i = 0; i < 40; ++i) input += chat_line(fmt::format("c{}", i), "Hello") + "\n";
  input += chat_line("bad", "Hello", R"(,"temperature":9)");
  const net::HttpResponse response = create(uploaded(input), R"(,"metadata":{"a":"b"})");
  ASSERT_EQ(response.status, 200) << response.body;
  const Json one = ended(*parsed(response.body).string("id"));
  EXPECT_EQ(one.string("status"), "completed") << one.dump();
  EXPECT_EQ(count(one, "total"), 41);
  EXPECT_EQ(count(one, "completed"), 40);
  EXPECT_EQ(count(one, "failed"), 1);
  EXPECT_EQ(one.find("metadata")->string("a"), "b");
  const auto lines = lines_of(*one.string("output_file_id"));
  EXPECT_EQ(lines.size(), 40u);
  const Json* const answer = lines.at("c7").find("response");
  EXPECT_EQ(answer->integer("status_code"), 200);
  EXPECT_THAT(answer->find("body")->dump(), HasSubstr(R"("content":"Hi.")"));
  EXPECT_THAT(*lines.at("c7").string("id"), HasSubstr("batch_req_"));
  const auto errors = lines_of(*one.string("error_file_id"));
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_EQ(errors.at("bad").find("response")->integer("status_code"), 400);
  EXPECT_EQ(ask("GET", "/v1/files/" + *one.string("output_file_id"), "", "sk-b").status, 404);
  EXPECT_EQ(ask("GET", "/v1/batches/" + *one.string("id"), "", "sk-b").status, 404);
  EXPECT_EQ(ask("POST", "/v1/batches/" + *one.string("id") + "/cancel", "", "sk-b").status, 404);
}

TEST_F(BatchesTest, AnInvalidLineFailsTheBatchBeforeAnythingRuns) {
  const Json one = ended(created(chat_line("a", "Hello") + "\nnonsense\n" + chat_line("a", "Hi")));
  EXPECT_EQ(one.string("status"), "failed");
  EXPECT_EQ(count(one, "completed"), 0);
  const Json::Array& errors = one.find("errors")->find("data")->as_array();
  ASSERT_EQ(errors.size(), 2u);
  EXPECT_EQ(errors[0].string("code"), "invalid_json_line");
  EXPECT_EQ(errors[0].integer("line"), 3);
  EXPECT_EQ(errors[1].string("code"), "duplicate_custom_id");
  EXPECT_EQ(errors[1].integer("line"), 4);
}

TEST_F(BatchesTest, LimitsAreNamed) {
  batch_options_.lines_max = 3;
  batch_options_.line_bytes_max = 300;
  reopen();
  const auto code = [&](const std::string& input) {
    const Json one = ended(created(input));
    EXPECT_EQ(one.string("status"), "failed");
    return one.find("errors")->find("data")->as_array().front().string("code").value_or("");
  };
  EXPECT_EQ(code("\n \n"), "empty_file");
  EXPECT_EQ(code(chat_line("a", std::string(400, 'x'))), "line_too_long");
  std::string many;
  for (int i = 0; i < 4; ++i) many += chat_line(std::to_string(i), "Hi");
  EXPECT_EQ(code(many), "too_many_lines");
}

TEST_F(BatchesTest, CancelKeepsWhatIsAnswered) {
  batch_options_.concurrency = 1;
  reopen();
  std::string input = chat_line("first", "Hello");
  for (int i = 0; i < 20; ++i) input += chat_line(fmt::format("c{}", i), "count for 1 3000 0 .");
  const std::string id = created(input);
  while (count(batch(id), "completed") == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const net::HttpResponse cancelled = ask("POST", "/v1/batches/" + id + "/cancel");
  EXPECT_EQ(parsed(cancelled.body).string("status"), "cancelling") << cancelled.body;
  const Json one = ended(id);
  EXPECT_EQ(one.string("status"), "cancelled");
  EXPECT_EQ(count(one, "completed") + count(one, "failed"), 21);
  const auto errors = lines_of(*one.string("error_file_id"));
  EXPECT_EQ(errors.at("c19").find("error")->string("code"), "batch_cancelled");
  EXPECT_TRUE(lines_of(*one.string("output_file_id")).contains("first"));
  EXPECT_EQ(ask("POST", "/v1/batches/" + id + "/cancel").status, 400);  // it has ended
}

TEST_F(BatchesTest, ExpiresWithItsWindow) {
  batch_options_.concurrency = 1;
  reopen();
  std::string input;
  for (int i = 0; i < 400; ++i) input += chat_line(fmt::format("c{}", i), "count for 1 3000 0 .");
  const Json one = ended(*parsed(create(uploaded(input), "", "1s").body).string("id"));
  EXPECT_EQ(one.string("status"), "expired");
  const auto errors = lines_of(*one.string("error_file_id"));
  EXPECT_EQ(errors.at("c399").find("error")->string("code"), "batch_expired");
}

TEST_F(BatchesTest, GoesOnAfterItsProcessEnds) {
  batch_options_.concurrency = 3;
  reopen();
  constexpr int kLines = 60;
  std::string input;
  for (int i = 0; i < kLines; ++i) {
    input += chat_line(fmt::format("c{}", i), fmt::format("count for {} 40 0 .", i));
  }
  const std::string id = created(input);
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < 1000 && count(batch(id), "completed") < 5 * round; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    reopen();
  }
  const Json one = ended(id);
  EXPECT_EQ(one.string("status"), "completed");
  EXPECT_EQ(count(one, "completed"), kLines);
  const auto lines = lines_of(*one.string("output_file_id"));
  EXPECT_EQ(lines.size(), static_cast<size_t>(kLines));
  EXPECT_THAT(lines.at("c7").dump(), HasSubstr("7a39"));
}

// The queue of the engine is full of others: lines wait and are asked again.
TEST_F(BatchesTest, WaitsWhileThereIsNoRoom) {
  options_.engine.inbox_max = 1;
  batches_.reset();
  fixture_ = std::make_unique<ServerFixture>(kScript, options_);
  store_.reset();
  batch_options_.concurrency = 16;
  open();
  std::string input;
  for (int i = 0; i < 50; ++i) input += chat_line(fmt::format("c{}", i), "count for 1 30 0 .");
  const Json one = ended(created(input));
  EXPECT_EQ(one.string("status"), "completed");
  EXPECT_EQ(count(one, "completed"), 50);
}

TEST_F(BatchesTest, AFileThatIsReadStays) {
  std::string input;
  for (int i = 0; i < 50; ++i) input += chat_line(fmt::format("c{}", i), "count for 1 3000 0 .");
  const std::string file = uploaded(input);
  const std::string id = *parsed(create(file).body).string("id");
  EXPECT_EQ(ask("DELETE", "/v1/files/" + file).status, 400);
  ask("POST", "/v1/batches/" + id + "/cancel");
  ended(id);
  EXPECT_EQ(ask("DELETE", "/v1/files/" + file).status, 200);
}

class BatchesOfAdapters : public BatchesTest {
 protected:
  BatchesOfAdapters() {
    options_.model = [this](ServedModel& model) {
      AdapterRegistry::Options adapters;
      adapters.load = [](const std::string& path) -> Result<AdapterRegistry::Loaded> {
        const bool is_dora = path.ends_with("dora");
        return Error{is_dora ? ErrorCode::kUnsupported : ErrorCode::kIo, path, ""};
      };
      adapters.folders = {folder_.path("many")};
      model.adapters = std::make_shared<AdapterRegistry>(std::move(adapters), clock_, log_);
    };
    for (const char* name : {"dora", "away"}) {
      const std::filesystem::path path = folder_.path(std::string("many/") + name);
      std::filesystem::create_directories(path);
      std::ofstream(path / "adapter_config.json") << "{}";
    }
  }
  static std::string line_of(std::string_view id, std::string_view adapter) {
    std::string line = chat_line(id, "hi");
    line.replace(line.find("tiny"), 4, adapter);
    return line;
  }

  base::Log log_{clock_, {.level = base::LogLevel::kNone}};
};

TEST_F(BatchesOfAdapters, OneThatIsRefusedEndsItsLine) {
  const Json over = ended(created(line_of("1", "dora") + chat_line("2", "hi")));
  EXPECT_EQ(over.string("status"), "completed");
  EXPECT_EQ(count(over, "completed"), 1);
  EXPECT_EQ(count(over, "failed"), 1);
  EXPECT_THAT(lines_of(*over.string("error_file_id")).at("1").dump(), HasSubstr("adapter_refused"));
}

// For that one's file is looked at again each five seconds.
TEST_F(BatchesOfAdapters, OneThatCannotBeReadNowHoldsUpNoOthers) {
  const std::string waits = created(line_of("1", "away"));
  for (int round = 0; round < 4; ++round) {
    std::string good;
    for (int i = 0; i < 20; ++i) good += chat_line(std::to_string(i), "hi");
    EXPECT_EQ(count(ended(created(good)), "completed"), 20);
  }
  const Json still = batch(waits);
  EXPECT_EQ(still.string("status"), "in_progress");
  EXPECT_EQ(ask("POST", "/v1/batches/" + waits + "/cancel").status, 200);
  EXPECT_EQ(ended(waits).string("status"), "cancelled");
}

// By an operator, of a server that runs: responses, files, batches; also those that run.
TEST_F(BatchesTest, ATenantIsErasedWhileTheServerRuns) {
  const std::string answered =
      *parsed(ask("POST", "/v1/responses", R"({"input":"hi"})").body).string("id");
  const std::string others =
      *parsed(ask("POST", "/v1/responses", R"({"input":"hi"})", "sk-b").body).string("id");
  std::string lines;
  for (int i = 0; i < 20; ++i) lines += chat_line(std::to_string(i), "count for 1 3000 0 .");
  const std::string file = uploaded(lines);
  const std::string id = *parsed(create(file).body).string("id");
  EXPECT_EQ(ask("POST", "/erase_tenant?tenant=ann").status, 403);
  EXPECT_EQ(ask("POST", "/erase_tenant", "", "sk-op").status, 400);
  EXPECT_EQ(ask("POST", "/erase_tenant?tenannt=ann", "", "sk-op").status, 400);
  for (const char* path : {"/erase_tenant", "/reset_prefix_cache"}) {
    const std::string two = std::string(path) + "?tenant=ann&tenant=bob";
    const net::HttpResponse refused = ask("POST", two, "", "sk-op");
    EXPECT_EQ(refused.status, 400) << path;
    EXPECT_EQ(parsed(refused.body).find("error")->string("param"), "tenant") << refused.body;
    // Not read, it would have all tenants forgotten.
    const net::HttpResponse body = ask("POST", path, R"({"tenant":"ann"})", "sk-op");
    EXPECT_EQ(body.status, 400) << path << body.body;
    const std::string one = std::string(path) + "?tenant=nobody";
    EXPECT_EQ(ask("POST", one, R"({"tenant":"ann"})", "sk-op").status, 400) << path;
    EXPECT_EQ(ask("POST", one, "{}", "sk-op").status, 200) << path;
  }
  const net::HttpResponse erased = ask("POST", "/erase_tenant?tenant=ann", "", "sk-op");
  EXPECT_EQ(erased.status, 200) << erased.body;
  EXPECT_EQ(parsed(erased.body).integer("responses"), 1);
  EXPECT_EQ(parsed(erased.body).integer("files_and_batches"), 2);
  EXPECT_EQ(ask("GET", "/v1/responses/" + answered).status, 404);
  EXPECT_EQ(ask("GET", "/v1/files/" + file).status, 404);
  EXPECT_EQ(ask("GET", "/v1/batches/" + id).status, 404);
  EXPECT_FALSE(std::filesystem::exists(store_->content_path(file)));
  EXPECT_EQ(ask("GET", "/v1/responses/" + others, "", "sk-b").status, 200);
  // Who comes again begins anew.
  EXPECT_EQ(count(ended(created(chat_line("1", "hi"))), "completed"), 1);
}

TEST_F(BatchesTest, WithoutAFolderTheRoutesSaySo) {
  fixture_->server().services().batches = nullptr;
  for (const auto& [method, path] :
       std::vector<std::pair<std::string, std::string>>{{"GET", "/v1/files"},
                                                        {"GET", "/v1/files/a"},
                                                        {"GET", "/v1/files/a/content"},
                                                        {"POST", "/v1/files"},
                                                        {"DELETE", "/v1/files/a"},
                                                        {"GET", "/v1/batches"},
                                                        {"POST", "/v1/batches"},
                                                        {"POST", "/v1/batches/a/cancel"}}) {
    const net::HttpResponse response = ask(method, path);
    EXPECT_EQ(response.status, 403) << path;
    EXPECT_THAT(response.body, HasSubstr("batches_disabled")) << path;
  }
}

}  // namespace
}  // namespace pelton::server
