// For tests: a response stream put together again, as a client's library does, every rule of the
// event sequence checked on the way.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "server/server_fixture.h"

namespace pelton::server {

struct ResponseText {
  struct Item {
    std::string type;
    std::string status;
    std::string text;
    std::string name;
    friend bool operator==(const Item&, const Item&) = default;
  };
  std::vector<Item> items;
  std::string status;
  std::string incomplete_reason;
  std::string logprobs;  // the tokens' entries, as JSON, commas between
  int64_t output_tokens = -1;
  int64_t reasoning_tokens = -1;

  friend bool operator==(const ResponseText&, const ResponseText&) = default;
};

inline void add_logprobs(const Json* list, std::string& logprobs) {
  if (list == nullptr) return;
  for (const Json& entry : list->as_array()) {
    if (!logprobs.empty()) logprobs += ',';
    logprobs += entry.dump();
  }
}

inline ResponseText::Item text_of_item(const Json& item, std::string* logprobs) {
  ResponseText::Item text{.type = item.string("type").value_or(""),
                          .status = item.string("status").value_or(""),
                          .text = item.string("arguments").value_or(""),
                          .name = item.string("name").value_or("")};
  if (const Json* content = item.find("content")) {
    for (const Json& part : content->as_array()) {
      EXPECT_EQ(part.string("type"), text.type == "reasoning" ? "reasoning_text" : "output_text");
      text.text += part.string("text").value_or("no text");
      if (logprobs != nullptr) add_logprobs(part.find("logprobs"), *logprobs);
    }
  }
  return text;
}

inline ResponseText text_of_response(const Json& json) {
  ResponseText text;
  EXPECT_EQ(json.string("object"), "response") << json.dump();
  text.status = json.string("status").value_or("");
  if (const Json* details = json.find("incomplete_details")) {
    text.incomplete_reason = details->string("reason").value_or("");
  }
  for (const Json& item : json.find("output")->as_array()) {
    text.items.push_back(text_of_item(item, &text.logprobs));
  }
  if (const Json* usage = json.find("usage"); usage != nullptr && usage->is_object()) {
    text.output_tokens = usage->integer("output_tokens").value_or(-1);
    text.reasoning_tokens =
        usage->find("output_tokens_details")->integer("reasoning_tokens").value_or(-1);
  }
  return text;
}

// What a client builds from the events alone; the last one's object must say the same.
class ResponseStreamReader {
 public:
  void event(const Json& event) {
    const std::string type = event.string("type").value_or("");
    EXPECT_EQ(event.integer("sequence_number"), next_number_++) << type;
    EXPECT_FALSE(over_) << type << " after the end";
    EXPECT_EQ(type == "response.created", next_number_ == 1);
    EXPECT_EQ(type == "response.in_progress", next_number_ == 2);
    if (type == "response.output_item.added") return add_item(event);
    if (type == "response.content_part.added") return add_part(event);
    if (type.starts_with("response.reasoning_summary_")) return summary(type, event);
    if (type.ends_with(".delta")) return add_delta(event);
    if (type.ends_with("_text.done") || type.ends_with("arguments.done")) return end_text(event);
    if (type == "response.content_part.done") return end_part(event);
    if (type == "response.output_item.done") return end_item(event);
    if (event.find("response") != nullptr) return lifecycle(type, *event.find("response"));
    ADD_FAILURE() << "an unknown event: " << type;
  }

  ResponseText text;  // of the last event's object
  bool over() const { return over_; }
  const std::string& id() const { return id_; }

 private:
  struct Open {
    std::string id;
    std::string text;
    std::string logprobs;
    bool part = false;
    bool text_done = false;
    std::string summary;
    int summary_events = 0;  // that are there once: part added, text done, part done
  };

  void add_item(const Json& event) {
    EXPECT_FALSE(open_.has_value()) << "an item begins before the last one has ended";
    EXPECT_EQ(event.integer("output_index"), static_cast<int64_t>(items_.size()));
    const Json& item = *event.find("item");
    EXPECT_EQ(item.string("status"), "in_progress");
    EXPECT_EQ(text_of_item(item, nullptr).text, "");
    open_ = Open{.id = *item.string("id")};
  }
  void check_place(const Json& event) {
    ASSERT_TRUE(open_.has_value());
    EXPECT_EQ(event.string("item_id"), open_->id);
    EXPECT_EQ(event.integer("output_index"), static_cast<int64_t>(items_.size()));
  }
  void add_part(const Json& event) {
    check_place(event);
    EXPECT_EQ(event.find("part")->string("text"), "");
    open_->part = true;
  }
  void add_delta(const Json& event) {
    check_place(event);
    EXPECT_FALSE(open_->text_done);
    EXPECT_NE(event.string("delta"), "");
    open_->text += event.string("delta").value_or("");
    add_logprobs(event.find("logprobs"), open_->logprobs);
  }
  void summary(const std::string& type, const Json& event) {
    check_place(event);
    EXPECT_EQ(event.integer("summary_index"), 0);
    if (type == "response.reasoning_summary_text.delta") {
      EXPECT_EQ(open_->summary_events, 1);
      open_->summary += event.string("delta").value_or("");
      return;
    }
    static constexpr const char* kOnce[] = {"response.reasoning_summary_part.added",
                                            "response.reasoning_summary_text.done",
                                            "response.reasoning_summary_part.done"};
    ASSERT_LT(open_->summary_events, 3);
    EXPECT_EQ(type, kOnce[open_->summary_events++]);
    const Json* part = event.find("part");
    EXPECT_EQ((part == nullptr ? event : *part).string("text"), open_->summary);
  }
  void end_text(const Json& event) {
    check_place(event);
    const bool call = event.find("arguments") != nullptr;
    EXPECT_EQ(event.string(call ? "arguments" : "text"), open_->text);
    open_->text_done = true;
  }
  void end_part(const Json& event) {
    check_place(event);
    EXPECT_TRUE(open_->part && open_->text_done);
    EXPECT_EQ(event.find("part")->string("text"), open_->text);
  }
  void end_item(const Json& event) {
    ASSERT_TRUE(open_.has_value());
    EXPECT_TRUE(open_->text_done);
    const Json& item = *event.find("item");
    EXPECT_EQ(item.string("id"), open_->id);
    const Json* summary = item.find("summary");
    const bool summed = summary != nullptr && !summary->as_array().empty();
    EXPECT_EQ(open_->summary_events, summed ? 3 : 0);
    if (summed) {
      EXPECT_EQ(summary->as_array()[0].string("text"), open_->summary);
    }
    items_.push_back(text_of_item(item, nullptr));
    EXPECT_EQ(items_.back().text, open_->text);
    EXPECT_NE(items_.back().status, "in_progress");
    if (!open_->logprobs.empty()) logprobs_ += (logprobs_.empty() ? "" : ",") + open_->logprobs;
    open_.reset();
  }
  void lifecycle(const std::string& type, const Json& response) {
    if (id_.empty()) id_ = response.string("id").value_or("");
    EXPECT_EQ(response.string("id"), id_);
    if (type == "response.created" || type == "response.in_progress") {
      EXPECT_EQ(response.string("status"), "in_progress");
      return;
    }
    over_ = true;
    text = text_of_response(response);
    EXPECT_TRUE(type == "response." + text.status || text.status == "cancelled") << type;
    if (type == "response.failed") return;
    EXPECT_FALSE(open_.has_value()) << "an item was not ended";
    EXPECT_EQ(items_, text.items);
    EXPECT_EQ(logprobs_, text.logprobs);
  }

  int64_t next_number_ = 0;
  bool over_ = false;
  std::string id_;
  std::optional<Open> open_;
  std::vector<ResponseText::Item> items_;
  std::string logprobs_;
};

inline ResponseText text_of_stream(const std::string& body) {
  ResponseStreamReader reader;
  net::SseParser parser({});
  const Result<void> fed = parser.feed(body, [&](const net::SseEvent& event) {
    const Json json = parsed(event.data);
    EXPECT_EQ(json.string("type"), event.event);
    reader.event(json);
  });
  EXPECT_TRUE(fed.ok());
  EXPECT_TRUE(reader.over()) << body;
  return reader.text;
}

}  // namespace pelton::server
