#include "chain/builtin.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "chain/text_pieces.h"

namespace pelton::chain {
namespace {

using Kind = Type::Kind;

Error bad(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message), {}};
}

const Json& argument(const Json& arguments, std::string_view name) {
  static const Json null;
  const Json* const found = arguments.find(name);
  return found == nullptr ? null : *found;
}

Result<int64_t> integer_argument(const Json& arguments, std::string_view name, int64_t otherwise,
                                 int64_t least) {
  const Json& value = argument(arguments, name);
  if (value.is_null()) return otherwise;
  if (value.as_integer() >= least) return value.as_integer();
  return bad(fmt::format("'{}' must be at least {}, and is {}", name, least, value.as_integer()));
}

std::string text_argument(const Json& arguments, std::string_view name, std::string otherwise) {
  const Json& value = argument(arguments, name);
  return value.is_null() ? std::move(otherwise) : value.as_string();
}

Result<Json> split(const Json& arguments) {
  TRY_ASSIGN(const int64_t size, integer_argument(arguments, "size", 1000, 1));
  TRY_ASSIGN(const int64_t overlap, integer_argument(arguments, "overlap", 0, 0));
  if (overlap >= size) {
    return bad(fmt::format("'overlap' must be below 'size', {}, and is {}", size, overlap));
  }
  const std::string by = text_argument(arguments, "by", "characters");
  const std::optional<PieceEnd> end = piece_end(by);
  if (!end) {
    return bad(
        fmt::format("'by' must be characters, lines, sentences or paragraphs, and is '{}'", by));
  }
  Json::Array pieces;
  for (const std::string_view piece :
       text_pieces(argument(arguments, "text").as_string(),
                   {.end = *end, .size = size, .overlap = overlap})) {
    pieces.emplace_back(piece);
  }
  Json result{Json::Object{}};
  result.set("count", Json(static_cast<int64_t>(pieces.size())));
  result.set("pieces", Json(std::move(pieces)));
  return result;
}

Result<Json> join(const Json& arguments) {
  const std::string between = text_argument(arguments, "separator", "\n");
  std::string text;
  bool first = true;
  for (const Json& part : argument(arguments, "parts").as_array()) {
    if (part.is_null()) continue;  // of a step that was left out
    if (!std::exchange(first, false)) text += between;
    text += part.is_string() ? part.as_string() : part.dump();
  }
  Json result{Json::Object{}};
  result.set("text", Json(std::move(text)));
  return result;
}

// The k with the highest scores, the first of equal ones first; with the items, if there are any.
Result<Json> best(const Json& items, const std::vector<double>& scores, int64_t k) {
  if (!items.is_null() && items.as_array().size() != scores.size()) {
    return bad(
        fmt::format("there are {} items and {} scores", items.as_array().size(), scores.size()));
  }
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const size_t count = std::min(order.size(), static_cast<size_t>(k));
  std::ranges::partial_sort(
      order, order.begin() + static_cast<std::ptrdiff_t>(count),
      [&](size_t a, size_t b) { return scores[a] != scores[b] ? scores[a] > scores[b] : a < b; });
  order.resize(count);
  Json::Array chosen;
  Json::Array indices;
  Json::Array kept;
  for (const size_t index : order) {
    if (!items.is_null()) chosen.push_back(items.as_array()[index]);
    indices.emplace_back(static_cast<int64_t>(index));
    kept.emplace_back(scores[index]);
  }
  Json result{Json::Object{}};
  result.set("items", Json(std::move(chosen)));
  result.set("indices", Json(std::move(indices)));
  result.set("scores", Json(std::move(kept)));
  return result;
}

Result<Json> top_k(const Json& arguments) {
  TRY_ASSIGN(const int64_t k, integer_argument(arguments, "k", 1, 1));
  std::vector<double> scores;
  for (const Json& score : argument(arguments, "scores").as_array()) {
    scores.push_back(score.as_number());
  }
  return best(argument(arguments, "items"), scores, k);
}

std::vector<double> vector_of(const Json& numbers) {
  std::vector<double> vector;
  vector.reserve(numbers.as_array().size());
  for (const Json& number : numbers.as_array()) vector.push_back(number.as_number());
  return vector;
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

// dot(a, b) / (|a| |b|): of (1, 0) and (1, 1) 0.707. With a vector of zeros it is 0.
Result<Json> rank(const Json& arguments) {
  const std::vector<double> query = vector_of(argument(arguments, "query"));
  const double query_length = std::sqrt(dot(query, query));
  std::vector<double> scores;
  for (const Json& one : argument(arguments, "vectors").as_array()) {
    const std::vector<double> vector = vector_of(one);
    if (vector.size() != query.size()) {
      return bad(fmt::format("vector {} has {} numbers, the query's has {}", scores.size(),
                             vector.size(), query.size()));
    }
    const double lengths = query_length * std::sqrt(dot(vector, vector));
    const double cosine = lengths > 0 ? dot(query, vector) / lengths : 0;
    scores.push_back(std::isfinite(cosine) ? cosine : 0);
  }
  TRY_ASSIGN(const int64_t k,
             integer_argument(arguments, "k", std::max<int64_t>(1, std::ssize(scores)), 1));
  return best(argument(arguments, "items"), scores, k);
}

// Models put JSON into a fence of Markdown where nobody asked for one.
std::string_view without_fence(std::string_view text) {
  constexpr std::string_view kFence = "```";
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos || !text.substr(begin).starts_with(kFence)) return text;
  const size_t line_end = text.find('\n', begin);
  const size_t end = text.rfind(kFence);
  if (line_end == std::string_view::npos || end <= line_end) return text;
  return text.substr(line_end + 1, end - line_end - 1);
}

Result<Json> json(const Json& arguments) {
  Result<Json> value = Json::parse(without_fence(argument(arguments, "text").as_string()));
  if (!value.ok()) return bad("the text is no JSON: " + value.error().message);
  Json result{Json::Object{}};
  result.set("value", *std::move(value));
  return result;
}

Result<Json> template_text(const Json& arguments) {
  Json result{Json::Object{}};
  result.set("text", argument(arguments, "text"));
  return result;
}

Type best_type(Type item) {
  return Type::object({{.name = "items", .type = Type::list(std::move(item))},
                       {.name = "indices", .type = Type::list(Type::of(Kind::kInteger))},
                       {.name = "scores", .type = Type::list(Type::of(Kind::kNumber))}});
}

std::vector<Builtin> all_builtins() {
  const Type text = Type::of(Kind::kText);
  const Type integer = Type::of(Kind::kInteger);
  const Type numbers = Type::list(Type::of(Kind::kNumber));
  const Type anything = Type().or_null();
  const Type text_result = Type::object({{.name = "text", .type = text}});
  return {
      {.name = "split",
       .summary = "a text in pieces of at most 'size' characters",
       .parameters = {{.name = "text", .type = text},
                      {.name = "size", .type = integer.or_null()},
                      {.name = "overlap", .type = integer.or_null()},
                      {.name = "by", .type = text.or_null()}},
       .result = Type::object(
           {{.name = "count", .type = integer}, {.name = "pieces", .type = Type::list(text)}}),
       .function = split},
      {.name = "join",
       .summary = "parts as one text, null ones left out",
       .parameters = {{.name = "parts", .type = Type::list(anything)},
                      {.name = "separator", .type = text.or_null()}},
       .result = text_result,
       .function = join},
      {.name = "top_k",
       .summary = "the 'k' items with the highest scores",
       .parameters = {{.name = "items", .type = Type::list(anything).or_null()},
                      {.name = "scores", .type = numbers},
                      {.name = "k", .type = integer.or_null()}},
       .result = best_type(Type()),
       .function = top_k},
      {.name = "rank",
       .summary = "items by the cosine of their vectors and the query's",
       .parameters = {{.name = "query", .type = numbers},
                      {.name = "vectors", .type = Type::list(numbers)},
                      {.name = "items", .type = Type::list(anything).or_null()},
                      {.name = "k", .type = integer.or_null()}},
       .result = best_type(Type()),
       .function = rank},
      {.name = "json",
       .summary = "the value of a text that is JSON, or holds it in a fence",
       .parameters = {{.name = "text", .type = text}},
       .result = Type::object({{.name = "value", .type = anything}}),
       .function = json},
      {.name = "template",
       .summary = "a text",
       .parameters = {{.name = "text", .type = text}},
       .result = text_result,
       .function = template_text},
  };
}

}  // namespace

const Builtin::Parameter* Builtin::find(std::string_view parameter) const {
  const auto found =
      std::ranges::find_if(parameters, [&](const Parameter& one) { return one.name == parameter; });
  return found == parameters.end() ? nullptr : &*found;
}

const std::vector<Builtin>& builtins() {
  static const std::vector<Builtin> all = all_builtins();
  return all;
}

const Builtin* find_builtin(std::string_view name) {
  for (const Builtin& builtin : builtins()) {
    if (builtin.name == name) return &builtin;
  }
  return nullptr;
}

}  // namespace pelton::chain
