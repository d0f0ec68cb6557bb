#include "gateway/event_log.h"

#include <utility>

#include "base/json_writer.h"

namespace pelton::gateway {
namespace {

std::string_view cut(std::string_view text) {
  return text.substr(0, EventLog::kNameMax);
}

}  // namespace

void EventLog::note_states(std::string_view kind, std::map<std::string, std::string> states,
                           int64_t unix_ms) {
  std::lock_guard lock(mutex_);
  auto known = states_.find(kind);
  if (known == states_.end()) known = states_.emplace(kind, decltype(states)()).first;
  const auto say = [&](const std::string& name, std::string_view was, std::string_view is) {
    std::string text;
    base::JsonWriter w(text);
    w.begin_object().key("n").integer(newest_ + 1).key("at").integer(unix_ms);
    w.key("kind").string(kind).key("name").string(cut(name));
    w.key("was").string(cut(was)).key("is").string(cut(is)).end_object();
    add(std::move(text));
  };
  for (const auto& [name, is] : states) {
    const auto was = known->second.find(name);
    if (was == known->second.end()) {
      say(name, "", is);
    } else if (was->second != is) {
      say(name, was->second, is);
    }
  }
  for (const auto& [name, was] : known->second) {
    if (!states.contains(name)) say(name, was, "");
  }
  known->second = std::move(states);
}

void EventLog::note(const Happened& happened, int64_t unix_ms) {
  std::lock_guard lock(mutex_);
  std::string text;
  base::JsonWriter w(text);
  w.begin_object().key("n").integer(newest_ + 1).key("at").integer(unix_ms);
  w.key("kind").string(happened.kind).key("name").string(cut(happened.name));
  w.key("who").string(cut(happened.who)).key("changes").begin_array();
  for (const std::string& change : happened.changes) w.string(cut(change));
  w.end_array().end_object();
  add(std::move(text));
}

void EventLog::add(std::string text) {
  ++newest_;
  events_.push_back(std::move(text));
  if (events_.size() > kEventsMax) events_.pop_front();
}

EventLog::Event EventLog::after(int64_t number) const {
  std::lock_guard lock(mutex_);
  const int64_t oldest = newest_ - static_cast<int64_t>(events_.size()) + 1;
  const bool is_of_another = number < first_ - 1 || number > newest_;
  if (number == 0) number = oldest - 1;
  if (number < oldest - 1 || (is_of_another && number != oldest - 1)) {
    std::string text;
    base::JsonWriter w(text);
    w.begin_object().key("n").integer(oldest - 1).key("kind").string("missed");
    w.key("count").integer(is_of_another ? -1 : oldest - 1 - number).end_object();
    return {.number = oldest - 1, .text = std::move(text)};
  }
  if (number >= newest_) return {.number = number, .text = {}};
  return {.number = number + 1, .text = events_[static_cast<size_t>(number + 1 - oldest)]};
}

}  // namespace pelton::gateway
