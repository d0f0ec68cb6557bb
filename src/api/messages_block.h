// The blocks that an Anthropic message's "content" is made of, and the words in them: text,
// documents as text, search results. What is no text is refused or gets a placeholder. One thread.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/fields.h"
#include "api/unread_part.h"
#include "base/function_ref.h"

namespace pelton::api {

// The member that a block must have; null, and a complaint, if it has not.
const std::string* needed_text(const Fields& block, std::string_view key, size_t bytes_max);

// {"type": "ephemeral", "ttl": "5m"}, where the block (a tool, the body) has one. Prefixes are
// cached by themselves, so nothing comes of it; but a slip in it must not go unseen.
void check_cache_control(const Fields& block);

// Each block of `content`, which is a string (read as a text block would be) or an array. False if
// there is no content.
using SeesText = base::FunctionRef<void(const std::string& text)>;
using SeesBlock = base::FunctionRef<void(const Fields& block, const std::string& type)>;
bool read_blocks(const Fields& owner, std::string_view key, SeesText sees_text,
                 SeesBlock sees_block);

void refuse_block(const Fields& block, const std::string& type);
// Where only text may stand; images and files by words that clients know.
void refuse_unread_block(const Fields& block, const std::string& type);

// The words of blocks of any kind that has words, each a paragraph.
class BlockText {
 public:
  explicit BlockText(UnreadParts unread) : unread_(unread) {}

  void add(std::string_view paragraph);
  // A document, a search result, or what is no text; false where the block is none of these.
  bool add_block(const Fields& block, const std::string& type);

  std::string take_text() { return std::exchange(text_, {}); }
  std::vector<std::string> take_replaced() { return std::exchange(replaced_, {}); }
  // What was asked for in these blocks and is not done, each kind once.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  void add_document(const Fields& block);
  void add_search_result(const Fields& block);
  void add_content(const Fields& owner);
  void add_medium(const Fields& part, std::string_view medium);
  void read_citations(const Fields& block);

  const UnreadParts unread_;
  std::string text_;
  std::vector<std::string> replaced_;
  std::vector<std::string> warnings_;
};

// Text blocks only.
std::string read_text_blocks(const Fields& owner, std::string_view key);

}  // namespace pelton::api
