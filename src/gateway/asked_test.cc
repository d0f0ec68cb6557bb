#include "gateway/asked.h"

#include <string>

#include <gtest/gtest.h>
#include <pelton/v1/inference.pb.h>

#include "rpc/grpc_frame.h"

namespace pelton::gateway {
namespace {

net::HttpRequest request(std::string method, std::string path, std::string body = {}) {
  return {.method = std::move(method),
          .path = std::move(path),
          .query = {},
          .headers = {},
          .body = std::move(body),
          .remote = {}};
}

TEST(Asked, APathIsKnownByItsMethods) {
  for (const char* const path : {"/api/chat", "/completion", "/generate", "/tokenize"}) {
    EXPECT_EQ(methods_of_path(path), "POST") << path;
  }
  for (const char* const path : {"/api/tags", "/api/ps", "/slots", "/health", "/v1/health"}) {
    EXPECT_EQ(methods_of_path(path), "GET, HEAD") << path;
  }
  for (const char* const path :
       {"/", "/api", "/api/pull", "/metrics", "/server_info", "/api/chat/"}) {
    EXPECT_EQ(methods_of_path(path), "") << path;
  }
}

TEST(Asked, AModelIsNamedByABodyOrAMessage) {
  const auto model = [](std::string path, std::string body) {
    const Result<std::string> asked =
        asked_model(request("POST", std::move(path), std::move(body)));
    return asked.ok() ? *asked : "refused: " + asked.error().message;
  };
  const std::string chat = "/v1/chat/completions";
  EXPECT_EQ(model(chat, R"({"model":"a"})"), "a");
  EXPECT_EQ(model(chat, R"({"messages":[]})"), "");
  EXPECT_EQ(model(chat, ""), "");
  EXPECT_EQ(asked_model(request("GET", "/v1/model_cards/org/a")).value(), "org/a");
  net::HttpRequest live = request("GET", "/v1/realtime");
  live.query = "intent=transcription&model=a%2Fb";
  EXPECT_EQ(asked_model(live).value(), "a/b");
  EXPECT_FALSE(opens_live_session(live) || asks_for_work(live) || wakes_a_replica(live));
  live.headers.add("Upgrade", "websocket");
  EXPECT_TRUE(opens_live_session(live) && asks_for_work(live) && wakes_a_replica(live));
  live.path = "/v1/audio/speech/websocket";
  EXPECT_TRUE(opens_live_session(live) && asks_for_work(live) && wakes_a_replica(live));
  EXPECT_EQ(asked_model(live).value(), "a/b");
  v1::GenerateRequest message;
  message.set_model("b");
  const std::string path(rpc::kGrpcGenerate);
  EXPECT_EQ(model(path, message.SerializeAsString()), "b");
  EXPECT_EQ(model(path, "\xff\xff\xff"), "");
}

// What a worker may read as another model than this reader is passed on to nobody.
TEST(Asked, AModelThatIsAMatterOfTheReaderIsRefused) {
  for (const char* body : {"{", R"({"model":"m","model":"secret"})",
                           R"({"model":"m","mod\u0065l":"secret"})", R"({"model":["secret"]})"}) {
    EXPECT_FALSE(asked_model(request("POST", "/v1/chat/completions", body)).ok()) << body;
  }
  net::HttpRequest form = request("POST", "/v1/audio/transcriptions", "--x\r\n");
  EXPECT_FALSE(asked_model(form).ok()) << "it does not say what it is";
  EXPECT_FALSE(is_multipart(form));
  form.headers.add("Content-Type", "Multipart/form-data; boundary=x");
  EXPECT_TRUE(is_multipart(form));
  EXPECT_EQ(*asked_model(form), "");
}

TEST(Asked, AFormWithSoundNamesItsModel) {
  const auto part = [](const std::string& name, const std::string& content) {
    return "--x\r\nContent-Disposition: form-data; name=\"" + name + "\"\r\n\r\n" + content +
           "\r\n";
  };
  const auto form = [&](const std::string& path, const std::string& parts) {
    net::HttpRequest made = request("POST", path, parts + "--x--\r\n");
    made.headers.add("Content-Type", "multipart/form-data; boundary=x");
    return made;
  };
  const std::string file = part("file", "RIFF");
  EXPECT_EQ(*asked_model(form("/v1/audio/transcriptions", file + part("model", "w"))), "w");
  EXPECT_EQ(*asked_model(form("/v1/audio/translations", file)), "");
  EXPECT_FALSE(
      asked_model(form("/v1/audio/transcriptions", part("model", "w") + part("model", "v"))).ok());
  EXPECT_FALSE(
      asked_model(form("/v1/audio/transcriptions", part("model", std::string(300, 'a')))).ok());
  EXPECT_EQ(*asked_model(form("/v1/files", file + part("model", "w"))), "");
  EXPECT_EQ(*asked_model(form("/v1/images/edits", file + part("model", "w"))), "w");
  EXPECT_EQ(*asked_model(form("/v1/videos", file + part("model", "w"))), "w");
}

TEST(Asked, AResponseIsNamedByThePathOrTheBody) {
  EXPECT_EQ(asked_by_id(request("GET", "/v1/responses/resp_1")), "resp_1");
  EXPECT_EQ(asked_by_id(request("GET", "/v1/responses/resp_1/input_items")), "resp_1");
  EXPECT_EQ(asked_by_id(request("POST", "/v1/responses/resp_1/cancel")), "resp_1");
  EXPECT_EQ(asked_by_id(request("DELETE", "/v1/responses/resp_1")), "resp_1");
  EXPECT_EQ(asked_by_id(request("POST", "/v1/responses",
                                R"({"input":"x","previous_response_id":"resp_2"})")),
            "resp_2");
  EXPECT_EQ(asked_by_id(request(
                "POST", "/v1/responses",
                R"({"input":[{"type":"message"},{"type":"item_reference","id":"msg_ABCo12"}]})")),
            "resp_ABC");
  for (const char* const body :
       {R"({"input":"x"})", R"({"input":"previous_response_id"})", "previous_response_id",
        R"({"previous_response_id":null})", R"({"previous_response_id":7})",
        R"({"input":[{"type":"item_reference","id":"x"}]})", R"([1,"item_reference"])"}) {
    EXPECT_FALSE(asked_by_id(request("POST", "/v1/responses", body))) << body;
  }
  EXPECT_FALSE(asked_by_id(request("POST", "/v1/responses/input_tokens", "{}")));
  EXPECT_FALSE(asked_by_id(request("GET", "/v1/responses/")));
  EXPECT_FALSE(asked_by_id(request("GET", "/v1/responsesx")));
  EXPECT_FALSE(
      asked_by_id(request("POST", "/v1/chat/completions", R"({"previous_response_id":"resp_2"})")));
}

TEST(Asked, WhatOneWorkerHas) {
  EXPECT_EQ(asked_by_id(request("GET", "/v1/files/file-1/content")), "file-1");
  EXPECT_EQ(asked_by_id(request("DELETE", "/v1/files/file-1")), "file-1");
  EXPECT_EQ(asked_by_id(request("POST", "/v1/batches/batch_2/cancel")), "batch_2");
  EXPECT_EQ(asked_by_id(request("POST", "/v1/batches", R"({"input_file_id":"file-3"})")), "file-3");
  EXPECT_EQ(asked_by_id(request("POST", "/v1/chat/completions/control",
                                R"({"id":"chatcmpl-4","action":"reasoning_end"})")),
            "chatcmpl-4");
  EXPECT_EQ(asked_by_id(request("GET", "/v1/videos/video_5/content")), "video_5");
  EXPECT_EQ(asked_by_id(request("DELETE", "/v1/videos/video_5")), "video_5");
  EXPECT_FALSE(asked_by_id(request("POST", "/v1/videos", "{}")));
  EXPECT_FALSE(asked_by_id(request("POST", "/v1/files", "--form")));
  EXPECT_FALSE(asked_by_id(request("GET", "/v1/files")));
  EXPECT_FALSE(asked_by_id(request("GET", "/v1/filesx/1")));
  EXPECT_FALSE(asked_by_id(request("POST", "/v1/batches", R"({"input_file_id":7})")));
  EXPECT_TRUE(is_list_of_workers_own(request("GET", "/v1/batches")));
  EXPECT_FALSE(is_list_of_workers_own(request("POST", "/v1/batches")));
  EXPECT_EQ(stored_ids_of(R"({"id":"batch_2","input_file_id":"file-3","output_file_id":null})"),
            (std::vector<std::string>{"file-3", "batch_2"}));
  EXPECT_EQ(next_event("data: {\"sequence_number\":6}\n\ndata: {\"sequence_number\":7}\n\n", 2), 8);
  EXPECT_EQ(next_event("data: {\"sequence_number\":x}", 2), 2);
  EXPECT_EQ(next_event("", 2), 2);
  EXPECT_TRUE(stored_ids_of(R"({"id":"file-never ends)").empty());
}

TEST(Asked, WhatOnlyCountsTokensIsNoWork) {
  EXPECT_TRUE(asks_for_work(request("POST", "/v1/chat/completions")));
  EXPECT_TRUE(asks_for_work(request("POST", "/v1/responses")));
  EXPECT_TRUE(asks_for_work(request("POST", std::string(rpc::kGrpcEmbed))));
  for (const char* const path : {"/tokenize", "/v1/messages/count_tokens",
                                 "/v1/responses/input_tokens", "/v1/responses/resp_1/cancel"}) {
    EXPECT_FALSE(asks_for_work(request("POST", path))) << path;
  }
  EXPECT_FALSE(asks_for_work(request("GET", "/v1/responses/resp_1")));
  EXPECT_FALSE(asks_for_work(request("POST", std::string(rpc::kGrpcTokenize))));
}

TEST(Asked, OnlyWhatAModelAnswersStartsAReplica) {
  EXPECT_FALSE(wakes_a_replica(request("POST", "/v1/images/generations")))
      << "most say only that they make none";
  for (const char* const path :
       {"/v1/chat/completions", "/v1/embeddings", "/tokenize", "/v1/files", "/v1/batches"}) {
    EXPECT_TRUE(wakes_a_replica(request("POST", path))) << path;
    EXPECT_FALSE(wakes_a_replica(request("GET", path))) << path;
    EXPECT_FALSE(wakes_a_replica(request("OPTIONS", path))) << path;
    EXPECT_FALSE(wakes_a_replica(request("HEAD", path))) << path;
  }
  EXPECT_TRUE(wakes_a_replica(request("POST", std::string(rpc::kGrpcGenerate))));
  for (const char* const path :
       {"/ping", "/version", "/api/version", "/props", "/v1/nowhere", "/"}) {
    EXPECT_FALSE(wakes_a_replica(request("GET", path))) << path;
    EXPECT_FALSE(wakes_a_replica(request("POST", path))) << path;
  }
}

TEST(Asked, AWholeAnswerOfJson) {
  for (const char* const path :
       {"/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/embeddings", "/completion"}) {
    EXPECT_TRUE(answers_in_json(request("POST", path))) << path;
    EXPECT_FALSE(answers_in_json(request("GET", path))) << path;
  }
  for (const char* const path : {"/v1/audio/speech", "/v1/audio/transcriptions", "/generate_stream",
                                 "/api/chat", "/v1/files", "/v1/images/generations"}) {
    EXPECT_FALSE(answers_in_json(request("POST", path))) << path;
  }
}

// Comments are of events alone: who reads lines, or hears sound, takes them for the answer.
TEST(Asked, WhatAStreamIsWrittenIn) {
  const auto form = [](std::string path, std::string body) {
    return stream_form(request("POST", std::move(path), std::move(body)));
  };
  const std::string stream = R"({"model":"m","stream":true})";
  const std::string whole = R"({"model":"m","stream":false})";
  for (const char* const path : {"/v1/chat/completions", "/v1/responses", "/v1/messages",
                                 "/completion", "/v1/images/generations"}) {
    EXPECT_EQ(form(path, stream), StreamForm::kEvents) << path;
    EXPECT_EQ(form(path, whole), StreamForm::kNone) << path;
    EXPECT_EQ(form(path, R"({"model":"m"})"), StreamForm::kNone) << path;
  }
  for (const char* const path : {"/api/chat", "/api/generate"}) {
    EXPECT_EQ(form(path, stream), StreamForm::kLines) << path;
    EXPECT_EQ(form(path, R"({"model":"m"})"), StreamForm::kLines) << path << ", by default";
    EXPECT_EQ(form(path, whole), StreamForm::kNone) << path;
    EXPECT_EQ(form(path, "{"), StreamForm::kNone) << path << ", refused by its replica";
  }
  EXPECT_EQ(form("/v1/audio/speech", stream), StreamForm::kNone) << "sound";
  EXPECT_EQ(form("/v1/audio/speech", R"({"stream_format":"sse"})"), StreamForm::kEvents);
  // Whole answers whatever is asked for.
  for (const char* const path :
       {"/v1/embeddings", "/tokenize", "/v1/chat/completions/render", "/api/embed"}) {
    EXPECT_EQ(form(path, stream), StreamForm::kNone) << path;
  }
}

TEST(Asked, AResponseMayAskForToolsThatAreRunForIt) {
  const auto asks = [](std::string path, std::string body) {
    return asks_for_tools(request("POST", std::move(path), std::move(body)));
  };
  const std::string path = "/v1/responses";
  EXPECT_TRUE(asks(path, R"({"input":"a","tools":[{"type":"code_interpreter","container":{}}]})"));
  EXPECT_TRUE(asks(path, R"({"tools":[{"type":"function"},{"type":"web_search_preview"}]})"));
  EXPECT_FALSE(asks(path, R"({"tools":[{"type":"function","name":"web_search"}]})"));
  EXPECT_FALSE(asks(path, R"({"input":"what is a code_interpreter?"})"));
  EXPECT_FALSE(asks(path, R"({"input":[{"tools":[{"type":"web_search"}]}]})"));
  EXPECT_FALSE(asks(path, R"({"tools":[{"type":"web_search")"));
  EXPECT_FALSE(asks("/v1/chat/completions", R"({"tools":[{"type":"web_search"}]})"));
}

TEST(Asked, ABodyOfJsonIsMissed) {
  EXPECT_TRUE(lacks_its_body(request("POST", "/v1/chat/completions")));
  EXPECT_TRUE(lacks_its_body(request("POST", "/api/chat")));
  EXPECT_FALSE(lacks_its_body(request("POST", "/api/chat", "{}")));
  EXPECT_FALSE(lacks_its_body(request("POST", "/v1/responses/resp_1/cancel")));
  EXPECT_FALSE(lacks_its_body(request("GET", "/v1/responses")));
}

TEST(Asked, AnAnswersFirstBytesSayItsId) {
  EXPECT_EQ(response_id_of(R"({"id":"resp_AB","object":"response")"), "resp_AB");
  EXPECT_EQ(response_id_of("event: response.created\ndata: {\"type\":\"response.created\","
                           "\"response\":{\"id\":\"resp_C\""),
            "resp_C");
  EXPECT_EQ(response_id_of(R"({"error":{}})"), "");
  EXPECT_EQ(response_id_of(R"({"id":"resp_AB)"), "");
}

// The turns of a conversation begin alike; another one begins otherwise.
TEST(Asked, AConversationIsKnownByHowItBegins) {
  const auto session = [](std::string path, std::string body, std::string_view named = {}) {
    net::HttpRequest asked = request("POST", std::move(path), std::move(body));
    if (!named.empty()) asked.headers.add("x-session-id", std::string(named));
    return asked_session(asked);
  };
  const std::string chat = "/v1/chat/completions";
  const std::string hi = R"({"role":"user","content":"Hi"})";
  const std::string first = session(chat, R"({"model":"m","messages":[)" + hi + "]}");
  EXPECT_FALSE(first.empty());
  EXPECT_EQ(
      session(chat, R"({"messages":[)" + hi +
                        R"(,{"role":"assistant","content":"a"},{"role":"user","content":"b"}]})"),
      first);
  EXPECT_NE(session(chat, R"({"messages":[{"role":"user","content":"Ho"}]})"), first);
  EXPECT_NE(session(chat, R"({"messages":[{"role":"system","content":"x"},)" + hi + "]}"), first);
  EXPECT_EQ(session("/v1/responses", R"({"instructions":"x","input":"Hi"})"),
            session("/v1/responses", R"({"input":"Hi","instructions":"x"})"));
  EXPECT_EQ(session(chat, R"({"messages":[)" + hi + "]}", "mine"), "mine");
  EXPECT_EQ(session("/v1/completions", R"({"prompt":"Hi"})"), "") << "no conversation";
  EXPECT_EQ(session(chat, "{"), "");
  EXPECT_EQ(session(chat, "[]"), "");
  EXPECT_EQ(session(chat, "7"), "");
  EXPECT_EQ(session(chat, R"({"messages":[{"role":"assistant","content":"a"}]})"), "");
  // A role within a turn is nobody's turn, and a turn's own role may stand behind its content.
  EXPECT_EQ(session(chat, R"({"messages":[{"role":"system","content":[{"role":"user"}]}]})"), "");
  EXPECT_FALSE(session(chat, R"({"messages":[{"content":[{"role":"x"}],"role":"user"}]})").empty());
  // What is divided otherwise begins otherwise.
  EXPECT_NE(session(chat, R"({"messages":[{"role":"user","content":["a","b"]}]})"),
            session(chat, R"({"messages":[{"role":"user","content":["as1:b"]}]})"));
}

TEST(Asked, AUserIsNamedInOneOfThreeWays) {
  const auto user = [](std::string body) {
    return asked_user(request("POST", "/v1/messages", std::move(body)));
  };
  EXPECT_EQ(user(R"({"user":"a"})"), "a");
  EXPECT_EQ(user(R"({"user":"a","safety_identifier":"b"})"), "b");
  EXPECT_EQ(user(R"({"metadata":{"user_id":"c"}})"), "c");
  EXPECT_EQ(user(R"({"user":7})"), "");
  EXPECT_EQ(user("[]"), "");
}

}  // namespace
}  // namespace pelton::gateway
