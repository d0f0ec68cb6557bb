#include "bench/ranking.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/json.h"

namespace pelton::bench {
namespace {

bool continues_character(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}

// Where a piece that should end at `wished` ends: at the next blank, if one comes within a quarter
// of a piece.
size_t cut_at(std::string_view text, size_t wished, size_t piece) {
  while (wished < text.size() && continues_character(text[wished])) ++wished;
  const size_t blank = text.find(' ', wished);
  return blank != std::string_view::npos && blank - wished <= piece / 4 ? blank : wished;
}

std::string_view without_blanks_around(std::string_view text) {
  const size_t begin = std::min(text.find_first_not_of(' '), text.size());
  const size_t end = text.find_last_not_of(' ');
  return end == std::string_view::npos ? std::string_view() : text.substr(begin, end - begin + 1);
}

}  // namespace

RankedTexts ranked_texts(std::string_view prompt, int documents) {
  const size_t pieces = static_cast<size_t>(documents) + 1;
  const size_t piece = prompt.size() / pieces;
  std::vector<std::string> texts;
  for (size_t i = 0, from = 0; i < pieces; ++i) {
    const size_t wished = prompt.size() * (i + 1) / pieces;
    const size_t to =
        i + 1 == pieces ? prompt.size() : std::max(from, cut_at(prompt, wished, piece));
    const std::string_view text = without_blanks_around(prompt.substr(from, to - from));
    texts.emplace_back(text.empty() ? prompt : text);
    from = to;
  }
  RankedTexts ranked{.query = std::move(texts.front()), .documents = {}};
  ranked.documents.assign(std::make_move_iterator(texts.begin() + 1),
                          std::make_move_iterator(texts.end()));
  return ranked;
}

Result<void> check_ranking(std::string_view answer, int64_t documents, int64_t results) {
  const auto wrong = [](std::string why) {
    return Error{ErrorCode::kInvalidArgument, std::move(why), {}};
  };
  TRY_ASSIGN(const Json body, Json::parse(answer));
  const Json* const list = body.is_object() ? body.find("results") : nullptr;
  if (list == nullptr || !list->is_array()) return wrong("the answer has no list of 'results'");
  if (std::ssize(list->as_array()) != results) {
    return wrong(fmt::format("the answer ranks {} documents instead of {}", list->as_array().size(),
                             results));
  }
  std::vector<bool> seen(static_cast<size_t>(documents), false);
  for (const Json& result : list->as_array()) {
    const std::optional<double> index = result.number("index");
    if (!index || *index < 0 || *index >= static_cast<double>(documents) ||
        std::floor(*index) != *index) {
      return wrong(fmt::format("a result's 'index' is none of the {} documents", documents));
    }
    const auto at = static_cast<size_t>(*index);
    if (seen[at]) return wrong(fmt::format("the answer ranks document {} twice", at));
    seen[at] = true;
    const std::optional<double> score = result.number("relevance_score");
    if (!score || !std::isfinite(*score))
      return wrong(fmt::format("document {} has no 'relevance_score'", at));
  }
  return {};
}

}  // namespace pelton::bench
