#include "api/messages_block.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

namespace pelton::api {
namespace {

// The body's own limit (net/) bounds texts; no need for a second one.
constexpr size_t kTextBytesMax = std::numeric_limits<size_t>::max();
constexpr size_t kBlocksMax = 65536;
constexpr std::string_view kBetweenBlocks = "\n\n";

}  // namespace

const std::string* needed_text(const Fields& block, std::string_view key, size_t bytes_max) {
  const std::string* text = block.text(key, bytes_max);
  if (text == nullptr) block.refuse(key, fmt::format("'{}' is missing", block.path(key)));
  return block.failed() ? nullptr : text;
}

void check_cache_control(const Fields& block) {
  static constexpr std::string_view kTypes[] = {"ephemeral"};
  static constexpr std::string_view kLifetimes[] = {"5m", "1h"};
  const Json* control = block.object("cache_control");
  if (control == nullptr) return;
  const Fields fields(*control, block.path("cache_control"), block.complaint());
  if (needed_text(fields, "type", 64) == nullptr) return;
  check_word(fields, "type", kTypes);
  check_word(fields, "ttl", kLifetimes);
}

bool read_blocks(const Fields& owner, std::string_view key, SeesText sees_text,
                 SeesBlock sees_block) {
  const Json* content = owner.find(key);
  if (content == nullptr) return false;
  if (content->is_string()) {
    sees_text(content->as_string());
    return true;
  }
  if (!content->is_array()) {
    owner.refuse(key, fmt::format("'{}' must be a string or an array of blocks, not {}",
                                  owner.path(key), content->kind_name()));
    return true;
  }
  const Json* items = owner.array(key, kBlocksMax);
  if (items == nullptr) return true;
  for (size_t i = 0; i < items->as_array().size() && !owner.failed(); ++i) {
    const Json& item = items->as_array()[i];
    const std::string path = item_path(key, i);
    if (!item.is_object()) {
      owner.refuse(
          path, fmt::format("'{}' must be an object, not {}", owner.path(path), item.kind_name()));
      return true;
    }
    const Fields block(item, owner.path(path), owner.complaint());
    const std::string* type = needed_text(block, "type", 256);
    if (type == nullptr) return true;
    check_cache_control(block);
    if (*type != "text") {
      sees_block(block, *type);
    } else if (const std::string* text = needed_text(block, "text", kTextBytesMax)) {
      sees_text(*text);
    }
  }
  return true;
}

void refuse_block(const Fields& block, const std::string& type) {
  block.refuse("type", fmt::format("'{}' is '{}'; this model does not read such blocks",
                                   block.path("type"), type.substr(0, 40)));
}

void refuse_unread_block(const Fields& block, const std::string& type) {
  const std::string_view medium = medium_of(type);
  if (medium.empty()) return refuse_block(block, type);
  refuse_medium(block, medium);
}

void BlockText::add(std::string_view paragraph) {
  if (paragraph.empty()) return;
  if (!text_.empty()) text_ += kBetweenBlocks;
  text_ += paragraph;
}

bool BlockText::add_block(const Fields& block, const std::string& type) {
  const std::string_view medium = medium_of(type);
  if (type == "document") {
    add_document(block);
  } else if (type == "search_result") {
    add_search_result(block);
  } else if (!medium.empty()) {
    add_medium(block, medium);
  } else {
    return false;
  }
  return true;
}

// {"source": {"type": "text", "data": …} or {"type": "content", "content": …}, "title", "context"}
// The title T and the data D become "T\n\nD"; a source of another type, base64 of a PDF, "T\n\n[PDF
// omitted: this model reads text only]", or is refused.
void BlockText::add_document(const Fields& block) {
  const Json* json = block.object("source");
  if (json == nullptr) {
    return block.refuse("source", fmt::format("'{}' is missing", block.path("source")));
  }
  const Fields source(*json, block.path("source"), block.complaint());
  const std::string* type = needed_text(source, "type", 256);
  if (type == nullptr) return;
  for (const std::string_view key : {"title", "context"}) {
    if (const std::string* words = block.text(key, kTextBytesMax)) add(*words);
  }
  read_citations(block);
  if (*type == "text") {
    if (const std::string* data = needed_text(source, "data", kTextBytesMax)) add(*data);
  } else if (*type == "content") {
    add_content(source);
  } else {
    add_medium(block, *type == "file" ? "file" : "PDF");
  }
}

// {"source": "https://…", "title": …, "content": [text blocks]}: the title T, the source S and a
// block of text B become "T\nS\n\nB".
void BlockText::add_search_result(const Fields& block) {
  const std::string* title = needed_text(block, "title", kTextBytesMax);
  const std::string* source = needed_text(block, "source", kTextBytesMax);
  if (title == nullptr || source == nullptr) return;
  add(fmt::format("{}\n{}", *title, *source));
  read_citations(block);
  add_content(block);
}

void BlockText::add_content(const Fields& owner) {
  const auto add_text = [&](const std::string& text) { add(text); };
  const auto add_other = [&](const Fields& block, const std::string& type) {
    const std::string_view medium = medium_of(type);
    if (medium.empty()) return refuse_block(block, type);
    add_medium(block, medium);
  };
  if (read_blocks(owner, "content", add_text, add_other)) return;
  owner.refuse("content", fmt::format("'{}' is missing", owner.path("content")));
}

void BlockText::add_medium(const Fields& part, std::string_view medium) {
  if (unread_ == UnreadParts::kRefused) return refuse_medium(part, medium);
  add(placeholder_of(medium));
  replaced_.push_back(part.path(""));
}

void BlockText::read_citations(const Fields& block) {
  const Json* json = block.object("citations");
  if (json == nullptr) return;
  const Fields citations(*json, block.path("citations"), block.complaint());
  if (!citations.boolean("enabled").value_or(false)) return;
  const std::string_view warning = "citations ignored: this model writes none";
  if (std::ranges::find(warnings_, warning) == warnings_.end()) warnings_.emplace_back(warning);
}

std::string read_text_blocks(const Fields& owner, std::string_view key) {
  BlockText text(UnreadParts::kRefused);
  const auto add = [&](const std::string& more) { text.add(more); };
  const auto refuse = [](const Fields& block, const std::string& type) {
    refuse_unread_block(block, type);
  };
  read_blocks(owner, key, add, refuse);
  return text.take_text();
}

}  // namespace pelton::api
